"""Controls, which the paper has not: the same model with another matrix than the tree's; and how runs rank units.

python -m discourse_tree_attention.experiments.controls train shuffled --out runs/d_tree-shuffled --attention d_tree

python -m discourse_tree_attention.experiments.controls train previous --out runs/previous --attention d_tree

python -m discourse_tree_attention.experiments.controls predict RUN --data toy --out rows.jsonl

Flags are those of `train` and `predict`; rows have AUC and average precision of the oracle's units, too.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from shared.run import one_line_errors, parse

from ..config import PRESETS, TrainConfig
from ..predict import read_command, write
from ..text import Document, document_matrix
from ..train import shuffle, train


def shuffled(document: Document, config: TrainConfig) -> np.ndarray:
    """The document's matrix with its units in random order: the shape of a tree that says nothing about them."""
    return shuffle(document_matrix(document, config), np.random.default_rng((config.seed, *document.id.encode())))


def previous(document: Document, config: TrainConfig) -> np.ndarray:
    """Each unit attends to the one before it, the first to itself; no tree is needed."""
    # D25: what of a tree's gain is the neighbour's? A unit itself gets no weight, but the first.
    matrix = np.eye(len(document.units), k=-1, dtype=np.float32)
    matrix[0, 0] = 1
    return matrix


CONTROLS = {"shuffled": shuffled, "previous": previous}


def ranking(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float] | None:
    """AUC and average precision, 0 to 1, of a document's (N,) unit scores; None where the oracle takes all or none."""
    if labels.all() or not labels.any():
        return None
    above = np.sign(scores[labels][:, None] - scores[~labels])  # (taken, not taken): 1, 0 (a tie) or -1
    hits = labels[np.argsort(-scores, kind="stable")]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return (1 + float(above.mean())) / 2, float(precision[hits].mean())


def measures(document: Document, scores: np.ndarray, take: str = "model") -> dict[str, list[float]]:
    """How well the scores rank the oracle's units, as shares, whose whole is 0 where there is no ranking.

    D22: beside ROUGE; what Lead and the oracle take ranks by place and by the labels.
    """
    scores = {"lead": -np.arange(len(scores)), "oracle": document.labels.astype(float)}.get(take, scores)
    ranks = ranking(scores.astype(float), document.labels)
    return {"auc": [ranks[0], 1], "ap": [ranks[1], 1]} if ranks else {"auc": [0, 0], "ap": [0, 0]}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    match list(sys.argv[1:] if arguments is None else arguments):
        case ["train", name, *flags] if name in CONTROLS:
            config, out, resume = parse(flags, TrainConfig, PRESETS, __doc__)
            train(config, out, resume, CONTROLS[name])
        case ["predict", *flags]:
            run, examples, options = read_command(flags, __doc__)
            control = Path(options.run, "control")
            matrix_of = CONTROLS[control.read_text()] if control.exists() else None
            write(run, examples, options, measure=partial(measures, take=options.take), matrix_of=matrix_of)
        case _:
            raise ValueError(f"say train {' or train '.join(CONTROLS)}, or predict, then the flags of that command")


if __name__ == "__main__":
    main()
