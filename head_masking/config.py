"""What defines a tagger's run: flags with their sources, presets, the rate of a step."""

from dataclasses import dataclass
from typing import Annotated, Literal

Positive = Annotated[int, (1, 10**9)]
Share = Annotated[float, (0, 1)]
Length = Annotated[int, (3, 10**6)]  # in tokens: <s>, a token, </s>
Boundary = Annotated[float, (0, 0.999)]  # of a decision
Schedule = Literal["inverse_sqrt", "polynomial", "constant"]
Precision = Literal["no", "bf16", "fp16"]
# A new encoder, where --encoder names none: what learns the toy stories on one core in a minute.
VOCABULARY, WIDTH, LAYERS, HEADS = 1000, 64, 2, 4


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a tagger's run. Defaults are the tiny preset.

    Every field is a flag: `max_source` is --max-source.
    """

    # Training data: a folder of JSON lines, or anything else that shared.data.load takes.
    data: str = "toy"
    # Training documents, the first ones; 0 takes all (Figure 5 and Table 3 vary it).
    examples: int = 0
    # Tokens, special ones too, to which documents are cut (released code: 1023 and EOS).
    max_source: Length = 1024
    # Words; shorter runs of the summary's words in the document are not labelled.
    min_run: Positive = 1
    # A name or folder of transformers (Section 5: RoBERTa); empty makes a small new one.
    encoder: str = ""
    train_encoder: bool = True  # Train the encoder, too (D12); in Appendix A it is fixed.

    steps: Positive = 300  # Updates at most.
    batch_size: Positive = 16  # Documents of a micro-batch of one process.
    accumulate: Positive = 1  # Micro-batches for each update and process.
    learning_rate: Share = 2e-3  # Highest rate (Appendix A: 5e-4).
    # How the rate falls after the warm-up (released code: polynomial).
    schedule: Schedule = "inverse_sqrt"
    warmup: Positive = 50  # Updates in which the rate rises (released code: 500).
    weight_decay: float = 0.0  # Weight decay of AdamW (released code: 0.01).
    clip: float = 1.0  # Highest norm of the gradient; 0 turns it off (released code: 0.1).
    save_every: int = 100  # Updates between checkpoints, each with a validation; 0 is an epoch.
    # Validations without gain that end training at the best; 0 never stops and takes the last.
    patience: int = 0
    mixed_precision: Precision = "no"  # Of the forward pass; bf16 is slower on a CPU without it.
    log_with: str = ""  # Tracker of accelerate beside log.jsonl: tensorboard, wandb, ...
    seed: int = 0  # Seed of weights, order and dropout.

    def check(self) -> None:
        """ValueError for values that contradict each other."""
        if not (self.encoder or self.train_encoder):
            raise ValueError(
                "--train-encoder False needs --encoder: a new encoder knows nothing before it is "
                "trained"
            )


PAPER = dict(
    data="cnn_dailymail",
    encoder="roberta-base",  # Section 5; the size: released code
    # Appendix A: fixed, batches of 128
    train_encoder=False,
    learning_rate=5e-4,
    batch_size=32,
    accumulate=4,
    save_every=0,
    patience=2,  # Appendix A: 2 epochs without gain
    # released
    steps=12_000,
    schedule="polynomial",
    warmup=500,
    weight_decay=0.01,
    clip=0.1,
    mixed_precision="fp16",
)
PRESETS = {
    "tiny": {},
    # this repository's: for the perceptron alone, on an encoder that --encoder names
    "pretrained": dict(
        train_encoder=False,
        steps=1000,
        batch_size=32,
        learning_rate=5e-4,
        schedule="constant",
        warmup=100,
        save_every=0,
        patience=2,
    ),
    "paper": PAPER,
    "paper-nyt": PAPER | dict(data="nyt"),  # a folder of JSONL
    "paper-xsum": PAPER | dict(data="xsum"),
}


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of update `step` (from 0): linear warm-up, then the schedule."""
    number, peak = step + 1, config.learning_rate
    if number < config.warmup:
        return peak * number / config.warmup
    match config.schedule:
        case "inverse_sqrt":
            return peak * (config.warmup / number) ** 0.5
        case "polynomial":
            return peak * (config.steps - step) / max(config.steps - config.warmup + 1, 1)
        case "constant":
            return peak
