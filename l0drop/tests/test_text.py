"""The way from text to batches: tokenizer, items, order of the data."""

from array import array
from itertools import islice

import pytest
import torch
from tokenizers import Tokenizer

from ..model import BOS, EOS, IGNORED, PAD, UNK
from ..text import Item, TokenBatches, collate, encode_examples
from .conftest import TEXTS, example

# Tokenizer


def test_text_comes_back(words, characters):
    """Encoding and decoding is the identity, at both levels, for text in NFC; an unknown character is UNK."""
    for tokenizer in (words, characters):
        for text in TEXTS[:4]:
            ids = tokenizer.encode(text).ids
            assert tokenizer.decode(ids) == text and min(ids) > UNK
        assert UNK in tokenizer.encode("☃").ids


def test_frequent_words_are_whole_and_others_cut(words):
    """Byte-pair encoding: a word of the corpus is one unit with its blank; punctuation never joins a word."""
    assert words.encode("the cat sat.").tokens == ["▁the", "▁cat", "▁sat", "."]
    pieces = words.encode("the mother").tokens
    assert pieces[0] == "▁the" and len(pieces) > 2 and "".join(pieces) == "▁the▁mother"
    assert words.get_vocab_size() == 60


def test_characters_are_single(characters):
    """Character level: a unit is one character, a blank among them (Section 6 counts how many are dropped)."""
    assert characters.encode("the cat").tokens == ["▁", "t", "h", "e", "▁", "c", "a", "t"]
    assert characters.get_vocab_size() == 4 + 1 + len({c for text in TEXTS for c in text if c != " "})


def test_special_tokens_in_a_text_are_text(words):
    """A corpus with "<pad>" or "</s>" in it puts neither holes into a source nor an end into the midst of a target."""
    for tokenizer in (words, Tokenizer.from_str(words.to_str())):
        assert not {PAD, BOS, EOS} & set(tokenizer.encode("<s> the <pad> cat </s> </s>").ids)


# From text to items


@pytest.mark.parametrize("rule", [None, lambda examples, encodings: [[i % 2 == 0 for i in range(8)]]])
@pytest.mark.parametrize("longest", [2, 8, 9, 100])
def test_items_are_cut_and_end_with_eos(words, longest, rule):
    """Source and target are the tokenizer's ids and EOS, no longer than asked, EOS included; a rule stays aligned."""
    text = "the cat sat on the mat ."  # 8 units, so that 9 is just enough
    item = encode_examples([example(text, text)], words, longest, longest + 1, rule)[0]
    assert list(item.source) == [*words.encode(text).ids[: longest - 1], EOS] and item.was_cut == (longest < 9)
    assert list(item.target) == [*words.encode(text).ids[:longest], EOS]
    kept = [i % 2 == 0 for i in range(len(item.source) - 1)]
    assert item.rule_keep is None if rule is None else list(item.rule_keep) == [*kept, True]


# Batches


def test_collate():
    """Padding on the right, BOS before the target's inputs, EOS at its end; padding is never kept by a rule."""
    keeps = [True, False, True], [True] * 2
    items = [Item([5, 6, EOS], [7, 8, 9, EOS], False, keeps[0]), Item([5, EOS], [7, EOS], False, keeps[1])]
    batch = collate(items)
    assert batch.source.tolist() == [[5, 6, EOS], [5, EOS, PAD]]
    assert batch.target_input.tolist() == [[BOS, 7, 8, 9], [BOS, 7, PAD, PAD]]
    assert batch.target.tolist() == [[7, 8, 9, EOS], [7, EOS, IGNORED, IGNORED]]
    assert batch.rule_keep.tolist() == [[True, False, True], [True, True, False]]
    assert batch.rule_keep.dtype == torch.bool
    assert collate([item._replace(rule_keep=None) for item in items]).rule_keep is None


@pytest.fixture
def many():
    """Items of 200 lengths of source and target."""
    lengths = torch.randint(2, 30, (200, 2), generator=torch.Generator().manual_seed(0)).tolist()
    return [Item(array("i", [5] * source), array("i", [6] * target), False) for source, target in lengths]


def test_an_epoch_is_the_corpus_once(many):
    """Every example once per epoch, in no batch more padded target tokens than allowed, and no batch too many."""
    epoch = TokenBatches(many, 100, seed=0).epoch(0)
    assert sorted(sum(epoch, [])) == list(range(200))
    assert max(len(batch) * max(len(many[i].target) for i in batch) for batch in epoch) <= 100
    tokens = sum(len(item.target) for item in many)
    assert len(epoch) <= 1.2 * tokens / 100  # hardly any padding, for neighbours are of like length


def test_batches_go_on_for_ever_and_depend_on_the_seed_alone(many):
    """The stream is one epoch after the other, each in another order; the same seed gives the same stream."""
    batches = TokenBatches(many, 100, seed=0)
    size = len(batches.epoch(0))
    stream = list(islice(batches, 2 * size))
    assert stream == batches.epoch(0) + batches.epoch(1) == list(islice(TokenBatches(many, 100, seed=0), 2 * size))
    assert batches.epoch(0) != batches.epoch(1) and batches.epoch(0) != TokenBatches(many, 100, seed=1).epoch(0)
