"""The three commands from end to end: train, kill, resume; evaluate; predict; one bad input each."""

import csv
import json
from dataclasses import fields, replace

import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file

from shared.data import Example
from shared.run import parse, read_flags

from .. import evaluate, predict
from .. import train as training
from ..config import PRESETS, TrainConfig, learning_rate
from ..decode import decode
from ..loading import load_run
from ..train import train
from .conftest import BERT, SMALL

TEXTS = ["Mara Kelman opened a bridge . It rained .", "One .", "A storm hit the town hall today . " * 4]


def log(run_dir) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


class Killed(BaseException):
    """Ends a training as a kill would."""


@pytest.mark.parametrize("name", ["pointer", "bertsum", "second phase"])
@pytest.mark.parametrize("fatal", [1, 3])
def test_a_killed_training_resumes_to_the_same_bits(trained, tmp_path, monkeypatch, name, fatal):
    """Dropout, Adam and the order of the data; before the first checkpoint, too."""
    config = {"pointer": SMALL, "bertsum": replace(BERT, accumulate=2)}.get(name)
    config = config or replace(SMALL, init=str(trained(SMALL)), coverage=True)
    whole = trained(config)

    def kill(step, *arguments):
        if step == fatal:
            raise Killed
        return learning_rate(step, *arguments)

    monkeypatch.setattr(training, "learning_rate", kill)
    with pytest.raises(Killed):
        train(config, tmp_path / "killed")
    monkeypatch.undo()
    train(config, tmp_path / "killed", resume=True)
    one, other = (load_file(folder / "model.safetensors") for folder in (whole, tmp_path / "killed"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert log(whole) == log(tmp_path / "killed")


def test_a_run_can_be_lengthened_and_read_in_progress(trained, tmp_path, capsys):
    longer = tmp_path / "run"
    training.main(["--out", str(longer), "--init", str(trained(SMALL)), "--steps", "2", "--diminishing", "dim"])
    training.main(["--out", str(longer), "--resume", "--steps", "4"])
    assert [row["step"] for row in log(longer)] == [0, 2, 4] and load_run(longer).config.diminishing == "dim"
    (longer / "model.safetensors").unlink()
    load_run(longer)
    assert "is not finished: reading" in capsys.readouterr().err


def test_the_end_of_a_training_says_whether_sources_are_read(trained, tmp_path, capsys, monkeypatch):
    """The loss with the documents exchanged; a line where it is no higher, and where the pointer does not copy."""
    monkeypatch.setattr(training, "copying_share", lambda *arguments: 0.004)
    train(replace(SMALL, steps=1), tmp_path / "a")
    monkeypatch.undo()
    first, *rest = capsys.readouterr().out.splitlines()
    loss = log(tmp_path / "a")[-1]["validation_loss"]
    assert f"validation loss {loss:.3f}; " in first and first.endswith("with the documents exchanged")
    assert "hardly reads its sources" in rest[0] and "hardly copies (0.4 % of the probability)" in rest[1]
    run, share = load_run(trained(SMALL)), training.copying_share
    items = run.encode(training.load(SMALL.data, "validation"))
    assert 0.1 < share(run, items) < 0.9
    run.model.decoder.switch.bias.data += 30
    assert share(run, items) < 1e-4


def test_d17_evaluate_writes_rows_and_numbers(trained, tmp_path):
    """Rows of each run and decoding, the lead and the reference; a second name of the run has the difference 0."""
    (tmp_path / "dim-0").symlink_to(run := trained(SMALL))
    (tmp_path / "same").symlink_to(run)
    out = ["--csv", str(tmp_path / "t.csv"), "--predictions", str(tmp_path / "p"), "--limit", "4", "--ablation"]
    evaluate.main([str(tmp_path / "dim-0"), str(tmp_path / "same"), *out])
    ways = ("only", "norm", "norm.blocking")
    rows = {way: [json.loads(line) for line in (tmp_path / f"p/dim-0.{way}.jsonl").open()] for way in ways}
    assert all(len(of) == 4 and of[0]["system"] == f"dim.{way}" and of[0]["references"] for way, of in rows.items())
    table = {(row["system"], row["minus"], row["metric"]): row for row in csv.DictReader(open(tmp_path / "t.csv"))}
    for way in ways:
        mean = sum(row["repetition2"] for row in rows[way]) / 4
        assert float(table[f"dim.{way}", "", "repetition2"]["value"]) == pytest.approx(mean, rel=1e-4)
    assert float(table["same.only", "dim.only", "rouge1"]["value"]) == 0
    assert {system for system, *_ in table} >= {"lead-3", "reference"}
    # D17: the decoder of See et al.; Section 4.2's length normalisation; and its blocking of trigrams.
    settings = [(way["length_penalty"], way["average"], way["trigram_blocking"]) for way in evaluate.ABLATION.values()]
    assert settings == [(0.0, True, False), (1.5, False, False), (1.5, False, True)]


def test_predict_writes_lines_in_order(trained, tmp_path, capsys):
    """As if each document were alone; cut documents are counted; flags of decoding are heard."""
    folder, path = trained(replace(SMALL, max_source=12, min_length=4)), tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS))
    capsys.readouterr()  # of the training
    predict.main([str(folder), str(path), "--batch-size", "2"])
    printed, run = capsys.readouterr(), load_run(folder)
    examples = [Example(str(n), [text.strip()], ["-"], [["-"]]) for n, text in enumerate(TEXTS)]
    alone = [dict(decode(run, [example], 1))[0] for example in examples]
    assert printed.out.splitlines() == [output.text for output in alone] and len({output.text for output in alone}) > 1
    assert "1 documents were cut to --max-source 12 tokens" in printed.err
    predict.main([str(folder), str(path), "--out", str(tmp_path / "o.jsonl"), "--max-length", "4"])
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").open()]
    assert [row["was_cut"] for row in rows] == [False, False, True]
    assert all(len(row["prediction"].split()) == 3 for row in rows)


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training, ["--out", "{tmp}/new", "--learning-rate", "nan"], "--learning-rate is nan"),
        (training, ["--out", "{tmp}/new", "--beam", "5000"], "--beam is 5000: at most the vocabulary's"),
        (training, ["--out", "{tmp}/new", "--init", "{run}", "--hidden", "9"], "--hidden: {run} has 8, leave it out"),
        (training, ["--out", "{tmp}/new", "--preset", "paper-dydim"], "a run of --preset paper is not a run folder"),
        (training, ["--out", "{tmp}/new", "--data", "{tmp}/bad.jsonl"], "bad.jsonl:1"),
        (evaluate, ["{run}", "--data", "{tmp}/none"], "no file or folder"),
        (evaluate, ["{run}", "--csv", "{run}/config.json"], "config.json exists"),
        (evaluate, ["{run}", "--average", "True", "--length-penalty", "1.5"], "exclude each other"),
        (predict, ["{run}", "{tmp}/bad.jsonl"], "bad.jsonl:1"),
        (predict, ["{run}", "{tmp}/in.txt", "--out", "{tmp}/in.txt"], "in.txt exists"),
    ],
)
def test_bad_input_is_one_line_and_loses_nothing(trained, tmp_path, capsys, command, flags, message):
    run = trained(SMALL)
    (tmp_path / "bad.jsonl").write_text('{"sorce": "x"}\n')
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    before = {path: path.read_bytes() for path in [*run.iterdir(), *tmp_path.iterdir()] if path.is_file()}
    with pytest.raises(SystemExit) as stop:
        command.main([flag.format(tmp=tmp_path, run=run) for flag in flags])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1 and message.format(run=run) in error
    assert {path: path.read_bytes() for path in before} == before and not (tmp_path / "new").exists()


@pytest.mark.parametrize("options", [TrainConfig, evaluate.Options, predict.Options])
def test_help_says_what_each_flag_does(capsys, options):
    with pytest.raises(SystemExit):
        parse(["--help"], options, PRESETS, "") if options is TrainConfig else read_flags(options, ["--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for field in fields(options):
        name = field.name.replace("_", "-")
        said = text.rpartition(f" {name.upper()} " if name in ("runs", "run", "files") else f" --{name} ")[2]
        assert len(said.partition("(default:")[0].split()) > 2 and "." in said, name
