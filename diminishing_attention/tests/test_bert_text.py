"""BERTSum's text: word pieces, cuts, tokenizers."""

from types import SimpleNamespace

import pytest
from transformers import BertTokenizer

from ..bertsum.bert_text import collate, decode, encode_examples, target_ids


def tokenizer_of(words: str) -> BertTokenizer:
    """BERT's five special tokens, then these words."""
    every = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words.split()]
    return BertTokenizer(vocab={word: i for i, word in enumerate(every)})


def make_example(document, summary) -> SimpleNamespace:
    return SimpleNamespace(document=document, summary=summary)


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return tokenizer_of("[unused0] [unused1] [unused2] the storm hit town . it rained")


def test_d22_every_sentence_has_its_cls_and_segments_take_turns(tokenizer):
    example = make_example(["The storm .", "It rained .", "Storm"], ["It rained .", "The storm"])
    [item] = encode_examples([example], tokenizer, 99, 99)
    assert tokenizer.convert_ids_to_tokens(item.source) == (
        "[CLS] the storm . [SEP] [CLS] it rained . [SEP] [CLS] storm [SEP]".split()
    )
    [short] = encode_examples([make_example(["Storm"], ["storm"])], tokenizer, 99, 99)
    batch = collate([item, short])
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
        assert (3, 3) not in zip(item.source, item.source[1:], strict=False)
        assert item.source[-2] not in (2, 3) and item.was_cut == (longest < 13)
        assert tokenizer.convert_ids_to_tokens(item.target) == ["[unused0]", "it", "[unused1]"]


def test_summaries_take_the_first_three_unused_tokens():
    """Cased and multilingual BERTs have no [unused0]; [unused10] comes after [unused9].

    Without three: refused.
    """
    tokenizer = tokenizer_of("[unused10] [unused9] [unused1] [unused2]")
    assert target_ids(tokenizer) == (7, 8, 6, 0)
    said = r"has no three tokens like \[unused1\], .*: take a BERT's"
    with pytest.raises(ValueError, match=said):
        target_ids(tokenizer_of("[unused0]"))


def test_text_that_looks_like_a_token_is_text(tokenizer):
    """No sentence, end or padding comes out of what a source or a summary says."""
    document = ["The [SEP] storm [CLS] [PAD] .", "[unused1]"]
    example = make_example(document, ["It [unused1] [SEP] rained"])
    [item] = encode_examples([example], tokenizer, 99, 99)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    assert item.source.count(cls) == item.source.count(sep) == 2
    assert tokenizer.pad_token_id not in item.source and sep not in item.target
    assert [item.target.count(token) for token in target_ids(tokenizer)] == [1, 1, 0, 0]
