"""Figures: what is drawn is what the tree and the metrics say."""

import csv
import json

import numpy as np
import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from ..figures import WORKED_TREE, constituency_lines, main
from ..formats import read_brackets, read_dis
from ..matrices import c_tree, c_tree_nuclearity, d_tree
from .test_documents import TREE


def entries(path, size):
    """Matrices of a figure's CSV, by name."""
    found = {}
    for row in csv.DictReader(path.open()):
        matrix = found.setdefault(row["matrix"], np.zeros((size, size)))
        matrix[int(row["EDU"]) - 1, int(row["attended to"]) - 1] = float(row["weight"])
    return found


@pytest.mark.parametrize("flags", [[], ["--tree", "one.dis"]])
def test_figures_of_one_tree(tmp_path, monkeypatch, flags):
    """Figures 4 and 5 of the worked tree and of a file: the matrices are those of matrices.py."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.dis").write_text(TREE)
    main([*flags, "--out", "out"])
    tree = read_dis(TREE) if flags else read_brackets(WORKED_TREE)
    (drawn,) = entries(tmp_path / "out" / "figure_4.csv", tree.last).values()
    np.testing.assert_array_equal(drawn, d_tree(tree))
    drawn = entries(tmp_path / "out" / "figure_5.csv", tree.last)
    np.testing.assert_allclose(drawn["C-Tree"], c_tree(tree), rtol=1e-4)
    np.testing.assert_allclose(drawn["C-Tree w/Nuc"], c_tree_nuclearity(tree), rtol=1e-4)
    assert all((tmp_path / "out" / f"figure_{n}.png").stat().st_size > 5000 for n in (4, 5))


def test_the_drawn_tree_has_every_edge_once():
    lines = list(constituency_lines(read_dis(TREE)))
    assert len(lines) == 6 and sum(nucleus for _, _, nucleus in lines) == 3
    assert {child for _, child, _ in lines if child[1] == 0} == {(1, 0), (2, 0), (3, 0), (4, 0)}
    assert all(parent[1] > child[1] for parent, child, _ in lines)


def test_rouge_of_a_metrics_file(tmp_path):
    value = {"mean": 2.0, "low": 1.0, "high": 4.0}
    system = {"runs": [{"seed": 3}], "rouge1": value, "rouge2": value, "rougeLsum": value}
    metrics = {"data": "toy", "split": "test", "level": "edu", "documents": 9, "systems": {"a": system, "b": system}}
    (tmp_path / "m.json").write_text(json.dumps(metrics))
    main([str(tmp_path / "m.json"), "--out", str(tmp_path)])
    rows = list(csv.DictReader((tmp_path / "rouge_m.csv").open()))
    assert len(rows) == 6 and rows[0] == {"system": "a", "metric": "rouge1", "mean": "2", "low": "1", "high": "4"}
    assert (tmp_path / "rouge_m.png").stat().st_size > 5000


def test_bad_input_is_named(tmp_path, capsys):
    (tmp_path / "m.json").write_text("[]")
    for flags, message in (
        ([str(tmp_path / "m.json")], "m.json is not what evaluate --json writes"),
        (["--tree", "x.txt"], "no tree format '.txt'"),
    ):
        with pytest.raises(SystemExit):
            main([*flags, "--out", str(tmp_path / "out")])
        assert message in capsys.readouterr().err
