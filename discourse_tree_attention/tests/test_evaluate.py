"""Evaluation: systems and tables, the dagger marks, folds, files, bad input."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("shared")

from shared import rouge
from shared.data import read_jsonl

from .. import evaluate as module
from ..config import TrainConfig
from ..evaluate import METRICS, compare, evaluate, main, ranking, system_of, table
from ..loading import load_run
from ..train import read_examples, train

SMALL = dict(data="toy:signal=0,count=20", steps=4, batch_size=8, save_every=4, head_width=8, feed_forward=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small runs: dot product, trees of two seeds, a tree at sentence level, three folds."""
    folder = tmp_path_factory.mktemp("runs")
    for name, changes in {
        "dot": dict(attention="dot", heads=8),
        "tree-seed0": dict(attention="d_tree"),
        "tree-seed1": dict(attention="d_tree", seed=1),
        "sentences": dict(level="sentence", attention="c_tree"),
        **{f"c-fold{n}": dict(attention="c_tree", data="toy:count=9", folds=3, fold=n, examples=5) for n in range(3)},
    }.items():
        train(TrainConfig(**SMALL | changes), folder / name)
    return folder


@pytest.fixture(scope="module")
def runs(folder):
    return {name: load_run(folder / name) for name in ("dot", "tree-seed0", "tree-seed1")}


@pytest.fixture(scope="module")
def examples():
    return read_examples(TrainConfig(SMALL["data"]), "test")


@pytest.fixture(scope="module")
def metrics(runs, examples):
    return evaluate(runs, examples)


def test_ranking_by_hand():
    """AUC counts pairs, a tie as half; average precision is the mean precision at each unit of the oracle."""
    scores, labels = np.array([0.9, 0.1, 0.5, 0.5, 0.3]), np.array([True, False, True, False, True])
    assert ranking(scores, labels)[0] == pytest.approx(100 * (2 + 1.5 + 1) / 6)
    assert ranking(scores, labels)[1] == pytest.approx(100 * (1 / 1 + 2 / 2 + 3 / 4) / 3)
    assert ranking(-scores, labels)[0] == pytest.approx(100 - 75)
    for same in (np.ones(5, bool), np.zeros(5, bool)):
        assert np.isnan(ranking(scores, same)).all()


def test_d22_differences_are_tested_by_the_papers_bootstrap_and_corrected_for_their_number():
    """D22: p of a two-sided paired bootstrap; Holm: the smallest p times the number of systems, and so on."""
    rng, ids = np.random.default_rng(1), [f"{i:03d}" for i in range(80)]
    base = rng.normal(40, 5, (80, len(METRICS)))
    base[:9, 3] = np.nan  # no AUC where the oracle takes all or nothing
    given = {"first": base, "near": base + rng.normal(0, 6, base.shape), "far": base - 3 + rng.normal(0, 6, base.shape)}
    rows = compare({name: dict(zip(ids, values, strict=True)) for name, values in given.items()})
    assert rows["first"] is None
    for column, metric in enumerate(METRICS):
        known = np.isfinite(base[:, column])
        p = {n: rouge.paired_test(given[n][known, column], base[known, column], "bootstrap") for n in ("near", "far")}
        assert {name: rows[name][metric]["p"] for name in p} == p
        low, high = sorted(p, key=p.get)
        assert rows[low][metric]["p_holm"] == 2 * p[low] and rows[high][metric]["p_holm"] == max(2 * p[low], p[high])
    assert rows["far"]["rouge1"]["difference"] == pytest.approx((given["far"] - base)[:, 0].mean())


def test_metrics_have_every_number_in_one_shape(metrics, runs, examples):
    systems = metrics["systems"]
    assert list(systems) == ["Lead6", "Oracle", "dot", "tree"] and metrics["documents"] == 20
    for system in systems.values():
        for metric in ("rouge1", "rouge2", "rougeLsum", "auc", "ap"):  # the paper's ROUGE-L is over sentences
            assert set(system[metric]) == {"mean", "low", "high"}
    assert systems["dot"]["difference"] is None and systems["Oracle"]["auc"]["mean"] == 100
    assert set(systems["tree"]["difference"]["auc"]) == {"difference", "low", "high", "p", "p_holm"}
    assert [(row["seed"], row["draw"], row["runs"]) for row in systems["tree"]["seeds"]] == [(0, None, 1), (1, None, 1)]
    assert systems["tree"]["examples"] == 0
    assert systems["dot"]["attention"] == "Dot Product(8)" and systems["dot"]["heads"] == 8
    assert systems["Oracle"]["rouge1"]["mean"] > max(s["rouge1"]["mean"] for n, s in systems.items() if n != "Oracle")
    json.dumps(metrics, allow_nan=False)


def test_rouge_l_is_over_sentences():
    """Rouge-L of Tables 2 and 3: two sentences in the other order keep their sequences."""
    document = SimpleNamespace(id="a", labels=np.array([True, False]))
    found = module.score([document], [["d e f", "a b c"]], [np.array([2, 1])], {"a": [["a b c", "d e f"]]})
    assert found["a"].tolist()[2:] == pytest.approx([100, 100, 100])


def test_a_document_that_several_runs_read_counts_once_with_their_mean(metrics, runs, examples):
    """In whatever order a run gives its documents."""
    one, two = metrics["systems"]["tree"]["seeds"]
    assert metrics["systems"]["tree"]["rouge1"]["mean"] == pytest.approx(
        (one["rouge1"]["mean"] + two["rouge1"]["mean"]) / 2
    )
    parts = [{"b": np.ones(3), "a": np.zeros(3)}, {"a": np.full(3, 4.0)}]
    assert {k: v.tolist() for k, v in module.mean_of_runs(parts).items()} == {"a": [2.0] * 3, "b": [1.0] * 3}
    assert list(module.mean_of_runs(parts)) == ["a", "b"]


def test_folds_are_one_system_and_each_document_is_tested_once(folder, tmp_path, capsys):
    paths = [str(folder / f"c-fold{fold}") for fold in range(3)]
    main([*paths, "--json", str(tmp_path / "m.json")])
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert list(metrics["systems"]) == ["Lead6", "Oracle", "c"]
    assert metrics["documents"] == 18 and metrics["systems"]["c"]["examples"] == 5
    (row,) = metrics["systems"]["c"]["seeds"]  # one seed, one draw: a row over its folds
    assert (row["seed"], row["draw"], row["runs"], row["auc"]) == (0, 0, 3, metrics["systems"]["c"]["auc"])
    folds = {path: load_run(path) for path in paths}
    drawn = {f"{path}-draw1": run._replace(config=replace(run.config, examples_seed=1)) for path, run in folds.items()}
    rows = evaluate(folds | drawn, read_examples(folds[paths[0]].config, "test"))["systems"].popitem()[1]["seeds"]
    assert [(row["seed"], row["draw"], row["runs"]) for row in rows] == [(0, 0, 3), (0, 1, 3)]
    other = {"c-fold0": load_run(folder / "c-fold0"), "d": load_run(folder / "c-fold1")}  # as many documents
    with pytest.raises(ValueError, match="d was tested on other documents than c"):
        evaluate(other, read_examples(TrainConfig("toy:count=9", folds=3), "test"))


def test_baselines_by_hand():
    """Lead: the first units, no more than a summary has; Oracle: its own, or Lead where it takes none."""
    config = TrainConfig(units_taken=2)

    def document(name, *labels):
        units = ["a b", "c d", "e f", "g h"]
        return SimpleNamespace(id=name, units=units, sentence=np.arange(4), labels=np.array(labels, dtype=bool))

    documents = [document("one", 0, 0, 1, 1), document("two", 0, 0, 0, 0), document("other", 1, 1, 1, 1)]
    references = dict.fromkeys(("one", "two", "other"), [["a b", "c d"]])
    rows = module.baselines(documents, config, references, {"one", "two"})
    assert list(rows) == ["Lead2", "Oracle"] and rows["Lead2"]["rouge1"]["mean"] == 100
    assert rows["Oracle"]["rouge1"]["mean"] == 50 and rows["Oracle"]["auc"]["mean"] == 100
    assert rows["Lead2"]["auc"]["mean"] == 0
    documents = [document("one", 0, 0, 1, 1), document("two", 0, 1, 1, 1)]
    references = dict.fromkeys(("one", "two"), [["a b", "c d", "e f", "g h"]])
    assert module.baselines(documents, config, references, {"one"})["Lead2"]["rouge1"]["mean"] == pytest.approx(200 / 3)


def test_systems_are_told_by_their_names():
    names = ("tree-seed1", "tree-fold10-seed2", "tree-draw2", "tree_3", "c_tree", "v2")
    assert [system_of(name) for name in names] == ["tree"] * 4 + ["c_tree", "v2"]


def test_command_line_writes_table_csv_json_and_predictions(folder, tmp_path, capsys):
    out = {name: tmp_path / f"new/table.{name}" for name in ("csv", "json")}
    names = ("dot", "tree-seed0", "tree-seed1")
    arguments = [str(folder / name) for name in names] + ["--limit", "7", "--predictions", str(tmp_path / "p")]
    main([*arguments, "--csv", str(out["csv"]), "--json", str(out["json"])])
    printed = capsys.readouterr().out
    metrics = json.loads(out["json"].read_text())
    assert printed == table(metrics) + "\n" and "n 7" in printed and "| D-Tree " in printed
    rows = list(csv.DictReader(out["csv"].open()))
    assert [(row["system"], row["seed"], row["runs"]) for row in rows] == [
        ("Lead6", "", "0"), ("Oracle", "", "0"), ("dot", "0", "1"), ("tree", "0 1", "2"),
        ("tree", "0", "1"), ("tree", "1", "1"),
    ]  # fmt: skip
    assert float(rows[3]["rouge1_mean"]) == pytest.approx(metrics["systems"]["tree"]["rouge1"]["mean"], rel=1e-4)
    predictions = read_jsonl(tmp_path / "p" / "tree-seed1.jsonl")
    assert len(predictions) == 7 and set(predictions[0]) == {"id", "prediction"}


def test_every_option_changes_what_evaluate_says(folder, tmp_path, capsys):
    def said(*flags, name="dot"):
        main([str(folder / name), *flags, "--json", str(tmp_path / "m.json")])
        return json.loads((tmp_path / "m.json").read_text())

    base, validation = said(), said("--split", "validation")
    assert (base["split"], validation["split"]) == ("test", "validation")
    assert base["systems"]["Lead6"]["rouge1"] != validation["systems"]["Lead6"]["rouge1"]
    assert said("--limit", "3")["documents"] == 3
    other = said("--data", "toy:signal=0,count=7", name="c-fold0")  # folds are of the run's own data
    assert other["documents"] == 7 and other["data"] == "toy:signal=0,count=7"
    said("--cache", str(tmp_path / "cache"))
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".npy"]


def test_documents_that_were_cut_are_counted_and_said(folder, tmp_path, capsys):
    """A short position table: every story loses units."""
    train(TrainConfig(**SMALL | dict(attention="none", positions=3, steps=1)), tmp_path / "short")
    main([str(tmp_path / "short"), "--limit", "5", "--json", str(tmp_path / "m.json")])
    assert "5 documents, counted once a run, were cut" in capsys.readouterr().err
    (row,) = json.loads((tmp_path / "m.json").read_text())["systems"]["short"]["seeds"]
    assert row["documents_cut"] == 5


def test_an_output_that_is_an_input_or_another_output_is_refused(folder, tmp_path, capsys):
    data = tmp_path / "test.jsonl"
    data.write_text(
        json.dumps({"id": "d", "document": ["It rained .", "We stayed ."], "summary": ["We stayed ."]}) + "\n"
    )
    (tmp_path / "link.json").symlink_to(data)
    before, run = data.read_bytes(), str(folder / "sentences")
    for flags in (
        ["--data", str(data), "--json", str(data)],
        ["--data", str(data), "--csv", str(tmp_path / "link.json")],
        ["--data", str(tmp_path), "--json", f"{tmp_path}/./test.jsonl"],
        ["--json", str(tmp_path / "a"), "--csv", str(tmp_path / "a")],
    ):
        with pytest.raises(SystemExit):
            main([run, *flags])
        assert "would be overwritten" in capsys.readouterr().err and data.read_bytes() == before


def test_outputs_are_opened_before_and_written_during_the_work(folder, examples, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stop:
        main([str(folder / "dot"), "--json", str(tmp_path)])
    assert stop.value.code == 1
    monkeypatch.setattr(module, "intervals", None)  # fails after the first run's predictions
    with pytest.raises(TypeError):
        evaluate({"dot": load_run(folder / "dot")}, examples, predictions=tmp_path)
    assert len(read_jsonl(tmp_path / "dot.jsonl")) == 20


def test_a_reference_that_rouge_cannot_read_is_named_before_the_work(runs, examples, monkeypatch):
    monkeypatch.setattr(module, "score_documents", None)
    bad = [examples[0], replace(examples[1], references=[["..."]])]
    with pytest.raises(ValueError, match=f"{examples[1].id}: the reference"):
        evaluate(runs, bad)


@pytest.mark.parametrize(
    ("names", "flags", "message"),
    [
        ([], [], "run"),
        (["no"], [], "no is not a run folder"),
        (["dot", "c-fold0/../dot"], [], "two runs have folders of the same name"),
        (["dot", "sentences"], [], "need the same --level"),
        (["dot", "c-fold0"], [], "trained on different data: say with --data"),
        (["c-fold0"], ["--limit", "3"], "--split test or validation, no --limit"),
        (["dot"], ["--limit", "0"], "--limit is 0; it must be a whole number from 1"),
        (["dot"], ["--limt", "3"], "perhaps you meant --limit"),
        (["dot"], ["--device", "nowhere"], "--device nowhere cannot be used"),
        (["dot"], ["--data", "/no/data"], "no file or folder"),
    ],
)
def test_bad_command_lines(folder, names, flags, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main([str(folder / name) for name in names] + flags)
    assert stop.value.code == 2 and message in capsys.readouterr().err


def test_two_models_are_not_one_system(folder, examples):
    runs = {"a-seed0": load_run(folder / "dot"), "a-seed1": load_run(folder / "tree-seed1")}
    with pytest.raises(ValueError, match="a-seed1 is not the model of the others called a: rename its folder"):
        evaluate(runs, examples)
    with pytest.raises(ValueError, match="give at least one run folder"):
        evaluate({}, examples)
