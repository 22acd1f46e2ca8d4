"""one.py is the package's mathematics, and shows the effect."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .. import one
from ..diminishing import Diminishing, coverage_value, effective_coverage
from ..model import PointerGenerator
from ..text import Batch


@pytest.fixture(params=one.KINDS)
def pair(request):
    """one.py's model and the package's with the same weights, far from their initial values:
    attention is sharp.
    """
    kind = request.param
    torch.manual_seed(0)
    small = one.PointerGenerator(kind)
    torch.nn.init.normal_(small.decoder.score.weight, std=0.5)
    mechanism = (Diminishing(), True) if kind == "coverage" else (Diminishing(kind),)
    large = PointerGenerator(one.V, one.D, one.H, *mechanism)
    large.load_state_dict(small.state_dict())
    return small, large


def as_batch(source: torch.Tensor, target: torch.Tensor) -> Batch:
    return Batch(source, source >= 0, target[:, :-1], target[:, 1:], target[:, 1:] >= 0, 0)


def test_the_functions_of_the_idea_are_equal():
    attention = (3 * torch.randn(2, 7, 5)).softmax(-1)  # (B, T, S)
    for f, name in ((one.log, "log"), (one.sqrt, "sqrt")):
        torch.testing.assert_close(
            one.coverage_value(attention, f), coverage_value(attention, name)
        )
    want = {kind: Diminishing(kind).sequence(attention) for kind in one.MECHANISM}
    coverage = peak = total = torch.zeros(2, 5)
    for step, looks in enumerate(attention.unbind(1)):
        peak = torch.maximum(peak, looks)
        for kind, mechanism in one.MECHANISM.items():
            torch.testing.assert_close(mechanism(looks, coverage, peak), want[kind][:, step])
        total, coverage = total + one.gain(looks, coverage), coverage + looks
        torch.testing.assert_close(total, effective_coverage(attention)[:, step])  # Eq. (11)
    assert (want["dim"] - want["dydim"]).abs().max() > 0.1


def test_three_updates_are_equal(pair):
    """Loss and gradients before and after each; then attention, weights and probabilities of every
    word.
    """
    rng, optimizers = (
        random.Random(0),
        [torch.optim.Adam(model.parameters(), 1e-3) for model in pair],
    )
    for _ in range(4):
        source, target = one.draw(8, rng)
        losses = pair[0](source, target), pair[1](as_batch(source, target))
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
        gradients = [
            {name: weight.grad for name, weight in model.named_parameters()} for model in pair
        ]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    small, large = pair
    (read, past), (large_read, large_past) = (
        small.start(source),
        large.start(as_batch(source, target)),
    )
    steps = large.run(as_batch(source, target))
    for t, word in enumerate(target.T[:-1]):
        p, attention, weights, past = small.decoder(word, *read, past)
        torch.testing.assert_close(
            (attention, weights), (steps.attention[:, t], steps.copying[:, t]), rtol=0, atol=1e-5
        )
        log_p, large_past = large.step(word, large_read, large_past)
        torch.testing.assert_close(p, log_p.exp(), rtol=0, atol=1e-5)


def test_blocking_writes_no_three_words_twice():
    torch.manual_seed(0)
    model, (source, _) = one.PointerGenerator(), one.draw(8, random.Random(0))
    free, blocked = (one.write(model, source, blocking)[0].tolist() for blocking in (False, True))
    grams = [
        [list(zip(row, row[1:], row[2:], strict=False)) for row in words]
        for words in (free, blocked)
    ]
    assert any(len(set(row)) < len(row) for row in grams[0]) and all(
        len(set(row)) == len(row) for row in grams[1]
    )


def test_a_trip_from_its_other_end_is_told_again():
    number = one.WORDS.index
    text = [
        number(word)
        for word in "rome lima rome . lima rome lima . oslo cairo oslo . rome lima . </s>".split()
    ]
    wanted = [
        number(word)
        for word in "oslo cairo oslo . rome lima rome . bern quito bern . kyiv accra kyiv . "
        "</s>".split()
    ]
    assert one.trips(text) == [
        {"rome", "lima"},
        {"rome", "lima"},
        {"oslo", "cairo"},
        {"rome", "lima"},
    ]
    assert one.measure(torch.tensor([text]), torch.tensor([[one.BOS, *wanted]])) == (50, 50)


def test_it_runs_alone_and_shows_the_effect(tmp_path):
    """Margins: half of the mean difference over ten seeds."""
    shutil.copy(Path(one.__file__), tmp_path / "paper.py")
    command = [sys.executable, "paper.py"]
    lines = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    again, told = (
        {line[:18].strip(): float(line.split()[-2 + i]) for line in lines[2:7]} for i in (0, 1)
    )
    for mechanism in ("DimAttn", "DyDimAttn", "coverage"):
        assert (
            again[mechanism] < again["no mechanism"] - 7
            and told[mechanism] > told["no mechanism"] + 7
        )
    for mechanism in ("DimAttn", "DyDimAttn"):
        assert (
            again[mechanism] < again["trigrams blocked"] - 2
            and told[mechanism] > told["trigrams blocked"] + 7
        )
