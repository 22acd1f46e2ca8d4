"""Ridge regressions of what the inputs hold; an epoch, timed."""

import csv

import numpy as np
import pytest

pytest.importorskip("shared")

from ...config import TrainConfig
from ...experiments import epoch, probe
from ...train import train

SMALL = dict(data="toy:signal=0,count=9", folds=3, steps=1, head_width=4, feed_forward=8, save_every=1)


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


def test_the_commands_run_on_folders_of_runs(tmp_path, capsys):
    for fold in range(3):
        for kind in ("c_tree_nuclearity", "d_tree"):
            for shuffled in (False, True):
                name = f"{kind}{'-shuffled' * shuffled}-fold{fold}-seed0"
                train(TrainConfig(**SMALL, fold=fold, attention=kind, shuffle_trees=shuffled), tmp_path / name)
    probe.main([str(tmp_path), "--csv", str(tmp_path / "p.csv")])
    rows = {row["regression on"]: row for row in csv.DictReader((tmp_path / "p.csv").open())}
    assert len(rows) == 9 and float(rows["position, x"]["AUC - position, x_difference"]) == 0
    assert float(rows["position, x, four numbers of the tree"]["tree order"]) > 50
    runs = [str(tmp_path / f"{kind}-fold0-seed0") for kind in ("d_tree", "c_tree_nuclearity")]
    epoch.main([*runs, "--repeats", "3", "--csv", str(tmp_path / "e.csv")])
    first, other = csv.DictReader((tmp_path / "e.csv").open())
    assert (first["run"], first["documents"]) == ("d_tree-fold0-seed0", "6") and first["units"] == other["units"]
    assert float(first["first / this_mean"]) == 1 and float(other["seconds_mean"]) > 0
    assert "| d_tree-fold0-seed0 " in capsys.readouterr().out
