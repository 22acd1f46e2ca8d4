"""Figures: what is drawn is what the model computes and the tree says."""

import csv

import numpy as np
import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from ..documents import collate
from ..figures import attention_maps, choose, constituency_lines, main
from ..matrices import c_tree, d_tree
from ..train import load_corpus, load_run
from ..train import main as train_main
from ..trees import read_dis
from .test_documents import TREE


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    small = ["--data", "toy:count=6", "--steps", "2", "--evaluate-every", "2", "--head-width", "4", "--inner", "8"]
    for name, flags in {"dot": ["--attention", "dot", "--heads", "2"], "tree": ["--attention", "c_tree"]}.items():
        train_main(["--out", str(folder / name), *small, *flags])
    return folder


def entries(path):
    """Matrices of a figure's CSV, by name, as {(row, column): weight}."""
    found = {}
    for row in csv.DictReader(path.open()):
        found.setdefault(row["matrix"], {})[int(row["unit"]) - 1, int(row["attended to"]) - 1] = float(row["weight"])
    return found


def same(entry, matrix):
    dense = np.zeros_like(matrix)
    for place, weight in entry.items():
        dense[place] = weight
    np.testing.assert_allclose(dense, matrix, rtol=1e-4, atol=1e-6)


def test_figures_of_one_tree(tmp_path):
    """Figures 4 and 5 of a tree file: the matrices are those of matrices.py."""
    (tmp_path / "one.dis").write_text(TREE)
    main(["--tree", str(tmp_path / "one.dis"), "--out", str(tmp_path / "out")])
    tree = read_dis(TREE)
    same(entries(tmp_path / "out" / "figure_4.csv")["d_tree"], d_tree(tree))
    same(entries(tmp_path / "out" / "figure_5.csv")["c_tree"], c_tree(tree))
    assert all((tmp_path / "out" / f"figure_{n}.png").stat().st_size > 5000 for n in (4, 5))


def test_the_drawn_tree_has_every_edge_once():
    lines = list(constituency_lines(read_dis(TREE)))
    assert len(lines) == 6 and sum(nucleus for _, _, nucleus in lines) == 3
    assert {child for _, child, _ in lines if child[1] == 0} == {(1, 0), (2, 0), (3, 0), (4, 0)}
    assert all(parent[1] > child[1] for parent, child, _ in lines)


def test_attention_maps_are_what_the_layers_use(runs):
    run = load_run(runs / "dot")
    corpus, *_ = load_corpus(run.config, "test", run.encoder, runs / "cache", False)
    maps = attention_maps(run, corpus, 0)
    assert list(maps) == [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)]
    batch = collate(corpus, [0])
    first = run.model.layers[0].attention.weights(
        batch.units + run.model.position_table[: batch.units.size(1)], batch.keep, None
    )
    np.testing.assert_allclose(maps["layer 1, head 2"], first[0, 1].detach().numpy(), atol=1e-6)
    assert not run.model.layers[0].attention.weights._forward_hooks


def test_learned_against_tree_attention(runs, tmp_path, capsys):
    arguments = [str(runs / "tree"), str(runs / "dot"), "--out", str(tmp_path), "--cache", str(runs / "cache")]
    main([*arguments, "--document", "toy-test-00002"])
    maps = entries(tmp_path / "attention.csv")
    assert set(maps) == {"tree, all layers", *(f"dot, layer {n}, head {h}" for n in (1, 2) for h in (1, 2))}
    same(maps["tree, all layers"], c_tree_of(runs))
    assert {path.name for path in tmp_path.glob("*.png")} == {"attention.png", "figure_4.png", "figure_5.png"}
    assert "tree on toy-test-00002:" in capsys.readouterr().out


def c_tree_of(runs):
    run = load_run(runs / "tree")
    corpus, *_ = load_corpus(run.config, "test", run.encoder, runs / "cache", False)
    return c_tree(choose(corpus.documents, "toy-test-00002").tree)


def test_the_document_is_the_shortest_that_is_long_enough():
    class Some:
        def __init__(self, identity, size):
            self.id, self.units = identity, [""] * size

    documents = [Some("a", 9), Some("b", 2), Some("c", 7)]
    assert choose(documents, None).id == "c" and choose(documents, "b").id == "b"
    assert choose(documents[1:2], None).id == "b"
    with pytest.raises(ValueError, match="there is no document 'd'; some that are: a, b, c"):
        choose(documents, "d")


def test_bad_command_lines(tmp_path):
    for flags in ([], ["run", "--tree", "x.dis"]):
        with pytest.raises(SystemExit, match="error: give either run folders or --tree FILE"):
            main([*flags, "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="error: .*no tree format '.txt'"):
        main(["--tree", "x.txt", "--out", str(tmp_path)])
