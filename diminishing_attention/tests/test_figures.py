"""Figures: closed forms of Figure 1, the numbers beside Figures 2 and 3, and the map of one document."""

import csv
import json
import math
from dataclasses import replace

import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from shared.data import load

from .. import figures
from ..figures import Material, Missing, attention_map, figure_1, figure_2, figure_3, main, read_attention
from ..search import beam_search
from ..train import TrainConfig, load_run, train

DATA = "toy:count=8,seed=5"
POINTER = TrainConfig(
    data=DATA, vocabulary=120, embedding=8, hidden=8, batch_size=4, steps=2, max_target=30, max_source=60, beam=2,
    min_length=4, max_length=8, diminishing="dim",
)  # fmt: skip


def rows_of(path) -> list[dict]:
    return list(csv.DictReader(path.open(encoding="utf-8")))


def values(mean: float, over_seeds: bool) -> dict:
    seeds = {"seed_low": mean - 2, "seed_high": mean + 2} if over_seeds else {"seed_low": None, "seed_high": None}
    return {"mean": mean, "low": mean - 1, "high": mean + 1} | seeds


def scores(shift: float, over_seeds: bool = False) -> dict:
    names = [f"repetition{n}" for n in range(1, 6)] + [f"novel{n}" for n in range(1, 5)]
    return {"scores": {name: values(10 * i + shift, over_seeds) for i, name in enumerate(names)}}


METRICS = {"systems": {"pg": scores(0, over_seeds=True), "dim": scores(3)}, "reference_row": scores(5)}


def test_figure_1_is_the_closed_form(tmp_path):
    """A token that gets 0.6 at each step: DimAttn = log(1 + .6 (t + 1)) - log(1 + .6 t); its sum telescopes."""
    figure_1(Material({}, None, 0, tmp_path))
    rows = {(row["weights"], int(row["step"])): row for row in rows_of(tmp_path / "figure_1.csv")}
    functions = {"DimAttn, log(x + 1)": math.log, "DimAttn, sqrt(x + 1)": math.sqrt}
    for step in range(1, 9):
        before, after = 1 + 0.6 * (step - 1), 1 + 0.6 * step
        for name, f in functions.items():
            row = rows[name, step]
            assert float(row["weight"]) == pytest.approx(f(after) - f(before), abs=1e-4)
            assert float(row["effective_coverage"]) == pytest.approx(f(after) - f(1), abs=1e-4)
        mixed = 0.6 * (math.sqrt(after) - math.sqrt(before)) + 0.4 * (math.log(after) - math.log(before))
        assert float(rows["DyDimAttn", step]["weight"]) == pytest.approx(mixed, abs=1e-4)
        assert float(rows["attention", step]["effective_coverage"]) == pytest.approx(0.6 * step, abs=1e-4)
    assert (tmp_path / "figure_1.png").read_bytes()[:4] == b"\x89PNG"


def test_figures_2_and_3_show_the_files_numbers(tmp_path):
    """The interval is over seeds where there are several, else over documents; the reference is the last bar."""
    material = Material(METRICS, None, 0, tmp_path)
    figure_2(material)
    figure_3(material)
    for number, prefix, count, first in ((2, "repetition", 5, 0), (3, "novel", 4, 5)):
        rows = rows_of(tmp_path / f"figure_{number}.csv")
        assert [row["system"] for row in rows[::count]] == ["pg", "dim", "reference"]
        for row in rows:
            shift, half = {"pg": (0, 2), "dim": (3, 1), "reference": (5, 1)}[row["system"]]
            mean = 10 * (first + int(row["n"]) - 1) + shift
            assert [float(row[key]) for key in ("mean", "low", "high")] == [mean, mean - half, mean + half]
        assert prefix in ("repetition", "novel") and len(rows) == 3 * count


@pytest.mark.parametrize("model", ["pointer", "bertsum-abs"])
def test_the_map_shows_the_attention_of_the_decoded_summary(tmp_path, model):
    """Rows of softmax attention sum to 1; the weights are log gains of it, per head; the outputs are the summary's."""
    bert = dict(width=16, layers=1, heads=2, feed_forward=16, decoder_layers=2, positions=64)
    config = replace(POINTER, model=model, **(bert if model != "pointer" else {}))
    train(config, tmp_path / "run")
    outputs, words, attention, weights = read_attention(tmp_path / "run", 1)
    run = load_run(tmp_path / "run")
    items = run.prepare(load(DATA, "test")[1:2])
    search = dict(beam=2, average=True, min_length=4, max_length=8, never=run.never)
    [tokens] = beam_search(run.module, run.collate(items), **search).tokens
    assert outputs == run.pieces(items[0], tokens) and len(words) == len(items[0].source)
    assert attention.shape == weights.shape == (len(outputs), len(words))
    torch.testing.assert_close(torch.tensor(attention).sum(-1), torch.ones(len(outputs)), atol=1e-4, rtol=1e-4)
    if model == "pointer":
        before = torch.tensor(attention).double().cumsum(0) - torch.tensor(attention)
        expected = torch.log((1 + before + torch.tensor(attention)) / (1 + before))
        torch.testing.assert_close(torch.tensor(weights).double(), expected, atol=1e-5, rtol=1e-4)
        batch = run.collate(items)
        batch = batch._replace(target_in=torch.tensor([[run.module.begin, *tokens[:-1]]]))
        with torch.no_grad():
            steps = run.module.run(batch)
        torch.testing.assert_close(torch.tensor(attention), steps.attention[0], atol=1e-5, rtol=1e-4)
    else:
        assert (weights.sum(-1) < attention.sum(-1)).all()
    path = attention_map(Material({}, tmp_path / "run", 1, tmp_path / "out"))
    assert len(rows_of(tmp_path / "out" / "attention_map.csv")) == len(outputs) * len(words)
    assert (tmp_path / "out" / "attention_map.png").exists() and path.endswith("attention_map.png")
    with pytest.raises(ValueError, match="there is no test document 8; there are 8, from 0"):
        read_attention(tmp_path / "run", 8)


def test_what_cannot_be_drawn_says_what_it_needs(tmp_path, capsys):
    main(["--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "figure_1: " in printed
    assert "figure_2: skipped, needs a file of diminishing_attention.evaluate --json" in printed
    assert "attention_map: skipped, needs --run RUN, of a model with a decoder" in printed
    with pytest.raises(Missing):
        figures.bars(Material({}, None, 0, tmp_path), "x", "x", "novel", (1,), "x")


def test_main_draws_from_a_file_and_names_bad_ones(tmp_path, capsys):
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(METRICS))
    main([str(path), "--out", str(tmp_path / "out")])
    assert f"figure_3: {tmp_path / 'out' / 'figure_3.png'}" in capsys.readouterr().out
    path.write_text("{}")
    with pytest.raises(
        SystemExit, match="error: .*metrics.json is not what diminishing_attention.evaluate --json writes"
    ):
        main([str(path), "--out", str(tmp_path / "out")])
