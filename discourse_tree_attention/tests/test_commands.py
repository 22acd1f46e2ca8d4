"""The three commands from end to end: train, kill, resume; evaluate; predict; one bad input each."""

import csv
import json
import sys
from dataclasses import fields
from io import StringIO
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file

from shared.run import parse

from .. import evaluate, predict
from .. import train as training
from ..config import PRESETS, TrainConfig
from ..loading import load_run
from ..train import train

SMALL = dict(data="toy:signal=0,count=24", steps=6, batch_size=5, save_every=2, head_width=8, feed_forward=16, warmup=2)
TEXT = "Officials said that a storm hit the town on Monday. Nobody was hurt (they say)."
DIS = """( Root (span 1 3)
  ( Satellite (leaf 1) (rel2par attribution) (text _!Officials said_!) )
  ( Nucleus (span 2 3) (rel2par span)
    ( Nucleus (leaf 2) (rel2par span) (text _!that a storm hit the town on Monday ._!) )
    ( Satellite (leaf 3) (rel2par elaboration) (text _!Nobody was hurt ( they say ) ._!) )
  )
)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Finished runs: of EDUs, of sentences along trees, and of sentences without."""
    folder = tmp_path_factory.mktemp("runs")
    train(TrainConfig(**SMALL, attention="d_tree", units_taken=1, standardize=True), folder / "edu-0")
    train(TrainConfig(**SMALL | dict(steps=1), attention="c_tree", level="sentence"), folder / "sentence")
    train(TrainConfig(**SMALL | dict(steps=1), attention="previous", level="sentence"), folder / "plain")
    return folder


class Killed(BaseException):
    """Ends a training as a kill would."""


def same_weights(one, other):
    weights = load_file(other / "model.safetensors")
    return all(torch.equal(tensor, weights[name]) for name, tensor in load_file(one / "model.safetensors").items())


@pytest.mark.parametrize("at", [1, 4])
def test_a_killed_training_resumes_to_the_same_bits(runs, tmp_path, monkeypatch, at):
    """Dropout, Adam and the order of the data; before the first checkpoint, too (D24)."""
    config, rate = load_run(runs / "edu-0").config, training.learning_rate

    def kill(step, config):
        if step == at:
            raise Killed
        return rate(step, config)

    monkeypatch.setattr(training, "learning_rate", kill)
    with pytest.raises(Killed):
        train(config, tmp_path / "killed")
    monkeypatch.undo()
    train(config, tmp_path / "killed", resume=True)
    assert same_weights(runs / "edu-0", tmp_path / "killed")
    assert (runs / "edu-0/log.jsonl").read_text() == (tmp_path / "killed/log.jsonl").read_text()
    training.main(["--out", str(tmp_path / "killed"), "--resume", "--steps", "8"])
    train(TrainConfig(**vars(config) | {"steps": 8}), tmp_path / "long")
    assert same_weights(tmp_path / "long", tmp_path / "killed")


def test_evaluate_writes_rows_and_numbers(runs, tmp_path, capsys):
    """A second name of the run has the difference 0."""
    (tmp_path / "same").symlink_to(runs / "edu-0")
    out = ["--csv", str(tmp_path / "t.csv"), "--predictions", str(tmp_path / "p")]
    evaluate.main([str(runs / "edu-0"), str(tmp_path / "same"), "--limit", "7", *out])
    rows = [json.loads(line) for line in (tmp_path / "p/edu-0.jsonl").read_text().splitlines()]
    assert len(rows) == 7 and rows[0]["system"] == "edu" and rows[0]["references"]
    table = {(row["system"], row["minus"], row["metric"]): row for row in csv.DictReader(open(tmp_path / "t.csv"))}
    mean = sum(row["ap"][0] for row in rows) / sum(row["ap"][1] for row in rows)
    assert float(table["edu", "", "ap"]["value"]) == pytest.approx(100 * mean, rel=1e-4)
    assert float(table["same", "edu", "rouge1"]["value"]) == 0 and ("Oracle", "edu", "rouge1") in table
    said = capsys.readouterr().out
    assert "n 7" in said and "edu-0: 4,368 parameters in the attention, " in said


def test_predict_reads_trees_of_each_kind(runs, tmp_path, capsys):
    """Sentences are spelled as the text, EDUs as the tree; of a tree's own file all lines are one document."""
    (tmp_path / "new.txt").write_text(TEXT.replace(". N", ".\nN") + "\n")
    (tmp_path / "new.dis").write_text(DIS)
    predict.main([str(runs / "sentence"), str(tmp_path / "new.txt"), "--tree", str(tmp_path / "new.dis")])
    assert capsys.readouterr().out == TEXT + "\n"
    (tmp_path / "two.txt").write_text(f"{TEXT}\nIt rained.\n")
    (tmp_path / "two-1.dis").write_text(DIS)
    (tmp_path / "two-2.dis").write_text("( Root (leaf 1) (text _!It rained._!) )")
    out = ["--tree", str(tmp_path), "--out", str(tmp_path / "out.jsonl")]
    predict.main([str(runs / "edu-0"), str(tmp_path / "two.txt"), "--units", "1", *out])
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert second == {"id": "two-2", "prediction": ["It rained."], "was_cut": False}
    assert " ".join(first["prediction"]) in " ".join(DIS.split("_!")[1::2])


def test_the_example_of_the_readme(runs, capsys):
    folder = Path(__file__).parent
    predict.main([str(runs / "edu-0"), str(folder / "storm.txt"), "--tree", str(folder / "storm.dis")])
    summary, text = capsys.readouterr().out.strip(), (folder / "storm.txt").read_text().replace("\n", " ")
    assert summary in text and 0 < len(summary) < 60


def test_predict_splits_plain_documents_and_says_what_was_cut(runs, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", StringIO("It rained. We stayed. They left. " * 400 + "\nOne sentence only.\n"))
    predict.main([str(runs / "plain")])
    said = capsys.readouterr()
    assert said.out.splitlines()[1] == "One sentence only." and "1 documents are longer than" in said.err


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training, ["--out", "{tmp}/new", "--fold", "1"], "--fold 1 of --folds 0"),
        (training, ["--out", "{tmp}/new", "--encoder", "/no/encoder"], "no encoder '/no/encoder'"),
        (
            training,
            ["--out", "{tmp}/new", "--data", "{tmp}/cut.jsonl"],
            "cut.jsonl: d.dis:2: 1 brackets are still open",
        ),
        (evaluate, ["{run}", "--limit", "3", "--csv", "{run}/config.json"], "config.json exists"),
        (evaluate, ["{run}", "{plain}"], "need the same --level"),
        (predict, ["{run}", "{tmp}/in.txt"], "has no discourse tree: make it (python -m"),
        (predict, ["{run}", "{tmp}/in.txt", "--tree", "{tmp}/in.dis"], "in.dis: EDUs and text are not the same"),
        (predict, ["{plain}", "{tmp}/in.txt", "--out", "{tmp}/in.txt"], "in.txt exists"),
    ],
)
def test_bad_input_is_one_line_and_loses_nothing(runs, tmp_path, capsys, command, flags, message):
    row = {"id": "d", "document": ["a storm ."], "summary": "a storm", "tree": "( Root (leaf 1)\n (text _!a storm ._!)"}
    (tmp_path / "cut.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "in.txt").write_text("It rained.\n")
    (tmp_path / "in.dis").write_text(DIS)
    names = dict(tmp=tmp_path, run=runs / "edu-0", plain=runs / "plain")
    before = {path: path.read_bytes() for path in [*names["run"].iterdir(), *tmp_path.iterdir()] if path.is_file()}
    with pytest.raises(SystemExit) as stop:
        command.main([flag.format(**names) for flag in flags])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1 and message in error
    assert {path: path.read_bytes() for path in before} == before and not (tmp_path / "new").exists()


def test_help_says_what_each_flag_does(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"], TrainConfig, PRESETS, "")
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for field in fields(TrainConfig):
        said = text.partition(f"--{field.name.replace('_', '-')} ")[2].partition("(default:")[0]
        assert len(said.split()) > 4 and "." in said, field.name
