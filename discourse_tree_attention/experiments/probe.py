"""What the inputs hold, without a network: ridge regressions of a unit's promotion and of the oracle's label.

python -m discourse_tree_attention.experiments.probe runs/scitldr_edu --csv probe.csv

They read a unit's position, its vector x, and what a fixed matrix A adds to it; fitted and tested on the runs' folds.
Tree order: of the pairs of units that the promotion orders, the per cent that the prediction orders alike (chance: 50).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from shared import rouge
from shared.data import check_outputs, in_sentences, load, write_csv

from ..documents import choose_documents, make_documents, prepare
from ..evaluate import ranking
from ..loading import load_run
from ..run import check_fields, one_line_errors, read_flags
from .salience import tree_scalars

TREES = [kind + trees for kind in ("c_tree_nuclearity", "d_tree") for trees in ("", "-shuffled")]  # names of runs
RIDGE = 1000
METRICS = ("tree order", "AUC", "AP")


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    folder: tyro.conf.Positional[Path]  # of runs NAME-foldK-seed0, NAME in TREES, as run.sh trains them
    csv: Path | None = None


def order(scores: np.ndarray, truth: np.ndarray) -> float:
    """Per cent of the pairs that the (N,) truth orders which the (N,) scores order alike; a tie counts half."""
    sign = np.sign(np.subtract.outer(truth, truth))
    return 50 * (1 + (np.sign(np.subtract.outer(scores, scores)) * sign).sum() / abs(sign).sum())


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
    rows = {"position": places, "position, x": first}
    rows |= {f"position, x, A x of {name}": add(own) for name, own in mixed.items()}
    rows["position, x, x of the unit before"] = add([x[np.maximum(np.arange(len(x)) - 1, 0)] for x in vectors])
    rows["position, x, column sums of A"] = add([a.sum(0)[:, None] for a in matrices[TREES[0]]])
    return rows | {"position, x, four numbers of the tree": add(scalars)}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.probe", description=__doc__)
    check_fields(options)
    check_outputs(options.csv)
    found, documents = {}, None
    for fold in range(load_run(options.folder / f"{TREES[0]}-fold0-seed0").config.folds):
        runs = {name: load_run(options.folder / f"{name}-fold{fold}-seed0") for name in TREES}
        config = runs[TREES[0]].config
        if documents is None:
            read = (example for name in config.splits("test") for example in load(config.data, name))
            documents = make_documents(in_sentences(read), config)
        corpora = {name: prepare(documents, run.config, run.encoder, run.config.cache) for name, run in runs.items()}
        train, test = (choose_documents(config, part, len(documents)) for part in ("train", "test"))
        scalars = [tree_scalars(document, "edu") for document in documents]
        targets = [np.stack([s[:, 0], d.labels], 1) for s, d in zip(scalars, documents, strict=True)]
        matrices = {name: corpus.matrices for name, corpus in corpora.items()}
        for name, rows in features(corpora[TREES[0]].vectors, matrices, scalars).items():
            for i, own in zip(test, predict(rows, targets, train, test), strict=True):
                pair = order(own[:, 0], scalars[i][:, 0]), *ranking(own[:, 1], documents[i].labels)
                found.setdefault(name, []).append(pair)
    base, table = np.array(found["position, x"]), []
    for name, values in found.items():
        row = {"regression on": name}
        for metric, value, change in zip(METRICS, np.array(values).T, (np.array(values) - base).T, strict=True):
            row[metric] = float(np.nanmean(value))
            change = rouge.interval(change[np.isfinite(change)])
            row[f"{metric} - position, x"] = {
                "difference": change["mean"],
                "low": change["low"],
                "high": change["high"],
            }
        table.append(row)
    if options.csv:
        write_csv(options.csv, table)
    print(rouge.table(table))


if __name__ == "__main__":
    main()
