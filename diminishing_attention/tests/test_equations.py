"""Equations 1 and 9-13 of diminishing.py against loops and closed forms, and the properties that the paper claims."""

import itertools
import math
import random

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ..diminishing import CONCAVE, Diminishing, DiminishingState, concave, coverage_value, effective_coverage
from . import reference

KINDS = [Diminishing("dim", f) for f in CONCAVE] + [
    Diminishing("dydim"),
    Diminishing("dydim", f1="log", f2="sqrt"),
]


def weights(*shape: int, sharpness: float = 2.0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Random softmax weights; the last dimension sums to 1."""
    return (sharpness * torch.randn(*shape, dtype=torch.float64)).softmax(-1).to(dtype)


def stepwise(mechanism: Diminishing, attention: torch.Tensor) -> torch.Tensor:
    """`step` over the second last dimension of (..., T, S)."""
    state = DiminishingState.start(attention.unbind(-2)[0].shape)
    gains = []
    for row in attention.unbind(-2):
        gain, state = mechanism.step(row, state)
        gains.append(gain)
    return torch.stack(gains, -2)


def expected(mechanism: Diminishing, attention: np.ndarray) -> np.ndarray:
    if mechanism.kind == "dim":
        return reference.dim_attention(attention, mechanism.f)
    return reference.dynamic_attention(attention, mechanism.f1, mechanism.f2)


@pytest.mark.parametrize("f", CONCAVE)
def test_eq9_coverage_is_a_concave_function_of_the_sum(f):
    attention = weights(7, 5)
    found = coverage_value(attention, f, constant=0.25)
    for t, i in np.ndindex(7, 5):
        want = reference.FUNCTIONS[f](sum(attention[k, i].item() for k in range(t + 1))) + 0.25
        assert found[t, i].item() == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("mechanism", KINDS, ids=str)
def test_eq10_eq13_all_steps_at_once_and_one_by_one_match_the_loops(mechanism):
    attention = weights(2, 3, 9, 6)
    want = np.array([[expected(mechanism, a.numpy()) for a in row] for row in attention])
    assert np.allclose(mechanism.sequence(attention).numpy(), want, atol=1e-12)
    assert np.allclose(stepwise(mechanism, attention).numpy(), want, atol=1e-12)
    single = attention.float()
    assert np.allclose(mechanism.sequence(single).numpy(), want, atol=1e-6)
    assert torch.allclose(stepwise(mechanism, single), mechanism.sequence(single), atol=1e-6, rtol=0)


@pytest.mark.parametrize("f", CONCAVE)
def test_eq10_eq11_the_sum_of_dim_attention_telescopes(f):
    attention = weights(30, 8)
    gains = Diminishing("dim", f).sequence(attention)
    found = effective_coverage(attention, f)
    assert torch.allclose(gains.cumsum(0), found, atol=1e-12)
    zero = torch.zeros(8, dtype=torch.float64)
    difference = coverage_value(attention, f) - concave(zero, f)
    assert torch.allclose(found, difference, atol=1e-12)


def test_d4_the_constant_cancels_and_an_unseen_token_has_no_coverage():
    attention = weights(4, 3)
    attention[:, 1] = 0
    with_constant = coverage_value(attention, constant=5.0)
    differences = with_constant.diff(dim=0)
    assert torch.allclose(differences, Diminishing("dim").sequence(attention)[1:], atol=1e-12)
    assert not effective_coverage(attention, "sqrt")[:, 1].any() and coverage_value(attention, "sqrt")[0, 1] == 1


def test_not_telescoping_dynamic_attention():
    """P changes from step to step: the same weights in another order have another sum."""
    attention = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], dtype=torch.float64)
    mechanism = Diminishing("dydim")
    sums = [mechanism.sequence(attention[list(order)]).sum(0)[0] for order in itertools.permutations(range(3))]
    assert max(sums) - min(sums) > 0.01
    sums = [Diminishing("dim").sequence(attention[list(o)]).sum(0)[0] for o in itertools.permutations(range(3))]
    assert max(sums) - min(sums) < 1e-12


def test_eq12_d2_the_peak_is_over_steps_and_includes_this_one():
    attention = torch.tensor([[0.2, 0.7, 0.1], [0.5, 0.1, 0.4], [0.1, 0.6, 0.3]], dtype=torch.float64)
    state = DiminishingState.start((3,))
    peaks = []
    for row in attention:
        _, state = Diminishing("dydim").step(row, state)
        peaks.append(state.peak.tolist())
    assert peaks == [[0.2, 0.7, 0.1], [0.5, 0.7, 0.4], [0.5, 0.7, 0.4]]
    # At the first step P is that step's own weight: a sqrt(1 + a) - a + (1 - a) log(1 + a).
    first = Diminishing("dydim").sequence(attention)[0]
    for a, gain in zip([0.2, 0.7, 0.1], first.tolist(), strict=True):
        assert gain == pytest.approx(a * (math.sqrt(1 + a) - 1) + (1 - a) * math.log(1 + a), abs=1e-12)


def test_d3_log_has_the_lower_second_derivative_and_sqrt_the_smaller_weights():
    """The paper: f1 = sqrt(x + 1) has the lower second derivative. Below x = 15 it is log(x + 1)."""

    def second(f: str, x: float) -> float:
        step = 1e-3
        below, here, above = (concave(torch.tensor(x + d, dtype=torch.float64), f) for d in (-step, 0.0, step))
        return ((above - 2 * here + below) / step**2).item()

    assert second("sqrt", 0.5) == pytest.approx(-0.25 * 1.5**-1.5, abs=1e-4)
    assert second("log", 0.5) < second("sqrt", 0.5) and second("log", 14.0) < second("sqrt", 14.0)
    assert second("log", 16.0) > second("sqrt", 16.0)
    attention = weights(3, 50)  # sums below 3
    assert (Diminishing("dim", "sqrt").sequence(attention) < Diminishing("dim", "log").sequence(attention)).all()
    assert (Diminishing().f1, Diminishing().f2) == ("sqrt", "log")  # the stated pair stays


def coverage_of_set(chosen: list[int], attention: torch.Tensor, f: str) -> float:
    """Eq. (9) for a set of steps, summed over the source tokens; F(empty) = 0."""
    if not chosen:
        return 0.0
    zero = torch.zeros((), dtype=attention.dtype)
    return (coverage_value(attention[chosen], f)[-1] - concave(zero, f)).sum().item()


@pytest.mark.parametrize("f", CONCAVE)
def test_eq9_monotone_and_submodular_over_random_sets_and_orders(f):
    """F(S + v) - F(S) >= F(T + v) - F(T) for S within T and v outside (Definition 1)."""
    chance = random.Random(0)
    for _ in range(100):
        attention = weights(8, 4, sharpness=chance.choice([0.5, 2.0, 6.0]))
        order = chance.sample(range(8), 8)
        v, larger = order[0], order[1 : 1 + chance.randint(1, 7)]
        smaller = larger[: chance.randint(0, len(larger))]
        gain_small = coverage_of_set([*smaller, v], attention, f) - coverage_of_set(smaller, attention, f)
        gain_large = coverage_of_set([*larger, v], attention, f) - coverage_of_set(larger, attention, f)
        assert gain_large >= -1e-12 and gain_small >= gain_large - 1e-12
        assert gain_small > gain_large + 1e-6 or len(smaller) == len(larger) or attention[v].max() < 0.05
        shuffled = chance.sample(larger, len(larger))
        assert coverage_of_set(larger, attention, f) == pytest.approx(coverage_of_set(shuffled, attention, f))


@pytest.mark.parametrize("f", CONCAVE)
def test_eq1_greedy_reaches_its_bound(f):
    """Greedy choice of `budget` steps has at least (1 - 1/e) of the best choice's coverage (Nemhauser et al. 1978)."""
    worst = 1.0
    for _ in range(25):
        attention, budget, chosen = weights(8, 5, sharpness=4.0), 3, []
        while len(chosen) < budget:
            rest = [v for v in range(8) if v not in chosen]
            chosen.append(max(rest, key=lambda v: coverage_of_set([*chosen, v], attention, f)))  # noqa: B023
        best = max(coverage_of_set(list(s), attention, f) for s in itertools.combinations(range(8), budget))
        worst = min(worst, coverage_of_set(chosen, attention, f) / best)
    assert 1 - 1 / math.e <= worst <= 1


@pytest.mark.parametrize("mechanism", KINDS, ids=str)
def test_gradients_of_both_ways(mechanism):
    attention = weights(2, 5, 3).requires_grad_()
    assert torch.autograd.gradcheck(mechanism.sequence, attention)
    probe = torch.randn(2, 5, 3, dtype=torch.float64)
    (all_at_once,) = torch.autograd.grad((mechanism.sequence(attention) * probe).sum(), attention)
    (one_by_one,) = torch.autograd.grad((stepwise(mechanism, attention) * probe).sum(), attention)
    assert torch.allclose(all_at_once, one_by_one, atol=1e-12)


@pytest.mark.parametrize("mechanism", KINDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_neither_overflows_nor_stalls(mechanism, dtype):
    """Many steps of a small weight: summed in half precision the coverage would stand still at about 2 or 16."""
    attention = torch.full((400, 2), 0.05, dtype=dtype)
    attention[:, 1] = 0
    want = mechanism.sequence(attention.double())
    for found in (mechanism.sequence(attention), stepwise(mechanism, attention)):
        assert found.dtype == dtype and not found[:, 1].any()
        assert torch.allclose(found.double(), want, rtol=0.01, atol=1e-7)
    state = DiminishingState.start((2,))
    assert mechanism.step(attention[0], state)[1].coverage.dtype == torch.float32


@pytest.mark.parametrize("mechanism", KINDS, ids=str)
def test_limit_padding_gains_exactly_nothing(mechanism):
    attention = F.pad(weights(6, 3, dtype=torch.float32), (0, 2))
    attention.requires_grad_()
    gains = mechanism.sequence(attention)
    gains.sum().backward()
    assert not gains[:, 3:].any() and attention.grad.isfinite().all()


def test_state_follows_the_rows():
    state = DiminishingState(torch.arange(6.0).view(3, 2), -torch.arange(6.0).view(3, 2))
    moved = state.reorder(torch.tensor([2, 0, 0]))
    assert moved.coverage.tolist() == [[4, 5], [0, 1], [0, 1]] and moved.peak.tolist() == [[-4, -5], [0, -1], [0, -1]]
    assert state.coverage[0, 0] == 0 and DiminishingState.start((2, 3)).peak.tolist() == [[0, 0, 0]] * 2
