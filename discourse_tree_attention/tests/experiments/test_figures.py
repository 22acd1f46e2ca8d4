"""Figures: the numbers that are drawn are those of the tree and of the table."""

import numpy as np
import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from ...experiments import figures
from ...experiments.figures import figure_4, figure_5, figure_claims
from ...formats import read_dis, read_tree
from ...matrices import c_tree, c_tree_nuclearity, d_tree
from ..test_documents import TREE

VALUE = {"value": 2.0, "low": 1.0, "high": 4.0}


def cells(axes):
    """The number written in each cell, by column and row as they are on the axes."""
    return {text.get_position(): float(text.get_text()) for text in axes.texts}


def test_figure_4_is_the_post_edited_tree_and_its_matrix():
    """The worked tree: EDU 6 hung on 3 and hangs on 5 of its sentence; arrows lead from parents to dependents."""
    tree = read_tree(figures.WORKED_TREE)
    arrows, matrix, *_ = figure_4(tree).axes
    expected = d_tree(tree, np.array([0, 0, 1, 1, 2, 2]))
    assert cells(matrix) == {(j + 1, i + 1): value for (i, j), value in np.ndenumerate(expected)}
    edges = {(int(a.xyann[1]), int(a.xy[1])): a.arrow_patch for a in arrows.texts if hasattr(a, "xyann")}
    assert set(edges) == {(2, 1), (2, 3), (3, 4), (3, 5), (5, 6), (3, 6)}
    assert [edge for edge, patch in edges.items() if patch.get_linestyle() == "--"] == [(3, 6)]
    said = [text.get_text() for text in arrows.texts if not hasattr(text, "xyann")]
    assert [text.endswith("(root)") for text in said] == [False, True, False, False, False, False]


def test_figure_5_is_the_tree_and_its_matrices():
    tree = read_dis(TREE)
    for axes, matrix in zip(figure_5(tree).axes[1:], (c_tree(tree), c_tree_nuclearity(tree)), strict=False):
        assert cells(axes) == {(j + 1, i + 1): float(f"{v:.2g}") for (i, j), v in np.ndenumerate(matrix)}


def test_claims_are_the_papers_and_ours():
    tables = {
        "scitldr_edu": {("d_tree", "none"): VALUE},
        "scitldr_edu_test": {("d_tree", "none"): VALUE | {"value": 3}},
    }
    (axes,) = figure_claims(tables).axes
    ours = [bars[0].get_xydata()[0].tolist() for bars in axes.containers]
    assert ours == [[2.0, 4.0], [3.0, 4.2]]
    papers = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"]
    assert papers == [-0.16, -0.07, 0.23, 0.87, 0.54]
