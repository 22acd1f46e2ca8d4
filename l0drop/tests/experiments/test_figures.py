"""Figures: the numbers that are drawn."""

import csv
import shutil
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from safetensors.torch import load_file, save_file  # noqa: E402

from shared.data import load  # noqa: E402

from ...experiments import figures, rules  # noqa: E402
from ...loading import Run, load_run  # noqa: E402
from ...model import BOS, EOS  # noqa: E402
from ...predict import decode  # noqa: E402
from ..conftest import SMALL  # noqa: E402

EXPERIMENTS = Path(figures.__file__).parent


@pytest.fixture(scope="module")
def drawn(whole, tmp_path_factory):
    """What is measured of a baseline and of a run with gates drawn at random, so that some are
    closed.
    """
    out = tmp_path_factory.mktemp("figures")
    run = Path(shutil.copytree(whole["init"], out / "l0"))
    weights = load_file(run / "model.safetensors")
    torch.manual_seed(0)
    save_file(
        weights | {"l0drop.0.predictor.weight": 2 * torch.randn(1, SMALL.width)},
        run / "model.safetensors",
    )
    figures.main(out, run=(run,), baseline=whole["base"], limit=2)
    return {
        path.stem: list(csv.DictReader(path.open(encoding="utf-8"))) for path in out.glob("*.csv")
    }


def test_figures_are_drawn_from_the_committed_csvs(tmp_path):
    """Without any run, for what is measured is kept."""
    for name in ("attention", "figure_5"):
        shutil.copy(EXPERIMENTS / f"multi30k/{name}.csv", tmp_path)
    figures.main(
        tmp_path, scores=tuple(EXPERIMENTS / f"multi30k/2016_{number}.csv" for number in (1, 2))
    )
    assert {path.stem for path in tmp_path.glob("*.png")} == {f"figure_{n}" for n in (1, 4, 5, 7)}


def test_figures_1_and_7_count_every_retained_encoding(drawn, whole):
    """D12: mean times number is the target words, but for what the pruned encodings receive; bins
    hold the share.
    """
    run = load_run(whole["base"])
    rows, retained = (
        [row for row in drawn["attention"] if row["run"] == name] for name in ("base", "l0")
    )
    items = run.encode(load(SMALL.data, "test", 2))
    target_words = sum(
        sum(token > 2 for token in output.tokens) + 1 for output in decode(run, items)
    )
    counts = [sum(int(row["encodings"]) for row in each) for each in (rows, retained)]
    assert counts[0] == sum(len(item.source) for item in items) > counts[1] > 0
    assert float(rows[0]["mean"]) == pytest.approx(target_words / counts[0], rel=1e-3)
    assert float(retained[0]["sparsity"]) == pytest.approx(
        100 * (1 - counts[1] / counts[0]), rel=1e-3
    )
    below = sum(int(row["encodings"]) for row in retained if float(row["to"]) < 0.65)
    assert float(retained[0]["share_below_0.6"]) == pytest.approx(below / counts[1], rel=1e-3)


@torch.no_grad()
def test_d12_attention_maps_are_those_of_decoding(make_model):
    """Figure 1: mean over heads and layers; what pruned words receive is what Algorithm 1's dummy
    receives.
    """
    model, source, output = make_model(), [5, 9, 11, 4, 7, EOS], [9, 4, 17]
    location = model.encode(torch.tensor([source])).log_alpha[-1].median()
    model.l0drop[-1].predictor.bias -= location + 2.4  # the median gate is on the edge of closing
    weights = torch.tensor(figures.attention_map(Run(None, model, None), source, output))
    torch.testing.assert_close(weights.sum(-1), torch.ones(4))
    encoding = model.encode(torch.tensor([source]))
    closed, memory = encoding.gates[-1][0] == 0, model.pruned(encoding)
    assert closed.any() and not closed.all()
    collected = []

    def record(attention, inputs):
        x, keys, _, log_counts = inputs
        collected.append(
            attention.weights(attention.split_heads(attention.query(x)), keys, log_counts).mean(1)
        )

    for layer in model.decoder:
        layer.cross_attention.register_forward_pre_hook(record)
    model.decode(torch.tensor([[BOS, *output]]), model.project(memory))
    compressed = torch.stack(collected).mean(0)[0]
    torch.testing.assert_close(weights[:, ~closed], compressed[:, 1:], atol=1e-5, rtol=0)
    torch.testing.assert_close(weights[:, closed].sum(-1), compressed[:, 0], atol=1e-5, rtol=0)


def test_figure_5_counts_by_type(drawn):
    [row] = drawn["figure_5"]
    shares = [float(row[kind]) for kind in rules.UNIT_TYPES]
    assert 0 < float(row["pruned"]) < 100 and len(set(shares)) > 2 and max(shares) <= 100
