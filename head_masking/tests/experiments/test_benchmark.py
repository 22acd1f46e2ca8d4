"""The benchmark runs, and its sides do what their names say."""

import csv
from contextlib import nullcontext

import pytest
import torch

pytest.importorskip("shared")

from shared import pack

from ...experiments import benchmark

OWN = ["generate", "masks on the top layer", "masks on all layers", "tagger"]
PACKED = ["generate, packed", "masks on the top layer, packed", "tagger, packed"]


@pytest.mark.parametrize(("gain", "sides"), [(-1.0, OWN), (9.0, OWN + PACKED)])
def test_it_runs(tmp_path, capsys, monkeypatch, gain, sides):
    """Packed sides are there where weights can be packed."""
    monkeypatch.setattr(pack, "gain", lambda linear: gain)
    benchmark.main(["--quick", "--csv", str(tmp_path / "speed.csv")])
    rows = list(csv.DictReader((tmp_path / "speed.csv").open()))
    assert [row["side"] for row in rows] == sides
    assert float(rows[0]["x generate_median"]) == 1
    assert all(float(row["seconds_median"]) > 0 for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == len(sides)


def test_the_sides_mask_what_their_names_say(monkeypatch):
    torch.manual_seed(0)
    masked = []
    real = benchmark.mask_heads

    def noted(bart, heads, keep):
        masked.append({layer: list(chosen) for layer, chosen in heads.items()})
        assert 0 < keep.float().mean() < 1
        return real(bart, heads, keep)

    monkeypatch.setattr(benchmark, "mask_heads", noted)
    bart, tagger = benchmark.models(quick=True)
    sides = benchmark.sides(bart, tagger, [], benchmark.QUICK, nullcontext(), "cpu")
    lengths = {name: side() for name, side in sides.items() if name != "tagger"}
    assert set(lengths.values()) == {1 + benchmark.QUICK.tokens}
    assert masked == [{2: [0, 1]}, {1: [0, 1], 2: [0, 1]}]
    assert sides["tagger"]().shape == (2, 20)
