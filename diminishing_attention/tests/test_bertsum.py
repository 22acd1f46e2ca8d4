"""BERTSum: Eq. (6), the decoder against a slow restatement, cached steps, the mechanism's place, sizes and inputs."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from ..bertsum.bert_text import TargetIds, collate
from ..bertsum.bertsum import BertSumConfig, BertSumExtAbs, initialise, probability_to_extract, with_positions
from ..diminishing import Diminishing
from ..search import beam_search
from ..text import Item
from .reference import dim_attention, dynamic_attention

SPECIAL = TargetIds(bos=5, eos=6, between=7, pad=0)
KINDS = ("none", "dim", "dydim")


def small_encoder(seed: int = 0, positions: int = 30) -> BertModel:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=positions, initializer_range=0.4,
    )  # fmt: skip
    return BertModel(config)


def roughen(model: torch.nn.Module) -> torch.nn.Module:
    """Eval mode, and weights large enough that every part shows in the output."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith(("encoder", "embedding")):
                parameter.add_(0.4 * torch.randn_like(parameter))
    return model.eval()


def small_model(kind: str = "none", **changes) -> BertSumExtAbs:
    config = BertSumConfig(layers=2, heads=4, feed_forward=24, diminishing=Diminishing(kind), **changes)
    return roughen(BertSumExtAbs(small_encoder(), config, SPECIAL))


def logits_of(model: BertSumExtAbs, batch) -> Tensor:
    """Teacher-forced logits, (B, T, V)."""
    return model.decode(model.encode(batch), batch.keep, batch.target_in)


def make_item(source: int, target: int, seed: int) -> Item:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda n: torch.randint(8, 40, (n,), generator=generator).tolist()  # noqa: E731
    return Item([2, *draw(source), 3], [5, *draw(target), 6], [], False)


@pytest.fixture
def batch():
    """Three documents of 27, 12 and 8 tokens, summaries of 7, 5 and 9."""
    return collate([make_item(25, 7, 1), make_item(10, 5, 2), make_item(6, 9, 3)])


def test_params_of_the_paper_at_bert_base():
    """Table 1: 180.2M, BERT's pooler included, and 128.2M."""
    with torch.device("meta"):
        abstractive = BertSumExtAbs(BertModel(BertConfig()), BertSumConfig(), SPECIAL)
        six_layers = BertModel(BertConfig(num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048))
        transformer = BertSumExtAbs(six_layers, BertSumConfig(), SPECIAL)
    for model, count in ((abstractive, 180_222_522), (transformer, 128_251_962)):
        assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert sum(p.numel() for p in abstractive.layers.parameters()) == 6 * 7_877_888
    assert abstractive.embedding.weight.numel() == 23_440_896  # its own copy, which is also the output map


def test_eq6_d24_probability_of_a_sentence():
    """By hand: sigmoid(w h + b) for each sentence. D24: the stage that trains it is not here."""
    score, states = torch.nn.Linear(16, 1), torch.randn(2, 3, 16)
    weight, bias = numbers(score.weight)[0], score.bias.item()
    found = probability_to_extract(states, score)
    for b, n in np.ndindex(2, 3):
        assert found[b, n].item() == pytest.approx(
            1 / (1 + math.exp(-(numbers(states[b, n]) @ weight + bias))), abs=1e-6
        )


def test_the_last_position_is_repeated_for_longer_sources():
    """Released PreSumm; a longer table stays as it is, and all other weights are kept."""
    bert = small_encoder(positions=12)
    longer, table = with_positions(bert, 20), "embeddings.position_embeddings.weight"
    one, other = bert.state_dict(), longer.state_dict()
    assert torch.equal(other[table][:12], one[table]) and torch.equal(other[table][12:], one[table][-1:].expand(8, -1))
    assert all(torch.equal(other[name], one[name]) for name in one if name != table)
    assert longer.config.max_position_embeddings == 20 and with_positions(bert, 10) is bert


def test_segments_reach_bert(batch):
    """Other segments give other states, and other summaries: token types are BERT's way to tell sentences apart."""
    model = small_model()
    turned = batch._replace(segments=1 - batch.segments)
    assert (model.encode(turned) - model.encode(batch))[batch.keep].abs().max() > 0.01
    expected = model.encoder(batch.source, batch.keep.long(), batch.segments).last_hidden_state
    torch.testing.assert_close(model.encode(batch), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_forward_and_backward_make_every_tensor_on_the_models_device(batch, kind):
    """On the device `meta`, which computes nothing and refuses to mix devices; BERT, which reads its mask, is out."""
    with torch.device("meta"):
        model = BertSumExtAbs(small_encoder(), BertSumConfig(2, 4, 24, diminishing=Diminishing(kind)), SPECIAL)
        states = torch.zeros(*batch.source.shape, 16, requires_grad=True)
    moved = type(batch)(*(part.to("meta") for part in batch))
    model.decode(states, moved.keep, moved.target_in).sum().backward()
    decoder = [parameter for name, parameter in model.named_parameters() if not name.startswith("encoder")]
    assert all(tensor.grad.device.type == "meta" for tensor in [states, *decoder])


def numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def slow_norm(x: np.ndarray, norm) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)  # released PreSumm: 1e-6
    return scaled * numbers(norm.weight) + numbers(norm.bias)


def slow_linear(x: np.ndarray, linear) -> np.ndarray:
    return x @ numbers(linear.weight).T + numbers(linear.bias)


def slow_gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def slow_attention(part, x: np.ndarray, memory: np.ndarray, heads: int, gain=None) -> np.ndarray:
    """Head by head and step by step; self-attention, where x is the memory, reads up to its own step."""
    query, keys, values = slow_linear(x, part.query), slow_linear(memory, part.key), slow_linear(memory, part.value)
    size, read = x.shape[1] // heads, np.zeros_like(x)
    for head in range(heads):
        place, weights = slice(head * size, (head + 1) * size), np.zeros((len(x), len(memory)))
        for t in range(len(x)):
            seen = t + 1 if x is memory else len(memory)
            scores = np.exp(keys[:seen, place] @ query[t, place] / math.sqrt(size))
            weights[t, :seen] = scores / scores.sum()
        read[:, place] = (gain(weights) if gain else weights) @ values[:, place]
    return slow_linear(read, part.output)


def slow_decode(model: BertSumExtAbs, memory: np.ndarray, tokens: list[int], kind: str) -> np.ndarray:
    """Logits of every step of one document."""
    width, embedding = memory.shape[1], numbers(model.embedding.weight)
    angles = [[t / 10_000 ** (2 * (i // 2) / width) for i in range(width)] for t in range(len(tokens))]
    states = embedding[tokens] * math.sqrt(width) + np.where(np.arange(width) % 2, np.cos(angles), np.sin(angles))
    for number, layer in enumerate(model.layers):
        normed, is_last = slow_norm(states, layer.self_norm), number == len(model.layers) - 1
        states = states + slow_attention(layer.self_attention, normed, normed, model.heads)
        gain = {"none": None, "dim": dim_attention, "dydim": dynamic_attention}[kind] if is_last else None
        normed = slow_norm(states, layer.cross_norm)
        states = states + slow_attention(layer.cross_attention, normed, memory, model.heads, gain)
        block = layer.feed_forward
        states = states + slow_linear(slow_gelu(slow_linear(slow_norm(states, block.norm), block.inner)), block.outer)
    return slow_norm(states, model.norm) @ embedding.T + numbers(model.output_bias)


@pytest.mark.parametrize("kind", KINDS)
def test_d7_the_decoder_is_the_slow_restatement(batch, kind):
    """D7: per head, cumulative over target positions, in the last layer's cross-attention alone, not renormalised."""
    model = small_model(kind)
    logits, memory = logits_of(model, batch), model.encode(batch).detach().double().numpy()
    for row in range(3):
        source, target = int(batch.keep[row].sum()), int(batch.keep_target[row].sum())
        expected = slow_decode(model, memory[row, :source], batch.target_in[row, :target].tolist(), kind)
        found = logits[row, :target].detach().double().numpy()
        np.testing.assert_allclose(found, expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_with_a_cache_are_the_whole_at_once(batch, kind):
    """Two beams per source with the same tokens: both are the teacher-forced row; the source is stored once."""
    model = small_model(kind)
    expected = logits_of(model, batch).log_softmax(-1)
    source, past = model.start(batch)
    rows = torch.arange(3).repeat_interleave(2)
    past = past.reorder(rows)
    assert all(len(keys) == 3 for keys, _ in source.projected) and len(past.attended.coverage) == 6
    for t in range(batch.target_in.size(1)):
        log_p, past = model.step(batch.target_in[rows, t], source, past)
        is_real = batch.keep_target[rows, t]
        torch.testing.assert_close(log_p[is_real], expected[rows, t][is_real], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_beam_search_scores_are_those_of_teacher_forcing(batch, kind):
    """The winner's score, computed again at once: wrong if coverage or cache did not follow the beams."""
    model = small_model(kind)
    found = beam_search(model, batch, beam=4, max_length=12, min_length=6)
    items = []
    for row, tokens in enumerate(found.tokens):
        ids = batch.source[row][batch.keep[row]].tolist()
        items.append(Item(ids, [5, *tokens, 6], [], False))
    again = collate(items)
    log_p = logits_of(model, again).log_softmax(-1).gather(-1, again.target_out.unsqueeze(-1)).squeeze(-1)
    means = (log_p * again.keep_target).sum(1) / again.keep_target.sum(1)
    torch.testing.assert_close(found.scores, means, atol=1e-4, rtol=1e-5)
    for row in range(3):
        alone = collate([items[row]])
        torch.testing.assert_close(beam_search(model, alone, beam=4, max_length=12, min_length=6).scores[0],
                                   found.scores[row], atol=1e-4, rtol=1e-5)  # fmt: skip


def seen_weights(model: BertSumExtAbs, batch) -> Tensor:
    """What the last layer's cross-attention reads with, (B, H, T, S)."""
    seen, attention = [], model.layers[-1].cross_attention
    read, attention.read = attention.read, lambda weights, values: (seen.append(weights), read(weights, values))[1]
    logits_of(model, batch)
    attention.read = read
    return seen[0]


def test_d7_dropout_comes_after_diminishing(batch):
    """D7: with dropout, the coverage sums up the softmax weights themselves: all gains are those without it."""
    model = small_model("dim", dropout=0.5)
    plain = seen_weights(model, batch)  # eval mode
    model.layers[-1].cross_attention.dropout.train()
    torch.testing.assert_close(seen_weights(model, batch), plain)


def test_d1_weights_are_not_renormalised(batch):
    """D1: the gains of a step sum to less than 1."""
    assert (seen_weights(small_model("dim"), batch).sum(-1) < 0.999).all()


def test_d5_padding_has_no_influence_and_a_row_of_it_gives_no_nan(batch):
    """D5: a document without any token: all weights 0, outputs and gradients finite."""
    empty = batch._replace(keep=batch.keep & torch.tensor([[True], [False], [True]]))
    for kind in KINDS:
        model = small_model(kind)
        loss = model(empty).sum()
        loss.backward()
        grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        assert loss.isfinite() and all(grad.isfinite().all() for grad in grads)
    changed = batch._replace(source=torch.where(batch.keep, batch.source, 9))
    torch.testing.assert_close(logits_of(model, changed), logits_of(model, batch))


def test_the_loss_is_the_cross_entropy_of_the_targets(batch):
    """One value per real target token; label smoothing (eps / V over all tokens, D20) in training alone."""
    model = small_model("dim", label_smoothing=0.3)
    log_p, real = logits_of(model, batch).log_softmax(-1), batch.keep_target
    places = [(b, t) for b in range(3) for t in range(10) if real[b, t]]
    expected = torch.stack([-log_p[b, t, batch.target_out[b, t]] for b, t in places])
    torch.testing.assert_close(model(batch), expected)
    smoothed = 0.7 * expected - 0.3 * torch.stack([log_p[b, t].mean() for b, t in places])
    model.training = True  # of the model itself, not of its dropout
    torch.testing.assert_close(model(batch), smoothed)


@pytest.mark.parametrize("width", [64, 768])
def test_d18_new_maps_keep_the_scale_of_their_input(width):
    """0.02 at BERT's width (released PreSumm), in_features^-0.5 at others: 0.125 at 64."""
    layer = torch.nn.Sequential(torch.nn.Linear(width, 300), torch.nn.Linear(2048, 300))
    initialise(layer, width)
    wanted = [0.02, 0.02] if width == 768 else [0.125, 2048**-0.5]
    assert [part.weight.std().item() for part in layer] == pytest.approx(wanted, rel=0.02)
    assert not layer[0].bias.any() and not layer[1].bias.any()
