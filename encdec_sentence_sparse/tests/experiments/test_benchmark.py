"""The benchmark runs, has all its sides, and its arithmetic is right. No test depends on how fast anything is."""

import csv
import inspect

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...approximator import KINDS
from ...experiments.benchmark import Shape, main, make_models, make_sides, rows_of
from ...selection import Selection

SHAPE = Shape("tiny", 60, 3, 6, 1)
SIDES = ["generate", "shared", "approx", "mean_key"]


def test_all_sides_decode_as_many_tokens_and_the_full_ones_the_same(monkeypatch):
    models, made, seen = make_models("tiny", torch.device("cpu")), [], []
    for model in models:
        generate = model.generate

        def watched(*a, generate=generate, **k):
            seen.append(k.get("selection", Selection()))
            made.append(generate(*a, **k))
            return made[-1]

        monkeypatch.setattr(model, "generate", watched)
    parts = make_sides(models, SHAPE, ("generate", "approx", "mean_key"))
    assert list(parts) == ["encoder", *KINDS, *SIDES]
    assert {parts[side]() for side in SIDES} == {6} and torch.equal(made[0], made[1])
    assert inspect.signature(main).parameters["r"].default == 10
    assert seen[2:] == [Selection("approx", 1)] * 2  # mean keys are the map of a model of their own


def test_end_to_end_is_the_encoder_the_sentence_encoder_and_the_decode():
    """A ratio is the median of the ratios within rounds."""
    seconds = {"encoder": np.array([2.0, 2.0, 4.0]), "gru": np.array([1.0, 1.0, 2.0])}
    seconds |= {"mean": np.zeros(3), "shared": np.array([2.0, 2.0, 4.0]), "approx": np.array([1.0, 2.0, 2.0])}
    rows = {row["side"]: row for row in rows_of(SHAPE, seconds)}
    assert rows["shared"]["end to end"]["mean"] == 4 and rows["approx, gru"]["end to end"]["mean"] == 5
    assert rows["approx, mean"]["x shared"]["mean"] == pytest.approx(4 / 3)
    assert rows["approx, gru"]["decode x shared"]["mean"] == 2 and "x generate" not in rows["shared"]


def test_the_command_writes_a_row_for_each_side(tmp_path):
    main(models=("tiny",), lengths=(60,), r=1, repeats=3, sides=("generate", "approx"), csv=tmp_path / "b.csv")
    with (tmp_path / "b.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {row["side"] for row in rows}
    assert found == {"encoder", *KINDS, "generate", "shared", *(f"approx, {kind}" for kind in KINDS)}
    assert all(float(row["seconds_mean"]) > 0 for row in rows)
