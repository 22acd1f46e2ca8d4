"""BLEU by sacrebleu (13a, with case or without), from counts that resamples of the sentences can add up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def counts(predictions: Sequence[str], references: Sequence[Sequence[str]], lowercase: bool = False) -> np.ndarray:
    """(n, 10) of each sentence: matches and n-grams of orders 1 to 4, length, length of the closest reference."""
    from sacrebleu.metrics import BLEU

    metric, rows = BLEU(lowercase=lowercase), []
    for prediction, own in zip(predictions, references, strict=True):
        part = metric.corpus_score([prediction], [[reference] for reference in own])
        rows.append([*part.counts, *part.totals, part.sys_len, part.ref_len])
    return np.array(rows, dtype=float)


def of_sums(sums: np.ndarray) -> float:
    """BLEU of the sums of `counts` over sentences."""
    from sacrebleu.metrics import BLEU

    whole = sums.astype(int).tolist()
    return BLEU.compute_bleu(whole[:4], whole[4:8], *whole[8:], smooth_method="exp").score


def signature() -> str:
    """What has to stand under a table of BLEU."""
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    metric.corpus_score(["a"], [["a"]])  # before it, it has no signature
    return f"BLEU {metric.get_signature()}; bleu_lc: case:lc"
