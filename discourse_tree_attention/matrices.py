"""From a discourse tree to an attention matrix (Section 4), without parameters.

Glossary (N EDUs, counted from 0 here):

    code       paper                                             shape
    ---------  ------------------------------------------------  --------------
    tree       RST constituency tree                             trees.Node
    parents    head of each EDU in the dependency tree           (N,)
    matrix     A or A_e, A_ij = attention that EDU i pays to j   (N, N)
    level_sum  sum over the levels L of M^L                      (N, N)
    sentence   index of each EDU's sentence                      (N,)
    indicator  I                                                 (sentences, N)
"""

import numpy as np

from .trees import Node, nodes

# Section 4.1: D-Tree


def main_edus(tree: Node) -> dict[Node, int]:
    """The EDU that stands for each node, counted from 0; the paper calls it the head of the constituent."""
    main = {}
    for node in nodes(tree):  # children first
        if node.children:
            # Section 4.1: the head of a relation is that of its Nucleus, of two Nuclei that of the left one.
            left, right = node.children
            main[node] = main[left if left.nucleus else right]
        else:
            main[node] = node.first - 1
    return main


def dependency_parents(tree: Node) -> np.ndarray:
    """Dependency tree of a constituency tree, by the rule of Hirao et al. (2013).

    Returns:
        (N,) parent of each EDU, counted from 0; a root has itself.
    """
    # D1: an EDU without a Satellite above it is a root, so a document has several where Nuclei meet at the top.
    main, parents = main_edus(tree), np.arange(tree.last)
    # Section 4.1: what lies in a Satellite depends on the head of the relation; inner Satellites come later and win.
    for node in reversed(list(nodes(tree))):
        for satellite in (child for child in node.children if not child.nucleus):
            parents[satellite.first - 1 : satellite.last] = main[node]
    return parents


def post_edit(parents: np.ndarray, sentence: np.ndarray) -> np.ndarray:
    """Give every sentence one root, after Hayashi et al. (2016).

    Of the EDUs of a sentence that depend on another sentence or on nothing, the one with the fewest steps to a root of
    the document stays (of several the leftmost), and the others become its dependents.

    No circle can arise: an old edge leads to an EDU nearer to a root of the old tree, a new one to an EDU that is as
    near and has kept its old edge.

    Args:
        parents: (N,) as `dependency_parents` returns them.
        sentence: (N,) index of each EDU's sentence.
    Returns:
        (N,) parents.
    """
    # Section 4.1: "single-rooted sentence sub-trees".
    # D2: the paper names the method only; this is its plainest reading, which changes no edge that it need not.
    top = (sentence[parents] != sentence) | (parents == np.arange(len(parents)))
    depth, above = np.zeros(len(parents), dtype=np.int64), parents
    steps = np.arange(len(parents))
    while (steps != above).any():
        depth += steps != above
        steps, above = above, parents[above]
    edited = parents.copy()
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
    parents = dependency_parents(tree)
    if sentence is not None:
        parents = post_edit(parents, sentence)
    # Section 4.1: columns are heads, rows dependents; "the root is considered head and dependent of itself".
    matrix = np.zeros((len(parents), len(parents)), dtype=np.float32)
    matrix[np.arange(len(parents)), parents] = 1
    return matrix


# Sections 4.2 and 4.3: C-Tree


def level_sum(tree: Node, nuclearity: bool = False) -> np.ndarray:
    """Sum of all M^L, those of Section 4.3 with nuclearity: (N, N) integers, symmetric."""
    total = np.zeros((tree.last, tree.last), dtype=np.int64)
    # D14: a leaf counts at its own level, not at those below it too (released code).
    for node in nodes(tree):
        edus = slice(node.first - 1, node.last)
        # Section 4.2: M^L_ij = 1 if EDUs i and j are in the same constituent of level L, else 0.
        # Section 4.3: M^L_ij = 2 if that constituent is the Nucleus in its relation, 1 if it is the Satellite.
        # D15: the root, which is in no relation, weighs 1 (released code).
        total[edus, edus] += 2 if nuclearity and node.nucleus else 1
    return total


def normalize(matrix: np.ndarray) -> np.ndarray:
    """Section 3: the attention that a unit pays adds up to 1, sum_j A_ij = 1."""
    return (matrix / matrix.sum(1, keepdims=True)).astype(np.float32)


def c_tree(tree: Node) -> np.ndarray:
    """C-Tree: attention by the number of constituents that two EDUs share; (N, N) float32, rows sum to 1."""
    # Section 4.2: A = normalize(sum_L M^L)
    return normalize(level_sum(tree))


def c_tree_nuclearity(tree: Node) -> np.ndarray:
    """C-Tree w/Nuc: the same where a Nucleus counts twice; (N, N) float32, rows sum to 1."""
    # Section 4.3: A = normalize(sum_L M^L) with M^L of 0, 1 and 2
    return normalize(level_sum(tree, nuclearity=True))


MATRICES = {"d_tree": d_tree, "c_tree": c_tree, "c_tree_nuclearity": c_tree_nuclearity}


# Section 4.4: sentences


def sentence_matrix(matrix: np.ndarray, sentence: np.ndarray, count: int, normalized: bool = True) -> np.ndarray:
    """Attention between sentences from that between their EDUs.

    Args:
        matrix: (N, N) attention between EDUs.
        sentence: (N,) index of each EDU's sentence.
        count: sentences in the document, of which some may have no EDU.
        normalized: False gives the paper's form, whose rows sum to the number of EDUs of the sentence.
    Returns:
        (count, count) float32. Normalized, a sentence without EDUs attends to itself.
    """
    indicator = np.zeros((count, len(matrix)))  # (count, N)
    indicator[sentence, np.arange(len(matrix))] = 1
    # Section 4.4: A_s = I A_e I^T
    summed = indicator @ matrix @ indicator.T
    if not normalized:
        return summed.astype(np.float32)
    empty = np.flatnonzero(indicator.sum(1) == 0)
    summed[empty, empty] = 1
    # D13: the paper omits that rows are made to sum to 1 again, which its Section 3 asks of every A (released code).
    return normalize(summed)
