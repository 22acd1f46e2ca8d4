"""Controls, folds, standardised encoders, tables; what a tree says without a network; figures, from tree and table."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from shared.score import score

from ... import predict, train
from ...config import TrainConfig
from ...experiments import controls, figures, folds, salience, standardize, tables
from ...experiments.controls import measures, previous, ranking, shuffled
from ...experiments.figures import figure_4, figure_5
from ...experiments.salience import probe, promotion, rows, tree_scalars
from ...loading import load, load_run
from ...matrices import c_tree, c_tree_nuclearity, d_tree
from ...text import Document, random_encoder
from ...trees import read_dis, read_tree
from ..test_matrices import FIVE, FOUR, some_tree
from ..test_text import EDUS, SENTENCES, TREE


def cells(axes):
    """The number written in each cell, by column and row as they are on the axes."""
    return {text.get_position(): float(text.get_text()) for text in axes.texts}


def test_figure_4_is_the_post_edited_tree_and_its_matrix():
    """The worked tree: EDU 6 hangs on 5 of its sentence; arrows lead from parents to dependents."""
    tree = read_tree(figures.WORKED_TREE)
    arrows, matrix, *_ = figure_4(tree).axes
    expected = d_tree(tree, np.array([0, 0, 1, 1, 2, 2]))
    assert cells(matrix) == {(j + 1, i + 1): value for (i, j), value in np.ndenumerate(expected)}
    edges = {(int(a.xyann[1]), int(a.xy[1])) for a in arrows.texts if hasattr(a, "xyann")}
    assert edges == {(2, 1), (2, 3), (3, 4), (3, 5), (5, 6)}
    said = [text.get_text() for text in arrows.texts if not hasattr(text, "xyann")]
    assert [text.endswith("(root)") for text in said] == [False, True, False, False, False, False]


def test_figure_5_is_the_tree_and_its_matrices():
    tree = read_dis(TREE)
    for axes, matrix in zip(figure_5(tree).axes[1:], (c_tree(tree), c_tree_nuclearity(tree)), strict=False):
        assert cells(axes) == {(j + 1, i + 1): float(f"{v:.2g}") for (i, j), v in np.ndenumerate(matrix)}


def document(tree, name="d", labels=(), units=4):
    sentence = np.array([0, 0, 2, 2, 2])
    return SimpleNamespace(id=name, tree=tree, labels=np.array(labels), units=[""] * units, edu_sentence=sentence)


def test_promotion_is_that_of_marcu():
    """An EDU is in the promotion set of each node above it as long as it is Nucleus there; the highest one counts."""
    np.testing.assert_array_equal(promotion(FIVE), [0, -3, -2, -1, -1])
    np.testing.assert_array_equal(promotion(FOUR), [0, 0, 0, -2])


def test_scalars_are_promotion_depth_dependents_and_level_sum():
    scalars = [[0, 4, 5, 11], [-3, 4, 0, 11], [-2, 3, 0, 9], [-1, 3, 0, 8], [-1, 3, 0, 8]]
    np.testing.assert_array_equal(tree_scalars(document(FIVE), "edu"), scalars)
    # Of a sentence the greatest among its EDUs; one without EDUs comes last.
    expected = [[0, 4, 5, 11], [-4, 2, -1, 7], [-1, 3, 0, 9], [-4, 2, -1, 7]]
    np.testing.assert_array_equal(tree_scalars(document(FIVE), "sentence"), expected)


def test_probe_is_the_most_likely_under_its_ridge():
    """At the best weights the gradient of the log-likelihood is the ridge's."""
    rng = np.random.default_rng(0)
    trees = [some_tree(seed, 12)[0] for seed in range(8)]
    training = [document(t, str(n), rng.random(12) < 0.2 + 0.6 * (promotion(t) == 0)) for n, t in enumerate(trees)]
    found = probe(training, training, "edu")
    x = np.concatenate([np.insert(tree_scalars(d, "edu"), 0, 1, axis=1) for d in training])
    scores, labels = np.concatenate(list(found.values())), np.concatenate([d.labels for d in training])
    weights = np.linalg.lstsq(x, scores)[0]
    np.testing.assert_allclose(x.T @ (labels - 1 / (1 + np.exp(-scores))), weights, atol=1e-6)


def test_rows_of_a_table_by_hand(monkeypatch):
    """The tree takes what is promoted highest, with what that needs; Lead what stands first."""
    edus = np.arange(5)

    def fitted(training, tested, level):
        assert not {d.id for d in training} & {d.id for d in tested}
        return {d.id: np.zeros(5) for d in tested}

    monkeypatch.setattr(salience, "probe", fitted)
    fields = [f"w{n}" for n in edus], edus, [[4], [], [], [], []], edus == 4, [["w0 w3 w4"]], FIVE, edus, False
    documents = [Document(str(n), *fields) for n in range(6)]
    found = {(row["system"], row["id"]): row for row in rows(documents, TrainConfig(units_taken=3), 3)}
    # Promotion of FIVE: 0, -3, -2, -1, -1: EDUs 1, 4, 5; the last is third of five in that order.
    assert found["Tree alone", "0"]["prediction"] == ["w0", "w3", "w4"]
    assert found["Lead", "0"]["prediction"] == ["w0", "w1", "w2"]
    assert found["Tree alone", "0"]["auc"] == [2.5 / 4, 1] and found["Lead", "0"]["auc"] == [0, 1]


# Controls


def test_d25_previous_attends_to_the_unit_before_and_reads_no_tree():
    """D25: a unit itself gets no weight, but the first."""
    document = SimpleNamespace(id="d", tree=None, units=[""] * 3)
    assert previous(document, None).tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert previous(SimpleNamespace(units=[""]), None).tolist() == [[1]]


def test_shuffled_trees_keep_the_shape_but_not_the_place():
    """The same numbers, rows and columns permuted together; the same order each time, another for each document."""
    config, plain = TrainConfig(attention="c_tree"), c_tree(read_dis(TREE))
    found = [shuffled(document(read_dis(TREE), name), config) for name in "abcdef"]
    for matrix in found:
        np.testing.assert_allclose(sorted(matrix.diagonal()), sorted(plain.diagonal()))
        np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-6)
    assert len({matrix.tobytes() for matrix in found}) > 2
    np.testing.assert_array_equal(found[0], shuffled(document(read_dis(TREE), "a"), config))


def test_ranking_by_hand():
    """AUC counts pairs, a tie as half; average precision is the mean precision at each unit of the oracle."""
    scores, labels = np.array([0.9, 0.1, 0.5, 0.5, 0.3]), np.array([True, False, True, False, True])
    assert ranking(scores, labels)[0] == pytest.approx((2 + 1.5 + 1) / 6)
    assert ranking(scores, labels)[1] == pytest.approx((1 / 1 + 2 / 2 + 3 / 4) / 3)
    assert ranking(-scores, labels)[0] == pytest.approx(1 - 0.75)
    for same in (np.ones(5, bool), np.zeros(5, bool)):
        assert ranking(scores, same) is None
        assert measures(SimpleNamespace(labels=same), scores) == {"auc": [0, 0], "ap": [0, 0]}
    document = SimpleNamespace(labels=np.array([False, True]))  # what Lead and the oracle take has their own order
    taken = ("model", "lead", "oracle")
    assert [measures(document, np.array([0.0, 1.0]), take)["auc"] for take in taken] == [[1, 1], [0, 1], [1, 1]]


def test_d22_a_control_is_trained_and_its_rows_are_scored(tmp_path, capsys):
    """D22: differences have intervals, by approximate randomisation, for the ranking as for ROUGE; from end to end."""
    data = "toy:signal=0,count=6"
    flags = ["--data", data, "--steps", "2"]
    for name, command in (("d_tree", "shuffled"), ("one-before", "previous")):
        controls.main(["train", command, "--out", str(tmp_path / name), "--attention", "d_tree", *flags])
        out = ["--data", data, "--out", str(tmp_path / f"{name}.jsonl")]
        controls.main(["predict", str(tmp_path / name), *out])
    outputs = [json.loads(line) for name in ("d_tree", "one-before") for line in open(tmp_path / f"{name}.jsonl")]
    found = {(row["system"], row["minus"], row["metric"]): row for row in score(outputs)}
    difference = found["one-before", "d_tree", "auc"]
    assert difference["low"] <= difference["value"] <= difference["high"] and 0 < difference["p"] <= 1
    weights = [list(load_run(tmp_path / name).model.parameters()) for name in ("d_tree", "one-before")]
    assert any(not torch.equal(one, other) for one, other in zip(*weights, strict=True))
    with pytest.raises(SystemExit):
        controls.main(["train", "--out", "x"])
    assert "error: say train shuffled or train previous, or predict" in capsys.readouterr().err
    run = str(tmp_path / "d_tree")  # its matrices are not those that the package reads off its trees
    for wrong, arguments, said in (
        (controls.main, ["train", "shuffled", "--out", "x", "--attention", "dot"], "--attention d_tree or c_tree"),
        (train.main, ["--resume", "--out", run, "--steps", "4"], "is another control, or none"),
        (predict.main, [run, "--data", data], "is a control: read it by .*experiments.controls predict"),
    ):
        with pytest.raises(SystemExit):
            wrong(arguments)
        assert re.search(said, capsys.readouterr().err), said


def test_folds_part_the_corpus(tmp_path):
    """No document is in two of the three parts of a fold, and each is tested once: or all numbers would be too high."""
    folds.main("toy:count=15", tmp_path / "folds", 5)
    every = {example.id: example for split in ("train", "validation") for example in load("toy:count=15", split)}
    tested = []
    for fold in range(5):
        own = [load(tmp_path / f"folds/{fold}", split) for split in ("train", "validation", "test")]
        assert [len(part) for part in own] == [18, 6, 6]
        assert sorted(example.id for example in sum(own, [])) == sorted(every)
        assert all(example == every[example.id] and example.tree for example in sum(own, []))
        assert own[1] == load(tmp_path / f"folds/{(fold + 1) % 5}", "test")
        tested += [example.id for example in own[2]]
    assert sorted(tested) == sorted(every)


def test_d24_standardized_vectors_have_mean_0_and_spread_1():
    """D24: first tokens and means over tokens alike."""
    for pooling in ("cls", "mean"):
        encoder = random_encoder([*SENTENCES, "it rained"], pooling, width=16)
        texts = [*EDUS, *SENTENCES, "it rained", "the mayor"]
        plain = encoder.encode(texts)
        standardize.standardize(encoder, plain)
        np.testing.assert_allclose(encoder.encode(texts).mean(0), 0, atol=1e-4)
        np.testing.assert_allclose(encoder.encode(texts).std(0, ddof=1), 1, atol=1e-4)


def test_table_1_by_hand(tmp_path):
    """Section 5.1: tokens, EDUs and sentences of a document, and how many of both the oracle takes."""
    other = {"id": "2", "document": ["it rained .", "x ."], "summary": "it rained .", "tree": None}
    tree = {"id": "1", "document": SENTENCES, "summary": ["a storm came ."], "tree": TREE}
    lines = [json.dumps({k: v for k, v in row.items() if v}) for row in (other, tree)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    found = tables.statistics(str(tmp_path / "train.jsonl"))
    expected = {"documents": 2, "tokens": (5 + 15) / 2, "sentences": 2, "sentences (oracle)": 1}
    assert found == expected | {"EDUs": 4, "EDUs (oracle)": 2}
