"""Trees to matrices: the worked trees, random trees against sets and loops, limits, and what each deviation changes."""

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ..formats import read_brackets, read_tree
from ..matrices import (
    MATRICES,
    build_matrix,
    c_tree,
    c_tree_nuclearity,
    d_tree,
    heads,
    level_sum,
    post_edit,
    sentence_matrix,
)
from ..trees import Node
from . import reference_trees as reference

FIVE = read_brackets(
    '[[[1,1],"N"], [[2,2],"S"], [[1,2],"N"], [[3,3],"S"], [[1,3],"N"], [[4,4],"N"], [[5,5],"N"], [[4,5],"S"]]'
)
FOUR = read_brackets('[[[1,1],"N"], [[2,2],"N"], [[1,2],"N"], [[3,3],"N"], [[4,4],"S"], [[3,4],"N"]]')
FIVE_NUCLEARITY = [[7, 5, 3, 1, 1], [5, 6, 3, 1, 1], [3, 3, 4, 1, 1], [1, 1, 1, 4, 2], [1, 1, 1, 2, 4]]


def some_tree(seed, edus=None):
    """A random tree and the sentence of each of its EDUs, in order but else with no regard to the tree."""
    rng = np.random.default_rng(seed)
    edus = edus or int(rng.integers(2, 25))
    sentence = np.cumsum(rng.random(edus) < 0.4)
    return reference.random_tree(rng, edus), sentence - sentence[0]


def as_parents(found):
    """What the package returns (counted from 0, a root has itself) as {EDU: parent}, 0 of a root."""
    return {edu + 1: 0 if parent == edu else int(parent) + 1 for edu, parent in enumerate(found)}


def from_one(sentence):
    return {edu: int(of) for edu, of in enumerate(sentence, 1)}


def test_worked_tree_of_five_edus():
    np.testing.assert_array_equal(level_sum(FIVE, nuclearity=True), FIVE_NUCLEARITY)
    np.testing.assert_allclose(c_tree_nuclearity(FIVE)[0], [7 / 17, 5 / 17, 3 / 17, 1 / 17, 1 / 17], rtol=1e-6)
    np.testing.assert_allclose(c_tree_nuclearity(FIVE)[0], [0.412, 0.294, 0.176, 0.059, 0.059], atol=5e-4)
    # Without nuclearity every entry counts the nodes above both EDUs.
    expected = [[4, 3, 2, 1, 1], [3, 4, 2, 1, 1], [2, 2, 3, 1, 1], [1, 1, 1, 3, 2], [1, 1, 1, 2, 3]]
    np.testing.assert_array_equal(level_sum(FIVE), expected)
    np.testing.assert_allclose(c_tree(FIVE)[3], np.array([1, 1, 1, 3, 2]) / 8, rtol=1e-6)
    np.testing.assert_array_equal(heads(FIVE), [0, 0, 0, 0, 0])
    np.testing.assert_array_equal(d_tree(FIVE), [[1, 0, 0, 0, 0]] * 5)


def test_section_4_3_the_papers_example():
    """M^1_{3:4,3:4} = 2, "as the sub-tree containing EDU 3 & 4 is the nucleus in its relation" with that of EDU 5."""

    def tree(nucleus):
        pair = Node(3, 4, nucleus, children=(Node(3, 3, True), Node(4, 4, True)))
        right = Node(3, 5, True, children=(pair, Node(5, 5, not nucleus)))
        return Node(1, 5, None, children=(Node(1, 2, False, children=(Node(1, 1, True), Node(2, 2, False))), right))

    # The level of both, here the third from the root.
    level = np.array(reference.level_matrices(tree(True), nuclearity=True)[2])
    np.testing.assert_array_equal(level[2:, 2:], [[2, 2, 0], [2, 2, 0], [0, 0, 1]])
    difference = level_sum(tree(True), nuclearity=True) - level_sum(tree(False), nuclearity=True)
    expected = np.zeros((5, 5))
    expected[2:4, 2:4], expected[4, 4] = 2 - 1, 1 - 2
    np.testing.assert_array_equal(difference, expected)


@pytest.mark.parametrize("seed", range(25))
def test_section_4_2_c_tree_against_loops(seed):
    tree, _ = some_tree(seed)
    levels = reference.level_matrices(tree, nuclearity=False)
    np.testing.assert_array_equal(level_sum(tree), reference.added(levels))
    np.testing.assert_allclose(c_tree(tree), reference.row_normalised(reference.added(levels)), rtol=1e-6)


@pytest.mark.parametrize("seed", range(25))
def test_section_4_3_c_tree_with_nuclearity_against_loops(seed):
    tree, _ = some_tree(seed)
    levels = reference.level_matrices(tree, nuclearity=True)
    np.testing.assert_array_equal(level_sum(tree, nuclearity=True), reference.added(levels))
    np.testing.assert_allclose(c_tree_nuclearity(tree), reference.row_normalised(reference.added(levels)), rtol=1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_section_4_1_d_tree_against_sets(seed):
    tree, sentence = some_tree(seed)
    parents = reference.hirao(tree)
    assert as_parents(heads(tree)) == parents
    edited = reference.edited(parents, from_one(sentence))
    for found, expected in ((d_tree(tree), parents), (d_tree(tree, sentence), edited)):
        assert found.sum() == tree.last
        for dependent, head in expected.items():
            assert found[dependent - 1, (head or dependent) - 1] == 1


def test_section_4_1_rows_are_dependents_and_columns_heads():
    tree = Node(
        1, 3, None, children=(Node(1, 2, False, children=(Node(1, 1, True), Node(2, 2, False))), Node(3, 3, True))
    )
    np.testing.assert_array_equal(d_tree(tree), [[0, 0, 1], [1, 0, 0], [0, 0, 1]])


def test_d1_several_roots_attend_to_themselves():
    np.testing.assert_array_equal(heads(FOUR), [0, 1, 2, 2])
    np.testing.assert_array_equal(d_tree(FOUR), [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]])


def test_d2_the_nearest_to_the_root_heads_its_sentence():
    # 2 and 3 are one sentence. 2 hangs on 1, 3 on 4, which hangs on 1: 2 is nearer to the root and takes 3.
    parents = np.array([0, 0, 3, 0])
    np.testing.assert_array_equal(post_edit(parents, np.array([0, 1, 1, 2])), [0, 0, 1, 0])
    # The same with the near one on the right, and the leftmost of two as near.
    np.testing.assert_array_equal(post_edit(np.array([3, 3, 1, 3]), np.array([0, 1, 0, 2])), [3, 3, 0, 3])
    np.testing.assert_array_equal(post_edit(np.array([2, 1, 3, 3]), np.array([0, 0, 1, 2])), [1, 1, 3, 3])
    np.testing.assert_array_equal(post_edit(np.array([0, 1, 2, 2]), np.array([0, 0, 1, 1])), [0, 0, 2, 2])


@pytest.mark.parametrize("seed", range(60))
def test_d2_one_root_a_sentence_no_circle_and_nothing_else_changed(seed):
    tree, _ = some_tree(seed)
    sentence = np.random.default_rng(seed).integers(0, 6, tree.last)  # also of EDUs that are not side by side
    before, edus = heads(tree), np.arange(tree.last)
    after = post_edit(before, sentence)
    for name in np.unique(sentence):
        inside = np.flatnonzero(sentence == name)
        tops = [edu for edu in inside if sentence[after[edu]] != name or after[edu] == edu]
        assert len(tops) == 1 and after[tops[0]] == before[tops[0]]
        was = [edu for edu in inside if sentence[before[edu]] != name or before[edu] == edu]
        assert all(after[edu] == (tops[0] if edu in was else before[edu]) for edu in inside if edu != tops[0])
    reached = edus
    for _ in edus:
        reached = after[reached]
    assert (after[reached] == reached).all()  # all paths end at a root
    np.testing.assert_array_equal(post_edit(after, sentence), after)
    np.testing.assert_array_equal(before, heads(tree))


def test_limit_post_edit_of_sentences_of_one_edu_changes_nothing():
    tree, _ = some_tree(3)
    np.testing.assert_array_equal(post_edit(heads(tree), np.arange(tree.last)), heads(tree))


def test_not_the_same_when_post_edited():
    tree, sentence = some_tree(4, 20)
    assert (d_tree(tree) != d_tree(tree, sentence)).any()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", MATRICES)
def test_section_4_4_sentences_against_loops(seed, kind):
    tree, sentence = some_tree(seed)
    of_edus = build_matrix(kind, tree, sentence, "edu")
    expected = reference.between_sentences(of_edus, sentence, sentence[-1] + 1)
    np.testing.assert_allclose(sentence_matrix(of_edus, sentence, normalized=False), expected, rtol=1e-5)
    found = build_matrix(kind, tree, sentence, "sentence")
    np.testing.assert_allclose(found, reference.row_normalised(expected), rtol=1e-5)


def test_d13_sentence_rows_sum_to_one_and_in_the_papers_form_to_their_edus():
    sentence = np.array([0, 0, 1, 2, 2])
    of_edus = c_tree_nuclearity(FIVE)
    np.testing.assert_allclose(sentence_matrix(of_edus, sentence, normalized=False).sum(1), [2, 1, 2], rtol=1e-6)
    np.testing.assert_allclose(sentence_matrix(of_edus, sentence).sum(1), [1, 1, 1], rtol=1e-6)
    row = np.array([7 + 5, 3, 1 + 1]) / 17 + np.array([5 + 6, 3, 1 + 1]) / 16
    np.testing.assert_allclose(sentence_matrix(of_edus, sentence)[0], row / 2, rtol=1e-6)


def test_d14_a_leaf_counts_at_its_own_level_only():
    # EDU 1 hangs on the root, EDU 3 two levels lower: each node above an EDU counts once, and the EDU itself.
    tree = reference.chain(3)
    np.testing.assert_array_equal(level_sum(tree), [[2, 1, 1], [1, 3, 2], [1, 2, 3]])


def test_d15_the_root_weighs_one():
    tree = Node(1, 2, None, children=(Node(1, 1, True), Node(2, 2, False)))
    np.testing.assert_array_equal(level_sum(tree, nuclearity=True), [[3, 1], [1, 2]])


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("level", ["edu", "sentence"])
@pytest.mark.parametrize("kind", MATRICES)
def test_rows_sum_to_one(kind, level, seed):
    tree, sentence = some_tree(seed)
    matrix = build_matrix(kind, tree, sentence, level)
    size = tree.last if level == "edu" else sentence[-1] + 1
    assert matrix.shape == (size, size) and matrix.dtype == np.float32 and (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-5)


def test_not_the_same_whatever_the_nuclearity():
    """D-Tree and C-Tree w/Nuc change with nuclearity, C-Tree does not."""
    left, right = FIVE.children
    other = replace(FIVE, children=(replace(left, nucleus=False), replace(right, nucleus=True)))
    assert (d_tree(other) != d_tree(FIVE)).any()
    assert (c_tree_nuclearity(other) != c_tree_nuclearity(FIVE)).any()
    np.testing.assert_array_equal(c_tree(other), c_tree(FIVE))


@pytest.mark.parametrize("level", ["edu", "sentence"])
@pytest.mark.parametrize("kind", MATRICES)
def test_limit_one_edu(kind, level):
    np.testing.assert_array_equal(build_matrix(kind, Node(1, 1, None), np.array([0]), level), [[1]])


def test_limit_two_edus():
    tree = Node(1, 2, None, children=(Node(1, 1, False), Node(2, 2, True)))
    np.testing.assert_allclose(c_tree(tree), [[2 / 3, 1 / 3], [1 / 3, 2 / 3]], rtol=1e-6)
    np.testing.assert_allclose(c_tree_nuclearity(tree), [[2 / 3, 1 / 3], [1 / 4, 3 / 4]], rtol=1e-6)
    np.testing.assert_array_equal(d_tree(tree), [[0, 1], [0, 1]])


def test_section_4_4_sentences_in_any_order():
    sentence = np.array([3, 0, 3, 1, 0])
    of_edus = c_tree_nuclearity(FIVE)
    expected = reference.between_sentences(of_edus, sentence, 4)
    np.testing.assert_allclose(sentence_matrix(of_edus, sentence, normalized=False), expected, rtol=1e-6)


def test_limit_one_sentence():
    for kind in MATRICES:
        np.testing.assert_allclose(build_matrix(kind, FIVE, np.zeros(5, int), "sentence"), [[1]], rtol=1e-6)


def test_limit_all_nuclei():
    """All roots: D-Tree is no attention; and C-Tree w/Nuc counts twice all but the root."""
    tree = Node(4, 4, True)
    for first in (3, 2, 1):
        tree = Node(first, 4, None if first == 1 else True, children=(Node(first, first, True), tree))
    np.testing.assert_array_equal(d_tree(tree), np.eye(4))
    np.testing.assert_array_equal(level_sum(tree, nuclearity=True), 2 * level_sum(tree) - 1)


@pytest.mark.parametrize("edus", [3, 400])
def test_limit_right_branching(edus):
    """EDUs i < j share the i nodes from the root on; each satellite hangs on the EDU before it."""
    tree, number = reference.chain(edus), np.arange(1, edus + 1)
    shared = np.minimum.outer(number, number) + np.eye(edus) * (number < edus)
    shared[-1, -1] = edus
    np.testing.assert_array_equal(level_sum(tree), shared)
    np.testing.assert_array_equal(heads(tree), np.maximum(number - 2, 0))


@pytest.mark.parametrize("edus", [3, 400])
def test_limit_left_branching(edus):
    """EDUs i < j share the nodes that reach at least to j; all satellites hang on the first EDU."""
    tree, number = reference.chain(edus, right_branching=False), np.arange(1, edus + 1)
    shared = edus + 1 - np.maximum.outer(number, number) + np.eye(edus)
    shared[0, 0] = edus
    np.testing.assert_array_equal(level_sum(tree), shared)
    np.testing.assert_array_equal(heads(tree), np.zeros(edus))


def test_limit_sentences_without_edus():
    """Where no EDU begins, a sentence attends to itself, the last one too if the count is given."""
    sentence = np.array([0, 0, 2, 2, 2])
    found = sentence_matrix(c_tree(FIVE), sentence, sentences=4)
    np.testing.assert_array_equal(found[[1, 3]], np.eye(4)[[1, 3]])
    np.testing.assert_array_equal(found[:, [1, 3]], np.eye(4)[:, [1, 3]])
    without = sentence_matrix(c_tree(FIVE), np.array([0, 0, 1, 1, 1]))
    np.testing.assert_array_equal(found[np.ix_([0, 2], [0, 2])], without)
    assert build_matrix("c_tree", FIVE, sentence, "sentence", sentences=5).shape == (5, 5)


def test_the_release_does_not_post_edit():
    """D2: post_editing=False is the form of the released code."""
    tree, sentence = some_tree(4, 20)
    released = build_matrix("d_tree", tree, sentence, "edu", post_editing=False)
    np.testing.assert_array_equal(released, d_tree(tree))
    np.testing.assert_array_equal(build_matrix("d_tree", tree, sentence, "edu"), d_tree(tree, sentence))
    assert (released != d_tree(tree, sentence)).any()


def test_bad_input():
    for kind, level in (("e_tree", "edu"), ("c_tree", "word")):
        with pytest.raises(ValueError, match=f"no '{kind}' at level '{level}'; use d_tree, c_tree, .* at edu or sent"):
            build_matrix(kind, FIVE, None, level)
    with pytest.raises(ValueError, match="sentence level needs to know the sentence of each EDU"):
        build_matrix("c_tree", FIVE, None, "sentence")
    for kind in MATRICES:
        with pytest.raises(ValueError, match=r"sentence has the shape \(4,\); one index for each of the 5 EDUs"):
            build_matrix(kind, FIVE, np.zeros(4, int), "sentence")
    with pytest.raises(ValueError, match="sentence has the indices -1 to 0, counted from 0"):
        d_tree(FIVE, np.array([-1, 0, 0, 0, 0]))
    with pytest.raises(ValueError, match="sentence has the indices 0 to 2 of 2, counted from 0"):
        sentence_matrix(c_tree(FIVE), np.array([0, 0, 1, 1, 2]), sentences=2)


@pytest.mark.parametrize("level", ["edu", "sentence"])
@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("shape", ["random", "right", "left"])
def test_300_edus_are_quick(kind, shape, level):
    """To reach: 10 ms on a quiet machine. The best of ten runs, in CPU time, may take three times that."""
    tree = some_tree(0, 300)[0] if shape == "random" else reference.chain(300, shape == "right")
    seconds = []
    for _ in range(10):
        start = time.process_time()
        build_matrix(kind, tree, np.arange(300) // 2, level)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.03


def assert_rst2dep_agrees(rst2dep, tree, where):
    """Compare with the conversion "hirao" of rst2dep, which reads .rs3; its roots have the head 0."""
    table = rst2dep.make_rsd(reference.rs3(tree), "", as_text=True, algorithm="hirao")
    theirs = {int(line.split("\t")[0]): int(line.split("\t")[6]) for line in table.strip().split("\n")}
    assert as_parents(heads(tree)) == theirs, where


@pytest.mark.parametrize("seed", range(20))
def test_rst2dep_has_the_same_heads_on_random_trees(seed):
    rst2dep = pytest.importorskip("rst2dep")
    assert_rst2dep_agrees(rst2dep, some_tree(seed)[0], seed)


def test_rst2dep_has_the_same_heads_on_gum():
    rst2dep = pytest.importorskip("rst2dep")
    paths = sorted(Path(os.environ.get("GUM_FOLDER", "none")).glob("*/*.dis"))
    if not paths:
        pytest.skip("set GUM_FOLDER to a folder with train/ID.dis")
    for path in paths:
        assert_rst2dep_agrees(rst2dep, read_tree(path), path.name)
