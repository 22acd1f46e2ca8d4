"""What defines a run: flags and presets, with the source of each value; the rate of an update."""

from dataclasses import dataclass
from typing import Annotated, Literal

from .diminishing import CONCAVE, KINDS

Positive = Annotated[int, (1, 10**9)]
Share = Annotated[float, (0, 1)]


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Defaults are the tiny preset, a pointer-generator.

    Every field is a flag: `max_source` is --max-source.
    """

    # Network: pointer-generator, BERTSum, or Table 1's Transformer: BERTSum's words and decoder on
    # a new encoder.
    model: Literal["pointer", "bertsum-abs", "transformer"] = "pointer"
    # Run to go on from: its weights and, unless flags override them, its values (Section 4.2).
    init: str = ""

    data: str = "toy"  # Training data: anything that shared.data.load takes.
    # Cut documents to so many tokens (See et al.: 400; Section 4.2: 600, 800).
    max_source: Positive = 400
    max_target: Positive = 100  # Cut summaries to so many tokens in training (See et al.).

    coverage: bool = False  # Add the coverage vector and its loss (Eq. 2-5).
    # Attention: plain, DimAttn (Eq. 10), or DyDimAttn (Eq. 13).
    diminishing: Literal[KINDS] = "none"
    # Concave function f of DimAttn, and f2 of DyDimAttn; f1 is the other (Section 4.2).
    f: Literal[CONCAVE] = "log"

    # Words of the pointer-generator (See et al.: 50,000).
    vocabulary: Annotated[int, (5, 10**6)] = 300
    # Width of the pointer-generator's LSTMs; its embedding has half of it (See et al.: 256, 128).
    hidden: Annotated[int, (2, 10**6)] = 64
    # Where its weights start: as in the released code, or as torch's own layers do, larger, for a
    # small model (D14).
    initial_values: Literal["released", "torch"] = "released"

    # BERTSum's BERT of transformers, name or folder (Section 4.2: bert-base-uncased).
    encoder: str = ""
    width: Positive = 768  # Width of the Transformer's new encoder (768 by Table 1's parameters).
    layers: Positive = 6  # Layers of BERTSum's decoder (Section 2.3: 6) and of a new encoder.
    feed_forward: Positive = 2048  # Its inner width (PreSumm: 2048).
    dropout: Share = 0.2  # Its dropout (PreSumm: 0.2).

    steps: Positive = 1200  # Updates of this run.
    batch_size: Positive = 16  # Most documents of a micro-batch of one process (See et al.: 8).
    # Most padded target tokens of a micro-batch; 0 = any number (PreSumm: 140).
    batch_tokens: int = 0
    accumulate: Positive = 1  # Micro-batches per update and process (PreSumm: 5 on 4 GPUs).
    optimizer: Literal["adam", "adagrad"] = "adam"  # Optimiser (D8: See et al. have Adagrad).
    learning_rate: float = 2e-3  # Rate of all but BERTSum's encoder; with a warm-up lr~ of Eq. 8.
    warmup: int = 0  # Updates of its warm-up; 0 = a constant rate (Section 2.3: 10,000).
    encoder_learning_rate: float = 2e-3  # Rate of BERTSum's encoder; with a warm-up lr~ of Eq. 7.
    encoder_warmup: int = 0  # Updates of its warm-up; 0 = a constant rate (Section 2.3: 20,000).
    save_every: Positive = 200  # Updates between checkpoints.
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"  # Of the forward pass.
    log_with: str = ""  # Tracker of accelerate beside log.jsonl: tensorboard, wandb, ...
    seed: int = 0  # Seed of the weights, of dropout and of the order of the data.

    def check(self) -> None:
        """ValueError for values that contradict each other."""
        if self.coverage and (self.diminishing != "none" or self.model != "pointer"):
            raise ValueError(
                "--coverage is a system of its own, of the pointer-generator: leave the others out"
            )
        if (self.model == "pointer") == bool(self.encoder):
            raise ValueError(
                "--encoder, a BERT, goes with --model bertsum-abs or transformer, which need it"
            )
        if self.model != "pointer" and (self.max_source < 3 or self.max_target < 2):
            raise ValueError(
                "BERTSum needs --max-source of at least 3 ([CLS], a word, [SEP]), --max-target at "
                "least 2"
            )


def learning_rate(step: int, factor: float, warmup: int) -> float:
    """Rate at update `step`, from 1 on; a `warmup` of 0 updates is a constant rate.

    The encoder is pretrained, so its rate is lower and rises more slowly: the paper's `factor` is
    2e-3 for the encoder, 0.1 for the decoder.
    """
    # Eq. (7) of the encoder, Eq. (8) of the decoder
    return factor * min(step**-0.5, step * warmup**-1.5) if warmup else factor


PAPER = dict(  # See et al. (2017), as in the public code that Section 4.2 names
    data="cnn_dailymail",
    vocabulary=50_000,
    hidden=256,
    max_source=400,
    max_target=100,
    steps=230_000,
    batch_size=8,
    optimizer="adagrad",
    learning_rate=0.15,
    save_every=5000,
)
# Section 2.3; Liu & Lapata (2019), whose hyper-parameters Section 4.2 keeps; released PreSumm
PAPER_BERTSUM = dict(
    model="bertsum-abs",
    data="cnn_dailymail",
    encoder="bert-base-uncased",
    layers=6,
    feed_forward=2048,
    dropout=0.2,
    max_source=512,
    max_target=140,
    steps=200_000,
    # PreSumm: 140 target tokens, 5 micro-batches, 4 GPUs
    batch_tokens=140,
    batch_size=6,
    accumulate=20,
    learning_rate=0.1,
    warmup=10_000,  # the paper's; PreSumm's command has 0.2
    encoder_learning_rate=2e-3,
    encoder_warmup=20_000,
    save_every=2000,
)
SECTION_4_2 = dict(init="a run of --preset paper", steps=10_000)  # less than 10,000 updates more
PRESETS = {
    "tiny": {},
    # Stories that tell most facts again: what a short training leaves is a model that repeats
    # itself.
    "repetition": dict(data="toy:repetition=0.8,min_facts=3,max_facts=4,signal=0.5", steps=400),
    "paper": PAPER,
    "paper-dim": SECTION_4_2 | dict(diminishing="dim", max_source=600),
    "paper-dydim": SECTION_4_2 | dict(diminishing="dydim", max_source=800),
    "paper-coverage": dict(init="a run of --preset paper", coverage=True, steps=3000),  # See et al.
    # ours, to be tried on short texts with a small BERT, which --encoder names
    "bertsum-abs": dict(
        model="bertsum-abs",
        encoder="a BERT",
        layers=2,
        feed_forward=512,
        dropout=0.1,
        max_target=60,
        steps=600,
        learning_rate=0.03,
        warmup=200,
        encoder_warmup=200,
    ),
    "paper-bertsum-abs": PAPER_BERTSUM,
    # Table 1's 6-layer Transformer: PreSumm's TransformerAbs, one rate, BERT's WordPieces. D27:
    # width 768 by its parameters.
    "paper-transformer": PAPER_BERTSUM
    | dict(
        model="transformer",
        dropout=0.1,
        batch_tokens=300,
        learning_rate=0.05,
        encoder_learning_rate=0.05,
        warmup=8000,
        encoder_warmup=8000,
    ),
}

# See et al.
SEARCH = dict(beam=4, length_penalty=0.0, trigram_blocking=False, min_length=0, max_length=100)
DECODING = {  # of predict; lengths in tokens, the end included; the names are those of the presets
    "tiny": SEARCH,  # short texts: no least length
    "paper": SEARCH | dict(min_length=36),  # See et al.: at least 35 words
    # Section 4.2
    "paper-dim": SEARCH | dict(min_length=36, beam=6, length_penalty=1.5, trigram_blocking=True),
    "paper-bertsum-abs": dict(  # PreSumm's command
        beam=5, length_penalty=0.95, trigram_blocking=True, min_length=51, max_length=200,
    ),
}  # fmt: skip
