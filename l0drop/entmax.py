"""The sparse attention that Figure 2 compares with: entmax with a learned alpha per head (Correia et al. 2019)."""

import torch
import torch.nn.functional as F
from entmax import entmax_bisect
from torch import Tensor, nn

from .model import Attention


class EntmaxAttention(Attention):
    """`Attention` whose weights may be exactly zero: alpha-entmax, alpha in (1, 2), instead of softmax."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__(width, heads, dropout)
        self.entmax_alpha = nn.Parameter(torch.zeros(heads, 1, 1))

    def weights(self, x: Tensor, keys: Tensor, bias: Tensor | None) -> Tensor:
        """(B, H, T, S); bias as in `Attention`."""
        logits = self.split_heads(self.query(x)) @ keys.transpose(-1, -2) / keys.size(-1) ** 0.5
        logits = logits.float() if bias is None else (logits + bias).float()
        finite = logits.masked_fill(logits == -torch.inf, -1e4)  # entmax has no -inf
        return entmax_bisect(finite, 1 + torch.sigmoid(self.entmax_alpha)).to(x.dtype)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
        """As `Attention.forward`."""
        weights = F.dropout(self.weights(x, keys, bias), self.dropout, self.training)
        return self.output((weights @ values).transpose(1, 2).flatten(2))
