"""The benchmark times what it says it times."""

import csv

import pytest
import torch

pytest.importorskip("shared")

from ...experiments.benchmark import SYSTEMS, inference, inputs, main, training
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
        (["--repeats", "2"], "repeats at least 3"),
        (["--lengths", "600"], "--lengths go to 512"),
        (["--device", "nowhere"], "--device nowhere cannot be used"),
    ],
)
def test_bad_flags(flags, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(flags)
    assert stop.value.code == 2 and message in capsys.readouterr().err
