"""The benchmark runs, has all its sides, and they are masked as named. No test depends on how fast anything is."""

import csv
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...experiments import benchmark
from ...experiments.benchmark import main, make_model, sides


def test_every_side_has_its_row(tmp_path, capsys, monkeypatch):
    """--csv FILE alone is written; nothing is written without it."""
    flags = ["--quick", "--batches", "1", "--repeats", "3"]
    main([*flags, "--csv", str(tmp_path / "new" / "b.csv")])
    rows = list(csv.DictReader((tmp_path / "new" / "b.csv").open(encoding="utf-8")))
    assert [row["side"] for row in rows] == ["plain", "one layer", "all layers"]
    assert {(row["shape"], row["S"], row["T"], row["device"]) for row in rows} == {("quick", "16", "4", "cpu")}
    assert float(rows[0]["over_plain_mean"]) == 1 and all(float(row["seconds_low"]) > 0 for row in rows)
    monkeypatch.setattr(benchmark, "write_csv", lambda *_: pytest.fail("written"))
    main(flags)
    assert "all layers" in capsys.readouterr().out


def test_a_ratio_above_one_is_slower_than_the_plain_decode(monkeypatch):
    """Within rounds: the masked sides take two and three times as long in each."""
    plain = np.array([1.0, 10.0, 100.0])
    seconds = {"plain": plain, "one layer": 2 * plain, "all layers": 3 * plain}
    monkeypatch.setattr(benchmark, "time_rounds", lambda *_, **__: seconds)
    rows = benchmark.measure("quick", 1, 16, 4, benchmark.Options(repeats=3))
    assert [row["over_plain"]["mean"] for row in rows] == [1, 2, 3]
    assert [row["seconds"]["mean"] for row in rows] == [10, 20, 30]


def test_decodes_are_masked_as_named_and_equally_long():
    """What is timed: at each layer the share of attention on hidden tokens is none where masked, some elsewhere."""
    torch.manual_seed(0)
    model, ids, keep = make_model("quick", 40), torch.randint(4, 100, (2, 20)), torch.rand(2, 20) < 0.3
    model.set_attn_implementation("eager")
    for name, masked in (("plain", []), ("one layer", [1]), ("all layers", [1, 2])):
        side, seen = sides(model, ids, keep, 5)[name], {1: [], 2: []}
        with ExitStack() as undo:
            for layer, steps in seen.items():
                attention = model.get_decoder().layers[layer - 1].encoder_attn
                keep_weights = partial(lambda steps, module, inputs, output: steps.append(output[1]), steps)
                undo.callback(attention.register_forward_hook(keep_weights).remove)
            assert side().shape == (2, 6)  # the start token and five more
        for layer, steps in seen.items():
            weights = torch.stack(steps).squeeze(-2)  # (steps, B*beams, H, S)
            on_hidden = weights * ~keep.repeat_interleave(benchmark.BEAM, 0).unsqueeze(1)
            assert (on_hidden.sum() == 0) == (layer in masked)


def test_shapes_are_those_of_bart():
    """Parameters of facebook/bart-base and bart-large, 139.4 and 406.3 million."""
    for name, parameters in (("bart-base", 139_420_416), ("bart-large", 406_291_456)):
        with torch.device("meta"):
            model = make_model(name, 1024)
        assert sum(p.numel() for p in model.parameters()) == parameters


def test_bad_flags_are_refused(capsys, tmp_path):
    for flags in (["--repeats", "2"], ["--batches", "0"], ["--precision", "int8"], ["--device", "foo"]):
        with pytest.raises(SystemExit) as stop:
            main(["--csv", str(tmp_path / "out.csv"), *flags])
        assert stop.value.code == 2 and flags[0] in capsys.readouterr().err and not (tmp_path / "out.csv").exists()
