"""Both commands from end to end: train, kill, resume; bad input; what wins among default, preset,
--init and flag.
"""

import json
import shutil
from dataclasses import replace

import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file

from shared.run import parse

from .. import predict
from .. import train as training
from ..config import PRESETS, TrainConfig, learning_rate
from ..loading import begin, load_run
from ..train import train
from .conftest import BERT, SMALL


def log(run_dir) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


class Killed(BaseException):
    """Ends a training as a kill would."""


@pytest.mark.parametrize(("name", "fatal"), [("pointer", 1), ("bertsum", 3), ("second phase", 3)])
def test_a_killed_training_resumes_to_the_same_bits(trained, tmp_path, monkeypatch, name, fatal):
    """Dropout, Adam and the order of the data; before the first checkpoint (1), too."""
    config = {"pointer": SMALL, "bertsum": replace(BERT, accumulate=2)}.get(name)
    config = config or replace(SMALL, init=str(trained(SMALL)), coverage=True)
    whole, first = trained(config), SMALL.steps if config.init else 0  # the rates go on

    def kill(step, *arguments):
        if step == first + fatal + 1:
            raise Killed
        return learning_rate(step, *arguments)

    monkeypatch.setattr(training, "learning_rate", kill)
    with pytest.raises(Killed):
        train(config, tmp_path / "killed")
    monkeypatch.undo()
    train(config, tmp_path / "killed", resume=True)
    one, other = (
        load_file(folder / "model.safetensors") for folder in (whole, tmp_path / "killed")
    )
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert log(whole) == log(tmp_path / "killed")


def test_a_run_can_be_lengthened_and_read_in_progress(trained, tmp_path, capsys):
    longer = tmp_path / "run"
    training.main(
        [
            "--out",
            str(longer),
            "--init",
            str(trained(SMALL)),
            "--steps",
            "2",
            "--diminishing",
            "dim",
        ]
    )
    training.main(["--out", str(longer), "--resume", "--steps", "4"])
    assert [row["step"] for row in log(longer)] == [0, 2, 4] and load_run(
        longer
    ).config.diminishing == "dim"
    (longer / "model.safetensors").unlink()
    text = (longer / "config.json").read_text()
    # of which 4 are done
    (longer / "config.json").write_text(text.replace('"steps": 4', '"steps": 9'))
    begun = load_run(longer)
    assert "is not finished: reading" in capsys.readouterr().err
    assert begin(replace(begun.config, init=str(longer)), []).first_step == begun.first_step + 4


@pytest.mark.parametrize("file", ["tokenizer.json", "start.json", "tokenizer", "encoder"])
def test_a_file_that_a_run_lacks_is_said_in_one_line(trained, tmp_path, file):
    folder = trained(SMALL if file.endswith(".json") else BERT)
    run = shutil.copytree(folder, tmp_path / "run", ignore=lambda *_: [file])
    with pytest.raises(
        ValueError, match=r"tokenizer, encoder or start\.json is missing or cut off \(.*train again"
    ):
        load_run(run)


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training, ["--out", "{tmp}/new", "--learning-rate", "nan"], "--learning-rate is nan"),
        (
            predict,
            ["{run}", "{tmp}/in.txt", "--min-length", "900"],
            "--max-length is 100; it must be at least",
        ),
        (
            training,
            ["--out", "{tmp}/new", "--init", "{run}", "--hidden", "9"],
            "--hidden: {run} has 8, leave it out",
        ),
        (
            training,
            ["--out", "{tmp}/new", "--preset", "paper-dydim"],
            "a run of --preset paper is not a run folder",
        ),
        (training, ["--out", "{tmp}/new", "--data", "{tmp}/bad.jsonl"], "bad.jsonl:1"),
        (predict, ["{tmp}", "{tmp}/in.txt"], "is not a run folder"),
        (predict, ["{run}", "{tmp}/in.txt", "--out", "{tmp}/in.txt"], "in.txt exists"),
    ],
)
def test_bad_input_is_one_line_and_loses_nothing(
    trained, tmp_path, capsys, command, flags, message
):
    run = trained(SMALL)
    (tmp_path / "bad.jsonl").write_text('{"sorce": "x"}\n')
    (tmp_path / "in.txt").write_text("It rained .")
    before = {
        path: path.read_bytes() for path in [*run.iterdir(), *tmp_path.iterdir()] if path.is_file()
    }
    with pytest.raises(SystemExit) as stop:
        command.main([flag.format(tmp=tmp_path, run=run) for flag in flags])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1 and message.format(run=run) in error
    assert {path: path.read_bytes() for path in before} == before and not (
        tmp_path / "new"
    ).exists()


def test_what_wins_among_default_preset_init_flag_and_resume(trained, tmp_path):
    """A flag over a preset, a preset over the run of --init, that run over the defaults; --resume
    keeps what was.
    """
    base = trained(SMALL)

    def of(*flags):
        config, _, _ = parse(["--out", str(tmp_path / "new"), *flags], TrainConfig, PRESETS, "")
        return config.hidden, config.steps, config.save_every, config.diminishing

    init, preset = ["--init", str(base)], ["--preset", "paper-dim"]
    assert of() == (64, 1200, 200, "none") and of("--preset", "paper") == (
        256,
        230_000,
        5000,
        "none",
    )
    assert of(*init) == (8, 4, 2, "none") and of(*init, *preset) == (8, 10_000, 2, "dim")
    assert of(*init, *preset, "--steps", "7", "--diminishing", "dydim", "--save-every", "3") == (
        8,
        7,
        3,
        "dydim",
    )
    with pytest.raises(ValueError, match="--resume keeps the values of .*leave out seed"):
        parse(["--out", str(base), "--resume", "--seed", "3"], TrainConfig, PRESETS, "")
