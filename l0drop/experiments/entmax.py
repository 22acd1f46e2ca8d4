"""The sparse attention that Figure 2 compares with: entmax with a learned alpha per head (Correia et al. 2019).

python -m l0drop.experiments.entmax runs/base --out runs/entmax --steps 200     # fine-tune a baseline with it
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
import tyro
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from shared.data import load

from ..config import TrainConfig, learning_rate
from ..loading import Run, load_run
from ..model import Attention, objective
from ..run import (
    Positive,
    check_fields,
    holds_run,
    load_weights,
    one_line_errors,
    read_config,
    read_flags,
    write_config,
)
from ..text import TokenBatches


@dataclass
class Options:
    """The command line."""

    base: tyro.conf.Positional[Path]  # a run without gates
    out: Path  # run folder to write
    steps: Positive = 200  # updates
    seed: int = 0


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
    """The run with entmax in the cross-attention of every decoder layer, all other weights as they are.

    Raises:
        ValueError: the run has gates, whose counts need a softmax, or is a pretrained model.
    """
    if run.config.model or run.config.l0drop != "none":
        raise ValueError("entmax goes with a baseline of our own Transformer: a run of --l0drop none")
    for layer in run.model.decoder:
        old = layer.cross_attention
        layer.cross_attention = EntmaxAttention(run.config.width, old.heads, old.dropout)
        layer.cross_attention.load_state_dict(old.state_dict(), strict=False)
    return run


def load_entmax(folder: Path) -> Run:
    """Read what `main` wrote; ValueError as of `load_run`."""
    config = read_config(folder, TrainConfig)
    run = with_entmax(load_run(config.init))._replace(config=config)
    load_weights(run.model, folder)
    return run


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.entmax", description=__doc__)
    check_fields(options)
    holds_run(options.out, resume=False)
    torch.manual_seed(options.seed)
    run = with_entmax(load_run(options.base))
    config, items = run.config, run.encode(load(run.config.data, "train"))
    optimizer = torch.optim.Adam(run.model.train().parameters(), betas=(0.9, 0.98), eps=1e-8)
    batches = islice(TokenBatches(items, config.batch_tokens, options.seed), options.steps)
    for step, indices in enumerate(tqdm(batches, total=options.steps)):
        optimizer.param_groups[0]["lr"] = learning_rate(step, config, run.first_step + config.steps)
        batch = run.collate([items[i] for i in indices])
        logits, encoding = run.model(batch.source, batch.target_input)
        loss = objective(logits, batch.target, encoding, 0.0, config.label_smoothing).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    options.out.mkdir(parents=True, exist_ok=True)
    save_file(run.model.state_dict(), options.out / "model.safetensors")
    write_config(options.out, TrainConfig(**vars(config) | {"init": str(options.base)}))
    print(f"{options.out}: loss {loss.item():.3f}; for Figure 2: figures --sparse {options.out}")


if __name__ == "__main__":
    main()
