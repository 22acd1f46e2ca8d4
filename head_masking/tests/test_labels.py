"""What masked heads may see: by the reference, by a tagger, by a person's words.

And how good a tagger is.
"""

import pytest

from ..labels import at_least, by_oracle, by_phrase, by_tagger, kept_text
from ..oracle import longest_common_runs, word_spans
from ..tagger import Tagged
from ..text import Document, encode_documents, train_tokenizer

STORY = "a storm hit the town on Monday , and the unhurried mayor spoke ."


@pytest.fixture(scope="module")
def tokenizer():
    """Few merges: most words have several pieces."""
    return train_tokenizer([STORY], 275)


def read(tokenizer, text: str, longest: int = 200) -> Document:
    return encode_documents(tokenizer, [text], longest)[0]


def seen(text: str, document: Document, keep: list[bool]) -> list[str]:
    return kept_text(text, document._replace(keep=keep))


def test_the_oracle_keeps_the_words_of_the_longest_runs_whole(tokenizer):
    document, target = read(tokenizer, STORY), "the mayor spoke on Monday , a storm ."
    words = STORY.split()
    marks = longest_common_runs(words, target.split())
    assert seen(STORY, document, by_oracle(STORY, target, document)) == [
        word for word, is_marked in zip(words, marks, strict=True) if is_marked
    ]
    runs = seen(STORY, document, by_oracle(STORY, target, document, min_run=3))
    assert runs == ["on", "Monday", ","]


def test_a_tagger_keeps_what_scores_above_its_boundary(tokenizer):
    """One word of several pieces scores high.

    Its tokens alone are kept, or with the fallback at least five.
    """
    document, spans = read(tokenizer, STORY), word_spans(STORY)
    scores = [0.9 if STORY[a:b] == "unhurried" else 0.0 for a, b in spans]
    keep = by_tagger(STORY, Tagged(scores, spans, 0.5), document)
    assert seen(STORY, document, keep) == ["unhurried"] and sum(keep) > 1
    assert not keep[0] and not keep[-1]  # <s> and </s>
    scores = [0.9, *[0.2] * (len(spans) - 1)]
    assert sum(by_tagger(STORY, Tagged(scores, spans, 0.5), document)) == 5
    cut = read(tokenizer, STORY, 20)
    assert cut.was_cut and len(by_tagger(STORY, Tagged(scores, spans, 0.5), cut)) == 20


def test_d2_what_falls_back_falls_on_the_same_positions_each_time():
    """D2: labels without any match keep five random positions, by the document alone."""
    first = at_least([0.0] * 40, 0.0, "one text")
    assert sum(first) == 5 and at_least([0.0] * 40, 0.0, "one text") == first
    assert first != at_least([0.0] * 40, 0.0, "another")


# Words of a person


@pytest.mark.parametrize(
    ("text", "phrase", "kept"),
    [
        (STORY, "STORM", "storm"),
        (STORY, "the town", "the town"),  # "the" is not kept elsewhere
        (STORY, "hurried", ""),
        (STORY, "the storm", ""),
        (STORY, "sto", ""),
        (STORY, "", ""),
        ("a well-known bridge", "well-known", "well-known"),
        ("ह हिन्दी", "ह", "ह"),  # not inside a word that has marks
        ("北京今天下了大雨。", "北京", "北京"),  # no blanks: inside a clause, too
        ("北京今天下了大雨。", "大雨", "大雨"),
        ("กรุงเทพมหานครฝนตก", "ฝนตก", "ฝนตก"),
        ("Kyiv ist schön", "SCHÖN", "schön"),
        ("Kyiv ist schön", "scho\u0308n", "schön"),  # an accent behind its letter
    ],
)
def test_a_phrase_is_kept_and_nothing_else(tokenizer, text, phrase, kept):
    document = read(tokenizer, text)
    assert seen(text, document, by_phrase(text, phrase, document)) == kept.split()


def test_what_stands_beyond_what_the_model_reads_is_not_there(tokenizer):
    assert not any(by_phrase(STORY, "spoke", read(tokenizer, STORY, 12)))
    assert any(by_phrase(STORY, "spoke", read(tokenizer, STORY)))
