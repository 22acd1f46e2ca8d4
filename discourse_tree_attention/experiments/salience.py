"""How much a tree says without a network, which the paper does not ask: the rows "Tree alone" and "Tree probe".

python -m discourse_tree_attention.experiments.salience --data FOLDER --folds 5 --csv tree_edu.csv

Tree alone: the units that are promoted highest. Tree probe, with folds: a logistic regression on four numbers of the
tree, fitted for each fold on its training documents. Differences are from Lead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import tyro
from tqdm import tqdm

from shared.data import check_outputs, in_sentences, load, write_csv
from shared.rouge import table

from ..config import TrainConfig
from ..documents import Document, choose_documents, make_documents
from ..evaluate import METRICS, Values, compare, intervals, score
from ..matrices import LEVELS, heads, level_sum
from ..run import check_fields, one_line_errors, read_flags
from ..selection import join_units, select
from ..trees import Node


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    data: str = "toy:signal=0"  # with trees; anything shared.data.load takes
    split: str = "test"
    level: Literal[LEVELS] = "edu"
    folds: int = 0  # of train and validation together, for the probe
    units_taken: int = 0  # 0 = 6 EDUs or 3 sentences
    csv: Path | None = None  # write a row per system here


def promotion(tree: Node) -> np.ndarray:
    """(N,) salience of each EDU (Marcu 2000): minus the depth that it is promoted to, 0 being the root.

    It is promoted up the tree as long as it is in the Nucleus, so to the nearest Satellite above it, or the root.
    """
    salience = np.zeros(tree.last)
    stack = [(tree, 0, 0)]  # a node, its depth, and the depth that its most salient EDUs are promoted to
    while stack:
        node, depth, top = stack.pop()
        stack += [(child, depth + 1, top if child.nucleus else depth + 1) for child in node.children]
        if not node.children:
            salience[node.first - 1] = -top
    return salience


def tree_scalars(document: Document, level: str) -> np.ndarray:
    """(N, 4) of each unit: promotion, depth, dependents, row sum of all M^L; of a sentence the most among its EDUs."""
    levels, dependents = level_sum(document.tree), np.bincount(heads(document.tree), minlength=document.tree.last)
    scalars = np.stack([promotion(document.tree), levels.diagonal(), dependents, levels.sum(1)], axis=1)
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


def values_of(documents: Sequence[Document], config: TrainConfig, references: dict) -> dict[str, Values]:
    """METRICS of each document for Lead, the tree alone and, with folds, its probe."""
    ranked = {f"Lead{config.count}": {d.id: -np.arange(len(d.units)) for d in documents}}
    ranked["Tree alone"] = {d.id: tree_scalars(d, config.level)[:, 0] for d in documents}
    for fold in range(config.folds):
        parts = (choose_documents(replace(config, fold=fold), name, len(documents)) for name in ("train", "test"))
        found = probe(*([documents[i] for i in part] for part in parts), config.level)
        ranked["Tree probe"] = ranked.get("Tree probe", {}) | found
    values = {}
    for name, scores in ranked.items():
        # Lead takes the first units alone; a pick of the others brings what it requires, as a model's does.
        free = name.startswith("Lead")
        taken = [select(scores[d.id], [[] for _ in d.units] if free else d.required, config.count) for d in documents]
        texts = [join_units(d.units, d.sentence, units) for d, units in zip(documents, taken, strict=True)]
        values[name] = score(documents, texts, [scores[d.id] for d in documents], references)
    return values


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.salience", description=__doc__)
    check_fields(options)
    config = TrainConfig(options.data, options.level, options.folds, units_taken=options.units_taken)
    config.check()
    check_outputs(options.csv, inputs=[options.data])
    read = (example for name in config.splits(options.split) for example in load(config.data, name))
    examples = in_sentences(read)
    documents = make_documents(examples, config, partial(tqdm, desc="oracles", leave=False))
    if bare := [document.id for document in documents if document.tree is None]:
        raise ValueError(f"{bare[0]} has no discourse tree")
    values = values_of(documents, config, {example.id: example.references for example in examples})
    differences = compare(values)
    rows = []
    for name, own in values.items():
        row = {"system": name} | intervals(own)
        rows.append(row | {f"{m} - Lead": (differences[name] or {}).get(m) for m in METRICS})
    if options.csv:
        write_csv(options.csv, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
