"""The benchmark runs, has all its sides, and its arithmetic is right.  No test depends on how fast anything is."""

import csv

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...experiments import benchmark
from ...experiments.benchmark import (
    BEAM,
    QUICK,
    SHAPES,
    TINY,
    Options,
    close_gates,
    decode_rows,
    fix_gates,
    main,
    make_sides,
)
from ...experiments.precision import packs_bfloat16
from ...model import ModelConfig
from ...search import generate


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> list[dict[str, str]]:
    path = tmp_path_factory.mktemp("results") / "new" / "benchmark.csv"
    main(["--quick", "--repeats", "3", "--csv", str(path)])
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_side_has_its_row(rows):
    """Peers and ours; what is sharing, pruning, packing and precision, each on its own row."""
    sides = {row["side"] for row in rows}
    assert {"generate", "generate, packed", "generate, bf16", "generate, int8"} <= sides
    assert {"expanded", "expanded, pruned", "shared", "shared, pruned"} <= sides
    assert {"shared, packed", "shared, pruned, packed", "shared, pruned, int8"} <= sides
    assert ("shared, pruned, bf16" in sides) == packs_bfloat16()
    for row in rows:
        assert 0 < float(row["seconds_low"]) <= float(row["seconds_mean"]) <= float(row["seconds_high"])
        assert (row["device"], row["threads"], row["repeats"]) == ("cpu", "1", "3")


def test_ratios_are_taken_within_rounds_and_at_equal_precision():
    """By hand: medians of ratios, not ratios of medians; int8 against CTranslate2's int8."""
    seconds = {
        "generate": np.array([4.0, 8.0, 6.0]),
        "expanded": np.array([2.0, 2.0, 2.0]),
        "shared, pruned": np.array([1.0, 4.0, 1.0]),
        "shared, pruned, int8": np.array([0.5, 0.5, 0.5]),
        "CTranslate2, float32": np.array([3.0, 3.0, 3.0]),
        "CTranslate2, int8": np.array([1.0, 1.0, 1.0]),
    }
    rows = {row["side"]: row for row in decode_rows(QUICK, seconds)}
    assert rows["shared, pruned"]["x generate"] == {"mean": 4.0, "low": 2.0, "high": 6.0}
    assert rows["shared, pruned"]["x CTranslate2"] == {"mean": 3.0, "low": 0.75, "high": 3.0}
    assert rows["shared, pruned, int8"]["x CTranslate2"]["mean"] == 2.0
    assert rows["shared, pruned"]["x expanded"]["mean"] == 2.0
    assert decode_rows(QUICK, {"shared": np.ones(3)})[0]["x generate"] is None


def test_every_side_is_what_its_name_says(monkeypatch):
    """Which products are swapped, at which precision, and what `generate` is asked for."""
    swapped, converted, asked = [], [], []
    real_swap, real_convert, real_generate = benchmark.swap_linears, benchmark.convert, benchmark.generate
    monkeypatch.setattr(benchmark, "swap_linears", lambda m, p: swapped.append(p) or real_swap(m, p))

    def convert(model, precision, pack):
        converted.append((precision, pack))
        return real_convert(model, precision, pack)

    monkeypatch.setattr(benchmark, "convert", convert)

    def generate(model, source, rule, prune, share, **rest):
        asked.append((prune, share))
        return real_generate(model, source, rule, prune, share, **rest)

    monkeypatch.setattr(benchmark, "generate", generate)
    for name, products, ours, flags in (
        ("generate", [], [], []),
        ("generate, packed", ["float32"], [], []),
        ("generate, int8", ["int8"], [], []),
        ("generate, bf16", [], [], []),
        ("expanded", [], [("float32", False)], [(False, False)]),
        ("expanded, pruned", [], [("float32", False)], [(True, False)]),
        ("shared", [], [("float32", False)], [(False, True)]),
        ("shared, pruned, packed", [], [("float32", True)], [(True, True)]),
        ("shared, int8", [], [("int8", False)], [(False, True)]),
        ("shared, pruned, bf16", [], [("bf16", True)], [(True, True)]),
    ):
        if name == "shared, pruned, bf16" and not packs_bfloat16():
            continue
        [side] = make_sides(ModelConfig(**TINY), QUICK, Options(sides=(name,))).values()
        assert side() == QUICK.tokens
        assert (swapped, converted, asked) == (products, ours, flags), name
        swapped.clear(), converted.clear(), asked.clear()


def test_gates_close_exactly_the_share_of_table_1():
    """Table 1: 47.6 % on CNN/Daily Mail, 71.5 % on WikiSum; about as many in each source, but not the same."""
    for shape in SHAPES.values():
        closed = close_gates(shape) == 0
        assert closed.sum().item() == round(shape.sparsity * shape.sources * shape.length)
        per_source = closed.float().mean(-1)
        assert len(set(per_source.tolist())) > 1
        assert (per_source - shape.sparsity).abs().max() < 0.15
    assert [shape[:3] for shape in SHAPES.values()] == [(10, 400, 0.476), (10, 2048, 0.715)]
    assert BEAM == 4


def test_what_is_timed_is_algorithm_1_over_a_whole_decode(make_model):
    """Given gates decide what is pruned; every output has the length that is asked for."""
    model, source = make_model(vocabulary=30), torch.randint(4, 30, (2, 9))
    fix_gates(model, (torch.arange(9) % 2).float().expand(2, 9))
    pruned, dense = (generate(model, source, prune=p, extra_length=-3, min_length=6) for p in (True, False))
    assert (pruned.memory_length, dense.memory_length) == (5, 9)
    assert pruned.hypotheses.tokens.size(1) == dense.hypotheses.tokens.size(1) == 6
    torch.testing.assert_close(pruned.hypotheses.scores, dense.hypotheses.scores, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--repeats", "2"], "--repeats is 2"),
        (["--shapes", "500"], "--shapes 500"),
        (["--sides", "magic"], "--sides magic"),
        (["--csv", "{folder}"], "is not a file"),
    ],
)
def test_bad_flags_are_refused(flags, message, capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["--quick", *(flag.format(folder=tmp_path) for flag in flags)])
    assert message in capsys.readouterr().err
