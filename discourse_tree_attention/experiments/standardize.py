"""An encoder whose unit vectors have mean 0 and spread 1 over the training documents.

E=sentence-transformers/all-MiniLM-L6-v2 P=discourse_tree_attention
python -m $P.experiments.standardize DATA --encoder $E --pooling mean --out encoders/mine
python -m $P.train --data DATA --encoder encoders/mine --pooling mean --out runs/mine
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import tyro
from torch import nn

from shared.data import in_sentences
from shared.run import one_line_errors, read_flags

from ..config import TrainConfig
from ..loading import load, load_encoder
from ..text import UnitEncoder, read_corpus

NO_NORM = "the encoder does not end with a layer norm: take a BERT, RoBERTa or MiniLM"


def standardize(encoder: UnitEncoder, vectors: np.ndarray) -> None:
    """Change the encoder's last layer norm: `vectors`, (n, D), get mean 0 and spread 1.

    A unit's vector is x * weight + bias, or a mean of these: weight and bias can hold both of each
    coordinate.
    """
    norms = [module for module in encoder.model.modules() if isinstance(module, nn.LayerNorm)]
    if not norms or norms[-1].bias is None:
        raise ValueError(NO_NORM)
    # D24: or vectors, which differ little, are lost under the positions that are added to them.
    mean = torch.from_numpy(vectors.mean(0))
    spread = torch.from_numpy(vectors.std(0, ddof=1)).clamp_min(1e-6)
    with torch.no_grad():
        norms[-1].weight.div_(spread)
        norms[-1].bias.sub_(mean).div_(spread)


@dataclass
class Options:
    """The command line."""

    data: tyro.conf.Positional[str]  # What the encoder is for; with trees, but for sentences.
    encoder: str  # One of transformers' by name or folder, which ends with a layer norm.
    out: Path  # Folder to make.
    pooling: Literal["cls", "mean"] = "cls"  # As in train (D23).
    level: Literal["edu", "sentence"] = "edu"  # As in train.


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    if options.out.exists():
        raise ValueError(f"{options.out} exists: choose another --out")
    encoder = load_encoder(options.encoder, options.pooling)
    examples = in_sentences(load(options.data, "train"))
    documents = read_corpus(examples, TrainConfig(level=options.level, attention="none"), encoder)
    vectors = np.concatenate([document.vectors for document in documents])
    standardize(encoder, vectors)
    again = encoder.encode(documents[0].units)
    expected = (documents[0].vectors - vectors.mean(0)) / vectors.std(0, ddof=1).clip(1e-6)
    if np.abs(again - expected).max() > 0.01:
        raise ValueError(NO_NORM)
    options.out.mkdir(parents=True)
    encoder.model.save_pretrained(options.out)
    encoder.tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    main()
