"""Figures: the closed form of Figure 1, and the numbers that Figures 2 and 3 draw."""

import math
from pathlib import Path

import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from ...experiments import figures


def test_figure_1_is_the_closed_form():
    """A token that gets 0.6 at each step: DimAttn = log(1 + .6 (t + 1)) - log(1 + .6 t); its sum telescopes."""
    rows = {(row["weights"], row["step"]): row for row in figures.figure_1()}
    functions = {"DimAttn, log(x + 1)": math.log, "DimAttn, sqrt(x + 1)": math.sqrt}
    for step in range(1, 9):
        before, after = 1 + 0.6 * (step - 1), 1 + 0.6 * step
        for name, f in functions.items():
            assert rows[name, step]["weight"] == pytest.approx(f(after) - f(before), abs=1e-6)
            assert rows[name, step]["effective_coverage"] == pytest.approx(f(after) - f(1), abs=1e-6)
        mixed = 0.6 * (math.sqrt(after) - math.sqrt(before)) + 0.4 * (math.log(after) - math.log(before))
        assert rows["DyDimAttn", step]["weight"] == pytest.approx(mixed, abs=1e-6)
        assert rows["attention", step]["effective_coverage"] == pytest.approx(0.6 * step, abs=1e-6)


def test_figures_2_and_3_take_their_values_from_the_table(tmp_path):
    """By system and n, in order; differences and the lead are left out."""
    text = "system,minus,metric,value,low,high\n"
    for i, (system, minus) in enumerate([("lead-3", ""), ("more", ""), ("dim", ""), ("dim", "more")]):
        text += "".join(
            f"{system},{minus},{m}{n},{10 * i + n},0,0\n" for m in ("repetition", "novel") for n in range(1, 6)
        )
    (tmp_path / "t.csv").write_text(text)
    found = figures.values(tmp_path / "t.csv", "novel", (1, 2, 3, 4))
    assert {name: [int(row["value"]) for row in rows] for name, rows in found.items()} == {
        "more": [11, 12, 13, 14],
        "dim": [21, 22, 23, 24],
    }


def test_the_committed_tables_have_every_claim(tmp_path):
    """The paper: DimAttn 39.30 (Table 4) minus PG 36.69 (Table 1) and minus PG + Cov. 39.08."""
    papers = [value for _, _, value in figures.CLAIMS.values()]
    assert papers == pytest.approx([39.30 - 36.69, 39.30 - 39.08], abs=0.05)
    figures.draw_claims(Path(figures.__file__).parent, tmp_path / "claims.png")
    assert (tmp_path / "claims.png").stat().st_size > 10_000
