"""The fits of Table 1 against closed forms, and the passes that are timed for them."""

import numpy as np
import pytest
import torch
from transformers import BartForConditionalGeneration

pytest.importorskip("shared")

from ...experiments.cost import fit_quadratic, operating_modes, table_1
from ...model import bart_config

LENGTHS = np.arange(50, 301, 50)


def test_eq1_quadratic_fit_finds_the_coefficients():
    """Of noisy times by the normal equations (P^T P)^-1 P^T t; normalised as in Table 1; R^2 as defined."""
    seconds = 0.5 + 0.002 * LENGTHS + np.random.default_rng(0).normal(0, 0.05, len(LENGTHS))
    fit, terms = fit_quadratic(LENGTHS, seconds), np.stack([LENGTHS**0.0, LENGTHS, LENGTHS**2.0], 1)
    np.testing.assert_allclose(fit.coefficients, np.linalg.inv(terms.T @ terms) @ terms.T @ seconds, rtol=1e-6)
    np.testing.assert_allclose(fit.normalised, fit.coefficients / fit.coefficients[0])
    rest = ((seconds - np.polyval(fit.coefficients[::-1], LENGTHS)) ** 2).sum()
    assert fit.r_squared == pytest.approx(1 - rest / ((seconds - seconds.mean()) ** 2).sum()) and fit.r_squared < 0.9999


# The passes, and the tables that the benchmark writes


@pytest.fixture
def bart():
    return BartForConditionalGeneration(bart_config(60, 16, 32, 2, 2, 64, forced_eos_token_id=None)).eval()


def test_d22_passes_are_those_of_the_three_modes(bart):
    """D22: no dropout, greedy. Forward+backward runs with gradients, forward without, inference step by step."""
    seen = []

    def watch(layer, arguments, keywords, output):
        seen.append((tuple(arguments[0].shape[:2]), torch.is_grad_enabled(), layer.training))

    bart.get_decoder().layers[0].register_forward_hook(watch, with_kwargs=True)
    expected = {"forward+backward": [((1, 5), True, False)], "forward": [((1, 5), False, False)]}
    expected["inference"] = [((1, 1), False, False)] * 5
    for mode, run in operating_modes(bart, 12, 5).items():
        seen.clear()
        run()
        assert seen == expected[mode]
    assert all(parameter.grad is None for parameter in bart.parameters())


def test_eq1_table_1_fits_the_measured_times(bart):
    """Times by a clock of our own: each mode has its polynomial, and finds it; one slow round of nine is no matter."""
    known = {"forward+backward": (2.0, 0.1, 0.01), "forward": (1.0, 0.2, 0.0), "inference": (1.0, 3.0, 0.5)}
    rounds = np.array([1.0] * 8 + [5.0])
    measure = lambda functions: {key: rounds * np.polyval(known[key[0]][::-1], key[1]) for key in functions}  # noqa: E731
    *times, first, second, third = table_1(bart, 9, [2, 3, 5, 8], measure)
    for row in (first, second, third):
        constant, linear, square = known[row["mode"]]
        assert row["c1_us"] == pytest.approx(dict.fromkeys(("mean", "low", "high"), 1e6 * constant))
        assert row["c2/c1"] == pytest.approx(linear / constant) and row["N"] == 9
        assert row["c3/c1"] == pytest.approx(square / constant, abs=1e-9) and row["r_squared"] == pytest.approx(1)
    assert [row["mode"] for row in (first, second, third)] == list(known) and len(times) == 12
