"""Evaluation: what a row says, folds and seeds as one system, baselines by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("shared")

from shared.score import score

from .. import evaluate as module
from ..config import TrainConfig
from ..evaluate import evaluate, ranking, system_of
from ..loading import load_run
from ..train import read_examples, train

SMALL = dict(data="toy:signal=0,count=20", steps=4, batch_size=8, save_every=4, head_width=8, feed_forward=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small runs: dot product, trees of two seeds, their order mixed up, three folds."""
    folder = tmp_path_factory.mktemp("runs")
    for name, changes in {
        "dot": dict(attention="dot", heads=8),
        "tree-seed0": dict(attention="d_tree"),
        "tree-seed1": dict(attention="d_tree", seed=1),
        "shuffled-seed0": dict(attention="d_tree", shuffle_trees=True),
        **{f"c-fold{n}": dict(attention="c_tree", data="toy:count=9", folds=3, fold=n) for n in range(3)},
    }.items():
        train(TrainConfig(**SMALL | changes), folder / name)
    return folder


@pytest.fixture(scope="module")
def examples():
    return read_examples(TrainConfig(SMALL["data"]), "test")


def load(folder, *names):
    return {name: load_run(folder / name) for name in names}


def test_ranking_by_hand():
    """AUC counts pairs, a tie as half; average precision is the mean precision at each unit of the oracle."""
    scores, labels = np.array([0.9, 0.1, 0.5, 0.5, 0.3]), np.array([True, False, True, False, True])
    assert ranking(scores, labels)[0] == pytest.approx((2 + 1.5 + 1) / 6)
    assert ranking(scores, labels)[1] == pytest.approx((1 / 1 + 2 / 2 + 3 / 4) / 3)
    assert ranking(-scores, labels)[0] == pytest.approx(1 - 0.75)
    for same in (np.ones(5, bool), np.zeros(5, bool)):
        assert ranking(scores, same) is None


def test_d22_differences_have_intervals_beside_rouge_for_the_ranking_too(folder, examples):
    """D22: by approximate randomisation; a document without a ranking counts for ROUGE alone."""
    rows = list(evaluate(load(folder, "dot", "tree-seed0", "tree-seed1"), examples))
    assert [row["run"] for row in rows[::20]] == ["dot", "tree-seed0", "tree-seed1", "Lead", "Oracle"]
    for row in rows:
        if row["id"] == rows[0]["id"]:
            row |= {"auc": [0, 0], "ap": [0, 0]}
    found = {(row["system"], row["minus"], row["metric"]): row for row in score(rows)}
    assert {metric for *_, metric in found} == {"rouge1", "rouge2", "rougeLsum", "auc", "ap"}
    mean = np.mean([row["auc"][0] for row in rows if row["system"] == "tree" and row["auc"][1]])
    assert found["tree", None, "auc"]["value"] == pytest.approx(100 * mean)
    difference = found["tree", "dot", "rouge1"]
    assert difference["low"] <= difference["value"] <= difference["high"]
    assert 0 < found["Oracle", "dot", "rouge1"]["p"] < 0.05
    assert len(found["tree", None, "rouge1"]["seeds"].split()) == 2 and found["Oracle", None, "auc"]["value"] == 100


def test_folds_are_one_system_and_each_document_is_tested_once(folder):
    runs = load(folder, "c-fold0", "c-fold1", "c-fold2")
    examples = read_examples(runs["c-fold0"].config, "test")
    rows = [row for row in evaluate(runs, examples) if row["system"] == "c"]
    assert sorted(row["id"] for row in rows) == sorted(example.id for example in examples)
    assert {row["seed"] for row in rows} == {0}
    draws = {n: run._replace(config=replace(run.config, examples=5, seed=run.config.fold)) for n, run in runs.items()}
    assert {row["seed"] for row in evaluate(draws, examples) if row["system"] == "c"} == {0}


def test_shuffled_trees_change_what_is_extracted(folder, examples):
    """The control is another system under another name, and not the model that reads the trees as they are."""
    run = load_run(folder / "tree-seed0")
    mixed = run._replace(config=replace(run.config, shuffle_trees=True))
    own, other = ([row["auc"] for row in evaluate({"a": each}, examples) if row["run"] == "a"] for each in (run, mixed))
    assert own != other
    with pytest.raises(ValueError, match="b-seed1 is not the model of the others called b: rename its folder"):
        list(evaluate({"b-seed0": run, "b-seed1": mixed}, examples))


def test_lead_and_oracle_by_hand(monkeypatch):
    """Lead: the first units, no more than a summary has; Oracle: its own, or Lead's where it takes none."""

    def document(name, *labels):
        units = ["a b", "c d", "e f", "g h"]
        return SimpleNamespace(
            id=name, units=units, sentence=np.arange(4), labels=np.array(labels, dtype=bool), references=[["a b"]]
        )

    documents = [document("one", 0, 0, 1, 1), document("two", 0, 0, 0, 0), document("three", 1, 1, 1, 1)]
    corpus = SimpleNamespace(documents=documents[:2])
    prepared = SimpleNamespace(select=lambda chosen: corpus)
    monkeypatch.setattr(module, "make_documents", lambda *_: documents)
    monkeypatch.setattr(module, "prepare", lambda *_: prepared)
    monkeypatch.setattr(module, "score_documents", lambda *_: [np.zeros(4)] * 2)
    monkeypatch.setattr(module, "extract_all", lambda *_: ["x", "y"])
    run = module.Run(TrainConfig(units_taken=2), None, None)
    found = {(row["run"], row["id"]): row for row in evaluate({"a": run}, [])}
    assert found["Lead", "one"]["prediction"] == found["Oracle", "two"]["prediction"] == ["a b", "c d"]
    assert found["Oracle", "one"]["prediction"] == ["e f", "g h"] and ("Lead", "three") not in found
    assert found["Lead", "one"]["auc"] == [0, 1] and found["Oracle", "one"]["auc"] == [1, 1]
    assert found["Oracle", "two"]["auc"] == [0, 0]


def test_systems_are_told_by_their_names():
    names = ("tree-seed1", "tree-fold10-seed2", "tree-draw2", "tree_3", "c_tree", "v2", "dot-8-heads-fold1-seed0")
    assert [system_of(name) for name in names] == ["tree"] * 4 + ["c_tree", "v2", "dot-8-heads"]
