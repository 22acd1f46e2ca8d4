"""The benchmark runs, has all its sides, and its arithmetic is right. No test depends on how fast anything is."""

import csv

import pytest
import torch

pytest.importorskip("shared")

from shared.timing import Timing

from .. import benchmark
from ..approximator import KINDS
from ..benchmark import Clock, Measured, Shape, decode_rows, main, make_models, make_source, sides
from ..selection import Selection, sentences_of

CPU = torch.device("cpu")
SIDES = [
    "generate",
    "in place",
    "shared",
    "approx r2",
    "approx r2 + one choice",
    "mean_key r2",
    "mean_key r2 + one choice",
]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, list[dict[str, str]]]:
    path = tmp_path_factory.mktemp("results") / "new" / "benchmark.csv"
    main(["--quick", "--sources", "2", "--r", "2", "--tokens", "5", "--repeats", "3", "--csv", str(path)])
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    return {table: [row for row in rows if row["table"] == table] for table in ("decode", "encoders")}


def test_every_side_has_its_row(results):
    """With one beam nothing is moved and no choice shared; approx has a row per sentence encoder."""
    found = [(row["sources"], row["beams"], row["side"]) for row in results["decode"]]
    one_beam = [side for side in SIDES if "one choice" not in side and side != "in place"]
    kinds = lambda side: [f"{side}, {kind}" for kind in KINDS] if "approx" in side else [side]  # noqa: E731
    pairs = [("2", w, side) for w, chosen in (("1", one_beam), ("4", SIDES)) for side in chosen]
    assert found == [(b, w, name) for b, w, side in pairs for name in kinds(side)]
    for row in results["decode"]:
        assert float(row["step_ms"]) > 0 and float(row["whole_s"]) > 0 and row["tokens"] == "5"
        if row["side"] in ("generate", "shared"):
            assert float(row[f"whole_x_{row['side']}"]) == float(row[f"step_x_{row['side']}"]) == 1
    parts = ["encoder", "gru", "mean", "attention", "keys and values", "and mean keys"]
    assert [(row["sources"], row["part"]) for row in results["encoders"]] == [("2", part) for part in parts]


def test_all_sides_decode_as_many_tokens_and_the_full_ones_the_same():
    models, found = make_models("tiny", CPU, torch.float32), []
    shape = Shape("tiny", 24, 3, 2)
    for model in models:
        generate = model.generate
        model.generate = lambda *a, generate=generate, **k: found.append(generate(*a, **k)) or found[-1]
    for function in sides(models, shape, make_source(shape, CPU, torch.float32), 6, [2]).values():
        function()
    assert [each.shape[1] for each in found] == [7] * len(SIDES)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_sources_are_ragged_and_valid():
    source = make_source(Shape("tiny", 24, 1, 3), CPU, torch.float32)
    sentences = sentences_of(source.sentence_ids, source.attention_mask)
    assert source.attention_mask.sum(1).tolist() == [24, 23, 22]
    assert sentences.exists.sum(1).tolist() == [6, 6, 6]


def test_ratios_are_medians_within_rounds():
    """A machine that is slow in one round slows both sides down; end to end the sentence encoder counts."""
    peak = Timing("", 2.0, 0.0, 3, 2**20, (1.0, 2.0, 4.0))
    half = Timing("", 1.5, 0.0, 3, 2**20, (0.5, 1.5, 2.0))
    measured = {"generate": Measured(peak, peak), "shared": Measured(peak, peak), "approx r2": Measured(half, half)}
    seconds = {"encoder": 1.0, "gru": 0.5, "mean": 0.0, "attention": 0.1}
    parts = {name: Timing("", value, 0.0, 3, None, ()) for name, value in seconds.items()}
    rows = {row["side"]: row for row in decode_rows(Shape("tiny", 24, 4, 1), 5, measured, parts)}
    row = rows["approx r2, gru"]
    assert row["whole_x_generate"] == row["step_x_shared"] == 2.0
    assert row["end_to_end_s"] == 3.0 and row["end_to_end_x_shared"] == pytest.approx(3.0 / 3.0)
    assert rows["approx r2, mean"]["end_to_end_x_generate"] == pytest.approx(3.0 / 2.5)
    assert row["peak_mib"] == 1.0 and row["step_ms"] == 1500


def test_a_step_is_from_token_to_token_without_the_first(monkeypatch):
    layer = torch.nn.Linear(1, 1)
    clock = Clock(layer, CPU)
    times = iter([0.0, 9.0, 10.0, 12.0, 15.0])
    monkeypatch.setattr(benchmark, "perf_counter", lambda: next(times))
    for _ in range(5):
        layer(torch.zeros(1))
    assert clock.step() == 2.0


def test_selection_of_a_side_reaches_the_model():
    models = make_models("tiny", CPU, torch.float32)
    shape = Shape("tiny", 24, 4, 1)
    functions = sides(models, shape, make_source(shape, CPU, torch.float32), 4, [2])
    expected = {"shared": Selection("full"), "approx r2 + one choice": Selection("approx", 2, share_beams=True)}
    for side, selection in expected.items():
        functions[side]()
        assert models[1].selection == selection


@pytest.mark.parametrize("flags", [["--repeats", "2"], ["--tokens", "3"], ["--r", "0"]])
def test_bad_flags(flags, capsys):
    with pytest.raises(SystemExit):
        main(["--quick", *flags])
    assert "need 3 repeats, 4 tokens" in capsys.readouterr().err


def test_nothing_is_written_without_a_file(tmp_path, monkeypatch):
    """The committed results stay as they are, whatever is measured."""
    monkeypatch.setattr(benchmark, "decoding", lambda *a: [{"table": "decode"}])
    monkeypatch.setattr(benchmark, "write_csv", lambda *a: pytest.fail("it was written"))
    main(["--quick"])
