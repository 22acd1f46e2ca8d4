"""Ridge regressions of what the inputs hold."""

import csv

import numpy as np
import pytest

pytest.importorskip("shared")

from ...config import TrainConfig
from ...experiments import probe
from ...train import train


def test_order_counts_the_pairs_that_the_truth_orders():
    assert probe.order(np.array([1, 2, 3]), np.array([0, 1, 1])) == 100
    assert probe.order(np.array([3, 2, 2]), np.array([0, 1, 1])) == 0
    assert probe.order(np.array([2, 2, 3]), np.array([0, 1, 1])) == 75  # a tie counts half


def test_predict_is_a_ridge_regression_on_the_training_documents(monkeypatch):
    """Without a ridge, an exact fit of a linear law, whatever the tested document's own target."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(6, 2)) for _ in range(4)]
    targets = [np.stack([x[:, 0], 2 * x[:, 1]], 1) for x in rows]
    monkeypatch.setattr(probe, "RIDGE", 0)
    (found,) = probe.predict(rows, [*targets[:3], np.zeros((6, 2))], [0, 1, 2], [3])
    centred = targets[3] - np.concatenate(targets[:3]).mean(0)
    np.testing.assert_allclose(found, centred, atol=1e-4)


def test_features_add_what_their_names_say():
    x, a, scalars = np.array([[1.0], [2.0], [4.0]]), np.eye(3)[[1, 2, 2]], np.arange(12).reshape(3, 4)
    rows = probe.features([x], {name: [a] for name in probe.TREES}, [scalars])
    places = np.stack([[0, 1, 2], np.log1p([0, 1, 2])], 1)
    np.testing.assert_array_equal(rows["position"][0], places)
    np.testing.assert_array_equal(rows["position, x"][0], np.concatenate([places, x], 1))
    for name, last in (
        ("A x of d_tree", [2, 4, 4]), ("x of the unit before", [1, 1, 2]), ("column sums of A", [0, 1, 2]),
    ):  # fmt: skip
        assert rows[f"position, x, {name}"][0][:, -1].tolist() == last
    np.testing.assert_array_equal(rows["position, x, four numbers of the tree"][0][:, -4:], scalars)


def test_the_command_runs_on_a_run(tmp_path):
    config = TrainConfig(data="toy:signal=0,count=9", folds=3, steps=1, head_width=4, feed_forward=8)
    train(config, tmp_path / "run")
    probe.main(tmp_path / "run", tmp_path / "p.csv")
    rows = {(r["system"], r["minus"], r["metric"]): r["value"] for r in csv.DictReader((tmp_path / "p.csv").open())}
    assert len({system for system, *_ in rows}) == 9
    assert float(rows["position, x, four numbers of the tree", "", "tree order"]) > 50
    assert ("position", "position, x", "auc") in rows
