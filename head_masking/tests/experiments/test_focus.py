"""Attendees of the heads, against one step at a time and cases counted by hand."""

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from shared.data import Example

from ...experiments.sweep import attendees, attention_focus, generated_words, tally
from ...loading import Summarizer
from ...masking import mask_heads
from ...oracle import word_spans
from ...predict import decode
from ...text import Document, encode_documents, train_tokenizer

STORY = "Mara opened halls . Mara slept ."
TAGS = ["NNP", "VBD", "NNS", ".", "NNP", "VBD", "."]


@pytest.fixture(scope="module")
def tokenizer():
    """Few merges: most words have several pieces."""
    return train_tokenizer([STORY], 275)


@pytest.fixture
def documents(tokenizer) -> list[Document]:
    """Three of other lengths; tokens that the small BART does not have become others."""
    read = encode_documents(tokenizer, [STORY, "halls", "Mara slept ."], 30)
    return [document._replace(ids=[i % 31 for i in document.ids]) for document in read]


def story(reference: str, tags=None) -> Example:
    return Example("1", [STORY], [reference], [[reference]], pos=[tags] if tags else None)


def test_attendees_are_those_of_each_step_alone(bart, documents):
    """Step t has only summary[: t + 1] to go on; it emits summary[t + 1]."""
    seen = set()
    cases = [(document, [2, *document.ids[1:6]]) for document in documents]
    attended = [attendees(bart, document.ids, summary) for document, summary in cases]
    bart.set_attn_implementation("eager")  # which returns weights
    for (document, summary), found in zip(cases, attended, strict=True):
        assert found.shape == (2, 4, len(summary) - 1)
        for t in range(len(summary) - 1):
            inputs = {"input_ids": torch.tensor([document.ids]), "decoder_input_ids": torch.tensor([summary[: t + 1]])}
            with torch.no_grad():
                weights = bart(**inputs, output_attentions=True).cross_attentions
            assert found[..., t].tolist() == [[head[-1].argmax().item() for head in layer[0]] for layer in weights]
        seen |= {*found.ravel().tolist()}
    assert len(seen) > 3


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
    case = story("Halls , Mara", TAGS)
    document = Document([0] * 9, [(0, 0), *word_spans(STORY), (0, 0)], False)
    # Positions: 1 Mara (first), 2 opened, 3 halls, 4 ".", 5 Mara, 6 slept, 7 "." (last), 0 and 8 special.
    attended = np.array([[[5, 2, 3], [1, 7, 8]]])
    found = tally(attended, case, document, ["mara", None, "opened"])
    assert {kind: counts[0].tolist() for kind, counts in found.items()} == {
        "copy_salient": [1, 1],  # Mara while writing mara
        "non_copy_salient": [1, 0],  # halls while writing opened
        "copy_content": [1, 1],
        "non_copy_content": [1, 0],
        "first": [0, 1],  # the second Mara is not the first word
        "last": [0, 0],  # the step that looks there writes no word
        "special": [0, 1],
    }
    cut = document._replace(offsets=document.offsets[:7])  # the model reads up to "slept", which is then the last word
    assert tally(np.full((1, 1, 1), 6), case, cut, ["mara"])["last"].item() == 1
    found = tally(attended, case, document, ["slept", ".", "halls"])
    assert found["last"].tolist() == [[0, 1]] and found["copy_salient"].tolist() == [[1, 0]]
    assert found["copy_content"].tolist() == [[1, 0]] and found["non_copy_content"].tolist() == [[2, 1]]
    assert found["non_copy_salient"].tolist() == [[1, 1]]
    assert tally(attended, story("Mara"), document, ["mara", "mara", "mara"])["copy_content"].sum() == 0  # no tags


def test_content_words_are_nouns_verbs_adjectives_and_adverbs():
    words, tags = "abcdefghijk", "NN NNPS VBZ JJR RB IN DT CD MD PRP .".split()
    case = Example("1", [" ".join(words)], ["x"], [["x"]], pos=[tags])
    document = Document([0] * 11, [(2 * place, 2 * place + 1) for place in range(11)], False)
    found = [tally(np.full((1, 1, 1), n), case, document, ["x"])["non_copy_content"].item() for n in range(11)]
    assert found == [1] * 5 + [0] * 6
    with pytest.raises(ValueError, match="zip"):
        tally(np.zeros((1, 1, 1), int), story("x", ["NN"]), document, ["x"])


def test_section_4_3_percentages_of_heads_that_may_see_one_word_alone(bart, tokenizer, documents):
    """Section 4.3: with a mask that leaves the first word, a masked head attends to it always: no slip by a step."""
    document = documents[0]._replace(ids=documents[0].ids[:4], offsets=documents[0].offsets[:4])
    keep = torch.tensor([[False, True, False, False]])
    with mask_heads(bart, {2: [1, 3]}, keep):
        rows = attention_focus(Summarizer(bart, tokenizer, 30), [story("nothing")], [document])
    assert [(row["layer"], row["head"]) for row in rows] == [(i, h) for i in (1, 2) for h in range(4)]
    assert [rows[place]["first"] for place in (5, 7)] == [100, 100]
    assert not any(row["copy_salient"] for row in rows) and not any("content" in kind for kind in rows[0])


def test_d9_shares_are_over_all_pieces_not_over_documents(bart, tokenizer, documents):
    """D9: each piece of a word counts. Counts are pooled: the share of all is the mean, weighted by pieces."""
    run = Summarizer(bart, tokenizer, 30)
    cases = [story("x"), Example("2", ["halls"], ["x"], [["x"]]), Example("3", ["Mara slept ."], ["x"], [["x"]])]

    def special(*places):
        rows = attention_focus(run, [cases[n] for n in places], [documents[n] for n in places])
        return [row["special"] for row in rows]

    pieces = [sum(w is not None for w in generated_words(tokenizer, *decode(bart, [one]))) for one in documents]
    assert min(pieces) > 1
    np.testing.assert_allclose(special(0, 1, 2), np.average([special(n) for n in range(3)], axis=0, weights=pieces))
