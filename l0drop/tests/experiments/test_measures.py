"""What figures and tables of the laboratory rest on, by hand or against the slow restatement."""

import math

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...experiments import measures  # noqa: E402
from ...model import EOS  # noqa: E402
from ...text import Item  # noqa: E402


@pytest.fixture
def items():
    """Sources of 6, 3 and 4 tokens."""
    sources = [[5, 9, 11, 4, 7, EOS], [8, 6, EOS], [10, 12, 13, EOS]]
    return [Item(source, [EOS], False) for source in sources]


OUTPUTS = [[9, 4, 17], [6], [20, 21, 5, 8]]  # what a decoder might have said to them, without </s>


def test_summed_attention_by_hand():
    """Figures 1 and 7, D12: columns are summed, pruned source words left out, their share of all attention told."""
    maps = [torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]]), torch.tensor([[0.75, 0.25]])]
    everything, share = measures.summed_attention(maps, [[False] * 3, [False] * 2])
    np.testing.assert_allclose(everything, [0.6, 0.6, 0.8, 0.75, 0.25], rtol=1e-6)
    assert share == 0
    retained, share = measures.summed_attention(maps, [[False, True, False], [False, True]])
    np.testing.assert_allclose(retained, [0.6, 0.8, 0.75], rtol=1e-6)
    assert share == pytest.approx((0.6 + 0.25) / 3)  # of three target words' attention


def test_d12_attention_maps_are_those_of_decoding(make_model, items):
    """Figure 1: mean over heads and layers; what pruned words receive is what Algorithm 1's dummy receives."""
    model = make_model()
    with torch.no_grad():  # the median gate is on the edge of closing
        locations = [model.encode(torch.tensor([item.source])).log_alpha[-1] for item in items]
        model.l0drop[-1].predictor.bias -= torch.cat(locations, 1).median() + 2.4
    pruned, _ = measures.encode_all(model, items)
    assert any(row.any() and not row.all() for row in pruned)
    maps = measures.attention_maps(model, items, OUTPUTS)  # a ragged batch
    for item, output, closed, weights in zip(items, OUTPUTS, pruned, maps, strict=True):
        torch.testing.assert_close(weights.sum(-1), torch.ones(len(output) + 1))
        memory = model.make_memory(model.encode(torch.tensor([item.source])))
        layers = [layer.cross_attention for layer in model.decoder]
        with torch.inference_mode(), measures.recorded(layers) as seen:
            model.decode(torch.tensor([[1, *output]]), model.project(memory))
        compressed = torch.stack([layer.mean(1)[0] for layer in seen]).mean(0)  # (T, 1 + retained)
        dummies = int(closed.any())
        torch.testing.assert_close(weights[:, ~closed], compressed[:, dummies:], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(weights[:, closed].sum(-1), compressed[:, :dummies].sum(-1), rtol=1e-4, atol=1e-5)


def test_encoder_entropy_is_of_the_heads_mean_in_the_last_layer(make_model, items):
    """Figure 8: without queries attention is uniform over the real tokens, whatever the padding."""
    model = make_model(l0drop="none")
    attention = model.encoder[-1].attention
    with torch.no_grad():
        attention.query.weight.zero_()
        attention.query.bias.zero_()
    pruned, entropies = measures.encode_all(model, items)
    for row, item in zip(entropies, items, strict=True):
        np.testing.assert_allclose(row, math.log(len(item.source)), rtol=1e-5)
    assert not np.concatenate(pruned).any()  # a baseline prunes nothing
    with torch.no_grad():  # one of four heads looks at one of three tokens: the mean is (1/2, 1/4, 1/4) in some order
        attention.query.bias[:4] = 1000.0
    [row] = measures.encode_all(model, items[1:2])[1]
    np.testing.assert_allclose(row, 1.5 * math.log(2), rtol=1e-4)


def test_mean_entropies_by_hand():
    """Figure 8: over the words of the corpus, not over sentences; NaN where a kind has no word."""
    entropies = [np.array([1.0, 2.0, 3.0]), np.array([5.0])]
    assert measures.mean_entropies(entropies, [np.array([False, True, False]), np.array([False])]) == (3.0, 2.0)
    retained, pruned = measures.mean_entropies(entropies, [np.zeros(3, dtype=bool), np.zeros(1, dtype=bool)])
    assert retained == 11 / 4 and math.isnan(pruned)


def test_places_in_words_by_hand():
    """Figure 6: first 0, last 1; the space symbol has no place; a word of one character is both first and last."""
    characters, words = list("▁abcdef▁ab.▁x"), [0] * 7 + [1] * 3 + [2] + [3] * 2
    assert measures.places_in_words(characters, words) == [
        "space", "0.0-0.2", "0.2-0.4", "0.4-0.6", "0.6-0.8", "0.8-1.0", "0.8-1.0",
        "space", "0.0-0.2", "0.8-1.0", "alone", "space", "alone",
    ]  # fmt: skip
