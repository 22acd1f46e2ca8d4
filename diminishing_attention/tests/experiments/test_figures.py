"""Figure 1's closed form, what the others read of tables; differences across searches."""

import math
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from ...experiments import figures, searches

EXPERIMENTS = Path(figures.__file__).parent


def test_figure_1_is_the_closed_form():
    """DimAttn of 0.6 at each step: log(1 + .6 (t + 1)) - log(1 + .6 t); its sum telescopes."""
    curves = {name: torch.stack(both).tolist() for name, both in figures.figure_1().items()}
    functions = {"DimAttn, log(x + 1)": math.log, "DimAttn, sqrt(x + 1)": math.sqrt}
    for step in range(8):
        before, after = 1 + 0.6 * step, 1 + 0.6 * (step + 1)
        for name, f in functions.items():
            weights, sums = curves[name]
            assert weights[step] == pytest.approx(f(after) - f(before), abs=1e-6)
            assert sums[step] == pytest.approx(f(after) - f(1), abs=1e-6)
        of_sqrt, of_log = (f(after) - f(before) for f in (math.sqrt, math.log))
        mixed = 0.6 * of_sqrt + 0.4 * of_log
        assert curves["DyDimAttn"][0][step] == pytest.approx(mixed, abs=1e-6)


def test_figures_are_drawn_from_the_committed_tables(tmp_path):
    figures.main(["--out", str(tmp_path)])
    figures.main([str(EXPERIMENTS / "samsum/samsum_joined_test.csv"), "--out", str(tmp_path)])
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"figure_1.png", "figures_2_3.png", "searches.png", "speed.png"}


def table(path: Path, **seeds: str) -> None:
    """A table of shared.score with ROUGE-1 of each system and seed."""
    lines = ["system,minus,metric,value,seeds"]
    for system, values in seeds.items():
        lines += [f"{system},,rouge1,0,{values}", f"{system},,words,0,7 7 7"]
        lines += [f"{system},more,rouge1,0,9 9 9"]
    path.write_text("\n".join(lines) + "\n")


def test_a_difference_across_searches_is_taken_baseline_by_baseline(tmp_path, monkeypatch):
    """Student's t of three baselines: 4.303 s / sqrt(3); of one no interval."""
    tables = {"all": {"plain": "plain.csv", "search": "own.csv"}}
    monkeypatch.setattr(searches, "TABLES", tables)
    table(tmp_path / "plain.csv", more="1 2 3", cov="2 2 2", dim="0 0 0")
    table(tmp_path / "own.csv", more="2 3 4", dim="2 4 6")
    rows = {row["system"][:4] + row["minus"][:4]: row for row in searches.compare("all", tmp_path)}
    assert [*rows] == ["dim,more", "dim,cov,", "moremore", "morecov,"]
    dim = rows["dim,more"]
    assert dim["value"] == 2 and dim["baselines"] == "1.00 2.00 3.00"
    assert dim["high"] - 2 == 2 - dim["low"] == pytest.approx(4.302653 / math.sqrt(3))
    assert rows["dim,cov,"]["value"] == 2 and rows["moremore"]["low"] == 1
    table(tmp_path / "plain.csv", more="1", cov="2")
    table(tmp_path / "own.csv", dim="3")
    (one, other) = searches.compare("all", tmp_path)
    assert (one["value"], other["value"]) == (2, 1) and "low" not in one
    both = {"more.plain": "1", "more.search": "5", "cov.plain": "2", "dim.plain": "9"}
    table(tmp_path / "plain.csv", **both, **{"dim.search": "3"})  # one table of both searches
    monkeypatch.setitem(tables["all"], "search", "plain.csv")
    values = {
        row["system"][:4] + row["minus"][:4]: row["value"]
        for row in searches.compare("all", tmp_path)
    }
    assert values == {"dim,more": 2, "dim,cov,": 1, "moremore": 4, "morecov,": 3}


def test_the_committed_differences_are_those_of_the_committed_tables(tmp_path):
    searches.main(["--csv", str(tmp_path / "searches.csv")])
    assert (tmp_path / "searches.csv").read_text() == (EXPERIMENTS / "searches.csv").read_text()
