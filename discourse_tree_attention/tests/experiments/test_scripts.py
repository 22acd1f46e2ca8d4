"""What a tree says without a network, and figures: the numbers that are drawn are those of tree and table."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from ...config import TrainConfig
from ...documents import Document
from ...experiments import figures, salience
from ...experiments.figures import figure_4, figure_5, figure_claims
from ...experiments.salience import probe, promotion, rows, tree_scalars
from ...formats import read_dis, read_tree
from ...matrices import c_tree, c_tree_nuclearity, d_tree
from ..test_documents import TREE
from ..test_matrices import FIVE, FOUR, some_tree

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


def document(tree, name="d", labels=(), units=4):
    sentence = np.array([0, 0, 2, 2, 2])
    return SimpleNamespace(id=name, tree=tree, labels=np.array(labels), units=[""] * units, edu_sentence=sentence)


def test_promotion_is_that_of_marcu():
    """An EDU is in the promotion set of each node above it as long as it is Nucleus there; the highest one counts."""
    np.testing.assert_array_equal(promotion(FIVE), [0, -3, -2, -1, -1])
    np.testing.assert_array_equal(promotion(FOUR), [0, 0, 0, -2])


def test_scalars_are_promotion_depth_dependents_and_level_sum():
    scalars = [[0, 4, 5, 11], [-3, 4, 0, 11], [-2, 3, 0, 9], [-1, 3, 0, 8], [-1, 3, 0, 8]]
    np.testing.assert_array_equal(tree_scalars(document(FIVE), "edu"), scalars)
    # Of a sentence the greatest among its EDUs; one without EDUs comes last.
    expected = [[0, 4, 5, 11], [-4, 2, -1, 7], [-1, 3, 0, 9], [-4, 2, -1, 7]]
    np.testing.assert_array_equal(tree_scalars(document(FIVE), "sentence"), expected)


def test_probe_is_the_most_likely_under_its_ridge():
    """At the best weights the gradient of the log-likelihood is the ridge's."""
    rng = np.random.default_rng(0)
    trees = [some_tree(seed, 12)[0] for seed in range(8)]
    training = [document(t, str(n), rng.random(12) < 0.2 + 0.6 * (promotion(t) == 0)) for n, t in enumerate(trees)]
    found = probe(training, training, "edu")
    x = np.concatenate([np.insert(tree_scalars(d, "edu"), 0, 1, axis=1) for d in training])
    scores, labels = np.concatenate(list(found.values())), np.concatenate([d.labels for d in training])
    weights = np.linalg.lstsq(x, scores)[0]
    np.testing.assert_allclose(x.T @ (labels - 1 / (1 + np.exp(-scores))), weights, atol=1e-6)


def test_rows_of_a_table_by_hand(monkeypatch):
    """The tree alone takes what is promoted highest, Lead what stands first; the probe's folds part the documents.

    The first EDU needs the last one: the tree's pick of it brings both, Lead takes it alone.
    """
    edus, calls = np.arange(5), []

    def fitted(training, tested, level):
        calls.append([{d.id for d in part} for part in (training, tested)])
        return {d.id: np.zeros(len(d.units)) for d in tested}

    monkeypatch.setattr(salience, "probe", fitted)
    fields = [f"w{n}" for n in edus], edus, [[4], [], [], [], []], edus == 4, [["w0 w3 w4"]], FIVE, edus
    documents = [Document(str(n), *fields) for n in range(6)]
    found = {(row["system"], row["id"]): row for row in rows(documents, TrainConfig(units_taken=3, folds=3))}
    # Promotion of FIVE: 0, -3, -2, -1, -1: EDUs 1, 4, 5; the last is third of five in that order.
    assert found["Tree alone", "0"]["prediction"] == ["w0", "w3", "w4"]
    assert found["Lead", "0"]["prediction"] == ["w0", "w1", "w2"]
    assert found["Tree alone", "0"]["auc"] == [2.5 / 4, 1] and found["Lead", "0"]["auc"] == [0, 1]
    assert [(len(training), len(tested), training & tested) for training, tested in calls] == [(2, 2, set())] * 3
