"""Figures: what is drawn are the numbers of the files, read back from the axes."""

import json
import re

import numpy as np
import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from matplotlib.colors import to_hex

from shared.data import write_csv

from ...experiments.figures import Missing, attention_maps, figure_1, figure_2, figure_4, main, read_attention
from .test_tables import system


def rows(shift: float = 0.0) -> list[dict]:
    """A seed's CSV: a base, a kl and three integrated runs, r not in order."""
    found = [system("base", "full", 90 + shift)]
    for r in (5, 2, 10):
        for mode, at in (("ideal", 80), ("random", 10), ("mean_key", 60)):
            found.append(system("base", mode, at + r + shift, r=r))
        found.append(system("base", "model_free", 40 + r + shift, r=r, phi="elu"))
        found.append(system("kl", "approx", 70 + r + shift, r=r, task="kl", sentence_encoder="gru"))
        found.append(system("mean", "approx", 3.0, r=r, task="kl", sentence_encoder="mean"))
        for trained in (2, 10):
            run = dict(task="integrated", select="approx", sentence_encoder="gru", r_train=trained)
            found.append(system(f"apx{trained}", "approx", 85 + r - abs(trained - r) + shift, r=r, **run))
    return [*found, system("base", "model_free", 1.0, phi="exp")]


def attention(task: str = "base") -> dict:
    """A file of experiments.measures: a base and two tuned runs."""
    maps = {"word": [[0.5, 0.25, 0.25], [0, 0, 1]], "exact": [[0.75, 0.25], [0, 1]]}
    base = {"task": task, "seed": 0, "gamma": 0.0, "retained": [0.5, 0.75, 1.0]}
    base["map"] = {"source": ["<s>", "Ġa", "Ġb"], "target": ["Ġx", "</s>"], "sentence_ids": [0, 0, 1]} | maps
    runs = {"base": base} | {f"g{g}": base | {"task": "sparse", "gamma": g, "retained": [g, 1.0]} for g in (0.1, 0.9)}
    return {"data": "toy:count=9", "split": "test", "examples": 9, "runs": runs}


def curves_of(axes) -> dict[str, tuple[list, list, list, str]]:
    """Label -> places, values, (low, high) and colour of each curve with bars."""
    found = {}
    for container in axes.containers:
        line, _, [bars] = container.lines
        spans = [tuple(segment[:, 1]) for segment in bars.get_segments()]
        points = line.get_xdata().tolist(), line.get_ydata().tolist()
        found[container.get_label()] = (*points, spans, to_hex(line.get_color()))
    return found


def test_figure_2_has_the_mean_over_seeds_of_each_choice_by_rising_r():
    """Bars from the lowest seed to the highest; full attention across; at most five curves, named at their ends."""
    [axes] = figure_2([rows(), rows(3.0), rows(6.0)]).axes
    found = curves_of(axes)
    labels = {"ideal": 80, "learned (KL-only)": 70, "mean key": 60, "model-free": 40, "random": 10}
    assert list(found) == list(labels)
    for label, at in labels.items():
        places, values, spans, colour = found[label]
        assert places == [2, 5, 10] and values == pytest.approx([at + r + 3 for r in (2, 5, 10)])
        assert spans == [pytest.approx((at + r, at + r + 6)) for r in (2, 5, 10)]
        [name] = [text for text in axes.texts if text.get_text() == label]
        assert name.get_position()[0] > 10 and to_hex(name.get_color()) == colour
        assert name.get_position()[1] == pytest.approx(values[-1], abs=5)  # moved at most from curves beside it
    heights = sorted(text.get_position()[1] for text in axes.texts if text.get_text() in labels)
    assert np.diff(heights).min() >= 0.04 * np.diff(axes.get_ylim())
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert [line.get_ydata()[0] for line in dotted] == [93.0]
    assert "all sentences" in [text.get_text() for text in axes.texts]
    assert axes.get_xticks().tolist() == [2, 5, 10] and "sentences that a step attends to" in axes.get_xlabel()
    assert axes.get_ylabel() == "ROUGE-1; bars: lowest and highest seed" and axes.get_xscale() == "linear"
    assert len({colour for *_, colour in found.values()}) == 5


def test_figure_4_has_the_difference_to_one_r_in_training_seed_by_seed():
    """To r 5 as in the paper, without one to the least; an r of more than the documents have is "all"."""
    [axes] = figure_4([rows(), rows(2.0)]).axes
    found = curves_of(axes)
    assert list(found) == ["r 2 in training", "all in training"]  # of 9.5 sentences
    assert [found["r 2 in training"][part] for part in (0, 1)] == [[2, 5, 10], [0, 0, 0]]
    expected = [abs(2 - r) - abs(10 - r) for r in (2, 5, 10)]
    assert found["all in training"][1] == pytest.approx(expected)
    assert found["all in training"][2] == [pytest.approx((gap, gap)) for gap in expected]  # both seeds alike
    run = dict(task="integrated", select="approx", sentence_encoder="gru", r_train=5)
    five = [[system("apx5", "approx", 90 + seed, r=r, **run) for r in (2, 5)] for seed in (0, 4)]
    [axes] = figure_4([rows() + five[0], rows() + five[1]]).axes
    places, values, spans, _ = curves_of(axes)["r 2 in training"]
    assert places == [2, 5] and values == pytest.approx([85 + r - abs(2 - r) - 92 for r in (2, 5)])
    assert spans == [pytest.approx((value - 2, value + 2)) for value in values]
    assert axes.get_ylabel() == "ROUGE-1 minus r 5 in training;\nbars: lowest and highest seed"


def test_figure_1_shows_base_and_tuned_runs():
    [axes] = figure_1([attention()]).axes
    found = {line.get_label(): [line.get_xdata().tolist(), line.get_ydata().tolist()] for line in axes.lines}
    expected = {"base": [[1, 2, 3], [0.5, 0.75, 1.0]]}
    assert found == expected | {f"gamma {g}": [[1, 2], [g, 1.0]] for g in (0.1, 0.9)}
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(found)
    assert axes.get_ylim() == (0, 1.02) and "share of the attention" in axes.get_ylabel()
    assert axes.lines[0].get_linestyle() == "--"  # so that gamma 0, which may lie on it, hides nothing


def test_figure_5_shows_both_maps_on_one_scale_the_first_step_on_top():
    figure, found = attention_maps([attention()]), attention()["runs"]["base"]["map"]
    assert figure.get_suptitle() == "Figure 5: which sentences each step reads (toy)"
    images = [axes.images[0] for axes in figure.axes[:2]]
    assert [image.get_array().tolist() for image in images] == [found["word"], found["exact"]]
    assert images[0].norm is images[1].norm and images[0].origin == "upper"
    assert [axes.get_xlabel() for axes in figure.axes[:2]] == ["token of the source", "sentence of the source"]
    assert [line.get_xdata()[0] for line in figure.axes[0].lines] == [1.5]  # between the sentences
    for axes in figure.axes[:2]:
        assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "</s>"]
        assert all(tick == int(tick) for tick in axes.get_xticks())
    assert attention_maps([attention(), attention()], 1).get_suptitle().startswith("Figure 6")


def test_all_figures_by_the_command(tmp_path, capsys):
    """CSVs give 2 and 4, attention files 1, 5 and 6; Podcast and arXiv are missing."""
    for seed in range(2):
        write_csv(tmp_path / f"{seed}.csv", rows(seed))
        (tmp_path / f"{seed}.json").write_text(json.dumps(attention()))
    names = [str(tmp_path / f"{seed}.{kind}") for kind in ("csv", "json") for seed in range(2)]
    main([*names[:2], "--attention", *names[2:], "--out", str(tmp_path / "new" / "figures")])
    printed = capsys.readouterr().out
    assert printed.count("skipped, needs --attention with") == 2 == printed.count("skipped")
    for number in (1, 2, 4, 5, 6):
        path = tmp_path / "new" / "figures" / f"figure_{number}.png"
        assert path.read_bytes()[:4] == b"\x89PNG" and f"figure_{number}: {path}" in printed
    for half, numbers in ((names[:2], "24"), (["--attention", *names[2:]], "15678")):
        main([*half, "--out", str(tmp_path)])
        assert {line.split(":")[0] for line in capsys.readouterr().out.splitlines()} == {f"figure_{n}" for n in numbers}


def test_what_cannot_be_drawn_says_what_it_needs():
    with pytest.raises(Missing, match="needs evaluate --r with several numbers --csv"):
        figure_2([rows()[:1]])
    with pytest.raises(Missing, match="integrated runs with different --r in training"):
        figure_4([[row for row in rows() if row["r_train"] != 10]])
    with pytest.raises(Missing, match="the same runs, decoded with the same --r, in every file"):
        figure_4([rows(), [row for row in rows() if row["r_train"] != 10]])
    with pytest.raises(Missing, match="needs the base run under full attention"):
        figure_2([rows()[1:]])
    with pytest.raises(Missing, match="needs a base or sparse-tuned run"):
        figure_1([attention("kl") | {"runs": {"kl": attention("kl")["runs"]["base"]}}])


BAD = {  # of the first run
    "retained": ([], ["x"], [float("nan")], 3, None), "gamma": (None, "x", True), "task": (None, 3),
    "map": (None, {}, {"word": [[0.5], [1]]}, {"exact": [[1, 2], [3]]}, {"target": ["x"]}, {"target": [1, 2]},
            {"sentence_ids": [0]}, {"word": [[float("inf")] * 3] * 2}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_numbers_that_cannot_be_drawn_are_named_with_their_file(tmp_path, name, value):
    metrics = attention()
    first = metrics["runs"]["base"]
    first[name] = first["map"] | value if isinstance(value, dict) and value else value
    (tmp_path / "m.json").write_text(json.dumps(metrics))
    with pytest.raises(ValueError, match="m.json is not what experiments.measures writes"):
        read_attention(tmp_path / "m.json")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"runs": {"a": {"retained": []}}, "data": "x"}', "[" * 100_000])
def test_a_file_of_another_sort_is_named(tmp_path, text, capsys):
    (tmp_path / "m.json").write_text(text)
    for name in ("m.json", "none.json"):
        with pytest.raises(SystemExit):
            main(["--attention", str(tmp_path / name), "--out", str(tmp_path)])
        assert re.search(rf"error: .*{name} is not what experiments.measures writes", capsys.readouterr().err)
    (tmp_path / "whole.json").write_text(json.dumps(attention()))
    assert read_attention(tmp_path / "whole.json") == attention()
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path)])
    assert "give CSVs of evaluate, or --attention" in capsys.readouterr().err
