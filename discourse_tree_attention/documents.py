"""Documents as the model reads them: units with their vectors, labels and attention matrix, and batches of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .formats import check_same_text, letters, read_dis
from .matrices import MATRICES, d_tree, dependency_parents, sentence_matrix
from .model import TREES, longest_document
from .selection import ORACLE_UNITS, oracle, required_units, restriction_parents
from .trees import Node, leaves
from .units import MAX_TOKENS, UnitEncoder, cached_vectors


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class Document:
    """One document at EDU or sentence level; N units."""

    id: str
    units: list[str]  # (N,) texts
    sentence: np.ndarray  # (N,) index of each unit's sentence; at sentence level 0, 1, ...
    required: list[list[int]]  # (N,) units that each unit needs beside it; empty lists at sentence level
    labels: np.ndarray  # (N,) bool, the oracle's units; none where there is no reference
    references: list[list[str]]  # the sentences of each
    tree: Node | None  # over the EDUs
    edu_sentence: np.ndarray | None  # (EDUs,) index of each EDU's sentence
    was_cut: bool = False


def make_documents(examples: Iterable, config) -> list[Document]:
    """The documents of a corpus with their oracles; ValueError: see `make_document`; two documents have one id."""
    documents = []
    for example in examples:
        document = make_document(example, config, f"{config.data}: {example.id}.dis")
        units = oracle(document.units, " ".join(example.summary), document.required, ORACLE_UNITS[config.level])
        documents.append(replace(document, labels=np.isin(np.arange(len(document.units)), units)))
    if twice := [identity for identity, times in Counter(document.id for document in documents).items() if times > 1]:
        raise ValueError(f"{config.data}: the id {twice[0]!r} is in both train and validation; folds need unique ids")
    return documents


def make_document(example, config, where: str = "") -> Document:
    """Cut an example into units; its oracle is left out.

    Args:
        example: a `shared.data.Example`, or anything with its fields id, document, references, tree.
        config: a `TrainConfig`.
        where: what errors name, such as the tree's file; default: the example's id.
    Raises:
        ValueError: EDUs are asked for and there is no tree, or the tree is of another text.
    """
    where, units = where or example.id, list(example.document)
    sentence, required, tree, edu_sentence = np.arange(len(units)), [[] for _ in units], None, None
    if example.tree is not None:
        tree = read_dis(example.tree, where)
        edu_sentence = sentence_of_edus([leaf.text for leaf in leaves(tree)], units, where)
    if config.level == "edu":
        if tree is None:
            raise ValueError(f"{where} has no EDUs: give it a discourse tree (ID.dis), or use --level sentence")
        units, sentence = [leaf.text for leaf in leaves(tree)], edu_sentence
        # D17: not of the post-edited tree, but of one where a right nucleus needs the left one, as DiscoBERT's.
        parents = (restriction_parents if config.right_nuclei else dependency_parents)(tree)
        required = required_units(parents, sentence)
    labels = np.zeros(len(units), dtype=bool)
    return Document(example.id, units, sentence, required, labels, example.references, tree, edu_sentence)


def sentence_of_edus(edus: Sequence[str], sentences: Sequence[str], where: str = "document") -> np.ndarray:
    """(N,) index of the sentence of each EDU, found by its characters, blanks apart.

    An EDU that reaches over the end of a sentence belongs to the sentence where it begins.

    Raises:
        ValueError: the texts are not the same, or an EDU has none; names `where` and the first place that differs.
    """
    check_same_text(edus, sentences, where)
    lengths = np.array([len(letters(edu)) for edu in edus])
    if not lengths.all():
        raise ValueError(f"{where}: EDU {lengths.argmin() + 1} has no words")
    ends = np.cumsum([len(letters(sentence)) for sentence in sentences])
    return np.searchsorted(ends, lengths.cumsum() - lengths, side="right")


def cut_document(document: Document, config, encoder: UnitEncoder) -> Document:
    """The first units, as many as the model has places and --max-pieces word pieces for, but one; the tree stays whole.

    A document whose unit the encoder cuts counts as cut, too.
    """
    pieces = np.array([len(ids) for ids in encoder.tokenizer(document.units, verbose=False).input_ids])
    most = longest_document(config.model_config(encoder.width))
    if config.max_pieces:
        most = min(most, max(1, int((pieces.cumsum() <= config.max_pieces).sum())))
    if len(pieces) <= most:
        return replace(document, was_cut=bool((pieces > MAX_TOKENS).any()))
    required = [[other for other in needed if other < most] for needed in document.required[:most]]
    parts = {name: getattr(document, name)[:most] for name in ("units", "sentence", "labels")}
    return replace(document, **parts, required=required, was_cut=True)


def document_matrix(document: Document, config) -> np.ndarray:
    """(N, N) attention of a document's tree, rows summing to 1; ValueError where it has none."""
    tree, size = document.tree, len(document.units)
    if tree is None:
        raise ValueError(f"document {document.id!r} has no discourse tree (ID.dis), which {config.attention} needs")
    if config.attention == "d_tree":
        matrix = d_tree(tree, document.edu_sentence if config.post_edit else None)
    else:
        matrix = MATRICES[config.attention](tree)
    if config.level == "sentence":
        matrix = sentence_matrix(matrix, document.edu_sentence, max(size, document.edu_sentence.max() + 1))
    if size < len(matrix):
        # D10: of a cut document the rows are normalised again; a unit whose head was cut off attends to itself.
        matrix = matrix[:size, :size].copy()
        lost = np.flatnonzero(matrix.sum(1) == 0)
        matrix[lost, lost] = 1
        matrix = matrix / matrix.sum(1, keepdims=True)
    return matrix


@dataclass
class Corpus:
    """Documents with their unit vectors and, for tree attention, their matrices."""

    documents: list[Document]
    vectors: list[np.ndarray]  # (N, D) of each document
    matrices: list[np.ndarray] | None  # (N, N) of each document

    def select(self, indices: Sequence[int]) -> "Corpus":
        """Some of the documents, on the same arrays."""
        return Corpus(*(None if part is None else [part[i] for i in indices] for part in vars(self).values()))

    def exchanged(self) -> dict[str, "Corpus"]:
        """The documents with random units' vectors, which leaves lengths, places and trees; or with mixed up trees."""
        units, ends = np.concatenate(self.vectors), np.cumsum([len(own) for own in self.vectors])
        vectors = np.split(np.random.default_rng(0).permutation(units), ends[:-1])
        corpora = {"units exchanged between documents": replace(self, vectors=vectors)}
        if self.matrices is not None:
            corpora["shuffled trees"] = replace(self, matrices=shuffle_units(self.matrices, seed=0))
        return corpora


def shuffle_units(matrices: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """The control in which the tree says nothing about its units: rows and columns in one random order."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(matrix)) for matrix in matrices]
    return [matrix[np.ix_(order, order)] for matrix, order in zip(matrices, orders, strict=True)]


def prepare(documents: Sequence[Document], config, encoder: UnitEncoder, cache: str = "") -> Corpus:
    """Cut documents to what the model can read, and give them vectors, which `cache` may keep, and matrices."""
    documents = [cut_document(document, config, encoder) for document in documents]
    vectors = cached_vectors(encoder, [unit for document in documents for unit in document.units], cache)
    ends = np.cumsum([len(document.units) for document in documents])
    matrices = None
    if config.attention in TREES:
        matrices = [document_matrix(document, config) for document in documents]
        if config.shuffle_trees:
            matrices = shuffle_units(matrices, config.seed)
    return Corpus(documents, np.split(vectors, ends[:-1]), matrices)


def positive_weight(documents: Sequence[Document]) -> float:
    """Units that the summaries leave out for each one that they take, the weight of the latter in the loss."""
    labels = np.concatenate([document.labels for document in documents])
    if not labels.any():
        raise ValueError("no unit of the training documents shares a word with its summary: there is nothing to learn")
    # D12: of all units of the trained level.
    return float((~labels).sum() / labels.sum())


def choose_documents(config, split: str, total: int) -> list[int]:
    """Which of `total` documents belong to a split of a run; with folds these are all documents of the data.

    With folds, train and validation of the data are one corpus, whose vectors all folds share: fold k of it is the
    test data, fold k + 1 the validation data, the others are for training.
    """
    chosen = list(range(total))
    if config.folds > total:
        raise ValueError(f"--folds {config.folds}: {total} documents are too few for so many, a fold has none")
    if config.folds:
        order = np.random.default_rng(0).permutation(total).tolist()
        part = {"test": config.fold, "validation": (config.fold + 1) % config.folds}
        numbers = {part[split]} if split in part else set(range(config.folds)) - set(part.values())
        chosen = [i for place, i in enumerate(order) if place % config.folds in numbers]
    if split == "train" and config.examples:
        order = np.random.default_rng(config.examples_seed).permutation(len(chosen))[: config.examples]
        chosen = [chosen[place] for place in sorted(order)]
    return chosen


class DocumentBatches:
    """Endless lists of document indices: the batch sampler of a `DataLoader`.

    An epoch sorts the documents by length, ties in random order, cuts them into batches, and shuffles the batches.
    """

    def __init__(self, documents: Sequence[Document], batch_size: int, seed: int):
        self.sizes, self.batch_size, self.seed = [len(document.units) for document in documents], batch_size, seed

    def __iter__(self) -> Iterator[list[int]]:
        for epoch in count():
            rng = np.random.default_rng((self.seed, epoch))
            by_length = np.lexsort((rng.random(len(self.sizes)), self.sizes)).tolist()
            starts = range(0, len(by_length), self.batch_size)
            yield from (by_length[start : start + self.batch_size] for start in rng.permutation(starts))


class Batch(NamedTuple):
    units: Tensor  # (B, N, D)
    keep: Tensor  # (B, N)
    labels: Tensor  # (B, N)
    matrix: Tensor | None  # (B, N, N)


def collate(corpus: Corpus, indices: Sequence[int], device: str | torch.device = "cpu") -> Batch:
    """Pad the vectors, labels and matrices of some documents with zeros."""
    sizes = [len(corpus.documents[i].units) for i in indices]
    most = max(sizes)
    units = torch.zeros(len(sizes), most, corpus.vectors[0].shape[1])
    keep, labels = torch.zeros(2, len(sizes), most, dtype=torch.bool)
    matrix = torch.zeros(len(sizes), most, most) if corpus.matrices is not None else None
    for row, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        units[row, :size] = torch.from_numpy(np.array(corpus.vectors[index]))
        keep[row, :size] = True
        labels[row, :size] = torch.from_numpy(corpus.documents[index].labels)
        if matrix is not None:
            matrix[row, :size, :size] = torch.from_numpy(corpus.matrices[index])
    return Batch(*(None if part is None else part.to(device) for part in (units, keep, labels, matrix)))
