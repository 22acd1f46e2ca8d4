"""BERTSum's text: word pieces, cuts, tokenizers."""

from types import SimpleNamespace

import pytest
from transformers import BertTokenizer

from ..bertsum.bert_text import TARGET_TOKENS, collate, decode, encode_examples, make_tokenizer, target_ids


def make_example(document, summary) -> SimpleNamespace:
    return SimpleNamespace(document=document, summary=summary)


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TARGET_TOKENS, *"the storm hit town . it rained".split()]
    return BertTokenizer(vocab={word: i for i, word in enumerate(words)})


def test_d22_every_sentence_has_its_cls_and_segments_take_turns(tokenizer):
    example = make_example(["The storm .", "It rained .", "Storm"], ["It rained .", "The storm"])
    [item] = encode_examples([example], tokenizer, 99, 99)
    assert tokenizer.convert_ids_to_tokens(item.source) == (
        "[CLS] the storm . [SEP] [CLS] it rained . [SEP] [CLS] storm [SEP]".split()
    )
    batch = collate([item, *encode_examples([make_example(["Storm"], ["storm"])], tokenizer, 99, 99)])
    assert batch.segments[0].tolist() == [0] * 5 + [1] * 5 + [0] * 3 and not batch.segments[1].any()
    assert batch.starts.tolist() == [[0, 5, 10], [0, 0, 0]] and batch.keep_sentences.sum(1).tolist() == [3, 1]
    assert not item.was_cut
    target = "[unused0] it rained . [unused2] the storm [unused1]"
    assert tokenizer.convert_ids_to_tokens(item.target) == target.split()
    assert decode(tokenizer, item, item.target) == "it rained.\nthe storm"


def test_long_documents_are_cut_and_still_end_in_sep(tokenizer):
    example = make_example(["The storm .", "It rained .", "Storm"], ["It rained ."])
    for longest in range(3, 14):
        [item] = encode_examples([example], tokenizer, longest, 3)
        assert len(item.source) <= longest and item.source[-1] == tokenizer.sep_token_id
        assert (3, 3) not in zip(item.source, item.source[1:], strict=False) and item.source[-2] not in (2, 3)
        assert item.was_cut == (longest < 13)
        assert item.target == [5, *tokenizer("it", add_special_tokens=False)["input_ids"], 6]


def test_a_tokenizer_without_target_tokens_is_refused():
    with pytest.raises(ValueError, match=r"the tokenizer lacks \[unused0\], \[unused1\], \[unused2\], padding"):
        target_ids(BertTokenizer(vocab={"[UNK]": 0, "[PAD]": 1}))


def test_wordpieces_are_the_most_frequent_words_and_all_letters():
    texts = ["The storm hit .", "the storm", "a hit"]
    tokenizer = make_tokenizer(texts, 8 + 2 * 10 + 2, 64)  # 8 special; ". a e h i m o r s t" with and without ##
    words = {word for word in tokenizer.get_vocab() if len(word.strip("#")) > 1 and word[0] != "["}
    assert words == {"hit", "storm"}  # of three words with two occurrences the first two of the alphabet
    assert tokenizer.tokenize("storms zoo") == ["storm", "##s", "[UNK]"]
    assert make_tokenizer(texts, 30, 64).get_vocab() == tokenizer.get_vocab()
