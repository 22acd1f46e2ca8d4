"""What defines a run: every flag and every preset, with the source of each value, and what is refused."""

from dataclasses import dataclass
from typing import Annotated, Literal

from .diminishing import CONCAVE, KINDS, Diminishing
from .run import Positive, Range, Share, Size, check_fields

MODELS = ("pointer", "bertsum-ext", "bertsum-abs")


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source. Defaults: tiny pointer-generator."""

    model: Literal[MODELS] = "pointer"  # "bertsum-ext": sentences, Eq. (6); "bertsum-abs": summaries
    init: str = ""  # run to go on from: its weights and, unless flags override them, its values
    # Data
    data: str = "toy"  # anything shared.data.load takes
    task: Literal["summary", "title"] = "summary"  # "title": document -> title, of data that has titles
    examples: int = 0  # train on the first so many; 0 = all
    validation_examples: int = 200  # of the loss in the log; 0 = all
    max_source: Positive = 400  # tokens; longer documents are cut (See et al.: 400; Section 4.2: 600, 800)
    max_target: Positive = 100  # tokens; longer summaries are cut in training (See et al.)
    # The mechanism
    coverage: bool = False  # coverage vector and loss, Eq. (2)-(5)
    coverage_weight: float = 1.0  # lambda of Eq. (5) (See et al.)
    diminishing: Literal[KINDS] = "none"  # "dim": Eq. (10); "dydim": Eq. (13)
    f: Literal[CONCAVE] = "log"  # of DimAttn (Section 4.2)
    f1: Literal[CONCAVE] = "sqrt"  # of DyDimAttn, weight P (Section 4.2)
    f2: Literal[CONCAVE] = "log"  # of DyDimAttn, weight 1 - P (Section 4.2)
    exponent: Share = 0.6  # of the function "power" (README of the later version: 0.6)
    renormalise: bool = False  # make the diminished weights sum to 1 again
    # Pointer-generator
    vocabulary: Annotated[int, Range(5, 10**6)] = 300  # words, or WordPieces of a new encoder; others are copied
    embedding: Size = 32
    hidden: Size = 64
    # BERTSum
    encoder: str = ""  # BERT of transformers, name or folder (paper: bert-base-uncased); empty = a new one
    pretrained: bool = True  # False: of `encoder` the tokenizer alone, and a new BERT
    width: Size = 128  # of a new encoder
    layers: Size = 2  # of a new encoder
    heads: Size = 4  # of a new encoder, of the decoder, and of the extractive layers
    feed_forward: Size = 512  # of a new encoder, of the decoder, and of the extractive layers
    positions: Size = 512  # beyond the encoder's own the last one is repeated (released PreSumm)
    decoder_layers: Size = 2  # or extractive layers
    dropout: Share = 0.0  # of the decoder or the extractive layers, and of a new encoder
    label_smoothing: Share = 0.0  # bertsum-abs
    # Optimisation
    steps: Positive = 1200  # updates of this run
    batch_size: Positive = 16  # documents of a micro-batch of one process, at most
    batch_tokens: int = 0  # and at most so many padded target (bertsum-ext: source) tokens; 0 = any number
    accumulate: Positive = 1  # micro-batches per update and process
    optimizer: Literal["adam", "adagrad"] = "adam"  # D8: the small presets have Adam; See et al. Adagrad
    accumulator: float = 0.1  # initial value of Adagrad (See et al.)
    learning_rate: float = 2e-3  # of everything but BERTSum's encoder; with a warm-up it is lr~ of Eq. (8)
    warmup: int = 0  # updates; 0 = a constant rate
    encoder_learning_rate: float = 2e-3  # of BERTSum's encoder: lr~ of Eq. (7) with a warm-up
    encoder_warmup: int = 0  # updates; 0 = a constant rate
    clip: float = 2.0  # norm of the gradient of each part (See et al.); 0 = no clipping
    save_every: Positive = 200  # updates between checkpoints
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"  # of the forward pass
    seed: int = 0
    # Decoding defaults that evaluate.py and predict.py take from here
    beam: Positive = 4  # See et al.; Section 4.2: 6 with DimAttn and DyDimAttn; PreSumm 5
    length_penalty: Annotated[float, Range(0, 10)] = 0.0  # alpha of Wu et al.; Section 4.2: 1.5; 0 = none
    average: bool = True  # maximise the mean log-probability of a token instead (See et al.)
    released: bool = False  # D16, D21: end the search, and take the mean, as pointer_summarizer or PreSumm does
    trigram_blocking: bool = False  # Section 4.2: True with DimAttn and DyDimAttn
    min_length: int = 0  # tokens, the end included (See et al.: 35 words)
    max_length: Annotated[int, Range(2, 10**6)] = 80  # tokens, the end included (See et al.: 100)

    def check(self) -> None:
        """ValueError for a value out of range, or values that contradict each other."""
        check_fields(self)
        if self.max_length < self.min_length:
            raise ValueError(f"--max-length is {self.max_length}; it must be at least --min-length {self.min_length}")
        if self.average and self.length_penalty:
            raise ValueError(f"--length-penalty is {self.length_penalty} and average is true: add --average False")
        if self.coverage and self.diminishing != "none":
            raise ValueError("coverage and diminishing attention are two systems of Table 1: switch one of them on")
        if self.model == "bertsum-ext" and self.diminishing != "none":
            raise ValueError("bertsum-ext has no decoder whose attention could diminish: use --model bertsum-abs")
        self.mechanism()  # its own check
        if self.model == "pointer":
            return
        if self.coverage:
            raise ValueError("coverage is of the pointer-generator: leave --coverage out, or use --model pointer")
        if self.max_source < 3 or self.max_target < 2:
            raise ValueError("BERTSum needs --max-source of at least 3 ([CLS], a word, [SEP]), --max-target at least 2")
        if self.max_source > self.positions:
            raise ValueError(f"--max-source is {self.max_source}, positions {self.positions}: raise --positions")
        if not self.encoder and self.width % self.heads:
            raise ValueError(f"--width {self.width} is not a multiple of --heads {self.heads}")

    def mechanism(self) -> Diminishing:
        """The attention of this run."""
        return Diminishing(self.diminishing, self.f, self.f1, self.f2, self.exponent)


PAPER = dict(  # See et al. (2017), as in the public code that Section 4.2 names
    data="cnn_dailymail", vocabulary=50_000, embedding=128, hidden=256, max_source=400, max_target=100, steps=230_000,
    batch_size=8, optimizer="adagrad", learning_rate=0.15, accumulator=0.1, clip=2.0, save_every=5000, beam=4,
    min_length=36, max_length=100, validation_examples=1000,
)  # fmt: skip
BERTSUM = dict(  # this repository's: a new small encoder on toy; a trained one wants a lower rate (experiments/samsum)
    max_source=512, max_target=60, learning_rate=0.03, warmup=200, encoder_learning_rate=0.01, encoder_warmup=200,
    clip=0.0, beam=5, vocabulary=1000, dropout=0.1, label_smoothing=0.1, steps=1500,
)  # fmt: skip
PAPER_BERTSUM = dict(  # Section 2.3; Liu & Lapata (2019), whose hyper-parameters Section 4.2 keeps; released PreSumm
    model="bertsum-abs", data="cnn_dailymail", encoder="bert-base-uncased", width=768, heads=8, feed_forward=2048,
    decoder_layers=6, dropout=0.2, label_smoothing=0.1, max_source=512, max_target=140, steps=200_000,
    batch_tokens=140, batch_size=6, accumulate=20,  # PreSumm: 140 target tokens, 5 micro-batches, 4 GPUs
    learning_rate=0.1, warmup=10_000,  # the paper's; PreSumm's command has 0.2
    encoder_learning_rate=2e-3, encoder_warmup=20_000, clip=0.0, beam=5,
    average=False, length_penalty=0.95, trigram_blocking=True, min_length=51, max_length=200, save_every=2000,
    validation_examples=1000,
)  # fmt: skip
SECTION_4_2 = dict(  # the second phase: less than 10,000 updates more, beam 6, alpha 1.5, trigram blocking
    init="a run of --preset paper", steps=10_000, beam=6, average=False, length_penalty=1.5, trigram_blocking=True,
)  # fmt: skip
PRESETS = {
    "tiny": {},
    # Stories that tell most facts again, and whose text says less about what the summary takes: what a short training
    # leaves is a model that repeats itself.
    "repetition": dict(data="toy:repetition=0.8,min_facts=3,max_facts=4,signal=0.5", steps=400),
    "paper": PAPER,
    "paper-dim": SECTION_4_2 | dict(diminishing="dim", max_source=600),
    "paper-dydim": SECTION_4_2 | dict(diminishing="dydim", max_source=800),
    "paper-coverage": dict(init="a run of --preset paper", coverage=True, steps=3000),  # See et al.
    "bertsum-ext": BERTSUM | dict(model="bertsum-ext", learning_rate=0.014),
    "bertsum-abs": BERTSUM | dict(model="bertsum-abs"),
    "paper-bertsum-ext": PAPER_BERTSUM | dict(  # PreSumm: 3,000 source tokens, 2 micro-batches, 3 GPUs
        model="bertsum-ext", decoder_layers=2, dropout=0.1, steps=50_000, batch_tokens=3000, batch_size=100,
        accumulate=6, learning_rate=2e-3, encoder_warmup=10_000,
    ),
    "paper-bertsum-abs": PAPER_BERTSUM,
    # Table 1's 6-layer Transformer: PreSumm's TransformerAbs, one rate, WordPieces; width 768 by its parameters, 512
    "paper-transformer": PAPER_BERTSUM | dict(
        pretrained=False, layers=6, dropout=0.1, batch_tokens=300, learning_rate=0.05, encoder_learning_rate=0.05,
        warmup=8000, encoder_warmup=8000,
    ),
}  # fmt: skip
