"""How much a tree says without a network, which the paper does not ask: rows "Tree alone", "Tree probe" of a table."""

from collections.abc import Sequence

import numpy as np

from .documents import Document
from .matrices import heads, level_sum
from .trees import Node


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
