"""BERTSum: Eq. (6), the decoder against a slow restatement, cached steps, initial values."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from ..bertsum.bert_text import TargetIds, collate
from ..bertsum.bertsum import BertSumExtAbs, initialise, probability_to_extract, with_positions
from ..diminishing import Diminishing
from ..search import beam_search
from ..text import Item
from .reference import dim_attention, dynamic_attention

SPECIAL = TargetIds(bos=5, eos=6, between=7, pad=0)
EVERY_KIND = pytest.mark.parametrize("kind", ["none", "dim", "dydim"])


def small_encoder(positions: int = 30) -> BertModel:
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)
    more = dict(vocab_size=40, max_position_embeddings=positions, initializer_range=0.4)
    return BertModel(BertConfig(**sizes, **more))


def small_model(kind: str = "none", **changes) -> BertSumExtAbs:
    """In eval mode, with weights large enough that every part shows in the output."""
    sizes = dict(layers=2, heads=4, feed_forward=24) | changes
    model = BertSumExtAbs(small_encoder(), SPECIAL, Diminishing(kind), **sizes).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith(("encoder", "embedding")):
                parameter.add_(0.4 * torch.randn_like(parameter))
    return model


def logits_of(model: BertSumExtAbs, batch) -> Tensor:
    """Teacher-forced logits, (B, T, V)."""
    return model.decode(model.encode(batch), batch.keep, batch.target_in)


@pytest.fixture
def batch():
    """Three documents of 27, 12 and 8 tokens, summaries of 7, 5 and 9."""
    draw = np.random.default_rng(0).integers
    sizes = ((25, 7), (10, 5), (6, 9))
    texts = [([2, *draw(8, 40, s), 3], [5, *draw(8, 40, t), 6]) for s, t in sizes]
    return collate([Item(source, target, [], False) for source, target in texts])


def numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def test_eq6_d24_probability_of_a_sentence():
    """By hand: sigmoid(w h + b) for each sentence. D24: the stage that trains it is not here."""
    score, states = torch.nn.Linear(16, 1), torch.randn(2, 3, 16)
    want = 1 / (1 + np.exp(-(numbers(states) @ numbers(score.weight)[0] + score.bias.item())))
    np.testing.assert_allclose(numbers(probability_to_extract(states, score)), want, atol=1e-6)


def test_the_last_position_is_repeated_for_longer_sources():
    """Released PreSumm; a longer table stays as it is, and all other weights are kept."""
    bert = small_encoder(positions=12)
    longer, table = with_positions(bert, 20), "embeddings.position_embeddings.weight"
    one, other = bert.state_dict(), longer.state_dict()
    assert torch.equal(other[table][:12], one[table])
    assert torch.equal(other[table][12:], one[table][-1:].expand(8, -1))
    assert all(torch.equal(other[name], one[name]) for name in one if name != table)
    assert longer.config.max_position_embeddings == 20 and with_positions(bert, 10) is bert


def test_segments_reach_bert(batch):
    """Token types are BERT's way to tell sentences apart: others give other states."""
    model = small_model()
    turned = batch._replace(segments=1 - batch.segments)
    assert (model.encode(turned) - model.encode(batch))[batch.keep].abs().max() > 0.01
    expected = model.encoder(batch.source, batch.keep.long(), batch.segments).last_hidden_state
    torch.testing.assert_close(model.encode(batch), expected)


def test_forward_and_backward_make_every_tensor_on_the_models_device(batch):
    """On the device `meta`, which refuses to mix devices; BERT, which reads its mask, is out."""
    with torch.device("meta"):
        model = BertSumExtAbs(
            small_encoder(), SPECIAL, Diminishing("dydim"), layers=2, feed_forward=24
        )
        states = torch.zeros(*batch.source.shape, 16, requires_grad=True)
    moved = type(batch)(*(part.to("meta") for part in batch))
    model.decode(states, moved.keep, moved.target_in).sum().backward()
    encoder = {*model.encoder.parameters()}
    decoder = [parameter for parameter in model.parameters() if parameter not in encoder]
    assert all(tensor.grad.device.type == "meta" for tensor in [states, *decoder])


def slow_norm(x: np.ndarray, norm) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    # released PreSumm: 1e-6
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return scaled * numbers(norm.weight) + numbers(norm.bias)


def slow_linear(x: np.ndarray, linear) -> np.ndarray:
    return x @ numbers(linear.weight).T + numbers(linear.bias)


def slow_gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def slow_attention(part, x: np.ndarray, memory: np.ndarray, heads: int, gain=None) -> np.ndarray:
    """Head by head and step by step; self-attention (x is the memory) reads up to its own step."""
    query = slow_linear(x, part.query)
    keys, values = slow_linear(memory, part.key), slow_linear(memory, part.value)
    size, read = x.shape[1] // heads, np.zeros_like(x)
    for head in range(heads):
        place, weights = slice(head * size, (head + 1) * size), np.zeros((len(x), len(memory)))
        for t in range(len(x)):
            seen = t + 1 if x is memory else len(memory)
            scores = np.exp(keys[:seen, place] @ query[t, place] / math.sqrt(size))
            weights[t, :seen] = scores / scores.sum()
        read[:, place] = (gain(weights) if gain else weights) @ values[:, place]
    return slow_linear(read, part.output)


def slow_decode(
    model: BertSumExtAbs, memory: np.ndarray, tokens: list[int], kind: str
) -> np.ndarray:
    """Logits of every step of one document."""
    width, embedding = memory.shape[1], numbers(model.embedding.weight)
    inner = np.array([2 * (i // 2) / width for i in range(width)])
    angles = np.arange(len(tokens))[:, None] / 10_000**inner
    waves = np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles))
    states = embedding[tokens] * math.sqrt(width) + waves
    gains = {"none": None, "dim": dim_attention, "dydim": dynamic_attention}
    for layer in model.layers:
        normed = slow_norm(states, layer.self_norm)
        states = states + slow_attention(layer.self_attention, normed, normed, model.heads)
        gain = gains[kind] if layer is model.layers[-1] else None
        normed = slow_norm(states, layer.cross_norm)
        states = states + slow_attention(layer.cross_attention, normed, memory, model.heads, gain)
        block = layer.feed_forward
        inner = slow_gelu(slow_linear(slow_norm(states, block.norm), block.inner))
        states = states + slow_linear(inner, block.outer)
    return slow_norm(states, model.norm) @ embedding.T + numbers(model.output_bias)


@EVERY_KIND
def test_d7_the_decoder_is_the_slow_restatement(batch, kind):
    """D7: per head, over target positions, in the last layer's cross-attention alone."""
    model = small_model(kind)
    logits, memory = logits_of(model, batch), numbers(model.encode(batch))
    for row in range(3):
        source, target = int(batch.keep[row].sum()), int(batch.keep_target[row].sum())
        tokens = batch.target_in[row, :target].tolist()
        expected = slow_decode(model, memory[row, :source], tokens, kind)
        np.testing.assert_allclose(numbers(logits[row, :target]), expected, atol=2e-4, rtol=1e-4)


@EVERY_KIND
def test_beam_search_scores_are_those_of_teacher_forcing(batch, kind):
    """Computed again at once: others, if coverage or cache did not follow the beams."""
    model, options = small_model(kind), dict(beam=4, max_length=12, min_length=6)
    found, items = beam_search(model, batch, **options), []
    for row, tokens in enumerate(found.tokens):
        items.append(Item(batch.source[row][batch.keep[row]].tolist(), [5, *tokens, 6], [], False))
        alone = beam_search(model, collate(items[-1:]), **options)
        torch.testing.assert_close(alone.scores[0], found.scores[row], atol=1e-4, rtol=1e-5)
    again = collate(items)
    every = logits_of(model, again).log_softmax(-1)
    log_p = every.gather(-1, again.target_out.unsqueeze(-1)).squeeze(-1)
    means = (log_p * again.keep_target).sum(1) / again.keep_target.sum(1)
    torch.testing.assert_close(found.scores, means, atol=1e-4, rtol=1e-5)


def test_d7_dropout_comes_after_diminishing(batch):
    """D7: the coverage sums up the softmax weights themselves: the gains are those without it."""
    model, seen = small_model("dim", dropout=0.5), []
    attention = model.layers[-1].cross_attention
    attention.dropout.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    for training in (False, True):
        attention.dropout.train(training)
        logits_of(model, batch)
    torch.testing.assert_close(*seen)


def test_d5_padding_has_no_influence_and_a_row_of_it_gives_no_nan(batch):
    """D5: a document without any token: all weights 0, outputs and gradients finite."""
    empty = batch._replace(keep=batch.keep & torch.tensor([[True], [False], [True]]))
    model = small_model("dydim")
    loss = model(empty).sum()
    loss.backward()
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert loss.isfinite() and all(grad.isfinite().all() for grad in grads)
    changed = batch._replace(source=torch.where(batch.keep, batch.source, 9))
    torch.testing.assert_close(logits_of(model, changed), logits_of(model, batch))


def test_d20_the_loss_is_the_cross_entropy_of_the_targets(batch):
    """One value a real target token; D20: label smoothing, eps / V, in training alone."""
    model = small_model("dim", label_smoothing=0.3)
    log_p = logits_of(model, batch).log_softmax(-1)[batch.keep_target]
    expected = -log_p.gather(1, batch.target_out[batch.keep_target].unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(model(batch), expected)
    model.training = True  # of the model itself, not of its dropout
    torch.testing.assert_close(model(batch), 0.7 * expected - 0.3 * log_p.mean(1))


@pytest.mark.parametrize(("width", "wanted"), [(64, [0.125, 2048**-0.5]), (768, [0.02, 0.02])])
def test_d18_new_maps_keep_the_scale_of_their_input(width, wanted):
    """0.02 at BERT's width (released PreSumm), in_features^-0.5 at others."""
    layer = torch.nn.Sequential(torch.nn.Linear(width, 300), torch.nn.Linear(2048, 300))
    initialise(layer, width)
    assert [part.weight.std().item() for part in layer] == pytest.approx(wanted, rel=0.02)
    assert not layer[0].bias.any() and not layer[1].bias.any()
