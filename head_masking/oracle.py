"""Which words of a document its reference summary takes: oracle labels, by aligning the two (Section 4.1)."""

import heapq
import re
from collections.abc import Iterator, Sequence

WORD = re.compile(r"\w+|[^\w\s]")  # D4: a word is letters and digits, or one other sign
Span = tuple[int, int]  # first character, end (exclusive)


def word_spans(text: str) -> list[Span]:
    """Where the words of a text are."""
    return [match.span() for match in WORD.finditer(text)]


def longest_common_runs(source: Sequence[str], summary: Sequence[str], min_length: int = 1) -> list[bool]:
    """Oracle labels of Section 4.1. D3: runs are contiguous, where the paper says "longest common subsequences".

    Repeat: take the longest run of words that document and summary share (of equally long ones the first in the
    document, then the first in the summary), mark it, and remove it from both. What is removed is a barrier: no later
    run goes over it.

    Args:
        source, summary: words; compared in lower case.
        min_length: shorter runs are not marked, at least 1.
    Returns:
        for each source word, True = in a marked run.
    """
    if min_length < 1:
        raise ValueError(f"min_length is {min_length}: a run has at least 1 word")
    source, summary = [word.lower() for word in source], [word.lower() for word in summary]
    heap = [(-length, i, j) for i, j, length in maximal_runs(source, summary) if length >= min_length]
    heapq.heapify(heap)
    in_source, in_summary = [False] * len(source), [False] * len(summary)  # removed
    while heap:
        negative, i, j = heapq.heappop(heap)
        # A piece of a run is shorter than the run, so what is popped whole is the longest that is left.
        is_taken = [in_source[i + k] or in_summary[j + k] for k in range(-negative)]
        if any(is_taken):
            for start, end in gaps(is_taken):
                if end - start >= min_length:
                    heapq.heappush(heap, (start - end, i + start, j + start))
        else:
            in_source[i : i - negative] = [True] * -negative
            in_summary[j : j - negative] = [True] * -negative
    return in_source


def maximal_runs(source: Sequence[str], summary: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """(start in source, start in summary, length) of every common run that cannot be extended."""
    places: dict[str, list[int]] = {}
    for i, word in enumerate(source):
        places.setdefault(word, []).append(i)
    for j, word in enumerate(summary):
        for i in places.get(word, []):
            if not (i and j and source[i - 1] == summary[j - 1]):
                yield i, j, common_length(source, summary, i, j)


def common_length(source: Sequence[str], summary: Sequence[str], i: int, j: int) -> int:
    """How many words are the same from source[i] and summary[j] on."""
    length = 0
    while i + length < len(source) and j + length < len(summary) and source[i + length] == summary[j + length]:
        length += 1
    return length


def gaps(is_taken: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Start and end of every stretch of False."""
    start = 0
    for end, taken in enumerate([*is_taken, True]):
        if taken:
            if end > start:
                yield start, end
            start = end + 1


def newsroom_fragments(source: Sequence[str], summary: Sequence[str], min_length: int = 1) -> list[bool]:
    """Extractive fragments of Grusky et al. (2018), the released labels' namesake: the other reading of Section 4.1.

    From left to right over the summary: mark the longest run of the document that begins here (of equally long ones the
    first) and go on behind it; where there is none, go on by a word.

    Args and Returns: as in `longest_common_runs`.
    """
    if min_length < 1:
        raise ValueError(f"min_length is {min_length}: a run has at least 1 word")
    source, summary = [word.lower() for word in source], [word.lower() for word in summary]
    places: dict[str, list[int]] = {}
    for i, word in enumerate(source):
        places.setdefault(word, []).append(i)
    marked, j = [False] * len(source), 0
    while j < len(summary):
        lengths = {i: common_length(source, summary, i, j) for i in places.get(summary[j], [])}
        best = max(lengths, key=lengths.get, default=0)  # max takes the first of equals
        length = lengths.get(best, 0)
        if length >= min_length:
            marked[best : best + length] = [True] * length
        j += max(length, 1)
    return marked


METHODS = {"runs": longest_common_runs, "newsroom": newsroom_fragments}


def oracle_labels(
    document: str, summary: str, method: str = "runs", min_length: int = 1
) -> list[tuple[int, int, bool]]:
    """(first character, end, label) of each word of the document; True = the summary takes it.

    Args:
        method: "runs" or "newsroom".
    Raises:
        ValueError: unknown method, min_length < 1.
    """
    if method not in METHODS:
        raise ValueError(f"oracle method {method!r}: use one of {', '.join(METHODS)}")
    spans = word_spans(document)
    source, target = ([text[start:end] for start, end in word_spans(text)] for text in (document, summary))
    labels = METHODS[method](source, target, min_length)
    return [(start, end, label) for (start, end), label in zip(spans, labels, strict=True)]


def overlaps(spans: Sequence[Sequence[int]], offsets: Sequence[Span]) -> list[list[int]]:
    """For each token the indices of the words that it shares a character with; none for special tokens.

    Args:
        spans: words as (first character, end, ...), in order, none overlapping.
        offsets: (first character, end) of each token, in order; (0, 0) = special token.
    """
    first, found = 0, []
    for start, end in offsets:
        while start < end and first < len(spans) and spans[first][1] <= start:
            first += 1
        last = first
        while last < len(spans) and spans[last][0] < end:
            last += 1
        found.append(list(range(first, last)) if start < end else [])
    return found


def token_labels(spans: Sequence[tuple[int, int, bool]], offsets: Sequence[Span]) -> list[bool]:
    """Labels of words -> labels of tokens: True = the token overlaps a True word.

    D1: special tokens, whose offsets are (0, 0), are False: a masked head does not attend to `<s>` and `</s>`.

    Args:
        spans: as `oracle_labels` returns them.
        offsets: as a fast tokenizer returns them with return_offsets_mapping=True.
    """
    return [any(spans[word][2] for word in words) for words in overlaps(spans, offsets)]
