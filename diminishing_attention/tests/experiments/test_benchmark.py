"""The benchmark runs, and its sides compute the same. Nothing depends on how fast it is."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...experiments import benchmark
from ...experiments.benchmark import (
    QUICK,
    SIDES,
    Options,
    decoding_sides,
    main,
    make_batch,
    make_model,
    make_update,
    plain_losses,
)
from ...model import PointerGenerator
from ...text import UNK

TINY = dict(
    hidden=6, embedding=5, vocabulary=60, source=14, target=7, batch_size=3, documents=4, beam=3, decode_tokens=5
)
FLAGS = Options(**TINY)


def sharpen(model: PointerGenerator) -> PointerGenerator:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return model


def test_the_whole_run_has_a_row_per_side(tmp_path, capsys):
    arguments = [piece for name, value in TINY.items() for piece in ("--" + name.replace("_", "-"), str(value))]
    main([*arguments, "--repeats", "3", "--warmup", "0", "--csv", str(tmp_path / "new/benchmark.csv")])
    rows = list(csv.DictReader((tmp_path / "new/benchmark.csv").open(encoding="utf-8")))
    assert [row["side"] for row in rows] == [*SIDES, "together", "one by one"]
    assert all(row["source"] == "14" and row["repeats"] == "3" for row in rows)
    assert all(float(row["times_baseline_mean"]) == 1 for row in rows if row["side"] == row["baseline"])
    assert "| plain loop" in capsys.readouterr().out
    replace(FLAGS, **QUICK)  # names that exist


@pytest.mark.parametrize(("project_once", "calls"), [(False, TINY["target"]), (True, 1)])
def test_the_plain_loop_computes_the_same_loss_and_gradients(project_once, calls):
    torch.manual_seed(1)
    model, batch, seen = sharpen(make_model(FLAGS)), make_batch(3, FLAGS), []
    ours = model(batch).mean()
    model.encoder.project.register_forward_hook(lambda module, inputs, output: seen.append(1))
    plain = plain_losses(model, batch, project_once).mean()
    assert torch.isclose(ours, plain, atol=1e-5) and ours > 0.5 and len(seen) == calls
    pair = (torch.autograd.grad(loss, list(model.parameters())) for loss in (ours, plain))
    for one, other in zip(*pair, strict=True):
        assert torch.allclose(one, other, atol=1e-5) and one.abs().max() > 1e-6


def test_the_decoder_reads_no_unknown_word():
    """A copied one is a target with a number of its own, and <unk> where it is read."""
    for seed in range(20):
        torch.manual_seed(seed)
        batch = make_batch(3, FLAGS)
        read, told = batch.target_in[:, 1:], batch.target_out[:, :-1]
        assert torch.equal(read, torch.where(told < FLAGS.vocabulary, told, UNK)) and (told >= FLAGS.vocabulary).any()


def test_each_side_has_the_mechanism_of_its_name():
    mechanisms = {name: make_model(FLAGS, **system).config for name, (system, _) in SIDES.items()}
    assert {name: (config.diminishing.kind, config.coverage) for name, config in mechanisms.items()} == {
        "plain loop": ("none", False), "projected once": ("none", False), "ours": ("none", False),
        "ours + DimAttn": ("dim", False), "ours + DyDimAttn": ("dydim", False), "ours + coverage": ("none", True),
    }  # fmt: skip
    assert [losses for _, losses in SIDES.values()][2:] == [PointerGenerator.forward] * 4


def test_times_are_over_those_of_the_baseline(monkeypatch):
    """A side that takes three seconds where the baseline takes two has 1.5 times its time."""
    seconds = {
        name: np.full(3, 2.0 if name in ("ours", "together") else 3.0) for name in (*SIDES, *decoding_sides(FLAGS))
    }
    monkeypatch.setattr(benchmark, "time_rounds", lambda sides, *_: {name: seconds[name] for name in sides})
    for row in benchmark.measure(FLAGS):
        assert row["times_baseline"]["mean"] == (1.0 if row["side"] == row["baseline"] else 1.5)
        assert row["seconds"]["mean"] == seconds[row["side"]][0]


def test_searches_agree():
    searches = decoding_sides(FLAGS)
    together, alone = searches["together"](), searches["one by one"]()
    for row, one in enumerate(alone):
        assert len(one.tokens[0]) == 4 and one.scores[0].item() == pytest.approx(together.scores[row].item(), abs=1e-4)


def test_an_update_is_see_et_als():
    """Adagrad from an accumulator of 0.1 after the clipping of each part: g lr / sqrt(0.1 + g^2)."""
    torch.manual_seed(0)
    model = sharpen(make_model(FLAGS))
    batch, weight = make_batch(3, FLAGS), model.reduce.hidden.weight
    before = weight.detach().clone()
    (gradient,) = torch.autograd.grad(1e3 * model(batch).mean(), weight)
    parts = torch.autograd.grad(1e3 * model(batch).mean(), list(model.reduce.parameters()))
    gradient = gradient * min(1.0, 2.0 / torch.stack([g.norm() for g in parts]).norm().item())
    make_update(model, lambda model, batch: 1e3 * model(batch), batch)()
    assert torch.allclose(weight, before - 0.15 * gradient / (0.1 + gradient**2).sqrt(), atol=1e-4)
    assert model.reduce.hidden.weight.grad is None
