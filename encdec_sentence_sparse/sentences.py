"""Where sentences begin and end: in characters, and in tokens.

Two rules (D8): "given" (the data's own sentences) and "nltk" (the paper's: NLTK's English punkt model).
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

Span = tuple[int, int]  # first character and the one behind the last

RULES = ("given", "nltk")


@lru_cache(maxsize=1)
def load_punkt() -> object:
    """NLTK's English PunktTokenizer; nothing is downloaded."""
    try:
        from nltk.tokenize.punkt import PunktTokenizer

        return PunktTokenizer("english")
    except ImportError:
        raise ImportError("the rule 'nltk' needs NLTK: pip install 'nltk>=3.9.1'") from None
    except LookupError:
        raise ValueError("NLTK has no punkt model on this machine: python -m nltk.downloader punkt_tab") from None


def punkt_spans(text: str) -> list[Span]:
    """Sentences of a text by punkt, at least one."""
    spans = [(start, end) for start, end in load_punkt().span_tokenize(text) if start < end]
    return spans or [(0, len(text))]


def given_spans(sentences: Sequence[str]) -> list[Span]:
    """Spans of sentences in their text, which is `" ".join(sentences)`."""
    starts = accumulate((len(sentence) + 1 for sentence in sentences), initial=0)
    return [(start, start + len(sentence)) for start, sentence in zip(starts, sentences, strict=False)]


def token_sentence_ids(offsets: Sequence[Span], spans: Sequence[Span], is_special: Sequence[int]) -> list[int]:
    """The sentence of each token: 0, 1, ... without gaps; sentences without a token are not counted.

    A token belongs to the sentence of its last character, and what stands between two sentences to the one before.
    `<s>` belongs to the first.

    Args:
        offsets: (S,) first character and end of each token; is_special: (S,) true for `<s>` and `</s>`.
    """
    starts, ids, sentence = [start for start, _ in spans], [], 0
    last_text = max((i for i, special in enumerate(is_special) if not special), default=-1)
    for i, ((_, end), special) in enumerate(zip(offsets, is_special, strict=True)):
        if not special:
            sentence = max(sentence, bisect_right(starts, end - 1) - 1)
        # D7: `</s>` is a sentence of its own, which counts toward r.
        ids.append(len(spans) + i if special and i > last_text >= 0 else sentence)
    numbers = {sentence: number for number, sentence in enumerate(dict.fromkeys(ids))}
    return [numbers[sentence] for sentence in ids]  # [2, 2, 5] -> [0, 0, 1]
