"""What defines a run: every flag with its source, the presets, and what changes with the step."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from .approximator import KINDS
from .run import Positive, Range, Share, Size, check_fields
from .selection import PHASES, Selection, ideal_probability
from .sentences import RULES

Tokens = Annotated[int, Range(3, 10**6)]  # of a text: <s>, a token, </s>
SIZES = ("vocabulary", "width", "feed_forward", "heads", "layers", "positions", "dropout")  # of the small BART
LONG = ("attention_window", "extend_positions")  # of LoBART
EFFECT = {  # of what only some tasks read
    "gamma": ("sparse",), "sentence_encoder": ("kl",), "temperature": ("kl", "integrated"),
    "kl_scale": ("kl", "integrated"), "kl_weight": ("integrated",), "select": ("integrated",),
    "mix_steps": ("integrated",),
}  # fmt: skip


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source. Defaults: the tiny base."""

    task: Literal[PHASES] = "base"  # Section 4.3; all but base start from a trained model: --init or --model
    # Data
    data: str = "toy"  # anything shared.data.load takes
    examples: int = 0  # train on the first so many; 0 = all
    max_source: Tokens = 1024  # <s> and </s> included. D9: longer documents are cut, 4096 for LoBART
    max_target: Tokens = 256  # longer summaries are cut (released code: 200, arXiv 400)
    sentences: Literal[RULES] = "given"  # the data's own (whole strings are split), or the paper's nltk
    # The model to start from; neither: a small new BART
    init: str = ""  # run folder: its weights and, unless flags override them, its values
    model: str = ""  # BART of transformers, name or folder (the paper's: facebook/bart-large-cnn, bart-large-xsum)
    attention_window: int = 0  # LoBART: width of local attention in the encoder, tokens; 0 = the model's own
    extend_positions: int = 0  # LoBART: length of the position table; 0 = the model's own
    # The small BART
    vocabulary: Annotated[int, Range(260, 10**6)] = 1000  # subwords; at least all bytes and the special tokens
    width: Size = 128
    feed_forward: Size = 512
    heads: Size = 4
    layers: Size = 2  # of the encoder, and as many of the decoder
    positions: Size = 1024
    dropout: Share = 0.0  # a loaded model has its own
    # Attention
    gamma: float = 0.1  # of sparse: weight of the entropy, Eq. (5); Table 2 has 0.1 and 1
    sentence_encoder: Literal[KINDS] = "gru"  # of kl: the paper's gru, or beyond it mean, attention
    temperature: Annotated[float, Range(0.01, 100)] = 0.5  # of kl and integrated: of the target; A.5
    kl_scale: Literal["paper", "released"] = "paper"  # D5: released = divided by the sentences, summed over layers
    kl_weight: float = 0.2  # of integrated: lambda of Eq. (12); A.5
    select: Literal["ideal", "approx", "mix"] = "approx"  # of integrated: Int-Idl, Int-Apx or Int-Mix, Section 4.3
    r: Positive = 5  # of integrated: sentences that a step attends to; Section 4.4
    mix_steps: int = 0  # updates until mix is approx alone; 0 = an epoch, Section 4.3
    # Optimisation
    steps: Positive = 1500  # updates at most
    batch_size: Positive = 32  # documents of a micro-batch of one process
    accumulate: Positive = 1  # micro-batches per update and process
    learning_rate: float = 1e-3  # the highest
    warmup: Positive = 100  # updates, linear, then the inverse square root; A.3: 20,000 documents
    clip: float = 1.0  # norm of the gradient; 0 = off, as in the paper
    save_every: int = 100  # updates between checkpoints, each with a validation; 0 = an epoch
    patience: int = 0  # stop after so many validations without improvement, take the best; 0 = never, take the last
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"  # of the forward pass
    seed: int = 0

    def check(self) -> None:
        """ValueError for a value out of range, or values that contradict each other."""
        check_fields(self)
        if self.task != "base" and not (self.init or self.model):
            raise ValueError(f"--task {self.task} starts from a trained model: give --init RUN or --model NAME")
        if self.task != "base" and self.extend_positions and not self.init:
            raise ValueError("--extend-positions needs training first: --task base, then --init that run")
        if self.attention_window % 2:
            raise ValueError(f"--attention-window is {self.attention_window}; it must be even")
        if self.width % self.heads:
            raise ValueError(f"--width {self.width} is not a multiple of --heads {self.heads}")
        without_effect = [name for name, tasks in EFFECT.items() if self.task not in tasks and not self.init]
        for name in [*without_effect, *(SIZES if self.model else ())]:
            if getattr(self, name) != getattr(type(self), name):
                beside = f"--model {self.model}" if name in SIZES else f"--task {self.task}"
                raise ValueError(f"--{name.replace('_', '-')} has no effect with {beside}: leave it out")


# A.5: KL-only on a fine-tuned BART, where the paper's chain begins; then paper-integrated, which reads r (r*, Section
# 4.4). A.3; steps: an epoch of A.2's documents, in which all of the paper's training converged; max_target: released.
PAPER = dict(
    task="kl", data="cnn_dailymail", model="facebook/bart-large-cnn", sentences="nltk", max_target=200, r=5,
    batch_size=1, accumulate=2, learning_rate=0.002 * 20_000**-0.5, clip=0.0, patience=3, steps=143_556,
    warmup=10_000, save_every=10_000,  # D15: A.3's 20,000 steps are documents, two to an update
)  # fmt: skip
# D24: the fine-tuned LoBART that the KL run starts from is trained first; r 30 in training (released code: 5)
LOBART = PAPER | dict(task="base", max_source=4096, attention_window=1024, extend_positions=4096, r=30)
PRESETS = {
    "tiny": {},
    "paper": PAPER,
    "paper-xsum": PAPER | dict(data="xsum", model="facebook/bart-large-xsum", r=10, steps=102_022),
    "paper-arxiv": LOBART | dict(data="arxiv", max_target=400, steps=101_518),
    "paper-podcast": LOBART | dict(data="podcast", steps=30_207),  # data: a folder of JSONL
    "paper-kl": dict(task="kl", init="a run of --preset paper-arxiv or paper-podcast"),  # A.5
    "paper-integrated": dict(task="integrated", select="approx", init="a run of --task kl"),  # A.5: Int-Apx
    "paper-sparse": PAPER | dict(task="sparse", save_every=12_500),  # released code: 25,000 documents (D15)
}


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of update `step`, from 0. A.3: factor * min(n^-0.5, n * warmup^-1.5); `config` has its maximum."""
    n = step + 1  # D15: updates, and so is `warmup` (released code: both in documents, two to an update)
    return config.learning_rate * min((config.warmup / n) ** 0.5, n / config.warmup)


def choose_selection(config: TrainConfig, step: int, mix_steps: int) -> Selection:
    """What decoder layers attend to at update `step`, in all of its micro-batches and processes."""
    if config.task != "integrated":
        return Selection("full")
    mode = config.select
    if mode == "mix":  # D17: drawn once an update, from the seed and the step (released code: once a document)
        draw = np.random.default_rng((config.seed, 1, step)).random()
        mode = "ideal" if draw < ideal_probability(step, mix_steps) else "approx"
    return Selection(mode, r=config.r)
