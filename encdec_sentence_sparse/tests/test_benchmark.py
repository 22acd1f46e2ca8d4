"""The benchmark runs, has all its sides, and its arithmetic is right. No test depends on how fast anything is."""

import csv

import pytest
import torch

pytest.importorskip("shared")

from shared.timing import Timing

from .. import benchmark
from ..benchmark import Clock, Measured, Shape, main, make_models, make_source, sides, table
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
def results(tmp_path_factory) -> list[list[dict[str, str]]]:
    path = tmp_path_factory.mktemp("results") / "new" / "benchmark.csv"
    main(["--quick", "--sources", "1", "2", "--r", "2", "--tokens", "5", "--repeats", "3", "--csv", str(path)])
    found = []
    for file in (path, path.with_name("benchmark_encoders.csv")):
        with file.open(encoding="utf-8") as text:
            found.append(list(csv.DictReader(text)))
    return found


def test_every_side_has_its_row(results):
    """With one beam nothing is moved and no choice shared."""
    found = [(row["sources"], row["beams"], row["side"]) for row in results[0]]
    one_beam = [side for side in SIDES if "one choice" not in side and side != "in place"]
    expected = [(b, w, s) for b in "12" for w, chosen in (("1", one_beam), ("4", SIDES)) for s in chosen]
    assert found == expected
    for row in results[0]:
        assert float(row["step_ms"]) > 0 and float(row["whole_s"]) > 0 and row["tokens"] == "5"
        if row["side"] in ("generate", "shared"):
            assert float(row[f"whole_x_{row['side']}"]) == float(row[f"step_x_{row['side']}"]) == 1
    parts = ["gru", "mean", "attention", "keys and values", "and mean keys"]
    assert [(row["sources"], row["part"]) for row in results[1]] == [(b, part) for b in "12" for part in parts]


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
    """A machine that is slow in one round slows both sides of it down."""
    peak = Timing("", 2.0, 0.0, 3, 2**20, (1.0, 2.0, 4.0))
    half = Timing("", 1.5, 0.0, 3, 2**20, (0.5, 1.5, 2.0))
    measured = {"generate": Measured(peak, peak), "shared": Measured(peak, peak), "x": Measured(half, half)}
    row = table(Shape("tiny", 24, 4, 1), 5, measured, Timing("", 1.0, 0.0, 3, None, (1.0, 1.0, 1.0)))[-1]
    assert row["whole_x_generate"] == row["step_x_shared"] == 2.0
    assert row["with_encoder_x_generate"] == pytest.approx(3.0 / 2.5)
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
