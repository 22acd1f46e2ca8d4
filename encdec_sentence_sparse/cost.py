"""How decoding time grows with the lengths of source and summary: least-squares fits of measured times.

Measured times come from `python -m encdec_sentence_sparse.benchmark --table-1` or `--appendix-b`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


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
    m = np.asarray(targets, dtype=float)
    # Eq. (1): time = c1 + c2 M + c3 M^2
    return least_squares(np.stack([np.ones_like(m), m, m**2], 1), seconds)


def fit_surface(targets: Sequence[float], sources: Sequence[float], seconds: Sequence[float]) -> Fit:
    """Appendix B, of time by summary length M and source length N: c1 + c2 M + c3 N + c4 M N + c5 M^2 + c6 N^2.

    c4 is the cost of cross-attention per pair of positions, c5 that of the decoder's self-attention, c6 the encoder's.
    """
    m, n = np.asarray(targets, dtype=float), np.asarray(sources, dtype=float)
    return least_squares(np.stack([np.ones_like(m), m, n, m * n, m**2, n**2], 1), seconds)


def least_squares(terms: np.ndarray, seconds: Sequence[float]) -> Fit:
    """(n, terms) and (n,) -> (P^T P)^-1 P^T t of Appendix B; ValueError where the lengths leave coefficients open."""
    times, scale = np.asarray(seconds, dtype=float), np.abs(terms).max(0)
    solved, _, rank, _ = np.linalg.lstsq(
        terms / scale, times, rcond=None
    )  # without the normal equations' loss of digits
    if rank < terms.shape[1]:
        raise ValueError(f"{len(times)} times leave {terms.shape[1]} coefficients open: measure at more lengths")
    rest = ((times - terms @ (solved / scale)) ** 2).sum()
    total = ((times - times.mean()) ** 2).sum()
    return Fit(solved / scale, float(1 - rest / total) if total else 1.0)
