"""The way from text to batches: tokenizer, items, order of the data."""

import pytest
from tokenizers import Tokenizer

from ..model import BOS, EOS, IGNORED, PAD, UNK
from ..text import Item, collate, encode_examples
from .conftest import TEXTS, example

# Tokenizer


def test_text_comes_back(words, characters):
    """At both levels, for text in NFC; an unknown character is UNK."""
    for tokenizer in (words, characters):
        for text in TEXTS[:4]:
            ids = tokenizer.encode(text).ids
            assert tokenizer.decode(ids) == text and min(ids) > UNK
        assert UNK in tokenizer.encode("☃").ids


def test_frequent_words_are_whole_and_others_cut(words):
    """A frequent word is one unit with its blank; punctuation never joins a word."""
    assert words.encode("the cat sat.").tokens == ["▁the", "▁cat", "▁sat", "."]
    pieces = words.encode("the mother").tokens
    assert pieces[0] == "▁the" and len(pieces) > 2 and "".join(pieces) == "▁the▁mother"
    assert words.get_vocab_size() == 60


def test_characters_are_single(characters):
    """A blank is a unit, too (Section 6 counts how many are dropped)."""
    assert characters.encode("the cat").tokens == ["▁", "t", "h", "e", "▁", "c", "a", "t"]
    letters = set("".join(TEXTS)) - {" "}
    assert characters.get_vocab_size() == 4 + 1 + len(letters)


def test_special_tokens_in_a_text_are_text(words):
    """Neither a hole in a source nor an end in the midst of a target; saved and loaded, too."""
    for tokenizer in (words, Tokenizer.from_str(words.to_str())):
        assert not {PAD, BOS, EOS} & set(tokenizer.encode("<s> the <pad> cat </s> </s>").ids)


# From text to items


@pytest.mark.parametrize("longest", [2, 8, 9, 100])
def test_items_are_cut_and_end_with_eos(words, longest):
    """Source and target are the tokenizer's ids and EOS, no longer than asked, EOS included."""
    text = "the cat sat on the mat ."  # 8 units, so that 9 is just enough
    [item] = encode_examples([example(text, text)], words, longest, longest + 1)
    ids = words.encode(text).ids
    assert list(item.source) == [*ids[: longest - 1], EOS] and item.was_cut == (longest < 9)
    assert list(item.target) == [*ids[:longest], EOS]


# Batches


def test_collate():
    """Padding on the right, BOS before the target's inputs, EOS at its end."""
    batch = collate([Item([5, 6, EOS], [7, 8, 9, EOS], False), Item([5, EOS], [7, EOS], False)])
    assert batch.source.tolist() == [[5, 6, EOS], [5, EOS, PAD]]
    assert batch.target_input.tolist() == [[BOS, 7, 8, 9], [BOS, 7, PAD, PAD]]
    assert batch.target.tolist() == [[7, 8, 9, EOS], [7, EOS, IGNORED, IGNORED]]
