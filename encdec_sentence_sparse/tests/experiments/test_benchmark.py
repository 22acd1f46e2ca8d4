"""The benchmark has all its sides, and its arithmetic is right. No test depends on how fast anything is."""

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...approximator import KINDS
from ...experiments import benchmark
from ...experiments.benchmark import make_models, make_sides, rows_of, spread, time_rounds
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


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_rounds_begin_one_side_later_and_the_first_does_not_count(monkeypatch, device):
    """A clock that only the sides move; on CUDA they move it when the device is waited for."""
    now, log, queued = [0.0], [], []

    def side(name, seconds):
        return lambda: log.append(name) or queued.append(seconds.pop(0))

    def wait():
        now[0] += sum(queued)
        queued.clear()

    def clock():
        if device == "cpu":
            wait()
        return now[0]

    monkeypatch.setattr(benchmark.time, "process_time" if device == "cpu" else "perf_counter", clock)
    monkeypatch.setattr(torch.cuda, "synchronize", wait)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    sides = {"fast": side("f", [9.0, 1.0, 2.0, 10.0]), "slow": side("s", [7.0, 4.0, 4.0, 30.0])}
    seconds = time_rounds(sides, 3, device)
    assert "".join(log) == "fssffssf" and seconds["fast"].tolist() == [1, 2, 10]
    assert spread(seconds["slow"] / seconds["fast"]) == {"mean": 3.0, "low": 2.0, "high": 4.0}


def test_the_interval_holds_the_median_with_95_percent():
    """By ranks: of n values, low and high leave out so many that the median lies beyond them with at most 5 %."""
    ends = {n: spread(np.random.default_rng(n).permutation(n) + 1.0) for n in (4, 8, 9, 12, 25)}
    ranks = {n: (end["low"], end["high"]) for n, end in ends.items()}  # the tables of the sign test
    assert ranks == {4: (1, 4), 8: (1, 8), 9: (2, 8), 12: (3, 10), 25: (8, 18)}
