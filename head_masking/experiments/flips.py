"""Masks as good as their selector: oracle masks of whose words a share is flipped at random.

python -m head_masking.experiments.flips RUN DATA HEADS --shares 0.1 0.5 > flips.jsonl        rows for experiments.seeds
"""

import json
from argparse import ArgumentParser

import numpy as np

from shared import pretrained
from shared.data import load
from shared.score import system_name

from .. import predict
from ..heads import find_heads
from ..labels import at_least, checksum
from ..loading import load_model, name_of
from ..oracle import oracle_labels, token_labels


def flipped(example, document, share: float, min_run: int = 1, min_keep: int = 5) -> list[bool]:
    """The oracle's mask of a document, but that a share of its words has the other label, the same at each call."""
    spans = oracle_labels(example.source, example.target, min_run)
    is_flipped = np.random.default_rng(checksum(example.source)).random(len(spans)) < share
    labels = [(a, b, label != flip) for (a, b, label), flip in zip(spans, is_flipped, strict=True)]
    return at_least([float(label) for label in token_labels(labels, document.offsets)], 0.0, min_keep, example.source)


def main(arguments: list[str] | None = None) -> None:
    """Print a row for each document and share."""
    parser = ArgumentParser(description=__doc__)
    for name in ("run", "data", "heads"):
        parser.add_argument(name)
    parser.add_argument("--shares", nargs="+", type=float, default=[0.1, 0.2, 0.3, 0.5])
    parser.add_argument("--min-run", type=int, default=1)
    parser.add_argument("--max-length", type=int)
    parser.add_argument("--no-repeat-ngram-size", type=int)
    options = parser.parse_args(arguments)
    run, examples = load_model(options.run), load(options.data, "test")
    given = dict(max_length=options.max_length, no_repeat_ngram_size=options.no_repeat_ngram_size)
    pretrained.generation(run.model, run.max_target, **given)
    heads, documents = find_heads(options.heads, run.model), predict.read_documents(run, examples)
    known = {"seed": run.seed}
    for share in options.shares:
        pairs = zip(examples, documents, strict=True)
        kept = [d._replace(keep=flipped(e, d, share, options.min_run)) for e, d in pairs]
        known["system"] = f"{system_name(name_of(options.run), run.seed)}+oracle-{share:g}"
        for row, example in zip(predict.summarise(run, examples, kept, heads), examples, strict=True):
            print(json.dumps(row | known | {"references": example.references}), flush=True)


if __name__ == "__main__":
    main()
