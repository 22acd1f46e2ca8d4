"""Figures: the numbers beside them are those of the files, and what is drawn shows them."""

import csv
import json
import re

import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from .. import figures
from ..figures import Missing, attention_maps, main


def system(run: str, mode: str, r: int, value: float, **more) -> dict:
    score = {"mean": value, "low": value - 1, "high": value + 1}
    gap = {"difference": value - 90, "low": value - 91, "high": value - 89, "p": 0.5}
    row = {"run": run, "mode": mode, "r": r, "phi": None, "rouge1": score, "difference": gap}
    return row | more


def run(task: str, retained: list[float], **more) -> dict:
    known = {"task": task, "seed": 0, "gamma": 0.0, "sentence_encoder": "gru", "select": None, "r_train": None}
    return known | {"retained": retained} | more


def metrics(shift: float = 0.0) -> dict:
    """A base, a tuned and three integrated runs."""
    runs = {"base": run("base", [0.5, 0.75, 1.0]), "tuned": run("sparse", [0.9, 1.0], gamma=0.1)}
    runs |= {f"apx{r}": run("integrated", [], select="approx", r_train=r) for r in (2, 5, 10)}
    maps = {"word": [[0.5, 0.25, 0.25], [0, 0, 1]], "exact": [[0.75, 0.25], [0, 1]]}
    runs["base"]["map"] = {"source": ["<s>", "Ġa", "Ġb"], "target": ["Ġx", "</s>"], "sentence_ids": [0, 0, 1]} | maps
    rows = [system("base", "full", 5, 90 + shift), system("tuned", "random", 5, 1)]
    rows += [system("base", "model_free", r, 50 + r + shift, phi="elu") for r in (5, 1)]
    rows += [system("base", "model_free", 5, 3, phi="exp")]
    rows += [system(f"apx{t}", "approx", r, 80 + r - abs(t - r) / 10 + shift) for t in (2, 5, 10) for r in (5, 2)]
    known = {"data": f"toy{shift:g}", "split": "test", "examples": 9}
    return known | {"runs": runs, "systems": {str(n): row for n, row in enumerate(rows)}}


def rows_of(path) -> list[dict]:
    return list(csv.DictReader(path.open(encoding="utf-8")))


def test_all_figures_from_two_files(tmp_path, capsys):
    """The first file stands for CNN/DailyMail, the second for XSum; Podcast and arXiv are missing."""
    files = [tmp_path / f"{n}.json" for n in range(2)]
    for n, file in enumerate(files):
        file.write_text(json.dumps(metrics(n)))
    main([*map(str, files), "--out", str(tmp_path / "new" / "figures")])
    printed = capsys.readouterr().out
    assert printed.count("skipped") == 2
    for number in (1, 2, 4, 5, 6):
        path = tmp_path / "new" / "figures" / f"figure_{number}.png"
        assert path.read_bytes()[:4] == b"\x89PNG" and f"figure_{number}: {path}" in printed
    found = [(row["data"], row["task"]) for row in rows_of(path.with_name("figure_2.csv")) if row["system"] == "full"]
    assert found == [(f"toy{n}", task) for n in range(2) for task in ("base", "integrated")]  # a panel each


def test_figure_1_shows_base_and_tuned_runs(tmp_path):
    figures.figure_1([metrics()], tmp_path, "figure_1")
    found = [(row["run"], row["r"], float(row["retained"])) for row in rows_of(tmp_path / "figure_1.csv")]
    tuned = "tuned, gamma 0.1"
    assert found == [("base", "1", 0.5), ("base", "2", 0.75), ("base", "3", 1.0), (tuned, "1", 0.9), (tuned, "2", 1.0)]


def test_figure_2_has_a_curve_for_each_system_with_several_r(tmp_path):
    """By rising r; single points and other phi are not curves."""
    figures.figure_2([metrics()], tmp_path, "figure_2")
    found = [(row["system"], row["r"], float(row["mean"])) for row in rows_of(tmp_path / "figure_2.csv")]
    free = "base: model_free (elu)"
    assert found[0] == ("full", "", 90) and [row for row in found if row[0] == free] == [
        (free, "1", 51),
        (free, "5", 55),
    ]
    assert {row[0] for row in found} == {"full", free} | {f"apx{t}, approx, r {t}: approx" for t in (2, 5, 10)}


def test_no_panel_has_more_than_six_lines_and_each_names_its_data(tmp_path, monkeypatch):
    """Eight integrated runs are two panels; the title has the corpus, how much of it, and the seeds."""
    many, drawn = metrics(), []
    for number in range(8):
        many["runs"][f"run{number}"] = run("integrated", [], select="mix", r_train=number, seed=number % 3)
        many["systems"] |= {f"{number} {r}": system(f"run{number}", "approx", r, 80) for r in (1, 2)}
    monkeypatch.setattr(figures, "save_figure", lambda out, name, figure, rows: drawn.append(figure))
    figures.figure_2([many], tmp_path, "figure_2")
    assert all(len(axes.get_legend().get_texts()) <= 6 for axes in drawn[0].axes) and len(drawn[0].axes) == 4
    assert "toy0, test, 9 documents; seed of training: 0, 1, 2" in drawn[0].get_suptitle()


def test_figure_4_has_paired_differences_with_their_intervals(tmp_path):
    figures.figure_4([metrics()], tmp_path, "figure_4")
    found = {(row["r_train"], row["r"]): float(row["difference"]) for row in rows_of(tmp_path / "figure_4.csv")}
    expected = {(t, r): -10 + r - abs(t - r) / 10 for t in (2, 5, 10) for r in (2, 5)}
    assert found == pytest.approx({(str(t), str(r)): value for (t, r), value in expected.items()}, abs=1e-3)
    for row in rows_of(tmp_path / "figure_4.csv"):
        assert float(row["high"]) - float(row["low"]) == pytest.approx(2)


def test_figure_5_shows_both_maps_on_one_scale_the_first_step_on_top(tmp_path, monkeypatch):
    drawn, save = [], figures.save_figure
    monkeypatch.setattr(figures, "save_figure", lambda *a: drawn.append(a[2]) or save(*a))
    attention_maps([metrics()], tmp_path, "figure_5")
    found, images = metrics()["runs"]["base"]["map"], [axes.images[0] for axes in drawn[0].axes[:2]]
    assert [image.get_array().tolist() for image in images] == [found["word"], found["exact"]]
    assert images[0].norm is images[1].norm and images[0].origin == "upper"
    assert [axes.get_xlabel() for axes in drawn[0].axes[:2]] == ["token of the source", "sentence of the source"]
    rows = rows_of(tmp_path / "figure_5.csv")
    assert [(row["word"], row["sentence"], float(row["attention"])) for row in rows] == [
        ("x", "0", 0.75), ("x", "1", 0.25), ("</s>", "0", 0), ("</s>", "1", 1)
    ]  # fmt: skip


def test_what_cannot_be_drawn_says_what_it_needs(tmp_path, capsys):
    only = metrics()
    only["systems"] = {"0": only["systems"]["0"]}
    only["runs"] = {"base": {key: value for key, value in only["runs"]["base"].items() if key != "map"}}
    (tmp_path / "metrics.json").write_text(json.dumps(only))
    main([str(tmp_path / "metrics.json"), "--out", str(tmp_path)])
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["figure_1"].endswith("figure_1.png")
    assert lines["figure_2"] == "skipped, needs evaluate --r with several numbers --json"
    assert "integrated runs with different --r in training" in lines["figure_4"]
    assert lines["figure_5"] == "skipped, needs metrics file 1, written by evaluate --map N --json"
    assert "metrics file 4" in lines["figure_8"]
    only["runs"]["base"]["task"] = only["systems"]["0"]["run"] = "kl"
    with pytest.raises(Missing, match="needs a base or sparse-tuned run"):
        figures.figure_1([only], tmp_path, "figure_1")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"systems": {"a": {"run": "b"}}, "runs": {}, "data": "x"}'])
def test_a_file_of_another_sort_is_named(tmp_path, text, capsys):
    (tmp_path / "m.json").write_text(text)
    for name in ("m.json", "none.json"):
        with pytest.raises(SystemExit):
            main([str(tmp_path / name), "--out", str(tmp_path)])
        assert re.search(rf"error: .*{name} is not what .*evaluate --json writes", capsys.readouterr().err)
