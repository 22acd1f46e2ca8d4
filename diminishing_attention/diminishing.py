"""Diminishing attention: a weight is what the source token's coverage gains (symbols: PAPER.md).

`Diminishing.sequence` takes all steps at once, `Diminishing.step` one step and a state. What is
accumulated is always the softmax weights, never the gains. Sums are kept in float32 (float64 if the
weights are), also under half precision: the gains shrink as the sums grow. Weights are not checked:
a negative one may give NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

KINDS = ("none", "dim", "dydim")
CONCAVE = ("log", "sqrt")  # log(x + 1), sqrt(x + 1)


def concave(x: Tensor, f: str = "log") -> Tensor:
    """f(x) of one of CONCAVE, elementwise; x >= 0. Natural logarithm."""
    return torch.log1p(x) if f == "log" else torch.sqrt(1 + x)


def coverage_value(attention: Tensor, f: str = "log", constant: float = 0.0) -> Tensor:
    """Submodular coverage of each token after each step, (..., T, S) -> (..., T, S).

    Of all sets of steps within a budget, Eq. (1), a greedy choice would reach 1 - 1/e of the best.
    A decoder cannot choose, for its steps come one by one: so its attention is summed as it comes
    (Section 3.2's compromise). `constant` is C.
    """
    # Eq. (9): concave in the sum, so monotone and submodular in the set of looks
    return concave(widen(attention).cumsum(-2), f) + constant


def effective_coverage(attention: Tensor, f: str = "log") -> Tensor:
    """Sum of a token's DimAttn up to each step, (..., T, S) -> (..., T, S).

    The sum telescopes; DyDimAttn's does not, for its P changes from step to step.
    """
    # Eq. (11). D4: C cancels and is left out; F(empty) is f(0), so a token that nothing attends to
    # has 0.
    return coverage_value(attention, f) - concave(torch.zeros(()), f)


def widen(attention: Tensor) -> Tensor:
    """Half precision -> float32; float32 and float64 as they are."""
    return attention.to(torch.promote_types(attention.dtype, torch.float32))


class DiminishingState(NamedTuple):
    """What a decoder carries from step to step; in beam search it follows its hypothesis."""

    coverage: Tensor  # (..., S) float32, sum of the attention of the steps before
    peak: Tensor  # (..., S) float32, its maximum

    @classmethod
    def start(cls, shape: Sequence[int], device=None) -> "DiminishingState":
        """Nothing has been attended to."""
        return cls(torch.zeros(shape, device=device), torch.zeros(shape, device=device))

    def reorder(self, rows: Tensor) -> "DiminishingState":
        """Rows (the first dimension) in another order; `rows` may repeat and leave out some."""
        return DiminishingState(*(tensor.index_select(0, rows) for tensor in self))


@dataclass(frozen=True)
class Diminishing:
    """Which attention a model has: plain, DimAttn or DyDimAttn. No parameters, no loss (Remark 1).

    Raises:
        ValueError: an unknown kind or function.
    """

    kind: str = "none"  # "none": plain attention; "dim": Eq. (10); "dydim": Eq. (13)
    # f of DimAttn, and f2 of DyDimAttn, whose f1 is the other one of CONCAVE (Section 4.2)
    f: str = "log"

    def __post_init__(self):
        if self.kind not in KINDS or self.f not in CONCAVE:
            raise ValueError(
                f"{self}: the kinds are {', '.join(KINDS)}, the functions {', '.join(CONCAVE)}"
            )

    def sequence(self, attention: Tensor) -> Tensor:
        """Weights of all steps at once, without a loop; for the kind "none" the attention itself.

        Args:
            attention: (..., T, S), T >= 1.
        Returns:
            (..., T, S), of the attention's type.
        """
        if self.kind == "none":
            return attention
        wide = widen(attention)
        # the coverage without the step itself, (..., T, S)
        before = F.pad(wide.cumsum(-2)[..., :-1, :], (0, 0, 1, 0))
        # Eq. (12): how likely the token has ever been the most important one.
        # D2: the step itself is in it.
        peak = wide.cummax(-2).values
        return self.gain(before, wide, peak).to(attention.dtype)

    def step(self, attention: Tensor, state: DiminishingState) -> tuple[Tensor, DiminishingState]:
        """Weights of one step, (..., S), and the state for the next; every kind keeps the state."""
        wide = widen(attention)
        # Eq. (12), one step on
        after = DiminishingState(state.coverage + wide, torch.maximum(state.peak, wide))
        if self.kind == "none":
            return attention, after
        return self.gain(state.coverage, wide, after.peak).to(attention.dtype), after

    def gain(self, before: Tensor, attention: Tensor, peak: Tensor) -> Tensor:
        """The new weights: of the coverage before, the weights of now, and P, all of one shape."""
        now = before + attention

        def difference(f: str) -> Tensor:  # F(A^t) - F(A^t-1); in float32 within 2e-6 for 400 steps
            return concave(now, f) - concave(before, f)

        if self.kind == "dim":
            # Eq. (10)
            return difference(self.f)
        # D3: f1 is meant to be the stronger one. By the weights sqrt is: below a sum of 3 it has
        # the smaller gains. By the second derivative, the reason that the paper gives, log is: at 0
        # that is -1, for sqrt -1/4.
        f1 = "sqrt" if self.f == "log" else "log"
        # Eq. (13): once a token has been the most important one, f1 counts for it; P is a soft rank
        return peak * difference(f1) + (1 - peak) * difference(self.f)
