"""Speed: the sides and passes that are timed, and the arithmetic of times.

No test depends on how fast anything is.
"""

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...approximator import KINDS
from ...experiments import benchmark, cost
from ...experiments.benchmark import make_models, make_sides, rows_of, spread, time_rounds
from ...selection import Selection

LENGTHS = np.arange(50, 301, 50)


def test_all_sides_decode_as_many_tokens_and_the_full_ones_the_same(monkeypatch):
    models, made, seen = make_models("tiny"), [], []
    for model in models:

        def watched(*a, generate=model.generate, **k):
            seen.append(k.get("selection", Selection()))
            made.append(generate(*a, **k))
            return made[-1]

        monkeypatch.setattr(model, "generate", watched)
    parts, sides = make_sides(models, 400, 13, 7, (2, 5)), ["generate", "shared"]
    sides += ["approx 2", "mean_key 2", "approx 5", "mean_key 5"]
    assert list(parts)[:9] == ["encoder", *KINDS, *sides]
    assert {parts[side]() for side in sides} == {7} and torch.equal(made[0], made[1])
    # mean keys are the map of a model of their own
    assert seen[2:] == [Selection("approx", r) for r in (2, 2, 5, 5)]


def test_end_to_end_is_the_encoder_the_sentence_encoder_and_the_decode():
    """A ratio is the median of the ratios within rounds."""
    seconds = {"encoder": np.array([2.0, 2.0, 4.0]), "gru": np.array([1.0, 1.0, 2.0])}
    seconds |= {
        "mean": np.zeros(3),
        "shared": np.array([2.0, 2.0, 4.0]),
        "approx 5": np.array([1.0, 2.0, 2.0]),
    }
    rows = {row["side"]: row for row in rows_of(seconds | {"generate": np.array([6.0, 6.0, 12.0])})}
    assert (
        rows["shared"]["end to end"]["mean"] == 4
        and rows["approx 5, gru"]["end to end"]["mean"] == 5
    )
    assert rows["approx 5, mean"]["x shared"]["mean"] == pytest.approx(4 / 3)
    assert (
        rows["approx 5, gru"]["decode x shared"]["mean"] == 2
        and rows["shared"]["x generate"]["mean"] == 2
    )


def test_rounds_begin_one_side_later_and_the_first_does_not_count(monkeypatch):
    """With a clock that only the sides move."""
    now, log = [0.0], []

    def side(name, seconds):
        def run():
            log.append(name)
            now[0] += seconds.pop(0)

        return run

    monkeypatch.setattr(benchmark.time, "process_time", lambda: now[0])
    sides = {"fast": side("f", [9.0, 1.0, 2.0, 10.0]), "slow": side("s", [7.0, 4.0, 4.0, 30.0])}
    seconds = time_rounds(sides, 3)
    assert "".join(log) == "fssffssf" and seconds["fast"].tolist() == [1, 2, 10]
    assert spread(seconds["slow"] / seconds["fast"]) == {"mean": 3.0, "low": 2.0, "high": 4.0}


def test_eq1_quadratic_fit_finds_the_coefficients():
    """Of noisy times by the normal equations (P^T P)^-1 P^T t; R^2 as defined."""
    seconds = 0.5 + 0.002 * LENGTHS + np.random.default_rng(0).normal(0, 0.05, len(LENGTHS))
    row = cost.row_of(cost.quadratic(LENGTHS), seconds[np.newaxis])
    found, r_squared = (
        [row[f"c{number}_us"]["mean"] / 1e6 for number in (1, 2, 3)],
        row["r_squared"],
    )
    terms = np.stack([LENGTHS**0.0, LENGTHS, LENGTHS**2.0], 1)
    np.testing.assert_allclose(found, np.linalg.inv(terms.T @ terms) @ terms.T @ seconds, rtol=1e-6)
    rest = ((seconds - np.polyval(found[::-1], LENGTHS)) ** 2).sum()
    assert (
        r_squared == pytest.approx(1 - rest / ((seconds - seconds.mean()) ** 2).sum())
        and r_squared < 0.9999
    )


def test_d22_passes_are_those_of_the_three_modes():
    """D22: no dropout, greedy.

    Forward+backward runs with gradients, forward without, inference step by step.
    """
    (bart, _), seen = make_models("tiny"), []

    def watch(layer, arguments, keywords, output):
        seen.append((tuple(arguments[0].shape[:2]), torch.is_grad_enabled(), layer.training))

    bart.get_decoder().layers[0].register_forward_hook(watch, with_kwargs=True)
    expected = {"forward+backward": [((1, 5), True, False)], "forward": [((1, 5), False, False)]}
    expected["inference"] = [((1, 1), False, False)] * 5
    for mode in cost.MODES:
        seen.clear()
        cost.run_mode(bart, mode, 12, 5)
        assert seen == expected[mode]
    assert all(parameter.grad is None for parameter in bart.parameters())


def test_eq1_the_fits_find_what_made_the_times():
    """Table 1's polynomial of each mode, and Appendix B's own six numbers; one slow round of nine
    is no matter.
    """
    table_1 = {"forward": [1.0, 0.2, 0.0], "inference": [1.0, 3.0, 0.5]}
    appendix_b = np.array([1.0, 3.78e-3, 3.15e-3, 1.47e-6, 7.26e-7, 7.79e-7])
    sources, targets = (6, 9, 12, 30), (2, 3, 4, 50)
    times = {
        (mode, 30, m): np.dot(c, [1, m, m * m]) for mode, c in table_1.items() for m in targets
    }
    for n in sources:
        times |= {
            ("forward+backward", n, m): appendix_b @ [1, m, n, m * n, m * m, n * n] for m in targets
        }
    rounds = np.array([1.0] * 8 + [5.0])
    *rows, surface = cost.fits(
        {place: rounds * time for place, time in times.items()}, sources, targets
    )
    table_1["forward+backward"] = [
        appendix_b @ [1, 0, 30, 0, 0, 900],
        *(appendix_b[[1, 4]] + [30 * appendix_b[3], 0]),
    ]
    assert [row["mode"] for row in rows] == list(cost.MODES)
    for row, expected in [*((row, table_1[row["mode"]]) for row in rows), (surface, appendix_b)]:
        assert row["c1_us"] == pytest.approx(
            dict.fromkeys(("mean", "low", "high"), 1e6 * expected[0])
        )
        found = [row[f"c{number}/c1"] for number in range(1, 1 + len(expected))]
        np.testing.assert_allclose(found, np.divide(expected, expected[0]), rtol=1e-5, atol=1e-9)
        assert row["r_squared"] == pytest.approx(1)
