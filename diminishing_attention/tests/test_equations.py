"""Equations 1 and 9-13 against loops and closed forms; the properties that the paper claims."""

import itertools
import math
import random
from functools import partial

import numpy as np
import pytest
import torch

from ..diminishing import (
    CONCAVE,
    Diminishing,
    DiminishingState,
    concave,
    coverage_value,
    effective_coverage,
)
from . import reference

KINDS = [
    *(Diminishing("dim", f) for f in CONCAVE),
    Diminishing("dydim"),
    Diminishing("dydim", f="sqrt"),
]


def weights(
    *shape: int, sharpness: float = 2.0, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """Random softmax weights; the last dimension sums to 1."""
    return (sharpness * torch.randn(*shape, dtype=torch.float64)).softmax(-1).to(dtype)


def stepwise(mechanism: Diminishing, attention: torch.Tensor) -> torch.Tensor:
    """`step` over the second last dimension of (..., T, S)."""
    state, gains = DiminishingState.start(attention.unbind(-2)[0].shape), []
    for row in attention.unbind(-2):
        gain, state = mechanism.step(row, state)
        gains.append(gain)
    return torch.stack(gains, -2)


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
    by_loop, functions = reference.dim_attention, [mechanism.f]
    if mechanism.kind == "dydim":  # f1 and f2: the paper's pair, or exchanged
        by_loop, functions = reference.dynamic_attention, ["sqrt", "log"]
        if mechanism.f == "sqrt":
            functions.reverse()
    want = np.array([[by_loop(a.numpy(), *functions) for a in row] for row in attention])
    assert np.allclose(mechanism.sequence(attention).numpy(), want, atol=1e-12)
    assert np.allclose(stepwise(mechanism, attention).numpy(), want, atol=1e-12)
    single = attention.float()
    assert np.allclose(mechanism.sequence(single).numpy(), want, atol=1e-6)
    assert np.allclose(stepwise(mechanism, single).numpy(), want, atol=1e-6)


@pytest.mark.parametrize("f", CONCAVE)
def test_eq10_eq11_d4_the_sum_of_dim_attention_telescopes(f):
    """D4: the constant cancels, and a token that nothing attends to has no coverage."""
    attention = weights(30, 8)
    attention[:, 1] = 0
    gains = Diminishing("dim", f).sequence(attention)
    assert torch.allclose(gains.cumsum(0), effective_coverage(attention, f), atol=1e-12)
    difference = coverage_value(attention, f) - reference.FUNCTIONS[f](0)
    assert torch.allclose(gains.cumsum(0), difference, atol=1e-12) and not gains[:, 1].any()
    shifted = coverage_value(attention, f, constant=5.0)
    assert torch.allclose(shifted.diff(dim=0), gains[1:], atol=1e-12)


def test_not_telescoping_dynamic_attention():
    """P changes from step to step: the same weights in another order have another sum.

    So the token with the largest summed attention may have less coverage than another, which
    DimAttn rules out.
    """
    attention = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], dtype=torch.float64)
    for kind, telescopes in (("dim", True), ("dydim", False)):
        orders = map(list, itertools.permutations(range(3)))
        sums = [Diminishing(kind).sequence(attention[order]).sum(0)[0] for order in orders]
        assert (max(sums) - min(sums) < 1e-12) == telescopes
        once_or_often = torch.tensor([[1.0, 0.0], *[[0.0, 0.09]] * 10])  # sums of 1 and 0.9
        one, other = Diminishing(kind).sequence(once_or_often).sum(0)
        assert (one > other) == telescopes


def test_eq12_d2_the_peak_is_over_steps_and_includes_this_one():
    rows = [[0.2, 0.7, 0.1], [0.5, 0.1, 0.4], [0.1, 0.6, 0.3]]
    attention = torch.tensor(rows, dtype=torch.float64)
    state = DiminishingState.start((3,))
    peaks = []
    for row in attention:
        _, state = Diminishing("dydim").step(row, state)
        peaks.append(state.peak.tolist())
    assert peaks == [[0.2, 0.7, 0.1], [0.5, 0.7, 0.4], [0.5, 0.7, 0.4]]
    # At the first step P is that step's own weight: a sqrt(1 + a) - a + (1 - a) log(1 + a).
    first = Diminishing("dydim").sequence(attention)[0]
    for a, gain in zip(rows[0], first.tolist(), strict=True):
        want = a * (math.sqrt(1 + a) - 1) + (1 - a) * math.log(1 + a)
        assert gain == pytest.approx(want, abs=1e-12)


def test_d3_log_has_the_lower_second_derivative_and_sqrt_the_smaller_weights():
    """The paper: f1 = sqrt(x + 1) has the lower second derivative.

    Below x = 15 it is log(x + 1).
    """
    for x, lower in ((0.5, "log"), (14.0, "log"), (16.0, "sqrt")):
        around = torch.tensor([x - 1e-3, x, x + 1e-3], dtype=torch.float64)
        second = {f: concave(around, f).diff(n=2).item() for f in CONCAVE}
        assert min(second, key=second.get) == lower
    attention = weights(3, 50)  # sums below 3
    sqrt, log = (Diminishing("dim", f).sequence(attention) for f in ("sqrt", "log"))
    assert (sqrt < log).all()


def coverage_of_set(chosen: list[int], attention: torch.Tensor, f: str) -> float:
    """Eq. (9) for a set of steps, summed over the source tokens; F(empty) = 0."""
    return effective_coverage(attention[chosen], f)[-1].sum().item() if chosen else 0.0


@pytest.mark.parametrize("f", CONCAVE)
def test_eq9_monotone_and_submodular_over_random_sets_and_orders(f):
    """F(S + v) - F(S) >= F(T + v) - F(T) for S within T and v outside (Definition 1)."""
    chance = random.Random(0)
    for _ in range(100):
        attention = weights(8, 4, sharpness=chance.choice([0.5, 2.0, 6.0]))
        order = chance.sample(range(8), 8)
        v, larger = order[0], order[1 : 1 + chance.randint(1, 7)]
        smaller = larger[: chance.randint(0, len(larger))]
        value = partial(coverage_of_set, attention=attention, f=f)
        gain_small = value([*smaller, v]) - value(smaller)
        gain_large = value([*larger, v]) - value(larger)
        assert gain_large >= -1e-12 and gain_small >= gain_large - 1e-12
        if len(smaller) < len(larger) and attention[v].max() >= 0.05:
            assert gain_small > gain_large + 1e-6
        assert value(larger) == pytest.approx(value(chance.sample(larger, len(larger))))


@pytest.mark.parametrize("f", CONCAVE)
def test_eq1_greedy_reaches_its_bound(f):
    """Greedy has at least (1 - 1/e) of the best choice's coverage (Nemhauser et al. 1978)."""
    worst = 1.0
    for _ in range(25):
        attention, budget, chosen = weights(8, 5, sharpness=4.0), 3, []
        value = partial(coverage_of_set, attention=attention, f=f)
        while len(chosen) < budget:
            larger = [[*chosen, v] for v in range(8) if v not in chosen]
            chosen = max(larger, key=value)
        best = max(value([*steps]) for steps in itertools.combinations(range(8), budget))
        worst = min(worst, value(chosen) / best)
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
    """Many small weights: summed in half precision they would stand still at about 2 or 16.

    Padding, which has none, gains exactly nothing.
    """
    attention = torch.full((400, 2), 0.05, dtype=dtype)
    attention[:, 1] = 0
    want = mechanism.sequence(attention.double())
    for found in (mechanism.sequence(attention), stepwise(mechanism, attention)):
        assert found.dtype == dtype and not found[:, 1].any()
        assert torch.allclose(found.double(), want, rtol=0.01, atol=1e-7)
    state = DiminishingState.start((2,))
    assert mechanism.step(attention[0], state)[1].coverage.dtype == torch.float32
