"""LoBART: local attention against the mask of its definition, padding, and the longer table of positions."""

import copy

import pytest
import torch
from transformers import BartForConditionalGeneration

from ..lobart import LocalAttention, extend_positions, make_local
from .conftest import make_config, roughen


@pytest.fixture
def bart() -> BartForConditionalGeneration:
    return roughen(BartForConditionalGeneration(make_config()))


def local(bart: BartForConditionalGeneration, window: int) -> BartForConditionalGeneration:
    """A copy of it with local attention."""
    model = copy.deepcopy(bart)
    make_local(model, window)
    return model


def states(model: torch.nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None):
    return model.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)[0]


@pytest.mark.parametrize("window", [2, 4, 10, 22, 100])
def test_a_layer_sees_a_band_without_padding(bart, documents, window):
    """Against attention to all words with the mask of the definition; padding sees itself."""
    layer, keep = bart.get_encoder().layers[0].self_attn, documents["attention_mask"].bool()
    band = torch.zeros(3, 1, 12, 12, dtype=torch.bool)
    for document in range(3):
        for i in range(12):
            for j in range(12):
                band[document, 0, i, j] = abs(i - j) <= window / 2 and keep[document, j] or i == j
    vectors = torch.randn(3, 12, 16)
    expected = layer(vectors, attention_mask=torch.zeros(band.shape).masked_fill(~band, float("-inf")))[0]
    found = LocalAttention(layer, window)(vectors, keep[:, None, None])[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_limit_a_window_that_covers_the_document_is_full_attention(bart, documents):
    """11 tokens to either side are all of 12, 10 are not."""
    keep = documents["attention_mask"]
    expected = states(bart, documents["input_ids"], keep)[keep.bool()]
    for window, is_full in ((22, True), (1024, True), (20, False)):
        found = states(local(bart, window), documents["input_ids"], keep)[keep.bool()]
        assert torch.allclose(found, expected, atol=2e-5) == is_full


def test_d16_both_tables_of_positions_are_copied_again_and_again(bart):
    """32 positions become 75: 32 + 32 + 11; BART's two rows that stand for no position stay in front, once."""
    tables = [coder.embed_positions for coder in (bart.get_encoder(), bart.get_decoder())]
    before = [table.weight.detach().clone() for table in tables]
    extend_positions(bart, 75)
    for table, old in zip(tables, before, strict=True):
        assert torch.equal(table.weight, torch.cat([old[:2], old[2:], old[2:], old[2:13]]))
        assert table.num_embeddings == 77 and table.weight.requires_grad
    assert bart.config.max_position_embeddings == 75
    assert states(bart, torch.full((1, 75), 5)).shape == (1, 75, 16)
