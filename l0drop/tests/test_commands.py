"""Train, kill, resume; one bad input each."""

import pytest

pytest.importorskip("shared")

from .. import predict
from .. import train as training  # noqa: E402
from ..loading import load_run  # noqa: E402
from ..train import train  # noqa: E402
from .conftest import log, same_weights  # noqa: E402


class Killed(BaseException):
    """Ends a training as a kill would."""


@pytest.mark.parametrize(("name", "at"), [("scratch", 1), ("scratch", 3), ("init", 3)])
def test_a_killed_training_resumes_to_the_same_bits(whole, tmp_path, monkeypatch, name, at):
    """Dropout, gates, lambda's multiplier, Adam and the order of the data; before the first
    checkpoint, too.

    Updates of two micro-batches, so that the data go on at the right one.
    """
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


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training, ["--out", "{tmp}/new", "--heads", "3"], "multiple of heads"),
        (
            training,
            ["--out", "{tmp}/new", "--init", "{run}", "--width", "32"],
            "--width: {run} has 16, leave it out",
        ),
        (training, ["--out", "{tmp}/new", "--data", "{tmp}/bad.jsonl"], "bad.jsonl:1"),
        (
            predict,
            ["{run}", "--data", "toy", "--limit", "1", "--out", "{run}/config.json"],
            "config.json exists",
        ),
    ],
)
def test_bad_input_is_one_line_and_loses_nothing(whole, tmp_path, capsys, command, flags, message):
    run = whole["scratch"]
    (tmp_path / "bad.jsonl").write_text('{"sorce": "x"}\n')
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with pytest.raises(SystemExit) as stop:
        command.main([flag.format(tmp=tmp_path, run=run) for flag in flags])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1 and message.format(run=run) in error
    assert {path: path.read_bytes() for path in before} == before and not (
        tmp_path / "new"
    ).exists()
