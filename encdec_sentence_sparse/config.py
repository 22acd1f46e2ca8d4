"""What defines a run: every flag with its source, the presets, and what changes with the step."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from .approximator import KINDS
from .selection import FULL, PHASES, Selection, ideal_probability

Positive = Annotated[int, (1, 10**9)]
Size = Annotated[int, (1, 10**6)]  # of a model
Tokens = Annotated[int, (3, 10**6)]  # of a text: <s>, a token, </s>
# The small BART: heads, layers of its encoder and of its decoder, and what its flags set.
HEADS, LAYERS = 4, 2
SIZES = ("vocabulary", "width", "feed_forward", "dropout")


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source.

    Defaults: the tiny base.
    """

    # What is trained; all but base start from --init or --model. Section 4.3
    task: Literal[PHASES] = "base"
    # What `shared.data.load` takes: toy, a folder of JSON lines, the name of a corpus.
    data: str = "toy"
    max_source: Tokens = 1024  # Longest document in tokens; longer ones are cut. D9
    # Longest summary in tokens. A new small BART writes 128 at most, see predict --max-length.
    # Released code: 200
    max_target: Tokens = 256
    # Start from a run folder: its weights and, unless flags override them, its values.
    init: str = ""
    # Start from a BART, by name or folder. A.1: facebook/bart-large-cnn, bart-large-xsum
    model: str = ""
    vocabulary: Annotated[int, (260, 10**6)] = 4000  # Most subwords of a new tokenizer.
    width: Size = 64  # Width of a new small BART.
    feed_forward: Size = 256  # Width of its feed-forward layers.
    dropout: Annotated[float, (0, 1)] = 0.1  # Dropout of a new small BART.
    gamma: float = 0.1  # Weight of the entropy in task sparse. Eq. (5); Table 2: 0.1 and 1
    sentence_encoder: Literal[KINDS] = "gru"  # How task kl encodes sentences. Section 4.2: gru
    kl_weight: float = 0.2  # Weight of L_KL in task integrated. Lambda of Eq. (12), A.5
    # How task integrated chooses sentences. Section 4.3
    select: Literal["ideal", "approx", "mix"] = "approx"
    # Sentences that a step attends to: in task integrated, and in predict of any run. Section 4.4
    r: Positive = 5
    steps: Positive = 1500  # Updates at most.
    batch_size: Positive = 16  # Documents of a micro-batch of one process. A.3: 1
    accumulate: Positive = 1  # Micro-batches of an update. A.3: 2
    learning_rate: float = 3e-3  # The highest rate. A.3: 0.002 / 20,000 ** 0.5
    # Updates of linear warm-up; the inverse square root follows. A.3: 20,000 documents
    warmup: Positive = 200
    clip: float = 1.0  # Highest norm of the gradient; 0 = no limit. Released code: 0
    # Updates between checkpoints, each with a validation. A.3: 20,000 documents
    save_every: Positive = 250
    # Validations without gain that end training at the best; 0 = none, take the last. A.3: 3
    patience: int = 0
    # Of the forward pass; bf16 is slower on a CPU without it.
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    log_with: str = ""  # Tracker of accelerate beside log.jsonl: tensorboard, wandb, ...
    seed: int = 0  # Seed of weights, order and dropout.

    def check(self) -> None:
        """ValueError for values that contradict each other."""
        if self.task != "base" and not (self.init or self.model):
            raise ValueError(
                f"--task {self.task} starts from a trained model: give --init RUN or --model NAME"
            )


# A.5: KL-only on a fine-tuned BART, where the paper's chain begins; then paper-integrated, which
# reads r (r*, Section 4.4). A.3; steps: an epoch of A.2's documents, in which all of the paper's
# training converged; max_target: released.
PAPER = dict(
    task="kl",
    data="cnn_dailymail",
    model="facebook/bart-large-cnn",
    max_target=200,
    r=5,
    batch_size=1,
    accumulate=2,
    learning_rate=0.002 * 20_000**-0.5,
    clip=0.0,
    patience=3,
    steps=143_556,
    warmup=10_000,
    save_every=10_000,  # D15: A.3's 20,000 steps are documents, two to an update
)
PRESETS = {
    "tiny": {},
    "paper": PAPER,
    # D24: r* is the r of training, too
    "paper-xsum": PAPER | dict(data="xsum", model="facebook/bart-large-xsum", r=10, steps=102_022),
    # A.5: Int-Apx, --init: a run of --task kl
    "paper-integrated": dict(task="integrated", select="approx"),
    # released code: 25,000 documents (D15)
    "paper-sparse": PAPER | dict(task="sparse", save_every=12_500),
}

# A.3; no trigram twice: released code
RELEASED = dict(num_beams=4, length_penalty=2.0, no_repeat_ngram_size=3)
# D27: the lengths are the released code's, those of XSum facebook/bart-large-xsum's own
DECODING = {
    "own": {},  # the model's own generation settings
    "paper": RELEASED | dict(min_length=50, max_length=200),
    "paper-xsum": RELEASED | dict(min_length=11, max_length=62),
}


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of update `step`, from 0.

    A.3: factor * min(n^-0.5, n * warmup^-1.5); `config` has its maximum.
    """
    # D15: updates, and so is `warmup` (released code: both in documents, two to an update)
    n = step + 1
    return config.learning_rate * min((config.warmup / n) ** 0.5, n / config.warmup)


def choose_selection(config: TrainConfig, step: int) -> Selection:
    """What decoder layers attend to at update `step`, in all of its micro-batches and processes."""
    if config.task != "integrated":
        return FULL
    if config.select != "mix":
        return Selection(config.select, r=config.r)
    # D17: drawn once an update (released code: once a document); the paper trains for one epoch
    draw = np.random.default_rng((config.seed, 1, step)).random()
    mode = "ideal" if draw < ideal_probability(step, config.steps) else "approx"
    return Selection(mode, r=config.r)
