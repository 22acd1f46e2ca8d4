"""Sentences in tokens, documents that are too long."""

import random
from array import array

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from ..text import Item, Tokens, encode, encode_all, token_sentence_ids, train_tokenizer

STORIES = [
    "Mr. Smith saw Dr. Jones . He left .",
    "The team won . We were glad .",
    "It rained . We stayed .",
]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(STORIES, 330)


def texts_of(tokenizer, encoded) -> list[str]:
    """The text of each sentence of an encoded document, special tokens written out."""
    sentences = [[] for _ in range(max(encoded.sentence_ids) + 1)]
    for token, sentence in zip(encoded.ids, encoded.sentence_ids, strict=True):
        sentences[sentence].append(token)
    return [tokenizer.decode(ids) for ids in sentences]


def test_d7_given_sentences_stay_as_they_are_and_the_end_is_one_more(tokenizer):
    """Full stops do not matter.

    D7, released code: `</s>` is a sentence, it counts toward r; `<s>` is in the first.
    """
    document = ["Mr. Smith saw", "Dr. Jones . He left .", "We"]
    found = encode(tokenizer, document, 99)
    sentences = ["<s> Mr. Smith saw", " Dr. Jones . He left .", " We", "</s>"]
    assert texts_of(tokenizer, found) == sentences
    one = encode(tokenizer, [" ".join(document)], 99)
    assert one.ids == found.ids and set(one.sentence_ids) == {0, 1}


def test_what_cannot_be_encoded_is_refused(tokenizer):
    """Also a tokenizer whose summaries would never stop, as that of some BARTs of the hub."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = TemplateProcessing(single="$A")
    bare = PreTrainedTokenizerFast(tokenizer_object=backend)
    for own, document, message in (
        (
            tokenizer,
            "It rained . We stayed .",
            "the document is one string: give a list of its sen",
        ),
        (tokenizer, [""], "no token in the document '': leave it out"),
        (bare, ["It rained ."], "the tokenizer adds no </s>"),
    ):
        with pytest.raises(ValueError, match=message):
            encode(own, document, 99)


def test_tokens_belong_to_the_sentence_of_their_last_character():
    """What stands between sentences, a token over a boundary, a sentence without a token."""
    document = ["abc", "", "123456", "xyz"]  # they begin at 0, 4, 5 and 12
    offsets = [(0, 0), (0, 2), (2, 4), (3, 6), (6, 10), (10, 12), (11, 13), (13, 15), (0, 0)]
    tokens = Tokens([5] * 9, offsets, [1, 0, 0, 0, 0, 0, 0, 0, 1], was_cut=False)
    assert token_sentence_ids(tokens, document) == [0, 0, 0, 1, 1, 1, 2, 2, 3]


def test_ids_have_no_gaps_and_cover_every_token(tokenizer):
    """Random sentences, also empty and blank ones, cut anywhere."""
    rng = random.Random(1)
    texts = ["Mr. Smith", "", " ", "It rained .", "x", "  We  "]
    for _ in range(50):
        pieces = rng.choices(texts, k=rng.randint(1, 6))
        found = encode(tokenizer, ["It .", *pieces], rng.randint(3, 30))
        ids = found.sentence_ids
        assert len(ids) == len(found.ids) and ids[0] == 0
        assert all(after - before in (0, 1) for before, after in zip(ids, ids[1:], strict=False))


def test_d9_a_document_that_is_too_long_is_cut(tokenizer):
    """Its first tokens with their sentences, and `</s>`."""
    document = ["It rained .", "We stayed .", "He left ."]
    whole = encode(tokenizer, document, 99)
    for length in range(3, len(whole.ids) + 1):
        found = encode(tokenizer, document, length)
        assert found.was_cut == (length < len(whole.ids))
        assert found.ids.tolist() == [*whole.ids[: length - 1], 2]
        assert found.sentence_ids[:-1] == whole.sentence_ids[: length - 1]
        assert found.sentence_ids[-1] == found.sentence_ids[-2] + 1


def test_many_documents_are_encoded_as_each_alone(tokenizer):
    """In the order of the documents, with summaries, which are cut, too."""
    # They are tokenised in two parts.
    documents = [["It rained .", "We stayed ."] * (1 + i % 3) for i in range(1002)]
    items = encode_all(tokenizer, documents, 12, ["He left ."] * 1002, 4)
    assert len(items) == 1002 and isinstance(items[0], Item)
    target = array("i", [*tokenizer("He left .")["input_ids"][:3], 2])
    for i in (0, 1, 2, 999, 1000, 1001):
        alone = encode(tokenizer, documents[i], 12)
        assert items[i] == alone._replace(target=target, target_was_cut=True)
