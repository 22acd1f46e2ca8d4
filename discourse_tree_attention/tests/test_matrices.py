"""Trees to matrices: worked and random trees against sets and loops, limits, deviations."""

import numpy as np
import pytest

from ..matrices import (
    MATRICES,
    between_sentences,
    c_tree,
    c_tree_nuclearity,
    d_tree,
    dependency_parents,
    level_sum,
    post_edit,
    sentence_matrix,
)
from . import reference_trees as reference
from .reference_trees import span

FIVE = reference.tree_of("1N 2S 12N 3S 13N 4N 5N 45S")
FOUR = reference.tree_of("1N 2N 12N 3N 4S 34N")


def some_tree(seed):
    """A random tree and the sentence of each of its EDUs, in order but not along the tree."""
    rng = np.random.default_rng(seed)
    edus = int(rng.integers(2, 25))
    sentence = np.cumsum(rng.random(edus) < 0.4)
    return reference.random_tree(rng, edus), sentence - sentence[0]


def as_parents(found):
    """What the package returns (from 0, a root has itself) as {EDU: parent}, 0 of a root."""
    return {edu + 1: 0 if parent == edu else int(parent) + 1 for edu, parent in enumerate(found)}


def from_one(sentence):
    return {edu: int(of) for edu, of in enumerate(sentence, 1)}


def test_section_4_3_the_papers_example():
    """M^1_{3:4,3:4} = 2, as their sub-tree is the nucleus in its relation with EDU 5."""

    def tree(nucleus):
        pair = span(3, 4, nucleus, children=(span(3, 3, True), span(4, 4, True)))
        right = span(3, 5, True, children=(pair, span(5, 5, not nucleus)))
        left = span(1, 2, False, children=(span(1, 1, True), span(2, 2, False)))
        return span(1, 5, None, children=(left, right))

    expected = np.zeros((5, 5))
    expected[2:4, 2:4], expected[4, 4] = 2 - 1, 1 - 2
    difference = level_sum(tree(True), nuclearity=True) - level_sum(tree(False), nuclearity=True)
    np.testing.assert_array_equal(difference, expected)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("matrix", "nuclearity"), [(c_tree, False), (c_tree_nuclearity, True)])
def test_section_4_2_and_section_4_3_c_tree_against_loops(seed, matrix, nuclearity):
    tree, _ = some_tree(seed)
    counts = np.sum(reference.level_matrices(tree, nuclearity), axis=0)
    np.testing.assert_array_equal(level_sum(tree, nuclearity), counts)
    np.testing.assert_allclose(matrix(tree), reference.row_normalised(counts), rtol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_section_4_1_d_tree_against_sets(seed):
    tree, sentence = some_tree(seed)
    # EDUs of a sentence need not be side by side
    sentence = np.random.default_rng(seed).permutation(sentence)
    parents = reference.hirao(tree)
    assert as_parents(dependency_parents(tree)) == parents
    edited = reference.edited(parents, from_one(sentence))
    for found, expected in ((d_tree(tree), parents), (d_tree(tree, sentence), edited)):
        assert found.sum() == tree.end
        for dependent, parent in expected.items():
            assert found[dependent - 1, (parent or dependent) - 1] == 1


def test_section_4_1_rows_are_dependents_and_columns_heads():
    left = span(1, 2, False, children=(span(1, 1, True), span(2, 2, False)))
    tree = span(1, 3, None, children=(left, span(3, 3, True)))
    np.testing.assert_array_equal(d_tree(tree), [[0, 0, 1], [1, 0, 0], [0, 0, 1]])


def test_d1_several_roots_attend_to_themselves():
    np.testing.assert_array_equal(
        d_tree(FOUR), [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]
    )


@pytest.mark.parametrize(
    ("parents", "sentence", "expected"),
    [
        # 2 and 3 are one sentence. 2 hangs on 1, 3 on 4, which hangs on 1: 2 is nearer to the root
        # and takes 3.
        ([0, 0, 3, 0], [0, 1, 1, 2], [0, 0, 1, 0]),
        ([3, 3, 1, 3], [0, 1, 0, 2], [3, 3, 0, 3]),  # the near one on the right
        ([2, 1, 3, 3], [0, 0, 1, 2], [1, 1, 3, 3]),
        ([0, 1, 2, 2], [0, 0, 1, 1], [0, 0, 2, 2]),  # the leftmost of two as near
    ],
)
def test_d2_the_nearest_to_the_root_heads_its_sentence(parents, sentence, expected):
    np.testing.assert_array_equal(post_edit(np.array(parents), np.array(sentence)), expected)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", MATRICES)
def test_section_4_4_sentences_against_loops(seed, kind):
    """D13: rows sum to 1 at both levels (Section 3), to the number of EDUs in the paper's form."""
    tree, sentence = some_tree(seed)
    # EDUs of a sentence need not be side by side
    sentence = np.random.default_rng(seed).permutation(sentence)
    of_edus, count = MATRICES[kind](tree), sentence.max() + 1
    np.testing.assert_allclose(of_edus.sum(1), 1, rtol=1e-5)
    expected = reference.between_sentences(of_edus, sentence, count)
    papers = between_sentences(of_edus, sentence, count)
    np.testing.assert_allclose(papers, expected, rtol=1e-5)
    np.testing.assert_allclose(papers.sum(1), np.bincount(sentence), rtol=1e-5)
    found = sentence_matrix(of_edus, sentence, count)
    np.testing.assert_allclose(found, reference.row_normalised(expected), rtol=1e-5)
    assert of_edus.dtype == found.dtype == np.float32


def test_limit_sentences_without_edus():
    """D13: where no EDU begins, a sentence attends to itself, the last one too."""
    sentence = np.array([0, 0, 2, 2, 2])
    found = sentence_matrix(c_tree(FIVE), sentence, 4)
    np.testing.assert_array_equal(found[[1, 3]], np.eye(4)[[1, 3]])
    np.testing.assert_array_equal(found[:, [1, 3]], np.eye(4)[:, [1, 3]])
    without = sentence_matrix(c_tree(FIVE), np.array([0, 0, 1, 1, 1]), 2)
    np.testing.assert_array_equal(found[np.ix_([0, 2], [0, 2])], without)


def test_d14_a_leaf_counts_at_its_own_level_only_and_d15_the_root_weighs_one_limit_two_edus():
    # EDU 1 hangs on the root, EDU 3 two levels lower: each node above an EDU counts once, and the
    # EDU itself.
    np.testing.assert_array_equal(level_sum(reference.chain(3)), [[2, 1, 1], [1, 3, 2], [1, 2, 3]])
    tree = span(1, 2, None, children=(span(1, 1, False), span(2, 2, True)))
    np.testing.assert_array_equal(level_sum(tree, nuclearity=True), [[2, 1], [1, 3]])
    np.testing.assert_allclose(c_tree(tree), [[2 / 3, 1 / 3], [1 / 3, 2 / 3]], rtol=1e-6)
    np.testing.assert_array_equal(d_tree(tree), [[0, 1], [0, 1]])


@pytest.mark.parametrize("kind", MATRICES)
def test_limit_one_edu_and_one_sentence(kind):
    np.testing.assert_array_equal(MATRICES[kind](span(1, 1, None)), [[1]])
    np.testing.assert_allclose(
        sentence_matrix(MATRICES[kind](FIVE), np.zeros(5, int), 1), [[1]], rtol=1e-6
    )
