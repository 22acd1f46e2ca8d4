"""What defines a run: every flag with its source, the presets, and the rates as functions of the step."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

Positive = Annotated[int, Interval(ge=1)]
Share = Annotated[float, Interval(ge=0, le=1)]
Size = Annotated[int, Interval(ge=1, le=10**6)]
Length = Annotated[int, Interval(ge=3, le=10**6)]  # in tokens: <s>, a token, </s>
Boundary = Annotated[float, Interval(ge=0, le=0.999)]  # of a decision
Schedule = Literal["inverse_sqrt", "polynomial", "constant"]
FIXED = "task model encoder vocabulary width feed_forward positions activation train_encoder"  # --init cannot change it
HEADS, LAYERS = 4, 2  # of the small BART: heads of each attention; layers of the encoder, and as many of the decoder


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source. Defaults are the tiny preset."""

    task: Literal["summarizer", "tagger"] = "summarizer"  # What is trained.

    # Data

    data: str = "toy"  # Training data: a folder of JSON lines, or anything else that shared.data.load takes.
    examples: int = 0  # Training documents, the first ones; 0 takes all (Figure 5 and Table 3 vary it).
    max_source: Length = 1024  # Tokens, special ones too, to which documents are cut (released code: 1023 and EOS).
    max_target: Length = 256  # Tokens to which summaries are cut.
    init: str = ""  # Run folder to go on from: its weights and, unless flags override them, its values.

    # The summarizer: a small BART of these sizes, or one of transformers

    model: str = ""  # Name or folder of a BART to start from; empty makes a small one (paper: facebook/bart-large).
    vocabulary: Annotated[int, Interval(ge=260, le=10**6)] = 4000  # Subwords of the small BART.
    width: Size = 64  # Width of the small BART's states.
    feed_forward: Size = 256  # Inner width of its feed-forward layers.
    positions: Size = 1024  # Longest source or summary that it can read, in tokens.
    dropout: Share = 0.1  # Dropout of the small BART; a loaded model has its own.
    label_smoothing: Share = 0.0  # Share of the probability spread over all tokens (fairseq's instructions: 0.1).

    # The tagger

    encoder: str = ""  # The tagger's encoder: a run's, or a name or folder of transformers (paper: roberta-base).
    train_encoder: bool = False  # Train the tagger's encoder, too; in Appendix A it is fixed.
    activation: Literal["tanh", "relu"] = "tanh"  # Between the tagger's layers (Section 5: tanh; released code: relu).
    min_run: Positive = 1  # Words; shorter runs of the summary's words in the document are not labelled.

    # Optimisation

    steps: Positive = 1500  # Updates at most.
    batch_size: Positive = 16  # Documents of a micro-batch of one process.
    accumulate: Positive = 1  # Micro-batches for each update and process.
    learning_rate: Share = 3e-3  # Highest rate (Appendix A: 5e-4 for the tagger, fairseq's 3e-5 for BART).
    schedule: Schedule = "inverse_sqrt"  # How the rate falls after the warm-up (released code: polynomial).
    warmup: Positive = 200  # Updates in which the rate rises.
    weight_decay: float = 0.0  # Weight decay of AdamW (released code: 0.01).
    clip: float = 1.0  # Highest norm of the gradient; 0 turns it off (released code: 0.1).
    save_every: int = 250  # Updates between checkpoints, each with a validation; 0 is an epoch.
    patience: int = 0  # Validations without gain that end training at the best; 0 never stops and takes the last.
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"  # Precision of the forward pass.
    seed: int = 0  # Seed of weights, order and dropout.

    def check(self) -> None:
        """ValueError for values that contradict each other."""
        if self.task == "tagger" and not (self.encoder or self.init):
            raise ValueError("a tagger needs --encoder: the run of a summarizer, or a name or folder of transformers")
        other = "model" if self.task == "tagger" else "encoder"
        if getattr(self, other):
            raise ValueError(f"--{other} has no meaning for --task {self.task}: leave it out")
        if not self.model and self.task == "summarizer" and max(self.max_source, self.max_target) > self.positions:
            raise ValueError(f"--max-source and --max-target must not exceed --positions, which is {self.positions}")
        if self.width % HEADS:
            raise ValueError(f"--width {self.width} is not a multiple of {HEADS}, the number of heads")


SUMMARIZER = dict(
    data="cnn_dailymail", model="facebook/bart-large", save_every=0, patience=2,  # Appendix A: 2 epochs without gain
    # Appendix A: fairseq's instructions for BART. Its 4 x 8 batches of 2,048 tokens are 64 documents of 1,024.
    max_source=1024, max_target=1024, label_smoothing=0.1, steps=20_000, batch_size=2, accumulate=32,
    learning_rate=3e-5, schedule="polynomial", warmup=500, weight_decay=0.01, clip=0.1, mixed_precision="fp16",
)  # fmt: skip
TAGGER = dict(
    task="tagger", data="cnn_dailymail", encoder="roberta-base",  # Section 5; the size: released code
    learning_rate=5e-4, batch_size=32, accumulate=4, save_every=0, patience=2,  # Appendix A: 128, 2 epochs without gain
    steps=12_000, schedule="polynomial", warmup=500, weight_decay=0.01, clip=0.1, mixed_precision="fp16",  # released
)  # fmt: skip
PRESETS = {
    "tiny": {},
    "tagger": dict(
        task="tagger", steps=1000, batch_size=32, learning_rate=5e-4, schedule="constant", warmup=100, save_every=0,
        patience=2,
    ),
    "paper": SUMMARIZER,
    "paper-nyt": SUMMARIZER | dict(data="nyt", steps=30_000),  # Appendix A; data: a folder of JSONL
    # The 2 x 8 batches of 2,048 tokens for XSum are 64 documents of about 500.
    "paper-xsum": SUMMARIZER | dict(data="xsum", steps=15_000, batch_size=4, accumulate=16),
    "paper-tagger": TAGGER,
    "paper-tagger-nyt": TAGGER | dict(data="nyt"),
    "paper-tagger-xsum": TAGGER | dict(data="xsum"),
}  # fmt: skip


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
