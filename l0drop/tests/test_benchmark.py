"""The benchmark runs, has all its sides, and its arithmetic is right.  No test depends on how fast anything is."""

import csv
import statistics

import pytest
import torch

pytest.importorskip("shared")

from shared.timing import Timing

from .. import benchmark
from ..benchmark import BEAM, QUICK, SHAPES, SIDES, Shape, Speed, close_gates, main, remember, table


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> list[dict[str, str]]:
    path = tmp_path_factory.mktemp("results") / "new" / "benchmark.csv"
    main(["--quick", "--repeats", "3", "--csv", str(path)])
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_side_has_its_row(rows):
    sides = [(row["decoder"], row["memory"]) for row in rows]
    assert sides == [*SIDES, ("training", "without L0Drop"), ("training", "with L0Drop")]
    for decoder in ("generate", "expanded", "shared"):
        assert {(decoder, memory) for memory in ("dense", "pruned", "short")} <= set(sides)
    assert {(row["device"], row["dtype"], row["threads"], row["repeats"]) for row in rows} == {
        ("cpu", "float32", "1", "3")
    }
    for row in rows:
        assert float(row["step_ms"]) > 0
    for row in rows[: len(SIDES)]:
        # A whole decode has more steps than were timed, and an encoder and a first token besides.
        assert float(row["whole_s"]) > QUICK.tokens * float(row["step_ms"]) / 2000
        assert float(row["peak_mib"]) > 0


def test_memories_are_as_long_as_they_say(rows):
    lengths = {(row["decoder"], row["memory"]): int(row["R"]) for row in rows[: len(SIDES)]}
    for decoder in ("generate", "expanded", "shared"):
        assert lengths[decoder, "dense"] == QUICK.length
        assert lengths[decoder, "short"] == lengths[decoder, "pruned"] < QUICK.length


def test_ratios_in_the_file_are_those_of_its_medians(rows):
    rows = rows[: len(SIDES)]
    dense = {row["decoder"]: row for row in rows if row["memory"] == "dense"}
    for row in rows:
        for baseline in dense:
            expected = float(dense[baseline]["step_ms"]) / float(row["step_ms"])
            # The file has three decimals.
            assert float(row[f"step_x_{baseline}"]) == pytest.approx(expected, rel=0.02, abs=2e-3)


def test_ratios_are_dense_over_this_side():
    """By hand: each side takes 1 ms more than the one before; a whole decode takes thousand times its step."""

    def timing(seconds: float) -> Timing:
        return Timing("", seconds, 0.0, 3, 2**20, (seconds,) * 3)

    speeds = {side: Speed(7, timing(1e-3 * n), timing(float(n))) for n, side in enumerate(SIDES, start=2)}
    rows = table(QUICK, speeds)
    first, shared_pruned = rows[0], rows[SIDES.index(("shared", "pruned"))]
    assert first["step_x_generate"] == first["whole_x_generate"] == 1
    assert shared_pruned["step_ms"] == 9.0 and shared_pruned["whole_s"] == 9.0 and shared_pruned["peak_mib"] == 1.0
    assert shared_pruned["step_x_generate"] == shared_pruned["whole_x_generate"] == round(2 / 9, 3)
    assert shared_pruned["step_x_expanded"] == round(5 / 9, 3)
    assert shared_pruned["step_x_shared"] == round(8 / 9, 3)


def test_gates_close_exactly_the_share_of_table_1():
    """Table 1: 47.6 % on CNN/Daily Mail, 71.5 % on WikiSum; about as many in each source, but not the same."""
    for shape in SHAPES.values():
        closed = close_gates(shape) == 0
        assert closed.sum().item() == round(shape.sparsity * shape.sources * shape.length)
        per_source = closed.float().mean(-1)
        assert len(set(per_source.tolist())) > 1
        assert (per_source - shape.sparsity).abs().max() < 0.15
    assert [(shape.length, shape.sparsity, shape.sources) for shape in SHAPES.values()] == [
        (400, 0.476, 10),
        (2048, 0.715, 10),
    ]
    assert BEAM == 4


def test_pruned_memory_attends_like_the_dense_one():
    """What is timed is Algorithm 1: one step over either memory gives the same logits; over `short` it does not."""
    model, _ = benchmark.make_models(True, torch.device("cpu"), torch.float32)
    gates, states = close_gates(Shape(3, 20, 0.5, 20)), torch.randn(3, 20, 16)
    tokens = torch.randint(4, 100, (3, 4))
    logits = {
        name: model.decode(tokens, model.project(remember(states, gates, name)))[0]
        for name in ("dense", "pruned", "short")
    }
    torch.testing.assert_close(logits["pruned"], logits["dense"], atol=1e-5, rtol=0)
    assert (logits["short"] - logits["dense"]).abs().max() > 1e-3


def test_every_timed_token_is_decoded(monkeypatch):
    """A clock that counts calls instead of seconds: each token starts at one tick, so every step is one tick long."""
    ticks = iter(range(10**6))
    monkeypatch.setattr(benchmark, "perf_counter", lambda: float(next(ticks)))
    models = benchmark.make_models(True, torch.device("cpu"), torch.float32)
    speeds = benchmark.decode_speed(models, QUICK, 3, torch.device("cpu"))
    assert {speed.step.median for speed in speeds.values()} == {1.0}
    assert all(len(speed.whole.times) == 3 for speed in speeds.values())


def test_summary_has_median_and_interquartile_range():
    times = [4.0, 1.0, 3.0, 2.0, 9.0]
    summary = benchmark.summary(times)
    assert summary.median == statistics.median(times) == 3.0
    assert summary.iqr == 2.0  # from 2 to 4


@pytest.mark.parametrize("flags", [["--repeats", "2"], ["--shapes", "500"], ["--dtype", "int8"]])
def test_bad_flags_are_refused(flags, capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["--quick", "--csv", str(tmp_path / "out.csv"), *flags])
    assert flags[0] in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()
