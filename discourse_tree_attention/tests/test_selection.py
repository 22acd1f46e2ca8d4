"""Selection, dependency restriction, lead and oracle."""

import random

import pytest

from ..matrices import dependency_parents
from ..selection import (
    ORACLE_UNITS,
    STOP_WORDS,
    WORD,
    is_read,
    join_units,
    oracle,
    required_units,
    select,
)
from . import reference_trees as reference
from .test_matrices import as_parents, from_one, some_tree

FREE = [[] for _ in range(6)]


def test_select_takes_the_best_in_document_order():
    """Section 5.1: the highest scores, in the document's order; of equal ones the earlier."""
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
    """The restriction is recursive: a pick brings all its ancestors within the sentence."""
    required = [[], [0], [1, 0], [], [], []]
    assert select([0.0, 0.1, 9.0, 8.0, 7.0, 0.0], required, 3) == [0, 1, 2]
    assert select([0.0, 0.1, 9.0, 8.0, 7.0, 0.0], FREE, 3) == [2, 3, 4]


def test_d8_required_units_count_and_may_lead_beyond():
    """D8: after 5 free picks the sixth brings 2 more, 8 in all; then nothing is taken."""
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


def words_of(text):
    """Words as rouge-score reads them, letter by letter."""
    letters = [c if c in "abcdefghijklmnopqrstuvwxyz0123456789" else " " for c in text.lower()]
    return "".join(letters).split()


def value_of(texts, reference):
    """D7: F1 of distinct words without stop words, and F1 of distinct pairs of words, added up."""
    value = 0
    for n in (1, 2):
        had, wanted = [], []
        for grams, some in ((had, texts), (wanted, [reference])):
            for text in some:
                words = words_of(text)
                for i in range(len(words) - n + 1):
                    gram = words[i : i + n]
                    if gram not in grams and not (n == 1 and gram[0] in STOP_WORDS):
                        grams.append(gram)
        if shared := sum(gram in wanted for gram in had):
            precision, recall = shared / len(had), shared / len(wanted)
            value += 2 * precision * recall / (precision + recall)
    return value


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("most", [1, 3, 6])
def test_d7_oracle_is_the_greedy_search(seed, most):
    """D7: one pick at a time, the one that raises R-1 + R-2 F1 most, until nothing does.

    At most `most` are made. A pick is a unit and the one that it hangs on, whose text stands before
    its own.
    """
    rng, picked = random.Random(seed), []
    vocabulary = "storm rain the of Town rained it"
    units = [" ".join(rng.choices(vocabulary.split(), k=rng.randint(1, 5))) for _ in range(6)]
    reference = " ".join(rng.choices(vocabulary.split(), k=8))
    required = [rng.sample([j for j in range(6) if j != i], rng.randint(0, 2)) for i in range(6)]
    picks = [required[i][:1] + [i] for i in range(6)]
    texts = [" ".join(units[j] for j in pick) for pick in picks]

    def value(picked):
        return value_of([texts[i] for i in picked], reference)

    for _ in range(most):
        best = max(range(6), key=lambda i: (round(value([*picked, i]), 9), -i))
        if value([*picked, best]) <= value(picked) + 1e-9:
            break
        picked.append(best)
    expected = sorted({unit for i in picked for unit in picks[i]})
    assert oracle(units, reference, required, most) == expected


def test_d7_distinct_words_count_without_stop_words_and_pairs_with_them():
    """D7: by hand, with the released data's 10 picks of EDUs or 5 of sentences."""
    assert ORACLE_UNITS == {"edu": 10, "sentence": 5}
    # F1 of 4/5 + 2/3 and 1 + 2/3, by counts 4/5 + 2/3 and 2/3 + 1/2
    assert oracle(["rain fell today", "rain rain rain fell"], "rain fell", [[]] * 2, 1) == [1]
    # no unit shares more than stop words
    assert oracle(["it was the", "of them"], "the of was", [[]] * 2, 5) == []
    # but a pair of stop words counts
    assert oracle(["mist of it", "mist of the"], "mist of the", [[]] * 2, 1) == [1]
    # NLTK's list: 179 words, 26 of them with an apostrophe, which no word has
    assert len(STOP_WORDS) == 153 and all(WORD.fullmatch(word) for word in STOP_WORDS)
    assert {"the", "not", "wouldn", "t", "yourselves"} < STOP_WORDS
    assert STOP_WORDS.isdisjoint({"said", "would", "may", "us", "one"})


def test_d7_words_are_those_of_rouge_score():
    """Unstemmed; what is no letter a-z and no digit parts words."""
    tokenize = pytest.importorskip("rouge_score.tokenize").tokenize
    for text in (
        "The mayor's co-op re-opened in 2019.",
        "caf\u00e9 \u0130\u0130x \u212a",
        "a_b",
        "",
    ):
        assert WORD.findall(text.lower()) == tokenize(text, stemmer=None)


@pytest.mark.parametrize(
    "text",
    [
        "\u092e\u094b\u0930 \u0928\u093e\u091a\u093e",  # Hindi
        "\u0e1d\u0e19\u0e15\u0e01",  # Thai
        "\u041c\u043e\u0441\u0442 \u0437\u0430\u043a\u0440\u044b\u0442",  # Russian
        "tr\u1eddi m\u01b0a to \u1edf H\u00e0 N\u1ed9i",  # Vietnamese
        "x" * 48 + "\u00e9",  # 1 of 49
    ],
)
def test_d7_a_text_that_rouge_score_does_not_read_is_seen(text):
    assert not is_read(text)
    for text in ("x" * 49 + "\u00e9", "It's 20 \u00b0C \u2013 \u201cwarm\u201d.", ""):
        assert is_read(text)
