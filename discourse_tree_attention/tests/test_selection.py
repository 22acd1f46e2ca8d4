"""Selection, dependency restriction, lead and oracle."""

import random

import pytest

from ..matrices import dependency_parents
from ..selection import ORACLE_UNITS, join_units, ngrams, oracle, required_units, select
from . import reference_trees as reference
from .test_matrices import as_parents, from_one, some_tree

FREE = [[] for _ in range(6)]


def test_select_takes_the_best_in_document_order():
    """Section 5.1: the highest scores, put out in the order of the document; ties go to the earlier
    unit.
    """
    assert select([0.1, 5.0, -2.0, 3.0, 4.0, 0.0], FREE, 3) == [1, 3, 4]
    assert select([1.0] * 6, FREE, 2) == [0, 1]
    assert select([1.0, 2.0], [[], []], 6) == [0, 1]


@pytest.mark.parametrize("seed", range(10))
def test_section_5_1_required_units_against_recursion(seed):
    """D17: in DiscoBERT's tree, where a right nucleus hangs on the left one, not in Hirao's."""
    tree, sentence = some_tree(seed)
    parents = reference.discobert(tree)
    assert as_parents(dependency_parents(tree, right_nuclei=True)) == parents
    for edu, found in enumerate(required_units(tree, sentence), 1):
        assert [other + 1 for other in found] == reference.needed(parents, from_one(sentence), edu)


def test_section_5_1_ancestors_come_with_a_unit():
    """The dependency restriction is recursive: a pick brings its ancestors within the sentence, all
    of them.
    """
    required = [[], [0], [1, 0], [], [], []]
    assert select([0.0, 0.1, 9.0, 8.0, 7.0, 0.0], required, 3) == [0, 1, 2]
    assert select([0.0, 0.1, 9.0, 8.0, 7.0, 0.0], FREE, 3) == [2, 3, 4]


def test_d8_required_units_count_and_may_lead_beyond():
    """D8: after 5 free picks the sixth brings 2 more, 8 in all; the next best is not taken any
    more.
    """
    required = [[] for _ in range(9)]
    required[7] = [6, 8]
    assert select([9, 8, 7, 6, 5, 1, 0, 4, 0], required, 6) == [0, 1, 2, 3, 4, 6, 7, 8]


def test_word_limit_of_the_released_code():
    """With max_words the summary is complete once it has so many words, whatever the count."""
    scores, lengths = [6, 5, 4, 3, 2, 1], [30, 40, 20, 5, 5, 5]
    assert select(scores, FREE, 6, lengths, max_words=80) == [0, 1, 2]
    assert select(scores, FREE, 6, lengths, max_words=70) == [0, 1]  # complete at 70, not beyond
    assert select(scores, FREE, 6, lengths, max_words=0) == [0, 1, 2, 3, 4, 5]


def test_join_units_puts_the_parts_of_a_sentence_together():
    units = ["He said", "it rained ,", "so they left .", "Nobody came ."]
    assert join_units(units, [0, 0, 0, 1], [0, 2, 3]) == ["He said so they left .", "Nobody came ."]


def rouge_by_hand(texts, reference, n):
    """ROUGE-n F1 of some units, by clipped counts."""
    wanted, had = (
        ngrams(reference, n),
        sum((ngrams(text, n) for text in texts), start=ngrams("", n)),
    )
    total = had.total() + wanted.total()
    return 2 * (had & wanted).total() / total if total else 0.0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("most", [1, 3, 6])
def test_d7_oracle_is_the_greedy_search(seed, most):
    """D7: one unit at a time, the one that raises R-1 + R-2 F1 most, until nothing does or `most`
    are taken.
    """
    rng, chosen = random.Random(seed), set()
    units = [" ".join(rng.choices("a b c d e f".split(), k=rng.randint(1, 5))) for _ in range(6)]
    reference = " ".join(rng.choices("a b c d".split(), k=6))

    def value(chosen):
        return sum(rouge_by_hand([units[i] for i in sorted(chosen)], reference, n) for n in (1, 2))

    for _ in range(most):
        best = max(range(6), key=lambda i: (round(value(chosen | {i}), 9), -i))
        if value(chosen | {best}) <= value(chosen) + 1e-9:
            break
        chosen.add(best)
    assert oracle(units, reference, FREE, most) == sorted(chosen)


def test_d7_oracle_picks_bring_their_required_units():
    """D7: one pick is two EDUs where one depends on the other; 10 picks of EDUs, 5 of sentences
    (released data).
    """
    assert ORACLE_UNITS == {"edu": 10, "sentence": 5}
    units = ["who is old ,", "the mayor", "opened the bridge", "rain fell"]
    assert oracle(units, "mayor opened the bridge", [[], [], [1], []], 1) == [1, 2]
    assert oracle(units, "OPENED THE BRIDGE", [[]] * 4, 1) == [2]
    # of any script
    assert oracle(["школа открыта .", "мост закрыт ."], "Мост закрыт", [[]] * 2, 5) == [1]
    # characters, where there are no blanks
    assert oracle(["学校开着。", "桥关了。"], "桥 关了", [[]] * 2, 5) == [1]
    assert oracle(units, "x y z", [[]] * 4, 5) == []
