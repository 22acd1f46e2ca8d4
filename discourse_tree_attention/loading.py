"""A run: begin a new one, or load a folder's."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from shared import data, pretrained
from shared.run import load_weights, read_config

from .config import TrainConfig
from .model import Summarizer
from .selection import select
from .text import MAX_TOKENS, Batch, Document, UnitEncoder, collate, random_encoder, read_corpus
from .toy_trees import toy_tree


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: Summarizer
    encoder: UnitEncoder

    def encode(self, examples: Sequence) -> list[Document]:
        """Examples as documents with vectors, labels and matrices, cut to what the model reads."""
        self.encoder.model.to(next(self.model.parameters()).device)
        return read_corpus(data.in_sentences(examples), self.config, self.encoder)

    def collate(self, documents: Sequence[Document]) -> Batch:
        """A batch on the model's device."""
        return collate(documents, next(self.model.parameters()).device)

    @torch.inference_mode()
    def scores(self, documents: Sequence[Document], batch_size: int) -> list[np.ndarray]:
        """The (N,) scores of the units of each document; those of like length share a batch.

        The model is put into eval mode.
        """
        model = self.model.eval()
        order = sorted(range(len(documents)), key=lambda place: len(documents[place]))
        scores = {}
        for start in range(0, len(order), batch_size):
            places = order[start : start + batch_size]
            batch = self.collate([documents[place] for place in places])
            rows = model(batch.units, batch.keep, batch.matrix).float().cpu().numpy()
            for place, row in zip(places, rows, strict=True):
                scores[place] = row[: len(documents[place])]
        return [scores[place] for place in range(len(documents))]

    def extract(self, document: Document, scores: np.ndarray) -> list[int]:
        """The units that the summary takes by their (N,) scores, in order."""
        lengths = [len(unit.split()) for unit in document.units]
        return select(scores, document.required, self.config.count, lengths, self.config.max_words)

    def write_files(self, folder: Path) -> None:
        """Write the config, and an encoder that has no other place."""
        from transformers.utils import logging

        (folder / "config.json").write_text(json.dumps(asdict(self.config), indent=1))
        logging.disable_progress_bar()
        if not self.config.encoder:
            self.encoder.tokenizer.save_pretrained(folder / "encoder")
            self.encoder.model.save_pretrained(folder / "encoder")


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model with its encoder; ValueError: there is no such encoder."""
    if config.encoder:
        encoder = load_encoder(config.encoder, config.pooling)
    else:
        texts = [sentence for example in examples for sentence in example.document]
        # Another draw for each seed: what D-Tree gains on toy hangs on it by several ROUGE-1.
        encoder = random_encoder(texts, config.pooling, seed=config.seed)
    return Run(config, Summarizer(config.model_config(encoder.width)), encoder)


def load(name: str | Path, split: str = "train", limit: int | None = None) -> list[data.Example]:
    """`shared.data.load`, and the stories of `toy` with their trees."""
    return with_toy_trees(data.load(name, split, limit), str(name))


def with_toy_trees(examples: Sequence[data.Example], name: str) -> list[data.Example]:
    """The examples of a data set; those of `toy` (or `toy:signal=0,seed=3`) with their trees."""
    if name.partition(":")[0] != "toy":
        return list(examples)
    seed = int((re.findall(r"\bseed=(\d+)", name) or ["0"])[-1])
    return [replace(example, tree=toy_tree(example, seed)) for example in examples]


def load_run(folder: str | Path) -> Run:
    """Read a finished run, its model in eval mode on the CPU.

    ValueError: not a run folder, a training that is not finished, weights that do not fit.
    """
    return restore(read_config(folder, TrainConfig), Path(folder))


def restore(config: TrainConfig, folder: Path) -> Run:
    """The finished run of that config, with the encoder and the weights of its folder."""
    encoder = load_encoder(config.encoder or str(folder / "encoder"), config.pooling)
    model = Summarizer(config.model_config(encoder.width))
    load_weights(model, folder / "model.safetensors")
    return Run(config, model.eval(), encoder)


def load_encoder(name: str, pooling: str) -> UnitEncoder:
    """An encoder of `transformers` by name or folder; ValueError: there is none."""
    return UnitEncoder(*pretrained.load("encoder", name, MAX_TOKENS), pooling)
