"""Controls, folds, standardised encoders, tables; what a tree says without a network; figures, from tree and table."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from shared.data import load
from shared.score import score

from ...config import TrainConfig
from ...experiments import controls, figures, folds, salience, standardize, tables
from ...experiments.controls import measures, previous, ranking, shuffled
from ...experiments.figures import figure_4, figure_5, figure_claims
from ...experiments.salience import probe, promotion, rows, tree_scalars
from ...loading import load_run
from ...matrices import c_tree, c_tree_nuclearity, d_tree
from ...text import Document, random_encoder
from ...trees import leaves, read_dis, read_tree
from ..test_matrices import FIVE, FOUR, some_tree
from ..test_text import EDUS, SENTENCES, TREE

VALUE = {"value": 2.0, "low": 1.0, "high": 4.0}


def cells(axes):
    """The number written in each cell, by column and row as they are on the axes."""
    return {text.get_position(): float(text.get_text()) for text in axes.texts}


def test_figure_4_is_the_post_edited_tree_and_its_matrix():
    """The worked tree: EDU 6 hung on 3 and hangs on 5 of its sentence; arrows lead from parents to dependents."""
    tree = read_tree(figures.WORKED_TREE)
    arrows, matrix, *_ = figure_4(tree).axes
    expected = d_tree(tree, np.array([0, 0, 1, 1, 2, 2]))
    assert cells(matrix) == {(j + 1, i + 1): value for (i, j), value in np.ndenumerate(expected)}
    edges = {(int(a.xyann[1]), int(a.xy[1])): a.arrow_patch for a in arrows.texts if hasattr(a, "xyann")}
    assert set(edges) == {(2, 1), (2, 3), (3, 4), (3, 5), (5, 6), (3, 6)}
    assert [edge for edge, patch in edges.items() if patch.get_linestyle() == "--"] == [(3, 6)]
    said = [text.get_text() for text in arrows.texts if not hasattr(text, "xyann")]
    assert [text.endswith("(root)") for text in said] == [False, True, False, False, False, False]


def test_figure_5_is_the_tree_and_its_matrices():
    tree = read_dis(TREE)
    for axes, matrix in zip(figure_5(tree).axes[1:], (c_tree(tree), c_tree_nuclearity(tree)), strict=False):
        assert cells(axes) == {(j + 1, i + 1): float(f"{v:.2g}") for (i, j), v in np.ndenumerate(matrix)}


def test_claims_are_the_papers_and_ours():
    tables = {
        "scitldr_edu": {("d_tree", "none"): VALUE},
        "scitldr_edu_test": {("d_tree", "none"): VALUE | {"value": 3}},
    }
    (axes,) = figure_claims(tables).axes
    ours = [bars[0].get_xydata()[0].tolist() for bars in axes.containers]
    assert ours == [[2.0, 4.0], [3.0, 4.2]]
    papers = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"]
    assert papers == [-0.16, -0.07, 0.23, 0.87, 0.54]


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
    """The tree alone takes what is promoted highest, Lead what stands first; the probe's folds part the documents.

    The first EDU needs the last one: the tree's pick of it brings both, Lead takes it alone.
    """
    edus, calls = np.arange(5), []

    def fitted(training, tested, level):
        calls.append([{d.id for d in part} for part in (training, tested)])
        return {d.id: np.zeros(len(d.units)) for d in tested}

    monkeypatch.setattr(salience, "probe", fitted)
    fields = [f"w{n}" for n in edus], edus, [[4], [], [], [], []], edus == 4, [["w0 w3 w4"]], FIVE, edus, False
    documents = [Document(str(n), *fields) for n in range(6)]
    found = {(row["system"], row["id"]): row for row in rows(documents, TrainConfig(units_taken=3), 3)}
    # Promotion of FIVE: 0, -3, -2, -1, -1: EDUs 1, 4, 5; the last is third of five in that order.
    assert found["Tree alone", "0"]["prediction"] == ["w0", "w3", "w4"]
    assert found["Lead", "0"]["prediction"] == ["w0", "w1", "w2"]
    assert found["Tree alone", "0"]["auc"] == [2.5 / 4, 1] and found["Lead", "0"]["auc"] == [0, 1]
    assert [(len(training), len(tested), training & tested) for training, tested in calls] == [(2, 2, set())] * 3


# Controls


def control_document(identity="d", units=4):
    tree, sentence = read_dis(TREE), np.array([0, 0, 1, 1])
    return SimpleNamespace(id=identity, tree=tree, units=[""] * units, edu_sentence=sentence)


def test_d25_previous_attends_to_the_unit_before_and_reads_no_tree():
    """D25: a unit itself gets no weight, but the first."""
    document = SimpleNamespace(id="d", tree=None, units=[""] * 3)
    assert previous(document, None).tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert previous(SimpleNamespace(units=[""]), None).tolist() == [[1]]


def test_shuffled_trees_keep_the_shape_but_not_the_place():
    """The same numbers, rows and columns permuted together; the same order each time, another for each document."""
    config, plain = TrainConfig(attention="c_tree"), c_tree(read_dis(TREE))
    found = [shuffled(control_document(name), config) for name in "abcdef"]
    for matrix in found:
        np.testing.assert_allclose(sorted(matrix.diagonal()), sorted(plain.diagonal()))
        np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-6)
    assert len({matrix.tobytes() for matrix in found}) > 2
    np.testing.assert_array_equal(found[0], shuffled(control_document("a"), config))


def test_ranking_by_hand():
    """AUC counts pairs, a tie as half; average precision is the mean precision at each unit of the oracle."""
    scores, labels = np.array([0.9, 0.1, 0.5, 0.5, 0.3]), np.array([True, False, True, False, True])
    assert ranking(scores, labels)[0] == pytest.approx((2 + 1.5 + 1) / 6)
    assert ranking(scores, labels)[1] == pytest.approx((1 / 1 + 2 / 2 + 3 / 4) / 3)
    assert ranking(-scores, labels)[0] == pytest.approx(1 - 0.75)
    for same in (np.ones(5, bool), np.zeros(5, bool)):
        assert ranking(scores, same) is None


def test_measures_of_baselines_are_those_of_their_own_order():
    document = SimpleNamespace(labels=np.array([False, True]))
    assert measures(document, np.array([0.0, 1.0]))["auc"] == [1, 1]
    assert [measures(document, np.zeros(2), take)["auc"] for take in ("lead", "oracle")] == [[0, 1], [1, 1]]
    document.labels[:] = True
    assert measures(document, np.zeros(2)) == {"auc": [0, 0], "ap": [0, 0]}


def test_d22_a_control_is_trained_and_its_rows_are_scored(tmp_path, capsys):
    """D22: differences have intervals, by approximate randomisation, for the ranking as for ROUGE; from end to end."""
    data = "toy:signal=0,count=12"
    flags = ["--data", data, "--steps", "2", "--head-width", "8", "--feed-forward", "16"]
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


def test_folds_part_the_corpus(tmp_path):
    """No document is in two of the three parts of a fold, and each is tested once: or all numbers would be too high."""
    tested = []
    for fold in range(5):
        own = folds.parts(30, 5, fold)
        assert [len(own[name]) for name in ("train", "validation", "test")] == [18, 6, 6]
        assert sorted(sum(own.values(), [])) == list(range(30)) and own == folds.parts(30, 5, fold)
        assert own["validation"] == folds.parts(30, 5, (fold + 1) % 5)["test"]
        tested += own["test"]
    assert sorted(tested) == list(range(30))
    with pytest.raises(ValueError, match="--folds 9: it must be from 3 to the 5 documents"):
        folds.parts(5, 9, 0)


def test_folds_are_data_with_trees(tmp_path):
    folds.main("toy:count=4", tmp_path / "folds", 4)
    written = [load(tmp_path / "folds/1", split) for split in ("train", "validation", "test")]
    every = {example.id: example for split in ("train", "validation") for example in load("toy:count=4", split)}
    assert sorted(example.id for part in written for example in part) == sorted(every)
    assert all(example == every[example.id] and example.tree for part in written for example in part)


def test_d24_standardized_vectors_have_mean_0_and_spread_1():
    """D24: first tokens and means over tokens alike; of other texts what (vector - mean) / spread gives."""
    for pooling in ("cls", "mean"):
        encoder = random_encoder([*SENTENCES, "it rained"], pooling, width=16)
        texts = [*EDUS, *SENTENCES, "it rained", "the mayor"]
        plain, other = encoder.encode(texts), encoder.encode(["rained schools"])
        standardize.standardize(encoder, plain)
        np.testing.assert_allclose(encoder.encode(texts).mean(0), 0, atol=1e-4)
        np.testing.assert_allclose(encoder.encode(texts).std(0, ddof=1), 1, atol=1e-4)
        expected = (other - plain.mean(0)) / plain.std(0, ddof=1)
        np.testing.assert_allclose(encoder.encode(["rained schools"]), expected, atol=1e-3)


def test_a_standardized_encoder_is_written(tmp_path):
    encoder = random_encoder([*SENTENCES, "it rained"], width=16)
    encoder.model.save_pretrained(tmp_path / "old"), encoder.tokenizer.save_pretrained(tmp_path / "old")
    standardize.main("toy:count=20", str(tmp_path / "old"), tmp_path / "new", "mean")
    texts = [leaf.text for example in load("toy:count=20", "train") for leaf in leaves(read_dis(example.tree))]
    vectors = standardize.load_encoder(str(tmp_path / "new"), "mean").encode(texts)
    np.testing.assert_allclose(vectors.mean(0), 0, atol=1e-3)


def test_table_1_by_hand(tmp_path):
    """Section 5.1: tokens, EDUs and sentences of a document, and how many of both the oracle takes."""
    other = {"id": "2", "document": ["it rained .", "x ."], "summary": "it rained .", "tree": None}
    tree = {"id": "1", "document": SENTENCES, "summary": ["a storm came ."], "tree": TREE}
    lines = [json.dumps({k: v for k, v in row.items() if v}) for row in (other, tree)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    found = tables.statistics(str(tmp_path / "train.jsonl"))
    expected = {"documents": 2, "tokens": (5 + 15) / 2, "sentences": 2, "sentences (oracle)": 1}
    assert found == expected | {"EDUs": 4, "EDUs (oracle)": 2}


def test_params_table_has_the_papers_order_and_numbers():
    """Section 5.2: the trees have the attention parameters of no attention, half of one learned head's."""
    rows = {row["model"]: row for row in tables.parameters()}
    assert rows["C-Tree"]["attention"] == rows["no attention"]["attention"] == "198,272"
    assert (
        rows["Dot Product (1)"]["attention"] == "395,136"
        and rows["Dot Product (8)"]["balanced attention"] == "25,191,936"
    )
    assert rows["C-Tree w/Nuc"]["R-1 EDUs"] == 40.76 and rows["D-Tree"]["balanced R-1 sentences"] == 41.31
