"""What defines a run: every flag with its source, the presets, and the rates as functions of the step."""

from dataclasses import dataclass
from typing import Annotated, Literal

from .run import Positive, Range, Share, Size, check_fields

Boundary = Annotated[float, Range(0, 0.999)]  # of a decision
Length = Annotated[int, Range(3, 10**6)]  # in tokens: <s>, a token, </s>
# Of a model for good.
SIZES = "task model encoder vocabulary width feed_forward heads layers positions hidden activation train_encoder"


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source. Defaults are the tiny preset."""

    task: Literal["summarizer", "tagger"] = "summarizer"  # what is trained
    # Data
    data: str = "toy"  # anything shared.data.load takes
    examples: int = 0  # train on the first so many; 0 = all (Figure 5 and Table 3 vary it)
    max_source: Length = 1024  # tokens, special ones included; longer documents are cut (released code: 1023 and EOS)
    max_target: Length = 256  # tokens; longer summaries are cut
    init: str = ""  # run folder to go on from: its weights and, unless flags override them, its values
    # The summarizer: a small BART of these sizes, or one of transformers
    model: str = ""  # name or folder of transformers, or empty; the paper's: facebook/bart-large
    vocabulary: Annotated[int, Range(260, 10**6)] = 1000  # subwords of the small BART
    width: Size = 128  # of its states
    feed_forward: Size = 512  # inner width of its feed-forward layers
    heads: Size = 4  # of each attention
    layers: Size = 2  # of the encoder, and as many of the decoder
    positions: Size = 1024  # longest source or summary, in tokens
    dropout: Share = 0.0  # of the small BART; a loaded model has its own
    label_smoothing: Share = 0.0  # fairseq's instructions for BART: 0.1
    # The tagger
    encoder: str = ""  # a run, or a name or folder of transformers; of an encoder-decoder its encoder is used
    train_encoder: bool = False  # train the encoder, too; Appendix A: it is fixed
    hidden: Size = 512  # width between the two layers (released code)
    activation: Literal["tanh", "relu"] = "tanh"  # between the two layers: Section 5; released code: "relu"
    tagger_dropout: Share = 0.1  # on the encoder's states (released code)
    oracle: Literal["runs", "newsroom", "lcs"] = "runs"  # how training labels are made: "runs" as in Section 4.1
    min_run: Positive = 1  # words; shorter runs are not labelled
    # Optimisation
    steps: Positive = 1500  # updates at most
    batch_size: Positive = 32  # documents of a micro-batch of one process
    accumulate: Positive = 1  # micro-batches per update and process
    learning_rate: Share = 1e-3  # the highest (Appendix A: 5e-4 for the tagger)
    schedule: Literal["inverse_sqrt", "polynomial", "constant"] = "inverse_sqrt"  # released: "polynomial", linear to 0
    warmup: Positive = 100  # updates
    weight_decay: float = 0.0  # of AdamW (released code: 0.01)
    clip: float = 1.0  # norm of the gradient; 0 = off
    save_every: int = 100  # updates between checkpoints, each with a validation; 0 = an epoch
    patience: int = 0  # stop after so many validations without improvement, take the best; 0 = never, take the last
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"  # of the forward pass
    seed: int = 0  # of weights, order and dropout

    def check(self) -> None:
        """ValueError for a value out of range, or values that contradict each other."""
        check_fields(self)
        if self.task == "tagger" and not (self.encoder or self.init):
            raise ValueError("a tagger needs --encoder: the run of a summarizer, or a name or folder of transformers")
        other = "model" if self.task == "tagger" else "encoder"
        if getattr(self, other):
            raise ValueError(f"--{other} has no meaning for --task {self.task}: leave it out")
        if not self.model and self.task == "summarizer" and max(self.max_source, self.max_target) > self.positions:
            raise ValueError(f"--max-source and --max-target must not exceed --positions, which is {self.positions}")
        if self.width % self.heads:
            raise ValueError(f"--width {self.width} is not a multiple of --heads {self.heads}")


SUMMARIZER = dict(
    data="cnn_dailymail", model="facebook/bart-large", save_every=0, patience=2,  # Appendix A: 2 epochs without gain
    # Appendix A: fairseq's instructions for BART; its 4 x 8 batches of 2,048 tokens are 64 documents of 1,024
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
    "tagger": dict(task="tagger", steps=1000, learning_rate=5e-4, schedule="constant", save_every=0, patience=2),
    "paper": SUMMARIZER,
    "paper-nyt": SUMMARIZER | dict(data="nyt", steps=30_000),  # Appendix A; data: a folder of JSONL
    "paper-xsum": SUMMARIZER | dict(data="xsum", steps=15_000, accumulate=16),
    "paper-tagger": TAGGER,
    "paper-tagger-nyt": TAGGER | dict(data="nyt"),
    "paper-tagger-xsum": TAGGER | dict(data="xsum"),
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
