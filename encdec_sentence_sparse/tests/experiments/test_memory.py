"""What Figure 1 keeps of a pass: sums over sentences, not the attention to all words."""

import pytest

pytest.importorskip("shared")

from ...experiments import memory

SIZES = (64, 64, 64, 8, 2, 1024)  # 8 heads, 2 layers


def test_what_is_kept_grows_with_sentences_not_with_words():
    many_words, few_words, many_sentences = (
        memory.main(2, words, 20, sentences, SIZES) for words, sentences in ((1024, 4), (512, 4), (512, 8))
    )
    assert many_words == few_words < many_sentences < 2 * 2 * 8 * 20 * 512 * 4  # bytes of (B, H, T, S) in 2 layers
