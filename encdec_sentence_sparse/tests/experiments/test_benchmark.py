"""The benchmark has all its sides, and its arithmetic is right. No test depends on how fast anything is."""

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...approximator import KINDS
from ...experiments.benchmark import make_models, make_sides, rows_of
from ...selection import Selection


def test_all_sides_decode_as_many_tokens_and_the_full_ones_the_same(monkeypatch):
    models, made, seen = make_models("tiny", torch.device("cpu")), [], []
    for model in models:

        def watched(*a, generate=model.generate, **k):
            seen.append(k.get("selection", Selection()))
            made.append(generate(*a, **k))
            return made[-1]

        monkeypatch.setattr(model, "generate", watched)
    parts, sides = make_sides(models, 400, 7, (2, 5)), ["generate", "shared"]
    sides += ["approx 2", "mean_key 2", "approx 5", "mean_key 5"]
    assert list(parts)[:9] == ["encoder", *KINDS, *sides]
    assert {parts[side]() for side in sides} == {7} and torch.equal(made[0], made[1])
    chosen = [Selection("approx", r) for r in (2, 2, 5, 5)]
    assert seen[2:] == chosen  # mean keys are the map of a model of their own


def test_end_to_end_is_the_encoder_the_sentence_encoder_and_the_decode():
    """A ratio is the median of the ratios within rounds."""
    seconds = {"encoder": np.array([2.0, 2.0, 4.0]), "gru": np.array([1.0, 1.0, 2.0])}
    seconds |= {"mean": np.zeros(3), "shared": np.array([2.0, 2.0, 4.0]), "approx 5": np.array([1.0, 2.0, 2.0])}
    rows = {row["side"]: row for row in rows_of(seconds | {"generate": np.array([6.0, 6.0, 12.0])})}
    assert rows["shared"]["end to end"]["mean"] == 4 and rows["approx 5, gru"]["end to end"]["mean"] == 5
    assert rows["approx 5, mean"]["x shared"]["mean"] == pytest.approx(4 / 3)
    assert rows["approx 5, gru"]["decode x shared"]["mean"] == 2 and rows["shared"]["x generate"]["mean"] == 2
