"""Train, kill, resume; several processes; what a user can do wrong."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("shared")

from shared.run import checkpoints

from .. import predict
from .. import train as training
from ..loading import load_run
from ..train import train
from .conftest import SMALL, killed_before, log, same_weights


@pytest.mark.parametrize(("name", "at"), [("scratch", 1), ("scratch", 3), ("init", 3)])
def test_a_killed_training_resumes_to_the_same_bits(whole, tmp_path, name, at):
    """Dropout, gates, lambda, Adam, the order of the data; before the first checkpoint, too.

    Updates of two micro-batches, so that the data go on at the right one.
    """
    config = load_run(whole[name]).config
    with killed_before(training, at):
        train(config, tmp_path / "killed")
    train(config, tmp_path / "killed", resume=True)
    assert same_weights(whole[name], tmp_path / "killed")
    assert log(whole[name]) == log(tmp_path / "killed")


def test_a_training_killed_by_a_signal_resumes_to_the_same_bits(whole, tmp_path):
    """As an operating system kills: at any moment after the first checkpoint."""
    out = tmp_path / "killed"
    (tmp_path / "config.json").write_text((whole["scratch"] / "config.json").read_text())
    code = (
        "import json, pathlib, sys; "
        f"from {training.__name__} import train; from {training.__package__}.config import *; "
        f"config = TrainConfig(**json.loads(pathlib.Path({str(tmp_path)!r}, 'config.json')"
        f".read_text())); train(config, pathlib.Path({str(out)!r}))"
    )
    top = Path(sys.modules[training.__name__.split(".")[0]].__path__[0]).parent
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # two threads add in another order
    with subprocess.Popen([sys.executable, "-c", code], cwd=top, env=environment) as child:
        while not checkpoints(out) and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    train(load_run(whole["scratch"]).config, out, resume=True)
    assert same_weights(whole["scratch"], out) and log(whole["scratch"]) == log(out)


def test_a_finished_run_resumes_to_nothing_and_a_longer_one_goes_on(whole, tmp_path):
    """With more steps it ends as if it had been that long from the start (a constant lambda).

    Until then it has no weights, for those of before are not its own; other data are refused.
    """
    out = tmp_path / "run"
    config = replace(load_run(whole["init"]).config, steps=4)
    longer = replace(config, steps=6)
    train(config, out)
    before = {path: path.read_bytes() for path in out.glob("*.*")}
    train(config, out, resume=True)
    with pytest.raises(ValueError, match=r"was trained on \d+ examples, sha256"):
        train(replace(longer, data="toy:count=25,seed=5"), out, resume=True)
    assert {path: path.read_bytes() for path in before} == before
    with killed_before(training, 0):
        train(longer, out, resume=True)
    with pytest.raises(ValueError, match="model.safetensors is missing"):
        load_run(out)
    train(longer, out, resume=True)
    assert same_weights(whole["init"], out)
    assert load_run(out).config.steps == 6


def two_processes(out):
    """A training in which each process notes the batches that it reads."""
    from accelerate.state import PartialState

    collate = training.Run.collate

    def noted(run, items):
        with Path(f"{out}-{PartialState().process_index}").open("a") as file:
            print([list(item.source) for item in items], file=file)
        return collate(run, items)

    training.Run.collate = noted
    train(replace(SMALL, steps=2, average_last=1), out)
    assert PartialState().num_processes == 2


def test_two_processes_train_one_model(tmp_path):
    """They read different batches, and their gradients are averaged: the weights are one's."""
    import torch._dynamo  # noqa: F401  # two seconds, once and not in every child
    from accelerate import debug_launcher
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)  # the children would believe to be alone, as this one is
    out = tmp_path / "run"
    debug_launcher(two_processes, (out,), num_processes=2)
    first, second = (Path(f"{out}-{i}").read_text().splitlines()[:2] for i in (0, 1))
    assert not set(first) & set(second)
    assert len(list(checkpoints(out)[-1].glob("random_states_*"))) == 2
    assert load_run(out).config.steps == 2
    with pytest.raises(ValueError, match="is of 2 processes, here are 1"):
        train(replace(SMALL, steps=4, average_last=1), out, resume=True)


def test_variables_of_the_shell_change_nothing(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    train(load_run(whole["scratch"]).config, tmp_path / "run")
    assert same_weights(whole["scratch"], tmp_path / "run")


def test_a_tracker_gets_what_the_log_gets(whole, tmp_path):
    """And changes no weight."""
    pytest.importorskip("tensorboard")
    config = replace(load_run(whole["scratch"]).config, log_with="tensorboard")
    train(config, tmp_path / "run")
    assert same_weights(whole["scratch"], tmp_path / "run")
    assert list((tmp_path / "run").rglob("events.out.tfevents*"))


REFUSED = [  # command, flags, words of its one line
    (training, "--out {tmp}/new --heads 3", "multiple of heads"),
    (training, "--out {tmp}/new --init {run} --width 32", "--width: {run} has 16, leave it out"),
    (training, "--out {tmp}/new --data {tmp}/bad.jsonl", "bad.jsonl:1"),
    (training, "--out {tmp}/new --l0-start 5", "--l0-start 5 needs --l0-weight"),
    (training, "--out {tmp}/new --l0-warmup 5", "--l0-warmup 5 needs --l0-weight"),
    (
        training,
        "--out {tmp}/new --l0drop none --l0-weight 0.3",
        "--l0-weight 0.3 needs gates: --l0drop output",
    ),
    (
        training,
        "--out {tmp}/new --steps 4 --save-every 2 --average-last 3",
        "4 steps are too few for 3 checkpoints, 2 apart: add --average-last 1",
    ),
    (training, "--out {tmp}/new --log-with aim", "--log-with aim is not installed"),
    (training, "--out {run}", "exists: add --resume to go on with it, or choose another --out"),
    (predict, "{run} --data toy --limit 1 --out {run}/config.json", "config.json exists"),
]


def test_bad_input_is_one_line_and_loses_nothing(base, tmp_path, capsys):
    (tmp_path / "bad.jsonl").write_text('{"sorce": "x"}\n')
    before = {path: path.read_bytes() for path in base.iterdir() if path.is_file()}
    for command, flags, message in REFUSED:
        with pytest.raises(SystemExit) as stop:
            command.main(flags.format(tmp=tmp_path, run=base).split())
        error = capsys.readouterr().err
        assert (stop.value.code, error.count("\n")) == (2, 1), error
        assert message.format(run=base) in error
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "new").exists()
