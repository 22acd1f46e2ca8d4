"""The two commands from end to end: train, kill, resume; predict on texts, trees and data; one bad
input each.
"""

import json
import shutil
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("shared")

from shared.data import Example
from shared.score import score

from .. import predict as module
from .. import train as training
from ..config import TrainConfig
from ..loading import Run, load, load_run
from ..predict import predict
from ..text import Document
from ..train import train

SMALL = dict(
    data="toy:signal=0,count=8,max_sentences=8", steps=6, batch_size=5, save_every=2, warmup=2
)
STORM = Path(__file__).with_name("storm")  # .txt, .dis


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Finished runs: of EDUs, of sentences along trees, and of sentences without."""
    folder = tmp_path_factory.mktemp("runs")
    train(TrainConfig(**SMALL, attention="d_tree", units_taken=1, seed=5), folder / "edu-5")
    train(
        TrainConfig(**SMALL | dict(steps=1), attention="c_tree", level="sentence"),
        folder / "sentence",
    )
    train(TrainConfig(**SMALL | dict(steps=1), attention="dot", level="sentence"), folder / "plain")
    return folder


def test_a_run_can_read_the_encoder_of_another(runs, tmp_path):
    """--encoder, by folder, which is not copied into the run."""
    flags = dict(SMALL, attention="none", encoder=str(runs / "edu-5/encoder"))
    train(TrainConfig(**flags | {"steps": 1}), tmp_path / "run")
    one, other = (
        load_run(folder).encoder.encode(["two bridges"])
        for folder in (tmp_path / "run", runs / "edu-5")
    )
    assert np.array_equal(one, other) and not (tmp_path / "run/encoder").exists()


def test_lead_and_oracle_by_hand():
    """Lead: the first units, no more than a summary has; Oracle: its own, or Lead's where it takes
    none.
    """
    labels = np.array([False, False, False, True])
    document = Document("d", list("abcd"), np.arange(4), [[]] * 4, [["x"]], None, labels)

    class Given(Run):
        def encode(self, examples):
            return [document]

        def scores(self, documents, batch_size):
            return [np.array([0.0, 1, 3, 2])]

    def prediction(take, summary="x"):
        example = SimpleNamespace(id="e", references=[[summary]])
        (row,) = predict(Given(TrainConfig(units_taken=2), None, None), [example], take)
        return row["prediction"]

    assert [prediction(take) for take in ("model", "lead", "oracle")] == [
        ["c", "d"],
        ["a", "b"],
        ["d"],
    ]
    labels[:] = False
    assert prediction("oracle") == ["a", "b"]
    # D7: the oracle reads English; what the model takes needs no oracle
    assert prediction("model", "дождь") == ["c", "d"]
    with pytest.raises(ValueError, match="1 of 1 documents have summaries not written in a-z: e"):
        prediction("oracle", "дождь")
    document.references.clear()
    with pytest.raises(ValueError, match="d has no reference, which the oracle needs"):
        prediction("oracle")


def test_predict_on_data_ends_with_the_table(runs, tmp_path, capsys):
    """A row of each document, with the units that were taken; Lead under its own name."""
    run = str(runs / "edu-5")
    module.main(
        [
            run,
            "--split",
            "test",
            "--limit",
            "2",
            "--units",
            "3",
            "--out",
            str(tmp_path / "longer.jsonl"),
        ]
    )
    rows = [json.loads(line) for line in (tmp_path / "longer.jsonl").read_text().splitlines()]
    assert min(row["units"][0] for row in rows) >= 3  # the run was trained to take 1
    capsys.readouterr()
    for take in ("model", "lead"):
        flags = [
            "--data",
            SMALL["data"],
            "--limit",
            "7",
            "--take",
            take,
            "--out",
            str(tmp_path / f"{take}.jsonl"),
        ]
        module.main([run, *flags])
        rows = [json.loads(line) for line in (tmp_path / f"{take}.jsonl").read_text().splitlines()]
        assert [row["id"] for row in rows] == [
            example.id for example in load(SMALL["data"], "test", 7)
        ]
        system = "edu" if take == "model" else take
        assert (
            {row["system"] for row in rows} == {system}
            and rows[0]["references"]
            and rows[0]["units"][0] >= 1
        )
        assert {row["seed"] for row in rows} == {5 if take == "model" else 0}  # Lead has no seed
        said = capsys.readouterr().out
        assert f"| {system}" in said and "rougeLsum" in said and "n 7" in said


def test_d22_systems_are_compared_by_intervals_and_approximate_randomisation(runs):
    """D22: of the difference, over the documents of both."""
    run, examples, rows = load_run(runs / "edu-5"), load(SMALL["data"], "test"), []
    for take in ("model", "lead"):
        outputs = zip(examples, predict(run, examples, take), strict=True)
        rows += [
            row | {"references": each.references, "system": take, "seed": 0}
            for each, row in outputs
        ]
    table = {
        (row["system"], row["minus"], row["metric"]): row for row in score(rows, minus=["lead"])
    }
    difference = table["model", "lead", "rouge1"]
    assert (
        difference["low"] <= difference["value"] <= difference["high"] and 0 < difference["p"] <= 1
    )


def test_predict_reads_trees_of_each_kind(runs, tmp_path, capsys):
    """Of a tree's own file all lines are one document, as in the README; of a folder, ID.dis, each
    line is one.
    """
    text = " ".join(STORM.with_suffix(".txt").read_text().split())
    for run, longest in (("sentence", len(text)), ("edu-5", 59)):
        module.main([str(runs / run), f"{STORM}.txt", "--tree", f"{STORM}.dis"])
        summary = capsys.readouterr().out.strip()
        assert summary in text and 0 < len(summary) <= longest
    # sentences that are given stay
    given = Example("", ["Mr. Smith left.", "We stayed."], ["x"], [["x"]])
    assert module.with_trees([given], STORM.with_suffix(".dis"))[0].document == given.document
    with pytest.raises(ValueError, match="there is no text"):
        module.with_trees([], STORM.with_suffix(".dis"))
    (tmp_path / "two.txt").write_text(f"{text}\nIt rained.\n")
    shutil.copyfile(f"{STORM}.dis", tmp_path / "two-1.dis")
    (tmp_path / "two-2.dis").write_text("( Root (leaf 1) (text _!It rained._!) )")
    out = ["--tree", str(tmp_path), "--out", str(tmp_path / "out.jsonl")]
    module.main([str(runs / "edu-5"), str(tmp_path / "two.txt"), "--units", "1", *out])
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert (
        second["id"] == "two-2"
        and second["prediction"] == ["It rained."]
        and second["units"] == [1, 1]
    )
    assert first["prediction"] == [summary]


def test_predict_splits_plain_documents_keeps_blank_lines_and_says_what_was_cut(
    runs, monkeypatch, capsys
):
    monkeypatch.setattr(
        sys,
        "stdin",
        StringIO("It rained. We stayed. They left. " * 400 + "\n\nOne sentence only.\n"),
    )
    module.main([str(runs / "plain")])
    said = capsys.readouterr()
    assert (
        said.out.splitlines()[1:] == ["", "One sentence only."]
        and "1 of 3 documents are longer than" in said.err
    )


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (
            training,
            ["--out", "{tmp}/new", "--data", "toy:count=5", "--encoder", "/none"],
            "is no folder '/none'",
        ),
        (training, ["--out", "{tmp}/new", "--heads", "8"], "the same weights in every head"),
        (training, ["--out", "{tmp}/new", "--data", "{tmp}/cut.jsonl"], "d.dis:2: one whole tree"),
        (
            module,
            ["{run}", "{tmp}/in.txt"],
            "in-1 has no tree in-1.dis (the clauses come from it, or take --level sentence): make",
        ),
        (
            module,
            ["{run}", "{tmp}/in.txt", "--tree", "{tmp}/in.dis"],
            "in.dis: EDUs and text are not the same",
        ),
        (module, ["{plain}", "{tmp}/in.txt", "--out", "{tmp}/in.txt"], "in.txt exists"),
    ],
)
def test_bad_input_is_one_line_and_loses_nothing(runs, tmp_path, capsys, command, flags, message):
    row = {
        "id": "d",
        "document": ["a storm ."],
        "summary": "a storm",
        "tree": "( Root (leaf 1)\n (text _!a storm ._!)",
    }
    (tmp_path / "cut.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "in.txt").write_text("It rained.\n")
    shutil.copyfile(f"{STORM}.dis", tmp_path / "in.dis")
    names = dict(tmp=tmp_path, run=runs / "edu-5", plain=runs / "plain")
    before = {
        path: path.read_bytes()
        for path in [*names["run"].iterdir(), *tmp_path.iterdir()]
        if path.is_file()
    }
    with pytest.raises(SystemExit) as stop:
        command.main([flag.format(**names) for flag in flags])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1 and message in error
    assert {path: path.read_bytes() for path in before} == before and not (
        tmp_path / "new"
    ).exists()
