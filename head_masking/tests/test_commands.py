"""The two commands from end to end: train, kill, resume; predict; one bad input each."""

import json
import re
from dataclasses import replace

import pytest

pytest.importorskip("shared")

from .. import predict
from .. import train as training
from ..config import TrainConfig
from ..train import train
from .conftest import DATA, TAGGER, equal, log, weights


class Killed(BaseException):
    """Ends a training as a kill would."""


CASES = {
    "new": (4, {}),
    "at once": (0, {}),  # before its first checkpoint
    "accumulate": (5, dict(accumulate=2)),
    "init": (4, dict(init="{runs}/tagger")),
    "patience": (5, dict(patience=2, learning_rate=0.3)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_killed_training_resumes_to_the_same_bits(runs, tmp_path, monkeypatch, case):
    step, change = CASES[case]
    change = {name: value.format(runs=runs) if name == "init" else value for name, value in change.items()}
    config = replace(TAGGER, steps=7, save_every=2, **change)
    train(config, tmp_path / "whole")
    rate = training.learning_rate

    def kill(at, config):
        if at == step:
            raise Killed
        return rate(at, config)

    monkeypatch.setattr(training, "learning_rate", kill)
    with pytest.raises(Killed):
        train(config, tmp_path / "killed")
    monkeypatch.undo()
    train(config, tmp_path / "killed", resume=True)
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert log(tmp_path / "whole") == log(tmp_path / "killed")


def test_train_predict(runs, tmp_path, capsys):
    """As a reader types them."""
    tagger = str(tmp_path / "tagger")
    training.main(["--out", tagger, "--data", DATA, "--steps", "2"])
    command = capsys.readouterr().out.splitlines()[-1].partition(".predict ")[2].split()
    predict.main([*command, "--limit", "2"])
    assert "token_f1" in capsys.readouterr().out
    text = tmp_path / "in.txt"
    text.write_text("a storm hit the town .\n")
    predict.main([str(runs / "base"), str(text), "--tagger", tagger, "--out", str(tmp_path / "rows.jsonl")])
    assert json.loads((tmp_path / "rows.jsonl").read_text())["heads"] == "2:0-3"


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training.main, ["--out", "{new}", "--train-encoder", "False"], "needs --encoder"),
        (training.main, ["--out", "{new}", "--encoder", "no/such-bert", "--data", DATA], "hf download no/such-bert"),
        (predict.main, ["{runs}/base", "--data", "no/such/place"], "no/such/place"),
        (predict.main, ["{runs}/tagger", "--data", DATA, "--oracle"], "a tagger's run, which selects words"),
        (predict.main, ["{runs}/base", "{text}", "--oracle"], "--oracle reads references"),
        (predict.main, ["{runs}/base", "--heads", "1:0"], "--heads masks nothing without"),
        (predict.main, ["{runs}/base", "--oracle", "--keep-words", "x"], "give one of them"),
        (predict.main, ["{runs}/base", "{text}", "--heads", "9:0", "--keep-words", "storm"], "layer 9 does not exist"),
        (predict.main, ["{new}", "{text}"], "new"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(runs, tmp_path, command, flags, message, capsys):
    (tmp_path / "text.txt").write_text("a storm .\n")
    names = {"new": tmp_path / "new", "runs": runs, "text": tmp_path / "text.txt"}
    with pytest.raises(SystemExit) as stop:
        command([flag.format(**names) for flag in flags])
    assert stop.value.code in (1, 2) and message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("command", "options", "positional"),
    [(training.main, TrainConfig, set()), (predict.main, predict.Options, {"model", "files"})],
)
def test_help_explains_every_flag(command, options, positional, capsys):
    """One sentence each, before its default."""
    with pytest.raises(SystemExit):
        command(["--help"])
    said = " ".join(re.sub("[│╭╮╰╯]", " ", capsys.readouterr().out.partition("--help")[2]).split())
    for name in options.__dataclass_fields__.keys() - positional:
        after = said.partition(f"--{name.replace('_', '-')} ")[2].partition("(default")[0]
        assert ". " in after, (name, after)
