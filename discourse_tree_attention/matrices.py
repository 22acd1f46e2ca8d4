"""From a discourse tree to an attention matrix (Section 4), without parameters.

Glossary (N EDUs, counted from 0 here):

    code       paper                                             shape
    ---------  ------------------------------------------------  --------------
    tree       RST constituency tree                             trees.Node
    level_sum  sum over the levels L of M^L                      (N, N)
    matrix     A or A_e, A_ij = attention that EDU i pays to j   (N, N)
    heads      parent of each EDU in the dependency tree         (N,)
    sentence   I, as the index of each EDU's sentence            (N,)
"""

from itertools import zip_longest

import numpy as np

from .trees import Node, nodes

LEVELS = ("edu", "sentence")


def level_sum(tree: Node, nuclearity: bool = False) -> np.ndarray:
    """Sum of all M^L: (N, N) integers, symmetric.

    Without nuclearity, entry (i, j) counts the nodes that hold both EDU i and EDU j.

    Args:
        nuclearity: Section 4.3 in place of Section 4.2.
    """
    found = list(nodes(tree))
    first = np.array([node.first - 1 for node in found])
    end = np.array([node.last for node in found])
    # Section 4.2: M^L_ij = 1 if EDUs i and j are in the same constituent of level L, else 0.
    # D14: a leaf counts at its own level, not at those below it too (released code).
    weights = np.ones(len(found), dtype=np.int64)
    if nuclearity:
        # Section 4.3: M^L_ij = 2 if the constituent is the Nucleus in its relation, 1 if it is the Satellite.
        # D15: the root, which is in no relation, weighs 1 (released code).
        weights = np.array([2 if node.nucleus else 1 for node in found])
    # Each node adds its weight to the block [first:end, first:end]: to its corners here, between them by the sums.
    corners = np.zeros((tree.last + 1, tree.last + 1), dtype=np.int64)
    np.add.at(corners, (first, first), weights)
    np.add.at(corners, (first, end), -weights)
    np.add.at(corners, (end, first), -weights)
    np.add.at(corners, (end, end), weights)
    return corners.cumsum(0).cumsum(1)[:-1, :-1]


def _normalise(matrix: np.ndarray) -> np.ndarray:
    """Section 3: the attention that a unit pays adds up to 1, sum_j A_ij = 1."""
    return (matrix / matrix.sum(1, keepdims=True)).astype(np.float32)


def c_tree(tree: Node) -> np.ndarray:
    """C-Tree: attention by the number of constituents that two EDUs share.

    Returns:
        (N, N) float32, rows sum to 1.
    """
    # Section 4.2: A = normalize(sum_L M^L)
    return _normalise(level_sum(tree))


def c_tree_nuclearity(tree: Node) -> np.ndarray:
    """C-Tree w/Nuc: the same where a Nucleus counts twice.

    Returns:
        (N, N) float32, rows sum to 1.
    """
    # Section 4.3: A = normalize(sum_L M^L) with M^L of 0, 1 and 2
    return _normalise(level_sum(tree, nuclearity=True))


def heads(tree: Node) -> np.ndarray:
    """Dependency tree of a constituency tree, by the rule of Hirao et al. (2013).

    The head of a node is the head of its left child, or of its right child if the left one is a Satellite. An EDU
    depends on the head of the parent of the nearest Satellite above it (or of itself, if it is one).

    Returns:
        (N,) parent of each EDU, counted from 0; a root has itself.
    """
    head: dict[tuple[int, int], int] = {}  # of each span
    for node in nodes(tree):
        head[node.first, node.last] = node.first - 1
        if node.children:
            # Section 4.1: the head of a relation is its Nucleus, of two nuclei the left one.
            left, right = node.children
            child = left if left.nucleus else right
            head[node.first, node.last] = head[child.first, child.last]
    # D1: an EDU without a Satellite above it is a root, so a document has several where nuclei meet at the top.
    parents = np.arange(tree.last)
    stack: list[tuple[Node, int | None]] = [(tree, None)]  # a node, and what its EDUs depend on
    while stack:
        node, parent = stack.pop()
        stack += [(child, parent if child.nucleus else head[node.first, node.last]) for child in node.children]
        if not node.children and parent is not None:
            parents[node.first - 1] = parent
    return parents


def post_edit(heads: np.ndarray, sentence: np.ndarray) -> np.ndarray:
    """Give every sentence one root, after Hayashi et al. (2016).

    Of the EDUs of a sentence that depend on another sentence or on nothing, the one with the fewest steps to a root of
    the document stays (of several the leftmost), and the others become its dependents.

    No circle can arise: every edge leads to an EDU that is nearer to a root of the old tree or, if it is new, as near;
    and the target of a new edge has kept its old one.

    Args:
        heads: (N,) parents, as `heads` returns them.
        sentence: (N,) index of each EDU's sentence.
    Returns:
        (N,) parents; some roots may have become dependents.
    """
    sentence = _checked(sentence, len(heads))
    # Section 4.1: "single-rooted sentence sub-trees".
    # D2: the paper names the method only; this is its plainest reading, which changes no edge that it need not.
    top = (sentence[heads] != sentence) | (heads == np.arange(len(heads)))
    depth, above = np.zeros(len(heads), dtype=np.int64), heads
    steps = np.arange(len(heads))
    while (steps != above).any():
        depth += steps != above
        steps, above = above, heads[above]
    edited = heads.copy()
    for index in np.unique(sentence):
        candidates = np.flatnonzero(top & (sentence == index))
        keep = candidates[depth[candidates].argmin()]
        edited[candidates[candidates != keep]] = keep
    return edited


def d_tree(tree: Node, sentence: np.ndarray | None = None) -> np.ndarray:
    """D-Tree: each EDU attends to its parent in the dependency tree, a root to itself.

    Args:
        sentence: (N,) index of each EDU's sentence, for the post-editing of Section 4.1; None = none is done.
    Returns:
        (N, N) float32 of 0 and 1: row = dependent, column = head; one 1 in each row.
    """
    parents = heads(tree)
    if sentence is not None:
        parents = post_edit(parents, sentence)
    # Section 4.1: columns are heads, rows dependents; "the root is considered head and dependent of itself".
    matrix = np.zeros((len(parents), len(parents)), dtype=np.float32)
    matrix[np.arange(len(parents)), parents] = 1
    return matrix


MATRICES = {"d_tree": d_tree, "c_tree": c_tree, "c_tree_nuclearity": c_tree_nuclearity}


def sentence_matrix(
    matrix: np.ndarray, sentence: np.ndarray, normalize: bool = True, sentences: int | None = None
) -> np.ndarray:
    """Attention between sentences from that between their EDUs.

    Args:
        matrix: (N, N) attention between EDUs.
        sentence: (N,) index of each EDU's sentence.
        normalize: False gives the paper's form, whose rows sum to the number of EDUs of the sentence.
        sentences: how many there are, where the last ones may have no EDU; by default the last has one.
    Returns:
        (sentences, sentences) float32. A sentence without EDUs attends to itself.
    """
    sentence = _checked(sentence, len(matrix))
    count = sentence.max() + 1 if sentences is None else sentences
    if sentence.max() >= count:
        raise ValueError(f"an EDU is of sentence {sentence.max()} (from 0), but there are {count} sentences")
    # Section 4.4: A_s = I A_e I^T, which adds up the rows and the columns of each sentence. Sums are as quick as the
    # product of matrices, and unlike it do not slow down where BLAS has threads on a busy machine.
    order = np.argsort(sentence, kind="stable")
    present, starts = np.unique(sentence[order], return_index=True)
    rows = np.add.reduceat(matrix[np.ix_(order, order)], starts, axis=0, dtype=np.float64)  # (present, N)
    summed = np.zeros((count, count))
    summed[np.ix_(present, present)] = np.add.reduceat(rows, starts, axis=1)
    if not normalize:
        return summed.astype(np.float32)
    empty = np.setdiff1d(np.arange(count), present)
    summed[empty, empty] = 1
    # D13: the paper omits that rows are made to sum to 1 again, which its Section 3 asks of every A (released code).
    return _normalise(summed)


def _checked(sentence: np.ndarray, edus: int) -> np.ndarray:
    sentence = np.asarray(sentence)
    if sentence.shape != (edus,):
        raise ValueError(f"sentence has the shape {sentence.shape}; one index for each of the {edus} EDUs is needed")
    if sentence.min() < 0:
        raise ValueError(f"sentence has the index {sentence.min()}; sentences are counted from 0")
    return sentence


def sentence_of_edus(edus: list[str], sentences: list[str], where: str = "document") -> np.ndarray:
    """Find the sentence of each EDU by its words.

    An EDU that reaches over the end of a sentence belongs to the sentence where it begins.

    Returns:
        (N,) index of each EDU's sentence.
    Raises:
        ValueError: the words are not the same, or an EDU has none; names `where` and the first word that differs.
    """
    edu_words = [(word, number) for number, edu in enumerate(edus) for word in edu.split()]
    sentence_words = [(word, number) for number, sentence in enumerate(sentences) for word in sentence.split()]
    for place, (one, other) in enumerate(zip_longest(edu_words, sentence_words), 1):
        if one is None or other is None or one[0] != other[0]:
            said = f"{one[0]!r} in EDU {one[1] + 1}" if one else "missing in the EDUs"
            read = f"{other[0]!r} in sentence {other[1] + 1}" if other else "missing in the sentences"
            raise ValueError(
                f"{where}: EDUs and sentences are not the same text. Word {place} is {said}, but {read}: give the "
                "sentences that the tree was made from"
            )
    lengths = np.array([len(edu.split()) for edu in edus])
    if not lengths.all():
        raise ValueError(f"{where}: EDU {lengths.argmin() + 1} has no words")
    starts = lengths.cumsum() - lengths
    return np.array([number for _, number in sentence_words])[starts]


def required_units(heads: np.ndarray, sentence: np.ndarray) -> list[list[int]]:
    """The EDUs that each EDU needs beside it in a summary: its ancestors within the sentence, the nearest first.

    Section 5.1: "all ancestors of a selected EDU within the same sentence should be recursively added".

    Args:
        heads: (N,) parents.
        sentence: (N,) index of each EDU's sentence.
    """
    sentence, required = _checked(sentence, len(heads)), []
    for edu in range(len(heads)):
        row, parent = [edu], int(heads[edu])
        while parent != row[-1] and sentence[parent] == sentence[edu]:
            row.append(parent)
            parent = int(heads[parent])
        required.append(row[1:])
    return required


def build_matrix(
    kind: str, tree: Node, sentence: np.ndarray | None, level: str, sentences: int | None = None
) -> np.ndarray:
    """Attention matrix of a document.

    Args:
        kind: one of MATRICES.
        sentence: (N,) index of each EDU's sentence; may be None at EDU level, where only D-Tree uses it.
        level: "edu" or "sentence".
        sentences: see `sentence_matrix`.
    Returns:
        (N, N) or (sentences, sentences) float32, rows sum to 1.
    Raises:
        ValueError: kind or level is not known, or the sentences are needed.
    """
    if kind not in MATRICES:
        raise ValueError(f"no tree attention {kind!r}; use {', '.join(MATRICES)}")
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}; use {' or '.join(LEVELS)}")
    if level == "sentence" and sentence is None:
        raise ValueError("sentence level needs to know the sentence of each EDU (sentence_of_edus)")
    matrix = d_tree(tree, sentence) if kind == "d_tree" else MATRICES[kind](tree)
    return matrix if level == "edu" else sentence_matrix(matrix, sentence, sentences=sentences)
