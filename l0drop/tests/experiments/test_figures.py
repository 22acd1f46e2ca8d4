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

from shared import score  # noqa: E402
from shared.data import load  # noqa: E402

from ...experiments import figures, rules  # noqa: E402
from ...loading import load_run  # noqa: E402
from ...predict import decode  # noqa: E402
from ..conftest import SMALL  # noqa: E402


@pytest.fixture(scope="module")
def drawn(whole, tmp_path_factory):
    """All figures of a baseline and of a run with gates drawn at random, so that some are closed."""
    out = tmp_path_factory.mktemp("figures")
    run = Path(shutil.copytree(whole["init"], out / "l0"))
    weights = load_file(run / "model.safetensors")
    torch.manual_seed(0)
    save_file(weights | {"l0drop.0.predictor.weight": 2 * torch.randn(1, SMALL.model.width)}, run / "model.safetensors")
    files = []
    for each in (whole["base"], run):
        files.append(str(out / f"{each.name}.jsonl"))
        rules.main(["predict", str(each), "--data", SMALL.data, "--out", files[-1]])
    score.main([*files, "--csv", str(out / "seed.csv")])
    given = ["--run", str(run), "--baseline", str(whole["base"]), "--limit", "5"]
    figures.main(["--scores", str(out / "seed.csv"), *given, "--out", str(out)])
    return out


def read_csv(path) -> list[dict]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_figure_is_drawn_but_that_of_characters(drawn):
    assert {path.stem for path in drawn.glob("*.png")} == {f"figure_{n}" for n in (1, 2, 3, 4, 5, 7, 8)}


def test_figures_are_drawn_from_the_committed_csvs(tmp_path):
    """Without any run: what is measured is kept, and Figures 2 and 3 are closed forms."""
    figures.main(["--kept", str(Path(figures.__file__).parent / "multi30k"), "--out", str(tmp_path)])
    assert {path.stem for path in tmp_path.glob("*.png")} == {f"figure_{n}" for n in (1, 2, 3, 6, 7, 8)}


def test_sparsemax_is_the_nearest_probability():
    """Figure 2's sparse attention: by hand, and against a search over a grid of all distributions of three parts."""
    torch.testing.assert_close(figures.sparsemax(torch.tensor([3.0, 0.0, 0.0])), torch.tensor([1.0, 0.0, 0.0]))
    torch.testing.assert_close(figures.sparsemax(torch.tensor([0.5, 0.1, -2.0])), torch.tensor([0.7, 0.3, 0.0]))
    logits, steps = torch.tensor([0.9, 0.4, 0.3]), torch.arange(0, 1.0001, 0.01)
    grid = torch.tensor([[a, b, 1 - a - b] for a in steps for b in steps if a + b <= 1.0001])
    nearest = grid[(grid - logits).square().sum(-1).argmin()]
    torch.testing.assert_close(figures.sparsemax(logits), nearest, rtol=0, atol=0.011)


def test_figures_1_and_7_count_every_retained_encoding(drawn, whole):
    """D12: mean times number is the target words, but for what the pruned encodings receive; bins hold the share."""
    run, rows, retained = load_run(whole["base"]), read_csv(drawn / "figure_1.csv"), read_csv(drawn / "figure_7.csv")
    examples = load(SMALL.data, "test", 5)
    items = run.encode(examples)
    target_words = sum(sum(token > 2 for token in output.tokens) + 1 for output in decode(run, examples))
    counts = [sum(int(row["encodings"]) for row in each) for each in (rows, retained)]
    assert counts[0] == sum(len(items[i].source) for i in range(5)) > counts[1] > 0
    assert float(rows[0]["mean"]) == pytest.approx(target_words / counts[0], rel=1e-3)
    assert float(retained[0]["sparsity"]) == pytest.approx(100 * (1 - counts[1] / counts[0]), rel=1e-3)
    below = sum(int(row["encodings"]) for row in retained if float(row["to"]) < 0.65)
    assert float(retained[0]["share_below_0.6"]) == pytest.approx(below / counts[1], rel=1e-3)


def test_figure_8_splits_the_baselines_words_by_the_gates(drawn):
    [row] = read_csv(drawn / "figure_8.csv")
    assert 0 < float(row["sparsity"]) < 100 and row["run"] == "l0"
    assert len({row[name] for name in ("retained", "pruned", "baseline_retained", "baseline_pruned")}) == 4


SCORES = """system,minus,metric,value,low,high
l0-0.8,,bleu,34,,
l0-0.8,,pruned,50,,
l0-0.3,,bleu,36,,
l0-0.3,,pruned,20,,
longer,,bleu,37,,
longer,,pruned,0,,
pos,,pruned,48,,
l0-0.3,longer,bleu,-1,-2,0
l0-0.8,longer,bleu,-3,-4,-2
l0-0.3,pos,bleu,9,9,9
"""


def test_figure_4_shows_differences_from_the_system_that_prunes_nothing(tmp_path, monkeypatch):
    (tmp_path / "base_1.csv").write_text(SCORES)
    rows = figures.read_scores(tmp_path / "base_1.csv")
    assert [row["system"] for row in rows] == ["longer", "l0-0.3", "l0-0.8"]
    saved = {}
    monkeypatch.setattr(figures, "save_figure", lambda out, name, figure, rows=(): saved.update({name: figure}))
    figures.figure_4(tmp_path, {"base_1": rows})
    [axes] = saved["figure_4"].axes
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[0, 0], [20, -1], [50, -3]])
    assert "3.0 to 3.0 BLEU" in saved["figure_4"].get_suptitle()


def test_the_claims_are_drawn_from_the_committed_tables(tmp_path):
    figures.main(["--claims", str(Path(figures.__file__).parent), "--out", str(tmp_path)])
    assert (tmp_path / "claims.png").stat().st_size
