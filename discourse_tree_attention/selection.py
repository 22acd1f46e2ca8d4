"""From unit scores to a summary; from a reference to the units that a model learns to take."""

import re
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from .matrices import dependency_parents
from .trees import Node

UNITS_TAKEN = {"edu": 6, "sentence": 3}  # Section 5.1
ORACLE_UNITS = {"edu": 10, "sentence": 5}  # most picks of the oracle (released data preparation)
# rouge-score's words, unstemmed: letters a-z and digits, in small letters.
WORD = re.compile("[a-z0-9]+")
# NLTK's 179 English stop words of 2019, which the released data preparation (DiscoBERT) leaves out
# of the single words. The 26 with an apostrophe are missing: WORD cuts them.
STOP_WORDS = frozenset(
    """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she
    her hers herself it its itself they them their theirs themselves what which who whom this that
    these those am is are was were be been being have has had having do does did doing a an the and
    but if or because as until while of at by for with about against between into through during
    before after above below to from up down in out on off over under again further then once here
    there when where why how all any both each few more most other some such no nor not only own
    same so than too very s t can will just don should now d ll m o re ve y ain aren couldn didn
    doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
    """.split()
)


def select(
    scores: Sequence[float],
    required: Sequence[Sequence[int]],
    count: int,
    lengths=None,
    max_words=0,
) -> list:
    """Indices of the best units, in the order of the document, each with those that it requires.

    Args:
        scores: (N,) any numbers; of equal ones the earlier unit is taken first.
        required: of each unit those it cannot stand without (`required_units`); empty lists at
            sentence level.
        count: stop when this many units are taken.
        lengths, max_words: (N,) words of each unit; stop also at this many words (released code:
            80); 0 = no limit.
    """
    taken: set[int] = set()
    for unit in np.argsort(-np.asarray(scores, dtype=float), kind="stable").tolist():
        if len(taken) >= count or (max_words and sum(lengths[i] for i in taken) >= max_words):
            break
        # Section 5.1: 6 EDUs with their ancestors, or 3 sentences. D8: the ancestors count.
        taken |= {unit, *required[unit]}
    return sorted(taken)


def required_units(tree: Node, sentence: np.ndarray) -> list[list[int]]:
    """The dependency restriction: each EDU's ancestors within its `sentence`, the nearest first."""
    # D17: DiscoBERT's edges without its conditions: a right Nucleus hangs on the left one, too.
    parents = dependency_parents(tree, right_nuclei=True)
    required = []
    for edu in range(len(parents)):
        chain, parent = [edu], int(parents[edu])
        # Section 5.1: "all ancestors of a selected EDU within the same sentence" are added.
        while parent != chain[-1] and sentence[parent] == sentence[edu]:
            chain.append(parent)
            parent = int(parents[parent])
        required.append(chain[1:])
    return required


def join_units(units: Sequence[str], sentence: Sequence[int], taken: Sequence[int]) -> list[str]:
    """Sentences of a summary: the units taken, in order, those of one sentence joined by blanks."""
    groups = groupby(taken, key=lambda unit: sentence[unit])
    return [" ".join(units[unit] for unit in group) for _, group in groups]


def ngrams(text: str) -> tuple[set, set]:
    """The distinct words of a text without stop words, and its distinct word pairs with them."""
    words = WORD.findall(text.lower())
    return set(words) - STOP_WORDS, set(zip(words, words[1:], strict=False))


def f1(taken: set, wanted: set) -> float:
    """F1 of two sets of n-grams, in [0, 1]."""
    return 2 * len(taken & wanted) / max(len(taken) + len(wanted), 1)


def oracle(
    units: Sequence[str], reference: str, required: Sequence[Sequence[int]], most: int
) -> list[int]:
    """Greedy oracle: add the unit that raises ROUGE-1 F1 + ROUGE-2 F1 most, until none does (D7).

    Args:
        units: (N,) texts.
        required: see `required_units`; a pick brings the first of its required units, the nearest,
            so there may be more units than picks.
        most: picks at most; ORACLE_UNITS.
    Returns:
        indices of the units, in the order of the document; empty when no unit shares a word with
        the reference. For texts whose words `is_read` denies it means nothing.
    """
    picks = [[*needed[:1], unit] for unit, needed in enumerate(required)]
    # D7: a pick's units are one text, so a pair of words may cross from one to the other.
    candidates = [ngrams(" ".join(units[unit] for unit in pick)) for pick in picks]
    wanted_words, wanted_pairs = ngrams(reference)
    words, pairs, taken, best = set(), set(), set(), 0.0
    for _ in range(most):
        values = [
            f1(words | more_words, wanted_words) + f1(pairs | more_pairs, wanted_pairs)
            for more_words, more_pairs in candidates
        ]
        unit = int(np.argmax(values))  # the first of equal ones
        if values[unit] <= best + 1e-12:
            break
        words |= candidates[unit][0]
        pairs |= candidates[unit][1]
        taken |= {*picks[unit]}
        best = values[unit]
    return sorted(taken)


def is_read(text: str) -> bool:
    """Whether WORD reads all but at most 2 % of a text's letters and digits; it reads English."""
    letters = [letter for letter in text.lower() if letter.isalnum()]
    return sum(letter.isascii() for letter in letters) >= 0.98 * len(letters)
