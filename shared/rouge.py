"""ROUGE and BLEU with their signatures, and tables of numbers with intervals.

ROUGE is that of `rouge-score` (Google's port of ROUGE-1.5.5; Lin 2004), with Porter's stems: F1 x 100 of each example,

    rouge1, rouge2   shared words and word pairs
    rougeL           the longest common subsequence of the two whole texts
    rougeLsum        for each reference sentence, the union of its common subsequences with all predicted sentences

The trap: most papers' "ROUGE-L" is Lsum (the Perl script's), and `rouge-score` knows sentences by line breaks alone.
Text without line breaks gets an Lsum that silently equals L (README.md). So here texts come as lists of sentences; one
string is one sentence, unless it has line breaks. Words are a-z and 0-9: ROUGE of other scripts means nothing, and is
refused. BLEU is sacrebleu's.
"""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np

METRICS = ("rouge1", "rouge2", "rougeL", "rougeLsum")


# ROUGE


def score(predictions: Sequence, references: Sequence) -> dict[str, np.ndarray]:
    """ROUGE of every prediction.

    Args:
        predictions: n texts, each a string or the list of its sentences; an empty one scores 0.
        references: n texts, each a string, the list of its sentences, or a list of such lists: several references
            (`Example.references`). Of several, the highest F1 counts, for each metric by itself.
    Returns:
        (n,) F1 values, 0-100, for each of METRICS.
    Raises:
        ValueError: no predictions, another number of references, a reference that ROUGE cannot read.
    """
    if not len(predictions) or len(predictions) != len(references):
        raise ValueError(f"need as many predictions as references, got {len(predictions)} and {len(references)}")
    scorer = _scorer()
    values = np.zeros((len(METRICS), len(predictions)))
    for n, (prediction, reference) in enumerate(zip(predictions, references, strict=True)):
        several = isinstance(reference, list) and any(isinstance(text, list) for text in reference)
        texts = [_lines(text) for text in (reference if several else [reference])]
        check_text(texts, f"reference {n}")
        best = scorer.score_multi(texts, _lines(prediction))
        values[:, n] = [100 * best[metric].fmeasure for metric in METRICS]
    return dict(zip(METRICS, values, strict=True))


@lru_cache
def _scorer():
    """The scorer of `rouge-score`, imported when it is needed; each word is stemmed once, which is half of the time."""
    from nltk.stem.porter import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize

    stemmer = SimpleNamespace(stem=lru_cache(100_000)(PorterStemmer().stem))
    return RougeScorer(METRICS, tokenizer=SimpleNamespace(tokenize=partial(tokenize, stemmer=stemmer)))


def check_references(examples: Sequence) -> None:
    """ValueError that names the first of `shared.data.Example`s with a reference that ROUGE cannot read."""
    for example in examples:
        check_text(example.references, example.id)


def check_text(texts: Sequence, where: str) -> None:
    """ValueError for a text of whose letters and digits ROUGE would drop more than half: all but a-z and 0-9."""
    for text in texts:
        letters = [letter for letter in _lines(text).lower() if letter.isalnum()]
        if not letters or 2 * sum(letter.isascii() for letter in letters) < len(letters):
            raise ValueError(f"{where}: ROUGE reads a-z and 0-9 alone, so not {str(text)[:60]!r}: take --metric bleu")


def _lines(text: str | list[str]) -> str:
    """One sentence a line. L, 1 and 2 read a line break as a blank, so one form of a text serves all metrics."""
    sentences = text.split("\n") if isinstance(text, str) else text
    return "\n".join(" ".join(sentence.split()) for sentence in sentences)


def signature(n: int) -> str:
    """What has to stand under a table of `score`'s values over n examples."""
    settings = "stemmer yes | tokenizer default | Lsum split on newline | multi-reference max"
    return f"ROUGE-1/2/Lsum F1 x 100 | rouge-score {version('rouge-score')} | {settings} | n {n}"


# BLEU, from counts that resamples of the sentences can add up


def bleu_tokenizer(references: Sequence[str]) -> str:
    """sacrebleu's tokenizer for the script of most letters: 13a, or for text without blanks zh (Chinese) or char."""
    letters = [letter for text in references for letter in text[:200] if letter.isalpha()]
    names = [unicodedata.name(letter, "").split(" ")[0].split("-")[0] for letter in letters]
    script = max(set(names), key=names.count, default="")
    if script == "CJK" and {"HIRAGANA", "KATAKANA"}.isdisjoint(names):
        return "zh"
    return "char" if script in ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR") else "13a"


def bleu_counts(predictions: Sequence[str], references: Sequence[Sequence[str]], **settings) -> np.ndarray:
    """(n, 10) of each sentence: matches and n-grams of orders 1 to 4, length, length of the closest reference.

    Args:
        settings: `lowercase` and `tokenize` of sacrebleu's BLEU.
    """
    from sacrebleu.metrics import BLEU

    metric, rows = BLEU(**settings), []
    for prediction, own in zip(predictions, references, strict=True):
        part = metric.corpus_score([prediction], [[reference] for reference in own])
        rows.append([*part.counts, *part.totals, part.sys_len, part.ref_len])
    return np.array(rows, dtype=float)


def bleu_of_sums(sums: np.ndarray) -> float:
    """BLEU of the sums of `bleu_counts` over sentences."""
    from sacrebleu.metrics import BLEU

    whole = sums.astype(int).tolist()
    return BLEU.compute_bleu(whole[:4], whole[4:8], *whole[8:], smooth_method="exp").score


def bleu_signature(tokenize: str = "13a") -> str:
    """What has to stand under a table of BLEU."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize=tokenize)
    metric.corpus_score(["a"], [["a"]])  # before it, it has no signature
    return f"BLEU {metric.get_signature()}; bleu_lc: case:lc"


# Tables


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
