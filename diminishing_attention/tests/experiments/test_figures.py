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

from ...experiments import figures
from ...experiments.figures import attention_map, bars, figure_1, main, read_attention
from ...loading import load_run
from ...search import beam_search
from ..conftest import SMALL

DATA = SMALL.data
POINTER = replace(SMALL, diminishing="dim", min_length=4)


def rows_of(path) -> list[dict]:
    return list(csv.DictReader(path.open(encoding="utf-8")))


def scores(shift: float) -> dict:
    names = [f"repetition{n}" for n in range(1, 6)] + [f"novel{n}" for n in range(1, 5)]
    means = {name: 10 * i + shift for i, name in enumerate(names)}
    return {name: {"mean": mean, "low": mean - 1, "high": mean + 2} for name, mean in means.items()}


PG = {"scores": scores(0), "seeds": [0, 1], "coverage": False, "diminishing": "none"}
SYSTEMS = {"pg": PG, "dim": PG | {"scores": scores(3), "seeds": [0], "diminishing": "dim"}}
METRICS = {"data": "toy", "split": "test", "examples": 9, "systems": SYSTEMS, "reference_row": scores(5)}


@pytest.fixture
def drawn(monkeypatch) -> list:
    """The figures that are saved, to be read back."""
    saved, save = [], figures.save_figure

    def keep(out, name, figure, rows):
        saved.append(figure)
        return save(out, name, figure, rows)

    monkeypatch.setattr(figures, "save_figure", keep)
    return saved


def test_figure_1_is_the_closed_form(tmp_path, drawn):
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
    [figure] = drawn
    for axes, column, label in zip(figure.axes, ("weight", "effective_coverage"), ("weight", "coverage"), strict=True):
        assert axes.get_xlabel() == "decoding step" and label in axes.get_ylabel()
        for line in axes.get_lines():
            own = [row for (name, _), row in rows.items() if name == line.get_label()]
            assert line.get_xdata().tolist() == [int(row["step"]) for row in own] == list(range(1, 9))
            assert line.get_ydata().tolist() == pytest.approx([float(row[column]) for row in own], abs=1e-4)
        assert [line.get_label() for line in axes.get_lines()] == ["attention", *functions, "DyDimAttn"]


def test_figures_2_and_3_show_the_files_numbers(tmp_path, drawn):
    """Interval ends as in the file; the reference is the last of at most six bars; read back from the axes, too."""
    for name in ("figure_2", "figure_3"):
        bars(METRICS, tmp_path, name)
    for number, count, first in ((2, 5, 0), (3, 4, 5)):
        rows = rows_of(tmp_path / f"figure_{number}.csv")
        assert [row["system"] for row in rows[::count]] == ["pg", "dim", "reference"] and len(rows) == 3 * count
        for row in rows:
            mean = 10 * (first + int(row["n"]) - 1) + {"pg": 0, "dim": 3, "reference": 5}[row["system"]]
            assert [float(row[key]) for key in ("mean", "low", "high")] == [mean, mean - 1, mean + 2]
    for figure, count, first in zip(drawn, (5, 4), (0, 5), strict=True):
        [axes] = figure.axes
        assert [tick.get_text() for tick in axes.get_xticklabels()] == [f"{n}-gram" for n in range(1, count + 1)]
        assert "% of n-grams" in axes.get_ylabel() and "toy, test, 9 documents" in figure.get_suptitle()
        bars_of = dict(zip(("pg (2 seeds)", "dim (1 seed)", "reference"), axes.containers[1::2], strict=True))
        assert [text.get_text() for text in axes.get_legend().get_texts()] == list(bars_of)
        colours = {group.patches[0].get_facecolor() for group in bars_of.values()}
        assert len(colours) == 3
        for shift, group in zip((0, 3, 5), bars_of.values(), strict=True):
            means = [10 * (first + n) + shift for n in range(count)]
            assert [bar.get_height() for bar in group.patches] == means
            assert [round(bar.get_x() + bar.get_width() / 2) for bar in group.patches] == list(range(1, count + 1))
            ends = [segment[:, 1].tolist() for segment in group.errorbar.lines[2][0].get_segments()]
            assert ends == [[mean - 1, mean + 2] for mean in means]
    many = {str(n): SYSTEMS["pg"] for n in range(9)}
    bars(METRICS | {"systems": many}, tmp_path, "figure_2")
    assert len({row["system"] for row in rows_of(tmp_path / "figure_2.csv")}) == 6


def test_the_map_shows_the_attention_of_the_decoded_summary(tmp_path, trained, drawn):
    """Rows of softmax attention sum to 1; the weights are log gains of it; the outputs are the summary's."""
    folder = trained(POINTER)
    outputs, words, attention, weights = read_attention(folder, 1)
    run = load_run(folder)
    [item] = run.encode(load(DATA, "test")[1:2])
    search = dict(beam=2, average=True, min_length=4, max_length=10, never=run.text.never(run.tokenizer))
    [tokens] = beam_search(run.model, run.text.collate([item]), **search).tokens
    assert outputs == run.text.pieces(run.tokenizer, item, tokens) and len(words) == len(item.source)
    assert attention.shape == weights.shape == (len(outputs), len(words))
    attention, weights = torch.tensor(attention).double(), torch.tensor(weights).double()
    torch.testing.assert_close(attention.sum(-1), torch.ones(len(outputs)).double(), atol=1e-4, rtol=1e-4)
    before = attention.cumsum(0) - attention
    torch.testing.assert_close(weights, torch.log((1 + before + attention) / (1 + before)), atol=1e-5, rtol=1e-4)
    path = attention_map(folder, None, tmp_path / "out")
    shortest = min(load(DATA, "test"), key=lambda e: len(e.source))
    columns = {row["position"] for row in rows_of(tmp_path / "out" / "attention_map.csv")}
    assert len(columns) == min(len(run.encode([shortest])[0].source), 60) and path.endswith("attention_map.png")
    left, right, *_ = drawn[0].axes
    assert (left.get_title(), right.get_title()) == ("softmax attention", "weights that the run uses")
    shown = {(int(row["step"]), int(row["position"])): row for row in rows_of(tmp_path / "out" / "attention_map.csv")}
    steps = 1 + max(step for step, _ in shown)
    for axes, column in ((left, "attention"), (right, "weight")):
        grid = axes.images[0].get_array()
        sums = {p: sum(float(shown[t, p]["attention"]) for t in range(max(steps - 15, 0), steps)) for _, p in shown}
        places = sorted(sorted(sums, key=lambda p: -sums[p])[:30])
        want = [[float(shown[t, p][column]) for p in places] for t in range(max(steps - 15, 0), steps)]
        assert grid.tolist() == [pytest.approx(row, abs=1e-5) for row in want]
        assert [text.get_text() for text in axes.get_xticklabels()] == [shown[0, p]["source"] for p in places]
        assert axes.get_yticklabels()[-1].get_text() == shown[steps - 1, 0]["output"]
    with pytest.raises(ValueError, match="there is no test document 24; there are 24, from 0"):
        read_attention(folder, 24)


def test_main_draws_what_there_is_and_names_bad_files(tmp_path, capsys):
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(METRICS))
    main([str(path), "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert str(tmp_path / "out" / "figure_3.png") in printed and "attention_map: skipped, needs --run RUN" in printed
    main(["--out", str(tmp_path / "out")])
    assert "figure_2: skipped, needs a file of evaluate --json" in capsys.readouterr().out
    rows = [
        METRICS["reference_row"] | {"novel2": {"mean": 1, "low": 1, "high": high}} for high in (1e999, 10**400, "1")
    ]
    wrong = [{"systems": {"pg": {}}}, *({"reference_row": row} for row in rows)]
    system = next(iter(METRICS["systems"].values()))
    wrong += [{"systems": {"pg": system | change}} for change in ({"seeds": 3}, {"diminishing": []})]
    for content in ("{}", "[]", "{", "[" * 100_000, *(json.dumps(METRICS | change) for change in wrong)):
        path.write_text(content)
        with pytest.raises(SystemExit):
            main([str(path), "--out", str(tmp_path / "out")])
        assert "metrics.json is not what" in capsys.readouterr().err
