"""Figures: the numbers beside them are those of the files, and what is drawn shows them."""

import csv
import json

import numpy as np
import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from .. import figures
from ..figures import Material, Missing, draw_map, main


def system(run: str, mode: str, r: int, value: float, **more) -> dict:
    scores = {"rouge1": {"mean": value, "low": value - 1, "high": value + 1}}
    return {"run": run, "mode": mode, "r": r, "phi": None, "share_beams": False, "scores": scores} | more


def run(task: str, retained: list[float], **more) -> dict:
    return (
        {"task": task, "gamma": 0.0, "sentence_encoder": "gru", "select": None, "r_train": None}
        | {"retained": retained}
        | more
    )


def metrics(shift: float = 0.0) -> dict:
    """A base, a tuned and three integrated runs."""
    runs = {"base": run("base", [0.5, 0.75, 1.0]), "tuned": run("sparse", [0.9, 1.0], gamma=0.1)}
    runs |= {f"apx{r}": run("integrated", [], select="approx", r_train=r) for r in (2, 5, 10)}
    maps = {"word": [[0.5, 0.25, 0.25], [0, 0, 1]], "exact": [[0.75, 0.25], [0, 1]]}
    runs["base"]["map"] = {"source": ["<s>", "Ġa", "Ġb"], "target": ["Ġx", "</s>"], "sentence_ids": [0, 0, 1]} | maps
    rows = [system("base", "full", 5, 90 + shift), system("tuned", "random", 5, 1)]
    rows += [system("base", "model_free", r, 50 + r + shift, phi="elu") for r in (5, 1)]
    rows += [system("base", "model_free", 5, 3, phi="exp"), system("base", "ideal", 5, 4, share_beams=True)]
    rows += [system(f"apx{t}", "approx", r, 80 + r - abs(t - r) / 10 + shift) for t in (2, 5, 10) for r in (5, 2)]
    return {"data": f"toy{shift:g}", "runs": runs, "systems": {str(n): row for n, row in enumerate(rows)}}


def rows_of(path) -> list[dict]:
    return list(csv.DictReader(path.open(encoding="utf-8")))


def test_all_figures_from_four_files(tmp_path, capsys):
    """The first file stands for CNN/DailyMail, the others for XSum, Podcast and arXiv."""
    files = [tmp_path / f"{n}.json" for n in range(4)]
    for n, file in enumerate(files):
        file.write_text(json.dumps(metrics(n)))
    main([*map(str, files), "--out", str(tmp_path / "new" / "figures")])
    printed = capsys.readouterr().out
    assert "skipped" not in printed
    for number in (1, 2, 4, 5, 6, 7, 8):
        path = tmp_path / "new" / "figures" / f"figure_{number}.png"
        assert path.read_bytes()[:4] == b"\x89PNG" and f"figure_{number}: {path}" in printed
    assert [row["data"] for row in rows_of(path.with_name("figure_2.csv")) if row["system"] == "full"] == [
        "toy0", "toy1", "toy2", "toy3"
    ]  # fmt: skip


def test_figure_1_shows_base_and_tuned_runs(tmp_path):
    figures.figure_1(Material([metrics()], tmp_path))
    found = [(row["run"], row["r"], float(row["retained"])) for row in rows_of(tmp_path / "figure_1.csv")]
    tuned = "tuned, gamma 0.1"
    assert found == [("base", "1", 0.5), ("base", "2", 0.75), ("base", "3", 1.0), (tuned, "1", 0.9), (tuned, "2", 1.0)]


def test_figure_2_has_a_curve_for_each_system_with_several_r(tmp_path):
    """By rising r; single points, other phi and shared beams are not curves."""
    figures.figure_2(Material([metrics()], tmp_path))
    found = [(row["system"], row["r"], float(row["mean"])) for row in rows_of(tmp_path / "figure_2.csv")]
    free = "base: model_free (elu)"
    assert found[0] == ("full", "", 90) and [row for row in found if row[0] == free] == [
        (free, "1", 51),
        (free, "5", 55),
    ]
    assert {row[0] for row in found} == {"full", free} | {f"apx{t}, approx, r {t}: approx" for t in (2, 5, 10)}


def test_figure_4_is_the_difference_to_r_5_in_training(tmp_path):
    figures.figure_4(Material([metrics()], tmp_path))
    found = {(row["r_train"], row["r"]): float(row["difference"]) for row in rows_of(tmp_path / "figure_4.csv")}
    expected = {("2", "2"): 0.3, ("2", "5"): -0.3, ("5", "2"): 0, ("5", "5"): 0, ("10", "2"): -0.5, ("10", "5"): -0.5}
    assert found == pytest.approx(expected, abs=1e-3)


def test_figure_4_without_r_5_takes_the_middle_run(tmp_path):
    small = metrics()
    for name, r in (("apx2", 1), ("apx5", 3), ("apx10", 4)):
        small["runs"][name]["r_train"] = r
    figures.figure_4(Material([small], tmp_path))
    zero = {row["r_train"] for row in rows_of(tmp_path / "figure_4.csv") if float(row["difference"]) == 0}
    assert zero == {"3"}


def test_figure_5_shows_both_maps(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "draw_map", lambda axes, weights, name: drawn.append((name, weights.tolist())))
    figures.figure_5(Material([metrics()], tmp_path))
    found = metrics()["runs"]["base"]["map"]
    assert drawn == [("word of the source", found["word"]), ("sentence of the source", found["exact"])]
    rows = rows_of(tmp_path / "figure_5.csv")
    assert [(row["word"], row["sentence"], float(row["attention"])) for row in rows] == [
        ("x", "0", 0.75), ("x", "1", 0.25), ("</s>", "0", 0), ("</s>", "1", 1)
    ]  # fmt: skip


def test_map_has_the_first_step_on_top():
    axes = Figure().subplots()
    draw_map(axes, np.array([[0.25, 0.75], [1.0, 0.0]]), "word")
    [image] = axes.images
    np.testing.assert_array_equal(image.get_array(), [[0.25, 0.75], [1.0, 0.0]])
    assert image.origin == "upper" and axes.get_xlabel() == "word" and image.norm.vmin == 0


def test_what_cannot_be_drawn_says_what_it_needs(tmp_path, capsys):
    only = metrics()
    only["systems"] = {"0": only["systems"]["0"]}
    only["runs"] = {"base": {key: value for key, value in only["runs"]["base"].items() if key != "map"}}
    (tmp_path / "metrics.json").write_text(json.dumps(only))
    main([str(tmp_path), "--out", str(tmp_path)])  # a run folder is as good as the file in it
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["figure_1"].endswith("figure_1.png")
    assert lines["figure_2"] == "skipped, needs encdec_sentence_sparse.evaluate --r with several numbers --json"
    assert "integrated runs with different --r in training" in lines["figure_4"]
    assert lines["figure_5"].startswith("skipped, needs the first file, written by") and "--map N" in lines["figure_5"]
    assert "a file in the place of arXiv" in lines["figure_8"]
    only["runs"]["base"]["task"] = only["systems"]["0"]["run"] = "kl"
    with pytest.raises(Missing, match="needs a base or sparse-tuned run"):
        figures.figure_1(Material([only], tmp_path))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"systems": {"a": {"run": "b"}}, "runs": {}, "data": "x"}'])
def test_a_file_of_another_sort_is_named(tmp_path, text):
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(
        SystemExit, match=r"error: .*m\.json is not what encdec_sentence_sparse\.evaluate --json writes"
    ):
        main([str(tmp_path / "m.json"), "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="error: .*none.json"):
        main([str(tmp_path / "none.json"), "--out", str(tmp_path)])
