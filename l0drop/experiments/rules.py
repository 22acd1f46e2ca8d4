"""Rule-based sparse patterns (Section 7) and the six types of source units they and Figure 5 are built on.

A unit is one subword or character; the final </s> is none of the types, and no pattern drops it (D9).
"""

from collections import Counter
from collections.abc import Sequence

# Footnote 9.  A tag belongs to a group if it starts with one of these: NN covers NNS and NNP, VB covers VBD.
FUNCTION_TAGS = ("CC", "IN", "RP", "TO", "UH", "DT", "WP")
CONTENT_TAGS = ("MD", "JJ", "NN", "RB", "VB")
PUNCTUATION_TAGS = ("-LRB-", "-RRB-", "HYPH", "NFP", "``", "''", ",", ".", ":")
UNIT_TYPES = ("BPEH", "BPEO", "function", "content", "punctuation", "other")  # the curves of Figure 5
EASY_TAGS = ("MD", "EX")  # what the POS pattern drops beyond function words, punctuation and BPEO
PATTERNS = ("none", "pos", "freq", "inv_freq", "group")  # Table 2

# Section 7: the 100 most frequent words cover 46.3 % of the training source, those beyond rank 452 about 40.0 %.
SHARES = {"freq": 0.463, "inv_freq": 0.40}


def tag_group(tag: str) -> str:
    """Group of a Penn tag: "function", "content", "punctuation" or "other" (footnote 9)."""
    for group, tags in (("function", FUNCTION_TAGS), ("content", CONTENT_TAGS), ("punctuation", PUNCTUATION_TAGS)):
        if tag.startswith(tags):
            return group
    return "other"


def unit_types(words: Sequence[int], tags: Sequence[str]) -> list[str]:
    """Type of every unit of a source (Section 6, "What types of source encoding").

    Pieces of a segmented word are "BPEH" (its first) and "BPEO" (the others) whatever the word's tag; an unsegmented
    word has the group of its tag.

    Args:
        words: index of the word that each unit belongs to, non-decreasing.
        tags: Penn tag of that word, one per unit.
    """
    pieces, seen, types = Counter(words), set(), []
    for word, tag in zip(words, tags, strict=True):
        if pieces[word] == 1:
            types.append(tag_group(tag))
        else:
            types.append("BPEO" if word in seen else "BPEH")
        seen.add(word)
    return types


def tags_of_units(starts: Sequence[int], spans: Sequence[tuple[int, int, str]]) -> list[str]:
    """Tag of every unit: that of the tagged token which its first character lies in.

    Args:
        starts: character offset at which each unit begins.
        spans: (start, end, tag) of each token, in order, end exclusive.
    Raises:
        ValueError: a unit lies in no token.
    """
    tags = [next((tag for first, end, tag in spans if first <= start < end), None) for start in starts]
    if None in tags:
        where = starts[tags.index(None)]
        raise ValueError(f"no part-of-speech tag covers character {where}; the tokens must cover the whole source")
    return tags


def keep_pos(types: Sequence[str], tags: Sequence[str]) -> list[bool]:
    """POS pattern: drop function words, punctuation, BPEO, and words tagged MD or EX."""
    dropped, pairs = ("function", "punctuation", "BPEO"), zip(types, tags, strict=True)
    return [kind not in dropped and (kind == "BPEH" or tag not in EASY_TAGS) for kind, tag in pairs]


def keep_group(length: int) -> list[bool]:
    """Group pattern: keep the odd positions 1, 3, 5, ... (counted from one)."""
    return [position % 2 == 1 for position in range(1, length + 1)]


def dropped_by_frequency(sources: Sequence[Sequence[int]], share: float, rarest: bool = False) -> set[int]:
    """Units that the Freq pattern drops (the most frequent), or with `rarest` the Inv Freq pattern (the rarest).

    D5: units are taken from that end of the ranking for as long as together they cover at most `share` of the corpus;
    the paper's ranks (100, 452) belong to its own corpus and vocabulary.

    Args:
        sources: token ids of the training sources, without </s>.
        share: in (0, 1), see SHARES.
    """
    counts = Counter(unit for source in sources for unit in source)
    ranking = sorted(counts, key=lambda unit: (-counts[unit], unit), reverse=rarest)
    budget, dropped = share * counts.total(), set()
    for unit in ranking:
        budget -= counts[unit]
        if budget < 0:
            break
        dropped.add(unit)
    return dropped
