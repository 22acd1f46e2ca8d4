"""Both commands from end to end: train, kill, resume; several processes; bad input."""

import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from accelerate import PartialState, debug_launcher
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from .. import predict
from .. import train as training
from ..config import learning_rate
from ..loading import Run, begin, load_run
from ..train import train
from .conftest import BERT, SMALL


def log(run_dir) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


def same_weights(one: Path, other: Path) -> bool:
    """Whether two runs have the same tensors, bit for bit."""
    one, other = (load_file(folder / "model.safetensors") for folder in (one, other))
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("name", "fatal"), [("pointer", 1), ("bertsum", 3), ("second phase", 3)])
def test_a_training_killed_by_signal_9_resumes_to_the_same_bits(
    trained, tmp_path, monkeypatch, name, fatal
):
    """Dropout, Adam and the order of the data; before the first checkpoint (1), too."""
    config = {"pointer": SMALL, "bertsum": replace(BERT, accumulate=2)}.get(name)
    config = config or replace(SMALL, init=str(trained(SMALL)), coverage=True)
    whole, first = trained(config), SMALL.steps if config.init else 0  # the rates go on

    def kill(step, *arguments):
        if step == first + fatal + 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return learning_rate(step, *arguments)

    monkeypatch.setattr(training, "learning_rate", kill)
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=train, args=(config, tmp_path / "killed"))
    process.start()
    process.join()
    monkeypatch.undo()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "killed/model.safetensors").exists()
    train(config, tmp_path / "killed", resume=True)
    assert same_weights(whole, tmp_path / "killed")
    assert log(whole) == log(tmp_path / "killed")
    train(config, tmp_path / "killed", resume=True)  # a finished run goes on to nothing
    assert same_weights(whole, tmp_path / "killed")


def test_two_processes_train_one_model_on_batches_of_their_own(tmp_path, monkeypatch):
    """As torchrun starts them."""
    collate = Run.collate

    def record(run, items):
        if run.model.training:
            state = PartialState()
            with (tmp_path / f"read-{state.process_index}").open("a") as file:
                sources = sorted(item.source.tolist() for item in items)
                print(json.dumps([state.num_processes, sources]), file=file)
        return collate(run, items)

    monkeypatch.setattr(Run, "collate", record)
    AcceleratorState._reset_state(True)
    debug_launcher(train, (replace(SMALL, steps=2), tmp_path / "two"), num_processes=2)
    files = [tmp_path / f"read-{i}" for i in (0, 1)]
    one, other = ([json.loads(line) for line in file.open()] for file in files)
    assert len(one) >= 2 and len(other) >= 2
    assert {processes for processes, _ in one + other} == {2}
    assert all(batch not in other for batch in one)
    assert load_run(tmp_path / "two").config.steps == 2


def test_variables_of_the_shell_change_nothing(trained, tmp_path, monkeypatch):
    """What a flag says is not read from the environment."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "2")
    AcceleratorState._reset_state(True)
    train(SMALL, tmp_path / "run")
    assert same_weights(tmp_path / "run", trained(SMALL))


def test_resume_lengthens_a_run_or_begins_one_and_refuses_other_data(trained, tmp_path, capsys):
    longer = tmp_path / "run"
    base = str(trained(SMALL))
    flags = ["--init", base, "--steps", "2", "--diminishing", "dim", "--resume"]
    training.main(["--out", str(longer), *flags])
    assert "run does not exist yet: a new training begins" in capsys.readouterr().out
    training.main(["--out", str(longer), "--resume", "--steps", "4"])
    assert [row["step"] for row in log(longer)] == [2, 4]
    run = load_run(longer)
    assert run.config.diminishing == "dim" and run.first_step == 4
    assert begin(replace(run.config, init=str(longer)), []).first_step == 8
    other = replace(run.config, data="toy:count=24,seed=6", steps=6)
    with pytest.raises(ValueError, match="was trained on 24 examples, sha256 .*; this is 24"):
        train(other, longer, resume=True)


def test_a_tracker_gets_the_rows_of_the_log(tmp_path):
    """One that is not installed is refused."""
    with pytest.raises(ValueError, match="--log-with comet_ml is not installed"):
        train(replace(SMALL, log_with="comet_ml"), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    pytest.importorskip("tensorboard")
    train(replace(SMALL, steps=2, log_with="tensorboard"), tmp_path / "run")
    assert list((tmp_path / "run/diminishing_attention").glob("events*"))


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training, "--out {tmp}/new --learning-rate nan", "--learning-rate is nan"),
        (
            training,
            "--out {tmp}/new --init {run} --hidden 9",
            "--hidden: {run} has 8, leave it out",
        ),
        (
            training,
            "--out {tmp}/new --preset paper-dim",
            "a run of --preset paper is no run folder",
        ),
        (training, "--out {tmp}/new --data {tmp}/bad.jsonl", "bad.jsonl:1"),
        (
            predict,
            "{run} {tmp}/in.txt --min-length 900",
            "--max-length is 100; it must be at least",
        ),
        (predict, "{tmp} {tmp}/in.txt", "is no run folder"),
        (predict, "{tmp}/part {tmp}/in.txt", "tokenizer.json"),
        (predict, "{run} {tmp}/in.txt --out {tmp}/in.txt", "in.txt exists"),
    ],
)
def test_bad_input_is_one_line_and_loses_nothing(
    trained, tmp_path, capsys, command, flags, message
):
    run = trained(SMALL)
    shutil.copytree(run, tmp_path / "part", ignore=lambda *_: ["tokenizer.json"])
    (tmp_path / "bad.jsonl").write_text('{"sorce": "x"}\n')
    (tmp_path / "in.txt").write_text("It rained .")
    files = [path for path in [*run.iterdir(), *tmp_path.iterdir()] if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    with pytest.raises(SystemExit) as stop:
        command.main(flags.format(tmp=tmp_path, run=run).split())
    error = capsys.readouterr().err
    assert stop.value.code == 2 and error.count("\n") == 1 and message.format(run=run) in error
    assert {path: path.read_bytes() for path in files} == before
    assert not (tmp_path / "new").exists()
