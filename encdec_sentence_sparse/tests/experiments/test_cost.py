"""The fits of Table 1 and Appendix B against closed forms, and the passes that are timed for them."""

import inspect

import numpy as np
import pytest
import torch
from transformers import BartForConditionalGeneration

pytest.importorskip("shared")

from ...experiments.cost import (
    appendix_b,
    fit_quadratic,
    fit_surface,
    main,
    operating_modes,
    table_1,
)
from ...model import bart_config

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
    defaults = inspect.signature(main).parameters
    assert defaults["targets"].default == tuple(LENGTHS) and len(defaults["sources"].default) * len(LENGTHS) == 30
    assert len(seconds) == 30 and fit.r_squared > 1 - 1e-12
    assert fit.normalised[3] > fit.normalised[4]  # the paper's c4 = 2 c5: cross-attention costs more


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


def test_appendix_b_keeps_apart_what_is_read_and_what_is_written(bart):
    measure = lambda functions: {(n, m): [2.0 + 0.5 * m + 0.1 * n + 0.02 * m * n] * 3 for n, m in functions}  # noqa: E731
    *times, row = appendix_b(bart, [6, 9, 12], [2, 3, 4], measure)
    found = [row[f"c{number}/c1"] for number in range(1, 7)]
    np.testing.assert_allclose(found, [1, 0.25, 0.05, 0.01, 0, 0], atol=1e-9)
    assert {(time["N"], time["M"]) for time in times} == {(n, m) for n in (6, 9, 12) for m in (2, 3, 4)}
