"""Section 4.1's oracle labels: which words of a document its reference summary takes."""

from collections.abc import Sequence
from difflib import SequenceMatcher

import regex  # its \w has combining marks, at which Python's own `re` cuts words

# D4: a word is letters with their marks and digits, or one other sign
WORD = regex.compile(r"\w+|[^\w\s]")
Span = tuple[int, int]  # first character, end (exclusive)


def word_spans(text: str) -> list[Span]:
    """Where the words of a text are."""
    return [match.span() for match in WORD.finditer(text)]


def longest_common_runs(
    source: Sequence[str], summary: Sequence[str], min_length: int = 1
) -> list[bool]:
    """Oracle labels of Section 4.1.

    D3: runs are contiguous, where the paper says "longest common subsequences".

    Repeat: take the longest run of words that document and summary share (of equally long ones the
    first in the document, then the first in the summary), mark it, and remove it from both. What is
    removed is a barrier: no later run goes over it. Case does not matter. For each source word,
    True = in a marked run of at least `min_length` words.
    """
    if min_length < 1:
        raise ValueError(f"min_length is {min_length}: a run has at least 1 word")
    source, summary = [word.lower() for word in source], [word.lower() for word in summary]
    marked = [False] * len(source)
    while True:
        i, j, length = SequenceMatcher(None, source, summary, autojunk=False).find_longest_match()
        if length < min_length:
            return marked
        marked[i : i + length] = [True] * length
        source[i : i + length] = [""] * length  # equal to no word
        summary[j : j + length] = [None] * length


def oracle_labels(document: str, summary: str, min_length: int = 1) -> list[tuple[int, int, bool]]:
    """(first character, end, label) of each word of the document; True = the summary takes it."""
    spans = word_spans(document)
    source = [document[start:end] for start, end in spans]
    target = WORD.findall(summary)
    labels = longest_common_runs(source, target, min_length)
    return [(*span, label) for span, label in zip(spans, labels, strict=True)]


def overlaps(spans: Sequence[Sequence[int]], offsets: Sequence[Span]) -> list[list[int]]:
    """For each token the indices of the words that it shares a character with.

    Special tokens, (0, 0), have none. Words and tokens stand in order, and no words overlap.
    """
    first, words = 0, []
    for start, end in offsets:
        while start < end and first < len(spans) and spans[first][1] <= start:
            first += 1
        last = first
        while last < len(spans) and spans[last][0] < end:
            last += 1
        words.append(list(range(first, last)) if start < end else [])
    return words


def token_labels(spans: Sequence[tuple[int, int, bool]], offsets: Sequence[Span]) -> list[bool]:
    """Labels of words, as of `oracle_labels`, -> of tokens: True = it overlaps a True word.

    D1: special tokens, whose offsets are (0, 0), are False: a masked head does not attend to `<s>`
    and `</s>`.
    """
    return [any(spans[word][2] for word in words) for words in overlaps(spans, offsets)]
