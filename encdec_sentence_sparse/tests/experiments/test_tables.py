"""The paper's tables from committed CSVs: names, the tables they belong to, numbers, and what a bad file gets."""

import csv
import re

import pytest

pytest.importorskip("shared")

from shared.data import write_csv

from ...experiments.tables import length_rows, main, read_rows, system_rows, title

RUN = dict(
    task="base", seed=4, gamma=0.0, sentence_encoder=None, select=None, r_train=None, sources_cut=3,
    source_tokens=100.0, source_sentences=9.5, target_tokens=25.0,
)  # fmt: skip


def system(name: str, mode: str, mean: float, **more) -> dict:
    """A row as evaluate --csv writes it."""
    scores = {metric: {"mean": mean, "low": mean - 1, "high": mean + 2} for metric in ("rouge1", "rouge2", "rougeLsum")}
    gap = {"difference": mean - 90, "low": mean - 91, "high": mean - 88, "p": 0.5}
    gaps = {"difference": gap, "cost": gap | {"p": 0.25}}
    run = {"system": f"{name}.{mode}", "run": name, "mode": mode, "r": 5, "phi": None}
    return {"data": "toy", "split": "test", "examples": 9} | RUN | run | scores | gaps | more


def test_rows_are_those_that_evaluate_wrote(tmp_path):
    """Numbers as such, what is empty as None, intervals together; also of CSVs that do not say their data."""
    rows = [system("base", "full", 90.5), system("apx", "approx", 88.25, task="integrated", select="mix", r_train=2)]
    write_csv(tmp_path / "m.csv", rows)
    assert read_rows(tmp_path / "m.csv") == rows
    older = [{key: value for key, value in row.items() if key not in ("data", "split", "examples")} for row in rows]
    write_csv(tmp_path / "m.csv", older)
    assert read_rows(tmp_path / "m.csv") == older


@pytest.mark.parametrize(
    ("run", "mode", "expected", "tables"),
    [
        ({}, "random", "Vanilla", "2, 3, 5"),
        ({}, "full", "Vanilla", "2, 3"),
        ({}, "mean_key", "Vanilla", ""),
        ({}, "model_free", "Vanilla", "6"),
        ({"task": "sparse", "gamma": 0.1}, "random", "L_A-tuned, gamma 0.1", "2, 5"),
        ({"task": "kl", "sentence_encoder": "gru"}, "approx", "KL-only, gru", "3, 6"),
        ({"task": "integrated", "select": "approx", "r_train": 2}, "approx", "Int-Apx, r 2", "3, 6"),
        ({"task": "integrated", "select": "ideal", "r_train": 3}, "approx", "Int-Idl, r 3", "3, 6"),
        ({"task": "integrated", "select": "mix", "r_train": 4}, "full", "Int-Mix, r 4", ""),
    ],
)
def test_systems_have_the_papers_names_and_tables(run, mode, expected, tables):
    row = system("x", mode, 50.0, **run)
    [shown] = system_rows([row])
    assert title(row) == shown["the paper's"] == expected and shown["table"] == tables
    assert shown["R-1"] == row["rouge1"] and shown["R-2"] == row["rouge2"] and shown["R-L"] == row["rougeLsum"]
    assert shown["R-1 minus first full"] == row["difference"] and shown["R-1 minus own full"] == row["cost"]


def test_table_4_has_a_row_for_each_run():
    rows = [system("a", "full", 1), system("a", "random", 2), system("b", "full", 3, source_tokens=50.0)]
    assert length_rows(rows) == [
        {"run": "a", "N": 100.0, "N1": 9.5, "M": 25.0, "N/M": 4.0, "cut": 3},
        {"run": "b", "N": 50.0, "N1": 9.5, "M": 25.0, "N/M": 2.0, "cut": 3},
    ]


def test_the_command_prints_each_file(tmp_path, capsys):
    for name in "ab":
        write_csv(tmp_path / f"{name}.csv", [system(name, "ideal", 70.0)])
    main([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")])
    printed = capsys.readouterr().out
    assert printed.count("Table 4") == 2 and "a.ideal" in printed and "b.ideal" in printed and "70.0" in printed


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "run,mode,r\nx,full,five\n"])
def test_a_file_of_another_sort_is_named(tmp_path, text, capsys):
    (tmp_path / "m.csv").write_text(text)
    for name in ("m.csv", "none.csv"):
        with pytest.raises(SystemExit):
            main([str(tmp_path / name)])
        assert re.search(rf"error: .*{name} is not what evaluate --csv writes", capsys.readouterr().err)


@pytest.mark.parametrize(
    "change",
    [{"task": "x"}, {"mode": "x"}, {"r": None}, {"gamma": "nan"}, {"rouge1_mean": "inf"}, {"target_tokens": 0}]
    + [{"task": "integrated"}, {"task": "integrated", "select": "mix"}, {"cost_p": ""}, {"phi": "gone"}]
    + [{"sentence_encoder": "gone"}],
)
def test_a_row_that_evaluate_does_not_write_is_refused(tmp_path, change):
    write_csv(tmp_path / "m.csv", [system("base", "full", 90.5)])
    [row] = csv.DictReader((tmp_path / "m.csv").read_text().splitlines())
    kept = {name: value for name, value in (row | change).items() if value != "gone"}
    write_csv(tmp_path / "m.csv", [kept])
    with pytest.raises(ValueError, match="m.csv is not what evaluate --csv writes"):
        read_rows(tmp_path / "m.csv")


def test_the_columns_are_those_of_evaluate(tmp_path):
    """What read_rows takes apart is what evaluate's own test finds in its file."""
    write_csv(tmp_path / "m.csv", [system("base", "full", 90.5)])
    columns = next(csv.reader((tmp_path / "m.csv").open()))
    assert {"rouge1_mean", "rougeLsum_high", "difference_difference", "cost_p"} <= set(columns)
