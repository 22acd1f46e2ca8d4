"""Discourse trees of the toy corpus: from the root, nuclei alone lead to the salient sentences and to no others.

A tree here is the number of an EDU (leaf) or (left tree, right tree, nuclearity "NS" | "SN" | "NN", relation).
"""

import re

import numpy as np

SPLITS = ("train", "validation", "test")
# The relation of a clause to the nucleus of its sentence, by its first word.
RELATIONS = {"because": "causal-cause", "and": "joint-list", "while": "adversative-contrast"}
RELATIONS |= dict.fromkeys(("officials", "residents", "reporters"), "attribution-positive")


def toy_tree(example, seed: int = 0) -> str:
    """The tree of a toy story (with its id, `document` and `salient`) in the .dis format; its corpus has the seed."""
    _, split, number = example.id.split("-")
    rng = np.random.default_rng([seed, SPLITS.index(split), int(number)]).spawn(3)[2]  # the others told the story
    rng.random(len(example.document))
    trees, edus = [], []
    for sentence in example.document:
        clauses = re.split(r"(?<= that) |(?<= ,) ", sentence)
        trees.append(sentence_tree([RELATIONS.get(clause.split()[0], "span") for clause in clauses], len(edus)))
        edus += clauses
    return write_dis(document_tree(trees, example.salient, rng), edus)


def sentence_tree(relations: list[str], first: int) -> tuple | int:
    """Joins the clauses of a sentence, the first of which is EDU number `first`, around its nucleus, the "span"."""
    nucleus = relations.index("span")
    tree = first + nucleus
    for i in range(nucleus + 1, len(relations)):
        tree = (tree, first + i, "NN" if relations[i] == "joint-list" else "NS", relations[i])
    for i in reversed(range(nucleus)):
        tree = (first + i, tree, "SN", relations[i])
    return tree


def document_tree(trees: list, salient: list[bool], rng: np.random.Generator) -> tuple | int:
    """Joins sentence trees, the salient ones high."""
    if len(trees) == 1:
        return trees[0]
    where = np.flatnonzero(salient).tolist()
    cuts = where[1:] or [max(where[0], 1)] if where else list(range(1, len(trees)))  # part the salient ones first
    cut = cuts[rng.integers(len(cuts))]
    left, right = any(salient[:cut]), any(salient[cut:])
    kind, relation = "NN" if left and right else "NS" if left else "SN", "joint-list"
    if not where:
        kind = ("NN", "NS", "SN")[rng.integers(3)]
    if kind != "NN":
        relation = ("elaboration-additional", "context-background")[rng.integers(2)]
    left_tree = document_tree(trees[:cut], salient[:cut], rng)
    return left_tree, document_tree(trees[cut:], salient[cut:], rng), kind, relation


def write_dis(tree: tuple | int, edus: list[str], label: str = "Root", relation: str = " ", indent: str = "") -> str:
    """A tree in the .dis format of RST-DT and GUM, one node a line, two spaces a level."""
    if isinstance(tree, int):
        return f"{indent}( {label} (leaf {tree + 1}){relation} (text _!{edus[tree]}_!) )\n"
    inside = ""
    for child, role in zip(tree[:2], tree[2], strict=True):
        to_parent = tree[3] if role == "S" or tree[2] == "NN" else "span"
        child_label = "Nucleus" if role == "N" else "Satellite"
        inside += write_dis(child, edus, child_label, f" (rel2par {to_parent})", indent + "  ")
    first, *_, last = re.findall(r"\(leaf (\d+)\)", inside)
    return f"{indent}( {label} (span {first} {last}){relation}\n{inside}{indent})\n"
