"""Train a pointer-generator or BERTSum, then switch diminishing attention or coverage on.

python -m diminishing_attention.train --out runs/pg
python -m diminishing_attention.train --out runs/pg-dim --init runs/pg --diminishing dim --steps 300
python -m diminishing_attention.train --model bertsum-abs --out runs/bs --encoder FOLDER_OF_TRANSFORMERS --data aclsum

The run folder holds config.json, log.jsonl, checkpoint.pt with what --resume needs, tokenizer.json (the words of the
pointer-generator) or encoder/ (configuration and tokenizer of BERTSum's encoder), and in the end model.safetensors.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor, nn
from tqdm import tqdm
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    logging,
)

from shared.data import Example, load, read_jsonl

from . import bertsum, text
from .bertsum import BertSumConfig, BertSumExt, BertSumExtAbs
from .diminishing import Diminishing
from .model import PointerGenerator, PointerGeneratorConfig

PACKAGE = "diminishing_attention"
MODELS = ("pointer", "bertsum-ext", "bertsum-abs")
DECODING = ("beam", "length_penalty", "average", "trigram_blocking", "min_length", "max_length")  # fields of it


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source. Defaults: tiny pointer-generator."""

    model: str = "pointer"  # or "bertsum-ext" (Eq. 6), "bertsum-abs"
    init: str = ""  # run to go on from, with its sizes and a fresh optimiser; bertsum-abs also takes a bertsum-ext
    # Data
    data: str = "toy"  # anything shared.data.load takes
    task: str = "summary"  # or "title": abstract -> title of SciTLDR or aclsum
    examples: int = 0  # train on the first so many; 0 = all
    validation_examples: int = 200  # of the loss in the log; 0 = all
    max_source: int = 400  # tokens; longer documents are cut (See et al.: 400; Section 4.2: 600 DimAttn, 800 DyDimAttn)
    max_target: int = 100  # tokens; longer summaries are cut in training (See et al.)
    # The mechanism
    coverage: bool = False  # coverage vector and loss, Eq. (2)-(5)
    coverage_weight: float = 1.0  # See et al.
    diminishing: str = "none"  # or "dim" (Eq. 10), "dydim" (Eq. 13)
    f: str = "log"  # of DimAttn (Section 4.2)
    f1: str = "sqrt"  # of DyDimAttn, weight P (Section 4.2)
    f2: str = "log"  # of DyDimAttn, weight 1 - P (Section 4.2)
    exponent: float = 0.6  # of the function "power" (released later version: 0.6)
    renormalise: bool = False  # make the diminished weights sum to 1 again
    # Pointer-generator
    vocabulary: int = 300  # words, or WordPieces of a new encoder; rarer words can only be copied
    embedding: int = 32
    hidden: int = 64
    # BERTSum: an encoder of transformers, or if that is empty a new BERT of these sizes
    encoder: str = ""  # name or folder; the paper's is bert-base-uncased
    width: int = 128
    layers: int = 2  # of a new encoder
    heads: int = 4  # of a new encoder, of the decoder, and of the extractive layers
    feed_forward: int = 512  # of a new encoder, of the decoder, and of the extractive layers
    positions: int = 512  # beyond the encoder's own the last one is repeated (released PreSumm)
    decoder_layers: int = 2  # or extractive layers
    dropout: float = 0.0  # of the decoder or the extractive layers, and of a new encoder
    label_smoothing: float = 0.0  # bertsum-abs
    # Optimisation
    steps: int = 1200  # updates of this run
    batch_size: int = 16  # documents of a micro-batch of one process
    accumulate: int = 1  # micro-batches per update and process
    optimizer: str = "adam"  # D8: the tiny preset has Adam; See et al. Adagrad
    accumulator: float = 0.1  # initial value of Adagrad (See et al.)
    learning_rate: float = 2e-3  # of everything but BERTSum's encoder; with a warm-up it is lr~ of Eq. (8)
    warmup: int = 0  # updates; 0 = a constant rate
    encoder_learning_rate: float = 2e-3  # of BERTSum's encoder: lr~ of Eq. (7) with a warm-up
    encoder_warmup: int = 0
    clip: float = 2.0  # norm of the gradient of each part (See et al.); 0 = no clipping
    save_every: int = 200  # updates between checkpoints
    mixed_precision: str = "no"  # "no", "bf16" or "fp16"
    seed: int = 0
    # Decoding defaults that evaluate.py takes from here
    beam: int = 4  # See et al.; Section 4.2: 6 with DimAttn and DyDimAttn; PreSumm 5
    length_penalty: float = 0.0  # alpha of Wu et al.; Section 4.2: 1.5; 0 = none
    average: bool = True  # mean log-probability of a token in its place (See et al.)
    trigram_blocking: bool = False  # Section 4.2: true with DimAttn and DyDimAttn
    min_length: int = 0  # tokens (See et al.: 35)
    max_length: int = 80  # tokens, the end included (See et al.: 100)

    def __post_init__(self):
        choices = {
            "model": MODELS,
            "task": ("summary", "title"),
            "diminishing": ("none", "dim", "dydim"),
            "optimizer": ("adam", "adagrad"),
            "mixed_precision": ("no", "bf16", "fp16"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; use one of {', '.join(allowed)}")
        sizes = ("max_source", "max_target", "vocabulary", "embedding", "hidden", "width", "layers", "heads", "steps")
        for name in (*sizes, "decoder_layers", "batch_size", "accumulate", "save_every", "beam", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("examples", "validation_examples", "warmup", "encoder_warmup", "clip", "min_length", "dropout"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        if self.max_length < self.min_length:
            raise ValueError(f"max_length is {self.max_length}; it must be at least min_length = {self.min_length}")
        if self.model != "pointer" and (self.max_source < 3 or self.max_target < 2):
            raise ValueError(
                "BERTSum needs max_source of at least 3 ([CLS], a word, [SEP]) and max_target of at least 2"
            )
        if self.average and self.length_penalty:
            raise ValueError(f"length_penalty is {self.length_penalty} and average is true: add --average false")
        if self.coverage and self.diminishing != "none":
            raise ValueError("coverage and diminishing attention are two systems of Table 1: switch one of them on")
        if self.coverage and self.model != "pointer":
            raise ValueError("coverage is of the pointer-generator: leave --coverage out, or use --model pointer")
        if self.model == "bertsum-ext" and self.diminishing != "none":
            raise ValueError("bertsum-ext has no decoder whose attention could diminish: use --model bertsum-abs")
        if self.model != "pointer" and self.max_source > self.positions:
            raise ValueError(f"max_source is {self.max_source}, positions {self.positions}: raise --positions")
        self.mechanism()  # refuses unknown functions

    def mechanism(self) -> Diminishing:
        """The attention of this run."""
        return Diminishing(self.diminishing, self.f, self.f1, self.f2, self.exponent)

    def pointer_config(self, vocabulary: int) -> PointerGeneratorConfig:
        """The pointer-generator's part of the fields, with the size V that the vocabulary came to."""
        return PointerGeneratorConfig(
            vocabulary=vocabulary,
            embedding=self.embedding,
            hidden=self.hidden,
            coverage=self.coverage,
            coverage_weight=self.coverage_weight,
            diminishing=self.mechanism(),
            renormalise=self.renormalise,
        )

    def bertsum_config(self) -> BertSumConfig:
        """The part of the fields that BERTSum has besides its encoder."""
        return BertSumConfig(
            layers=self.decoder_layers,
            heads=self.heads,
            feed_forward=self.feed_forward,
            dropout=self.dropout,
            positions=self.positions,
            diminishing=self.mechanism(),
            renormalise=self.renormalise,
        )


PAPER = dict(  # See et al. (2017), as in the public code that Section 4.2 names
    data="cnn_dailymail", vocabulary=50_000, embedding=128, hidden=256, max_source=400, max_target=100, steps=230_000,
    batch_size=8, optimizer="adagrad", learning_rate=0.15, accumulator=0.1, clip=2.0, save_every=5000, beam=4,
    min_length=35, max_length=100, validation_examples=1000,
)  # fmt: skip
PAPER_DIM = PAPER | dict(steps=10_000, beam=6, average=False, length_penalty=1.5, trigram_blocking=True)  # Section 4.2
BERTSUM = dict(  # sizes for a small encoder on small data; this repository's
    max_source=512, max_target=60, learning_rate=0.05, warmup=200, encoder_learning_rate=0.002, encoder_warmup=400,
    clip=0.0, beam=5, vocabulary=1000, dropout=0.1, label_smoothing=0.1, steps=1500,
)  # fmt: skip
PAPER_BERTSUM = dict(  # Section 2.3 and Liu & Lapata (2019), whose hyper-parameters Section 4.2 keeps
    data="cnn_dailymail", encoder="bert-base-uncased", heads=8, feed_forward=2048, decoder_layers=6, dropout=0.2,
    label_smoothing=0.1, max_source=512, max_target=140, batch_size=4, accumulate=35, steps=200_000, learning_rate=0.1,
    warmup=10_000, encoder_learning_rate=2e-3, encoder_warmup=20_000, clip=0.0, beam=5, average=False,
    length_penalty=0.95, trigram_blocking=True, min_length=50, max_length=200, save_every=2000,
    validation_examples=1000, width=768,
)  # fmt: skip
PAPER_EXT = PAPER_BERTSUM | dict(decoder_layers=2, steps=50_000, learning_rate=2e-3, encoder_warmup=10_000)
PRESETS = {
    "pointer": {
        "tiny": {},
        # Stories that tell most facts again, and whose text says less about what the summary takes: what a short
        # training leaves is a model that repeats itself.
        "repetition": dict(data="toy:repetition=0.8,min_facts=3,max_facts=4,signal=0.5", steps=400),
        "paper": PAPER,
        "paper-coverage": PAPER | dict(coverage=True, steps=3000),  # See et al.
        "paper-dim": PAPER_DIM | dict(diminishing="dim", max_source=600),
        "paper-dydim": PAPER_DIM | dict(diminishing="dydim", max_source=800),
    },
    "bertsum-ext": {"tiny": BERTSUM, "paper": PAPER_EXT},
    "bertsum-abs": {
        "tiny": BERTSUM,
        "paper": PAPER_BERTSUM,
        "paper-dim": PAPER_BERTSUM | dict(diminishing="dim"),
        "paper-dydim": PAPER_BERTSUM | dict(diminishing="dydim"),
        # The 6-layer Transformer of Table 1: the same decoder on a new encoder of 6 layers.
        "paper-transformer": PAPER_BERTSUM | dict(encoder="", layers=6, vocabulary=30_522),
    },
}


def learning_rates(step: int, config: TrainConfig) -> tuple[float, float]:
    """Rates of BERTSum's encoder and of everything else at update `step` (from 0), Eq. (7) and (8)."""

    def rate(factor: float, warmup: int) -> float:
        number = step + 1
        # Eq. (7), (8): lr~ min(step^-0.5, step warmup^-1.5)
        return factor * min(number**-0.5, number * warmup**-1.5) if warmup else factor

    return rate(config.encoder_learning_rate, config.encoder_warmup), rate(config.learning_rate, config.warmup)


# Data


def load_task(config: TrainConfig, split: str, limit: int | None = None, data: str = "") -> list[Example]:
    """Examples of the run's task; `data` in place of the run's."""
    data = data or config.data
    return load_titles(data, split, limit) if config.task == "title" else load(data, split, limit)


def load_titles(data: str, split: str, limit: int | None = None) -> list[Example]:
    """Abstract -> title, of aclsum or of JSON lines that have a `title` beside the document (SciTLDR).

    Raises:
        ValueError: data without titles.
    """
    examples = load(data, split, limit)
    if data == "aclsum":
        from aclsum import ACLSum

        papers = {paper.id: paper for paper in ACLSum({"validation": "val"}.get(split, split))}
        pairs = [(papers[e.id].sentences["abstract"], papers[e.id].title) for e in examples]
    else:
        files = sorted(Path(data).glob("*.jsonl")) if Path(data).is_dir() else [Path(data)] * Path(data).is_file()
        titles: dict[str, str] = {}
        for row in (row for file in files for row in read_jsonl(file)):
            key = str(row.get("id", row.get("paper_id")))
            if titles.setdefault(key, row.get("title")) != row.get("title"):
                raise ValueError(f"{data}: two rows with the id {key!r} have different titles: make the ids unique")
        pairs = [(example.document, titles.get(example.id)) for example in examples]
    if missing := [e.id for e, (_, title) in zip(examples, pairs, strict=True) if not (title or "").strip()]:
        raise ValueError(f"{data}: {missing[0]!r} has no field 'title' beside its id: use --task summary")
    return [
        replace(example, document=[" ".join(s.split()) for s in document], summary=[title], references=[[title]],
                salient=None, edus=None, tree=None, pos=None, salient_tokens=None, kinds=None)
        for example, (document, title) in zip(examples, pairs, strict=True)
    ]  # fmt: skip


def make_wordpieces(texts: Sequence[str], vocabulary: int, positions: int) -> PreTrainedTokenizerFast:
    """A lower-casing WordPiece tokenizer in BERT's manner, for a new encoder: characters and the most frequent words.

    The trainer of `tokenizers` is not used: it breaks ties at random, so that no run could be repeated.
    """
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *bertsum.TARGET_TOKENS]
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    pieces = (splitter.pre_tokenize_str(normalizer.normalize_str(piece)) for piece in texts)
    counts = Counter(word for row in pieces for word, _ in row)
    letters = sorted({letter for word in counts for letter in word})
    known = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters)])
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        if len(known) < vocabulary:
            known.setdefault(word)
    numbers = {word: number for number, word in enumerate(known)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, splitter, decoders.WordPiece()
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=positions, **names)


# The two kinds of model: what an item is, what its loss is


class Pointing:
    """A pointer-generator with its words."""

    def __init__(self, config: TrainConfig, vocabulary: text.Vocabulary):
        self.config, self.vocabulary = config, vocabulary
        self.module = PointerGenerator(config.pointer_config(len(vocabulary)))

    @classmethod
    def new(cls, config: TrainConfig, examples: Sequence[Example]) -> "Pointing":
        """Words of the training data."""
        texts = [piece for example in examples for piece in (example.source, example.target)]
        return cls(config, text.Vocabulary.build(texts, config.vocabulary))

    @classmethod
    def saved(cls, config: TrainConfig, run_dir: Path) -> "Pointing":
        """Words of a run folder."""
        return cls(config, text.Vocabulary.load(run_dir / "tokenizer.json"))

    def save(self, run_dir: Path) -> None:
        self.vocabulary.save(run_dir / "tokenizer.json")

    def prepare(self, examples: Sequence[Example]) -> list[text.Item]:
        """Examples as token ids, cut to size."""
        config = self.config
        pairs = [(example.source, example.target) for example in examples]
        return text.encode_examples(pairs, self.vocabulary, config.max_source, config.max_target)

    def collate(self, items: Sequence[text.Item], device: torch.device | str = "cpu") -> text.Batch:
        return text.collate(items, device)

    def loss(self, module: nn.Module, items: Sequence[text.Item], device: torch.device) -> tuple[Tensor, int]:
        """Sum over documents of the mean loss of a summary's words (See et al.), and their number."""
        return module(self.collate(items, device)).total * len(items), len(items)

    never = (text.PAD, text.UNK)  # tokens that decoding does not write: what is unknown can be copied

    def pieces(self, item: text.Item, tokens: Sequence[int]) -> list[str]:
        """Token ids of one document or its summary -> a text for each."""
        names = [*self.vocabulary.known, *item.unknown]
        return [names[token] for token in tokens]

    def decode(self, items: Sequence[text.Item], tokens: Sequence[Sequence[int]]) -> list[str]:
        """Token ids of the outputs -> texts; copied unknown words come out as words."""
        rows = zip(items, tokens, strict=True)
        return [" ".join(self.vocabulary.decode(ids, item.unknown)) for item, ids in rows]

    def groups(self) -> list[dict]:
        """Parameters by learning rate."""
        return [{"params": list(self.module.parameters()), "part": 1}]

    def parts(self) -> list[list[nn.Parameter]]:
        """Parameters whose gradients are clipped together: encoder, reducer, decoder (released code)."""
        return [list(part.parameters()) for part in self.module.children()]


class BertSum:
    """BERTSum, extractive or abstractive, with its encoder's tokenizer."""

    def __init__(self, config: TrainConfig, encoder: nn.Module, tokenizer: PreTrainedTokenizerBase):
        self.config, self.encoder, self.tokenizer = config, encoder, tokenizer
        if config.model == "bertsum-ext":
            self.module = BertSumExt(encoder, config.bertsum_config())
        else:
            self.module = BertSumExtAbs(encoder, config.bertsum_config(), bertsum.target_ids(tokenizer))

    @classmethod
    def new(cls, config: TrainConfig, examples: Sequence[Example]) -> "BertSum":
        """The encoder that the config names, or a new one with WordPieces of the training data."""
        if config.encoder:
            return cls(config, load_pretrained(AutoModel, config.encoder, dtype=torch.float32),
                       load_pretrained(AutoTokenizer, config.encoder))  # fmt: skip
        texts = [piece for example in examples for piece in (example.source, example.target)]
        tokenizer = make_wordpieces(texts, config.vocabulary, config.positions)
        sizes = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.feed_forward,
            max_position_embeddings=config.positions,
            hidden_dropout_prob=config.dropout,
            attention_probs_dropout_prob=config.dropout,
        )
        return cls(config, AutoModel.from_config(sizes), tokenizer)

    @classmethod
    def saved(cls, config: TrainConfig, run_dir: Path) -> "BertSum":
        """The encoder of a run folder, without weights."""
        folder = str(run_dir / "encoder")
        encoder = AutoModel.from_config(load_pretrained(AutoConfig, folder), dtype=torch.float32)
        return cls(config, encoder, load_pretrained(AutoTokenizer, folder))

    def save(self, run_dir: Path) -> None:
        self.encoder.config.save_pretrained(run_dir / "encoder")
        self.tokenizer.save_pretrained(run_dir / "encoder")

    def prepare(self, examples: Sequence[Example]) -> list[bertsum.Item]:
        """Examples as token ids, cut to size."""
        config = self.config
        rows = [(example.document, example.summary, example.salient) for example in examples]
        return bertsum.encode_examples(rows, self.tokenizer, config.max_source, config.max_target)

    def collate(self, items: Sequence[bertsum.Item], device: torch.device | str = "cpu") -> bertsum.Batch:
        return bertsum.collate(items, self.tokenizer.pad_token_id, device)

    def loss(self, module: nn.Module, items: Sequence[bertsum.Item], device: torch.device) -> tuple[Tensor, int]:
        """Sum of the losses of all sentences (extractive) or target tokens, and their number."""
        batch = self.collate(items, device)
        if self.config.model == "bertsum-ext":
            return bertsum.extractive_loss(module(batch), batch), int(batch.keep_sentences.sum())
        smoothing = self.config.label_smoothing if module.training else 0.0
        return module(batch, smoothing), int(batch.keep_target.sum())

    @property
    def never(self) -> tuple[int, ...]:
        """Tokens that decoding does not write."""
        return (self.tokenizer.pad_token_id, self.tokenizer.unk_token_id)

    def pieces(self, item: bertsum.Item, tokens: Sequence[int]) -> list[str]:
        """Token ids of one document or its summary -> a text for each."""
        return self.tokenizer.convert_ids_to_tokens(list(tokens))

    def decode(self, items: Sequence[bertsum.Item], tokens: Sequence[Sequence[int]]) -> list[str]:
        """Token ids of the outputs -> texts, sentences parted by line breaks."""
        return [bertsum.read_output(self.tokenizer, list(ids)) for ids in tokens]

    def groups(self) -> list[dict]:
        """Parameters by learning rate: the encoder's, Eq. (7), and the others', Eq. (8)."""
        encoder = list(self.module.encoder.parameters())
        known = set(map(id, encoder))
        return [
            {"params": encoder, "part": 0},
            {"params": [p for p in self.module.parameters() if id(p) not in known], "part": 1},
        ]

    def parts(self) -> list[list[nn.Parameter]]:
        """Parameters whose gradients are clipped together: encoder, the rest."""
        return [group["params"] for group in self.groups()]


def kind_of(config: TrainConfig) -> type:
    """What trains a model of this config."""
    return Pointing if config.model == "pointer" else BertSum


def load_pretrained(kind: type, name: str, **keywords):
    """`kind.from_pretrained(name)`; raises ValueError with the remedy when it is not there or does not fit."""
    try:
        return kind.from_pretrained(name, **keywords)
    except Exception as error:  # transformers and the hub raise a dozen unrelated types
        remedy = "make it again" if Path(name).exists() else f"give a folder, or: HF_HUB_OFFLINE=0 hf download {name}"
        raise ValueError(f"cannot load {name!r} ({str(error).strip().splitlines()[0]}): {remedy}") from error


# The run folder


def write_json(path: Path, value: object) -> None:
    """Write to a temporary name and rename, so that the file is either whole or not there."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def read_json(path: Path) -> object:
    """A JSON file of a run folder; raises ValueError that names it when it is missing or cut off."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist: {path.parent} is not a run folder of {PACKAGE}.train") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is cut off or not JSON ({error}): train the run again") from None


def read_config(run_dir: str | Path) -> dict:
    """config.json of a run folder of this package; raises ValueError that names the file and what is wrong."""
    path = Path(run_dir) / "config.json"
    saved = read_json(path)
    if saved.get("package") != PACKAGE:
        raise ValueError(f"{path} belongs to the package {saved.get('package')!r}, not to {PACKAGE}")
    unknown = set(saved["train"]) - {field.name for field in fields(TrainConfig)}
    if unknown:
        raise ValueError(f"{path}: unknown field {', '.join(sorted(unknown))}: the run was made by another version")
    return saved


def load_run(run_dir: str | Path) -> Pointing | BertSum:
    """Read a finished run; its `module` is in eval mode on the CPU.

    Raises:
        ValueError: not a run folder, one of another package, one that is not finished, or a cut-off file.
    """
    run_dir = Path(run_dir)
    config = TrainConfig(**read_config(run_dir)["train"])
    weights = run_dir / "model.safetensors"
    if not weights.exists():
        raise ValueError(f"{weights} does not exist: the run is not finished, go on with --out {run_dir} --resume")
    run = kind_of(config).saved(config, run_dir)
    try:
        run.module.load_state_dict(load_file(weights))
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{weights} is cut off or does not fit config.json ({error})") from None
    run.module.eval()
    return run


SIZES = {  # what a run keeps of the one that it goes on from
    "pointer": ("vocabulary", "embedding", "hidden"),
    "bertsum-ext": ("encoder", "width", "layers", "heads", "feed_forward", "positions", "decoder_layers"),
    "bertsum-abs": ("encoder", "width", "layers", "heads", "feed_forward", "positions", "decoder_layers"),
}


def start(config: TrainConfig, examples: Sequence[Example]) -> tuple[Pointing | BertSum, dict | None]:
    """A new model, or the one that `config.init` names with the mechanism switched on; and what that was trained by."""
    if not config.init:
        return kind_of(config).new(config, examples), None
    # D12: weights alone are taken over; optimiser, learning rates and their warm-up start anew.
    base, saved = load_run(config.init), read_config(config.init)
    pair = (base.config.model, config.model)
    if pair[0] != pair[1] and pair != ("bertsum-ext", "bertsum-abs"):
        raise ValueError(f"{config.init} holds a {pair[0]}; a {pair[1]} cannot go on from it")
    # The decoder is new where the run before was extractive: it keeps the sizes of this run's flags.
    kept = SIZES[config.model] if pair[0] == pair[1] else ("encoder", "width", "layers", "positions")
    config = replace(config, **{name: getattr(base.config, name) for name in kept})
    run = kind_of(config).saved(config, Path(config.init))
    if pair[0] != pair[1]:
        run.module.take_encoder(base.module.encoder)
    else:
        missing, unexpected = run.module.load_state_dict(base.module.state_dict(), strict=False)
        strange = [name for name in missing if "coverage" not in name]
        strange += [name for name in unexpected if "coverage" not in name]
        if strange:
            raise ValueError(f"{config.init} does not fit this run: {', '.join(strange)}")
    return run, {"train": saved["train"], "base": saved["base"]}


# Training


class Batches:
    """The endless stream of micro-batches of like length: number i is the same whenever and whoever asks for it."""

    def __init__(self, items: Sequence, batch_size: int, seed: int):
        self.items, self.batch_size, self.seed = items, batch_size, seed
        self.lengths = np.array([len(item.source) for item in items])
        self.per_epoch = -(-len(items) // batch_size)
        self.epoch, self.order = -1, []

    def __getitem__(self, number: int) -> list:
        epoch, index = divmod(number, self.per_epoch)
        if epoch != self.epoch:
            rng = np.random.default_rng((self.seed, epoch))
            by_length = np.argsort(self.lengths * rng.uniform(0.8, 1.2, len(self.lengths)), kind="stable")
            batches = [by_length[i : i + self.batch_size] for i in range(0, len(by_length), self.batch_size)]
            self.epoch, self.order = epoch, [batches[i] for i in rng.permutation(len(batches))]
        return [self.items[i] for i in self.order[index]]


def train(config: TrainConfig, run_dir: str | Path, resume: bool = False) -> None:
    """Train and write the run folder.

    Args:
        resume: go on after the last checkpoint; the result is bit for bit that of a run that was never stopped.
    Raises:
        ValueError: bad data, or a run folder or encoder that cannot be used; nothing is lost.
    """
    run_dir = Path(run_dir)
    accelerator = make_accelerator(config.mixed_precision)
    exists = (run_dir / "config.json").exists()
    accelerator.wait_for_everyone()  # all processes look before the first one creates it
    if exists and not resume:
        raise ValueError(f"{run_dir} already holds a run: add --resume to go on with it, or choose another --out")
    examples = load_task(config, "train", config.examples or None)
    validation = load_task(config, "validation", config.validation_examples or None)
    set_seed(config.seed)
    if exists and (run_dir / "checkpoint.pt").exists():
        run = kind_of(config).saved(config, run_dir)
    else:  # new, or killed before its first checkpoint: then it must draw the same first weights
        run, base = start(config, examples)
        if not exists and accelerator.is_main_process:
            create_run(run_dir, run, base)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    Training(run_dir, accelerator, run, run.prepare(examples), run.prepare(validation)).run()


def make_accelerator(mixed_precision: str) -> Accelerator:
    """The processes and devices that accelerate or torchrun has set up."""
    # Without this, several processes on a machine without GPU would each believe to be alone.
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    return Accelerator(mixed_precision=mixed_precision, cpu=several and not torch.cuda.is_available())


def create_run(run_dir: Path, run: Pointing | BertSum, base: dict | None) -> None:
    """Write what does not change during the run; config.json comes last and makes it a run folder."""
    run_dir.mkdir(parents=True, exist_ok=True)
    run.save(run_dir)
    write_json(run_dir / "config.json", {"package": PACKAGE, "train": asdict(run.config), "base": base})


def make_optimizer(run: Pointing | BertSum) -> torch.optim.Optimizer:
    """Adagrad, or Adam; a group of parameters for each learning rate."""
    # D9: the two optimisers of Eq. (7)-(8) are two groups of one Adam, which updates each parameter by itself.
    if run.config.optimizer == "adagrad":
        return torch.optim.Adagrad(run.groups(), lr=0.0, initial_accumulator_value=run.config.accumulator)
    return torch.optim.Adam(run.groups(), lr=0.0)


class Training:
    """One run: the loop, its checkpoints and its log."""

    def __init__(
        self,
        run_dir: Path,
        accelerator: Accelerator,
        run: Pointing | BertSum,
        items: Sequence,
        validation: Sequence,
    ):
        """Take up the run where its last checkpoint left it, or at its beginning."""
        self.config, self.run_dir, self.accelerator, self.task = run.config, run_dir, accelerator, run
        self.validation = validation
        self.batches = Batches(items, self.config.batch_size, self.config.seed)
        self.module, self.optimizer = accelerator.prepare(run.module, make_optimizer(run))
        self.step = 0
        self.restore()
        if not self.step:
            cut = sum(item.was_cut for item in items)
            self.log({"examples": len(items), "validation_examples": len(validation), "sources_cut": cut})

    def run(self) -> None:
        """Train to the last step and write model.safetensors."""
        config, is_main = self.config, self.accelerator.is_main_process
        bar = tqdm(total=config.steps, initial=self.step, disable=not is_main, unit="step")
        while self.step < config.steps:
            measures = self.update()
            bar.update()
            bar.set_postfix(measures, refresh=False)
            if self.step % config.save_every == 0 or self.step == config.steps:
                self.save(measures)
        bar.close()
        self.accelerator.wait_for_everyone()
        if is_main:
            save_tensors(self.accelerator.unwrap_model(self.module).state_dict(), self.run_dir / "model.safetensors")

    def update(self) -> dict[str, float]:
        """One step on `accumulate` micro-batches in each process."""
        config, accelerator = self.config, self.accelerator
        processes, device = accelerator.num_processes, accelerator.device
        # Process r of P takes every P-th micro-batch: P processes do what one does that accumulates P times as much.
        first = self.step * config.accumulate * processes + accelerator.process_index
        numbers = range(first, first + config.accumulate * processes, processes)
        rates = learning_rates(self.step, config)
        for group in self.optimizer.param_groups:
            group["lr"] = rates[group["part"]]
        self.module.train()
        total, counted = 0.0, 0
        for number in numbers:
            with nullcontext() if number == numbers[-1] else accelerator.no_sync(self.module):
                with accelerator.autocast():
                    loss, count = self.task.loss(self.module, self.batches[number], device)
                accelerator.backward(loss)
            total, counted = total + loss.item(), counted + count
        # The mean over all of the update; DDP has averaged over processes, hence times their number.
        everything = accelerator.reduce(torch.tensor(counted, device=device)).item()
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad *= processes / everything
        self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return {"loss": round(total / counted, 4), "lr": rates[1]}

    def clip(self) -> None:
        """Limit the norm of the gradient of each part by itself."""
        if self.config.clip:
            self.accelerator.unscale_gradients()
            for part in self.task.parts():
                nn.utils.clip_grad_norm_(part, self.config.clip)

    @torch.no_grad()
    def validation_loss(self) -> float:
        """The training loss in eval mode; every process computes all of it."""
        module = self.accelerator.unwrap_model(self.module).eval()
        by_length = sorted(self.validation, key=lambda item: len(item.source))
        total, counted = 0.0, 0
        for first in range(0, len(by_length), self.config.batch_size):
            batch = by_length[first : first + self.config.batch_size]
            loss, count = self.task.loss(module, batch, self.accelerator.device)
            total, counted = total + loss.item(), counted + count
        return total / counted

    def save(self, measures: dict[str, float]) -> None:
        """Validate and write a checkpoint, one file that is renamed when it is whole."""
        random_states = gather_object([random_state()])
        if not self.accelerator.is_main_process:
            return
        self.log({"step": self.step, **measures, "validation_loss": round(self.validation_loss(), 4)})
        scaler = self.accelerator.scaler
        state = {
            "step": self.step,
            "weights": self.accelerator.unwrap_model(self.module).state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": random_states,
            "scaler": scaler.state_dict() if scaler else None,
        }
        temporary = self.run_dir / "checkpoint.pt.tmp"
        torch.save(state, temporary)
        os.replace(temporary, self.run_dir / "checkpoint.pt")

    def restore(self) -> None:
        """Continue after the last checkpoint, if there is one."""
        path = self.run_dir / "checkpoint.pt"
        if not path.exists():
            if self.accelerator.is_main_process:
                (self.run_dir / "log.jsonl").unlink(missing_ok=True)
            return
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, OSError) as error:
            raise ValueError(f"{path} is cut off ({error}): delete it, and the run starts again") from None
        self.step = state["step"]
        self.accelerator.unwrap_model(self.module).load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        set_random_state(state["random"][self.accelerator.process_index])
        if self.accelerator.is_main_process:  # what a killed run logged after this checkpoint is forgotten
            path = self.run_dir / "log.jsonl"
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            rows = [
                json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")
            ]  # the last may be cut
            temporary = path.with_name("log.jsonl.tmp")
            kept = [json.dumps(row) + "\n" for row in rows if row.get("step", 0) <= self.step]
            temporary.write_text("".join(kept), encoding="utf-8")
            os.replace(temporary, path)

    def log(self, row: dict) -> None:
        """Append a row to log.jsonl, on the main process."""
        if self.accelerator.is_main_process:
            with (self.run_dir / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write to a temporary name and rename; what is tied in the model is written once for each of its names."""
    temporary = path.with_name(path.name + ".tmp")
    save_file({name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}, temporary)
    os.replace(temporary, path)


def random_state() -> dict:
    """State of the generators that dropout draws from, on this process."""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}


def set_random_state(state: dict) -> None:
    """Undo `random_state`."""
    torch.set_rng_state(state["cpu"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


# Command line


def flag_type(kind: type) -> Callable[[str], object]:
    """What turns a flag's text into its field's type."""

    def boolean(value: str) -> bool:
        return {"true": True, "false": False}[value.lower()]

    def parse_value(value: str) -> object:
        try:
            return (boolean if kind is bool else kind)(value)
        except (KeyError, ValueError):
            raise argparse.ArgumentTypeError(
                f"{value!r} is not {'true or false' if kind is bool else kind.__name__}"
            ) from None

    return parse_value


def parse(arguments: Sequence[str] | None = None) -> tuple[TrainConfig, Path, bool]:
    """Command line -> config, run folder, resume.

    Raises:
        SystemExit: an unknown or mistyped flag.
        ValueError: a value out of range, a preset of another model, or --resume with other values than the run's.
    """
    description = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(f"python -m {PACKAGE}.train", description=description, allow_abbrev=False)
    presets = sorted({name for of_model in PRESETS.values() for name in of_model})
    parser.add_argument("--out", required=True, type=Path, help="run folder")
    parser.add_argument("--preset", default="tiny", choices=presets, help="named set of values (default tiny)")
    parser.add_argument("--resume", action="store_true", help="go on after the last checkpoint, if there is one")
    for field in fields(TrainConfig):
        flag, kind = "--" + field.name.replace("_", "-"), flag_type(field.type)
        parser.add_argument(flag, type=kind, default=argparse.SUPPRESS, metavar=field.type.__name__)
    given = vars(parser.parse_args(arguments))
    run_dir, preset, resume = given.pop("out"), given.pop("preset"), given.pop("resume")
    if resume and (run_dir / "config.json").exists():
        saved = TrainConfig(**read_config(run_dir)["train"])
        changed = [name for name, value in given.items() if getattr(saved, name) != value]
        if changed:
            raise ValueError(f"--resume keeps the values in {run_dir / 'config.json'}; leave out {', '.join(changed)}")
        return saved, run_dir, True
    of_model = PRESETS.get(given.get("model", "pointer"), {"tiny": {}})
    if preset not in of_model:
        raise ValueError(f"{given.get('model', 'pointer')} has no preset {preset!r}; it has {', '.join(of_model)}")
    return TrainConfig(**of_model[preset] | given), run_dir, resume


def main(arguments: Sequence[str] | None = None) -> None:
    """Train; bad input ends the program with one line that says what is wrong."""
    logging.set_verbosity_error()  # transformers reports at length on the heads that an encoder leaves out
    logging.disable_progress_bar()
    try:
        train(*parse(arguments))
    except (ValueError, ImportError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command with --resume goes on after the last checkpoint")


if __name__ == "__main__":
    main()
