"""The pointer-generator against a loop in NumPy: Equations 2-5, copying, gradients, parameters, bad rows."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ..diminishing import Diminishing
from ..model import PointerGenerator, PointerGeneratorConfig, TargetLogSoftmax, masked_softmax, rescale
from ..text import UNK, Item, collate, encode_examples
from .reference import Pointer

SYSTEMS = [("none", {}), ("none", {"coverage": True}), ("dim", {}), ("dydim", {}), ("dim", {"renormalise": True})]


@pytest.mark.parametrize(("kind", "config"), SYSTEMS)
def test_eq2_eq3_eq4_eq5_losses_and_distributions_match_the_loop(make_pointer, items, batch, kind, config):
    """Attention with the coverage vector, copying, p_gen and the loss with the overlap, document by document."""
    model = make_pointer(kind, **config)
    oracle = Pointer(model, kind, config.get("renormalise", False))
    size, weight = model.vocabulary + batch.extra, float(model.config.coverage)
    with torch.no_grad():
        steps, log_p = model.run(batch), model.target_log_probabilities(model.run(batch), batch)
        loss = model(batch)
        source, state = model.start(batch)
        log_distributions = []
        for tokens in batch.target_in.unbind(1):
            distribution, state = model.step(tokens, source, state)
            log_distributions.append(distribution)
    log_distributions = torch.stack(log_distributions, 1)  # (B, T, V + E)
    for row, item in enumerate(items):
        length, outputs = len(item.source), len(item.target_out)
        want = oracle.distributions(item.source, item.extended_source, item.target_in, size)
        for name in ("attention", "gain"):
            found = getattr(steps, name)[row, :outputs]
            assert np.allclose(found[:, :length], want[name], atol=1e-5) and not found[:, length:].any()
        assert np.allclose(log_distributions[row, :outputs].exp(), want["p"], atol=1e-5)
        p = want["p"][np.arange(outputs), item.target_out]
        assert np.allclose(log_p[row, :outputs], np.log(p + 1e-12), atol=1e-4)
    assert loss.total.item() == pytest.approx(np.mean([oracle.loss(item, size, weight) for item in items]), rel=1e-5)
    assert loss.likelihood.item() == pytest.approx(np.mean([oracle.loss(item, size) for item in items]), rel=1e-5)
    assert loss.coverage.item() == pytest.approx(loss.total.item() - loss.likelihood.item(), abs=1e-5)
    assert (loss.coverage > 0.01) == bool(weight)


def test_eq2_eq3_coverage_reaches_the_attention_and_leaves_out_the_step_itself(make_pointer, batch):
    model = make_pointer(coverage=True)
    source, state = model.start(batch)
    decoder, hidden, cell = model.decoder, torch.randn(4, 5), torch.randn(4, 5)
    covered = torch.rand(4, 13)
    with torch.no_grad():
        plain = decoder.attend(hidden, cell, torch.zeros(4, 13), source)
        assert (decoder.attend(hidden, cell, covered, source) - plain).abs().max() > 0.01
        inside = model.encoder.project(source.states) + decoder.query(torch.cat([hidden, cell], -1)).unsqueeze(1)
        inside = inside + covered.unsqueeze(-1) * decoder.coverage.weight[:, 0]
        want = masked_softmax(inside.tanh() @ decoder.score.weight[0], batch.keep)
        assert torch.allclose(decoder.attend(hidden, cell, covered, source), want, atol=1e-6)
        step, after = decoder.advance(decoder.embed(batch.target_in[:, 0]), source, state)
    assert not state.seen.coverage.any() and torch.equal(after.seen.coverage, step.attention)


def test_eq5_weight_of_the_coverage_loss(make_pointer, batch):
    once, thrice = (make_pointer(coverage=True, coverage_weight=weight)(batch) for weight in (1.0, 3.0))
    assert torch.isclose(thrice.total - thrice.likelihood, 3 * (once.total - once.likelihood), rtol=1e-4)


@pytest.mark.parametrize(("kind", "config"), SYSTEMS)
def test_one_document_is_a_row_of_a_padded_batch(make_pointer, items, kind, config):
    """Also each one's numbers of unknown words: documents of a batch have 0 to 4 of them."""
    model = make_pointer(kind, **config)
    losses = [model(collate([item])).total for item in items]
    assert torch.isclose(model(collate(items)).total, torch.stack(losses).mean(), rtol=1e-5)
    assert torch.isclose(model(collate(items[::-1])).total, torch.stack(losses).mean(), rtol=1e-5)


def test_gradients_match_autograd_of_the_plain_formula(make_pointer, batch):
    """Loss from the whole distributions over V + E words, made step by step by a softmax and scatter_add."""
    model = make_pointer("dydim", coverage=True)
    model(batch).total.backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    source, state = model.start(batch)
    loss = 0
    for t, tokens in enumerate(batch.target_in.unbind(1)):
        before = state.seen.coverage
        step, state = model.decoder.advance(model.decoder.embed(tokens), source, state)
        p_gen = model.decoder.switch_logits(step).sigmoid().unsqueeze(1)
        p = F.pad(p_gen * model.decoder.output(model.decoder.word_states(step)).softmax(-1), (0, batch.extra))
        p = p.scatter_add(1, batch.extended_source, (1 - p_gen) * step.gain)
        log_p = (p.gather(1, batch.target_out[:, t : t + 1]).squeeze(1) + 1e-12).log()
        overlap = torch.minimum(step.attention, before).sum(-1)
        loss = loss + ((overlap - log_p) * batch.keep_target[:, t] / batch.keep_target.sum(1)).mean()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().max() > 1e-6, name
        assert torch.allclose(found[name], parameter.grad, rtol=1e-3, atol=1e-5), name


def test_log_softmax_of_targets_and_its_gradient():
    """More rows than one part of the backward pass has."""
    states, weight, bias = (
        torch.randn(*shape, dtype=torch.float64).requires_grad_() for shape in ((7, 3), (5, 3), (5,))
    )
    target = torch.tensor([0, 4, 2, 2, 1, 3, 0])
    assert torch.autograd.gradcheck(lambda *x: TargetLogSoftmax.apply(*x, target), (states, weight, bias))
    states = torch.randn(600, 3, requires_grad=True)
    weight, bias = weight.detach().float().requires_grad_(), bias.detach().float().requires_grad_()
    target, probe = torch.randint(5, (600,)), torch.randn(600)
    grads = []
    for log_p in (
        TargetLogSoftmax.apply(states, weight, bias, target),
        (states @ weight.t() + bias).log_softmax(-1).gather(1, target.unsqueeze(1)).squeeze(1),
    ):
        grads.append([log_p.detach(), *torch.autograd.grad((log_p * probe).sum(), (states, weight, bias))])
    for found, want in zip(*grads, strict=True):
        assert torch.allclose(found, want, atol=1e-4)
    huge = TargetLogSoftmax.apply(torch.full((1, 3), 1e4), weight, bias, target[:1])
    assert huge.isfinite().all()


def test_copy_mass_of_a_repeated_word_adds_up(make_pointer, vocabulary):
    """blick blick blick: all of the copy distribution is on the one unknown word."""
    model = make_pointer()
    batch = collate(encode_examples([("blick blick blick", "blick")], vocabulary, 9, 9))
    with torch.no_grad():
        source, state = model.start(batch)
        step, _ = model.decoder.advance(model.decoder.embed(batch.target_in[:, 0]), source, state)
        log_p, _ = model.step(batch.target_in[:, 0], source, state)
        copy = (-model.decoder.switch_logits(step)).sigmoid()
    assert torch.isclose(log_p[0, len(vocabulary)].exp(), copy[0], atol=1e-6) and 0.01 < copy < 0.99
    assert torch.isclose(log_p.exp().sum(), torch.tensor(1.0), atol=1e-5)


@pytest.mark.parametrize(("kind", "renormalise"), [("none", False), ("dim", False), ("dydim", False), ("dim", True)])
def test_d1_copy_distribution_is_diminished_and_not_renormalised(make_pointer, batch, kind, renormalise):
    """Probabilities sum to p_gen + (1 - p_gen) sum of the gains."""
    model = make_pointer(kind, renormalise=renormalise)
    with torch.no_grad():
        source, state = model.start(batch)
        for tokens in batch.target_in.unbind(1):
            step, _ = model.decoder.advance(model.decoder.embed(tokens), source, state)
            log_p, state = model.step(tokens, source, state)
            p_gen, total = model.decoder.switch_logits(step).sigmoid(), step.gain.sum(-1)
            assert torch.allclose(log_p.exp().sum(-1), p_gen + (1 - p_gen) * total, atol=1e-5)
            whole = kind == "none" or renormalise
            assert torch.allclose(total, torch.ones(4), atol=1e-5) if whole else (total < 0.95).all()
            read = torch.stack([gain @ states for gain, states in zip(step.gain, source.states, strict=True)])
            assert torch.allclose(step.context, read, atol=1e-5)


def test_d5_rows_of_padding_alone_give_zeros_and_no_nan(make_pointer, vocabulary):
    scores = torch.tensor([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]]).requires_grad_()
    keep = torch.tensor([[True, False, True], [False, False, False]])
    weights = masked_softmax(scores, keep)
    weights.square().sum().backward()
    want = torch.tensor([1.0, 3.0]).softmax(0)
    assert torch.allclose(weights[0, [0, 2]], want) and not weights[0, 1] and not weights[1].any()
    assert scores.grad.isfinite().all() and not scores.grad[1].any()
    assert rescale(torch.tensor([[0.0, 0.0], [0.2, 0.2]])).tolist() == [[0, 0], [0.5, 0.5]]
    for kind, config in SYSTEMS:
        model = make_pointer(kind, **config)
        batch = collate(encode_examples([("", "the cat"), ("the cat sat", ""), ("", "")], vocabulary, 9, 9))
        loss = model(batch).total
        loss.backward()
        assert loss.isfinite() and all(p.grad.isfinite().all() for p in model.parameters())
        log_p, _ = model.step(batch.target_in[:, 0], *model.start(batch))
        assert not log_p.isnan().any()


def test_padding_has_no_influence(make_pointer, batch):
    model = make_pointer("dydim", coverage=True)
    changed = {}
    for names, keep, number in (
        (("source", "extended_source"), batch.keep, 7),
        (("target_in", "target_out"), batch.keep_target, 9),
    ):
        changed |= {name: getattr(batch, name).masked_fill(~keep, number) for name in names}
    assert torch.equal(model(batch).total, model(batch._replace(**changed)).total)


def test_a_document_of_unknown_words_can_only_be_told_apart_by_copying(make_pointer, vocabulary):
    model, pairs = make_pointer(), [("blick wug", "wug")]
    batch = collate(encode_examples(pairs, vocabulary, 9, 9))
    assert (batch.source == UNK).all() and batch.target_out[0, 0] == len(vocabulary) + 1
    assert model(batch).total.isfinite()
    with torch.no_grad():
        log_p, _ = model.step(batch.target_in[:, 0], *model.start(batch))
        # The next input is UNK whichever word was copied.
        copied = [model.decoder.embed(torch.tensor([number])) for number in (UNK, 19, 20)]
    assert (log_p[0, 19:] > -10).all() and torch.equal(copied[0], copied[1]) and torch.equal(copied[0], copied[2])


def test_not_a_no_op_each_mechanism_changes_the_loss(make_pointer, batch):
    losses = [make_pointer(kind, **config)(batch).likelihood.item() for kind, config in SYSTEMS]
    assert min(abs(a - b) for i, a in enumerate(losses) for b in losses[:i]) > 1e-3


def test_d6_first_context_and_coverage_are_zero(make_pointer, batch):
    """No attention is computed before the first step, in training or decoding."""
    model, calls = make_pointer("dim", coverage=True), []
    model.decoder.query.register_forward_hook(lambda module, inputs, output: calls.append(1))
    _, state = model.start(batch)
    assert not calls and not state.context.any() and not state.seen.coverage.any() and not state.seen.peak.any()
    model(batch)
    assert len(calls) == batch.target_in.size(1)


def test_state_moves_as_one(make_pointer, batch):
    """Rows that follow a permutation go on as if they had been there from the first step."""
    model = make_pointer("dydim", coverage=True)
    order = torch.tensor([2, 0, 3, 1])
    items_moved = batch._replace(
        **{name: getattr(batch, name)[order] for name in ("source", "extended_source", "keep")}
    )
    with torch.no_grad():
        source, state = model.start(batch)
        moved_source, _ = model.start(items_moved)
        for tokens in batch.target_in.unbind(1)[:3]:
            _, state = model.step(tokens, source, state)
        want, _ = model.step(batch.target_in[:, 3], source, state)
        found, _ = model.step(batch.target_in[order, 3], moved_source, state.reorder(order))
    assert torch.allclose(found, want[order], atol=1e-5)


def test_beams_of_a_source_read_the_same_document(make_pointer, batch):
    """Rows are sources x beams; three beams with the same history equal one."""
    model = make_pointer("dydim", coverage=True)
    rows = torch.arange(4).repeat_interleave(3)
    with torch.no_grad():
        source, single = model.start(batch)
        several = single.reorder(rows)
        for tokens in batch.target_in.unbind(1)[:4]:
            want, single = model.step(tokens, source, single)
            found, several = model.step(tokens[rows], source, several)
            assert torch.allclose(found, want[rows], atol=1e-5)


def count(**config) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in PointerGenerator(PointerGeneratorConfig(**config)).parameters())


def test_params_of_table_1():
    """27.9M counts the tied embedding twice; diminishing attention adds nothing, coverage 512."""
    assert count() == count(diminishing=Diminishing("dim")) == count(diminishing=Diminishing("dydim")) == 21_503_825
    assert count(coverage=True) == 21_503_825 + 512
    with torch.device("meta"):
        model = PointerGenerator(PointerGeneratorConfig())
    parts = (model.encoder, model.decoder, model.reduce)
    assert sum(p.numel() for part in parts for p in part.parameters()) == 27_903_825
    assert {name for name, _ in model.named_children()} == {"encoder", "reduce", "decoder"}


def test_the_embedding_is_one():
    model = PointerGenerator(PointerGeneratorConfig(vocabulary=9, embedding=4, hidden=3))
    assert model.encoder.embedding.weight is model.decoder.embedding.weight
    other = PointerGenerator(model.config)
    other.load_state_dict(model.state_dict())
    assert other.encoder.embedding.weight is other.decoder.embedding.weight
    assert torch.equal(other.decoder.embedding.weight, model.encoder.embedding.weight)


def test_d15_epsilon_is_in_the_loss_alone(make_pointer, vocabulary):
    """An unknown word that no position holds has probability 0: a finite loss, but decoding can never write it."""
    model = make_pointer()
    batch = collate(encode_examples([("a zorn", "zorn")], vocabulary, 9, 9))
    batch = batch._replace(extended_source=torch.full_like(batch.extended_source, UNK))
    with torch.no_grad():
        log_p = model.target_log_probabilities(model.run(batch), batch)
        source, state = model.start(batch)
        decoded, _ = model.step(batch.target_in[:, 0], source, state)
    assert log_p[0, 0].item() == pytest.approx(math.log(1e-12))
    assert decoded[0, batch.target_out[0, 0]] == -torch.inf


def test_d14_initial_values_are_those_of_the_released_code():
    model = PointerGenerator(PointerGeneratorConfig(vocabulary=500, embedding=32, hidden=32))
    for name, parameter in model.named_parameters():
        if "lstm.weight" in name:
            assert 0.019 < parameter.abs().max() <= 0.02, name
        elif "lstm.bias" in name:
            assert parameter[32:64].eq(1).all() and parameter.sum() == 32, name
        elif "embedding" in name or "output" in name or "reduce" in name:
            assert 0.5e-4 < parameter.std() < 2e-4, name
        else:
            assert parameter.abs().mean() > 0.005, name  # torch's default


@pytest.mark.parametrize("kind", ["none", "dydim"])
def test_training_learns_to_copy(kind, vocabulary):
    """Summaries are an unknown word that stands somewhere in the document: only copying can write it."""
    torch.manual_seed(0)
    model = PointerGenerator(PointerGeneratorConfig(19, 16, 16, diminishing=Diminishing(kind))).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    pairs = [(f"{a} {b} zorn {c}", "zorn") for a in ("the", "dog") for b in ("ran", "on") for c in ("mat", "tree", "a")]
    batch = collate(encode_examples(pairs, vocabulary, 9, 9))
    before = model(batch).total.item()
    for _ in range(60):
        loss = model(batch).total
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        optimizer.zero_grad()
    # Under diminishing attention the most that a copied word can have is p = log 2 at the first step.
    assert loss.item() < 0.6 < 1.2 < before


def test_autocast_keeps_the_loss(make_pointer, batch):
    model = make_pointer("dydim", coverage=True)
    want = model(batch).total
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(batch).total
    loss.backward()
    assert loss.dtype == torch.float32 and torch.isclose(loss, want, rtol=0.1)
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_in_half_precision_keep_small_values(dtype):
    """Eq. 3 for x near 0, up to the same number at all tokens: the error is that of rounding x, not of sigmoid(0)."""
    model = PointerGenerator(PointerGeneratorConfig(vocabulary=9, embedding=4, hidden=64))
    features, query = 0.05 * torch.randn(1, 1, 40, 128), torch.zeros(1, 1, 1, 128)
    with torch.no_grad():
        model.decoder.score.weight.normal_()
        exact = (features.double() / 2).tanh() @ model.decoder.score.weight[0].double()  # features hold 2 W_e e_i
        found = model.decoder.scores(features.to(dtype), query.to(dtype), torch.zeros(1, 1, 40, 1)).double()
    error = (found - exact) - (found - exact).mean()
    assert error.abs().max() < 0.01


def test_an_unknown_target_word_is_written_as_unknown(make_pointer, vocabulary):
    """wug is in no document: its target is UNK, which is generated, not copied."""
    model = make_pointer()
    item: Item = encode_examples([("a dog", "wug")], vocabulary, 9, 9)[0]
    assert item.target_out[0] == UNK
    with torch.no_grad():
        log_p = model.target_log_probabilities(model.run(collate([item])), collate([item]))
    want = Pointer(model).distributions(item.source, item.extended_source, item.target_in, 19)["p"][0, UNK]
    assert log_p[0, 0].exp().item() == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize(("name", "value", "least"), [("vocabulary", 3, 4), ("hidden", 0, 1), ("embedding", -1, 1)])
def test_bad_sizes_are_refused(name, value, least):
    with pytest.raises(ValueError, match=f"^{name} is {value}; it must be at least {least}"):
        PointerGeneratorConfig(**{name: value})
