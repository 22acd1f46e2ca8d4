"""How much a tree says without a network, which the paper does not ask: the rows "Tree alone" and "Tree probe".

Tree alone: the units that are promoted highest. Tree probe, with folds: a logistic regression on four numbers of the
tree, fitted for each fold on its training documents. Differences are from Lead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from shared.data import in_sentences, open_output, write_csv
from shared.score import report, score

from ..config import TrainConfig
from ..loading import begin, load
from ..matrices import dependency_parents, level_sum
from ..predict import extract, summary
from ..text import Document, read_corpus
from ..trees import Node
from .controls import measures
from .folds import parts


def promotion(tree: Node) -> np.ndarray:
    """(N,) salience of each EDU (Marcu 2000): minus the depth that it is promoted to, 0 being the root.

    It is promoted up the tree as long as it is in the Nucleus, so to the nearest Satellite above it, or the root.
    """
    salience = np.zeros(tree.end)
    stack = [(tree, 0, 0)]  # a node, its depth, and the depth that its most salient EDUs are promoted to
    while stack:
        node, depth, top = stack.pop()
        stack += [(child, depth + 1, top if child.nucleus else depth + 1) for child in node.children]
        if not node.children:
            salience[node.start] = -top
    return salience


def tree_scalars(document: Document, level: str) -> np.ndarray:
    """(N, 4) of each unit: promotion, depth, dependents, row sum of all M^L; of a sentence the most among its EDUs."""
    tree, levels = document.tree, level_sum(document.tree)
    dependents = np.bincount(dependency_parents(tree), minlength=tree.end)
    scalars = np.stack([promotion(tree), levels.diagonal(), dependents, levels.sum(1)], axis=1)
    if level == "edu":
        return scalars
    best = np.full((len(document.units), 4), scalars.min(0) - 1)  # of a sentence without EDUs
    np.maximum.at(best, document.edu_sentence, scalars)
    return best


def probe(training: Sequence[Document], tested: Sequence[Document], level: str) -> dict[str, np.ndarray]:
    """Scores of the units of the tested documents, by a logistic regression of the labels on `tree_scalars`."""

    def features(documents: Sequence[Document]) -> np.ndarray:
        return np.insert(np.concatenate([tree_scalars(document, level) for document in documents]), 0, 1, axis=1)

    x, labels, weights = features(training), np.concatenate([document.labels for document in training]), np.zeros(5)
    for _ in range(20):  # Newton's method; a ridge of 1 keeps the weights finite
        p = 1 / (1 + np.exp(-x @ weights))
        weights += np.linalg.solve(x.T * (p * (1 - p)) @ x + np.eye(5), x.T @ (labels - p) - weights)
    return {document.id: features([document]) @ weights for document in tested}


def rows(documents: Sequence[Document], config: TrainConfig, folds: int = 0) -> Iterator[dict]:
    """Rows of `shared.score` for Lead, the tree alone and, with folds, its probe."""
    ranked = {"Lead": {d.id: -np.arange(len(d.units)) for d in documents}}
    ranked["Tree alone"] = {d.id: tree_scalars(d, config.level)[:, 0] for d in documents}
    for fold in range(folds):
        own = parts(len(documents), folds, fold)
        found = probe(*([documents[i] for i in own[name]] for name in ("train", "test")), config.level)
        ranked["Tree probe"] = ranked.get("Tree probe", {}) | found
    for name, scores in ranked.items():
        for d in documents:
            # Lead takes the first units alone; a pick of the others brings what it requires, as a model's does.
            free = replace(d, required=[[] for _ in d.units]) if name == "Lead" else d
            text = summary(d, extract(free, scores[d.id], config))
            row = {"id": d.id, "prediction": text, "references": d.references, "system": name, "seed": 0}
            yield row | measures(d, scores[d.id])


def main(
    data: str, split: str = "test", level: Literal["edu", "sentence"] = "edu", folds: int = 0, units_taken: int = 0,
    csv: Path | None = None, overwrite: bool = False,
) -> None:  # fmt: skip
    """Score what trees say alone on a corpus with trees; units as of train; with folds, on train and validation."""
    config = TrainConfig(data=data, level=level, units_taken=units_taken, attention="none")
    read = (example for name in (("train", "validation") if folds else (split,)) for example in load(config.data, name))
    examples = in_sentences(read)
    documents = read_corpus(examples, config, begin(config, examples).encoder)
    with open_output(csv, overwrite) as file:
        table = score(list(rows(documents, config, folds)))
        if csv:
            write_csv(file, table)
    report(table)


if __name__ == "__main__":
    tyro.cli(main)
