"""Attendees of the heads, against one step at a time and cases counted by hand."""

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...experiments.focus import Reading, attendees, attention_focus, content_words, generated_words, place_tags, tally
from ...masking import mask_heads
from ...text import encode_documents, train_tokenizer

STORY = "Mara opened halls . Mara slept ."
TAGS = ["NNP", "VBD", "NNS", ".", "NNP", "VBD", "."]


@pytest.fixture(scope="module")
def tokenizer():
    """Few merges: most words have several pieces."""
    return train_tokenizer([STORY], 275)


def reading(tokenizer, source: str, summary: str, reference: str, tags=None) -> Reading:
    """The summary after the decoder's start token, as `generate` writes it."""
    [(ids, offsets, *_)] = encode_documents(tokenizer, [source], 100)
    return Reading(source, ids, offsets, [2, *tokenizer(summary)["input_ids"]], reference, tags)


@pytest.fixture
def readings(bart, tokenizer) -> list[Reading]:
    """Three documents of other lengths; tokens that the small BART does not have become others."""
    found = [
        reading(tokenizer, STORY, "Mara slept", "Mara slept ."),
        reading(tokenizer, "halls", "halls opened .", "halls"),
        reading(tokenizer, "Mara slept .", "opened", "slept"),
    ]
    ids = [{"ids": [i % 31 for i in r.ids[:30]], "summary": [i % 31 for i in r.summary]} for r in found]
    return [r._replace(offsets=r.offsets[:30], **changed) for r, changed in zip(found, ids, strict=True)]


def test_attendees_are_those_of_each_step_alone(bart, readings):
    """Step t has only summary[: t + 1] to go on, no batch, no padding; it emits summary[t + 1]."""
    found = list(attendees(bart, readings, batch_size=2))
    bart.set_attn_implementation("eager")
    for each, attended in zip(readings, found, strict=True):
        assert attended.shape == (2, 4, len(each.summary) - 1)
        for t in range(len(each.summary) - 1):
            inputs = {"input_ids": torch.tensor([each.ids]), "decoder_input_ids": torch.tensor([each.summary[: t + 1]])}
            with torch.no_grad():
                weights = bart(**inputs, output_attentions=True).cross_attentions
            expected = [[head[-1].argmax().item() for head in layer[0]] for layer in weights]
            assert attended[..., t].tolist() == expected
    assert len(np.unique(np.concatenate([each.ravel() for each in found]))) > 3


def test_generated_pieces_have_their_words(tokenizer):
    """Special tokens and the start token have none; the pieces of a word have the word, in lower case."""
    tokens = tokenizer("Mara opened halls.")["input_ids"]
    words = generated_words(tokenizer, [2, *tokens])
    assert len(words) == len(tokens) and words[0] is words[-1] is None
    kept = [word for word in words if word is not None]
    assert list(dict.fromkeys(kept)) == ["mara", "opened", "halls", "."]
    assert len(kept) > 4  # some word has several pieces
    ended_by_its_length = [2, *tokenizer("Mara halls")["input_ids"][:-1]]
    assert generated_words(tokenizer, ended_by_its_length)[-1] == "halls"


def test_categories_by_hand():
    """One layer, two heads, three steps, one of them not a word. Words are tokens here, between <s> and </s>."""
    spans = [(0, 0), *((a, b) for a, b, _ in place_tags(STORY, TAGS)), (0, 0)]
    case = Reading(STORY, [0] * 9, spans, [0] * 4, "Halls , Mara", place_tags(STORY, TAGS))
    # Positions: 1 Mara (first), 2 opened, 3 halls, 4 ".", 5 Mara, 6 slept, 7 "." (last), 0 and 8 special.
    attended = np.array([[[5, 2, 3], [1, 7, 8]]])
    found, steps = tally(attended, case, ["mara", None, "opened"])
    assert steps == 2
    assert {kind: counts[0].tolist() for kind, counts in found.items()} == {
        "copy_salient": [1, 1],  # Mara while writing mara
        "non_copy_salient": [1, 0],  # halls while writing opened
        "copy_content": [1, 1],
        "non_copy_content": [1, 0],
        "first": [0, 1],  # the second Mara is not the first word
        "last": [0, 0],  # the step that looks there writes no word
        "special": [0, 1],
    }
    cut = case._replace(offsets=spans[:7])  # the model reads up to "slept", which is then the last word
    assert tally(np.full((1, 1, 1), 6), cut, ["mara"])[0]["last"].item() == 1
    found, _ = tally(attended, case, ["slept", ".", "halls"])
    assert found["last"].tolist() == [[0, 1]] and found["copy_salient"].tolist() == [[1, 0]]
    assert found["copy_content"].tolist() == [[1, 0]] and found["non_copy_content"].tolist() == [[2, 1]]
    assert found["non_copy_salient"].tolist() == [[1, 1]]


def test_d9_every_piece_of_a_generated_word_counts(tokenizer):
    """D9: a word of n pieces counts n times, each with its own attendee."""
    case = reading(tokenizer, STORY, "opened", "opened")
    words = generated_words(tokenizer, case.summary)
    pieces = sum(word == "opened" for word in words)
    where = [i for i, (start, end) in enumerate(case.offsets) if 5 <= start < end <= 11]  # pieces of "opened"
    found, steps = tally(np.full((1, 1, len(words)), where[0]), case, words)
    assert steps == pieces > 1 and found["copy_salient"].tolist() == [[pieces]]


def test_section_4_3_percentages_of_heads_that_may_see_one_word_alone(bart, tokenizer, readings):
    """Section 4.3: with a mask that leaves the first word, a masked head attends to it always: no slip by a step."""
    cut = [each._replace(ids=each.ids[:4], offsets=each.offsets[:4], reference="nothing") for each in readings[:1]]
    keep = torch.tensor([[False, True, False, False]])
    with mask_heads(bart, {2: [1, 3]}, keep):
        shares = attention_focus(bart, tokenizer, cut)
    assert shares["first"][1].tolist()[1::2] == [100.0, 100.0]
    assert (shares["copy_salient"] == 0).all() and not any("content" in kind for kind in shares)
    assert all((0 <= share).all() and (share <= 100).all() for share in shares.values())


def test_shares_are_over_all_pieces_not_over_documents(bart, tokenizer, readings):
    """Counts are pooled: the share of two documents is their mean weighted by pieces."""
    alone = [attention_focus(bart, tokenizer, [each])["special"] for each in readings]
    pieces = [sum(word is not None for word in generated_words(tokenizer, each.summary)) for each in readings]
    together = attention_focus(bart, tokenizer, readings)["special"]
    np.testing.assert_allclose(together, np.average(alone, axis=0, weights=pieces))


def test_content_words_are_nouns_verbs_adjectives_and_adverbs():
    tags = "NN NNPS VBZ JJR RB IN DT CD MD PRP .".split()
    text = " ".join("abcdefghijk")
    spans = place_tags(text, tags)
    assert content_words([span[:2] for span in spans], spans) == [True] * 5 + [False] * 6
    with pytest.raises(ValueError, match="zip"):
        place_tags("two words", ["NN"])
