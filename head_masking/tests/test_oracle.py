"""Oracle labels: runs and fragments against slow restatements, words, and the way to a tokenizer's tokens."""

import random
from collections import Counter

import pytest

from ..oracle import (
    METHODS,
    longest_common_runs,
    longest_common_subsequences,
    newsroom_fragments,
    oracle_labels,
    token_labels,
    word_spans,
)
from . import reference


def marked(method, source: str, summary: str, min_length: int = 1) -> str:
    """The marked words, "_" for the others."""
    words = source.split()
    labels = method(words, summary.split(), min_length)
    return " ".join(word if label else "_" for word, label in zip(words, labels, strict=True))


# The iterative longest common run


@pytest.mark.parametrize("seed", range(6))
def test_section_4_1_runs_and_fragments_equal_the_slow_restatements(seed):
    """Texts of few different words, where nearly everything ties and overlaps."""
    rng = random.Random(seed)
    for _ in range(60):
        letters = "abcde"[: rng.randint(1, 5)]
        source = rng.choices(letters, k=rng.randint(0, 12))
        summary = rng.choices(letters, k=rng.randint(0, 9))
        min_length = rng.randint(1, 3)
        assert longest_common_runs(source, summary, min_length) == reference.common_runs(source, summary, min_length)
        assert newsroom_fragments(source, summary, min_length) == reference.fragments(source, summary, min_length)
        common = (Counter(source) & Counter(summary)).total()  # subsequences take every word that is left at last
        assert sum(longest_common_subsequences(source, summary)) == common


def test_d3_the_longest_run_is_taken_first_wherever_it_stands():
    """Left to right would spend "the man" of the summary on the first "the man"."""
    found = marked(longest_common_runs, "the man saw a dog with the man in red", "the man in red")
    assert found == "_ _ _ _ _ _ the man in red"
    assert marked(longest_common_runs, "a b x b c d", "a b c d") == "a _ _ b c d"


def test_d3_runs_are_contiguous_not_subsequences():
    """A common subsequence "a c e" is not one run, so that with min_length 2 nothing is marked."""
    assert marked(longest_common_runs, "a b c d e", "a c e") == "a _ c _ e"
    assert marked(longest_common_runs, "a b c d e", "a c e", min_length=2) == "_ _ _ _ _"


def test_d3_subsequences_have_gaps():
    """The paper's words taken literally: "a c e" is one subsequence of length 3; what is taken is not taken again."""
    assert marked(longest_common_subsequences, "a b c d e", "a c e", min_length=3) == "a _ c _ e"
    assert marked(longest_common_subsequences, "c x a b c", "c a b", min_length=3) == "c _ a b _"
    assert marked(longest_common_subsequences, "b a a", "a b a") == "b a a"  # "a a", then "b"


def test_what_is_removed_is_a_barrier_and_used_once():
    """Without "b c", "a" and "d" of the summary do not become a run "a d"; a word of the summary labels one word."""
    assert marked(longest_common_runs, "b c q a d", "a b c d", min_length=2) == "b c _ _ _"
    assert marked(longest_common_runs, "the cat and the dog and the cow", "the cat") == "the cat _ _ _ _ _ _"
    assert marked(longest_common_runs, "a a a", "a a") == "a a _"


@pytest.mark.parametrize("method", METHODS.values())
def test_limits(method):
    assert method([], ["a"]) == [] and method(["a"], []) == [False]
    assert method("a b c".split(), "a b c".split()) == [True] * 3
    assert method("a b c".split(), "d e".split()) == [False] * 3
    assert marked(method, "The Cat sat", "the cats SAT") == "The _ sat"  # case does not matter
    with pytest.raises(ValueError, match="min_length is 0"):
        method(["a"], ["a"], 0)


# Words, labels, tokens


def test_d4_words_are_letters_and_digits_or_single_signs():
    text = "Obama's 2nd term, don't (U.S.) 3.5 naïve…"
    words = "Obama ' s 2nd term , don ' t ( U . S . ) 3 . 5 naïve …".split()
    assert [text[start:end] for start, end in word_spans(text)] == words


def test_oracle_labels_are_of_words_with_their_places():
    document, summary = "A storm hit Norwick, today.  Norwick is\nsafe.", "NORWICK is safe"
    labels = oracle_labels(document, summary)
    words = "A storm hit Norwick , today . Norwick is safe .".split()
    assert [document[start:end] for start, end, _ in labels] == words
    assert [document[start:end] for start, end, label in labels if label] == ["Norwick", "is", "safe"]
    assert not any(label for *_, label in oracle_labels(document, summary, min_length=4))
    fragments = oracle_labels(document, "Norwick safe", method="newsroom")
    assert [start for start, _, label in fragments if label] == [12, document.index("safe")]


def test_unknown_methods_are_refused():
    with pytest.raises(ValueError, match="'other': use one of runs, newsroom, lcs"):
        oracle_labels("a", "a", method="other")


def test_a_token_has_the_label_of_a_word_that_it_touches():
    """Pieces of a word, a token over two words, one that holds blanks, one of a blank alone."""
    spans = [(0, 5, True), (6, 9, False), (9, 10, True)]  # "abcde fgh."
    offsets = [(0, 2), (2, 5), (5, 6), (5, 8), (8, 10), (10, 11)]
    assert token_labels(spans, offsets) == [True, True, False, False, True, False]
    assert token_labels(spans, offsets[:1]) == [True]  # the document was cut


def test_d1_special_tokens_are_hidden():
    """`<s>` and `</s>` have the offsets (0, 0), which is where the first word begins, too."""
    assert token_labels([(0, 3, True)], [(0, 0), (0, 3), (0, 0)]) == [False, True, False]
