"""Where sentences begin and end: in characters, and in tokens.

Three rules: "given" (the data's own sentences), "nltk" (the paper's: NLTK's English punkt model), "eos-token" (the
released code's: after every full-stop token).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

Span = tuple[int, int]  # first character and the one behind the last

RULES = ("given", "nltk", "eos-token")
ENDS = ("own", "last")


@dataclass(frozen=True)
class Splitter:
    """How documents are split; ValueError or ImportError where that cannot be done here."""

    rule: str = "given"  # one of RULES. D8: released code "eos-token", whatever the paper says
    eos: str = "own"  # D7: `</s>` is a sentence of its own (released code), or belongs to the "last"
    eos_ids: tuple[int, ...] = ()  # tokens that end a sentence, with "eos-token"; `</s>` always does

    def __post_init__(self):
        if self.rule not in RULES:
            raise ValueError(f"sentences is {self.rule!r}; use one of {', '.join(RULES)}")
        if self.eos not in ENDS:
            raise ValueError(f"eos is {self.eos!r}; use one of {', '.join(ENDS)}")
        if self.rule == "eos-token" and not self.eos_ids:
            raise ValueError("the rule 'eos-token' needs eos_ids: the ids of the tokens that end a sentence")
        if self.rule == "nltk":
            load_punkt()


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
    spans, start = [], 0
    for sentence in sentences:
        spans.append((start, start + len(sentence)))
        start += len(sentence) + 1
    return spans


def token_sentence_ids(
    offsets: Sequence[Span], spans: Sequence[Span], is_special: Sequence[int], eos: str = "own"
) -> list[int]:
    """The sentence of each token: 0, 1, ... without gaps; sentences without a token are not counted.

    A token belongs to the sentence of its last character, and what stands between two sentences to the one before.
    `<s>` belongs to the first; `eos` says where a `</s>` behind the text belongs, see `Splitter`.

    Args:
        offsets: (S,) first character and end of each token; is_special: (S,) true for `<s>` and `</s>`.
    """
    starts, ids, sentence = [start for start, _ in spans], [], 0
    last_text = max((i for i, special in enumerate(is_special) if not special), default=-1)
    for i, ((_, end), special) in enumerate(zip(offsets, is_special, strict=True)):
        if not special:
            sentence = max(sentence, bisect_right(starts, end - 1) - 1)
        # D7: a sentence of its own, which counts toward r.
        ids.append(len(spans) + i if special and i > last_text >= 0 and eos == "own" else sentence)
    numbers = {sentence: number for number, sentence in enumerate(dict.fromkeys(ids))}
    return [numbers[sentence] for sentence in ids]  # [2, 2, 5] -> [0, 0, 1]


def eos_token_sentences(ids: Sequence[int], eos_ids: Sequence[int]) -> list[int]:
    """The sentence of each token by the released rule: one ends after every token of `eos_ids` and after `</s>` (2)."""
    sentence_ids, sentence = [], 0
    for token in ids:
        sentence_ids.append(sentence)
        sentence += token == 2 or token in eos_ids
    return sentence_ids
