"""Evaluation: systems and tables, the dagger marks, new text, bad input."""

import csv
import json

import numpy as np
import pytest

pytest.importorskip("shared")

from shared.data import read_jsonl

from .. import evaluate as module
from ..evaluate import SYSTEMS, System, evaluate, main, marks, significantly_worse
from ..train import main as train_main

SMALL = ["--steps", "4", "--batch", "8", "--evaluate-every", "4", "--head-width", "8", "--inner", "16"]
TOY = ["--data", "toy:signal=0,count=20"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Small runs: dot product, tree, and a tree at sentence level."""
    folder = tmp_path_factory.mktemp("runs")
    for name, flags in {
        "dot": ["--attention", "dot"],
        "tree": ["--attention", "d_tree"],
        "sentences": ["--level", "sentence", "--attention", "c_tree"],
    }.items():
        train_main(["--out", str(folder / name), *TOY, *SMALL, *flags])
    return folder


def systems_of(**values):
    """Systems with given ROUGE of 200 documents; the number of heads is the first item."""
    found = {}
    for name, (heads, numbers) in values.items():
        found[name] = System(heads=heads)
        for metric in module.METRICS.values():
            for i, value in enumerate(numbers):
                found[name].values[metric][f"{i:03d}"].append(float(value))
    return found


def test_daggers_as_in_tables_2_and_3():
    """† = not significantly worse than the best single-head model, ‡ = than the 8-head model; baselines bear none."""
    noise = np.random.default_rng(0).normal(size=(3, 200))
    base = np.linspace(20, 60, 200)
    systems = systems_of(
        Lead=(None, base), Eight=(8, base), Best=(1, base + 0.1 * noise[0]),
        Near=(1, base + noise[1] - noise[1].mean() - 0.05), Far=(1, base - 5 + noise[2]),
    )  # fmt: skip
    assert marks(systems, "rouge1") == {"Lead": "", "Eight": "", "Best": "‡", "Near": "†‡", "Far": ""}


def test_a_control_with_shuffled_trees_is_not_the_best_model():
    systems = systems_of(Best=(1, np.arange(50.0))) | {"D-Tree, shuffled": systems_of(a=(1, np.arange(50.0) + 1))["a"]}
    assert marks(systems, "rouge1") == {"Best": "", "D-Tree, shuffled": "†"}
    systems.pop("Best")
    assert marks(systems, "rouge1") == {"D-Tree, shuffled": ""}


def test_daggers_need_no_eight_head_model():
    systems = systems_of(Best=(1, np.arange(50.0) + 1), Same=(1, np.arange(50.0)))
    assert marks(systems, "rouge2") == {"Best": "", "Same": ""}  # worse by 1 on every document
    assert marks(systems_of(Lead=(None, np.ones(5))), "rouge1") == {"Lead": ""}


def test_better_is_never_significantly_worse():
    systems = systems_of(a=(1, np.arange(100.0)), b=(1, np.arange(100.0) - 9))
    assert significantly_worse(systems["b"], systems["a"], "rouge1")
    assert not significantly_worse(systems["a"], systems["b"], "rouge1")
    other = systems_of(c=(1, np.arange(99.0)))["c"]
    with pytest.raises(ValueError, match="100 and 99 documents; a paired test needs the same"):
        significantly_worse(systems["a"], other, "rouge1")


def test_a_document_that_several_runs_read_counts_once_with_their_mean(runs):
    once = evaluate({"tree": [runs / "tree"]}, cache=str(runs / "cache"))
    twice = evaluate({"tree": [runs / "tree", runs / "dot"]}, cache=str(runs / "cache"))
    dot = evaluate({"dot": [runs / "dot"]}, cache=str(runs / "cache"))["dot"]
    expected = (once["tree"].means("rouge1") + dot.means("rouge1")) / 2
    np.testing.assert_allclose(twice["tree"].means("rouge1"), expected)
    assert len(twice["tree"].runs) == 2 and len(twice["Oracle"].means("rouge1")) == 20
    np.testing.assert_allclose(twice["Oracle"].means("rouge1"), once["Oracle"].means("rouge1"))


def test_oracle_is_above_lead_and_models_between(runs):
    systems = evaluate({"tree": [runs / "tree"]}, cache=str(runs / "cache"))
    means = {name: system.means("rouge1").mean() for name, system in systems.items()}
    assert list(means) == ["Lead6", "Oracle", "tree"]
    assert means["Oracle"] > means["tree"] and means["Oracle"] > means["Lead6"]


def test_two_levels_do_not_share_a_table(runs):
    with pytest.raises(ValueError, match="do not go into one table"):
        evaluate({"a": [runs / "tree"], "b": [runs / "sentences"]})


def test_command_line_writes_table_csv_json_and_predictions(runs, tmp_path, capsys):
    out = {name: tmp_path / f"table.{name}" for name in ("csv", "json")}
    arguments = [str(runs / "dot"), str(runs / "tree"), "--limit", "7", "--cache", str(runs / "cache")]
    main([*arguments, "--csv", str(out["csv"]), "--json", str(out["json"]), "--predictions", str(tmp_path / "p")])
    printed = capsys.readouterr().out
    table = json.loads(out["json"].read_text())
    assert [row["system"] for row in table] == ["Lead6", "Oracle", "dot", "tree"]
    assert f"| tree | {table[3]['Rouge-1']:.2f}" in printed and "n 7" in printed
    assert list(csv.DictReader(out["csv"].open()))[2]["system"] == "dot"
    assert all(row["documents"] == 7 for row in table)
    rows = read_jsonl(tmp_path / "p" / "tree.jsonl")
    assert len(rows) == 7 and set(rows[0]) == {"id", "prediction", "reference"}


def test_tables_train_what_is_missing_and_only_that(tmp_path, capsys, monkeypatch):
    """One command: both levels, both sizes; what is trained already stays as it is."""
    command = ["--tables", str(tmp_path / "t"), "--repeat", "fold=3", "--systems", "No attention", "D-Tree"]
    command += ["--csv", str(tmp_path / "csv"), "--", "--data", "toy:signal=0,count=9", "--folds", "3", *SMALL]
    main(command)
    printed = capsys.readouterr().out
    assert [f"{t}, {s}" in printed for t in ("Table 2", "Table 3") for s in ("default", "balanced")] == [True] * 4
    assert len(list((tmp_path / "t").glob("*/model.safetensors"))) == 2 * 2 * 2 * 3
    assert {path.name for path in (tmp_path / "csv").iterdir()} == {
        f"table_{n}_{size}.csv" for n in (2, 3) for size in ("default", "balanced")
    }
    rows = list(csv.DictReader((tmp_path / "csv" / "table_3_default.csv").open()))
    assert [row["system"] for row in rows] == ["Lead3", "Oracle", "No attention", "D-Tree"]
    assert rows[3]["documents"] == "18" and rows[3]["runs"] == "3"  # each document is in one test fold
    monkeypatch.setattr(module, "train", None)
    main(command)
    assert capsys.readouterr().out == printed
    with pytest.raises(SystemExit, match="was trained with other flags"):
        main([*command, "--dropout", "0.3"])


def test_every_row_of_the_tables_is_there():
    """Tables 2 and 3, without the rows that are quoted from other papers."""
    assert list(SYSTEMS) == [
        "Dot Product(8)", "Dot Product(1)", "Dense", "Learned Random", "Fixed Random", "No attention", "D-Tree",
        "C-Tree", "C-Tree w/Nuc",
    ]  # fmt: skip


DIS = """( Root (span 1 2)
  ( Satellite (leaf 1) (rel2par attribution) (text _!officials said_!) )
  ( Nucleus (leaf 2) (rel2par span) (text _!that it rained ._!) )
)
"""


def test_new_text_with_a_parsers_tree(runs, tmp_path, capsys):
    (tmp_path / "new.txt").write_text("officials said that it rained .\n")
    (tmp_path / "new.dis").write_text(DIS)
    main([str(runs / "tree"), "--text", str(tmp_path / "new.txt"), "--tree", str(tmp_path / "new.dis")])
    assert capsys.readouterr().out == "officials said that it rained .\n"


def test_new_text_without_a_tree(runs, tmp_path):
    (tmp_path / "new.txt").write_text("officials said that it rained .\n")
    with pytest.raises(SystemExit, match="new has no EDUs: give it a discourse tree"):
        main([str(runs / "dot"), "--text", str(tmp_path / "new.txt")])
    with pytest.raises(SystemExit, match="'new' has no discourse tree, which c_tree attention needs"):
        main([str(runs / "sentences"), "--text", str(tmp_path / "new.txt")])


def test_a_tree_of_another_text_is_refused(runs, tmp_path):
    (tmp_path / "new.txt").write_text("officials said that it snowed .\n")
    (tmp_path / "new.dis").write_text(DIS)
    with pytest.raises(SystemExit, match="new.*'rained'.*'snowed'"):
        main([str(runs / "tree"), "--text", str(tmp_path / "new.txt"), "--tree", str(tmp_path / "new.dis")])
    (tmp_path / "new.json").write_text('[[[1, 1], "Satellite"], [[2, 2], "Nucleus"]]')
    with pytest.raises(SystemExit, match="new.json has no text at its leaves"):
        main([str(runs / "tree"), "--text", str(tmp_path / "new.txt"), "--tree", str(tmp_path / "new.json")])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "give run folders, or --tables FOLDER"),
        (["/no/run"], "/no/run/config.json does not exist"),
        (["/no/run", "--", "--steps", "3"], "flags after -- are those of training, for --tables"),
        (["a/x", "b/x"], "two runs have folders of the same name"),
        (["--tables", "t", "--repeat", "seed"], "--repeat is 'seed'; write seed=3"),
        (["--tables", "t", "--repeat", "subset_seed=2"], "--repeat subset_seed needs --subset N"),
        (["/no/run", "--text", "/no/text"], "/no/run/config.json does not exist"),
        (["--text", "/no/text"], "--text needs one run folder"),
        (["--tables", "t", "--repeat", "fold=4", "--", "--folds", "5"], "--repeat fold=4 needs --folds 4, not 5"),
    ],
)
def test_bad_command_lines(flags, message):
    with pytest.raises(SystemExit, match=f"error: .*{message}"):
        main(flags)
