"""one.py is the package's mathematics, and shows the effect."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .. import gates, one
from ..model import PAD, ModelConfig, Transformer, objective


@pytest.fixture
def pair():
    """one.py's model and the package's with the same weights; the gates are spread, some are closed
    for good.
    """
    small = one.Transformer(has_gates=True)
    torch.nn.init.normal_(small.l0drop[0].predictor.weight, std=0.4)
    sizes = dict(
        vocabulary=one.V,
        width=one.D,
        feed_forward=one.INNER,
        heads=one.H,
        encoder_layers=1,
        decoder_layers=1,
    )
    large = Transformer(ModelConfig(**sizes, residual_dropout=0.0, attention_dropout=0.0))
    large.load_state_dict(small.state_dict())
    return small, large


def ragged_batch(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    source, target_input, target = one.sentences(8, generator)
    return (
        source.masked_fill(torch.arange(21) >= torch.arange(14, 22).unsqueeze(-1), PAD),
        target_input,
        target,
    )


def test_the_functions_of_the_idea_are_equal():
    log_alpha, keep, states = (
        torch.randn(5, 9) * 4,
        torch.rand(5, 9) < 0.8,
        torch.randn(5, 9, one.D),
    )
    torch.manual_seed(1)
    drawn = one.sample_gates(log_alpha)
    torch.manual_seed(1)
    torch.testing.assert_close(drawn, gates.sample_gates(log_alpha))
    torch.testing.assert_close(one.expected_gates(log_alpha), gates.expected_gates(log_alpha))
    torch.testing.assert_close(one.open_probability(log_alpha), gates.open_probability(log_alpha))
    torch.testing.assert_close(one.l0_penalty(log_alpha, keep), gates.l0_penalty(log_alpha, keep))
    memory, (rows, counts) = gates.compress(states, drawn, keep), one.compress(states, drawn, keep)
    torch.testing.assert_close((rows, counts.log()), (memory.states, memory.log_counts))
    assert ((drawn == 0) & keep).any() and (drawn == 1).any()


def test_three_updates_are_equal(pair):
    """Loss, gradients and outputs, before and after each, on padded sources, with the same noise in
    the gates.
    """
    generator, optimizers = (
        torch.Generator().manual_seed(0),
        [torch.optim.Adam(m.parameters(), 1e-3) for m in pair],
    )
    small, large = pair
    for step in range(4):
        source, target_input, target = ragged_batch(generator)
        torch.manual_seed(step)
        logits, log_alpha = small.train()(source, target_input)
        loss = one.objective(logits, target, log_alpha, source != PAD, 0.7)
        torch.manual_seed(step)
        large_logits, encoding = large.train()(source, target_input)
        large_loss = objective(large_logits, target, encoding, 0.7)
        torch.testing.assert_close((logits, loss), (large_logits, large_loss), rtol=1e-5, atol=1e-5)
        for optimizer, each in zip(optimizers, (loss, large_loss), strict=True):
            optimizer.zero_grad()
            each.mean().backward()
            optimizer.step()
        gradients = [
            {name: weight.grad for name, weight in model.named_parameters()} for model in pair
        ]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_algorithm_1_is_what_the_package_reads_at_test_time(pair):
    small, large = (model.eval() for model in pair)
    source, target_input, _ = ragged_batch(torch.Generator().manual_seed(5))
    states, gate, _ = small.encode(source)
    logits = small.decode(target_input, *one.compress(states, gate, source != PAD))
    torch.testing.assert_close(logits, large(source, target_input)[0], rtol=1e-4, atol=1e-5)
    assert 0.1 < (gate == 0)[source != PAD].float().mean() < 0.9


def test_it_runs_alone_and_shows_the_effect(tmp_path):
    """Margins: half of the difference over ten seeds."""
    shutil.copy(Path(one.__file__), tmp_path / "paper.py")
    command = [sys.executable, "paper.py"]
    lines = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    table = {
        line[:20].strip(): [float(number) for number in line[20:].split()] for line in lines[1:5]
    }
    filler, articles, nouns, right, nouns_right = table["gates, update 500"]
    assert filler > 50 and articles > 50 and nouns < 50 and nouns_right > 90
    assert table["no gates"] == pytest.approx([0, 0, 0, 100, 100], abs=5)
    assert right > table["articles left out"][3] + 25 and right > table["gates, update 60"][3] + 25
    without, with_gates = map(float, re.findall(r"(\d+) %", lines[-1]))
    assert with_gates > without + 50
