"""The pointer-generator against a loop in NumPy: Equations 2-5, copying, padding, the LSTM."""

import math

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ..diminishing import Diminishing
from ..fast_lstm import read
from ..model import PointerGenerator, masked_softmax, pointer_loss
from ..text import UNK, collate
from .conftest import encode
from .reference import Pointer

SYSTEMS = [("none", {}), ("none", {"coverage": True}), ("dim", {}), ("dydim", {})]


@pytest.mark.parametrize(("kind", "config"), SYSTEMS)
def test_eq2_eq3_eq4_eq5_d1_d6_losses_and_distributions_match_the_loop(
    make_pointer, items, batch, kind, config
):
    """Attention with the coverage vector, copying, p_gen and the loss with the overlap.

    D1: context and copying have the gains, as they are. D6: context and coverage begin at 0.
    """
    model = make_pointer(kind, **config)
    oracle = Pointer(model, kind)
    size, weight = model.vocabulary + batch.extra, float("coverage" in config)
    with torch.no_grad():
        steps, log_p = model.run(batch), model.target_log_p(model.run(batch), batch)
        loss = model(batch)
        source, past = model.start(batch)
        log_distributions = []
        for tokens in batch.target_in.unbind(1):
            distribution, past = model.step(tokens, source, past)
            log_distributions.append(distribution)
    log_distributions = torch.stack(log_distributions, 1)  # (B, T, V + E)
    for row, item in enumerate(items):
        length, outputs = len(item.source), len(item.target) - 1
        want = oracle.distributions(item, size)
        for name in ("attention", "copying"):
            found = getattr(steps, name)[row, :outputs]
            assert np.allclose(found[:, :length], want[name], atol=1e-5)
            assert not found[:, length:].any()
        assert np.allclose(log_distributions[row, :outputs].exp(), want["p"], atol=1e-5)
        p = want["p"][np.arange(outputs), item.target[1:]]
        assert np.allclose(log_p[row, :outputs], np.log(p + 1e-12), atol=1e-4)
    want = [oracle.loss(item, size, weight) for item in items]
    assert loss.tolist() == pytest.approx(want, rel=1e-5)
    overlap = loss - torch.tensor([oracle.loss(item, size) for item in items])
    assert (overlap.mean() > 0.01) == bool(weight)


def test_eq2_eq5_loss_by_hand():
    """Two steps on two tokens: c^0 = 0, c^1 = a^0; the third step is padding."""
    attention = torch.tensor([[[0.75, 0.25], [0.5, 0.5], [9.0, 9.0]]])
    log_p, keep = torch.tensor([[-1.0, -3.0, -99.0]]), torch.tensor([[True, True, False]])
    assert pointer_loss(log_p, attention, keep).tolist() == [2.0]
    assert pointer_loss(log_p, attention, keep, 2.0).tolist() == [2.0 + 2 * (0.5 + 0.25) / 2]


@pytest.mark.parametrize(("kind", "config"), SYSTEMS[1::2])
def test_forward_and_backward_make_every_tensor_on_the_models_device(
    batch, monkeypatch, kind, config
):
    """On the device `meta`, which refuses to mix devices and has no lengths to read."""
    ends = [*range(1, batch.source.size(1))]
    monkeypatch.setattr("torch.Tensor.tolist", lambda tensor: ends)
    with torch.device("meta"):
        model = PointerGenerator(19, 6, 5, Diminishing(kind), **config)
    moved = type(batch)(*(part.to("meta") if torch.is_tensor(part) else part for part in batch))
    model(moved).mean().backward()
    assert all(parameter.grad.device.type == "meta" for parameter in model.parameters())


def test_d5_rows_of_padding_alone_give_zeros_and_no_nan(make_pointer, vocabulary):
    scores = torch.tensor([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]]).requires_grad_()
    keep = torch.tensor([[True, False, True], [False, False, False]])
    weights = masked_softmax(scores, keep)
    weights.square().sum().backward()
    want = torch.tensor([1.0, 3.0]).softmax(0)
    assert torch.allclose(weights[0, [0, 2]], want) and not weights[0, 1] and not weights[1].any()
    assert scores.grad.isfinite().all() and not scores.grad[1].any()
    for kind, config in SYSTEMS:
        model = make_pointer(kind, **config)
        batch = collate(encode([("", "the cat"), ("the cat sat", ""), ("", "")], vocabulary, 9, 9))
        loss = model(batch).mean()
        loss.backward()
        assert loss.isfinite() and all(p.grad.isfinite().all() for p in model.parameters())
        log_p, _ = model.step(batch.target_in[:, 0], *model.start(batch))
        assert not log_p.isnan().any()


def test_d15_epsilon_is_in_the_loss_alone(make_pointer, vocabulary):
    """A word that no position holds has probability 0: decoding can never write it."""
    model = make_pointer()
    batch = collate(encode([("a zorn", "zorn")], vocabulary, 9, 9))
    batch = batch._replace(source=torch.full_like(batch.source, UNK))
    with torch.no_grad():
        log_p = model.target_log_p(model.run(batch), batch)
        source, past = model.start(batch)
        decoded, _ = model.step(batch.target_in[:, 0], source, past)
    assert log_p[0, 0].item() == pytest.approx(math.log(1e-12))
    assert decoded[0, batch.target_out[0, 0]] == -torch.inf


def test_the_fast_lstm_is_the_packed_one():
    """States, last states and gradients, in documents of one word and of all."""
    lstm = torch.nn.LSTM(3, 4, batch_first=True, bidirectional=True)
    words, lengths = torch.randn(4, 6, 3), torch.tensor([6, 1, 4, 4])
    states, last = read(lstm, words, lengths)
    is_word = torch.arange(6) < lengths.unsqueeze(1)
    found = [states * is_word.unsqueeze(-1), *last]
    packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    states, (hidden, cell) = lstm(packed)
    states, _ = pad_packed_sequence(states, batch_first=True)
    want = [states, torch.cat([*hidden], -1), torch.cat([*cell], -1)]
    torch.testing.assert_close(found, want)
    sums = [sum(part.square().sum() for part in parts) for parts in (found, want)]
    gradients = [torch.autograd.grad(total, [*lstm.parameters()]) for total in sums]
    torch.testing.assert_close(*gradients)


def test_training_reads_its_sources_as_decoding_does(make_pointer, batch):
    model = make_pointer()
    torch.testing.assert_close(model.train()(batch), model.eval()(batch))


def test_d14_initial_values_are_those_of_the_released_code():
    model = PointerGenerator(500, 32, 32, Diminishing())
    model.initialise()  # as `loading.new_model` does
    for name, parameter in model.named_parameters():
        if "lstm.weight" in name:
            assert 0.019 < parameter.abs().max() <= 0.02, name
        elif "lstm.bias" in name:
            assert parameter[32:64].eq(1).all() and parameter.sum() == 32, name
        elif "embedding" in name or "output" in name or "reduce" in name:
            assert 0.5e-4 < parameter.std() < 2e-4, name
        else:
            assert parameter.abs().mean() > 0.005, name  # torch's default
