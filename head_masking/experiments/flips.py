"""Masks as good as their selector: oracle masks of whose words a share is flipped at random.

python -m head_masking.experiments.flips RUN DATA HEADS > flips.jsonl        rows for experiments.seeds
"""

import json
from argparse import ArgumentParser

import numpy as np

from shared import pretrained
from shared.data import load
from shared.score import system_name

from ..heads import find_heads
from ..labels import at_least, checksum
from ..loading import load_model, name_of
from ..oracle import oracle_labels, token_labels
from ..predict import predict, read_documents
from ..text import Document

SHARES = 0.1, 0.2, 0.3, 0.5


def flipped(example, document, share: float, min_run: int = 1) -> list[bool]:
    """The oracle's mask of a document, but that a share of its words has the other label, the same at each call."""
    spans = oracle_labels(example.source, example.target, min_run)
    is_flipped = np.random.default_rng(checksum(example.source)).random(len(spans)) < share
    labels = [(a, b, label != flip) for (a, b, label), flip in zip(spans, is_flipped, strict=True)]
    return at_least([float(label) for label in token_labels(labels, document.offsets)], 0.0, example.source)


def main(arguments: list[str] | None = None) -> None:
    """Print a row for each document and share."""
    parser = ArgumentParser(description=__doc__)
    for name in ("run", "data", "heads"):
        parser.add_argument(name)
    parser.add_argument("--min-run", type=int, default=1)
    parser.add_argument("--no-repeat-ngram-size", type=int)
    options = parser.parse_args(arguments)
    run, examples = load_model(options.run), load(options.data, "test")
    pretrained.generation(run.model, run.max_target, no_repeat_ngram_size=options.no_repeat_ngram_size)
    for share in SHARES:

        def reading(window: list, share: float = share) -> list[Document]:
            pairs = zip(window, read_documents(run, window), strict=True)
            return [d._replace(keep=flipped(e, d, share, options.min_run)) for e, d in pairs]

        system = f"{system_name(name_of(options.run), run.seed)}+oracle-{share:g}"
        rows = predict(run, examples, reading, find_heads(options.heads, run.model))
        for row, example in zip(rows, examples, strict=True):
            known = {"seed": run.seed, "system": system, "references": example.references}
            print(json.dumps(row | known), flush=True)


if __name__ == "__main__":
    main()
