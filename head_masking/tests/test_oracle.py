"""Oracle labels: runs against a slow restatement, words, and the way to a tokenizer's tokens."""

import random

import pytest

from ..oracle import longest_common_runs, oracle_labels, token_labels, word_spans
from . import reference


def marked(source: str, summary: str, min_length: int = 1) -> str:
    """The marked words, "_" for the others."""
    words = source.split()
    labels = longest_common_runs(words, summary.split(), min_length)
    return " ".join(word if label else "_" for word, label in zip(words, labels, strict=True))


# The iterative longest common run


@pytest.mark.parametrize("seed", range(6))
def test_section_4_1_runs_equal_the_slow_restatement(seed):
    """Texts of few different words, where nearly everything ties and overlaps.

    What is removed is a barrier, and a word of the summary labels one word.
    """
    rng = random.Random(seed)
    for _ in range(60):
        letters = "abcde"[: rng.randint(1, 5)]
        source = rng.choices(letters, k=rng.randint(0, 12))
        summary = rng.choices(letters, k=rng.randint(0, 9))
        min_length = rng.randint(1, 3)
        assert longest_common_runs(source, summary, min_length) == reference.common_runs(
            source, summary, min_length
        )


def test_d3_runs_are_contiguous_and_the_longest_is_taken_first_wherever_it_stands():
    """Left to right would spend "the man" of the summary on the first "the man".

    D3: a common subsequence "a c e" is not one run, so with min_length 2 nothing is marked.
    """
    found = marked("the man saw a dog with the man in red", "the man in red")
    assert found == "_ _ _ _ _ _ the man in red"
    assert marked("a b c d e", "a c e") == "a _ c _ e"
    assert marked("a b c d e", "a c e", min_length=2) == "_ _ _ _ _"


def test_case_does_not_matter_and_a_run_has_a_word():
    assert marked("The Cat sat", "the cats SAT") == "The _ sat"
    with pytest.raises(ValueError, match="min_length is 0"):
        longest_common_runs(["a"], ["a"], 0)


# Words, labels, tokens


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Obama's 2nd term, don't (U.S.) 3.5 naïve…",
            "Obama ' s 2nd term , don ' t ( U . S . ) 3 . 5 naïve …",
        ),
        ("हिन्दी தமிழ், cafe\u0301 i̇stanbul'da שָׁלוֹם", "हिन्दी தமிழ் , cafe\u0301 i̇stanbul ' da שָׁלוֹם"),
    ],
)
def test_d4_words_are_letters_with_their_marks_and_digits_or_single_signs(text, words):
    assert [text[start:end] for start, end in word_spans(text)] == words.split()


def test_oracle_labels_are_of_words_with_their_places():
    document, summary = "A storm hit Norwick, today.  Norwick is\nsafe.", "NORWICK is safe."
    labels = oracle_labels(document, summary)
    words = [document[start:end] for start, end, _ in labels]
    assert words == "A storm hit Norwick , today . Norwick is safe .".split()
    assert [label for *_, label in labels] == [False] * 7 + [True] * 4
    assert not any(label for *_, label in oracle_labels(document, summary, min_length=5))


def test_a_token_has_the_label_of_a_word_that_it_touches():
    """Pieces of a word, a token over two words, one that holds blanks, one of a blank alone."""
    spans = [(0, 5, True), (6, 9, False), (9, 10, True)]  # "abcde fgh."
    offsets = [(0, 2), (2, 5), (5, 6), (5, 8), (8, 10), (10, 11)]
    assert token_labels(spans, offsets) == [True, True, False, False, True, False]
    assert token_labels(spans, offsets[:1]) == [True]  # the document was cut


def test_d1_special_tokens_are_hidden():
    """`<s>` and `</s>` have the offsets (0, 0), which is where the first word begins, too."""
    assert token_labels([(0, 3, True)], [(0, 0), (0, 3), (0, 0)]) == [False, True, False]
