"""From unit scores to a summary, and from a reference summary to the units that a model should
learn to take.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from .matrices import dependency_parents
from .trees import Node

UNITS_TAKEN = {"edu": 6, "sentence": 3}  # Section 5.1
ORACLE_UNITS = {"edu": 10, "sentence": 5}  # most picks of the oracle (released data preparation)
# A letter of a script without blanks (Thai, Tibetan, Khmer, Javanese, Japanese, Chinese, ...), or a
# word.
NO_BLANKS = (
    "\u0e00-\u109f\u1780-\u17ff\u1950-\u1aaf\u1b00-\u1b7f\u3040-\u312f"
    "\u3400-\ua4cf\ua980-\ua9df\uaa80-\uaadf"
)
WORD = re.compile(f"[{NO_BLANKS}]|[^\\W_{NO_BLANKS}]+")


def select(
    scores: Sequence[float],
    required: Sequence[Sequence[int]],
    count: int,
    lengths=None,
    max_words=0,
) -> list:
    """Indices of the best units, in the order of the document, each with the units that it
    requires.

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
    """The dependency restriction: the ancestors of each EDU within its `sentence`, (N,), the
    nearest first.
    """
    # D17: DiscoBERT's edges, not D-Tree's alone: a right Nucleus hangs on the left one; without its
    # conditions.
    parents, required = dependency_parents(tree, right_nuclei=True), []
    for edu in range(len(parents)):
        chain, parent = [edu], int(parents[edu])
        # Section 5.1: "all ancestors of a selected EDU within the same sentence should be
        # recursively added".
        while parent != chain[-1] and sentence[parent] == sentence[edu]:
            chain.append(parent)
            parent = int(parents[parent])
        required.append(chain[1:])
    return required


def join_units(units: Sequence[str], sentence: Sequence[int], taken: Sequence[int]) -> list[str]:
    """Sentences of a summary: the units taken, in order, those of one sentence joined by blanks."""
    groups = groupby(taken, key=lambda unit: sentence[unit])
    return [" ".join(units[unit] for unit in group) for _, group in groups]


def ngrams(text: str, n: int) -> Counter:
    """Counts of the n-grams of a unit's lower-cased words (letters and digits of any script,
    unstemmed).
    """
    words = WORD.findall(text.lower())
    return Counter(zip(*(words[i:] for i in range(n)), strict=False))


def oracle(
    units: Sequence[str], reference: str, required: Sequence[Sequence[int]], most: int
) -> list[int]:
    """Greedy oracle: add the unit that raises ROUGE-1 F1 + ROUGE-2 F1 most, until none does (D7).

    Args:
        units: (N,) texts.
        required: see `select`; a pick brings its required units, so there may be more units than
            picks.
        most: picks at most; ORACLE_UNITS.
    Returns:
        indices of the units, in the order of the document; empty when no unit shares a word with
        the reference.
    """
    picks = np.eye(len(units), dtype=bool)
    for unit, others in enumerate(required):
        picks[unit, list(others)] = True
    rouge_1, rouge_2 = rouge_f1(units, reference, 1), rouge_f1(units, reference, 2)
    taken, best = np.zeros(len(units), dtype=bool), 0.0
    for _ in range(most):
        candidates = taken | picks  # (N, N): row i is the selection with unit i added
        values = rouge_1(candidates) + rouge_2(candidates)
        unit = int(values.argmax())
        if values[unit] <= best + 1e-12:
            break
        taken, best = candidates[unit], values[unit]
    return np.flatnonzero(taken).tolist()


def rouge_f1(units: Sequence[str], reference: str, n: int) -> Callable[[np.ndarray], np.ndarray]:
    """ROUGE-n F1 as a function of selections of the units: (M, N) bool -> (M,) in [0, 1].

    No n-gram crosses units.
    """
    wanted, counts = ngrams(reference, n), [ngrams(unit, n) for unit in units]
    table = np.array([[count[gram] for gram in wanted] for count in counts], dtype=float).reshape(
        len(units), -1
    )
    # (N,), (G,)
    lengths, clip = (
        np.array([float(count.total()) for count in counts]),
        np.array([*wanted.values()]),
    )

    def f1(selections):
        shared = np.minimum(selections @ table, clip).sum(1)  # of (M, G)
        return 2 * shared / np.maximum(selections @ lengths + clip.sum(), 1)

    return f1
