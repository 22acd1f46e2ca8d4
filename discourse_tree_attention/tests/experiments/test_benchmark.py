"""The benchmark: what stands beside what, and --quick from its first line to its last."""

import csv
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from shared.timing import Times

from ...experiments import benchmark
from ...model import ModelConfig, Summarizer, count_parameters

# What a clone of the released code has, as much of its doc_encoder.py as is called.
DOC_ENCODER = """
import torch
class Encoder(torch.nn.Module):
    def __init__(self, layers, heads, d_k, d_v, width, inner, dropout, attention_type):
        super().__init__()
        assert (layers, heads, d_k, d_v, inner, dropout) == (2, 1, 64, 64, 3072, 0.1)
        self.kind = attention_type
        self.map = torch.nn.Linear(width, width)
    def forward(self, x, mask, tree_attn):
        assert self.kind in ("tree", "none", "self-attention")
        assert mask.dtype == torch.float32 and tree_attn.shape == (*mask.shape, mask.shape[1])
        return self.map(x)
"""


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Rows of --quick with seconds of our own: each side its place among the functions."""

    def time_rounds(functions, repeats, device):
        for function in functions.values():
            function()
        places = {name: number for number, name in enumerate(functions, 1)}
        return {name: Times(number * np.ones(repeats), 0) for name, number in places.items()}

    (tmp_path / "doc_encoder.py").write_text(DOC_ENCODER)
    monkeypatch.setattr(benchmark, "time_rounds", time_rounds)
    monkeypatch.setattr(sys, "path", list(sys.path))
    benchmark.main(["--quick", "--csv", str(tmp_path / "t.csv"), "--released", str(tmp_path)])
    sys.modules.pop("doc_encoder", None)
    return list(csv.DictReader((tmp_path / "t.csv").open()))


def test_every_side_has_its_parameters_and_is_compared_with_one_head(rows):
    """The published counts belong to the sizes; here the same models, small."""
    sides = {(row["units"], row["work"], row["side"]): row for row in rows}
    assert len(sides) == len(rows) == 2 * (2 * (6 + 3) + 1)
    for side, changes in benchmark.SIDES.items():
        counts = count_parameters(Summarizer(ModelConfig(width=32, **changes)))
        for work in ("update", "scoring"):
            row = sides["9", work, side]
            assert (int(row["attention_parameters"]), int(row["parameters"])) == counts
            ratio = float(sides["9", work, benchmark.ONE_HEAD]["seconds"]) / float(row["seconds"])
            assert float(row["times_one_head"]) == pytest.approx(ratio, rel=1e-4)
            if side in benchmark.RELEASED:
                released = float(sides["9", work, f"released, {side}"]["seconds"])
                ratio = released / float(row["seconds"])
                assert float(row["times_released"]) == pytest.approx(ratio, rel=1e-4)
            else:
                assert not row["times_released"]
    assert sides["4", "matrices", "tree"]["times_one_head"] == ""


def test_quick_runs_in_bf16_and_a_device_that_cannot_compute_is_one_line(capsys):
    benchmark.main(["--quick", "--rounds", "1", "--precision", "bf16"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 2 * 13 and all(",bf16,cpu," in line for line in lines[1:])
    with pytest.raises(SystemExit):
        benchmark.main(["--quick", "--device", "meta"])
    assert capsys.readouterr().err.startswith("error: --device meta")


def test_precision_is_that_of_the_forward_pass():
    """bf16 products, float32 weights."""
    model = torch.nn.Linear(2, 2)
    x = torch.randn(3, 2)
    for precision, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        forward = benchmark.in_precision(model, precision, torch.device("cpu"))
        assert forward(x).dtype == dtype and model.weight.dtype == torch.float32
