"""Words, vocabulary, numbers of unknown words, batches."""

import pytest

from .. import text
from ..text import BOS, EOS, PAD, SPECIAL, UNK, Vocabulary
from .conftest import encode

WORDS = {  # tokenised text stays as it is
    "Don't (re-open) 3.5% of 1,000!": "don't ( re-open ) 3.5 % of 1,000 !",
    "the dog 's bone , they 're": "the dog 's bone , they 're",
    "Über naïve. End.Next": "über naïve . end . next",
    "a </s> <unk>": "a < / s > < unk >",  # text cannot smuggle in special tokens
    # Combining marks are part of a word: Hindi, Tamil, Thai, Hebrew, accents that stand alone, a
    # Turkish capital.
    "हिन्दी, தமிழ்": "हिन्दी , தமிழ்",
    "กรุงเทพ שָׁלוֹם": "กรุงเทพ שָׁלוֹם",
    "Cafe\u0301! İstanbul'da": "cafe\u0301 ! i\u0307stanbul'da",
}


def test_d21_words_by_hand():
    for line, want in WORDS.items():
        assert text.words(line) == text.words(want) == want.split()
    counted = "don t snake case 3 5 हिन्दी"
    assert text.split_words("Don't! snake_case 3.5% हिन्दी") == counted.split()


def test_vocabulary_takes_the_most_frequent_words_special_tokens_included():
    built = Vocabulary.build(["b b c", "B a c d"], size=7)
    assert built.known == [*SPECIAL, "b", "c", "a"] and len(built) == 7  # a before d: the alphabet
    assert [built.number[word] for word in SPECIAL] == [PAD, UNK, BOS, EOS] == [0, 1, 2, 3]


def test_unknown_words_have_numbers_by_first_appearance_in_the_source(vocabulary):
    V, cat = len(vocabulary), vocabulary.number["cat"]
    [item] = encode([("zorn cat quux zorn flim quux", "quux cat wug zorn")], vocabulary, 9, 9)
    assert item.unknown == ["zorn", "quux", "flim"]
    assert item.source.tolist() == [V, cat, V + 1, V, V + 2, V + 1]
    assert item.target.tolist() == [BOS, V + 1, cat, UNK, V, EOS]
    decoded = text.decode(vocabulary, item, [BOS, *item.source, UNK, EOS, PAD])
    assert decoded == "zorn cat quux zorn flim quux <unk>"


def test_items_are_cut_as_in_the_released_code(vocabulary):
    """The end counts as a token of the target, the begin does not; a cut target has no end."""
    pair = ("the cat sat zorn", "zorn cat sat")
    [whole], [cut] = encode([pair], vocabulary, 4, 4), encode([pair], vocabulary, 3, 2)
    V, cat, sat = len(vocabulary), *(vocabulary.number[word] for word in ("cat", "sat"))
    assert whole.target.tolist() == [BOS, V, cat, sat, EOS] and whole[3:] == (False, False)
    # zorn is beyond the cut, so nothing can be copied and it is unknown in the target.
    assert cut.unknown == [] and cut.target.tolist() == [BOS, UNK, cat]
    assert cut.was_cut and cut.target_was_cut


def test_a_batch_is_its_items_padded(items, batch):
    assert batch.extra == max(len(item.unknown) for item in items) == 4
    for row, item in enumerate(items):
        for part, keep, numbers in (
            (batch.source, batch.keep, item.source),
            (batch.target_in, batch.keep_target, item.target[:-1]),
            (batch.target_out, batch.keep_target, item.target[1:]),
        ):
            count, padding = len(numbers), part.size(1) - len(numbers)
            assert part[row].tolist() == numbers.tolist() + [PAD] * padding
            assert keep[row].tolist() == [True] * count + [False] * padding
    empty = text.collate(encode([("", "")], Vocabulary([*SPECIAL]), 5, 5))
    assert empty.source.tolist() == [[PAD]] and not empty.keep.any() and empty.extra == 0


def test_bad_vocabularies_are_refused():
    for known in (["a"], [*SPECIAL, "a", "a"]):
        with pytest.raises(ValueError, match="a vocabulary begins with <pad> <unk> <s> </s> and"):
            Vocabulary(known)
