"""Load what is there: a tagger's run, or a BART to be masked; begin a new tagger."""

import json
import os
from array import array
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from shared import pretrained
from shared.run import load_weights, read_config

from .config import HEADS, LAYERS, VOCABULARY, WIDTH, TrainConfig
from .oracle import oracle_labels, token_labels
from .tagger import WINDOW, Tagged, Tagger
from .text import Batch, Item, encode_documents, pad, padded, train_tokenizer

# BARTs of the hub, and the data that they have learned.
PUBLISHED = {"bart-large-cnn": "cnn_dailymail", "bart-large-xsum": "xsum"}
CHUNK = 1000  # documents that are tokenised at a time
BATCH = 32  # documents that are tagged at a time


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
            texts = [example.source for example in chunk]
            documents = encode_documents(self.tokenizer, texts, self.config.max_source)
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
        """Write what `load_run` reads beside the weights."""
        self.tokenizer.save_pretrained(folder / "model")
        self.model.encoder.config.save_pretrained(folder / "model")
        (folder / "config.json").write_text(json.dumps(asdict(self.config), indent=1))

    @torch.inference_mode()
    def tag(self, texts: Sequence[str]) -> list[Tagged]:
        """What the tagger says of each text; beyond its `max_source` tokens nothing has a score."""
        threshold = round(self.model.threshold.item(), 4)
        documents = encode_documents(self.tokenizer, texts, self.config.max_source)
        order = sorted(range(len(documents)), key=lambda place: len(documents[place].ids))
        tagged = {}
        for first in range(0, len(order), BATCH):
            places = order[first : first + BATCH]
            rows = [documents[place].ids for place in places]
            ids, keep = padded(rows, self.tokenizer.pad_token_id, self.model.threshold.device)
            probabilities = self.model(ids, keep).sigmoid().tolist()
            for place, scores in zip(places, probabilities, strict=True):
                document = documents[place]
                scores = scores[: len(document.ids)]
                tagged[place] = Tagged(scores, document.offsets, threshold, document.was_cut)
        return [tagged[place] for place in range(len(documents))]


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
    """Read a finished tagger's run, its model in eval mode on the CPU.

    ValueError: not a run folder, a training that is not finished, weights that do not fit.
    """
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    folder = Path(folder)
    config = read_config(folder, TrainConfig)
    sizes = AutoConfig.from_pretrained(folder / "model", trust_remote_code=False)
    encoder = AutoModel.from_config(sizes, dtype=torch.float32, trust_remote_code=False)
    if sizes.is_encoder_decoder:
        encoder = encoder.get_encoder()
    model = new_tagger(config, encoder)
    load_weights(model, folder / "model.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model", trust_remote_code=False)
    return Run(config, model.eval(), tokenizer)


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new tagger; a new encoder's tokenizer learns from the examples."""
    if config.encoder:
        most = min(config.max_source, WINDOW)
        encoder, tokenizer = pretrained.load("encoder", config.encoder, most)
    else:
        texts = (text for example in examples for text in (example.source, example.target))
        tokenizer = train_tokenizer(texts, VOCABULARY)
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
    """Any BART by its name or folder, or the run folder of one; ValueError for other models.

    A run folder has the BART in model/, beside config.json with what it was trained on.
    """
    if not Path(name, "model").is_dir():
        model, tokenizer = pretrained.load("bart", name)
        data = PUBLISHED.get(name_of(name), "")
        return Summarizer(model, tokenizer, pretrained.positions_of(model), data=data)
    values = json.loads(Path(name, "config.json").read_text(encoding="utf-8"))
    if "max_target" not in values:
        raise ValueError(f"{name} is a tagger's run: give a BART to be masked, and --tagger {name}")
    model, tokenizer = pretrained.load("bart", Path(name, "model"))
    known = {field: values[field] for field in ("max_source", "max_target", "data", "seed")}
    return Summarizer(model, tokenizer, **known)


def name_of(name: str | Path) -> str:
    """The last part of a folder's or hub name, of "." too: how tables and files call a model."""
    return Path(os.path.abspath(name)).name
