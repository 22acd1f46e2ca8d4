"""ROUGE and BLEU with their signatures.

ROUGE is that of `rouge-score` (Google's port of ROUGE-1.5.5; Lin 2004), with Porter's stems: F1 x
100 of each example,

    rouge1, rouge2   shared words and word pairs
    rougeLsum        for each reference sentence, the union of its common subsequences with all
    predicted sentences

Texts come as lists of sentences: of a text without line breaks Lsum is silently plain L (README.md:
the trap). Where references are not English words are Unicode's, without stems, and in scripts
without blanks characters (`words_of`): such values are not those of `rouge-score`, which reads a-z
and 0-9 alone. BLEU is sacrebleu's.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import regex

METRICS = ("rouge1", "rouge2", "rougeLsum")
# Letters of scripts that put no blank between words.
NO_BLANKS = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\p{Javanese}\p{Balinese}"
    r"\p{Buginese}\p{Tai_Le}\p{New_Tai_Lue}\p{Tai_Tham}\p{Tai_Viet}\p{Ahom}\p{Yi}"
)
CHARACTER = rf"[[{NO_BLANKS}]&&[\p{{L}}\p{{N}}]]\p{{M}}*"
WORD = regex.compile(rf"(?V1){CHARACTER}|[[\p{{L}}\p{{M}}\p{{N}}]--[{NO_BLANKS}]]+")
# Of five English words one is among these; no other language in Latin letters has many of them.
ENGLISH = {*"the and with that this from are were has she they his their which been would".split()}


def score(predictions: Sequence, references: Sequence, words: str = "") -> dict[str, np.ndarray]:
    """ROUGE of every prediction.

    Args:
        predictions: n texts, each the list of its sentences.
        references: of each prediction a list of such texts (`Example.references`). Of several the
            highest F1 counts, for each metric by itself.
        words: "rouge-score" or "unicode"; "": what `words_of` says of the references.
    Returns:
        (n,) F1 values, 0-100, for each of METRICS; 0 where there is no word.
    """
    if any(
        isinstance(text, str)
        for text in [*predictions, *(one for own in references for one in own)]
    ):
        raise ValueError("a text is a list of its sentences, not a string")
    # One sentence a line. L, 1 and 2 read a line break as a blank, so one form of a text serves all
    # metrics.
    texts = [["\n".join(text) for text in own] for own in references]
    scorer = _scorer(words or words_of(text for own in texts for text in own))
    best = [
        scorer.score_multi(own, "\n".join(text))
        for text, own in zip(predictions, texts, strict=True)
    ]
    return {
        metric: np.array([100 * scores[metric].fmeasure for scores in best]) for metric in METRICS
    }


def words_of(references: Iterable[str]) -> str:
    """What the words of a corpus are: "rouge-score" (a-z, 0-9, stems) or "unicode".

    The first where references have no other letters, or are English with some, and it reads
    something of each.
    """
    texts = [unicode_words(reference) for reference in references]
    words = [word for text in texts for word in text]
    foreign, english = (
        sum(not word.isascii() for word in words),
        sum(word in ENGLISH for word in words),
    )
    is_read = all(any(letter.isascii() for letter in "".join(text)) for text in texts if text)
    return "rouge-score" if is_read and (foreign == 0 or foreign < english) else "unicode"


def unicode_words(text: str) -> list[str]:
    """The words of any script in small letters with their marks; of scripts without blanks the
    characters.
    """
    return WORD.findall(unicodedata.normalize("NFC", text).lower())


@lru_cache
def _scorer(words: str):
    """The scorer of `rouge-score`, imported when it is needed; each word is stemmed once, which is
    half of the time.
    """
    from nltk.stem.porter import PorterStemmer
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize

    stemmer = SimpleNamespace(stem=lru_cache(100_000)(PorterStemmer().stem))
    tokenizers = {"rouge-score": partial(tokenize, stemmer=stemmer), "unicode": unicode_words}
    return RougeScorer(METRICS, tokenizer=SimpleNamespace(tokenize=tokenizers[words]))


def signature(metric: str, words: str) -> str:
    """What has to stand under a table of "rouge1" or "bleu"; `words` is what `words_of` or
    `bleu_tokenizer` said.
    """
    if metric == "bleu":
        from sacrebleu.metrics import BLEU

        bleu = BLEU(tokenize=words)
        bleu.corpus_score(["a"], [["a"]])  # before it, it has no signature
        return f"BLEU {bleu.get_signature()}"
    own = (
        "WORDS ARE UNICODE'S, so these are not rouge-score's values"
        if words == "unicode"
        else "stemmer yes"
    )
    settings = f"{own} | tokenizer {words} | multi-reference max | sentences by untrained Punkt"
    return f"ROUGE-1/2/Lsum F1 x 100 | rouge-score {version('rouge-score')} | {settings}"


def bleu_tokenizer(references: Iterable[str]) -> str:
    """sacrebleu's tokenizer: 13a, or for scripts without blanks zh (Chinese alone) or char."""
    letters = "".join(letter for text in references for letter in text[:200] if letter.isalnum())
    characters = regex.findall(f"(?V1){CHARACTER}", letters)
    if 5 * len(characters) < len(letters) or not letters:
        return "13a"
    return "zh" if all(regex.match(r"\p{Han}", character) for character in characters) else "char"


def bleu_counts(
    predictions: Sequence[str], references: Sequence[Sequence[str]], tokenize: str
) -> np.ndarray:
    """(n, 10) counts, which resamples add up: matches and n-grams of orders 1 to 4, length, the
    closest reference's.
    """
    from sacrebleu.metrics import BLEU

    metric, rows = BLEU(tokenize=tokenize), []
    # what sacrebleu warns of, it sees in the whole
    metric.corpus_score(predictions, [[own[0] for own in references]])
    for prediction, own in zip(predictions, references, strict=True):
        part = metric.corpus_score([prediction], [[reference] for reference in own])
        rows.append([*part.counts, *part.totals, part.sys_len, part.ref_len])
    return np.array(rows, dtype=float)


def bleu_of_sums(sums: np.ndarray) -> float:
    """BLEU of the sums of `bleu_counts` over sentences."""
    from sacrebleu.metrics import BLEU

    whole = sums.astype(int).tolist()
    return BLEU.compute_bleu(whole[:4], whole[4:8], *whole[8:], smooth_method="exp").score
