"""run.py: flags in range, run folders, checkpoints, errors of one line. The same file in every package."""

import errno
import json
import multiprocessing
import pickle
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch import nn

from .. import run


@dataclass(frozen=True)
class Config:
    steps: int = 4
    rate: float = 0.1
    kind: Literal["a", "b"] = "a"
    sizes: tuple[int, ...] = (1, 2)


class Killed(BaseException):
    """Ends a training as a kill would: no handler of ours catches it."""


def train(out: Path, config: Config = Config(), keep: int = 2) -> None:
    """Fit a linear map to noise, one step per checkpoint."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters()))
    progress = {"step": 0, "log": []}
    with run.training(
        accelerator, out, config, progress, lambda folder: (folder / "words").write_text("x")
    ) as progress:
        for step in range(progress["step"], config.steps):
            loss = (model(torch.rand(2, 3)) - 1).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            progress = {"step": step + 1, "log": [*progress["log"], {"step": step + 1, "loss": loss.item()}]}
            run.save_checkpoint(accelerator, out, progress, keep)
    save_file(load_file(out / f"checkpoints/{config.steps:08d}/model.safetensors"), out / "model.safetensors")


def new_model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))


@pytest.fixture
def finished(tmp_path) -> Path:
    train(tmp_path / "run")
    return tmp_path / "run"


# Flags


@pytest.mark.parametrize(
    "change", [{"rate": float("nan")}, {"rate": float("inf")}, {"rate": -1.0}, {"rate": 1.5}, {"steps": 0}]
)
def test_numbers_that_are_not_finite_or_out_of_range_are_refused(change):
    run.check_fields(Config(), {"steps": 1}, {"rate": 1})
    with pytest.raises(ValueError, match=f"--{next(iter(change))} is .* a finite number (from 0 to 1|of at least 1)$"):
        run.check_fields(replace(Config(), **change), {"steps": 1}, {"rate": 1})


def test_only_the_choices_of_a_field_are_accepted():
    with pytest.raises(ValueError, match="--kind is 'c'; it must be one of a, b"):
        run.check_fields(replace(Config(), kind="c"), {}, {})


# Errors


@pytest.mark.parametrize(
    ("error", "code"),
    [(ValueError("two\nlines"), 2), (ImportError("x"), 2), (OSError(errno.ENOSPC, "No space left on device"), 1)],
)
def test_a_foreseen_error_is_one_line(capsys, error, code):
    def main(arguments):
        raise error

    with pytest.raises(SystemExit) as stop:
        run.one_line_errors(main)([])
    text = capsys.readouterr().err
    assert stop.value.code == code and text.startswith("error: ") and text.count("\n") == 1


def test_an_interruption_is_one_line_and_a_mistake_of_ours_keeps_its_traceback():
    def interrupt(arguments):
        raise KeyboardInterrupt

    with pytest.raises(SystemExit, match="--resume"):
        run.one_line_errors(interrupt)([])
    with pytest.raises(ZeroDivisionError):
        run.one_line_errors(lambda arguments: 1 / 0)([])


# Kill and resume


@pytest.mark.parametrize("write", range(12))
def test_a_run_killed_at_any_write_resumes_to_the_same_bits(tmp_path, monkeypatch, finished, write):
    """The weights, Adam and the random numbers of dropout; a start that is killed can be started again."""
    out, writes = tmp_path / "killed", iter(range(1000))
    replace_file, write_text = run.os.replace, Path.write_text

    def kill_at(function):
        def maybe(*arguments, **options):
            if next(writes) == write:
                raise Killed
            return function(*arguments, **options)

        return maybe

    monkeypatch.setattr(run.os, "replace", kill_at(replace_file))
    monkeypatch.setattr(Path, "write_text", kill_at(write_text))
    with pytest.raises(Killed):
        train(out)
    monkeypatch.undo()
    assert out.exists() == (out / "config.json").exists()
    train(out)
    whole, killed = (load_file(path / "model.safetensors") for path in (finished, out))
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    assert (out / "log.jsonl").read_text() == (finished / "log.jsonl").read_text()
    assert sorted(path.name for path in (out / "checkpoints").glob("[0-9]*")) == ["00000003", "00000004"]


def test_a_longer_run_is_the_run_that_was_longer_from_the_start(tmp_path, finished):
    train(finished, Config(steps=6))
    train(tmp_path / "long", Config(steps=6))
    long, longer = (load_file(path / "model.safetensors") for path in (tmp_path / "long", finished))
    assert all(torch.equal(long[name], longer[name]) for name in long)
    assert run.read_config(finished, Config).steps == 6


def test_a_full_disk_is_said_and_keeps_the_checkpoint_before(tmp_path, finished, monkeypatch):
    def full(*_, **__):
        raise RuntimeError("PytorchStreamWriter failed writing file")

    monkeypatch.setattr(Accelerator, "save_state", full)
    with pytest.raises(OSError, match="make room, then --resume"):
        train(finished, Config(steps=6))
    monkeypatch.undo()
    assert json.loads((finished / "checkpoints/00000004/progress.json").read_text())["step"] == 4
    train(finished, Config(steps=6))
    monkeypatch.setattr(Accelerator, "save_state", full)
    with pytest.raises(OSError):
        train(tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# What a run folder may hold


def test_a_folder_in_use_is_refused(tmp_path, finished):
    assert run.holds_run(finished, resume=True) and not run.holds_run(tmp_path / "new", resume=True)
    with pytest.raises(ValueError, match="already holds a run: add --resume"):
        run.holds_run(finished, resume=False)
    with pytest.raises(ValueError, match="is not a run: choose another --out"):
        run.holds_run(tmp_path, resume=True)
    with pytest.raises(ValueError, match="is not a run"):
        run.holds_run(finished / "words", resume=False)


def hold(path, held, done):
    with run.FileLock(path / ".lock"):
        held.set()
        done.wait(60)


def test_two_processes_cannot_train_in_one_folder(finished):
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    other = context.Process(target=hold, args=(finished, held, done))
    other.start()
    assert held.wait(60)
    with pytest.raises(ValueError, match="another process trains in"):
        train(finished, Config(steps=6))
    done.set()
    other.join()
    train(finished, Config(steps=6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda saved: saved | {"package": "other"}, "belongs to the package 'other'"),
        (lambda saved: saved | {"config": {"colour": 1}}, "colour"),
        (lambda saved: [], "config.json is cut off"),
        (lambda saved: {"package": run.NAME}, "config"),
        (lambda saved: {"package": run.NAME, "config": 3}, "config.json is cut off"),
    ],
)
def test_a_config_of_something_else_is_named(finished, change, message):
    path = finished / "config.json"
    assert run.read_config(finished, Config) == Config()
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(ValueError, match=message):
        run.read_config(finished, Config)


def test_a_cut_config_and_a_missing_one_are_named(tmp_path, finished):
    (finished / "config.json").write_text('{"package": "')
    with pytest.raises(ValueError, match="config.json is cut off"):
        run.read_config(finished, Config)
    with pytest.raises(ValueError, match="is not a run folder"):
        run.read_config(tmp_path, Config)


# Weights


def test_weights_of_a_run_in_training_are_the_last_checkpoints(finished, capsys):
    model = new_model()
    run.load_weights(model, finished)
    assert not capsys.readouterr().err
    (finished / "model.safetensors").unlink()
    unfinished = new_model()
    run.load_weights(unfinished, finished)
    assert torch.equal(model[0].weight, unfinished[0].weight)
    assert "is not finished: reading" in capsys.readouterr().err


@pytest.mark.parametrize(
    "damage", ["cut", "empty", "garbage", "gone", "other name", "more", "other size", "nan", "inf"]
)
def test_weights_that_do_not_fit_are_refused(finished, damage):
    path = finished / "model.safetensors"
    weights = load_file(path)
    if damage in ("nan", "inf"):
        weights["0.bias"][1] = float(damage)
    changed = {
        "other name": {("1." + name[2:]): tensor for name, tensor in weights.items()},
        "more": weights | {"2.weight": torch.zeros(1)},
        "other size": weights | {"0.bias": torch.zeros(4)},
    }.get(damage, weights)
    save_file(changed, path)
    if damage in ("cut", "empty", "garbage"):
        path.write_bytes({"cut": path.read_bytes()[:100], "empty": b"", "garbage": b"x" * 1000}[damage])
    if damage == "gone":
        path.unlink()
        shutil.rmtree(finished / "checkpoints")
    with pytest.raises(ValueError, match="model.safetensors"):
        run.load_weights(new_model(), finished)


class Command:
    """A pickle that writes a file when it is loaded without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ["optimizer.bin", "random_states_0.pkl"])
def test_a_checkpoint_cannot_run_code(tmp_path, finished, name):
    path = finished / "checkpoints/00000004" / name
    for content in (pickle.dumps(Command(tmp_path / "ran"), protocol=2), b"cut"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="00000004 cannot be resumed"):
            train(finished, Config(steps=6))
    torch.save(Command(tmp_path / "ran"), path)
    with pytest.raises(ValueError, match="00000004 cannot be resumed"):
        train(finished, Config(steps=6))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["progress.json", "model.safetensors", "optimizer.bin", "random_states_0.pkl"])
def test_a_damaged_checkpoint_is_named(finished, name):
    path = finished / "checkpoints/00000004" / name
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ValueError, match="00000004 cannot be resumed"):
        train(finished, Config(steps=6))


def test_another_number_of_processes_is_named(finished):
    state = finished / "checkpoints/00000004/random_states_0.pkl"
    shutil.copy(state, state.with_name("random_states_1.pkl"))
    with pytest.raises(ValueError, match="2 processes wrote it, 1 would read it"):
        train(finished, Config(steps=6))
