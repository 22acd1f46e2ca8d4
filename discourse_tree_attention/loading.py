"""A run: begin a new one, or load a folder's."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from shared import data, pretrained
from shared.run import load_weights, read_config

from .config import TrainConfig
from .model import Summarizer
from .text import MAX_TOKENS, Batch, Document, UnitEncoder, collate, random_encoder, read_corpus
from .toy_trees import toy_tree


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: Summarizer
    encoder: UnitEncoder

    def encode(self, examples: Sequence) -> list[Document]:
        """Examples as documents with unit vectors, labels and matrices, cut to what the model reads."""
        encoder = self.encoder.to(next(self.model.parameters()).device)
        return read_corpus(data.in_sentences(examples), self.config, encoder)

    def collate(self, documents: Sequence[Document]) -> Batch:
        """A batch on the model's device."""
        return collate(documents, next(self.model.parameters()).device)

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights: an encoder that has no other place."""
        from transformers.utils import logging

        logging.disable_progress_bar()
        if not self.config.encoder:
            self.encoder.tokenizer.save_pretrained(folder / "encoder")
            self.encoder.model.save_pretrained(folder / "encoder")


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model with its encoder; ValueError: there is no such encoder."""
    if config.encoder:
        encoder = load_encoder(config.encoder, config.pooling)
    else:
        encoder = random_encoder([sentence for example in examples for sentence in example.document], config.pooling)
    return Run(config, Summarizer(config.model_config(encoder.width)), encoder)


def load(name: str | Path, split: str = "train", limit: int | None = None) -> list[data.Example]:
    """`shared.data.load`, and the stories of `toy` with their trees."""
    return with_toy_trees(data.load(name, split, limit), str(name))


def with_toy_trees(examples: Sequence[data.Example], name: str) -> list[data.Example]:
    """The examples of a data set; where it is `toy` (or `toy:signal=0,seed=3`), with their trees."""
    if name.partition(":")[0] != "toy":
        return list(examples)
    seed = int((re.findall(r"\bseed=(\d+)", name) or ["0"])[-1])
    return [replace(example, tree=toy_tree(example, seed)) for example in examples]


def load_run(folder: str | Path, config_type: type = TrainConfig) -> Run:
    """Read a run, its model in eval mode on the CPU; of one in training the last checkpoint, said on stderr.

    ValueError: not a run folder, one of another package or version, a cut-off file, NaN in the weights.
    """
    config = read_config(folder, config_type)
    encoder = load_encoder(config.encoder or str(Path(folder, "encoder")), config.pooling)
    model = Summarizer(config.model_config(encoder.width))
    load_weights(model, folder)
    return Run(config, model.eval(), encoder)


def load_encoder(name: str, pooling: str) -> UnitEncoder:
    """An encoder of `transformers` by name or folder (bert-base-uncased in the paper); ValueError: it says nothing."""
    encoder = UnitEncoder(*pretrained.load("encoder", name, MAX_TOKENS), pooling)
    vectors = encoder(own_words(encoder.tokenizer))
    if torch.allclose(vectors, vectors[:1], atol=1e-6):
        raise ValueError(f"{name}: the vector of a unit does not depend on its text; try --pooling mean")
    return encoder


def own_words(tokenizer) -> list[str]:
    """Some texts that a tokenizer knows, whatever its language: up to 64 of its tokens, spread over all."""
    ids = range(0, len(tokenizer), len(tokenizer) // 64 + 1)
    return sorted({tokenizer.decode([token], skip_special_tokens=True).strip() for token in ids})
