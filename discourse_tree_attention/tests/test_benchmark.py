"""The benchmark times what it says it times."""

import csv

import pytest
import torch

pytest.importorskip("shared")

from .. import benchmark as module
from ..benchmark import SYSTEMS, forward, inputs, main, train_epoch, training
from ..model import Attention, EncoderLayer, ModelConfig
from ..train import Training


def test_layer_rows_have_every_system_and_are_relative_to_the_dot_product(tmp_path, capsys):
    arguments = ["--lengths", "5", "9", "--sizes", "default", "--width", "16", "--repeats", "3", "--documents", "2"]
    main([*arguments, "--csv", str(tmp_path / "b.csv")])
    rows = list(csv.DictReader((tmp_path / "b.csv").open()))
    assert len(rows) == 2 * 2 * len(SYSTEMS)
    for row in rows:
        if row["system"] == "Dot Product(1)":
            assert float(row["dot product(1) / this"]) == 1
    assert "1 thread(s)" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [EncoderLayer, Attention])
def test_training_side_runs_backward_and_inference_does_not(kind):
    layer = kind(ModelConfig(attention="dot", width=16, head_width=4, inner=8))
    arguments = inputs(6, 16, 2, "cpu")
    forward(layer, *arguments)()
    assert all(parameter.grad is None for parameter in layer.parameters())
    training(layer, *arguments)()
    assert all(parameter.grad is not None for parameter in layer.parameters())
    assert torch.allclose(arguments[2].sum(-1), torch.ones(2, 6))


def test_an_epoch_reads_every_document_once(tmp_path, monkeypatch, capsys):
    seen, update = [], Training.update

    def counted(self):
        values = update(self)
        seen.append(self.step)
        return values

    monkeypatch.setattr(Training, "update", counted)
    flags = ["--data", "toy:count=11", "--folds", "0", "--batch", "4", "--head-width", "4", "--inner", "8"]
    main(["--epoch", "--systems", "D-Tree", "No attention", "--repeats", "2", "--", *flags])
    assert seen == [1, 2, 3, 4, 5, 6] * 2  # 3 batches of 11 documents, twice, for two systems
    assert "11 documents" in capsys.readouterr().out
    assert module.train_epoch is train_epoch


def test_bad_flags():
    with pytest.raises(SystemExit, match="error: flags after -- are those of training, for --epoch"):
        main(["--", "--steps", "3"])
