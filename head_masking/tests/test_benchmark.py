"""The benchmark runs, has all its sides, and its arithmetic is right. No test depends on how fast anything is."""

import csv
from contextlib import ExitStack
from functools import partial

import pytest
import torch

pytest.importorskip("shared")

from shared.timing import Timing

from .. import benchmark
from ..benchmark import SETTINGS, SHAPES, main, make_documents, make_model, row_of, saving, sides, sweep_sides

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> list[dict[str, str]]:
    path = tmp_path_factory.mktemp("results") / "new" / "benchmark.csv"
    flags = ["--shapes", "quick", "--batches", "1", "2", "--length", "12", "--tokens", "4", "--repeats", "3"]
    main([*flags, "--csv", str(path)])
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_side_has_its_row(rows):
    names = ["plain", "one layer", "all layers", "encoder", "encoded once", "encoded each time"]
    assert [(row["batch"], row["side"]) for row in rows] == [(batch, name) for batch in "12" for name in names]
    assert {(row["shape"], row["S"], row["T"], row["repeats"], row["device"]) for row in rows} == {
        ("quick", "12", "4", "3", "cpu")
    }
    for row in rows:
        assert float(row["median_s"]) > 0 and (row["beam"] == "4") == (row["side"] in names[:3])
        if row["side"] in ("plain", "encoded once"):
            assert float(row["ratio_of_medians"]) == float(row["ratio_within_rounds"]) == 1


def timing(*seconds: float) -> Timing:
    return Timing("", sorted(seconds)[1], max(seconds) - min(seconds), 3, None, seconds)


def test_ratios_by_medians_and_within_rounds():
    """A machine that is slow in one round slows both sides of it down."""
    found = row_of("b", {"a": timing(1.0, 2.0, 4.0), "b": timing(1.1, 3.0, 4.4)}, "a")
    assert found["ratio_of_medians"] == pytest.approx(1.5) and found["ratio_within_rounds"] == pytest.approx(1.1)


def test_saving_by_hand():
    """Encoder 2 s, a setting 1 s: 100 settings take 300 s or 102 s."""
    found = {"encoder": timing(2.0, 2.0, 2.0), "encoded once": timing(*[2.0 + SETTINGS] * 3)}
    assert saving(found, 100) == pytest.approx(300 / 102)


def test_decodes_are_masked_as_named_and_equally_long():
    """What is timed: at each layer the share of attention on hidden tokens is none where masked, some elsewhere."""
    torch.manual_seed(0)
    model, documents = make_model(SHAPES["quick"], 40, CPU, torch.float32), make_documents(2, 20, 100)
    model.set_attn_implementation("eager")
    hidden = ~torch.tensor([document.keep["oracle"] for document in documents])
    assert hidden.sum(-1).tolist() == [16, 16] and not torch.equal(hidden[0], hidden[1])
    for name, masked in (("plain", []), ("one layer", [1]), ("all layers", [1, 2])):
        side, seen = sides(model, documents, 5)[name], {1: [], 2: []}
        with ExitStack() as undo:
            for layer, steps in seen.items():
                attention = model.get_decoder().layers[layer - 1].encoder_attn
                keep_weights = partial(lambda steps, module, inputs, output: steps.append(output[1]), steps)
                undo.callback(attention.register_forward_hook(keep_weights).remove)
            assert side().shape == (2, 6)  # the start token and five more
        for layer, steps in seen.items():
            weights = torch.stack(steps).squeeze(-2)  # (steps, B*beams, H, S)
            on_hidden = weights * hidden.repeat_interleave(benchmark.BEAM, 0).unsqueeze(1)
            assert (on_hidden.sum() == 0) == (layer in masked)


def test_sweeps_encode_once_and_each_time():
    torch.manual_seed(0)
    model, documents = make_model(SHAPES["quick"], 40, CPU, torch.float32), make_documents(3, 20, 100)
    calls = []
    model.get_encoder().register_forward_hook(lambda module, inputs, output: calls.append("encoder"))
    model.get_decoder().register_forward_hook(lambda module, inputs, output: calls.append("token"))
    counts = {}
    for name, side in sweep_sides(model, documents, 5).items():
        calls.clear()
        side()
        counts[name] = (calls.count("encoder"), calls.count("token"))
    assert counts == {
        "encoder": (1, 0),
        "encoded once": (1, 5 * SETTINGS),
        "encoded each time": (SETTINGS, 5 * SETTINGS),
    }


def test_shapes_are_those_of_bart():
    """Parameters of facebook/bart-base and bart-large, 139.4 and 406.3 million."""
    for name, parameters in (("bart-base", 139_420_416), ("bart-large", 406_291_456)):
        model = make_model(SHAPES[name], 1024, torch.device("meta"), torch.float32)
        assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--repeats", "2"], "at least 3"), (["--batches", "0"], "at least 1"), (["--dtype", "int8"], "--dtype")],
)
def test_bad_flags_are_refused(flags, message, capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["--shapes", "quick", "--csv", str(tmp_path / "out.csv"), *flags])
    assert message in capsys.readouterr().err and not (tmp_path / "out.csv").exists()
