"""ROUGE and BLEU with their signatures, and which references they read.

ROUGE is that of `rouge-score` (Google's port of ROUGE-1.5.5; Lin 2004), with Porter's stems: F1 x
100 of each example,

    rouge1, rouge2   shared words and word pairs
    rougeLsum        for each reference sentence, the union of its common subsequences with all
                     predicted sentences

Texts come as lists of sentences: of a text without line breaks Lsum is silently plain L (README.md:
the trap). Words are English, a-z and 0-9, or with `words="unicode"` those of any script, without
stems, and in scripts without blanks characters: such values are not those of `rouge-score`.
BLEU is sacrebleu's.
"""

import sys
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from types import SimpleNamespace
from typing import Literal

import numpy as np
import regex

METRICS = ("rouge1", "rouge2", "rougeLsum")
Words = Literal["rouge-score", "unicode"]
Tokenize = Literal["13a", "zh", "ja-mecab", "ko-mecab", "char", "intl"]  # sacrebleu's
# Letters of scripts that put no blank between words.
NO_BLANKS = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"\p{Tibetan}\p{Javanese}\p{Balinese}"
    r"\p{Buginese}\p{Tai_Le}\p{New_Tai_Lue}\p{Tai_Tham}\p{Tai_Viet}\p{Ahom}\p{Yi}"
)
CHARACTER = rf"[[{NO_BLANKS}]&&[\p{{L}}\p{{N}}]]\p{{M}}*"
WORD = regex.compile(rf"(?V1){CHARACTER}|[[\p{{L}}\p{{M}}\p{{N}}]--[{NO_BLANKS}]]+")


def score(
    predictions: Sequence, references: Sequence, words: Words = "rouge-score"
) -> dict[str, np.ndarray]:
    """ROUGE of every prediction.

    Args:
        predictions: n texts, each the list of its sentences.
        references: of each prediction a list of such texts (`Example.references`). Of several the
            highest F1 counts, for each metric by itself.
        words: what a word is. For references see `check_references`.
    Returns:
        (n,) F1 values, 0-100, for each of METRICS; 0 where there is no word.
    """
    texts = [*predictions, *(text for own in references for text in own)]
    if any(isinstance(text, str) for text in texts):
        raise ValueError("a text is a list of its sentences, not a string")
    # One sentence a line: 1, 2 and L read a line break as a blank, Lsum as a sentence's end.
    scorer = _scorer(words)
    best = [
        scorer.score_multi(["\n".join(one) for one in own], "\n".join(text))
        for text, own in zip(predictions, references, strict=True)
    ]
    return {
        metric: np.array([100 * scores[metric].fmeasure for scores in best]) for metric in METRICS
    }


@lru_cache
def _scorer(words: Words):
    """The scorer of `rouge-score`; each word is stemmed once, which is half of the time."""
    from nltk.stem.porter import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize

    stemmer = SimpleNamespace(stem=lru_cache(100_000)(PorterStemmer().stem))
    tokenizers = {"rouge-score": partial(tokenize, stemmer=stemmer), "unicode": unicode_words}
    return RougeScorer(METRICS, tokenizer=SimpleNamespace(tokenize=tokenizers[words]))


def unicode_words(text: str) -> list[str]:
    """The words of any script in small letters; of scripts without blanks the characters."""
    return WORD.findall(unicodedata.normalize("NFC", text).lower())


def check_references(
    documents: Mapping[str, Sequence],
    metric: str = "rouge",
    words: Words = "rouge-score",
    tokenize: Tokenize = "13a",
) -> None:
    """Refuse references that a metric does not read, and say of which documents they are.

    rouge-score reads a-z and 0-9 alone: in "bà bán bò" it sees b, b n and b. BLEU's 13a cuts at
    blanks: in scripts without them a sentence is a word.

    Args:
        documents: by id, the references: each a string or a list of sentences.
    Raises:
        ValueError: more than 1 % of the documents have such references.
    """
    if metric == "rouge" and words == "rouge-score":
        share, most, remedy = share_unread, 0.02, "--words unicode"
        what = "letters that rouge-score does not read"
    elif metric == "bleu" and tokenize == "13a":
        share, most, remedy = share_without_blanks, 0.1, "--tokenize zh, ja-mecab or char"
        what = "a script without blanks, whose sentences 13a takes for words"
    else:
        return
    odd = []
    for name, references in documents.items():
        texts = [text if isinstance(text, str) else " ".join(text) for text in references]
        if any(share(text) > most for text in texts):
            odd.append(name)
    names = ", ".join(odd[:5]) + ", ..." * (len(odd) > 5)
    said = f"{len(odd)} of {len(documents)} documents have references in {what}: {names}"
    if len(odd) > 0.01 * len(documents):
        raise ValueError(f"{said}; give {remedy}")
    if odd:
        print(said, file=sys.stderr)


def share_unread(text: str) -> float:
    """Share of a text's letters and digits that rouge-score's tokenizer drops, 0-1."""
    letters = [letter for letter in text if letter.isalnum()]
    return sum(not letter.isascii() for letter in letters) / max(len(letters), 1)


def share_without_blanks(text: str) -> float:
    """Share of a text's letters and digits that are in scripts without blanks, 0-1."""
    characters = regex.findall(f"(?V1){CHARACTER}", text)
    return len(characters) / max(sum(map(str.isalnum, text)), 1)


def signature(metric: str, words: Words = "rouge-score", tokenize: Tokenize = "13a") -> str:
    """What has to stand under a table of "rouge" or "bleu"."""
    if metric == "bleu":
        bleu = _bleu(tokenize)
        bleu.corpus_score(["a"], [["a"]])  # before it, it has no signature
        return f"BLEU {bleu.get_signature()}"
    stems = "stemmer yes"
    if words == "unicode":
        stems = "WORDS ARE UNICODE'S, so these are not rouge-score's values"
    return (
        f"ROUGE-1/2/Lsum F1 x 100 | rouge-score {version('rouge-score')} | {stems} | tokenizer "
        f"{words} | multi-reference max | sentences by untrained Punkt"
    )


def _bleu(tokenize: Tokenize):
    from sacrebleu.metrics import BLEU

    try:
        return BLEU(tokenize=tokenize)
    except RuntimeError as error:  # a tokenizer whose library is missing
        raise ValueError(f"--tokenize {tokenize}: {error}") from None


def bleu_counts(
    predictions: Sequence[str], references: Sequence[Sequence[str]], tokenize: Tokenize = "13a"
) -> np.ndarray:
    """(n, 10) counts, which resamples add up.

    These are matches and n-grams of orders 1 to 4, the length, and the closest reference's.
    """
    metric = _bleu(tokenize)
    # What sacrebleu warns of, it sees in the whole corpus.
    metric.corpus_score(predictions, [[own[0] for own in references]])
    rows = []
    for prediction, own in zip(predictions, references, strict=True):
        part = metric.corpus_score([prediction], [[reference] for reference in own])
        rows.append([*part.counts, *part.totals, part.sys_len, part.ref_len])
    return np.array(rows, dtype=float)


def bleu_of_sums(sums: np.ndarray) -> float:
    """BLEU of the sums of `bleu_counts` over sentences."""
    from sacrebleu.metrics import BLEU

    whole = sums.astype(int).tolist()
    return BLEU.compute_bleu(whole[:4], whole[4:8], *whole[8:], smooth_method="exp").score
