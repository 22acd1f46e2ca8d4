"""Figures: the numbers beside them are those of the files, and what is drawn shows them."""

import csv
import json

import numpy as np
import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from ...experiments import figures
from ...experiments.figures import draw_steps, focus, heat_map, limited_data, main

PACKAGE = figures.__package__


def mean(value: float) -> dict:
    return {"mean": value, "low": value - 1, "high": value + 1}


def system(labels: str, size: int, value: float) -> dict:
    scores = {metric: mean(value + n) for n, metric in enumerate(figures.METRICS)}
    return {"labels": labels, "trained_on": size, "seed": 0, "heads": "1:0" if labels != "plain" else ""} | scores


def metrics(shift: float = 0.0) -> dict:
    """Two layers of two heads; the second head of layer 1 has no effect by itself."""
    places = [(layer, head) for layer in (1, 2) for head in (0, 1)]
    kinds = ["copy_salient", "non_copy_salient", "copy_content", "non_copy_content", "first", "last", "special"]
    plain = {"over_plain": mean(0.5)}
    effects = [{"layer": i, "head": h, "over_uniform": mean(10 * i - 12 * h + shift)} | plain for i, h in places]
    steps = [{"layer": i, "count": h + 1, "added": h, "added_effect": 10 * i - 12 * h} | plain for i, h in places]
    steps = [step | {"over_uniform": mean(i + h + shift)} for step, (i, h) in zip(steps, places, strict=True)]
    parts = [{"layer": i, "over": over, "together": mean(5.0 * i), "parts": mean(4.0 * i + n + shift), "p": 0.5}
             for i in (1, 2) for n, over in enumerate(figures.OVER)]  # fmt: skip
    focus = [{"layer": i, "head": h} | {kind: 10.0 * i + h + n for n, kind in enumerate(kinds)} for i, h in places]
    analysis = {"documents": 9, "data": "toy", "split": "validation", "seed": 0}
    analysis |= {"effects": effects, "synergy": steps, "parts": parts, "focus": focus}
    systems = {"a": system("plain", 100, 30), "b": system("plain", 10, 20)}
    systems |= {"a+t": system("system:t", 100, 35), "b+t": system("system:t", 10, 25), "o": system("oracle", 10, 99)}
    about = {"data": "toy", "split": "test", "examples": 9}
    return about | {"systems": systems, "analysis": {"run": analysis}}


def error_bars(axes) -> list[tuple[float, float, float]]:
    """(x, low, high) of each bar of errors, in the order of drawing."""
    segments = [segment for lines in axes.collections for segment in lines.get_segments()]
    return [(round(x, 3), low, high) for (x, low), (_, high) in np.round(segments, 3).tolist()]


def rows_of(path) -> list[dict]:
    return list(csv.DictReader(path.open(encoding="utf-8")))


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved."""
    kept, save = [], figures.save_figure
    monkeypatch.setattr(figures, "save_figure", lambda *a: kept.append(a[2]) or save(*a))
    return kept


def test_all_figures_from_three_files(tmp_path, capsys):
    """The first file stands for CNN/DailyMail, the second for XSum, the third for NYT."""
    files = [tmp_path / f"{n}.json" for n in range(3)]
    for n, file in enumerate(files):
        file.write_text(json.dumps(metrics(100.0 * n)))
    main([*map(str, files), "--out", str(tmp_path / "figures")])
    printed = capsys.readouterr().out
    assert printed.count("skipped") == 1  # these files have no flipped labels
    for number in range(2, 11):
        path = tmp_path / "figures" / f"figure_{number}.png"
        assert path.read_bytes()[:4] == b"\x89PNG" and f"figure {number}: {path}" in printed
    found = {number: rows_of(tmp_path / "figures" / f"figure_{number}.csv") for number in range(2, 11)}
    assert [float(row["over_uniform_mean"]) for row in found[2]] == [10, -2, 20, 8]
    assert [float(row["over_uniform_mean"]) for row in found[6]] == [110, 98, 120, 108, 210, 198, 220, 208]
    assert [row["side"] for row in found[3]] == ["left"] * 4 + ["right, together", "right, parts"] * 4
    assert [float(row["over_uniform_mean"] or row["over_plain_mean"]) for row in found[3][:6]] == [1, 2, 2, 3, 5, 4]
    assert [row["over_plain_mean"] for row in found[7][6:8]] == ["5", "105"]
    assert [float(row["non_copy_salient"]) for row in found[4]] == [11, 12, 21, 22]
    assert found[8] == found[9] == found[10] == found[4]  # these files have the same focus


def test_figure_5_has_a_point_for_each_size_and_seed_and_a_line_over_the_seeds(tmp_path, drawn):
    other = metrics() | {"systems": {"c": system("plain", 10, 26)}}
    path = limited_data([metrics(), other], tmp_path)
    axes = drawn[0].axes[0]
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines if line.get_label()[0] != "_"}
    assert lines == {"no masking": [23, 30], "attention head masking": [25, 35]}
    assert error_bars(axes) == [(10, 19, 21), (10, 25, 27), (100, 29, 31), (10, 24, 26), (100, 34, 36)]
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "training examples"
    assert [panel.get_ylabel() for panel in drawn[0].axes] == [
        f"{m} F1, 95 % interval" for m in figures.METRICS.values()
    ]
    points = {colour: tuple(line.get_color() for line in axes.lines).count(colour) for colour in ("C0", "C1")}
    assert points == {"C0": 2, "C1": 2}  # the points of a system have the colour of its line
    rows = [row for row in rows_of(tmp_path / "figure_5.csv") if row["metric"] == "ROUGE-2"]
    assert path.name == "figure_5.png"
    assert [(row["system"], row["examples"], float(row["mean"])) for row in rows] == [
        ("no masking", "10", 21), ("no masking", "10", 27), ("no masking", "100", 31),
        ("attention head masking", "10", 26), ("attention head masking", "100", 36),
    ]  # fmt: skip


def test_gain_against_flipped_labels(drawn, tmp_path):
    gains = {0.0: 9.0, 0.5: -2.0, 0.1: 4.0, None: 5.0}
    rows = [{"flipped": share, "difference": {"rouge1": {"difference": g, "low": g - 1, "high": g + 2}}}
            for share, g in gains.items()]  # fmt: skip
    systems = {str(n): row | {"labels": "", "summarizer": "s"} for n, row in enumerate(rows)}
    figures.FIGURES["flipped_labels"]([metrics() | {"systems": systems}], tmp_path)
    [axes] = drawn[0].axes
    [line] = [line for line in axes.lines if len(line.get_xdata()) == 3]
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([0, 0.1, 0.5], [9, 4, -2])
    assert error_bars(axes) == [(0, 8, 11), (0.1, 3, 6), (0.5, -3, 0)]  # from a point below to two above
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("share of flipped words", "ROUGE-1 F1 points, 95 % interval")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["s"]


def test_what_cannot_be_drawn_says_what_it_needs(tmp_path, capsys):
    only = metrics()
    for key in ("synergy", "parts", "focus"):
        del only["analysis"]["run"][key]
    only["systems"] = {"a": only["systems"]["a"]}
    (tmp_path / "metrics.json").write_text(json.dumps(only))
    main([str(tmp_path / "metrics.json"), "--out", str(tmp_path)])
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["figure 2"].endswith("figure_2.png")
    assert lines["figure 3"] == f"skipped, needs file 1, written by {PACKAGE}.sweep --effects --json"
    assert lines["figure 4"] == f"skipped, needs file 1, written by {PACKAGE}.sweep --focus --json"
    assert "different numbers of training examples" in lines["figure 5"]
    assert "evaluate --oracle --flip" in lines["figure flipped_labels"]
    assert "needs file 2" in lines["figure 6"] and "needs file 3" in lines["figure 9"]


def test_heat_map_has_the_bottom_layer_at_the_bottom():
    axes = Figure().subplots()
    rows = [{"layer": 1, "head": 0, "x": -4.0}, {"layer": 1, "head": 1, "x": 1.0}, {"layer": 2, "head": 0, "x": 2.0}]
    image = heat_map(axes, rows, "x", "title", -4.0, 4.0, "RdBu_r")
    np.testing.assert_array_equal(image.get_array().filled(99), [[-4, 1], [2, 99]])
    assert image.origin == "lower" and (image.norm.vmin, image.norm.vmax) == (-4, 4)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2"]


def test_steps_without_an_effect_of_their_own_are_dotted():
    axes = Figure().subplots()
    draw_steps(axes, metrics()["analysis"]["run"]["synergy"], "over_uniform")
    drawn = {tuple(line.get_ydata()): line.get_linestyle() for line in axes.lines if len(set(line.get_ydata())) == 2}
    assert drawn == {(1.0, 2.0): ":", (2.0, 3.0): "-"}
    places = {tuple(line.get_ydata()): tuple(line.get_xdata()) for line in axes.lines if line.get_label()[0] == "_"}
    assert places[1.0, 2.0] == places[2.0, 3.0] == (1, 2) and axes.get_xlabel() == "heads masked, best first"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["layer 1", "layer 2"]


def test_axes_say_over_what_and_figures_name_corpus_and_seed(drawn, tmp_path):
    """An improvement over uniform attention may be a loss over the plain model: each has its axis or panel."""
    for number in (3, 2):
        figures.FIGURES[number]([metrics()], tmp_path)
    over = ("over uniform attention", "over the plain model")
    labels = [f"ROUGE-1 {measure} {baseline}" for baseline in over for measure in ("F1", "recall")]
    assert [axes.get_ylabel() for axes in drawn[0].axes] == labels
    for axes, parts in zip(drawn[0].axes[1::2], ([4, 8], [5, 9]), strict=True):
        sides = [side for side in axes.containers if hasattr(side, "patches")]
        bars = {side.get_label(): [round(bar.get_height()) for bar in side] for side in sides}
        assert bars == {"all heads masked": [5, 10], "sum over heads": parts}
        legend = axes.get_legend()
        colours = [handle.get_facecolor() for handle in legend.get_patches()]
        assert colours == [axes.patches[0].get_facecolor(), axes.patches[2].get_facecolor()]
        assert [text.get_text() for text in legend.get_texts()] == ["all heads masked", "sum over heads"]
        middles = [round(bar.get_x() + bar.get_width() / 2, 3) for bar in axes.patches]
        assert middles == [0.8, 1.8, 1.2, 2.2] and list(axes.get_xticks()) == [1, 2]
        assert error_bars(axes) == [
            (x, height - 1, height + 1) for x, height in zip(middles, [5, 10, *parts], strict=True)
        ]
    images = [axes.images[0] for axes in drawn[1].axes if axes.images]
    assert [(image.norm.vmin, image.norm.vmax) for image in images] == [(-20, 20)] * 2  # white is no effect
    assert [image.get_array().tolist() for image in images] == [[[10, -2], [20, 8]], [[0.5, 0.5]] * 2]
    assert [image.cmap.name for image in images] == ["RdBu_r"] * 2
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in drawn[1].axes[:2]] == [("head", "layer")] * 2
    assert drawn[0].axes[0].get_title() == "run (seed 0)\ntoy, 9 validation documents"
    assert drawn[1].axes[0].get_title().startswith("over uniform attention\nrun (seed 0)")
    assert drawn[1].axes[1].get_title().startswith("over the plain model\n")


def test_all_panels_of_a_figure_share_one_scale(drawn, tmp_path):
    """Dark means the same in each: the largest share of all categories."""
    focus([metrics()], tmp_path, 8, 0, figures.CATEGORIES)
    images = [axes.images[0] for axes in drawn[0].axes if axes.images]
    assert [(image.norm.vmin, image.norm.vmax) for image in images] == [(0, 26)] * 6
    assert "toy, 9 validation documents" in drawn[0].get_suptitle()
    shown = {axes.get_title(): axes.images[0].get_array().tolist() for axes in drawn[0].axes if axes.images}
    assert shown["COPY SALIENT"] == [[10, 11], [20, 21]] and shown["NON-COPY SALIENT"] == [[11, 12], [21, 22]]
    assert shown["LAST"] == [[15, 16], [25, 26]] and list(shown) == [
        "COPY SALIENT", "NON-COPY SALIENT", "COPY CONTENT", "NON-COPY CONTENT", "FIRST", "LAST"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"systems": {"a": 3}}',
        '{"systems": {"a": {"x": NaN}}}',
        '{"analysis": {"a": {"effects": []}}}',
        "[" * 100_000,
    ],
)
def test_a_file_of_another_sort_is_named(tmp_path, text, capsys):
    (tmp_path / "m.json").write_text(text)
    written = f"is not what {PACKAGE}.sweep --json or evaluate --json writes"
    broken = "figure 2 cannot be drawn from" if "effects" in text else written
    for name, message in (("m.json", broken), ("none.json", "none.json")):
        with pytest.raises(SystemExit):
            main([str(tmp_path / name), "--out", str(tmp_path)])
        error = capsys.readouterr().err
        assert error.startswith("error: ") and message in error and error.count("\n") == 1
