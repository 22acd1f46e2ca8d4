"""The model around the equations, its limits, and search: what may change the output."""

import pytest
import torch
from torch import tensor

from .. import search
from ..gates import Memory, dense_memory
from ..model import BOS, EOS, PAD, POSITIONS, Attention, ModelConfig, Transformer, objective
from ..search import beam_search, generate
from . import reference


def memory_of(model, encoding, prune=True):
    return model.project(model.pruned(encoding) if prune else model.dense(encoding))


def logits_of(model, encoding, target, **options):
    return model.decode(target, memory_of(model, encoding, **options))[0]


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().max().item()


# Architecture


@pytest.mark.parametrize("place, extra", [("none", 0), ("output", 513), ("every", 6 * 513)])
def test_params_at_paper_size(place, extra):
    """Appendix A's base Transformer, one embedding (D21); L0Drop: a weight vector and a bias."""
    with torch.device("meta"):
        model = Transformer(ModelConfig(32_000, 512, 2048, 8, 6, 6, l0drop=place))
    vocabulary, d, inner = 32_000, 512, 2048
    attention, norm = 4 * (d * d + d), 2 * d
    feed_forward = d * inner + inner + inner * d + d
    encoder = 6 * (attention + feed_forward + 2 * norm)
    decoder = 6 * (2 * attention + feed_forward + 3 * norm)
    assert sum(p.numel() for p in model.parameters()) == vocabulary * d + encoder + decoder + extra


def test_d10_gates_after_every_encoder_layer(make_model, ragged):
    """Section 6, "earlier": what a layer closes enters the next one as a zero."""
    model = make_model(l0drop="every", encoder_layers=3)
    encoding, w = model.encode(ragged), reference.numpy_weights(model)
    assert len(encoding.gates) == len(encoding.log_alpha) == 3
    closed = set()  # layers that close a gate
    for row, length in enumerate((9, 5, 1, 7)):
        states = reference.embed(w, ragged[row, :length].tolist())
        for layer in range(3):
            states = reference.encoder_layer(w, layer, states, 4)
            log_alpha = reference.linear(w, f"l0drop.{layer}.predictor", states)[:, 0]
            gates = [reference.expected_gate(a) for a in log_alpha]
            found = encoding.gates[layer][row, :length].tolist()
            assert found == pytest.approx(gates, abs=1e-3)
            states = states * [[gate] for gate in gates]
            closed |= {layer} if 0 in gates else set()
        own = encoding.states[row, :length].double()
        torch.testing.assert_close(own, tensor(states), rtol=0, atol=1e-3)
    assert closed == {0, 1, 2}


# Masks


def test_d18_counts_are_rounded_in_bfloat16_only(make_model):
    """log(1463) = 7.288 becomes 7.281 in bfloat16: the dummy gets up to 0.7 % too little."""
    attention = make_model().decoder[0].cross_attention
    x, zeros, other = torch.randn(1, 2, 16), torch.zeros(1, 1463, 16), torch.randn(1, 3, 16)
    x = attention.split_heads(attention.query(x))
    dense_keys, _ = attention.project(torch.cat([zeros, other], 1))
    dense = attention.weights(x, dense_keys, None)[..., :1463].sum(-1)
    keys, _ = attention.project(torch.cat([zeros[:, :1], other], 1))
    counts = tensor([1463.0, 1, 1, 1]).log()
    exact = attention.weights(x, keys, counts)[..., 0]
    torch.testing.assert_close(exact, dense, rtol=1e-4, atol=1e-6)
    rounded = attention.weights(x, keys, counts.bfloat16().float())[..., 0]
    assert (rounded < dense).all() and (rounded > 0.99 * dense).all()


def test_limit_everything_open_is_the_baseline(make_model, ragged, targets):
    """All gates 1: the baseline's logits.

    D11: the compressed memory is then the dense one, without a dummy.
    """
    model, baseline = make_model(), make_model(l0drop="none")
    baseline.load_state_dict(model.state_dict(), strict=False)
    assert difference(model(ragged, targets)[0], baseline(ragged, targets)[0]) > 1e-2
    model.l0drop[0].predictor.bias.data.fill_(50)
    assert torch.equal(model(ragged, targets)[0], baseline(ragged, targets)[0])
    encoding = model.encode(ragged)
    pruned, dense = (memory(encoding) for memory in (model.pruned, model.dense))
    assert torch.equal(pruned.log_counts, dense.log_counts)
    assert torch.equal(pruned.states[encoding.keep], dense.states[encoding.keep])


def test_limit_everything_closed(make_model, ragged, targets):
    """Only the dummy is left, the output no longer depends on the source, and nothing is NaN."""
    model = make_model()
    model.l0drop[0].predictor.bias.data.fill_(-50)
    encoding = model.encode(ragged)
    counts = model.pruned(encoding).log_counts.exp()
    torch.testing.assert_close(counts, tensor([[9.0], [5], [1], [7]]))
    logits = logits_of(model, encoding, targets)
    dense = logits_of(model, encoding, targets, prune=False)
    torch.testing.assert_close(logits, dense, rtol=0, atol=1e-5)
    alone = logits_of(model, model.encode(ragged[2:3]), targets[:1])
    torch.testing.assert_close(logits[:1], alone, rtol=0, atol=1e-5)


def test_d4_sampled_zeros_are_hidden_in_training(make_model, ragged, targets):
    """D4: the released option hides sampled zeros, in training alone; the default does not.

    A sentence whose gates are all closed attends to its zeros uniformly: what the default does, not
    NaN.
    """
    closed = []
    for hide in (False, True):
        model = make_model(3, mask_closed_in_training=hide).train()
        encoding = model.encode(ragged)
        is_open = (encoding.gates[0] != 0) & encoding.keep
        assert (encoding.keep & ~is_open)[0].any() and is_open[0].any()
        visible = model.dense(encoding).log_counts == 0
        assert torch.equal(visible[0], is_open[0] if hide else encoding.keep[0])
        assert torch.equal(model.eval().dense(encoding).log_counts == 0, encoding.keep)
        model.train().l0drop[0].predictor.bias.data.fill_(-50)
        closed.append(model(ragged, targets)[0])
        closed[-1].square().mean().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert torch.equal(*closed)


# Dropout and devices


def test_every_sublayer_and_every_attention_drops(make_model, ragged, targets):
    """Appendix A: embeddings, sublayers and attention weights, in training only."""
    model = make_model(l0drop="none", residual_dropout=0.4, attention_dropout=0.2)
    assert torch.equal(model(ragged, targets)[0], make_model(l0drop="none")(ragged, targets)[0])
    sites = [module for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    calls = []
    for site in sites:
        site.register_forward_hook(lambda site, *_: calls.append(sites.index(site)))
    model.train()(ragged, targets)
    assert {site.p for site in sites} == {0.4}
    # source and target; 2 a layer, and 3
    assert sorted(calls) == [0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4]
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    for index in range(len(attentions)):
        for other, attention in enumerate(attentions):
            attention.dropout = 0.2 * (other == index)
        for site in sites:
            site.p = 0.0
        assert not torch.equal(model(ragged, targets)[0], model(ragged, targets)[0])
    sites[0].p = 1.0
    # Positions are dropped, too.
    assert not model.embed(ragged).any() and model.eval().embed(ragged).any()


@pytest.mark.parametrize("place", ["none", "output", "every"])
def test_forward_and_backward_stay_on_their_device(make_model, ragged, targets, place):
    """On "meta" nothing is computed, but a tensor of another device is refused, as on a GPU."""
    model = make_model(l0drop=place, mask_closed_in_training=True).train().to("meta")
    source, target = ragged.to("meta"), targets.to("meta")
    logits, encoding = model(source, target)
    objective(logits, target, encoding, l0_weight=0.5).sum().backward()
    assert all(parameter.grad.device.type == "meta" for parameter in model.parameters())


# Keys, values, caches


def test_cached_decoding_is_uncached_decoding(model, ragged, targets):
    """The target in pieces, with the past handed on, gives the logits of the whole."""
    memory = memory_of(model, model.encode(ragged))
    past = None
    pieces = []
    for piece in targets.split([1, 2, 3], dim=1):
        logits, past = model.decode(piece, memory, past)
        pieces.append(logits)
    whole, _ = model.decode(targets, memory)
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=0, atol=2e-5)


# Search


def words(row: torch.Tensor) -> list[int]:
    """A row of tokens without its padding, which may only stand at the end."""
    tokens = row.tolist()
    length = tokens.index(PAD) if PAD in tokens else len(tokens)
    assert not any(tokens[length:])
    return tokens[:length]


def teacher(model, source: torch.Tensor):
    """Log-probabilities of what follows each prefix: no cache, a dense memory for each prefix."""
    encoding = model.encode(source.unsqueeze(0))
    memory = dense_memory(encoding.states, encoding.keep)

    def next_log_probabilities(prefixes: list[list[int]]) -> list[list[float]]:
        copies = [tensor.repeat_interleave(len(prefixes), 0) for tensor in memory]
        target = tensor([[BOS, *prefix] for prefix in prefixes])
        logits, _ = model.decode(target, model.project(Memory(*copies)))
        return logits[:, -1].log_softmax(-1).tolist()

    return next_log_probabilities


@pytest.mark.parametrize("seed, least, alpha", [(3, 6, 0.6), (6, 6, 1.0), (0, 0, 0.0), (4, 0, 0.6)])
@torch.inference_mode()
def test_beam_search_is_the_naive_one(make_model, ragged, seed, least, alpha):
    """Same hypotheses and scores as lists, teacher forcing and one memory per beam."""
    model, limits = make_model(seed), tensor([11, 9, 7, 12] if least else [9, 3, 2, 12])
    found = beam_search(model, memory_of(model, model.encode(ragged)), limits, 4, alpha, least)
    for row, limit in enumerate(limits.tolist()):
        scorer = teacher(model, ragged[row][ragged[row] != PAD])
        tokens, score = reference.beam_search(scorer, 4, limit, alpha, EOS, [PAD, BOS], least)
        assert words(found.tokens[row]) == tokens
        assert found.scores[row].item() == pytest.approx(score, abs=1e-4)


@pytest.fixture
def speak(make_model, monkeypatch):
    """Beam search over given bigrams: they replace the model's logits, and nothing else."""
    model = make_model(vocabulary=8, encoder_layers=1, decoder_layers=1)
    memory, real_decode = memory_of(model, model.encode(tensor([[5, EOS]]))), model.decode

    def find(table: torch.Tensor, beam: int, alpha: float, min_length: int = 0):
        """table (T, V, V): at each place, log-probabilities of the next word for each last word."""
        places = iter(table)

        def decode(target, *rest):
            return next(places)[target], real_decode(target, *rest)[1]

        monkeypatch.setattr(model, "decode", decode)
        tokens, scores = beam_search(model, memory, tensor([len(table)]), beam, alpha, min_length)
        return words(tokens[0]), scores.item()

    return find


@pytest.mark.parametrize("beam, alpha", [(1, 0.6), (3, 0.0), (3, 2.0), (9, 0.6)])
def test_d7_beam_search_over_random_bigrams(speak, beam, alpha):
    """Twenty languages, some of which end early and some late; 9 beams for 5 words, too."""
    lengths = set()
    for number in range(20):
        logits = 2 * torch.randn(8, 8, 8)
        logits[..., EOS] += number % 4
        table, least = logits.log_softmax(-1), number % 3
        rows = table.tolist()

        def follow(prefixes, rows=rows):
            return [rows[len(prefix)][[BOS, *prefix][-1]] for prefix in prefixes]

        tokens, score = speak(table, beam, alpha, least)
        expected = reference.beam_search(follow, beam, 8, alpha, EOS, [PAD, BOS], least)
        assert tokens == expected[0] and score == pytest.approx(expected[1], abs=1e-5)
        lengths.add(len(tokens))
    assert len(lengths) >= 4


def test_d7_outputs_may_be_so_much_longer_than_their_own_source(model, ragged, monkeypatch):
    """D7: the source's tokens without padding, plus `extra_length`; at most all positions."""
    seen = []
    monkeypatch.setattr(search, "beam_search", lambda model, memory, limits: seen.append(limits))
    generate(model, ragged, extra_length=3)
    generate(model, ragged, extra_length=POSITIONS - 7)
    assert [limits.tolist() for limits in seen] == [[12, 8, 4, 10], [4096, 4094, 4090, 4096]]


def test_what_does_not_fit_is_refused(model, ragged):
    """More tokens than positions; sampled gates, which would give another score at every call."""
    with pytest.raises(ValueError, match="4097 tokens does not fit the position table of 4096"):
        model.encode(torch.full((1, 4097), 5))
    with pytest.raises(ValueError, match="min_length is 9, the longest output of a source"):
        generate(model, ragged, extra_length=0, min_length=9)
    with pytest.raises(ValueError, match="training mode"):
        generate(model.train(), ragged)


def test_half_precision_trains(model, ragged, targets):
    """bfloat16 weights, without autocast."""
    logits, encoding = model.bfloat16().train()(ragged, targets)
    logits.float().sum().backward()
    assert logits.dtype == encoding.states.dtype == torch.bfloat16
