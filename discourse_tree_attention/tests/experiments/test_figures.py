"""Figures: the numbers that are drawn are those of the tree and of the table."""

import csv

import numpy as np
import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from ...experiments import figures
from ...experiments.figures import figure_4, figure_5, figure_claims, figure_low_resource, read_table
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


def test_low_resource_has_a_curve_for_each_attention(tmp_path):
    """Section 5.2: means with their intervals at each number of documents, whatever their order in the file."""
    row = {
        "system": "",
        "minus": "",
        "metric": "rouge1",
        "value": 2,
        "low": 1,
        "high": 4,
        "seeds_low": "",
        "seeds_high": "",
    }
    over_seeds = {"system": "d_tree-n20", "minus": "dot-n20", "low": "", "high": "", "seeds_low": 1, "seeds_high": 4}
    with (tmp_path / "x.csv").open("w") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        for system, value in (("d_tree-n100", 2.5), ("d_tree-n20", 3.0), ("dot-n20", 2.0), ("Lead", 1.0)):
            writer.writerows([row | {"system": system, "value": value}, row | {"system": system, "metric": "auc"}])
        writer.writerow(row | over_seeds)
    table = read_table(tmp_path / "x.csv")
    assert table["d_tree-n20", "dot-n20"] == VALUE and len(table) == 5
    (axes,) = figure_low_resource(table, "toy").axes
    tree, dot = axes.containers
    np.testing.assert_allclose(tree[0].get_xydata(), [[20, 3.0], [100, 2.5]], rtol=0.02)
    np.testing.assert_allclose(dot[0].get_xydata(), [[20, 2.0]], rtol=0.02)
    assert [segment[:, 1].tolist() for segment in tree[2][0].get_segments()] == [[1.0, 4.0], [1.0, 4.0]]
