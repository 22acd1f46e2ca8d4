"""Discourse trees of the toy corpus: from the root, nuclei alone lead to the salient sentences and
to no others.
"""

import re

import numpy as np

from .trees import Node, join, write_dis

SPLITS = ("train", "validation", "test")
# First words of the clauses that are Satellites in their sentence: who says it ("officials said
# that ..."), or why.
OF_SATELLITES = ("officials", "residents", "reporters", "because", "while")


def toy_tree(example, seed: int = 0) -> str:
    """The tree of a toy story (with its id, `document` and `salient`) in the .dis format; its
    corpus has the seed.
    """
    _, split, number = example.id.split("-")
    # the others told the story
    rng = np.random.default_rng([seed, SPLITS.index(split), int(number)]).spawn(3)[2]
    sentences, end = [], 0
    for sentence in example.document:
        clauses = enumerate(re.split(r"(?<= that) |(?<= ,) ", sentence), end)
        sentences.append(
            [Node(i, i + 1, text.split()[0] not in OF_SATELLITES, text=text) for i, text in clauses]
        )
        end = sentences[-1][-1].end
    return write_dis(document_tree(sentences, example.salient, rng))


def document_tree(
    sentences: list, salient: list[bool], rng: np.random.Generator, nucleus: bool | None = None
) -> Node:
    """Joins sentences, each a list of its clauses, the salient ones high."""
    if len(sentences) == 1:
        return join(sentences[0], nucleus)
    where = np.flatnonzero(salient).tolist()
    # part the salient ones first
    cuts = where[1:] or [max(where[0], 1)] if where else list(range(1, len(sentences)))
    cut = cuts[rng.integers(len(cuts))]
    left, right = any(salient[:cut]), any(salient[cut:])
    if not left and not right:
        left, right = ((True, True), (True, False), (False, True))[rng.integers(3)]
    left_tree = document_tree(sentences[:cut], salient[:cut], rng, left)
    return join((left_tree, document_tree(sentences[cut:], salient[cut:], rng, right)), nucleus)
