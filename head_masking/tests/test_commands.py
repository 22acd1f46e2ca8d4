"""The three commands from end to end: train, kill, resume; evaluate; predict; one bad input each."""

import json
import re
from dataclasses import replace

import pytest

pytest.importorskip("shared")

from .. import evaluate, predict
from .. import train as training
from ..config import TrainConfig
from ..train import train
from .conftest import DATA, SMALL, TAGGER, equal, log, weights


class Killed(BaseException):
    """Ends a training as a kill would."""


@pytest.mark.parametrize(("task", "step"), [("summarizer", 4), ("tagger", 0), ("init", 4), ("patience", 4)])
def test_a_killed_training_resumes_to_the_same_bits(runs, tmp_path, monkeypatch, task, step):
    """Also before its first checkpoint, from another run, and with early stopping."""
    tagger = replace(TAGGER, encoder=str(runs / "base-0"), steps=6, train_encoder=True)
    config = {
        "summarizer": SMALL,
        "tagger": tagger,
        "init": replace(SMALL, init=str(runs / "base-0")),
        "patience": replace(tagger, patience=2, save_every=2, learning_rate=0.3),
    }[task]
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


def test_train_evaluate_predict(runs, tmp_path, capsys):
    """As a reader types them, with flags of the presets."""
    base, tagger, out = (str(tmp_path / name) for name in ("base-0", "tagger", "out"))
    sizes = ["--width", "16", "--feed-forward", "16", "--vocabulary", "400", "--max-target", "12"]
    training.main(["--out", base, "--data", DATA, "--steps", "2", *sizes])
    training.main(["--out", tagger, "--preset", "tagger", "--data", DATA, "--encoder", base, "--steps", "2"])
    assert f"next: python -m {training.__package__}.evaluate --tagger {tagger}" in capsys.readouterr().out
    evaluate.main([base, "--tagger", tagger, "--limit", "2", "--predictions", out])
    assert "minus base" in capsys.readouterr().out
    text = tmp_path / "in.txt"
    text.write_text("a storm hit the town .\n")
    predict.main([base, str(text), "--tagger", tagger, "--out", str(tmp_path / "rows.jsonl")])
    assert json.loads((tmp_path / "rows.jsonl").read_text())["heads"] == "2:0-3"


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training.main, ["--out", "{new}", "--task", "tagger"], "a tagger needs --encoder"),
        (training.main, ["--out", "{new}", "--model", "no/such-bart", "--data", DATA], "hf download no/such-bart"),
        (evaluate.main, ["{runs}/base-0", "--data", "no/such/place"], "no/such/place"),
        (evaluate.main, ["{runs}/tagger", "--data", DATA], "holds a tagger; give the run of a summarizer"),
        (evaluate.main, ["{runs}/base-0", "--max-length", "3000"], "the model has 1024 positions"),
        (evaluate.main, [], "give the run of a summariser"),
        (predict.main, ["{runs}/base-0", "--heads", "1:0"], "--heads masks nothing without"),
        (
            predict.main,
            ["{runs}/base-0", "{text}", "--heads", "9:0", "--keep-words", "storm"],
            "layer 9 does not exist",
        ),
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
    [
        (training.main, TrainConfig, set()),
        (evaluate.main, evaluate.Options, {"runs"}),
        (predict.main, predict.Options, {"model", "files"}),
    ],
)
def test_help_explains_every_flag(command, options, positional, capsys):
    """One sentence each, before its default."""
    with pytest.raises(SystemExit):
        command(["--help"])
    said = " ".join(re.sub("[│╭╮╰╯]", " ", capsys.readouterr().out.partition("--help")[2]).split())
    for name in options.__dataclass_fields__.keys() - positional:
        after = said.partition(f"--{name.replace('_', '-')} ")[2].partition("(default")[0]
        assert ". " in after, (name, after)
