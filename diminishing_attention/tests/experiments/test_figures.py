"""Figures: the closed form of Figure 1, and what the others read of the tables."""

import math
from pathlib import Path

import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from ...experiments import figures

EXPERIMENTS = Path(figures.__file__).parent


def test_figure_1_is_the_closed_form():
    """A token that gets 0.6 at each step: DimAttn = log(1 + .6 (t + 1)) - log(1 + .6 t); its sum
    telescopes.
    """
    curves = {
        name: [values.tolist() for values in both] for name, both in figures.figure_1().items()
    }
    functions = {"DimAttn, log(x + 1)": math.log, "DimAttn, sqrt(x + 1)": math.sqrt}
    for step in range(8):
        before, after = 1 + 0.6 * step, 1 + 0.6 * (step + 1)
        for name, f in functions.items():
            weights, sums = curves[name]
            assert weights[step] == pytest.approx(f(after) - f(before), abs=1e-6)
            assert sums[step] == pytest.approx(f(after) - f(1), abs=1e-6)
        mixed = 0.6 * (math.sqrt(after) - math.sqrt(before)) + 0.4 * (
            math.log(after) - math.log(before)
        )
        assert curves["DyDimAttn"][0][step] == pytest.approx(mixed, abs=1e-6)


def test_figures_are_drawn_from_the_committed_tables(tmp_path):
    """The paper: DimAttn 39.30 (Table 4) minus PG 36.69 (Table 1) and minus PG + Cov. 39.08."""
    assert [value for _, _, value in figures.CLAIMS.values()] == pytest.approx(
        [39.30 - 36.69, 39.30 - 39.08], abs=0.05
    )
    figures.main(["--out", str(tmp_path)])
    figures.main([str(EXPERIMENTS / "samsum/samsum_joined_test.csv"), "--out", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {
        "figure_1.png",
        "figures_2_3.png",
        "claims.png",
    }
