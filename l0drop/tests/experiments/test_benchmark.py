"""The benchmark runs, has all its sides, and its arithmetic is right.  No test depends on how fast anything is."""

import csv

import numpy as np
import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("transformers")

from ...experiments.benchmark import (  # noqa: E402
    BEAM,
    SHAPES,
    SIDES,
    close_gates,
    fix_gates,
    generate_expanded,
    main,
    pack_transformer,
    ratios,
)
from ...search import generate  # noqa: E402


@pytest.mark.parametrize("what", ["sides", "runs"])
def test_every_side_has_its_row(tmp_path, whole, what):
    path, runs = tmp_path / "results.csv", [str(whole["base"]), str(whole["init"])]
    main([*(["--quick"] if what == "sides" else ["--runs", *runs]), "--repeats", "3", "--csv", str(path)])
    rows = {row["side"]: row for row in csv.DictReader(path.open(encoding="utf-8"))}
    assert set(rows) - {"CTranslate2"} == (set(SIDES) - {"CTranslate2"} if what == "sides" else {"base", "init"})
    for row in rows.values():
        assert 0 < float(row["seconds_low"]) <= float(row["seconds_mean"]) <= float(row["seconds_high"])
    assert float(rows["generate" if what == "sides" else "base"][f"x {next(iter(rows))}_mean"]) == 1


def test_ratios_are_medians_within_rounds():
    seconds = {"generate": np.array([4.0, 8.0, 6.0]), "shared": np.array([1.0, 4.0, 1.0])}
    rows = {row["side"]: row for row in ratios(seconds, ("generate", "CTranslate2"))}
    assert rows["shared"]["x generate"] == {"mean": 4.0, "low": 2.0, "high": 6.0}
    assert "x CTranslate2" not in rows["shared"]


def test_gates_close_exactly_the_share_of_table_1():
    """Table 1: 47.6 % on CNN/Daily Mail, 71.5 % on WikiSum; about as many in each source, but not the same."""
    for shape in SHAPES.values():
        closed = close_gates(shape) == 0
        assert closed.sum().item() == round(shape.sparsity * shape.sources * shape.length)
        assert len(set(closed.sum(-1).tolist())) > 1
    assert [shape[:3] for shape in SHAPES.values()] == [(10, 400, 0.476), (10, 2048, 0.715)]
    assert BEAM == 4


def test_packed_and_pruned_decode_what_the_plain_model_decodes(make_model):
    """Given gates decide what is pruned; every output has the length that is asked for."""
    source = torch.randint(4, 30, (2, 9))
    found = []
    for packed, prune, decode in (
        (False, False, generate),
        (False, True, generate),
        (True, True, generate),
        (False, True, generate_expanded),
    ):
        model = make_model(vocabulary=30)
        fix_gates(model, (torch.arange(9) % 2).float().expand(2, 9))
        if packed:
            pack_transformer(model)
        found.append(decode(model, source, prune=prune, beam=4, extra_length=-3, min_length=6))
    assert [one.memory_length for one in found] == [9, 5, 5, 5]
    for one in found[1:]:
        assert torch.equal(one.hypotheses.tokens, found[0].hypotheses.tokens) and one.hypotheses.tokens.size(1) == 6
        torch.testing.assert_close(one.hypotheses.scores, found[0].hypotheses.scores, rtol=0, atol=1e-4)
