"""BERTSum's text: word pieces, cuts, tokenizers."""

from types import SimpleNamespace

import pytest
from transformers import BertTokenizer

from ..bertsum.bert_text import collate, decode, encode_examples, target_ids

UNUSED = ("[unused0]", "[unused1]", "[unused2]")


def make_example(document, summary) -> SimpleNamespace:
    return SimpleNamespace(document=document, summary=summary)


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *UNUSED,
        *"the storm hit town . it rained".split(),
    ]
    return BertTokenizer(vocab={word: i for i, word in enumerate(words)})


def test_d22_every_sentence_has_its_cls_and_segments_take_turns(tokenizer):
    example = make_example(["The storm .", "It rained .", "Storm"], ["It rained .", "The storm"])
    [item] = encode_examples([example], tokenizer, 99, 99)
    assert tokenizer.convert_ids_to_tokens(item.source) == (
        "[CLS] the storm . [SEP] [CLS] it rained . [SEP] [CLS] storm [SEP]".split()
    )
    batch = collate(
        [item, *encode_examples([make_example(["Storm"], ["storm"])], tokenizer, 99, 99)]
    )
    assert batch.segments[0].tolist() == [0] * 5 + [1] * 5 + [0] * 3 and not batch.segments[1].any()
    assert not item.was_cut
    target = "[unused0] it rained . [unused2] the storm [unused1]"
    assert tokenizer.convert_ids_to_tokens(item.target) == target.split()
    assert decode(tokenizer, item, item.target) == "it rained.\nthe storm"


def test_a_text_without_a_summary_is_encoded(tokenizer):
    [item] = encode_examples([make_example(["Storm"], [])], tokenizer, 99, 99)
    assert tokenizer.convert_ids_to_tokens(item.target) == ["[unused0]", "[unused1]"]


def test_long_documents_are_cut_and_still_end_in_sep(tokenizer):
    example = make_example(["The storm .", "It rained .", "Storm"], ["It rained ."])
    for longest in range(3, 14):
        [item] = encode_examples([example], tokenizer, longest, 3)
        assert len(item.source) <= longest and item.source[-1] == tokenizer.sep_token_id
        assert (3, 3) not in zip(item.source, item.source[1:], strict=False) and item.source[
            -2
        ] not in (2, 3)
        assert item.was_cut == (longest < 13)
        assert item.target.tolist() == [
            5,
            *tokenizer("it", add_special_tokens=False)["input_ids"],
            6,
        ]


def test_summaries_take_the_first_three_unused_tokens():
    """Cased and multilingual BERTs have no [unused0]; [unused10] comes after [unused9].

    Without three: refused.
    """
    names = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "[unused10]",
        "[unused9]",
        "[unused1]",
        "[unused2]",
    ]
    assert target_ids(BertTokenizer(vocab={name: i for i, name in enumerate(names)})) == (
        7,
        8,
        6,
        0,
    )
    with pytest.raises(
        ValueError, match=r"has no three tokens like \[unused1\], .*: take a BERT's"
    ):
        target_ids(BertTokenizer(vocab={"[UNK]": 0, "[PAD]": 1, "[unused0]": 2}))


def test_text_that_looks_like_a_token_is_text(tokenizer):
    """No sentence, end or padding comes out of "[CLS]", "[SEP]", "[PAD]" or "[unused1]" in a source
    or a summary.
    """
    example = make_example(
        ["The [SEP] storm [CLS] [PAD] .", "[unused1]"], ["It [unused1] [SEP] rained"]
    )
    [item] = encode_examples([example], tokenizer, 99, 99)
    assert (
        item.source.count(tokenizer.cls_token_id) == item.source.count(tokenizer.sep_token_id) == 2
    )
    assert tokenizer.pad_token_id not in item.source and tokenizer.sep_token_id not in item.target
    assert [item.target.count(token) for token in target_ids(tokenizer)] == [1, 1, 0, 0]
