"""What defines a run: every flag with its source, the presets, and the rate as a function of the step."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Interval

from .model import ATTENTIONS, TREES, ModelConfig
from .selection import UNITS_TAKEN

Positive = Annotated[int, Interval(ge=1)]
Size = Annotated[int, Interval(ge=1, le=10**6)]
MaybeSize = Annotated[int, Interval(ge=0, le=10**6)]  # 0 = what the comment says
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `head_width` is --head-width. Defaults are the tiny preset's."""

    data: str = "toy:signal=0"  # Data to train on, with trees: anything that shared.data.load takes.
    level: Literal["edu", "sentence"] = "edu"  # What is extracted: EDUs (Table 2) or sentences (Table 3).
    folds: int = 0  # Folds of cross-validation over train and validation, 3 or more; 0 = the splits as they are.
    fold: int = 0  # Which of the folds is the test data.
    examples: int = 0  # Training documents, drawn at random (Section 5.2, low resource: 1,000); 0 = all.
    examples_seed: Seed = 0  # Seed by which --examples draws.
    encoder: str = ""  # Unit encoder, one of transformers' by name or folder; empty = a small random one (D9).
    pooling: Literal["cls", "mean"] = "cls"  # A unit's vector: its first token (Section 3), or its tokens' mean (D23).
    standardize: bool = False  # Vectors get mean 0 and spread 1, as in the training documents (D24).
    max_pieces: int = 0  # Word pieces of a document, after which units are cut (released code: 1000); 0 = no limit.
    cache: str = ""  # Folder where unit vectors are kept; empty = "cache" beside the run folder.
    attention: Literal[ATTENTIONS] = "c_tree_nuclearity"  # How units attend to each other (Sections 3 and 4; D25).
    post_edit: bool = True  # D-Tree has one root a sentence (Section 4.1); the released code leaves this out (D2).
    shuffle_trees: bool = False  # Control: the matrix of each tree has its units in random order.
    heads: Size = 1  # Attention heads: 8 for one of the dot products of Tables 2 and 3.
    balanced: bool = False  # The second setting of Section 5.1: sizes that put the weight on the attention.
    head_width: MaybeSize = 0  # d_v = d_k; 0 = 64, balanced 2/3 of the encoder's width D (Section 5.1, D16).
    feed_forward: MaybeSize = 0  # d_inner; 0 = 4 D, balanced 2/3 D (Section 5.1, D16).
    dense_inner: MaybeSize = 512  # Inner width of Dense (footnote 2); 0 = the head width (D3).
    steps: Positive = 600  # Updates (released code: 24,000).
    batch_size: Positive = 32  # Documents in a batch, per process (released code: 32).
    learning_rate: float = 0.01  # Factor of min(n^-0.5, n warmup^-1.5) (Section 5.1; D11).
    warmup: Positive = 200  # Updates in which the rate rises (released code: 2,400; D26).
    save_every: Positive = 100  # Updates between validations, of which the best stays (released code: 300).
    mixed_precision: Literal["no", "bf16"] = "no"  # Numbers of the forward pass: float32, or bfloat16 where it can.
    seed: Seed = 0  # Seed of weights, batches and dropout.
    right_nuclei: bool = True  # An EDU brings its ancestors in the sentence, of two Nuclei the left one (D17).
    units_taken: int = 0  # Units of a summary; 0 = 6 EDUs or 3 sentences (Section 5.1).
    max_words: int = 0  # A summary that has this many words is complete (released code: 80); 0 = no limit.

    def check(self) -> None:
        """ValueError for values that contradict each other."""
        if (self.folds or self.fold) and not self.fold < self.folds >= 3:
            raise ValueError(f"--fold {self.fold} of --folds {self.folds}: need 3 folds or more, counted from 0")
        if self.shuffle_trees and self.attention not in TREES:
            raise ValueError(f"--shuffle-trees is a control of trees; --attention {self.attention} reads no tree")
        if not self.post_edit and self.attention != "d_tree":
            raise ValueError(f"--post-edit is for --attention d_tree, not {self.attention}")
        self.model_config(768)  # its own checks

    def model_config(self, width: int) -> ModelConfig:
        """The model's part of the fields, with the encoder's width D."""
        values = {name: value for name, value in vars(self).items() if name in ModelConfig.__dataclass_fields__}
        # D16: the paper's sizes belong to D = 768; another width gets them in proportion, but heads of 64 as usual.
        values["head_width"] = self.head_width or (2 * width // 3 if self.balanced else 64)
        values["feed_forward"] = self.feed_forward or (2 * width // 3 if self.balanced else 4 * width)
        return ModelConfig(**values, width=width)

    @property
    def count(self) -> int:
        """Units of a summary."""
        return self.units_taken or UNITS_TAKEN[self.level]

    def splits(self, split: str) -> tuple[str, ...]:
        """What of the data to read for a split; with folds train and validation are one corpus."""
        return ("train", "validation") if self.folds else (split,)


PAPER = dict(
    data="cnn_dailymail_trees", encoder="bert-base-uncased",  # CNN/DM with trees; Section 3: BERT; released code
    learning_rate=0.01,  # Section 5.1, D11
    warmup=2400,  # D26: Section 5.1 says "standard", released code 2,400
    steps=24_000, batch_size=32, save_every=300, max_pieces=1000, max_words=80,  # released code
)  # fmt: skip
GUM = dict(  # this repository's (D20): 200 long documents, the paper's sizes on an encoder of width 384
    data="gum", folds=5, steps=240, batch_size=8, learning_rate=0.002, warmup=50, save_every=20, mixed_precision="bf16",
)  # fmt: skip
PRESETS = {"tiny": {}, "gum": GUM, "paper": PAPER}
PRESETS |= {f"{name}-balanced": PRESETS[name] | dict(balanced=True) for name in ("gum", "paper")}


def learning_rate(step: int, config: TrainConfig) -> float:
    """Section 5.1: inverse square root with linear warm-up; `learning_rate` is a factor, not the peak (D11)."""
    number = step + 1
    return config.learning_rate * min(number**-0.5, number * config.warmup**-1.5)
