"""HardConcrete gates: the L0Drop layer and the compressed memory of Algorithm 1.

Copy this file alone to gate any sequence of vectors: it needs nothing but torch. B sentences, S
source tokens, R rows of the memory, D model width; PAPER.md has the symbols.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

# Temperature (Appendix A, after Louizos et al. 2018); smaller is more binary.
BETA = 2 / 3
# Stretch.  D1: Appendix A prints -0.1, which is Louizos' gamma; Eq. (7) and (13) need +0.1.
EPSILON = 0.1


class L0Drop(nn.Module):
    """The neural sparsity layer: one scalar gate per encoder output, predicted from that output.

    Args:
        width: D.
        bias: give the predictor of Eq. (9) a bias, as the released code does (D3).
        start: D15: where that bias starts; 0 as released, 3 starts with open gates.
    """

    def __init__(self, width: int, bias: bool = True, start: float = 0.0):
        super().__init__()
        self.predictor = nn.Linear(width, 1, bias=bias)
        nn.init.xavier_uniform_(self.predictor.weight)  # released code: Glorot uniform
        if bias:
            nn.init.constant_(self.predictor.bias, start)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gate every state (B, S, D): sampled gates in training mode, expected gates in eval mode.

        Returns:
            gated states (B, S, D), gates (B, S) in [0, 1], log_alpha (B, S).
        """
        # Eq. (9).  D3: plus a bias, as the released code has it.
        log_alpha = self.predictor(states).squeeze(-1).float()  # (B, S)
        # Eq. (5) in training, Eq. (13) at test time.
        gates = sample_gates(log_alpha) if self.training else expected_gates(log_alpha)
        # Eq. (4)
        return gates.unsqueeze(-1).to(states.dtype) * states, gates, log_alpha


def sample_gates(
    log_alpha: Tensor, beta: float = BETA, epsilon: float = EPSILON, uniform: Tensor | None = None
) -> Tensor:
    """Draw gates g ~ HardConcrete(alpha, beta, epsilon), Eq. (5), by reparameterisation.

    The noise does not depend on `log_alpha` (B, S), so the gradient reaches it through every gate
    inside (0, 1).

    Args:
        uniform: (B, S) the noise, uniform on (0, 1); drawn anew without it.
    Returns:
        (B, S) float32 gates in [0, 1].
    """
    if uniform is None:
        uniform = torch.rand(log_alpha.shape, device=log_alpha.device).clamp(1e-6, 1 - 1e-6)
    noise = torch.log(uniform) - torch.log1p(-uniform)
    # Eq. (6): a sigmoid of logistic noise around log alpha.
    samples = torch.sigmoid((noise + log_alpha.float()) / beta)
    # Eq. (7): stretch from (0, 1) to (-epsilon, 1 + epsilon).
    stretched = samples * (1 + 2 * epsilon) - epsilon
    # Eq. (8): the hard sigmoid collapses what lies outside [0, 1] onto exactly 0 and 1.
    return stretched.clamp(0, 1)


def expected_gates(log_alpha: Tensor, epsilon: float = EPSILON) -> Tensor:
    """The gate used at test time, Eq. (13): (B, S) float32 in [0, 1].

    Exactly 0 where log_alpha <= -log((1 + epsilon) / epsilon) = -2.398, exactly 1 where it is >=
    2.398. There is no beta in it: this is the rectified mean of the noise-free gate, not the mean
    of the distribution.
    """
    # Eq. (13)
    return (torch.sigmoid(log_alpha.float()) * (1 + 2 * epsilon) - epsilon).clamp(0, 1)


def open_probability(log_alpha: Tensor, beta: float = BETA, epsilon: float = EPSILON) -> Tensor:
    """Probability that a gate is not exactly zero, Eq. (10)'s summand: (B, S) float32 in (0, 1)."""
    # Eq. (10): 1 - p(g_i = 0). The line below Eq. (8) gives p; 1 - sigmoid(z) = sigmoid(-z).
    return torch.sigmoid(log_alpha.float() - beta * math.log(epsilon / (1 + epsilon)))


def l0_penalty(log_alpha: Tensor, keep: Tensor) -> Tensor:
    """Expected number of open gates, Eq. (10), as a share of the real tokens: (B,) in [0, 1]."""
    # Eq. (10)
    expected_open = (open_probability(log_alpha) * keep).sum(-1)
    # D2: the released code's scale, on which lambda in (0, 1.5] makes sense.
    return expected_open / keep.sum(-1)


class Memory(NamedTuple):
    """What the decoder attends to."""

    states: Tensor  # (B, R, D)
    # (B, R) added to the logits: 0 for one position, log n for n of them, -inf for padding
    log_counts: Tensor


def dense_memory(states: Tensor, keep: Tensor) -> Memory:
    """All gated states (B, S, D), zeros included, padding hidden: what Eq. (11) attends to."""
    return Memory(states, keep.log())  # log 1 = 0, log 0 = -inf


def compress(states: Tensor, gates: Tensor, keep: Tensor) -> Memory:
    """Algorithm 1, lines 1-4: the open states in order, and one dummy for all pruned ones.

    Attention over the result equals attention over `dense_memory(states, keep)` exactly (Algorithm
    1, lines 5-8: a softmax with counts is a softmax of logits plus log counts), because every
    pruned state is the same zero vector.

    Args:
        states: (B, S, D) gated states, already multiplied by their gates (line 4).
    Returns:
        Memory of R = 1 + max retained rows, or of max retained rows when nothing at all was pruned.
    """
    # Algorithm 1, lines 1-2: I = {i : gate_i != 0}; real tokens first come first, in their order.
    retained = (gates != 0) & keep  # (B, S)
    lengths = retained.sum(-1)  # (B,)
    order = torch.argsort(~retained, dim=-1, stable=True)[:, : int(lengths.max())]  # (B, R)
    states = states.gather(1, order.unsqueeze(-1).expand(-1, -1, states.size(-1)))  # (B, R, D)
    places = torch.arange(order.size(1), device=order.device)  # (R,)
    log_counts = (places < lengths.unsqueeze(-1)).log()  # (B, R)
    # Algorithm 1, line 3: c = N - N'.  Padding is not in N.
    pruned = keep.sum(-1) - lengths  # (B,)
    if not pruned.any():  # D11: nothing to stand for
        return Memory(states, log_counts)
    # Algorithm 1, line 4: the zero vector in front; log 0 = -inf hides it where none is pruned.
    dummy = states.new_zeros(states.size(0), 1, states.size(-1))
    return Memory(
        torch.cat([dummy, states], 1),
        torch.cat([pruned.float().log().unsqueeze(-1), log_counts], 1),
    )
