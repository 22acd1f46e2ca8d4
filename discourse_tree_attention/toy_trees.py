"""Discourse trees of the toy corpus: from the root, nuclei alone lead to the salient sentences and to no others."""

import re
from dataclasses import replace

import numpy as np

from .trees import Node, write_dis

SPLITS = ("train", "validation", "test")
SOURCES = ("officials", "residents", "reporters")  # "officials said that ...": the first word of who says it


def toy_tree(example, seed: int = 0) -> str:
    """The tree of a toy story (with its id, `document` and `salient`) in the .dis format; its corpus has the seed."""
    _, split, number = example.id.split("-")
    rng = np.random.default_rng([seed, SPLITS.index(split), int(number)]).spawn(3)[2]  # the others told the story
    rng.random(len(example.document))
    trees, first = [], 0
    for sentence in example.document:
        trees.append(sentence_tree(re.split(r"(?<= that) |(?<= ,) ", sentence), first))
        first = trees[-1].end
    return write_dis(document_tree(trees, example.salient, rng))


def sentence_tree(clauses: list[str], first: int) -> Node:
    """Joins the clauses of a sentence, the first of which is EDU number `first`, around what it says."""
    edus = [Node(first + i, first + i + 1, None, text=clause) for i, clause in enumerate(clauses)]
    main = next(i for i, clause in enumerate(clauses) if clause.split()[0] not in (*SOURCES, "because", "and", "while"))
    tree = edus[main]
    for edu in edus[main + 1 :]:
        tree = pair(tree, edu, "NN" if edu.text.startswith("and ") else "NS")
    for edu in reversed(edus[:main]):
        tree = pair(edu, tree, "SN")
    return tree


def document_tree(trees: list[Node], salient: list[bool], rng: np.random.Generator) -> Node:
    """Joins sentence trees, the salient ones high."""
    if len(trees) == 1:
        return trees[0]
    where = np.flatnonzero(salient).tolist()
    cuts = where[1:] or [max(where[0], 1)] if where else list(range(1, len(trees)))  # part the salient ones first
    cut = cuts[rng.integers(len(cuts))]
    left, right = any(salient[:cut]), any(salient[cut:])
    roles = "NN" if left and right else "NS" if left else "SN" if right else ("NN", "NS", "SN")[rng.integers(3)]
    if roles != "NN":
        rng.integers(2)  # a draw for nothing, as in `toy_tree`: with both the trees are those of RESULTS.md
    left_tree = document_tree(trees[:cut], salient[:cut], rng)
    return pair(left_tree, document_tree(trees[cut:], salient[cut:], rng), roles)


def pair(left: Node, right: Node, roles: str) -> Node:
    """One node over two; `roles` says which of them is a Nucleus ("NS", "SN", "NN")."""
    children = (replace(left, nucleus=roles[0] == "N"), replace(right, nucleus=roles[1] == "N"))
    return Node(left.start, right.end, None, children)
