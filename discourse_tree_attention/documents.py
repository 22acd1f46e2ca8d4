"""Documents as the model reads them: units with their vectors, labels and attention matrix, and batches of them."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .cache import cached_array
from .matrices import build_matrix, heads, required_units, sentence_of_edus
from .model import TREES
from .selection import ORACLE_UNITS, oracle
from .trees import Node, leaves, nodes, read_dis, validate
from .units import UnitEncoder, cached_vectors

LEVELS = ("edu", "sentence")


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class Document:
    """One document at EDU or sentence level; N units."""

    id: str
    units: list[str]  # (N,) texts
    sentence: np.ndarray  # (N,) index of each unit's sentence; at sentence level 0, 1, ...
    required: list[list[int]]  # (N,) units that each unit needs beside it; empty lists at sentence level
    labels: np.ndarray  # (N,) bool, the oracle's units; none where there is no reference
    tree: Node | None  # over the EDUs
    edu_sentence: np.ndarray | None  # (EDUs,) index of each EDU's sentence


def make_document(example, level: str, where: str = "") -> Document:
    """Cut an example into units, find its oracle.

    Args:
        example: a `shared.data.Example`, or anything with its fields id, document, edus, tree, summary.
        level: "edu" or "sentence".
        where: what errors name besides the example's id.
    Raises:
        ValueError: EDUs are asked for and not there, or tree, EDUs and sentences do not fit each other.
    """
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}; use edu or sentence")
    where = f"{where}{example.id}"
    tree = edu_sentence = None
    if example.tree is not None:
        tree = read_dis(example.tree, where)
        validate(tree, where)
        if [" ".join(leaf.text.split()) for leaf in leaves(tree)] != list(example.edus):
            raise ValueError(f"{where}: the leaves of the tree are not the EDUs of the document")
    if example.edus is not None:
        edu_sentence = sentence_of_edus(example.edus, example.document, where)
    if level == "sentence":
        units, required = list(example.document), [[] for _ in example.document]
        sentence = np.arange(len(units))
    elif example.edus is None:
        raise ValueError(
            f"{where} has no EDUs: give it a discourse tree (ID.dis in a folder beside the JSON lines, or a field "
            "'tree'), or use --level sentence with an attention that needs no tree"
        )
    else:
        units, sentence = list(example.edus), edu_sentence
        # D17: of the dependency tree before its post-editing, whose new edges stand for no relation.
        required = required_units(heads(tree), sentence) if tree is not None else [[] for _ in units]
    labels = np.zeros(len(units), dtype=bool)
    if example.summary:
        labels[oracle(units, " ".join(example.summary), required, ORACLE_UNITS[level])] = True
    return Document(example.id, units, sentence, required, labels, tree, edu_sentence)


def cut_document(document: Document, most: int) -> Document:
    """The document's first units; the tree stays whole, its matrix is cut (`document_matrix`)."""
    if len(document.units) <= most:
        return document
    required = [[other for other in row if other < most] for row in document.required[:most]]
    return Document(
        document.id, document.units[:most], document.sentence[:most], required, document.labels[:most], document.tree,
        document.edu_sentence,
    )  # fmt: skip


def document_matrix(document: Document, kind: str, level: str) -> np.ndarray:
    """(N, N) attention of a document's tree, rows summing to 1.

    Raises:
        ValueError: the document has no tree.
    """
    if document.tree is None:
        raise ValueError(
            f"document {document.id!r} has no discourse tree, which {kind} attention needs: put ID.dis in a folder "
            "beside the JSON lines (README, New text), or choose another --attention"
        )
    units = len(document.units)
    sentences = max(units, document.edu_sentence.max() + 1) if level == "sentence" else None
    matrix = build_matrix(kind, document.tree, document.edu_sentence, level, sentences)
    if units < len(matrix):  # D10: of a cut document the rows are normalised again (released code)
        matrix = matrix[:units, :units].copy()
        lost = np.flatnonzero(matrix.sum(1) == 0)  # the head of a D-Tree's unit was cut off: it attends to itself
        matrix[lost, lost] = 1
        matrix = matrix / matrix.sum(1, keepdims=True)
    return matrix.astype(np.float32)


def shuffled_trees(documents: Sequence[Document], seed: int = 0) -> list[np.ndarray]:
    """A permutation of the units for each document: the control in which the tree says nothing about its units."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(len(document.units)) for document in documents]


class Corpus:
    """Documents with their unit vectors and, for tree attention, their matrices."""

    def __init__(
        self,
        documents: Sequence[Document],
        encoder: UnitEncoder,
        attention: str,
        level: str,
        cache: str,
        shuffle_seed: int | None = None,
        progress: Callable[[Iterable], Iterable] = iter,
    ):
        """Take vectors and matrices from the cache, or compute them into it.

        Args:
            cache: folder of arrays (cache.py).
            shuffle_seed: give every document the matrix of its tree with the units in random order (a control).
        """
        self.documents = list(documents)
        starts = np.cumsum([0] + [len(document.units) for document in documents])
        self.spans = list(zip(starts[:-1], starts[1:], strict=True))
        texts = [unit for document in documents for unit in document.units]
        self.vectors = cached_vectors(encoder, texts, cache, progress)  # (all units, D)
        self.matrices: list[np.ndarray] | None = None
        if attention in TREES:
            self.matrices = self._matrices(attention, level, cache)
            if shuffle_seed is not None:
                orders = shuffled_trees(documents, shuffle_seed)
                self.matrices = [m[np.ix_(order, order)] for m, order in zip(self.matrices, orders, strict=True)]

    def _matrices(self, kind: str, level: str, cache: str) -> list[np.ndarray]:
        """All matrices of the corpus in one array of the cache, and a view of each."""
        sizes = [len(document.units) for document in self.documents]
        ends = np.cumsum([size * size for size in sizes])
        views = [slice(end - size * size, end) for size, end in zip(sizes, ends, strict=True)]

        def compute(flat: np.ndarray) -> None:
            for document, view in zip(self.documents, views, strict=True):
                flat[view] = document_matrix(document, kind, level).ravel()

        key = ["matrices", kind, level, [_tree_key(document) for document in self.documents]]
        flat = cached_array(cache, key, (int(ends[-1]),), compute)
        return [flat[view].reshape(size, size) for view, size in zip(views, sizes, strict=True)]

    def select(self, indices: Sequence[int]) -> "Corpus":
        """Some of the documents, on the same arrays."""
        part = copy(self)
        part.documents = [self.documents[i] for i in indices]
        part.spans = [self.spans[i] for i in indices]
        part.matrices = None if self.matrices is None else [self.matrices[i] for i in indices]
        return part

    def __len__(self) -> int:
        return len(self.documents)


def _tree_key(document: Document) -> list:
    """All that a document's matrix depends on."""
    if document.tree is None:
        return [document.id, None]
    shape = [[node.first, node.last, node.nucleus] for node in nodes(document.tree)]
    return [document.id, len(document.units), shape, document.edu_sentence.tolist()]


class Batch(NamedTuple):
    units: Tensor  # (B, N, D)
    keep: Tensor  # (B, N)
    labels: Tensor  # (B, N)
    matrix: Tensor | None  # (B, N, N)


def collate(corpus: Corpus, indices: Sequence[int], device: str | torch.device = "cpu") -> Batch:
    """Pad the vectors, labels and matrices of some documents with zeros."""
    sizes = [len(corpus.documents[i].units) for i in indices]
    most = max(sizes)
    units = torch.zeros(len(sizes), most, corpus.vectors.shape[1])
    keep, labels = torch.zeros(2, len(sizes), most, dtype=torch.bool)
    matrix = torch.zeros(len(sizes), most, most) if corpus.matrices is not None else None
    for row, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        start, end = corpus.spans[index]
        units[row, :size] = torch.from_numpy(np.array(corpus.vectors[start:end]))
        keep[row, :size] = True
        labels[row, :size] = torch.from_numpy(corpus.documents[index].labels)
        if matrix is not None:
            matrix[row, :size, :size] = torch.from_numpy(np.array(corpus.matrices[index]))
    return Batch(units.to(device), keep.to(device), labels.to(device), None if matrix is None else matrix.to(device))
