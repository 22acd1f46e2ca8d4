"""Figures: what is drawn are the numbers of the files."""

import json
import re

import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from ...experiments.figures import Missing, attention_maps, figure_1, figure_2, figure_4, main


def system(run: str, mode: str, r: int, value: float, **more) -> dict:
    score = {"mean": value, "low": value - 1, "high": value + 1}
    gap = {"difference": value - 90, "low": value - 91, "high": value - 89, "p": 0.5}
    return {"run": run, "mode": mode, "r": r, "phi": None, "rouge1": score, "difference": gap} | more


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


def curves_of(axes) -> dict[str, tuple[list, list, list]]:
    """Legend -> places, values and (low, high) of each curve with intervals."""
    found = {}
    for container in axes.containers:
        line, _, [bars] = container.lines
        spans = [tuple(segment[:, 1]) for segment in bars.get_segments()]
        found[container.get_label()] = (line.get_xdata().tolist(), line.get_ydata().tolist(), spans)
    return found


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


def test_figure_1_shows_base_and_tuned_runs():
    [axes] = figure_1([metrics()]).axes
    found = {line.get_label(): [line.get_xdata().tolist(), line.get_ydata().tolist()] for line in axes.lines}
    assert found == {"base": [[1, 2, 3], [0.5, 0.75, 1.0]], "tuned, gamma 0.1": [[1, 2], [0.9, 1.0]]}


def test_figure_2_has_a_curve_for_each_system_with_several_r():
    """By rising r, panels per file; single points and other phi are not curves; full attention is a line."""
    panels = figure_2([metrics(), metrics(1)]).axes
    assert [axes.get_title() for axes in panels] == [
        f"toy{n}: {tasks}" for n in (0, 1) for tasks in ("base, kl", "integrated")
    ]
    found = curves_of(panels[0])
    assert found == {"base: model_free (elu)": ([1, 5], [51, 55], [(50, 52), (54, 56)])}
    assert set(curves_of(panels[1])) == {f"apx{t}, approx, r {t}: approx" for t in (2, 5, 10)}
    assert [axes.lines[0].get_ydata()[0] for axes in panels] == [90, 90, 91, 91]


def test_no_panel_has_more_than_six_lines_and_each_names_its_data():
    """Eight integrated runs are two panels; the title has the corpus, how much of it, and the seeds."""
    many = metrics()
    for number in range(8):
        many["runs"][f"run{number}"] = run("integrated", [], select="mix", r_train=number, seed=number % 3)
        many["systems"] |= {f"{number} {r}": system(f"run{number}", "approx", r, 80) for r in (1, 2)}
    figure = figure_2([many])
    assert all(len(axes.get_legend().get_texts()) <= 6 for axes in figure.axes) and len(figure.axes) == 4
    assert "toy0, test, 9 documents; seed of training: 0, 1, 2" in figure.get_suptitle()


def test_figure_4_has_paired_differences_with_their_intervals():
    [axes] = figure_4([metrics()]).axes
    for t, (places, values, spans) in zip((2, 5, 10), curves_of(axes).values(), strict=True):
        assert places == [2, 5] and values == pytest.approx([-10 + r - abs(t - r) / 10 for r in (2, 5)])
        assert spans == [pytest.approx((value - 1, value + 1)) for value in values]


def test_figure_5_shows_both_maps_on_one_scale_the_first_step_on_top():
    figure, found = attention_maps([metrics()]), metrics()["runs"]["base"]["map"]
    images = [axes.images[0] for axes in figure.axes[:2]]
    assert [image.get_array().tolist() for image in images] == [found["word"], found["exact"]]
    assert images[0].norm is images[1].norm and images[0].origin == "upper"
    assert [axes.get_xlabel() for axes in figure.axes[:2]] == ["token of the source", "sentence of the source"]
    assert [line.get_xdata()[0] for line in figure.axes[0].lines] == [1.5]  # between the sentences


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
    only["runs"]["base"]["task"] = "kl"
    with pytest.raises(Missing, match="needs a base or sparse-tuned run"):
        figure_1([only])


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"systems": {"a": {"run": "b"}}, "runs": {}, "data": "x"}'])
def test_a_file_of_another_sort_is_named(tmp_path, text, capsys):
    (tmp_path / "m.json").write_text(text)
    for name in ("m.json", "none.json"):
        with pytest.raises(SystemExit):
            main([str(tmp_path / name), "--out", str(tmp_path)])
        assert re.search(rf"error: .*{name} is not what .*evaluate --json writes", capsys.readouterr().err)
