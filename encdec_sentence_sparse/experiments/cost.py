"""How decoding time grows with the lengths: Table 1 and Appendix B, fits of measured times.

python -m encdec_sentence_sparse.experiments.cost --csv runs/growth.csv
"""

from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import tyro
from torch import nn

from shared.data import open_output, write_csv
from shared.run import one_line_errors
from shared.timing import time_rounds

from .benchmark import make_models

MODES = ("forward+backward", "forward", "inference")
# N, M
LENGTHS = {
    "base": ((256, 448, 640, 832, 1024), (50, 100, 150, 200, 250, 300)),
    "tiny": ((4, 6, 8), (2, 3, 4)),
}


def quadratic(m: np.ndarray) -> list[np.ndarray]:
    """Terms of the time by summary length M at a fixed source length."""
    # Eq. (1): time = c1 + c2 M + c3 M^2
    return [m**0, m, m**2]


def row_of(terms: list[np.ndarray], seconds: np.ndarray) -> dict:
    """A fit through the medians of (rounds, n) seconds: coefficients in microseconds, and over c1.

    Their 95 % intervals are of 1,000 times as many rounds, drawn with replacement.
    """
    p = np.stack(terms, 1).astype(float)
    solve = np.linalg.pinv(p)  # (P^T P)^-1 P^T of Appendix B, without the loss of digits of P^T P
    drawn = np.random.default_rng(0).integers(len(seconds), size=(1000, len(seconds)))
    low, high = np.quantile(np.median(seconds[drawn], 1) @ solve.T, [0.025, 0.975], 0)
    times = np.median(seconds, 0)
    found = solve @ times
    row = {"r_squared": 1 - (times - p @ found).var() / times.var()}
    for i, value in enumerate(found):
        row[f"c{i + 1}_us"] = {"mean": 1e6 * value, "low": 1e6 * low[i], "high": 1e6 * high[i]}
        row[f"c{i + 1}/c1"] = value / found[0]
    return row


def run_mode(bart: nn.Module, mode: str, source: int, target: int) -> None:
    """A pass over N = source random tokens and M = target ones, in a mode of Section 3.

    D22: without dropout; inference is greedy, with a cache. Times are medians (the paper: the mean
    of 100 passes).
    """
    document = torch.randint(4, bart.config.vocab_size, (1, source))
    summary = torch.randint(4, bart.config.vocab_size, (1, target))
    if mode == "inference":
        length = dict(min_new_tokens=target, max_new_tokens=target)
        bart.generate(document, num_beams=1, do_sample=False, **length)
        return
    with torch.set_grad_enabled(mode == "forward+backward"):
        loss = bart(input_ids=document, labels=summary).loss
    if loss.requires_grad:
        loss.backward()
        bart.zero_grad()


def fits(seconds: dict, sources: tuple[int, ...], targets: tuple[int, ...]) -> list[dict]:
    """Table 1 for each mode at the longest source, and Appendix B.

    Args:
        seconds: (mode, N, M) -> (rounds,).
    """
    rows = []
    terms = quadratic(np.array(targets))
    for mode in MODES:
        times = np.stack([seconds[mode, sources[-1], m] for m in targets], 1)  # (rounds, n)
        rows.append({"table": "table_1", "mode": mode} | row_of(terms, times))
    n, m = np.array([(n, m) for n in sources for m in targets]).T
    times = np.stack([seconds[MODES[0], *place] for place in zip(n, m, strict=True)], 1)
    # Appendix B: c4 is cross-attention's, c5 and c6 are those of either self-attention.
    return [*rows, {"table": "appendix_b"} | row_of([m**0, m, n, m * n, m**2, n**2], times)]


def main(
    model: Literal["base", "tiny"] = "base",
    repeats: int = 6,
    csv: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Time a BART of random weights on one thread; write median times and fits as CSV."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with open_output(csv, overwrite) as file:
        bart, (sources, targets) = make_models(model)[0], LENGTHS[model]
        places = [(MODES[0], n, m) for n in sources for m in targets]
        places += [(mode, sources[-1], m) for mode in MODES[1:] for m in targets]
        times = time_rounds({place: partial(run_mode, bart, *place) for place in places}, repeats)
        seconds = {place: part.seconds for place, part in times.items()}
        rows = []
        for mode, n, m in places:
            median = np.median(seconds[mode, n, m])
            rows.append({"mode": mode, "N": n, "M": m, "seconds": median})
        write_csv(file, rows + fits(seconds, sources, targets))


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
