"""Heads as text, and which heads are masked where none are named."""

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertModel

from ..heads import all_heads, find_heads, read_heads, write_heads
from ..masking import PAPER_HEADS


@pytest.mark.parametrize(
    ("heads", "text"),
    [
        ({1: range(16)}, "1:0-15"),
        ({3: [13, 3, 4, 1, 14, 15]}, "3:1,3-4,13-15"),
        ({2: [1, 1], 1: (3, 0)}, "1:0,3,2:1"),
        ({2: [0, 1, 3], 1: [0, 1]}, "1:0-1,2:0-1,3"),
    ],
)
def test_heads_are_written_in_one_way_and_read_back(heads, text):
    assert write_heads(heads) == text
    assert read_heads(text) == {layer: sorted(set(chosen)) for layer, chosen in heads.items()}


@pytest.mark.parametrize("text", ["3", "3:", "a:1", "3:2-1", "1:0,,2"])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="write LAYER:HEADS"):
        read_heads(text)


def large(layers: int = 12) -> BartForConditionalGeneration:
    """The structure of facebook/bart-large, without memory."""
    with torch.device("meta"):
        return BartForConditionalGeneration(BartConfig(decoder_layers=layers))


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
def test_heads_of_a_model(bart):
    """All, the top layer, a list, the name of a data set in Appendix B.

    What the model does not have is refused.
    """
    assert all_heads(bart) == {1: [0, 1, 2, 3], 2: [0, 1, 2, 3]}
    assert find_heads("top", bart) == {2: [0, 1, 2, 3]} and find_heads("2:1,0", bart) == {2: [0, 1]}
    assert write_heads(find_heads("xsum", large())) == "3:1-4,6-9,11,13-15"
    # D14, of a folder
    assert find_heads("", large(), "corpora/nyt/", by_tagger=True) == PAPER_HEADS["nyt"]
    for text in ("xsum", "3:0", "1:4"):
        with pytest.raises(ValueError, match="does not exist|has no head"):
            find_heads(text, bart)
    bart.config.model_type = "led"  # whose cross-attention wants another mask
    with pytest.raises(ValueError, match="takes no mask per head"):
        all_heads(bart)
    sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=9)
    with pytest.raises(ValueError, match="no cross-attention"):
        all_heads(BertModel(BertConfig(**sizes)))


@pytest.mark.parametrize(
    ("data", "layers", "by_tagger", "heads"),
    [
        ("cnn_dailymail", 12, True, "1:0-15"),
        ("nyt", 12, True, "3:3-4,6-15"),
        ("xsum", 12, True, "3:1-4,6-9,11,13-15"),
        ("samsum", 12, True, "12:0-15"),
        ("xsum", 6, True, "6:0-15"),
        ("cnn_dailymail", 12, False, "12:0-15"),
    ],
)
def test_d14_default_heads(data, layers, by_tagger, heads):
    """D14: Appendix B's for a tagger's masks on a BART-large that learned such data.

    Else all of the top layer.
    """
    assert write_heads(find_heads("", large(layers), data, by_tagger)) == heads
