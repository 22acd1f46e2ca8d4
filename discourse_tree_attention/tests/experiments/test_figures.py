"""Figures: what is drawn is what the tree and the metrics say."""

import csv
import json

import numpy as np
import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from shared.data import write_csv

from ...evaluate import csv_rows
from ...experiments import figures
from ...experiments.figures import figure_4, figure_5, figure_low_resource, figure_rouge, main, read_systems
from ...formats import read_dis, read_tree
from ...matrices import c_tree, c_tree_nuclearity, d_tree
from ..test_documents import TREE

VALUE = {"mean": 2.0, "low": 1.0, "high": 4.0}


def system(attention=None, examples=0, mean=2.0, difference=None):
    values = {metric: VALUE | {"mean": mean} for metric in ("rouge1", "rouge2", "rougeLsum")}
    test = {"difference": difference, "low": -1.0, "high": 3.0, "p": 0.1, "p_holm": 0.2}
    difference = difference and {"rouge1": test}
    own = {"attention": attention, "examples": examples, "difference": difference} if attention else {}
    return {"seeds": [{"seed": 3, "runs": 1}, {"seed": 4, "runs": 1} | VALUE]} | values | own


SYSTEMS = {"Lead6": system(), "none": system("No attention"), "tree": system("D-Tree", difference=0.5)}
METRICS = {"data": "toy", "split": "test", "level": "edu", "documents": 9, "systems": SYSTEMS}


def cells(axes):
    """The number written in each cell, by column and row as they are on the axes."""
    return {text.get_position(): float(text.get_text()) for text in axes.texts}


def test_figure_4_is_the_post_edited_tree_and_its_matrix():
    """The worked tree: EDU 6 hung on 3 and hangs on 5 of its sentence; arrows lead from heads to dependents."""
    tree = read_tree(figures.WORKED_TREE)
    arrows, matrix, *_ = figure_4(tree).axes
    sentence = np.array([0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(matrix.images[0].get_array(), d_tree(tree, sentence))
    assert cells(matrix) == {(j + 1, i + 1): value for (i, j), value in np.ndenumerate(d_tree(tree, sentence))}
    assert matrix.get_xlabel() == "EDU attended to" and matrix.get_ylabel() == "EDU that attends"
    edges = {
        (int(arrow.xyann[1]), int(arrow.xy[1])): (arrow.arrow_patch.get_linestyle(), arrow.arrowprops["color"])
        for arrow in arrows.texts if hasattr(arrow, "xyann")
    }  # fmt: skip
    plain = ("-", "black")
    assert edges == {
        (2, 1): plain, (2, 3): plain, (3, 4): plain, (3, 5): plain, (5, 6): ("-", "tab:red"), (3, 6): ("--", "tab:red"),
    }  # fmt: skip
    assert all(arrow.arrow_patch.get_arrowstyle().arrow == "->" for arrow in arrows.texts if hasattr(arrow, "xyann"))
    said = [text.get_text() for text in arrows.texts if not hasattr(text, "xyann")]
    assert said[1] == "2  that a storm hit the town on Monday.  (root)" and "(root)" not in "".join(said[2:])


def test_figure_5_is_the_tree_and_its_matrices():
    tree = read_dis(TREE)
    constituency, *places = figure_5(tree).axes
    for axes, matrix in zip(places, (c_tree(tree), c_tree_nuclearity(tree)), strict=False):
        np.testing.assert_array_equal(axes.images[0].get_array(), matrix)
        assert axes.images[0].get_clim() == (0, c_tree_nuclearity(tree).max())
        assert cells(axes) == {(j + 1, i + 1): float(f"{v:.2g}") for (i, j), v in np.ndenumerate(matrix)}
    lines = {tuple(map(tuple, line.get_xydata().tolist())): line for line in constituency.lines}
    assert len(lines) == 6 and {end for _, end in lines if end[1] == 0} == {(1, 0), (2, 0), (3, 0), (4, 0)}
    assert all(parent[1] > child[1] for parent, child in lines)
    # At the middle of each branch stands its role; EDUs 1 and 4 are Nuclei.
    roles = {text.get_position(): text.get_text() for text in constituency.texts}
    for (parent, child), line in lines.items():
        role = roles[(parent[0] + child[0]) / 2, (parent[1] + child[1]) / 2]
        style, colour = {"N": ("-", "tab:blue"), "S": ("--", "tab:red")}[role]
        assert (line.get_linestyle(), line.get_color()) == (style, colour)
        if child[1] == 0:
            assert role == {1: "N", 2: "S", 3: "S", 4: "N"}[child[0]]


def test_rouge_of_a_metrics_file_and_its_differences():
    left, right = figure_rouge(SYSTEMS, "toy").axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["Lead6", "No attention", "D-Tree"]
    assert left.yaxis_inverted() and left.get_title() == "toy"
    for place, bars in enumerate(left.containers):
        assert bars[2][0].get_segments()[0].tolist() == [[1.0, place], [4.0, place]]
        assert bars[0].get_xydata().tolist() == [[2.0, place]]
    (bars,) = right.containers  # of what has a difference, in its row
    assert bars[2][0].get_segments()[0].tolist() == [[-1.0, 2], [3.0, 2]] and bars[0].get_xdata()[0] == 0.5
    assert right.get_xlabel() == "ROUGE-1 minus none"


def test_low_resource_has_a_curve_for_each_attention():
    """Section 5.2: means with their intervals at each number of documents, whatever their order in the file."""
    systems = {"tree-n100": system("D-Tree", 100, 2.5), "dot-n20": system("Dot Product(1)", 20, 1.5)}
    systems |= {"tree-n20": system("D-Tree", 20, 3.0), "tree": system("D-Tree", 0, 3.5), "Lead6": system()}
    (axes,) = figure_low_resource(systems, "toy").axes
    tree, dot = axes.containers
    np.testing.assert_allclose(tree[0].get_xydata(), [[20, 3.0], [100, 2.5]], rtol=0.02)
    np.testing.assert_allclose(dot[0].get_xydata(), [[20, 1.5]], rtol=0.02)
    assert [segment[:, 1].tolist() for segment in tree[2][0].get_segments()] == [[1.0, 4.0], [1.0, 4.0]]
    labels = {text.get_text(): text for text in axes.texts}
    assert {name: text.get_color() for name, text in labels.items()} == {
        "D-Tree": figures.COLOURS["D-Tree"], "Dot Product(1)": figures.COLOURS["Dot Product(1)"],
    }  # fmt: skip
    assert labels["D-Tree"].xyann == (1.02, 2.5) and tree[0].get_color() == labels["D-Tree"].get_color()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["20", "100"] and axes.get_xscale() == "log"


def test_a_csv_says_what_its_json_says(tmp_path):
    (tmp_path / "m.json").write_text(json.dumps(METRICS))
    write_csv(tmp_path / "m.csv", csv_rows(METRICS))
    assert len(list(csv.reader((tmp_path / "m.csv").open()))) == 1 + 3 * 3
    of_json, of_csv = read_systems(tmp_path / "m.json"), read_systems(tmp_path / "m.csv")
    assert list(of_csv) == list(of_json) == list(SYSTEMS)
    assert of_json == {name: own | {"attention": own["attention"] or None} for name, own in of_csv.items()}
    assert of_csv["tree"]["attention"] == "D-Tree" and of_csv["tree"]["difference"]["rouge1"]["difference"] == 0.5


def test_command_line_and_bad_input(tmp_path, capsys):
    low = {"systems": {"tree-n20": system("D-Tree", 20)}}
    (tmp_path / "low_resource_toy.json").write_text(json.dumps(low))
    (tmp_path / "m.json").write_text(json.dumps(METRICS))
    for _ in range(2):  # the second time into the same folder
        main([str(tmp_path / "m.json"), str(tmp_path / "low_resource_toy.json"), "--out", str(tmp_path / "out")])
    names = {"figure_4", "figure_5", "rouge_m", "rouge_low_resource_toy", "low_resource_toy"}
    assert {path.stem for path in (tmp_path / "out").iterdir()} == names
    rows = ({"rouge1": "x"}, {"rouge1": VALUE | {"low": float("nan")}}, {"rouge1": VALUE | {"low": 10**400}})
    texts = [json.dumps({"systems": {"a": row}}) for row in (1, *rows)]
    for text in ("[]", '{"systems": 3}', "{", "[" * 100_000, *texts):
        (tmp_path / "m.json").write_text(text)
        with pytest.raises(SystemExit):
            main([str(tmp_path / "m.json"), "--out", str(tmp_path / "out")])
        assert "m.json is not what evaluate --json or --csv writes" in capsys.readouterr().err
    (tmp_path / "m.csv").write_text("a,b\n1,2\n")
    for flags, message in (([str(tmp_path / "m.csv")], "m.csv is not"), (["--tree", "x.txt"], "no tree format '.txt'")):
        with pytest.raises(SystemExit):
            main([*flags, "--out", str(tmp_path / "out")])
        assert message in capsys.readouterr().err
