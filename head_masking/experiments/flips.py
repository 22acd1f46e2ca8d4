"""Masks as good as their selector: oracle masks of whose words a share is flipped at random.

python -m head_masking.experiments.flips RUN DATA HEADS --shares 0.1 0.5 > flips.jsonl        rows for experiments.seeds
"""

import json
from argparse import ArgumentParser

import numpy as np

from shared.data import load

from ..decode import Setting, checksum, decode, encode, find_heads, read_documents, write_heads
from ..evaluate import row_of
from ..labels import kept
from ..loading import load_summarizer, name_of
from ..oracle import oracle_labels, token_labels


def flipped(example, document, share: float, min_run: int = 1, min_keep: int = 5) -> list[bool]:
    """The oracle's mask of a document, but that a share of its words has the other label, the same at each call."""
    seed, spans = checksum(example.source), oracle_labels(example.source, example.target, min_run)
    is_flipped = np.random.default_rng(seed).random(len(spans)) < share
    labels = [(a, b, label != flip) for (a, b, label), flip in zip(spans, is_flipped, strict=True)]
    return kept([float(label) for label in token_labels(labels, document.offsets)], 0.0, min_keep, seed)


def main(arguments: list[str] | None = None) -> None:
    """Print a row for each document and share."""
    parser = ArgumentParser(description=__doc__)
    for name in ("run", "data", "heads"):
        parser.add_argument(name)
    parser.add_argument("--shares", nargs="+", type=float, default=[0.1, 0.2, 0.3, 0.5])
    parser.add_argument("--min-run", type=int, default=1)
    parser.add_argument("--no-repeat-ngram-size", type=int, default=0)
    options = parser.parse_args(arguments)
    run, examples = load_summarizer(options.run), load(options.data, "test")
    heads, documents = find_heads(options.heads, run), []
    for example, document in zip(examples, read_documents(run, examples), strict=True):
        masks = {f"oracle-{share:g}": flipped(example, document, share, options.min_run) for share in options.shares}
        documents.append(document._replace(masks=masks))
    settings = {kind: Setting(kind, heads) for kind in documents[0].masks}
    batches, generation = encode(run.model, documents), {"no_repeat_ngram_size": options.no_repeat_ngram_size}
    for kind, i, _, text in decode(run, documents, settings, batches, **generation):
        row = row_of(examples[i], text, name_of(options.run), run, kind)
        print(json.dumps(row | {"heads": write_heads(heads)}), flush=True)


if __name__ == "__main__":
    main()
