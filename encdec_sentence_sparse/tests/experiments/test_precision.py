"""Quality at other precisions, by one command."""

import csv
from dataclasses import replace

import pytest

pytest.importorskip("shared")

from ...evaluate import evaluate
from ...experiments import precision
from ...experiments.precision import main
from ...loading import load_run
from ...train import train
from ..test_train import DATA, SMALL


def test_a_row_for_each_system_and_precision(tmp_path, capsys, monkeypatch):
    train(replace(SMALL, steps=2, max_source=400), tmp_path / "base")
    seen = []

    def evaluate_and_note(runs, examples, r):
        seen.append((len(examples), r, {type(m).__name__ for run in runs.values() for m in run.model.modules()}))
        return evaluate(runs, examples, modes=("ideal",), r=r, max_length=6, num_beams=1)

    monkeypatch.setattr(precision, "evaluate", evaluate_and_note)
    flags = ["--data", DATA, "--limit", "3", "--precisions", "float32", "packed", "int8", "--r", "2"]
    main([str(tmp_path / "base"), *flags, "--csv", str(tmp_path / "p.csv")])
    rows = list(csv.DictReader((tmp_path / "p.csv").open()))
    kinds = ("float32", "packed", "int8")
    assert [(row["system"], row["precision"]) for row in rows] == [
        (name, kind) for kind in kinds for name in ("base.full", "base.ideal.r2")
    ]
    assert [(count, r) for count, r, _ in seen] == [(3, (2,))] * 3 and "base.ideal.r2" in capsys.readouterr().out
    assert ["PackedLinear" in found for *_, found in seen] == [False, True, False] and len(seen[0][2] ^ seen[2][2]) > 0
    run = load_run(tmp_path / "base")  # float32 is the run itself, which no conversion has changed
    from shared.data import load

    expected = evaluate({"base": run}, load(DATA, "test", 3), modes=("ideal",), r=(2,), max_length=6, num_beams=1)
    assert float(rows[0]["rouge1_mean"]) == pytest.approx(expected["systems"]["base.full"]["rouge1"]["mean"], rel=1e-4)
