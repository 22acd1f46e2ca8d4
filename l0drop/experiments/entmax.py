"""The sparse attention that Figure 2 compares with: entmax with a learned alpha per head (Correia et al. 2019)."""

from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from shared.data import load

from ..config import learning_rate
from ..loading import Run
from ..model import Attention, objective
from ..text import TokenBatches


class EntmaxAttention(Attention):
    """`Attention` whose weights may be exactly zero: alpha-entmax, alpha in (1, 2), instead of softmax."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__(width, heads, dropout)
        self.entmax_alpha = nn.Parameter(torch.zeros(heads, 1, 1))

    def weights(self, queries: Tensor, keys: Tensor, bias: Tensor | None) -> Tensor:
        """(B, H, T, S); arguments as of `Attention.weights`."""
        from entmax import entmax_bisect

        logits = queries @ keys.transpose(-1, -2) / keys.size(-1) ** 0.5
        logits = logits.float() if bias is None else (logits + bias).float()
        finite = logits.masked_fill(logits == -torch.inf, -1e4)  # entmax has no -inf
        return entmax_bisect(finite, 1 + torch.sigmoid(self.entmax_alpha)).to(queries.dtype)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
        """As `Attention.forward`."""
        weights = self.weights(self.split_heads(self.query(x)), keys, bias)
        weights = F.dropout(weights, self.dropout, self.training)
        return self.output((weights @ values).transpose(1, 2).flatten(2))


def with_entmax(run: Run) -> Run:
    """The run, changed: entmax in the cross-attention of every decoder layer, all other weights as they are."""
    for layer in run.model.decoder:
        old = layer.cross_attention
        layer.cross_attention = EntmaxAttention(run.config.width, old.heads, old.dropout)
        layer.cross_attention.load_state_dict(old.state_dict(), strict=False)
    return run


def fine_tune(baseline: Run, steps: int, seed: int = 0) -> Run:
    """A baseline with entmax, after so many updates more at the rate that it has come to."""
    torch.manual_seed(seed)
    run = with_entmax(baseline)
    config, items = run.config, run.encode(load(run.config.data, "train"))
    optimizer = torch.optim.Adam(run.model.train().parameters(), betas=(0.9, 0.98), eps=1e-8)
    batches = islice(TokenBatches(items, config.batch_tokens, seed), steps)
    for step, indices in enumerate(tqdm(batches, total=steps, disable=None)):
        optimizer.param_groups[0]["lr"] = learning_rate(step, config, run.first_step + config.steps)
        batch = run.collate([items[i] for i in indices])
        logits, encoding = run.model(batch.source, batch.target_input)
        objective(logits, batch.target, encoding, 0.0, config.label_smoothing).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    run.model.eval()
    return run
