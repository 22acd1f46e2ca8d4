"""What defines a run: every flag with its source, the presets, and the rate of each step."""

from dataclasses import dataclass
from typing import Annotated, Literal

from .model import ATTENTIONS, ModelConfig
from .selection import UNITS_TAKEN

Positive = Annotated[int, (1, 10**9)]


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `batch_size` is --batch-size.

    Defaults are the tiny preset's.
    """

    # Data to train on, with trees: anything that shared.data.load takes.
    data: str = "toy:signal=0"
    # What is extracted: EDUs (Table 2) or sentences (Table 3).
    level: Literal["edu", "sentence"] = "edu"
    # Training documents, drawn at random by --seed (Section 5.2, low resource: 1,000); 0 = all.
    examples: int = 0
    # Unit encoder, one of transformers' by name or folder; empty = a small random one (D9).
    encoder: str = ""
    # A unit's vector: its first token (Section 3), or its tokens' mean (D23).
    pooling: Literal["cls", "mean"] = "cls"
    # Word pieces of a document, after which units are cut (released code: 1000); 0 = no limit.
    max_pieces: int = 0
    # How units attend to each other (Sections 3 and 4).
    attention: Literal[ATTENTIONS] = "c_tree_nuclearity"
    heads: Positive = 1  # Attention heads: 8 for one of the dot products of Tables 2 and 3.
    # The second sizes of Section 5.1: a wide attention, a narrow feed-forward block (D16).
    balanced: bool = False
    steps: Positive = 600  # Updates (released code: 24,000).
    batch_size: Positive = 32  # Documents in a batch, per process (released code: 32).
    learning_rate: float = 0.01  # Factor of min(n^-0.5, n warmup^-1.5) (Section 5.1; D11).
    # Updates in which the rate rises (Section 5.1: 4,000, after Vaswani et al.; D26).
    warmup: Positive = 200
    # Second beta of Adam (Section 5.1: 0.98, after Vaswani et al.; D26).
    beta2: Annotated[float, (0, 0.9999)] = 0.999
    # Updates between validations, of which the best stays (released code: 300).
    save_every: Positive = 100
    # Of the forward pass; bf16 is slower on a CPU without it.
    mixed_precision: Literal["no", "bf16"] = "no"
    seed: Annotated[int, (0, 2**32 - 1)] = 0  # Seed of weights, batches and dropout.
    units_taken: int = 0  # Units of a summary; 0 = 6 EDUs or 3 sentences (Section 5.1).
    # A summary that has this many words is complete (released code: 80); 0 = no limit.
    max_words: int = 0
    # Tracker of accelerate beside log.jsonl: tensorboard, wandb, ...
    log_with: str = ""

    def check(self) -> None:
        """ValueError for values that contradict each other, before any work."""
        self.model_config(768)

    def model_config(self, width: int) -> ModelConfig:
        """The model's part of the fields, with the encoder's width D."""
        # D16: the paper's sizes belong to D = 768; another width gets them in proportion, but heads
        # of 64 as usual.
        sizes = {"head_width": 64, "feed_forward": 4 * width}
        if self.balanced:
            sizes = dict.fromkeys(sizes, 2 * width // 3)
        return ModelConfig(self.attention, width, heads=self.heads, **sizes)

    @property
    def count(self) -> int:
        """Units of a summary."""
        return self.units_taken or UNITS_TAKEN[self.level]


PAPER = dict(
    # CNN/DM with trees; Section 3: BERT; released code
    data="cnn_dailymail_trees", encoder="bert-base-uncased",
    learning_rate=0.01,  # Section 5.1, D11; released code 0.002
    # Section 5.1: after Vaswani et al. (2017); D26: released code 2,400 and 0.999
    warmup=4000, beta2=0.98,
    steps=24_000, batch_size=32, save_every=300, max_pieces=1000,  # released code; D20
    max_words=80,  # released code; D8
)  # fmt: skip
# Section 5.2: 1,000 documents; released code: warm-up of 2 epochs of 31 batches, a validation an
# epoch, 15 epochs. D20: with the paper's factor the peak is five times the released one.
LOW_RESOURCE = PAPER | dict(examples=1000, warmup=62, beta2=0.999, save_every=31, steps=465)
# D20, this repository's: some hundred documents, the paper's sizes on an encoder of width 384.
SMALL = dict(steps=240, batch_size=8, learning_rate=0.002, warmup=50, save_every=20)
PRESETS = {
    "tiny": {}, "small": SMALL, "paper": PAPER, "paper-balanced": PAPER | dict(balanced=True),
    "paper-low-resource": LOW_RESOURCE,
}  # fmt: skip


def learning_rate(step: int, config: TrainConfig) -> float:
    """Section 5.1: inverse square root with linear warm-up.

    `learning_rate` is a factor, not the peak (D11).
    """
    number = step + 1
    return config.learning_rate * min(number**-0.5, number * config.warmup**-1.5)
