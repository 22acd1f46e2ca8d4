"""The rules of Section 7 and the way from text to batches: tokenizer, tags, patterns, order of the data."""

from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer

from .. import patterns
from ..model import BOS, EOS, PAD, UNK
from ..text import (
    Item,
    TokenBatches,
    collate,
    encode_examples,
    label_spans,
    source_types,
    tag_sources,
    train_tokenizer,
    unit_starts,
)

TEXTS = [
    "the cat sat on the mat .",
    "the dog's house, don't you see?",
    "a cat and a dog sat, sat and sat on mats.",
    "Die Katze saß auf der Matte; München schläft früh.",
] * 4


@pytest.fixture(scope="module")
def words():
    """A tokenizer that knows the frequent words of TEXTS whole and cuts the others."""
    return train_tokenizer(TEXTS, "bpe", 60)


@pytest.fixture(scope="module")
def characters():
    return train_tokenizer(TEXTS, "char", 60)


def example(source: str, target: str = "x", pos=None) -> SimpleNamespace:
    return SimpleNamespace(source=source, target=target, pos=pos)


# Footnote 9


@pytest.mark.parametrize(
    "group, tags",
    [
        ("function", "CC IN RP TO UH DT WP WP$"),
        ("content", "MD JJ JJR JJS NN NNS NNP NNPS RB RBR RBS VB VBD VBG VBN VBP VBZ"),
        ("punctuation", "-LRB- -RRB- HYPH NFP `` '' , . :"),
        ("other", "CD EX FW SYM PRP PRP$ PDT POS WDT WRB LS $ # ADD"),
    ],
)
def test_groups_of_footnote_9(group, tags):
    """The paper's tags and the finer Penn tags that start with them; everything else is "other"."""
    assert {patterns.tag_group(tag) for tag in tags.split()} == {group}


def test_types_of_units():
    """A segmented word is BPEH then BPEO whatever its tag; a whole word has its tag's group."""
    words = [0, 1, 1, 1, 2, 3, 3, 4, 5]
    tags = ["DT", "NN", "NN", "NN", "VBZ", ".", ".", "CD", ","]
    expected = ["function", "BPEH", "BPEO", "BPEO", "content", "BPEH", "BPEO", "other", "punctuation"]
    assert patterns.unit_types(words, tags) == expected
    assert set(expected) == set(patterns.UNIT_TYPES)


def test_pos_pattern():
    """Section 7: drops function words, punctuation, BPEO, and words tagged MD or EX; keeps all else."""
    cases = [  # word, tag, kept
        (0, "DT", False), (1, "NN", True), (1, "NN", False), (2, "MD", False), (3, "EX", False), (4, "VB", True),
        (5, ".", False), (6, "CD", True), (7, "MD", True), (7, "MD", False), (8, "IN", True), (8, "IN", False),
    ]  # fmt: skip
    tags = [tag for _, tag, _ in cases]
    types = patterns.unit_types([word for word, _, _ in cases], tags)
    assert patterns.keep_pos(types, tags) == [kept for _, _, kept in cases]


def test_tags_come_from_the_token_of_the_first_character():
    """Spans that are longer or shorter than units; a gap is an error that names the place."""
    spans = [(0, 3, "DT"), (4, 9, "NN"), (9, 10, ".")]
    assert patterns.tags_of_units([0, 2, 4, 8, 9], spans) == ["DT", "DT", "NN", "NN", "."]
    for gap in (3, 10):
        with pytest.raises(ValueError, match=f"no part-of-speech tag covers character {gap};"):
            patterns.tags_of_units([0, gap], spans)


# Frequency


CORPUS = [[7, 7, 7, 7, 8], [7, 7, 8, 8, 9], [10, 9, 11, 12, 8], [7, 13, 7, 8, 9]]  # 7: 8, 8: 5, 9: 3, 10-13: 1 each


@pytest.mark.parametrize("share, dropped", [(0.39, set()), (0.41, {7}), (0.64, {7}), (0.66, {7, 8}), (0.81, {7, 8, 9})])
def test_d5_most_frequent_units_up_to_a_share(share, dropped):
    """D5: from the top, whole units, as long as they cover at most the share of the 20 running units."""
    assert patterns.dropped_by_frequency(CORPUS, share) == dropped


@pytest.mark.parametrize("share, count, more", [(0.04, 0, set()), (0.21, 4, {10, 11, 12, 13}), (0.36, 5, {9, 10})])
def test_d5_rarest_units_up_to_a_share(share, count, more):
    """D5: from the bottom; what Inv Freq drops first, Freq drops last."""
    dropped = patterns.dropped_by_frequency(CORPUS, share, rarest=True)
    assert len(dropped) == count and more <= dropped and 7 not in dropped


# Tokenizer


@pytest.mark.parametrize("text", TEXTS[:4])
def test_text_comes_back(words, characters, text):
    """Encoding and decoding is the identity, at both levels, for text in NFC; an unknown character is UNK."""
    for tokenizer in (words, characters):
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids) == text and min(ids) > UNK
        assert UNK in tokenizer.encode(f"{text} ☃").ids


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


@pytest.mark.parametrize("special", ["<pad>", "<s>", "</s>"])
def test_special_tokens_in_a_text_are_text(words, special):
    """A corpus with "<pad>" or "</s>" in it puts neither holes into a source nor an end into the midst of a target."""
    for tokenizer in (words, Tokenizer.from_str(words.to_str())):
        assert not {PAD, BOS, EOS} & set(tokenizer.encode(f"the {special} cat {special}").ids)


# Units and tags


def test_units_begin_after_their_blank(words, characters):
    """Offsets count characters of the text as given; a unit that is only the blank begins at the next word."""
    source = "the cat sat, früh."
    for tokenizer in (words, characters):
        starts, tokens = unit_starts(tokenizer, source), tokenizer.encode(source).tokens
        for start, token in zip(starts, tokens, strict=True):
            assert source[start:].startswith(token.lstrip("▁")) and not source[start].isspace()
        assert starts == sorted(starts)


def test_tags_of_the_corpus(words):
    """Tags that come with a corpus, sentence by sentence, reach the units; subwords have their word's."""
    assert label_spans(["the", "cat", "."], ["DT", "NN", "."]) == [(0, 3, "DT"), (4, 7, "NN"), (8, 9, ".")]
    corpus = [example("the mother sat on", pos=[["DT", "NN"], ["VBD", "IN"]])]
    types, tags = source_types(words, corpus[0].source, tag_sources(corpus)[0])
    pieces = len(words.encode("the mother").ids) - 1
    assert tags == ["DT", *["NN"] * pieces, "VBD", "IN"]
    assert types == ["function", "BPEH", *["BPEO"] * (pieces - 1), "content", "function"]


# From text to items


@pytest.mark.parametrize("pattern", ["none", "group"])
@pytest.mark.parametrize("longest", [2, 3, 8, 9, 100])
def test_items_are_cut_and_end_with_eos(words, longest, pattern):
    """Source and target are the tokenizer's ids and EOS, no longer than asked, EOS included; flags stay aligned."""
    text = "the cat sat on the mat ."  # 8 units, so that 9 is just enough
    item = encode_examples([example(text, text)], words, longest, longest + 1, pattern)[0]
    assert item.source == [*words.encode(text).ids[: longest - 1], EOS] and item.was_cut == (longest < 9)
    assert item.target == [*words.encode(text).ids[:longest], EOS]
    kept = [pattern == "none" or i % 2 == 0 for i in range(len(item.source) - 1)]
    assert item.rule_keep == [*kept, True]


def test_d9_no_pattern_drops_the_end(words):
    """D9: EOS is kept, by Group at an even position and by a frequency pattern that names it too."""
    corpus = [example("the cat sat", pos=[["DT", "NN", "VBD"]])]  # EOS is fourth
    group = encode_examples(corpus, words, 9, 9, "group")[0]
    assert group.rule_keep == [True, False, True, True]
    dropped = {EOS, words.token_to_id("▁cat")}
    frequency = encode_examples(corpus, words, 9, 9, "freq", dropped)[0]
    assert frequency.rule_keep == [True, False, True, True]
    assert encode_examples(corpus, words, 9, 9, "pos")[0].rule_keep == [False, True, True, True]


# Batches


def items_of(lengths: list[tuple[int, int]]) -> list[Item]:
    """Items of these source and target lengths."""
    return [Item([5] * source, [6] * target, [True] * source, False) for source, target in lengths]


def test_collate():
    """Padding on the right, BOS before the target's inputs, EOS at its end; padding is never kept by a rule."""
    items = [Item([5, 6, EOS], [7, 8, 9, EOS], [True, False, True], False), Item([5, EOS], [7, EOS], [True] * 2, False)]
    batch = collate(items)
    assert batch.source.tolist() == [[5, 6, EOS], [5, EOS, PAD]]
    assert batch.target_input.tolist() == [[BOS, 7, 8, 9], [BOS, 7, PAD, PAD]]
    assert batch.target.tolist() == [[7, 8, 9, EOS], [7, EOS, PAD, PAD]]
    assert batch.rule_keep.tolist() == [[True, False, True], [True, True, False]]
    assert batch.rule_keep.dtype == torch.bool


@pytest.fixture
def many():
    return items_of(torch.randint(2, 30, (200, 2), generator=torch.Generator().manual_seed(0)).tolist())


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
