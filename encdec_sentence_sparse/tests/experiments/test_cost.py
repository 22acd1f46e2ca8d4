"""The fits of Table 1 and Appendix B against closed forms, and the passes that are timed for them."""

import csv
from collections import Counter
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from transformers import BartForConditionalGeneration

from ...approximator import KINDS, SentenceEncoder
from ...attention import word_attention, words_of
from ...experiments.cost import (
    Fit,
    appendix_b,
    attention_costs,
    attention_parts,
    coefficients,
    fit_quadratic,
    fit_surface,
    operating_modes,
    table_1,
)
from ...model import bart_config
from ...selection import Selection
from ..conftest import rough_model

RNG = np.random.default_rng(0)
LENGTHS = np.arange(50, 301, 50)


def test_eq1_quadratic_fit_finds_the_coefficients():
    """Exact times of a known polynomial; normalised as in Table 1."""
    fit = fit_quadratic(LENGTHS, 0.5 + 0.002 * LENGTHS + 3e-7 * LENGTHS**2)
    np.testing.assert_allclose(fit.coefficients, [0.5, 0.002, 3e-7], rtol=1e-9)
    np.testing.assert_allclose(fit.normalised, [1, 0.004, 6e-7], rtol=1e-9)
    assert fit.r_squared == pytest.approx(1.0, abs=1e-12)


def test_eq1_of_noisy_times_is_the_normal_equations():
    """(P^T P)^-1 P^T t; R^2 is 1 - residual / total sum of squares, below 1."""
    seconds = 0.5 + 0.002 * LENGTHS + RNG.normal(0, 0.05, len(LENGTHS))
    fit, terms = fit_quadratic(LENGTHS, seconds), np.stack([LENGTHS**0.0, LENGTHS, LENGTHS**2.0], 1)
    np.testing.assert_allclose(fit.coefficients, np.linalg.inv(terms.T @ terms) @ terms.T @ seconds, rtol=1e-6)
    rest = sum((t - np.polyval(fit.coefficients[::-1], m)) ** 2 for t, m in zip(seconds, LENGTHS, strict=True))
    assert fit.r_squared == pytest.approx(1 - rest / sum((seconds - seconds.mean()) ** 2)) and fit.r_squared < 0.9999


def test_six_coefficients_of_appendix_b():
    """30 samples of the paper's own polynomial give its coefficients back, each in its place."""
    paper = np.array([1.0, 3.78e-3, 3.15e-3, 1.47e-6, 7.26e-7, 7.79e-7])
    targets, sources = (grid.ravel() for grid in np.meshgrid(LENGTHS, np.arange(256, 1025, 192)))
    seconds = [
        0.1 * (paper @ [1, m, n, m * n, m * m, n * n]) for m, n in zip(targets.tolist(), sources.tolist(), strict=True)
    ]
    fit = fit_surface(targets, sources, seconds)
    np.testing.assert_allclose(fit.normalised, paper, rtol=1e-6)
    assert len(seconds) == 30 and fit.r_squared > 1 - 1e-12
    assert fit.normalised[3] > fit.normalised[4]  # the paper's c4 = 2 c5: cross-attention costs more


@pytest.mark.parametrize("lengths", [[1, 2], [5, 5, 5, 9], [7, 7, 7]])
def test_too_few_lengths_leave_coefficients_open(lengths):
    with pytest.raises(ValueError, match=r"leave 3 coefficients open: measure at more lengths"):
        fit_quadratic(lengths, np.ones(len(lengths)))
    with pytest.raises(ValueError, match=r"leave 6 coefficients open"):
        fit_surface([1, 2, 3, 1, 2, 3], [5] * 6, np.ones(6))


def test_costs_of_section_4_1():
    """The paper's terms one by one; k_e of the GRU is its number of weights, each used once for a word."""
    D, layers, N, N1, M, r = 8, 3, 60, 5, 7, 2
    costs = {part: cost["10^9 multiplications"] * 1e9 for part, cost in attention_costs(D, layers, N, N1, M, r).items()}
    loops = lambda *counts: sum(1 for _ in product(*map(range, counts)))  # noqa: E731
    assert costs["sentence level"] == pytest.approx(layers * (loops(M, N1, D) + loops(M, N1)))
    assert costs["word level"] == pytest.approx(layers * (2 * loops(M, r, N // N1, D) + loops(M, r, N // N1)))
    assert costs["all words"] == pytest.approx(layers * (2 * loops(M, N, D) + loops(M, N)))
    for kind in KINDS:
        weights = {name: p.numel() for name, p in SentenceEncoder(kind, D).named_parameters() if "weight" in name}
        per_sentence = N1 * weights.pop("projection.weight", 0)
        expected = N * (sum(weights.values()) + (0 if kind == "gru" else D)) + per_sentence
        assert costs[kind] == pytest.approx(expected)
    k = {part: cost["k"] for part, cost in attention_costs(1024, 12, 800, 29, 60, 5).items()}
    assert k["word level"] == pytest.approx(2, abs=1e-3) and k["sentence level"] == 1 and 2500 < k["gru"] < 2700


def test_measured_parts_are_those_of_a_decode(documents):
    """As often as layers times tokens; the gathered words give what the mask gives."""
    model = rough_model("gru")
    model.selection = Selection("approx", r=2)
    states = model.get_encoder()(documents["input_ids"], attention_mask=documents["attention_mask"])[0]
    cache = model.project(states, documents["sentence_ids"], documents["attention_mask"])
    hidden = torch.randn(3, 4, 16)
    choices, read, full = (part() for part in attention_parts(model, cache, hidden, 5).values())
    keys, values = (model.attentions[0].split(part) for part in cache.memories[0].keys_values.unbind(2))
    words = words_of(choices[0], documents["sentence_ids"])
    masked = word_attention(model.attentions[0].split(hidden), keys, words) @ values
    torch.testing.assert_close(read[0], masked)
    assert [len(part) for part in (choices, read, full)] == [2 * 5] * 3 and not torch.allclose(full[0], masked)


# The passes, and the tables that the benchmark writes


@pytest.fixture
def bart():
    return BartForConditionalGeneration(bart_config(60, 16, 32, 2, 2, 64, forced_eos_token_id=None)).eval()


def test_d22_passes_are_those_of_the_three_modes(bart):
    """D22: no dropout, greedy. Forward+backward runs with gradients, forward without, inference step by step."""
    seen = []

    def watch(layer, arguments, keywords, output):
        seen.append((arguments[0].shape[:2], torch.is_grad_enabled(), layer.training))

    bart.get_decoder().layers[0].register_forward_hook(watch, with_kwargs=True)
    modes = operating_modes(bart, 12, 5)
    expected = {
        "forward+backward": [((1, 5), True, False)],
        "forward": [((1, 5), False, False)],
        "inference": [((1, 1), False, False)] * 5,
    }
    for mode, passes in expected.items():
        seen.clear()
        modes[mode]()
        assert [(tuple(shape), *rest) for shape, *rest in seen] == passes
        assert all(parameter.grad is None for parameter in bart.parameters())


def test_eq1_table_1_fits_the_measured_times(bart):
    """Times by a clock of our own: each mode has its polynomial, and finds it."""
    known = {"forward+backward": (2.0, 0.1, 0.01), "forward": (1.0, 0.2, 0.0), "inference": (1.0, 3.0, 0.5)}
    measure = lambda functions: {key: np.polyval(known[key[0]][::-1], [key[1]] * 3) for key in functions}  # noqa: E731
    *times, first, second, third = table_1(bart, [5, 9], [2, 3, 5, 8], measure)
    for row in (first, second, third):
        constant, linear, square = known[row["mode"]]
        assert row["c1_us"] == pytest.approx(dict.fromkeys(("mean", "low", "high"), 1e6 * constant))
        assert row["c2/c1"] == pytest.approx(linear / constant) and row["N"] == 9
        assert row["c3/c1"] == pytest.approx(square / constant, abs=1e-9) and row["r_squared"] == pytest.approx(1)
    assert [row["mode"] for row in (first, second, third)] == list(known) and len(times) == 12


def test_intervals_of_the_coefficients():
    """Of rounds with noise around a polynomial: they hold it, and narrow with the noise and with more rounds."""
    rng, exact = np.random.default_rng(0), 2.0 + 0.5 * LENGTHS + 0.01 * LENGTHS**2
    width = lambda row: (row["c2_us"]["high"] - row["c2_us"]["low"]) / 1e6  # noqa: E731
    spread = coefficients(lambda times: Fit(times, 1.0), np.arange(1001.0)[:, None])["c1_us"]  # of medians, by hand
    again = np.random.default_rng(0).integers(1001, size=(1000, 1001))
    bounds = 1e6 * np.quantile(np.median(again, 1), [0.025, 0.975])  # 95 %
    assert [spread["low"], spread["high"]] == pytest.approx(bounds)
    rows = [
        coefficients(partial(fit_quadratic, LENGTHS), exact + rng.normal(0, noise, (rounds, len(LENGTHS))))
        for noise, rounds in ((10.0, 9), (1.0, 9), (1.0, 99))
    ]
    assert width(rows[0]) > 5 * width(rows[1]) > 10 * width(rows[2]) > 0
    for row in rows:
        assert row["c2_us"]["low"] < 0.5e6 < row["c2_us"]["high"] and row["c1/c1"] == 1
        assert row["c2_us"]["low"] < row["c2_us"]["mean"] < row["c2_us"]["high"]


def test_appendix_b_keeps_apart_what_is_read_and_what_is_written(bart):
    measure = lambda functions: {(n, m): [2.0 + 0.5 * m + 0.1 * n + 0.02 * m * n] * 3 for n, m in functions}  # noqa: E731
    *times, row = appendix_b(bart, [6, 9, 12], [2, 3, 4], measure)
    found = [row[f"c{number}/c1"] for number in range(1, 7)]
    np.testing.assert_allclose(found, [1, 0.25, 0.05, 0.01, 0, 0], atol=1e-9)
    assert {(time["N"], time["M"]) for time in times} == {(n, m) for n in (6, 9, 12) for m in (2, 3, 4)}


def test_both_tables_by_one_command(tmp_path, capsys):
    pytest.importorskip("shared")
    from ...experiments import benchmark

    path = tmp_path / "new" / "b.csv"
    benchmark.main(["--quick", "--table-1", "--appendix-b", "--repeats", "3", "--csv", str(path)])
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    sizes = Counter(row["table"] for row in rows)
    assert sizes == {"table_1": 3, "table_1_times": 12, "appendix_b": 1, "appendix_b_times": 12}
    assert all(float(row["seconds"]) > 0 for row in rows if row["table"].endswith("times"))
    printed = capsys.readouterr().out
    assert "r_squared" in printed and [row["c1/c1"] for row in rows if row["table"] == "appendix_b"] == ["1"]
