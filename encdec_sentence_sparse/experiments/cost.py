"""How decoding time grows with the length of the summary: Table 1, fits of measured times.

python -m encdec_sentence_sparse.experiments.cost --csv runs/growth.csv
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import tyro
from torch import nn

from shared.data import open_output, write_csv
from shared.run import one_line_errors

from .benchmark import make_models, time_rounds


class Fit(NamedTuple):
    """A polynomial through measured times."""

    coefficients: np.ndarray  # seconds; the first belongs to the constant
    r_squared: float  # 1 = all measured times lie on it

    @property
    def normalised(self) -> np.ndarray:
        """Coefficients divided by the first, the form that the paper reports."""
        return self.coefficients / self.coefficients[0]


def fit_quadratic(targets: Sequence[float], seconds: Sequence[float]) -> Fit:
    """Coefficients of time by summary length M, (n,) of each, at a fixed source length."""
    m, times = np.asarray(targets, dtype=float), np.asarray(seconds, dtype=float)
    # Eq. (1): time = c1 + c2 M + c3 M^2
    terms = np.stack([np.ones_like(m), m, m**2], 1)
    scale = terms.max(0)  # (P^T P)^-1 P^T t of Appendix B, without the normal equations' loss of digits
    solved = np.linalg.lstsq(terms / scale, times, rcond=None)[0] / scale
    rest = ((times - terms @ solved) ** 2).sum()
    return Fit(solved, float(1 - rest / ((times - times.mean()) ** 2).sum()))


def coefficients(targets: Sequence[float], seconds: np.ndarray) -> dict:
    """Columns of a row: Eq. (1) through the medians of (rounds, n) seconds.

    The coefficients are in microseconds with 95 % intervals: of 1,000 times as many rounds, drawn with replacement.
    """
    drawn = np.random.default_rng(0).integers(len(seconds), size=(1000, len(seconds)))
    again = np.array([fit_quadratic(targets, times).coefficients for times in np.median(seconds[drawn], 1)])
    fitted, bounds = fit_quadratic(targets, np.median(seconds, 0)), np.quantile(again, [0.025, 0.975], 0)
    row = {"r_squared": fitted.r_squared}
    for number, (value, low, high) in enumerate(zip(fitted.coefficients, *bounds, strict=True), start=1):
        row[f"c{number}_us"] = {"mean": 1e6 * value, "low": 1e6 * low, "high": 1e6 * high}
        row[f"c{number}/c1"] = float(fitted.normalised[number - 1])
    return row


def operating_modes(bart: nn.Module, source: int, target: int) -> dict[str, Callable[[], object]]:
    """The three modes of Section 3 on one random document: N = source, M = target tokens.

    D22: without dropout; inference is greedy, with a cache. Times are medians (the paper: the mean of 100 passes).
    """
    tokens = partial(torch.randint, 4, bart.config.vocab_size, device=bart.device)
    document, summary = tokens((1, source)), tokens((1, target))

    def forward_and_backward() -> None:
        bart(input_ids=document, labels=summary).loss.backward()
        bart.zero_grad(set_to_none=True)

    @torch.no_grad()
    def forward() -> None:
        bart(input_ids=document, labels=summary)

    def inference() -> None:
        bart.generate(document, num_beams=1, do_sample=False, min_new_tokens=target, max_new_tokens=target)

    return {"forward+backward": forward_and_backward, "forward": forward, "inference": inference}


def table_1(bart: nn.Module, source: int, targets: Sequence[int], measure: Callable) -> list[dict]:
    """Table 1: Eq. (1) through the median times of each mode, at one source length.

    `measure` gives the seconds of each of several functions, one per round.
    """
    times, fits = [], []
    passes = {(mode, m): run for m in targets for mode, run in operating_modes(bart, source, m).items()}
    seconds = measure(passes)
    for mode in dict.fromkeys(mode for mode, _ in passes):
        rounds = np.stack([seconds[mode, m] for m in targets], 1)  # (rounds, targets)
        medians = zip(targets, np.median(rounds, 0).tolist(), strict=True)
        times += [{"table": "table_1_times", "mode": mode, "M": m, "seconds": median} for m, median in medians]
        fits.append({"table": "table_1", "mode": mode, "N": source} | coefficients(targets, rounds))
    return times + fits


def main(
    model: str = "base",
    source: int = 1024,
    targets: tuple[int, ...] = (50, 100, 150, 200, 250, 300),
    repeats: int = 6,
    csv: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Time a BART of random weights on one thread, print the fits, write times and fits as CSV."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with open_output(csv, overwrite) as file:
        bart, measure = make_models(model, torch.device("cpu"))[0], partial(time_rounds, repeats=repeats)
        rows = table_1(bart, source, targets, measure)
        used = dict(model=model, threads=1, repeats=repeats, torch=torch.__version__)
        write_csv(file, [row | used for row in rows])


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
