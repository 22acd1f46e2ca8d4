"""What defines a run: every flag with its source, the presets, and the rate as a function of the step."""

from dataclasses import dataclass
from typing import Annotated, Literal

from .matrices import LEVELS
from .model import ATTENTIONS, TREES, ModelConfig
from .run import Positive, Range, Size, check_fields
from .selection import UNITS_TAKEN
from .units import POOLINGS

Seed = Annotated[int, Range(0, 2**32 - 1)]
MaybeSize = Annotated[int, Range(0, 10**6)]  # 0 = what the comment says


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `head_width` is --head-width. Defaults are the tiny preset's."""

    # Data
    data: str = "toy:signal=0"  # anything shared.data.load takes; trees are part of the data
    level: Literal[LEVELS] = "edu"  # what is extracted: "edu" (Table 2) or "sentence" (Table 3)
    folds: int = 0  # cross-validation over train and validation together, 3 or more; 0 = the splits as they are
    fold: int = 0  # which of the folds is the test data
    examples: int = 0  # training documents, drawn with examples_seed (Section 5.2, low resource: 1,000); 0 = all
    examples_seed: Seed = 0
    # Unit encoder
    encoder: str = ""  # any encoder of transformers, by name or folder; empty = a small random one (D9)
    pooling: Literal[POOLINGS] = "cls"  # a unit's vector: first token (Section 3), or mean over its tokens (D23)
    standardize: bool = False  # vectors with mean 0 and spread 1, as they are in the training documents (D24)
    max_tokens: Annotated[int, Range(3, 10**6)] = 128  # longest unit in word pieces, longer ones are cut
    max_pieces: int = 0  # longest document in word pieces, then units are cut (released code: 1000); 0 = no limit
    cache: str = ""  # folder where unit vectors are kept; empty = "cache" beside the run folder
    # Model: see ModelConfig; the width is the encoder's
    attention: Literal[ATTENTIONS] = "c_tree_nuclearity"
    post_edit: bool = True  # of d_tree: one root per sentence (Section 4.1); released code: none (D2)
    shuffle_trees: bool = False  # control: the matrix of each tree with its units in random order
    heads: Size = 1  # Tables 2 and 3: 8 for one of the dot products
    layers: Size = 2  # released code
    balanced: bool = False  # the second setting of Section 5.1: sizes that put the weight on the attention
    head_width: MaybeSize = 0  # d_v; 0 = Section 5.1: 64; balanced 2/3 of the encoder's width D (512 at bert-base, D16)
    key_width: MaybeSize = 0  # d_k of the dot product; 0 = d_v (Section 5.1)
    feed_forward: MaybeSize = (
        0  # 0 = Section 5.1: 4 times the encoder's width (3072 at bert-base, D16); balanced 2/3 of it
    )
    dense_inner: MaybeSize = 512  # footnote 2 (D3)
    max_units: Size = 512  # released code: longest document of Dense and Random
    positions: Size = 1000  # released code
    dropout: Annotated[float, Range(0, 0.99)] = 0.1  # released code
    classifier: Size = 100  # released code
    init: str = ""  # run folder to fine-tune: its weights, encoder and, unless flags override them, its values
    # Optimisation
    steps: Positive = 600  # updates (released code: 24,000)
    batch_size: Positive = 32  # documents, per process (released code: 32)
    learning_rate: float = 0.01  # factor of min(n^-0.5, n warmup^-1.5) (Section 5.1; D11)
    warmup: Positive = 200  # updates (released code: 2,400; D26)
    save_every: Positive = 100  # updates between validations, of which the best stays (released code: 300)
    mixed_precision: Literal["no", "bf16"] = "no"  # of the forward pass
    seed: Seed = 0
    # Summaries; evaluate.py and predict.py take these from here
    right_nuclei: bool = True  # an EDU brings its ancestors in the sentence, of two nuclei the right one the left (D17)
    units_taken: int = 0  # 0 = 6 EDUs or 3 sentences (Section 5.1)
    max_words: int = 0  # a summary that has this many words is complete (released code: 80); 0 = no limit

    def check(self) -> None:
        """ValueError for a value out of range, or values that contradict each other."""
        check_fields(self)
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
