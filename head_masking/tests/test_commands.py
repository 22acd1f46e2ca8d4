"""The two commands: killed and resumed, given bad input, asked for help."""

from dataclasses import replace

import pytest

pytest.importorskip("shared")

from .. import predict
from .. import train as training
from ..config import learning_rate
from ..train import train
from .conftest import DATA, SHORT, equal, log, weights


class Killed(BaseException):
    """Ends a training as a kill would."""


def kill_at(step: int, patch: pytest.MonkeyPatch, module=training) -> None:
    def rate(at, config):
        if at == step:
            raise Killed
        return learning_rate(at, config)

    patch.setattr(module, "learning_rate", rate)


@pytest.mark.parametrize(
    ("step", "change"), [(0, {}), (3, dict(accumulate=2, patience=2, learning_rate=0.3))]
)
def test_a_killed_training_resumes_to_the_same_bits(tmp_path, monkeypatch, step, change):
    """At once, before its first checkpoint, or later."""
    config = replace(SHORT, steps=5, save_every=2, **change)
    train(config, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(step, patch)
        train(config, tmp_path / "killed")
    train(config, tmp_path / "killed", resume=True)
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert log(tmp_path / "whole") == log(tmp_path / "killed")


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training.main, ["--out", "{new}", "--train-encoder", "False"], "needs --encoder"),
        (
            training.main,
            ["--out", "{new}", "--encoder", "no/such-bert", "--data", DATA],
            "hf download no/such-bert",
        ),
        (predict.main, ["{runs}/base", "--data", "no/such/place"], "no/such/place"),
        (
            predict.main,
            ["{runs}/tagger", "--data", DATA, "--oracle"],
            "is a tagger's run: give a BART",
        ),
        (predict.main, ["{runs}/base", "{text}", "--oracle"], "--oracle reads references"),
        (predict.main, ["{runs}/base", "--heads", "1:0"], "--heads masks nothing without"),
        (predict.main, ["{runs}/base", "--oracle", "--keep-words", "x"], "give one of them"),
        (
            predict.main,
            ["{runs}/base", "{text}", "--heads", "9:0", "--keep-words", "storm"],
            "layer 9 does not exist",
        ),
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
