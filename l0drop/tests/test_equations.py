"""Every numbered equation and Algorithm 1, against reference.py or a closed form."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import tensor

from .. import gates
from ..model import EOS, IGNORED, PAD, Attention, objective, translation_loss
from . import reference

LOG_ALPHAS = [-6.0, -4.0, -2.5, -2.3, -1.0, 0.0, 0.7, 1.0, 2.3, 2.5, 4.0, 6.0]
SAMPLES = 300_000


def derivative(function, x: float, step: float = 1e-4) -> float:
    return (function(x + step) - function(x - step)) / (2 * step)


def numpy_rows(tokens: torch.Tensor) -> list[list[int]]:
    """The rows of a padded batch without their padding."""
    return [[t for t in row if t != PAD] for row in tokens.tolist()]


@torch.no_grad()
def bare_attention() -> tuple[Attention, list[np.ndarray]]:
    """One head without biases and output map, in double; and its Wq, Wk, Wv."""
    attention = Attention(8, heads=1, dropout=0.0).double()
    for layer in (attention.query, attention.key, attention.value, attention.output):
        layer.bias.zero_()
        layer.weight.normal_(std=0.5)
    attention.output.weight.copy_(torch.eye(8))
    layers = attention.query, attention.key, attention.value
    return attention, [layer.weight.T.numpy() for layer in layers]


# Eq. 1-3: the Transformer


def test_eq1_eq2_eq3_encoder_and_decoder(make_model, ragged, targets):
    """The baseline: states and logits of a padded batch are those of the unpadded loops."""
    model = make_model(l0drop="none")
    logits, encoding = model(ragged, targets)
    w = reference.numpy_weights(model)
    for row, tokens in enumerate(numpy_rows(ragged)):
        states = reference.encode(w, tokens, 2, 4)
        np.testing.assert_allclose(encoding.states[row, : len(tokens)].detach(), states, atol=2e-5)
        expected = reference.decode(w, targets[row].tolist(), states, 2, 4)
        np.testing.assert_allclose(logits[row].detach(), expected, atol=1e-4)


# Eq. 4-8: sampled gates


@pytest.mark.parametrize("log_alpha", [-4.0, -1.0, 0.0, 1.0, 4.0])
def test_eq5_frequencies_of_exact_zero_and_one(log_alpha):
    """Gates are exactly 0 and 1 as often as the closed form says (Hoeffding bound, 1e-6)."""
    sampled = gates.sample_gates(torch.full((SAMPLES,), log_alpha))
    tolerance = math.sqrt(math.log(2 / 1e-6) / (2 * SAMPLES))
    assert sampled.min() >= 0 and sampled.max() <= 1
    # p(g = 1) is the mirror image of p(g = 0)
    for value, mirrored in ((0, log_alpha), (1, -log_alpha)):
        share = (sampled == value).double().mean().item()
        assert abs(share - reference.closed_probability(mirrored)) < tolerance


def test_eq6_eq7_eq8_samples_for_given_noise():
    """Sample, stretch, clip: gate and gradient for given uniform noise."""
    uniform = torch.rand(len(LOG_ALPHAS), 200) * 0.98 + 0.01
    log_alpha = tensor(LOG_ALPHAS).unsqueeze(1).repeat(1, 200).requires_grad_()
    sampled = gates.sample_gates(log_alpha, uniform=uniform)
    sampled.sum().backward()
    for i, value in enumerate(LOG_ALPHAS):
        samples = zip(
            uniform[i].tolist(), sampled[i].tolist(), log_alpha.grad[i].tolist(), strict=True
        )
        for u, got, slope in samples:
            assert got == pytest.approx(reference.hard_concrete(u, value), abs=1e-5)
            if 0.001 < got < 0.999:
                numeric = derivative(lambda a, u=u: reference.hard_concrete(u, a), value)
                assert slope == pytest.approx(numeric, abs=1e-4)
            elif got in (0, 1):
                assert slope == 0


def test_eq6_noise_never_overflows():
    """Noise at its ends and extreme locations give gates and gradients that are finite."""
    log_alpha = tensor([-1e4, -50.0, 0.0, 50.0, 1e4]).repeat(100, 1).requires_grad_()
    for noise in (torch.zeros(100, 5), torch.full((100, 5), 1 - 2**-24)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "rand", lambda *_, noise=noise, **__: noise)
            sampled = gates.sample_gates(log_alpha)
        sampled.sum().backward()
        assert sampled.isfinite().all() and log_alpha.grad.isfinite().all()
    assert (gates.sample_gates(log_alpha)[:, [0, 4]] == tensor([0.0, 1.0])).all()


def test_d1_epsilon_of_minus_a_tenth_cannot_be_meant():
    """D1: with the printed -0.1 no gate ever closes, and p(g = 0) has a logarithm below zero."""
    sampled = gates.sample_gates(torch.linspace(-20, 20, 10_000), epsilon=-0.1)
    assert sampled.min() > 0.1 - 1e-6 and sampled.max() < 0.9 + 1e-6
    with pytest.raises(ValueError):
        gates.open_probability(tensor(0.0), epsilon=-0.1)
    assert gates.EPSILON == 0.1 and gates.BETA == 2 / 3


# Eq. 9-13: the layer, its penalty, the objective


def test_d3_predictor_as_released():
    """D3: a bias that starts at 0, and Glorot-uniform weights, here of at most 0.108."""
    layer = gates.L0Drop(512)
    assert layer.predictor.bias.item() == 0
    assert gates.L0Drop(512, bias=False).predictor.bias is None
    assert 0.1 < layer.predictor.weight.abs().max().item() <= math.sqrt(6 / 513)


def test_eq10_d2_expected_open_gates_over_the_real_tokens():
    """Eq. (10) divided by each sentence's own number of tokens (D2), without padding."""
    log_alpha = tensor(LOG_ALPHAS).view(3, 4)
    keep = torch.arange(4) < tensor([[4], [2], [1]])
    for row, got in enumerate(gates.l0_penalty(log_alpha, keep).tolist()):
        real = log_alpha[row][keep[row]].tolist()
        assert got == pytest.approx(reference.expected_open(real) / len(real), abs=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_eq4_eq9_eq11_the_decoder_reads_gated_states(model, ragged, targets, training):
    """The whole model against the loops; in training, too, closed states count, as zeros."""
    logits, encoding = model.train(training)(ragged, targets)
    w = reference.numpy_weights(model)
    for row, tokens in enumerate(numpy_rows(ragged)):
        states = reference.encode(w, tokens, 2, 4)
        gate = encoding.gates[0][row, : len(tokens)].double().detach().numpy()
        if not training:  # Eq. (9) and (13)
            log_alpha = reference.linear(w, "l0drop.0.predictor", states)[:, 0]
            expected = [reference.expected_gate(a) for a in log_alpha]
            np.testing.assert_allclose(gate, expected, atol=1e-4)
        expected = reference.decode(w, targets[row].tolist(), states * gate[:, None], 2, 4)
        np.testing.assert_allclose(logits[row].detach(), expected, atol=2e-4)
    real = encoding.gates[0][encoding.keep]
    assert (real == 0).any() and (real == 1).any() and ((real > 0) & (real < 1)).any()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_eq12_label_smoothed_loss(smoothing):
    """L_MLE by hand: a mean over each sentence's own tokens."""
    logits = torch.randn(3, 5, 11) * 3
    target = tensor([[4, 5, 6, 7, EOS], [8, EOS, PAD, PAD, PAD], [9, 4, EOS, PAD, PAD]])
    got = translation_loss(logits, target.where(target != PAD, IGNORED), smoothing)
    for row, tokens in enumerate(numpy_rows(target)):
        own = logits[row, : len(tokens)].double().numpy()
        expected = reference.label_smoothed_loss(own, tokens, smoothing)
        assert got[row].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("place", ["none", "output", "every"])
def test_eq12_objective_is_loss_plus_lambda_penalty(make_model, ragged, targets, place):
    """L = L_MLE + lambda L0, per sentence; penalties of layers add up, a baseline has none."""
    model = make_model(l0drop=place).train()
    logits, encoding = model(ragged, targets)
    got = objective(logits, targets, encoding, l0_weight=0.7)
    assert len(encoding.log_alpha) == {"none": 0, "output": 1, "every": 2}[place]
    for row, tokens in enumerate(numpy_rows(ragged)):
        own = logits[row].detach().double().numpy()
        loss = reference.label_smoothed_loss(own, targets[row].tolist(), 0.1)
        locations = [each[row, : len(tokens)].tolist() for each in encoding.log_alpha]
        opened = sum(map(reference.expected_open, locations))
        assert got[row].item() == pytest.approx(loss + 0.7 * opened / len(tokens), rel=1e-4)


def test_eq13_check_values():
    """g-hat at five locations, exactly 0 and 1 at the ends; the formula over the whole range."""
    got = gates.expected_gates(tensor([-4.0, -1.0, 0.0, 1.0, 4.0]))
    torch.testing.assert_close(got, tensor([0, 0.22273, 0.5, 0.77727, 1]), rtol=0, atol=5e-6)
    assert got[0] == 0 and got[4] == 1
    expected = [reference.expected_gate(value) for value in LOG_ALPHAS]
    assert gates.expected_gates(tensor(LOG_ALPHAS)).tolist() == pytest.approx(expected, abs=1e-6)
    # closed exactly up to -log 11 = -2.397895
    below, above = gates.expected_gates(tensor([-2.39790, -2.39785]))
    assert below == 0 < above


# Algorithm 1


GATES = tensor(
    [
        [0.0, 0.6, 0.0, 1.0, 0.0, 0.3, 0.0, 0.0],  # some pruned
        [1.0, 0.2, 0.9, 1.0, 0.4, 0.7, 1.0, 0.5],  # none pruned
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],  # all pruned
        # shorter, the gates of its padding open and closed
        [0.0, 0.8, 0.0, 1.0, 0.9, 0.0, 0.0, 0.7],
        [1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0],  # shorter, nothing pruned
        [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],  # one token, pruned
    ]
)
KEEP = torch.arange(8) < tensor([[8], [8], [8], [5], [2], [1]])


def test_algorithm1_line_by_line():
    """Attention over the compressed batch is the paper's listing, query by query."""
    attention, maps = bare_attention()
    states, queries = torch.randn(6, 8, 8).double(), torch.randn(6, 3, 8).double()
    memory = gates.compress(states * GATES.unsqueeze(-1), GATES, KEEP)
    keys, values = attention.project(memory.states)
    got = attention(queries, keys, values, memory.log_counts[:, None, None]).detach()
    for row, j in itertools.product(range(6), range(3)):
        length = int(KEEP[row].sum())
        sentence, query = states[row, :length].numpy(), queries[row, j].numpy()
        expected = reference.algorithm1(sentence, GATES[row, :length].tolist(), query, *maps)
        np.testing.assert_allclose(got[row, j], expected, atol=1e-5)
