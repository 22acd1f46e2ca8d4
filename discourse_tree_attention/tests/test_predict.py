"""The two commands: predict on texts, trees and data; what a user can do wrong."""

import json
import shutil
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("shared")

from shared.data import Example, read_jsonl
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
    for name, changes in (
        ("edu-5", {"attention": "d_tree", "units_taken": 1, "seed": 5}),
        ("sentence", {"attention": "c_tree", "level": "sentence", "steps": 1}),
        ("plain", {"attention": "dot", "level": "sentence", "steps": 1}),
    ):
        train(TrainConfig(**SMALL | changes), folder / name)
    return folder


def test_a_run_can_read_the_encoder_of_another(runs, tmp_path):
    """--encoder, by folder, which is not copied into the run."""
    changes = {"attention": "none", "encoder": str(runs / "edu-5/encoder"), "steps": 1}
    train(TrainConfig(**SMALL | changes), tmp_path / "run")
    folders = tmp_path / "run", runs / "edu-5"
    one, other = (load_run(folder).encoder.encode(["two bridges"]) for folder in folders)
    assert np.array_equal(one, other) and not (tmp_path / "run/encoder").exists()


def test_lead_and_oracle_by_hand():
    """Lead: the first units. Oracle: its own units, or Lead's where it takes none."""
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

    assert prediction("model") == ["c", "d"]
    assert prediction("lead") == ["a", "b"]
    assert prediction("oracle") == ["d"]
    labels[:] = False
    assert prediction("oracle") == ["a", "b"]
    # D7: the oracle reads English; what the model takes needs no oracle
    assert prediction("model", "дождь") == ["c", "d"]
    with pytest.raises(ValueError, match="1 of 1 documents have summaries not written in a-z: e"):
        prediction("oracle", "дождь")
    document.references.clear()
    with pytest.raises(ValueError, match="d has no reference, which the oracle needs"):
        prediction("oracle")


def test_predict_on_data_ends_with_the_table_d22_systems_are_compared(runs, tmp_path, capsys):
    """A row of each document, with the units that were taken; Lead under its own name."""
    run, rows = str(runs / "edu-5"), []
    out = str(tmp_path / "longer.jsonl")
    module.main([run, "--split", "test", "--limit", "2", "--units", "3", "--out", out])
    # the run was trained to take 1
    assert min(row["units"][0] for row in read_jsonl(out)) >= 3
    capsys.readouterr()
    # Lead has a name of its own and no seed.
    for take, system, seed in (("model", "edu", 5), ("lead", "lead", 0)):
        out = str(tmp_path / f"{take}.jsonl")
        module.main([run, "--data", SMALL["data"], "--limit", "7", "--take", take, "--out", out])
        said = capsys.readouterr().out
        assert f"| {system}" in said and "rougeLsum" in said and "n 7" in said
        own = read_jsonl(out)
        assert [row["id"] for row in own] == [each.id for each in load(SMALL["data"], "test", 7)]
        assert {(row["system"], row["seed"]) for row in own} == {(system, seed)}
        assert own[0]["references"] and own[0]["units"][0] >= 1
        rows += own
    # D22: of the difference an interval, and p by approximate randomisation.
    difference = next(row for row in score(rows) if row["minus"] and row["metric"] == "rouge1")
    assert difference["low"] <= difference["value"] <= difference["high"]
    assert 0 < difference["p"] <= 1


def test_predict_reads_trees_of_each_kind(runs, tmp_path, capsys):
    """A tree's own file makes all lines one document; in a folder, ID.dis, each line is one."""
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
    flags = ["--units", "1", "--tree", str(tmp_path), "--out", str(tmp_path / "out.jsonl")]
    module.main([str(runs / "edu-5"), str(tmp_path / "two.txt"), *flags])
    first, second = read_jsonl(tmp_path / "out.jsonl")
    assert first["prediction"] == [summary] and second["id"] == "two-2"
    assert second["prediction"] == ["It rained."] and second["units"] == [1, 1]


def test_predict_splits_plain_documents_keeps_blank_lines_and_says_what_was_cut(
    runs, monkeypatch, capsys
):
    text = "It rained. We stayed. They left. " * 400 + "\n\nOne sentence only.\n"
    monkeypatch.setattr(sys, "stdin", StringIO(text))
    module.main([str(runs / "plain")])
    said = capsys.readouterr()
    assert said.out.splitlines()[1:] == ["", "One sentence only."]
    assert "1 of 3 documents are longer than" in said.err


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training, "--out {tmp}/new --encoder /none", "is no folder '/none'"),
        (training, "--out {tmp}/new --heads 8", "the same weights in every head"),
        (training, "--out {tmp}/new --data {tmp}/cut.jsonl", "d.dis:2: one whole tree"),
        # D7: of training and validation
        (training, "--out {tmp}/new --data {tmp}/foreign.jsonl", "2 of 2 documents have summaries"),
        (module, "{run} {tmp}/in.txt", "in-1 has no tree in-1.dis (the clauses come from it, or"),
        (
            module,
            "{run} {tmp}/in.txt --tree {tmp}/in.dis",
            "in.dis: EDUs and text are not the same",
        ),
        (module, "{plain} {tmp}/in.txt --out {tmp}/in.txt", "in.txt exists"),
    ],
)
def test_bad_input_is_one_line_and_loses_nothing(runs, tmp_path, capsys, command, flags, message):
    row = {"id": "d", "document": ["a storm ."], "summary": "a storm"}
    cut = row | {"tree": "( Root (leaf 1)\n (text _!a storm ._!)"}
    (tmp_path / "cut.jsonl").write_text(json.dumps(cut))
    (tmp_path / "foreign.jsonl").write_text(json.dumps(row | {"summary": "шёл дождь"}))
    (tmp_path / "in.txt").write_text("It rained.\n")
    shutil.copyfile(f"{STORM}.dis", tmp_path / "in.dis")
    names = dict(tmp=tmp_path, run=runs / "edu-5", plain=runs / "plain")
    files = [path for path in [*names["run"].iterdir(), *tmp_path.iterdir()] if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    with pytest.raises(SystemExit) as stop:
        command.main(flags.format(**names).split())
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1 and message in error
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "new").exists()
