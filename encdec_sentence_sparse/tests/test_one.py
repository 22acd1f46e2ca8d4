"""one.py is the package's mathematics, and shows the effect."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .. import approximator, attention, one, selection
from ..model import SentenceSparseBart, add_approximator, bart_config, freeze
from ..selection import Selection, SentenceAttention, Sentences

IDS = torch.arange(one.N).repeat_interleave(one.J)  # the sentence of each token
EXISTS = torch.ones(4, one.N, dtype=torch.bool)


@pytest.fixture
def pair():
    """one.py's BART and the package's with the same weights, biases and norms too, and a map unlike
    the attention.
    """
    small = one.Bart()
    small.add_approximator()
    with torch.no_grad():
        for parameter in small.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    sizes = bart_config(one.V, one.D, one.INNER, one.H, 1, one.N * one.J, dropout=0.0)
    sizes.decoder_layers = 2
    large = SentenceSparseBart(sizes)
    add_approximator(large, "gru")
    weights = small.state_dict().items()
    weights = {
        name if name.startswith("sentence_encoder") else f"model.{name}": w for name, w in weights
    }
    missing, unexpected = large.load_state_dict(weights, strict=False)
    tied = (
        "lm_head.weight",
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
    )
    assert set(missing) <= {*tied, "final_logits_bias"} and not unexpected
    return small.double(), large.double().eval()


def both(pair, mode, r, phase):
    """Of a batch the logits, the record and the loss of a phase, by each of the two."""
    source, target_input, target = one.documents(4)
    small, large = pair
    logits, record = small(source, target_input, mode, r)
    cross_entropy = torch.nn.functional.cross_entropy(logits.mT, target)
    ids, record_of_large = IDS.expand(4, -1), []
    output = large(
        source,
        sentence_ids=ids,
        labels=target,
        selection=Selection(mode, r),
        record=record_of_large,
    )
    parts = selection.objective(phase, output.loss, record_of_large, target >= 0, EXISTS)
    return (logits, [*map(tuple, record)], one.objective(phase, cross_entropy, record)), (
        output.logits, [*map(tuple, record_of_large)], parts["loss"],
    )  # fmt: skip


def test_the_functions_of_the_idea_are_equal():
    """Eq. 2-4, 6, 7, 10, 11 and 15 on random numbers."""
    queries, keys, vectors = (torch.randn(4, one.H, length, one.K) for length in (5, 48, one.N))
    keep = torch.rand(4, 1, 5, 48) < 0.7
    torch.testing.assert_close(
        one.word_attention(queries, keys, keep), attention.word_attention(queries, keys, keep)
    )
    words = one.word_attention(queries, keys, torch.tensor(True))
    sentences = Sentences(IDS.expand(4, -1), torch.eye(one.N)[IDS].expand(4, -1, -1), EXISTS)
    exact, approximate = one.saliency(words), one.approximate_attention(queries, vectors)
    torch.testing.assert_close(exact, selection.saliency(words, sentences.membership))
    torch.testing.assert_close(
        approximate, selection.approximate_attention(queries, vectors, EXISTS)
    )
    for r in (1, 3, one.N):
        assert torch.equal(one.top_r(exact.mean(1), r), selection.top_r(exact.mean(1), EXISTS, r))
    torch.testing.assert_close(one.sharpen(exact), selection.sharpen(exact, EXISTS))
    record, is_step = (
        [(exact, approximate), (approximate, exact)],
        torch.ones(4, 5, dtype=torch.bool),
    )
    expected = selection.kl_loss([SentenceAttention(*layer) for layer in record], is_step, EXISTS)
    torch.testing.assert_close(one.kl_loss(record), expected)
    encoder, states = approximator.SentenceEncoder("gru", one.D), torch.randn(4, 48, one.D)
    alone = one.SentenceEncoder()
    alone.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(alone(states), encoder(states, sentences))


@pytest.mark.parametrize(
    ("phase", "mode"),
    [("base", "full"), ("base", "ideal"), ("kl", "full"), ("integrated", "approx")],
)
def test_three_updates_are_equal(pair, phase, mode):
    """Loss, gradients, outputs and saliency, before and after each; what a phase leaves alone has
    no gradient.
    """
    small, large = pair
    freeze(large, phase)
    learns = {
        name.removeprefix("model."): weight.requires_grad
        for name, weight in large.named_parameters()
    }
    for name, weight in small.named_parameters():
        weight.requires_grad_(learns[name])
    optimizers = [
        torch.optim.Adam([w for w in m.parameters() if w.requires_grad], 1e-3) for m in pair
    ]
    for _ in range(4):
        ours, theirs = both(pair, mode, 2, phase)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5, check_dtype=False)
        for optimizer, (*_, loss) in zip(optimizers, (ours, theirs), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        gradients = {
            name.removeprefix("model."): weight.grad for name, weight in large.named_parameters()
        }
        for name, weight in small.named_parameters():
            torch.testing.assert_close(weight.grad, gradients[name], rtol=1e-4, atol=1e-5)
    assert any(
        weight.grad is not None and weight.grad.abs().max() > 1e-3 for weight in small.parameters()
    )
    source, target_input, _ = one.documents(4)
    logits = [
        small(source, target_input, mode, 1)[0] for mode in ("full", "ideal", "random", "random")
    ]
    assert all(
        (first - second).abs().max() > 0.01
        for first, second in zip(logits, logits[1:], strict=False)
    )


def test_it_runs_alone_and_shows_the_effect(tmp_path):
    """Margins: half of the difference over ten seeds."""
    shutil.copy(Path(one.__file__), tmp_path / "paper.py")
    command = [sys.executable, "paper.py"]
    lines = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    table = {
        line[:46].strip(): [float(number) for number in line[46:].split()] for line in lines[1:5]
    }
    (full, _), (_, ideal), (_, learned), (_, chance) = table.values()
    assert len(lines) == 6 and full > 90 and learned > chance + 35 and abs(learned - ideal) < 8
