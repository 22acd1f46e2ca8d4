"""Discourse trees of the toy corpus: nuclei alone lead to the salient sentences."""

import re

import numpy as np

from .trees import Node, join, write_dis

SPLITS = ("train", "validation", "test")
# First words of clauses that are Satellites: who says it ("officials said that ..."), or why.
OF_SATELLITES = ("officials", "residents", "reporters", "because", "while")


def toy_tree(example, seed: int) -> str:
    """The tree of a toy story (its id, `document` and `salient`) in the .dis format.

    The seed is that of its corpus.
    """
    _, split, number = example.id.split("-")
    # The first two told the story.
    rng = np.random.default_rng([seed, SPLITS.index(split), int(number)]).spawn(3)[2]
    sentences, end = [], 0
    for sentence in example.document:
        clauses = []
        for text in re.split(r"(?<= that) |(?<= ,) ", sentence):
            is_nucleus = text.split()[0] not in OF_SATELLITES
            clauses.append(Node(end, end + 1, is_nucleus, text=text))
            end += 1
        sentences.append(clauses)
    return write_dis(document_tree(sentences, example.salient, rng))


def document_tree(
    sentences: list, salient: list[bool], rng: np.random.Generator, nucleus: bool | None = None
) -> Node:
    """Joins sentences, each a list of its clauses, the salient ones high."""
    if len(sentences) == 1:
        return join(sentences[0], nucleus)
    where = np.flatnonzero(salient).tolist()
    if not where:
        cuts = list(range(1, len(sentences)))
    else:
        cuts = where[1:] or [max(where[0], 1)]  # part the salient ones first
    cut = cuts[rng.integers(len(cuts))]
    left, right = any(salient[:cut]), any(salient[cut:])
    if not left and not right:
        left, right = ((True, True), (True, False), (False, True))[rng.integers(3)]
    left_tree = document_tree(sentences[:cut], salient[:cut], rng, left)
    return join((left_tree, document_tree(sentences[cut:], salient[cut:], rng, right)), nucleus)
