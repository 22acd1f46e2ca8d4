"""BBC's short task, its selectors of sentences, and their masks."""

import pytest

pytest.importorskip("shared")

from shared.data import Example

from ...experiments.bbc.data import short
from ...experiments.bbc.linear import fit
from ...experiments.bbc.sentences import best, spans_of, whole
from ...experiments.words import selected_words
from ...labels import Tagged

SENTENCES = ["Rain fell.", "Nobody, police said, was hurt.", "Schools stay closed.", "He left."]


def article(document: list[str], salient: list[bool], name: str = "a") -> Example:
    return Example(name, document, document[:1], [document[:1]], salient=salient)


def test_the_summary_is_the_first_three_salient_sentences_of_the_first_250_words():
    document = ["a b .", "c .", "d .", "e .", "f .", "word " * 241, "g ."]  # the sixth would end beyond the 250th word
    row, *others = short([article(document, [False, True, True, False, True, True, True])])
    assert (row["document"], row["summary"], others) == (document[:5], ["c .", "d .", "f ."], [])
    assert row["salient"] == [False, True, True, False, True]
    assert short([article(document, [False, True, True, False, False, True, True])]) == []  # two are left
    [row] = short([article(document, [True] * 7)])
    assert (row["summary"], row["salient"]) == (document[:3], [True] * 3 + [False] * 2)


def test_whole_sentences_are_selected_as_a_tagger_would():
    text = " ".join(SENTENCES)
    assert [text[a:b] for a, b in spans_of(SENTENCES)] == SENTENCES
    assert selected_words(text, whole(SENTENCES, [0, 2])) == "Rain fell . Schools stay closed ."


def test_the_best_sentences_have_the_highest_mean_score():
    spans = spans_of(SENTENCES)
    offsets = [(0, 0), *((a, a + 2) for a, _ in spans), (spans[1][0] + 3, spans[1][1])]
    assert best(Tagged([9.0, 0.5, 0.9, 0.4, 0.3, 0.0], offsets, 0.5), SENTENCES, 2) == [0, 1]  # the second: 0.45
    assert best(Tagged([9.0, 0.5, 0.7, 0.4, 0.3, 0.0], offsets, 0.5), SENTENCES, 2) == [0, 2]  # the second: 0.35


def test_the_linear_selector_learns_where_the_salient_sentences_stand():
    places = [1, 3, 4]
    articles = [article([f"w{n} x{i} ." for i in range(6)], [i in places for i in range(6)]) for n in range(20)]
    assert fit(articles)([f"w x{i} ." for i in range(6)]) == places
