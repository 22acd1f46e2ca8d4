"""The three commands from end to end: train, kill, resume; evaluate; predict; one bad input each."""

import csv
import json
from dataclasses import fields

import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file, save_file  # noqa: E402

from shared.run import parse  # noqa: E402

from .. import evaluate, predict
from .. import train as training  # noqa: E402
from ..config import PRESETS, TrainConfig  # noqa: E402
from ..decode import decode_all  # noqa: E402
from ..loading import load_run  # noqa: E402
from ..predict import bracket_pruned  # noqa: E402
from ..text import train_tokenizer  # noqa: E402
from ..train import train  # noqa: E402
from .conftest import SMALL, log, same_weights  # noqa: E402

TEXTS = ["in Brenton two halls were built .", "the streets   were quiet .", "no town was named by anyone at all ."]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose gates are drawn at random, so that some are closed."""
    folder = tmp_path_factory.mktemp("runs") / "l0-0"
    train(SMALL, folder)
    weights = load_file(folder / "model.safetensors")
    torch.manual_seed(0)
    weights["l0drop.0.predictor.weight"] = 2 * torch.randn(1, SMALL.width)
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


class Killed(BaseException):
    """Ends a training as a kill would."""


@pytest.mark.parametrize("from_base", [False, True])
@pytest.mark.parametrize("at", [1, 3])
def test_a_killed_training_resumes_to_the_same_bits(whole, tmp_path, monkeypatch, from_base, at):
    """Dropout, gates, lambda's multiplier, Adam and the order of the data; before the first checkpoint, too."""
    name = "init" if from_base else "scratch"
    config, rate, steps = load_run(whole[name]).config, training.learning_rate, iter(range(100))

    def kill(*arguments):
        if next(steps) == at:
            raise Killed
        return rate(*arguments)

    monkeypatch.setattr(training, "learning_rate", kill)
    with pytest.raises(Killed):
        train(config, tmp_path / "killed")
    monkeypatch.undo()
    train(config, tmp_path / "killed", resume=True)
    assert same_weights(whole[name], tmp_path / "killed")
    assert log(whole[name]) == log(tmp_path / "killed")


def test_a_run_can_be_lengthened_and_read_in_progress(whole, tmp_path, capsys):
    longer = tmp_path / "run"
    training.main(["--out", str(longer), "--init", str(whole["base"]), "--steps", "2", "--average-last", "1"])
    training.main(["--out", str(longer), "--resume", "--steps", "4"])
    assert [row["step"] for row in log(longer)] == [0, 2, 4]
    (longer / "model.safetensors").unlink()
    load_run(longer)
    assert "is not finished: reading" in capsys.readouterr().err


def test_evaluate_writes_rows_and_numbers(run, tmp_path, capsys):
    """Sparsity is a share of all encodings; a second name of the run has the difference 0."""
    (tmp_path / "same").symlink_to(run)
    out = ["--csv", str(tmp_path / "t.csv"), "--predictions", str(tmp_path / "p")]
    evaluate.main([str(run), str(tmp_path / "same"), "--limit", "4", *out])
    rows = [json.loads(line) for line in (tmp_path / "p/l0-0.jsonl").read_text().splitlines()]
    assert len(rows) == 4 and rows[0]["system"] == "l0" and rows[0]["references"]
    table = {(row["system"], row["minus"], row["metric"]): row for row in csv.DictReader(open(tmp_path / "t.csv"))}
    pruned, encodings = (sum(row["pruned"][i] for row in rows) for i in (0, 1))
    assert float(table["l0", "", "pruned"]["value"]) == pytest.approx(100 * pruned / encodings, rel=1e-4)
    assert 0 < pruned < encodings
    assert float(table["same", "l0", "rouge1"]["value"]) == 0
    assert "pruned_punctuation" in capsys.readouterr().out


def test_predict_writes_lines_in_order(run, text_file, tmp_path, capsys):
    """As evaluate decodes them; brackets around what was pruned."""
    predict.main([str(run), str(text_file), "--batch-size", "2"])
    loaded, lines = load_run(run), capsys.readouterr().out.splitlines()
    examples = list(predict.read_texts([text_file]))
    outputs = decode_all(loaded, loaded.encode(examples))
    assert lines == [loaded.tokenizer.decode(output.tokens) for output in outputs]
    predict.main([str(run), str(text_file), "--show-pruned", "--out", str(tmp_path / "o.txt")])
    shown = (tmp_path / "o.txt").read_text().splitlines()[0::2]
    pruned = [output.pruned[-1][:-1] for output in outputs]
    tokens = [loaded.tokenizer.encode(example.source).tokens for example in examples]
    for line, closed, words in zip(shown, pruned, tokens, strict=True):  # the very words whose gates are closed
        inside = "".join(part.partition("]")[0] for part in line.split("[")[1:]).replace(" ", "")
        assert inside == "".join(w for w, gone in zip(words, closed, strict=True) if gone).replace("▁", "")


def test_brackets_by_hand():
    """A pair around each run of pruned tokens, the blank before it outside; the user's own spelling."""
    tokenizer = train_tokenizer(["the cat sat ."], "char", 0)
    source = "the cát"  # á is unknown to the tokenizer
    closed = [False] * 4 + [True] * 4  # characters and blanks: " the" then " cát"
    assert bracket_pruned(tokenizer, source, closed) == "the [cát]"
    assert bracket_pruned(tokenizer, source, closed[:6]) == "the [c]"  # cut
    assert bracket_pruned(tokenizer, source, [True] * 8) == "[the cát]"


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training, ["--out", "{tmp}/new", "--heads", "3"], "multiple of heads"),
        (training, ["--out", "{tmp}/new", "--learning-rate", "nan"], "--learning-rate is nan"),
        (training, ["--out", "{tmp}/new", "--init", "{run}", "--width", "32"], "--width: {run} has 16, leave it out"),
        (training, ["--out", "{tmp}/new", "--data", "{tmp}/bad.jsonl"], "bad.jsonl:1"),
        (evaluate, ["{run}", "--data", "{tmp}/none"], "no file or folder"),
        (evaluate, ["{run}", "--csv", "{run}/config.json"], "config.json exists"),
        (predict, ["{run}", "{tmp}/bad.jsonl"], "bad.jsonl:1"),
        (predict, ["{run}", "{tmp}/in.txt", "--out", "{tmp}/in.txt"], "in.txt exists"),
    ],
)
def test_bad_input_is_one_line_and_loses_nothing(run, text_file, tmp_path, capsys, command, flags, message):
    (tmp_path / "bad.jsonl").write_text('{"sorce": "x"}\n')
    before = {path: path.read_bytes() for path in [*run.iterdir(), *tmp_path.iterdir()] if path.is_file()}
    with pytest.raises(SystemExit) as stop:
        command.main([flag.format(tmp=tmp_path, run=run) for flag in flags])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1 and message.format(run=run) in error
    assert {path: path.read_bytes() for path in before} == before and not (tmp_path / "new").exists()


def test_help_says_what_each_flag_does(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"], TrainConfig, PRESETS, "")
    text = " ".join(capsys.readouterr().out.partition("config options")[2].replace("│", " ").split())
    for field in fields(TrainConfig):
        said = text.partition(f" --{field.name.replace('_', '-')} ")[2].partition("(default:")[0]
        assert len(said.split()) > 3 and "." in said, field.name
