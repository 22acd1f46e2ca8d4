"""ROUGE with its signature, confidence intervals and a paired test between two systems.

The scores are those of `rouge-score` (Google's port of ROUGE-1.5.5; Lin 2004): F1 x 100 of each example,

    rouge1, rouge2   shared words and word pairs
    rougeL           the longest common subsequence of the two whole texts
    rougeLsum        for each reference sentence, the union of its common subsequences with all predicted sentences

The trap: most papers' "ROUGE-L" is Lsum (the Perl script's), and `rouge-score` knows sentences by line breaks alone.
Text without line breaks gets an Lsum that silently equals L (README.md). So here texts come as lists of sentences; one
string is one sentence, unless it has line breaks. Words are a-z and 0-9: ROUGE of other scripts means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import numpy as np

METRICS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
WORD = re.compile("[a-z0-9]")  # in lower case


def score(predictions: Sequence, references: Sequence, stemmer: bool = True) -> dict[str, np.ndarray]:
    """ROUGE of every prediction.

    Args:
        predictions: n texts, each a string or the list of its sentences; an empty one scores 0.
        references: n texts, each a string, the list of its sentences, or a list of such lists: several references
            (`Example.references`). Of several, the highest F1 counts, for each metric by itself.
        stemmer: compare stems (Porter), option -m of ROUGE-1.5.5.
    Returns:
        (n,) F1 values, 0-100, for each of METRICS.
    Raises:
        ValueError: no predictions, another number of references, a reference without words.
    """
    if not len(predictions) or len(predictions) != len(references):
        raise ValueError(f"need as many predictions as references, got {len(predictions)} and {len(references)}")
    scorer = _scorer(stemmer)
    values = np.zeros((len(METRICS), len(predictions)))
    for n, (prediction, reference) in enumerate(zip(predictions, references, strict=True)):
        several = isinstance(reference, list) and any(isinstance(text, list) for text in reference)
        texts = [_lines(text) for text in (reference if several else [reference])]
        if not all(WORD.search(text.lower()) for text in texts):
            raise ValueError(f"reference {n} has no word of a-z or 0-9: {reference!r}")
        best = scorer.score_multi(texts, _lines(prediction))
        values[:, n] = [100 * best[metric].fmeasure for metric in METRICS]
    return dict(zip(METRICS, values, strict=True))


@lru_cache
def _scorer(stemmer: bool) -> Any:
    """The scorer of `rouge-score`, imported when it is needed; each word is stemmed once, which is half of the time."""
    from nltk.stem.porter import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize

    stem = SimpleNamespace(stem=lru_cache(100_000)(PorterStemmer().stem)) if stemmer else None
    return RougeScorer(METRICS, tokenizer=SimpleNamespace(tokenize=partial(tokenize, stemmer=stem)))


def check_references(examples: Sequence) -> None:
    """ValueError that names the first of `shared.data.Example`s with a reference that ROUGE cannot read."""
    for example in examples:
        for text in map(_lines, example.references):
            if not WORD.search(text.lower()):
                raise ValueError(f"{example.id}: the reference {text[:60]!r} has no word of a-z or 0-9, so no ROUGE")


def _lines(text: str | list[str]) -> str:
    """One sentence a line. L, 1 and 2 read a line break as a blank, so one form of a text serves all metrics."""
    sentences = text.split("\n") if isinstance(text, str) else text
    return "\n".join(" ".join(sentence.split()) for sentence in sentences)


def signature(n: int, stemmer: bool = True) -> str:
    """What has to stand under a table of `score`'s values over n examples."""
    settings = f"stemmer {'yes' if stemmer else 'no'} | tokenizer default | Lsum split on newline | multi-reference max"
    return f"ROUGE-1/2/L/Lsum F1 x 100 | rouge-score {version('rouge-score')} | {settings} | n {n}"


def interval(values: Sequence[float], confidence=0.95, samples=10_000, seed=0) -> dict[str, float]:
    """{mean, low, high} of (n,) values by the percentile bootstrap (Efron and Tibshirani 1993, chapter 13)."""
    from scipy.stats import bootstrap

    values = _finite(values)
    low = high = mean = float(values.mean())
    if len(values) > 1:
        options = {"n_resamples": samples, "batch": 1 + 1_000_000 // len(values), "rng": seed}
        ends = bootstrap((values,), np.mean, method="percentile", confidence_level=confidence, **options)
        low, high = map(float, ends.confidence_interval)
    return {"mean": mean, "low": low, "high": high}


def paired_test(a: Sequence[float], b: Sequence[float], samples=10_000, seed=0) -> float:
    """Two-sided p-value of the difference of the means of two systems on the same n > 1 examples.

    By approximate randomisation (Noreen 1989): the two outputs of each example are swapped with probability 1/2. p is
    twice the share of swaps that give a difference as large, the observed data counted as one more, so that it is
    never 0. Of few examples all 2^n swaps are made instead.
    """
    from scipy.stats import permutation_test

    a, b = _finite(a), _finite(b)
    if len(a) != len(b):
        raise ValueError(f"a paired test needs the same examples: {len(a)} values against {len(b)}")
    options = {"n_resamples": samples, "batch": 1 + 1_000_000 // len(a), "rng": seed, "vectorized": True}
    swaps = permutation_test((a, b), lambda x, y, axis: (x - y).mean(axis), permutation_type="samples", **options)
    return float(swaps.pvalue)


def _finite(values: Sequence[float]) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"need a list of finite numbers, at least one, got {values!r}")
    return values


def table(rows: Sequence[dict]) -> str:
    """Markdown table, a line per row, a column per key of any row.

    {mean, low, high} prints as `41.20 [40.10, 42.30]`, {difference, low, high, p} as `+1.20 [0.40, 2.00] p 0.004`, a
    float with two decimals, None and what a row lacks as `-`.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns] + [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def _cell(value: object) -> str:
    if isinstance(value, dict):
        first = f"{value['mean']:.2f}" if "mean" in value else f"{value['difference']:+.2f}"
        return f"{first} [{value['low']:.2f}, {value['high']:.2f}]" + (f" p {value['p']:.3f}" if "p" in value else "")
    return "-" if value is None else f"{value:.2f}" if isinstance(value, (float, np.floating)) else str(value)
