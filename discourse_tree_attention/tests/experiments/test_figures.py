"""Figures: what is drawn is what the tree and the metrics say."""

import json

import numpy as np
import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from ...experiments.figures import figure_4, figure_5, figure_low_resource, figure_rouge, main
from ...formats import read_dis
from ...matrices import c_tree, c_tree_nuclearity, d_tree
from ..test_documents import TREE

VALUE = {"mean": 2.0, "low": 1.0, "high": 4.0}
SYSTEM = {"seeds": [{"seed": 3}], "rouge1": VALUE, "rouge2": VALUE, "rougeLsum": VALUE}
METRICS = {"data": "toy", "split": "test", "level": "edu", "documents": 9, "systems": {"a": SYSTEM, "b": SYSTEM}}


def test_figures_of_a_tree():
    """Figures 4 and 5: the matrices are those of matrices.py, the tree has every edge once."""
    tree = read_dis(TREE)
    images = [image.get_array() for axes in figure_4(tree, "t").axes for image in axes.images]
    np.testing.assert_array_equal(images[0], d_tree(tree))
    constituency, *places = figure_5(tree, "t").axes
    for axes, matrix in zip(places, (c_tree(tree), c_tree_nuclearity(tree)), strict=False):
        np.testing.assert_array_equal(axes.images[0].get_array(), matrix)
        assert len(axes.texts) == 16  # a number in each cell
    lines = [line.get_xydata().tolist() for line in constituency.lines]
    assert len(lines) == 6 and {tuple(end) for _, end in lines if end[1] == 0} == {(1, 0), (2, 0), (3, 0), (4, 0)}
    assert all(parent[1] > child[1] for parent, child in lines)
    assert sorted(text.get_text() for text in constituency.texts) == list("NNNSSS")


def test_rouge_of_a_metrics_file():
    figure = figure_rouge(METRICS)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a", "b"]
    for axes in figure.axes:
        (bars,) = axes.containers
        assert bars[2][0].get_segments()[0].tolist() == [[1.0, 0.0], [4.0, 0.0]] and bars[0].get_xdata()[0] == 2.0


def test_low_resource_has_a_line_for_each_attention(tmp_path):
    """Section 5.2: five draws at each number of documents, whatever their order."""

    def system(attention, examples, *draws):
        seeds = [{"seed": 0, "rouge1": VALUE | {"mean": mean}} for mean in draws]
        return SYSTEM | {"seeds": seeds, "attention": attention, "examples": examples}

    systems = {"tree-n100": system("D-Tree", 100, 5.0, 9.0), "dot-n20": system("Dot Product(1)", 20, 1.0)}
    systems |= {"tree-n20": system("D-Tree", 20, 2.0, 4.0), "tree": system("D-Tree", 0, 50.0), "Lead6": SYSTEM}
    (axes,) = figure_low_resource(METRICS | {"systems": systems}).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "None"}
    assert lines == {"D-Tree": [[20, 3], [100, 7]], "Dot Product(1)": [[20, 1]]}
    assert sum(len(line.get_xydata()) for line in axes.lines if line.get_marker() == ".") == 5  # a dot for each draw
    (tmp_path / "m.json").write_text(json.dumps(METRICS | {"systems": systems}))
    main([str(tmp_path / "m.json"), "--out", str(tmp_path)])
    assert (tmp_path / "low_resource_m.png").exists()


def test_command_line_and_bad_input(tmp_path, capsys):
    (tmp_path / "m.json").write_text(json.dumps(METRICS))
    main([str(tmp_path / "m.json"), "--out", str(tmp_path / "out")])
    assert {path.stem for path in (tmp_path / "out").iterdir()} == {"figure_4", "figure_5", "rouge_m"}
    (tmp_path / "m.json").write_text("[]")
    for flags, message in (
        ([str(tmp_path / "m.json")], "m.json is not what evaluate --json writes"),
        (["--tree", "x.txt"], "no tree format '.txt'"),
    ):
        with pytest.raises(SystemExit):
            main([*flags, "--out", str(tmp_path / "out")])
        assert message in capsys.readouterr().err
