"""Figures: the numbers that are drawn."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from safetensors.torch import load_file, save_file  # noqa: E402

from shared.data import load  # noqa: E402

from ...experiments import figures  # noqa: E402
from ...loading import load_run  # noqa: E402
from ...predict import decode  # noqa: E402
from ..conftest import SMALL  # noqa: E402

EXPERIMENTS = Path(figures.__file__).parent


@pytest.fixture(scope="module")
def drawn(whole, tmp_path_factory):
    """What is measured of a baseline and of a run with gates drawn at random, so that some are closed."""
    out = tmp_path_factory.mktemp("figures")
    run = Path(shutil.copytree(whole["init"], out / "l0"))
    weights = load_file(run / "model.safetensors")
    torch.manual_seed(0)
    save_file(weights | {"l0drop.0.predictor.weight": 2 * torch.randn(1, SMALL.width)}, run / "model.safetensors")
    figures.main(["--run", str(run), "--baseline", str(whole["base"]), "--limit", "2", "--out", str(out)])
    return {path.stem: list(csv.DictReader(path.open(encoding="utf-8"))) for path in out.glob("*.csv")}


def test_figures_are_drawn_from_the_committed_csvs(tmp_path):
    """Without any run, for what is measured is kept."""
    for path in (EXPERIMENTS / "multi30k").glob("figure_*.csv"):
        shutil.copy(path, tmp_path)
    scores = [str(EXPERIMENTS / f"multi30k/2016_{number}.csv") for number in (1, 2)]
    figures.main(["--claims", str(EXPERIMENTS), "--scores", *scores, "--out", str(tmp_path)])
    assert {path.stem for path in tmp_path.glob("*.png")} == {"claims", *(f"figure_{n}" for n in (1, 4, 5, 6, 7, 8))}


def test_figures_1_and_7_count_every_retained_encoding(drawn, whole):
    """D12: mean times number is the target words, but for what the pruned encodings receive; bins hold the share."""
    run, rows, retained = load_run(whole["base"]), drawn["figure_1"], drawn["figure_7"]
    examples = load(SMALL.data, "test", 2)
    target_words = sum(sum(token > 2 for token in output.tokens) + 1 for output in decode(run, examples))
    counts = [sum(int(row["encodings"]) for row in each) for each in (rows, retained)]
    assert counts[0] == sum(len(item.source) for item in run.encode(examples)) > counts[1] > 0
    assert float(rows[0]["mean"]) == pytest.approx(target_words / counts[0], rel=1e-3)
    assert float(retained[0]["sparsity"]) == pytest.approx(100 * (1 - counts[1] / counts[0]), rel=1e-3)
    below = sum(int(row["encodings"]) for row in retained if float(row["to"]) < 0.65)
    assert float(retained[0]["share_below_0.6"]) == pytest.approx(below / counts[1], rel=1e-3)


def test_figure_8_splits_the_baselines_words_by_the_gates(drawn):
    [row] = drawn["figure_8"]
    assert 0 < float(row["sparsity"]) < 100 and row["run"] == "l0"
    assert len({row[name] for name in ("retained", "pruned", "baseline_retained", "baseline_pruned")}) == 4


def test_figure_4_shows_differences_from_the_system_that_prunes_nothing():
    """By rising sparsity; the rules and other controls of the table are not in it."""
    rows = figures.read_scores(EXPERIMENTS / "multi30k/2016_1.csv")
    assert [row["system"] for row in rows] == ["longer", "l0-0.3", "l0-0.8", "l0-1.5"]
    assert rows[0]["difference"] == (0, 0, 0)
    np.testing.assert_allclose(rows[2]["difference"], (-2.1, -3.1, -1.2), atol=0.05)  # RESULTS.md
