"""Figures: the numbers that are drawn."""

import csv
import shutil
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from safetensors.torch import load_file, save_file

from shared.data import load

from ...experiments import figures, rules
from ...loading import Run, load_run
from ...model import BOS, EOS
from ...search import generate
from ..conftest import SMALL, example

EXPERIMENTS = Path(figures.__file__).parent


@pytest.fixture(scope="module")
def drawn(whole, tmp_path_factory):
    """What is measured of a baseline and of a run of which some gates are closed."""
    out = tmp_path_factory.mktemp("figures")
    run = Path(shutil.copytree(whole["init"], out / "l0"))
    weights = load_file(run / "model.safetensors")
    torch.manual_seed(0)
    weights["l0drop.0.predictor.weight"] = 2 * torch.randn(1, SMALL.width)
    save_file(weights, run / "model.safetensors")
    figures.main(out, run=(run,), baseline=whole["base"], limit=2)
    return {path.stem: list(csv.DictReader(path.open())) for path in out.glob("*.csv")}


def test_figures_are_drawn_from_the_committed_csvs(tmp_path, monkeypatch):
    """Figure 1 is the baseline's (its mean is 0.92), Figure 7 the gates' (RESULTS.md: 1.02)."""
    titles, draw = {}, figures.draw

    def noted(path, title, *arguments):
        titles[path.stem] = title
        draw(path, title, *arguments)

    monkeypatch.setattr(figures, "draw", noted)
    for name in ("attention", "figure_5"):
        shutil.copy(EXPERIMENTS / f"multi30k/{name}.csv", tmp_path)
    scores = tuple(EXPERIMENTS / f"multi30k/2016_{number}.csv" for number in (1, 2))
    figures.main(tmp_path, scores=scores)
    assert {path.stem for path in tmp_path.glob("*.png")} == {f"figure_{n}" for n in (1, 4, 5, 7)}
    assert "0.92" in titles["figure_1"] and "1.02" in titles["figure_7"]


def test_figures_1_and_7_count_every_retained_encoding(drawn, whole):
    """D12: mean times number is the target words, but for what the pruned encodings receive."""
    run = load_run(whole["base"])
    rows = [row for row in drawn["attention"] if row["run"] == "base"]
    retained = [row for row in drawn["attention"] if row["run"] == "l0"]
    items = run.encode(load(SMALL.data, "test", 2))
    outputs = generate(run.model, run.collate(items).source).hypotheses.tokens
    target_words = (outputs > EOS).sum().item() + 2  # and the end of each
    counts = [sum(int(row["encodings"]) for row in each) for each in (rows, retained)]
    assert counts[0] == sum(len(item.source) for item in items) > counts[1] > 0
    assert float(rows[0]["mean"]) == pytest.approx(target_words / counts[0], rel=1e-3)
    pruned = 100 * (1 - counts[1] / counts[0])
    assert float(retained[0]["sparsity"]) == pytest.approx(pruned, rel=1e-3)
    below = sum(int(row["encodings"]) for row in retained if float(row["to"]) < 0.65)
    assert float(retained[0]["share_below_0.6"]) == pytest.approx(below / counts[1], rel=1e-3)


@torch.no_grad()
def test_d12_attention_maps_are_those_of_decoding(make_model):
    """Figure 1: mean over heads and layers; pruned words receive what the dummy receives."""
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
        queries = attention.split_heads(attention.query(x))
        collected.append(attention.weights(queries, keys, log_counts).mean(1))

    for layer in model.decoder:
        layer.cross_attention.register_forward_pre_hook(record)
    model.decode(torch.tensor([[BOS, *output]]), model.project(memory))
    compressed = torch.stack(collected).mean(0)[0]
    torch.testing.assert_close(weights[:, ~closed], compressed[:, 1:], atol=1e-5, rtol=0)
    torch.testing.assert_close(weights[:, closed].sum(-1), compressed[:, 0], atol=1e-5, rtol=0)


def test_figure_5_counts_by_type(make_model, words):
    """The gates of one word's pieces are closed, and that of </s>, which has no type (D9)."""
    story = example("the mother sat on", pos=[["DT", "NN", "VBD", "IN"]])
    pieces = len(words.encode("the mother").ids) - 1
    assert pieces > 1
    gates = torch.ones(1, pieces + 4)
    gates[0, 1 : 1 + pieces] = 0
    gates[0, -1] = 0
    model = make_model(vocabulary=words.get_vocab_size())
    model.l0drop[-1].forward = lambda states: (gates.unsqueeze(-1) * states, gates, gates)
    row = figures.type_row("l0", Run(SMALL, model, words), [story])
    closed = {"BPEH": 100, "BPEO": 100, "function": 0, "content": 0, "punctuation": 0, "other": 0}
    pruned = pytest.approx(100 * (pieces + 1) / (pieces + 4))
    assert row == {"run": "l0", "pruned": pruned} | closed


def test_figure_5_is_measured_of_every_run(drawn):
    [row] = drawn["figure_5"]
    shares = [float(row[kind]) for kind in rules.UNIT_TYPES]
    assert 0 < float(row["pruned"]) < 100 and len(set(shares)) > 2 and max(shares) <= 100


def test_growth_has_a_line_for_each_side_by_length(tmp_path):
    for length, gain in ((400, 1.5), (100, 1.1)):
        cells = "S,side,x expanded_median,x expanded_low,x expanded_high\n"
        cells += f'{length},"expanded, pruned",{gain},{gain - 0.1},{gain + 0.2}\n'
        (tmp_path / f"{length}.csv").write_text(f'{cells}{length},"CTranslate2, int8",9,9,9\n')
    lines = figures.growth([tmp_path / "400.csv", tmp_path / "100.csv"])
    assert list(lines) == ["pruning"]
    expected = [[100, 400], [1.1, 1.5], [1.0, 1.4], [1.3, 1.7]]
    assert lines["pruning"] == pytest.approx(torch.tensor(expected).numpy())
