"""Speed: the sides and passes that are timed, and the arithmetic of times.

No test depends on how fast anything is.
"""

import csv

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from shared.timing import Times

from ...approximator import KINDS
from ...experiments import benchmark, cost
from ...experiments.benchmark import Sizes, make_models, make_sides, rows_of
from ...selection import FULL, Selection

LENGTHS = np.arange(50, 301, 50)


def test_all_sides_decode_as_many_tokens_and_the_full_ones_the_same(monkeypatch):
    models = make_models("tiny")
    outputs, selections = [], []
    for model in models:

        def watched(*a, generate=model.generate, **k):
            selections.append(k.get("selection"))
            outputs.append(generate(*a, **k))
            return outputs[-1]

        monkeypatch.setattr(model, "generate", watched)
    parts = make_sides(models, Sizes(length=400, sentences=13, tokens=7, read=(2, 5)))
    sides = ["generate", "shared", "approx 2", "approx 5"]
    assert list(parts) == ["encoder", *KINDS, *sides]
    assert {parts[side]() for side in sides} == {7} and torch.equal(outputs[0], outputs[1])
    assert selections == [None, FULL, Selection("approx", 2), Selection("approx", 5)]


def test_end_to_end_is_the_encoder_the_sentence_encoder_and_the_decode():
    """A ratio is the median of the ratios within rounds."""
    seconds = {"encoder": [2, 2, 4], "gru": [1, 1, 2], "mean": [0, 0, 0]}
    seconds |= {"generate": [6, 6, 12], "shared": [2, 2, 4], "approx 5": [1, 2, 2]}
    times = {name: Times(np.array(rounds), peak=7) for name, rounds in seconds.items()}
    rows = {row["side"]: row for row in rows_of(times)}
    sides = ["approx 5, gru", "approx 5, mean", "generate", "shared"]
    assert [*rows] == ["encoder", *KINDS, *sides]
    assert rows["shared"]["end to end"]["median"] == 4
    assert rows["approx 5, gru"]["end to end"]["median"] == 5
    assert rows["approx 5, mean"]["x shared"]["median"] == pytest.approx(4 / 3)
    assert rows["approx 5, gru"]["decode x shared"]["median"] == 2
    assert rows["shared"]["x generate"]["median"] == 2 and rows["shared"]["peak_bytes"] == 7


def test_the_quick_benchmark_runs_in_the_precision_and_on_the_device_that_is_asked_for(tmp_path):
    out = tmp_path / "rows.csv"
    for precision in ("float32", "bf16"):
        benchmark.main(["--quick", "--precision", precision, "--csv", str(out), "--overwrite"])
        rows = list(csv.DictReader(out.read_text().splitlines()))
        assert len(rows) == 9 and {row["precision"] for row in rows} == {precision}
        assert {row["device"] for row in rows} == {"cpu"}
        assert all(float(row["seconds_median"]) > 0 for row in rows)
    with pytest.raises(SystemExit):
        benchmark.main(["--quick", "--device", "cuda:99"])


def test_eq1_quadratic_fit_finds_the_coefficients():
    """Of noisy times by the normal equations (P^T P)^-1 P^T t; R^2 as defined."""
    seconds = 0.5 + 0.002 * LENGTHS + np.random.default_rng(0).normal(0, 0.05, len(LENGTHS))
    row = cost.row_of(cost.quadratic(LENGTHS), seconds[np.newaxis])
    found = [row[f"c{number}_us"]["mean"] / 1e6 for number in (1, 2, 3)]
    terms = np.stack([LENGTHS**0.0, LENGTHS, LENGTHS**2.0], 1)
    np.testing.assert_allclose(found, np.linalg.inv(terms.T @ terms) @ terms.T @ seconds, rtol=1e-6)
    rest = ((seconds - np.polyval(found[::-1], LENGTHS)) ** 2).sum()
    r_squared = 1 - rest / ((seconds - seconds.mean()) ** 2).sum()
    assert row["r_squared"] == pytest.approx(r_squared) and r_squared < 0.9999


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
    """Table 1's and Appendix B's polynomials; one slow round of nine is no matter."""
    table_1 = {"forward": [1.0, 0.2, 0.0], "inference": [1.0, 3.0, 0.5]}
    appendix_b = np.array([1.0, 3.78e-3, 3.15e-3, 1.47e-6, 7.26e-7, 7.79e-7])
    sources, targets = (6, 9, 12, 30), (2, 3, 4, 50)
    rounds = np.array([1.0] * 8 + [5.0])
    times = {}
    for m in targets:
        for mode, c in table_1.items():
            times[mode, 30, m] = rounds * np.dot(c, [1, m, m * m])
        for n in sources:
            terms = [1, m, n, m * n, m * m, n * n]
            times["forward+backward", n, m] = rounds * (appendix_b @ terms)
    *rows, surface = cost.fits(times, sources, targets)
    constant = appendix_b @ [1, 0, 30, 0, 0, 900]
    linear, square = appendix_b[1] + 30 * appendix_b[3], appendix_b[4]
    table_1["forward+backward"] = [constant, linear, square]
    assert [row["mode"] for row in rows] == list(cost.MODES)
    for row, expected in [*((row, table_1[row["mode"]]) for row in rows), (surface, appendix_b)]:
        first = dict.fromkeys(("mean", "low", "high"), 1e6 * expected[0])
        assert row["c1_us"] == pytest.approx(first)
        found = [row[f"c{number}/c1"] for number in range(1, 1 + len(expected))]
        np.testing.assert_allclose(found, np.divide(expected, expected[0]), rtol=1e-5, atol=1e-9)
        assert row["r_squared"] == pytest.approx(1)
