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

from ..figures import attention_map, bars, figure_1, main, read_attention
from ..search import beam_search
from ..train import TrainConfig, load_run, train

DATA = "toy:count=8,seed=5"
POINTER = TrainConfig(
    data=DATA, vocabulary=120, embedding=8, hidden=8, batch_size=4, steps=2, max_target=30, max_source=60, beam=2,
    min_length=4, max_length=8, diminishing="dim",
)  # fmt: skip


def rows_of(path) -> list[dict]:
    return list(csv.DictReader(path.open(encoding="utf-8")))


def scores(shift: float) -> dict:
    names = [f"repetition{n}" for n in range(1, 6)] + [f"novel{n}" for n in range(1, 5)]
    means = {name: 10 * i + shift for i, name in enumerate(names)}
    return {name: {"mean": mean, "low": mean - 1, "high": mean + 2} for name, mean in means.items()}


SYSTEMS = {"pg": {"scores": scores(0), "seeds": [0, 1]}, "dim": {"scores": scores(3), "seeds": [0]}}
METRICS = {"data": "toy", "split": "test", "examples": 9, "systems": SYSTEMS, "reference_row": scores(5)}


def test_figure_1_is_the_closed_form(tmp_path):
    """A token that gets 0.6 at each step: DimAttn = log(1 + .6 (t + 1)) - log(1 + .6 t); its sum telescopes."""
    figure_1(tmp_path)
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
    """Interval ends as in the file; the reference is the last of at most six bars."""
    for name in ("figure_2", "figure_3"):
        bars(METRICS, tmp_path, name)
    for number, count, first in ((2, 5, 0), (3, 4, 5)):
        rows = rows_of(tmp_path / f"figure_{number}.csv")
        assert [row["system"] for row in rows[::count]] == ["pg", "dim", "reference"] and len(rows) == 3 * count
        for row in rows:
            mean = 10 * (first + int(row["n"]) - 1) + {"pg": 0, "dim": 3, "reference": 5}[row["system"]]
            assert [float(row[key]) for key in ("mean", "low", "high")] == [mean, mean - 1, mean + 2]
    many = {str(n): SYSTEMS["pg"] for n in range(9)}
    bars(METRICS | {"systems": many}, tmp_path, "figure_2")
    assert len({row["system"] for row in rows_of(tmp_path / "figure_2.csv")}) == 6


@pytest.mark.parametrize("model", ["pointer", "bertsum-abs"])
def test_the_map_shows_the_attention_of_the_decoded_summary(tmp_path, model):
    """Rows of softmax attention sum to 1; the weights are log gains of it, per head; the outputs are the summary's."""
    bert = dict(width=16, layers=1, heads=2, feed_forward=16, decoder_layers=2, positions=64)
    config = replace(POINTER, model=model, **(bert if model != "pointer" else {}))
    train(config, tmp_path / "run")
    outputs, words, attention, weights = read_attention(tmp_path / "run", 1)
    run = load_run(tmp_path / "run")
    [item] = run.encode(load(DATA, "test")[1:2])
    search = dict(beam=2, average=True, min_length=4, max_length=8, never=run.text.never(run.tokenizer))
    [tokens] = beam_search(run.model, run.text.collate([item]), **search).tokens
    assert outputs == run.text.pieces(run.tokenizer, item, tokens) and len(words) == len(item.source)
    assert attention.shape == weights.shape == (len(outputs), len(words))
    torch.testing.assert_close(torch.tensor(attention).sum(-1), torch.ones(len(outputs)), atol=1e-4, rtol=1e-4)
    if model == "pointer":
        before = torch.tensor(attention).double().cumsum(0) - torch.tensor(attention)
        expected = torch.log((1 + before + torch.tensor(attention)) / (1 + before))
        torch.testing.assert_close(torch.tensor(weights).double(), expected, atol=1e-5, rtol=1e-4)
        batch = run.text.collate([item])._replace(target_in=torch.tensor([[run.model.bos, *tokens[:-1]]]))
        with torch.no_grad():
            steps = run.model.run(batch)
        torch.testing.assert_close(torch.tensor(attention), steps.attention[0], atol=1e-5, rtol=1e-4)
    else:
        assert (weights.sum(-1) < attention.sum(-1)).all()
    path = attention_map(tmp_path / "run", 1, tmp_path / "out")
    assert len(rows_of(tmp_path / "out" / "attention_map.csv")) == len(outputs) * len(words)
    assert (tmp_path / "out" / "attention_map.png").exists() and path.endswith("attention_map.png")
    with pytest.raises(ValueError, match="there is no test document 8; there are 8, from 0"):
        read_attention(tmp_path / "run", 8)
    shortest = min(load(DATA, "test"), key=lambda e: len(e.source))
    assert len(read_attention(tmp_path / "run", None)[1]) == min(len(run.encode([shortest])[0].source), 60)


def test_main_draws_what_there_is_and_names_bad_files(tmp_path, capsys):
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(METRICS))
    main([str(path), "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert str(tmp_path / "out" / "figure_3.png") in printed and "attention_map: skipped, needs --run RUN" in printed
    main(["--out", str(tmp_path / "out")])
    assert "figure_2: skipped, needs a file of evaluate --json" in capsys.readouterr().out
    for content in ("{}", "[]", "{", json.dumps(METRICS | {"systems": {"pg": {}}})):
        path.write_text(content)
        with pytest.raises(SystemExit):
            main([str(path), "--out", str(tmp_path / "out")])
        assert "metrics.json is not what" in capsys.readouterr().err
