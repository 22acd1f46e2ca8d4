"""The benchmark times what it says it times."""

import csv

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...experiments import benchmark
from ...experiments.benchmark import REFERENCE, SYSTEMS, Options, inference, inputs, main, measure, training
from ...model import Attention, EncoderLayer, ModelConfig


def test_rows_have_every_system_and_are_relative_to_the_dot_product(tmp_path, capsys):
    arguments = ["--quick", "--sizes", "default", "--parts", "layer", "--modes", "training", "--documents", "2"]
    main([*arguments, "--csv", str(tmp_path / "b.csv")])
    rows = list(csv.DictReader((tmp_path / "b.csv").open()))
    assert len(rows) == 2 * len(SYSTEMS) == 18
    assert all(float(row["dot product(1) / this_mean"]) == 1 for row in rows if row["system"] == "Dot Product(1)")
    memory = {row["system"]: float(row["peak MiB"]) for row in rows if row["units"] == "32"}
    assert memory["C-Tree"] == memory["C-Tree w/Nuc"] == memory["D-Tree"] < memory["Dot Product(1)"]
    assert "1 thread(s), float32" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("part", ["attention", "layer"])
def test_a_row_says_how_many_times_faster_than_the_dot_product(monkeypatch, mode, part):
    """Sides are of the part, the attention and the mode that their names say; dropout in training alone."""
    seen = {}

    def rounds(sides, repeats, warmup, device):
        seen.update(sides)
        return {name: np.full(repeats, 6.0 if name == REFERENCE else 2.0) for name in sides}

    monkeypatch.setattr(benchmark, "time_rounds", rounds)
    options = Options(width=16, documents=2, repeats=3)
    rows = {row["system"]: row for row in measure(options, part, "balanced", mode, 5)}
    assert rows["D-Tree"]["dot product(1) / this"]["mean"] == 3 and rows["D-Tree"]["ms"]["mean"] == 2000
    assert rows[REFERENCE]["dot product(1) / this"]["mean"] == 1
    for name, side in seen.items():
        module = side.args[0]
        assert side.func is {"inference": inference, "training": training}[mode]
        assert type(module) is {"attention": Attention, "layer": EncoderLayer}[part]
        assert module.training == (mode == "training") and side.args[1].shape == (2, 5, 16)
        attention = module if part == "attention" else module.attention
        kinds = {"Dense": "Dense", "No attention": "Identity", "Dot Product(8)": "DotProduct", "C-Tree": "Tree"}
        assert type(attention.attend).__name__ == kinds.get(name, type(attention.attend).__name__)
        assert attention.heads == (8 if name == "Dot Product(8)" else 1)
        assert attention.value.out_features == 512 * attention.heads  # balanced


@pytest.mark.parametrize("kind", [EncoderLayer, Attention])
def test_training_side_runs_backward_and_inference_does_not(kind):
    layer = kind(ModelConfig(attention="dot", width=16, head_width=4, feed_forward=8))
    arguments = inputs(6, 16, 2, torch.empty(0))
    inference(layer, *arguments)
    assert all(parameter.grad is None for parameter in layer.parameters())
    training(layer, *arguments)
    assert all(parameter.grad is not None for parameter in layer.parameters())
    assert torch.allclose(arguments[2].sum(-1), torch.ones(2, 6))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--repeats", "2"], "--repeats is 2; it must be a whole number from 3"),
        (["--lengths", "600"], "--lengths is 600; it must be a whole number from 1 to 512"),
        (["--device", "nowhere"], "--device nowhere cannot be used"),
        (["--width", "7"], "error: width is 7; the position table needs an even number"),
        (["--quick", "--width", "0"], "--width is 0"),
    ],
)
def test_bad_flags(flags, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(flags)
    error = capsys.readouterr().err
    assert stop.value.code == 2 and message in error and error.count("\n") == 1
