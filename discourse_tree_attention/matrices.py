"""From a discourse tree to an attention matrix (Section 4), without parameters.

PAPER.md has the glossary.

EDUs are counted from 0; `sentence` is the (N,) index of each EDU's sentence. Row i of a matrix says
what unit i pays attention to; it sums to 1.
"""

import numpy as np

from .trees import Node, nodes

# Section 4.1: D-Tree


def dependency_parents(tree: Node, right_nuclei: bool = False) -> np.ndarray:
    """(N,) parent of each EDU in the dependency tree by Hirao et al. (2013); a root has itself.

    With `right_nuclei` the right one of two Nuclei depends on the left one, too. D-Tree has no such
    edges; DiscoBERT's dependency restriction has them (selection.py).
    """
    main = {}  # the EDU that stands for each node; the paper calls it the head of the constituent
    for node in nodes(tree):  # children first
        if node.children:
            # Section 4.1: the head of a relation is its Nucleus's, of two Nuclei the left one's.
            left, right = node.children
            main[node] = main[left if left.nucleus else right]
        else:
            main[node] = node.start
    # D1: an EDU without a Satellite above it is a root: several, where Nuclei meet at the top.
    parents = np.arange(tree.end)
    # Section 4.1: what lies in a Satellite depends on the relation's head; inner ones come later.
    for node in reversed(list(nodes(tree))):
        for child in node.children:
            if not child.nucleus or (right_nuclei and main[child] != main[node]):
                parents[child.start : child.end] = main[node]
    return parents


def depth(parents: np.ndarray) -> np.ndarray:
    """(N,) steps from each EDU of a dependency tree up to its root."""
    steps, place = np.zeros_like(parents), np.arange(len(parents))
    while (parents[place] != place).any():
        steps += parents[place] != place
        place = parents[place]
    return steps


def post_edit(parents: np.ndarray, sentence: np.ndarray) -> np.ndarray:
    """Give every sentence one root, after Hayashi et al. (2016): (N,) parents to (N,) parents.

    Of the EDUs of a sentence that depend on another sentence or on nothing, the one nearest to a
    root of the document stays (of several the leftmost); the others become its dependents. No
    circle can arise: an old edge leads to an EDU nearer to a root of the old tree, a new one to an
    EDU that is as near and has kept its old edge.
    """
    # Section 4.1: "single-rooted sentence sub-trees".
    # D2: the paper names the method only; this plainest reading changes as few edges as it can.
    is_top = (sentence[parents] != sentence) | (parents == np.arange(len(parents)))
    steps, edited = depth(parents), parents.copy()
    for index in np.unique(sentence):
        tops = np.flatnonzero(is_top & (sentence == index))
        stays = tops[steps[tops].argmin()]
        edited[tops[tops != stays]] = stays
    return edited


def d_tree(tree: Node, sentence: np.ndarray | None = None) -> np.ndarray:
    """D-Tree: each EDU attends to its parent, a root to itself; with `sentence`, post-edited.

    (N, N) float32 of 0 and 1, row = dependent, column = head; one 1 in each row.
    """
    parents = dependency_parents(tree)
    if sentence is not None:
        parents = post_edit(parents, sentence)
    # Section 4.1: columns are heads, rows dependents; a root is "head and dependent of itself".
    matrix = np.zeros((tree.end, tree.end), dtype=np.float32)
    matrix[np.arange(tree.end), parents] = 1
    return matrix


# Sections 4.2 and 4.3: C-Tree


def level_sum(tree: Node, nuclearity: bool = False) -> np.ndarray:
    """Sum of all M^L, those of Section 4.3 with nuclearity: (N, N) integers, symmetric."""
    total = np.zeros((tree.end, tree.end), dtype=np.int64)
    # D14: a leaf counts at its own level, not at those below it too (released code).
    for node in nodes(tree):
        edus = slice(node.start, node.end)
        # Section 4.2: all nodes of one level make M^L, so one loop over the nodes adds up all
        # levels. Section 4.3: a Nucleus in its relation counts 2, a Satellite 1.
        # D15: the root, which is in no relation, weighs 1 (released code).
        total[edus, edus] += 2 if nuclearity and node.nucleus else 1
    return total


def normalize(matrix: np.ndarray) -> np.ndarray:
    """Section 3: the attention that a unit pays adds up to 1.

    A unit that pays none to any attends to itself.
    """
    matrix = matrix + np.diag(matrix.sum(1) == 0)
    return (matrix / matrix.sum(1, keepdims=True)).astype(np.float32)


def c_tree(tree: Node) -> np.ndarray:
    """C-Tree: attention by how many constituents two EDUs share; (N, N) float32, rows sum to 1."""
    # Section 4.2
    return normalize(level_sum(tree))


def c_tree_nuclearity(tree: Node) -> np.ndarray:
    """C-Tree w/Nuc: the same where a Nucleus counts twice; (N, N) float32, rows sum to 1."""
    # Section 4.3
    return normalize(level_sum(tree, nuclearity=True))


MATRICES = {"d_tree": d_tree, "c_tree": c_tree, "c_tree_nuclearity": c_tree_nuclearity}


# Section 4.4: sentences


def between_sentences(matrix: np.ndarray, sentence: np.ndarray, count: int) -> np.ndarray:
    """(N, N) attention between EDUs -> (count, count) between sentences, as the paper has it.

    Rows sum to a sentence's EDUs, of which some sentences may have none. Made of the EDUs' matrix
    and not of a tree of sentences, it asks for no such tree: a sentence may be *leaky*, its EDUs no
    constituent (Joty et al., 2015).
    """
    indicator = np.zeros((count, len(matrix)))  # (count, N)
    indicator[sentence, np.arange(len(matrix))] = 1
    # Section 4.4
    return indicator @ matrix @ indicator.T


def sentence_matrix(matrix: np.ndarray, sentence: np.ndarray, count: int) -> np.ndarray:
    """`between_sentences`, float32, with rows that sum to 1.

    A sentence without EDUs attends to itself.
    """
    # D13: Section 3 asks sums of 1 of every A, Section 4.4 does not say it again (released code).
    return normalize(between_sentences(matrix, sentence, count))
