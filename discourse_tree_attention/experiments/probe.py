"""What the inputs hold, without a network: ridge regressions of a unit's promotion and of the oracle's label.

They read a unit's position, its vector x, and what a fixed matrix A adds to it; fitted and tested on the run's folds.
Tree order: of the pairs of units that the promotion orders, the per cent that the prediction orders alike (chance: 50).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tyro

from shared.data import in_sentences, load, open_output
from shared.score import report, score

from ..decode import read_corpus
from ..documents import choose_documents, prepare
from ..evaluate import rows_of
from ..loading import load_run
from .salience import tree_scalars

TREES = {
    name + shuffled: dict(attention=name, shuffle_trees=bool(shuffled))
    for name in ("c_tree_nuclearity", "d_tree") for shuffled in ("", "-shuffled")
}  # fmt: skip
RIDGE = 1000


def order(scores: np.ndarray, truth: np.ndarray) -> float:
    """Per cent of the pairs that the (N,) truth orders which the (N,) scores order alike; a tie counts half."""
    sign = np.sign(np.subtract.outer(truth, truth))
    return float(50 * (1 + (np.sign(np.subtract.outer(scores, scores)) * sign).sum() / abs(sign).sum()))


def predict(rows: list, targets: list, train: Sequence[int], test: Sequence[int]) -> list[np.ndarray]:
    """Of each tested document the (N, 2) predictions of promotion and label: a ridge regression on its (N, F) rows."""
    x = np.concatenate([rows[i] for i in train]).astype(float)
    y = np.concatenate([targets[i] for i in train])
    mean, spread = x.mean(0), x.std(0) + 1e-6
    x = (x - mean) / spread
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ (y - y.mean(0)))
    return [(rows[i] - mean) / spread @ weights for i in test]


def features(vectors: list, matrices: dict[str, list], scalars: list) -> dict[str, list]:
    """Rows of the table -> of each document the (N, F) numbers that the regression reads."""
    places = [np.stack([np.arange(len(x)), np.log1p(np.arange(len(x)))], 1) for x in vectors]
    first = [np.concatenate([p, x], 1) for p, x in zip(places, vectors, strict=True)]

    def add(extra: Sequence) -> list:
        return [np.concatenate([x, e], 1) for x, e in zip(first, extra, strict=True)]

    mixed = {name: [a @ x for a, x in zip(own, vectors, strict=True)] for name, own in matrices.items()}
    rows = {"position, x": first, "position": places}
    rows |= {f"position, x, A x of {name}": add(own) for name, own in mixed.items()}
    rows["position, x, x of the unit before"] = add([x[np.maximum(np.arange(len(x)) - 1, 0)] for x in vectors])
    rows["position, x, column sums of A"] = add([a.sum(0)[:, None] for a in matrices["c_tree_nuclearity"]])
    return rows | {"position, x, four numbers of the tree": add(scalars)}


def main(run: tyro.conf.Positional[Path], csv: Path | None = None, overwrite: bool = False) -> None:
    """Regressions on the corpus of a run, with its encoder and its folds."""
    config, _, encoder = load_run(run)
    read = (example for name in config.splits("test") for example in load(config.data, name))
    corpus = read_corpus(in_sentences(read), config, encoder, config.cache)
    documents, found = corpus.documents, []
    scalars = [tree_scalars(document, "edu") for document in documents]
    targets = [np.stack([s[:, 0], d.labels], 1) for s, d in zip(scalars, documents, strict=True)]
    matrices = {
        name: prepare(documents, replace(config, **kind), encoder, config.cache).matrices
        for name, kind in TREES.items()
    }
    for name, rows in features(corpus.vectors, matrices, scalars).items():
        for fold in range(config.folds):
            parts = (choose_documents(replace(config, fold=fold), part, len(documents)) for part in ("train", "test"))
            train, test = parts
            predicted = predict(rows, targets, train, test)
            tested = [documents[i] for i in test]
            ranks = rows_of(tested, [[]] * len(test), [own[:, 1] for own in predicted], system=name, seed=config.seed)
            for i, own, row in zip(test, predicted, ranks, strict=True):
                found.append(row | {"tree order": order(own[:, 0], scalars[i][:, 0])})
    with open_output(csv, overwrite) as file:
        report(score(found, "none"), file if csv else None)


if __name__ == "__main__":
    tyro.cli(main)
