"""Load what is there: a tagger's run, or a BART to be masked; begin a new tagger."""

import json
import os
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from shared import pretrained
from shared.data import Example, load
from shared.run import in_windows, load_weights, read_config

from .config import HEADS, LAYERS, VOCABULARY, WIDTH, TrainConfig
from .oracle import oracle_labels, token_labels
from .tagger import WINDOW, Tagged, Tagger
from .text import Batch, Document, Item, encode_documents, length, pad, padded, train_tokenizer

WEIGHTS = "model.safetensors"  # of a tagger, its encoder's too
# BARTs of the hub, and their data
PUBLISHED = {"bart-large-cnn": "cnn_dailymail", "bart-large-xsum": "xsum"}
CHUNK = 1000  # documents that are tokenised at a time


class Run(NamedTuple):
    """A tagger, and what defines it."""

    config: TrainConfig
    model: Tagger
    tokenizer: Any  # of transformers, whose import takes half of the time of --help

    def encode(self, examples: Sequence) -> list[Item]:
        """The tokens of each document with their oracle labels (Section 4.1)."""
        items = []
        for start in tqdm(range(0, len(examples), CHUNK), "tokenising", leave=False, disable=None):
            chunk = examples[start : start + CHUNK]
            documents = self.read([example.source for example in chunk])
            for example, document in zip(chunk, documents, strict=True):
                spans = oracle_labels(example.source, example.target, self.config.min_run)
                labels = token_labels(spans, document.offsets)
                items.append(Item(array("i", document.ids), array("i", labels), document.was_cut))
        return items

    def collate(self, items: Sequence[Item]) -> Batch:
        """A batch on the model's device."""
        device = self.model.threshold.device
        ids, keep = padded([item.ids for item in items], self.tokenizer.pad_token_id, device)
        labels = pad([item.labels for item in items], 0).bool()
        return Batch(ids, labels.to(device), keep)

    def write_files(self, folder: Path) -> None:
        """Write model/, the encoder's configuration and the tokenizer."""
        self.tokenizer.backend_tokenizer.no_truncation()  # as `encode_documents` left it
        self.tokenizer.save_pretrained(folder / "model")
        self.model.encoder.config.save_pretrained(folder / "model")

    def tag(self, texts: Sequence[str], batch_size: int = 32) -> list[Tagged]:
        """What the tagger says of all texts; what stands beyond its `max_source` tokens has no
        score.
        """
        threshold = round(self.model.threshold.item(), 4)
        scored = in_windows(texts, self.read, length, self.scores, batch_size)
        return [
            Tagged(scores, document.offsets, threshold, document.was_cut)
            for document, scores in scored
        ]

    def read(self, texts: Sequence[str]) -> list[Document]:
        """Texts as the tagger reads them."""
        return encode_documents(self.tokenizer, texts, self.config.max_source)

    @torch.inference_mode()
    def scores(self, documents: Sequence[Document]) -> list[list[float]]:
        """The probability of each token of a batch."""
        ids = [document.ids for document in documents]
        ids, keep = padded(ids, self.tokenizer.pad_token_id, self.model.threshold.device)
        rows = zip(documents, self.model(ids, keep).sigmoid().tolist(), strict=True)
        return [scores[: len(document.ids)] for document, scores in rows]


class Summarizer(NamedTuple):
    """A BART that can be masked."""

    model: Any  # of transformers, with its tokenizer
    tokenizer: Any
    max_source: int  # tokens that it reads
    max_target: int = 142  # tokens that it writes at most, where its files say nothing
    data: str = ""  # what it has learned; "": not known
    seed: int = 0

    def text(self, tokens: Sequence[int]) -> str:
        """What the tokens of a summary say, in one line."""
        return " ".join(self.tokenizer.decode(tokens, skip_special_tokens=True).split())


def load_run(folder: str | Path) -> Run:
    """Read a tagger's run, or of one in training the last checkpoint; ValueError: it is none,
    damaged, or has NaN.
    """
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    config, files = read_config(folder, TrainConfig), Path(folder, "model")
    sizes = AutoConfig.from_pretrained(files, trust_remote_code=False)
    model = AutoModel.from_config(sizes, dtype=torch.float32, trust_remote_code=False)
    model = new_tagger(config, model.get_encoder() if sizes.is_encoder_decoder else model)
    load_weights(model, folder, WEIGHTS)
    return Run(config, model.eval(), AutoTokenizer.from_pretrained(files, trust_remote_code=False))


def load_examples(data: str, split: str, count: int = 0) -> list[Example]:
    """A split of the data; of the training data the first `count`, 0 = all."""
    return load(data, split, count or None if split == "train" else None)


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new tagger; what a new encoder's tokenizer learns from are the examples."""
    if config.encoder:
        encoder, tokenizer = pretrained.load(
            "encoder", config.encoder, min(config.max_source, WINDOW)
        )
    else:
        tokenizer = train_tokenizer(
            (text for e in examples for text in (e.source, e.target)), VOCABULARY
        )
        encoder = new_encoder(len(tokenizer))
    return Run(config, new_tagger(config, encoder), tokenizer)


def new_tagger(config: TrainConfig, encoder) -> Tagger:
    """A new perceptron on an encoder."""
    encoder.pooler = None
    return Tagger(encoder, train_encoder=config.train_encoder)


def new_encoder(vocabulary: int):
    """A small RoBERTa with random weights."""
    from transformers import RobertaConfig, RobertaModel

    sizes = RobertaConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=WINDOW + 2,
        type_vocab_size=1,
        # 0.02 is for large widths: here attention would stay flat for long
        initializer_range=WIDTH**-0.5,
    )
    return RobertaModel(sizes, add_pooling_layer=False)


def load_model(name: str | Path) -> Summarizer:
    """Any BART by its name or folder, or that of a run of experiments/summarizer.py; ValueError for
    other ones.
    """
    values = run_config(name)
    if values is None:
        model, tokenizer = pretrained.load("bart", name)
        data = PUBLISHED.get(name_of(name), "")
        return Summarizer(model, tokenizer, pretrained.positions_of(model), data=data)
    if "max_target" not in values:
        raise ValueError(f"{name} is a tagger's run: give a BART to be masked, and --tagger {name}")
    model, tokenizer = pretrained.load("bart", Path(name, "model"))
    known = {field: values[field] for field in ("max_source", "max_target", "data", "seed")}
    return Summarizer(model, tokenizer, **known)


def run_config(name: str | Path) -> dict | None:
    """The configuration of a run folder; None where it is none: a folder of transformers has a
    config.json, too.
    """
    path, values = Path(name, "config.json"), {}
    with suppress(ValueError):  # what is damaged is refused by transformers
        values = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return values["config"] if "package" in values else None


def name_of(name: str | Path) -> str:
    """How a model is called in tables and files: the last part of its folder's name, of "." too, or
    of a hub's name.
    """
    return Path(os.path.abspath(name)).name
