"""Which source tokens masked heads may see: by the reference, a tagger, or a person's words."""

import unicodedata
from collections.abc import Sequence
from zlib import crc32

import regex
import torch

from .masking import keep_at_least
from .oracle import Span, oracle_labels, token_labels, word_spans
from .tagger import Tagged
from .text import Document, transfer_scores


def by_oracle(source: str, target: str, document: Document, min_run: int = 1) -> list[bool]:
    """Section 4.1: (S,) True at the tokens that the reference takes, in runs of `min_run` words."""
    labels = token_labels(oracle_labels(source, target, min_run), document.offsets)
    return at_least([float(label) for label in labels], 0.0, source)


def by_tagger(source: str, tagged: Tagged, document: Document) -> list[bool]:
    """Section 5: (S,) True at the tokens of the words that a tagger scores above its threshold."""
    scores = transfer_scores(tagged.scores, tagged.offsets, word_spans(source), document.offsets)
    return at_least(scores, tagged.threshold, source)


def at_least(scores: Sequence[float], threshold: float, source: str) -> list[bool]:
    """`keep_at_least` of one document; its random draws depend on the document alone."""
    generator = torch.Generator().manual_seed(crc32(source.encode("utf-8", "surrogatepass")))
    return keep_at_least(torch.tensor([scores]), threshold, generator=generator)[0].tolist()


def by_phrase(source: str, phrase: str, document: Document) -> list[bool]:
    """(S,) True at the tokens of a word or phrase, wherever it stands."""
    return token_labels([(*place, True) for place in find_phrase(phrase, source)], document.offsets)


# scripts that do not part words
NO_BLANKS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"


def find_phrase(phrase: str, text: str) -> list[Span]:
    """Where a phrase stands as whole words, in any case of letters.

    In scripts without blanks it may stand inside a clause.
    """
    phrase = unicodedata.normalize("NFC", phrase.strip())  # as documents are
    parts = regex.findall(r"\w+|\s+|.", phrase)
    pattern = r"\s*".join(r"\s+" if part.isspace() else regex.escape(part) for part in parts)
    if not regex.search(NO_BLANKS, phrase):
        pattern = rf"(?<!\w)(?:{pattern})(?!\w)"
    return [match.span() for match in regex.finditer(pattern, text, regex.IGNORECASE) if parts]


def kept_text(source: str, document: Document) -> list[str]:
    """The parts of a text that masked heads see: kept tokens, neighbours joined."""
    parts: list[Span] = []
    for (start, end), is_kept in zip(document.offsets, document.keep, strict=False):
        if is_kept and start < end:
            if parts and start <= parts[-1][1]:
                parts[-1] = parts[-1][0], end
            else:
                parts.append((start, end))
    return [source[start:end] for start, end in parts]
