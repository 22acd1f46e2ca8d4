"""run.py: flags in range, run folders, checkpoints, errors of one line. The same file in every package."""

import errno
import io
import json
import os
import pickle
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save
from torch import nn

from .. import run


@dataclass(frozen=True)
class Config:
    steps: int = 3
    rate: float = 0.1
    kind: Literal["a", "b"] = "a"
    sizes: tuple[int, ...] = (1, 2)


class Killed(BaseException):
    """Ends a training as a kill would: no handler of ours catches it."""


class Command:
    """A pickle that writes a file when it is loaded without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def new_model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))


def train(out: Path, config: Config = Config()) -> Path:
    """Fit a linear map to noise, one step per checkpoint."""
    torch.manual_seed(0)
    accelerator, model = Accelerator(cpu=True), new_model()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters()))
    new = {"step": 0, "log": []}
    with run.training(accelerator, out, config, new, lambda folder: (folder / "words").write_text("x")) as progress:
        for step in range(progress["step"], config.steps):
            loss = (model(torch.rand(2, 3)) - 1).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            progress = {"step": step + 1, "log": [*progress["log"], {"step": step + 1, "loss": loss.item()}]}
            run.save_checkpoint(accelerator, out, progress, keep=2)
    shutil.copy(out / f"checkpoints/{config.steps:08d}/model.safetensors", out)
    return out


def assert_same_run(one: Path, other: Path) -> None:
    for name in ("model.safetensors", "log.jsonl", "config.json", "words"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture
def finished(tmp_path, trained) -> Path:
    return shutil.copytree(trained, tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "values", "must_be"),
    [
        ("rate", [float("nan"), float("inf"), -1.0, 1.5], "a finite number from 0 to 1"),
        ("steps", [0, float("inf")], "a finite number of at least 1"),
        ("kind", ["c"], "one of a, b"),
    ],
)
def test_values_that_are_not_finite_out_of_range_or_no_choice_are_refused(name, values, must_be):
    run.check_fields(Config(), {"steps": 1}, {"rate": 1})
    for value in values:
        with pytest.raises(ValueError, match=f"^--{name} is {value!r}; it must be {must_be}$"):
            run.check_fields(Config(**{name: value}), {"steps": 1}, {"rate": 1})


def stop(error):
    raise error


def test_foreseen_errors_are_one_line_a_closed_pipe_none_and_mistakes_keep_their_traceback(capsys, monkeypatch):
    for error, code in ((ValueError("two\nlines"), 2), (ImportError("x"), 2), (OSError(errno.ENOSPC, "No space"), 1)):
        with pytest.raises(SystemExit) as exit:
            run.one_line_errors(stop)(error)
        text = capsys.readouterr().err
        assert exit.value.code == code and text.startswith("error: ") and text.count("\n") == 1
    with pytest.raises(SystemExit, match="--resume"):
        run.one_line_errors(stop)(KeyboardInterrupt())
    with pytest.raises(ZeroDivisionError):
        run.one_line_errors(stop)(ZeroDivisionError())
    redirected = []
    with monkeypatch.context() as patch:  # pytest needs dup2 itself
        patch.setattr(os, "dup2", lambda source, target: redirected.append(target) or os.close(source))
        run.one_line_errors(stop)(BrokenPipeError())
    assert redirected == [1]


@pytest.mark.parametrize("write", range(12))
def test_a_run_killed_at_any_write_resumes_to_the_same_bits(tmp_path, monkeypatch, trained, write):
    """The weights, Adam and the random numbers of dropout; a start that is killed can be started again."""
    out, writes = tmp_path / "killed", iter(range(1000))

    def kill_at(function):
        def maybe(*arguments, **options):
            if next(writes) == write:
                raise Killed
            return function(*arguments, **options)

        return maybe

    monkeypatch.setattr(run.os, "replace", kill_at(os.replace))
    monkeypatch.setattr(Path, "write_text", kill_at(Path.write_text))
    with pytest.raises(Killed):
        train(out)
    monkeypatch.undo()
    assert out.exists() == (out / "config.json").exists() and len(list(tmp_path.iterdir())) <= 1
    assert_same_run(train(out), trained)
    assert [path.name for path in sorted((out / "checkpoints").iterdir())] == ["00000002", "00000003"]


def test_a_longer_run_is_the_run_that_was_longer_from_the_start(tmp_path, finished):
    assert_same_run(train(tmp_path / "long", Config(steps=5)), train(finished, Config(steps=5)))
    assert run.read_config(finished, Config).steps == 5


def test_a_full_disk_is_said_and_keeps_the_checkpoint_before(tmp_path, finished, monkeypatch):
    def full(*_, **__):
        raise RuntimeError("PytorchStreamWriter failed writing file")

    monkeypatch.setattr(Accelerator, "save_state", full)
    for out in (finished, tmp_path / "new"):
        with pytest.raises(OSError, match="make room, then --resume"):
            train(out, Config(steps=4))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    monkeypatch.undo()
    assert json.loads((finished / "checkpoints/00000003/progress.json").read_text())["step"] == 3
    train(finished, Config(steps=4))


def test_a_folder_in_use_is_refused(tmp_path, finished):
    assert run.holds_run(finished, resume=True) and not run.holds_run(tmp_path / "new", resume=True)
    with pytest.raises(ValueError, match="already holds a run: add --resume"):
        run.holds_run(finished, resume=False)
    for path in (tmp_path, finished / "words"):
        with pytest.raises(ValueError, match="is not a run: choose another --out"):
            run.holds_run(path, resume=True)


@pytest.mark.parametrize(("held", "out"), [("run", "run"), ("new.unfinished", "new")])
def test_two_processes_cannot_train_in_one_folder(tmp_path, finished, held, out):
    (tmp_path / held).mkdir(exist_ok=True)
    with run.FileLock(tmp_path / held / ".lock"):
        with pytest.raises(ValueError, match="another process trains in"):
            train(tmp_path / out, Config(steps=4))
        assert (tmp_path / held).exists()  # the other's
    train(tmp_path / out, Config(steps=4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"package": "other", "config": {}}', "belongs to the package 'other'"),
        ('{"package": "NAME", "config": {"colour": 1}}', "config.json is cut off, .*colour"),
        ('{"package": "NAME", "config": 3}', "config.json is cut off"),
        ('{"package": "NAME"}', "config.json is cut off"),
        ("[]", "config.json is cut off"),
        ('{"package": "', "config.json is cut off"),
    ],
)
def test_a_config_of_something_else_or_none_is_named(finished, text, message):
    assert run.read_config(finished, Config) == Config()
    (finished / "config.json").write_text(text.replace("NAME", run.NAME))
    with pytest.raises(ValueError, match=message):
        run.read_config(finished, Config)
    with pytest.raises(ValueError, match="is not a run folder"):
        run.read_config(finished / "checkpoints", Config)


def test_weights_of_a_run_in_training_are_the_last_checkpoints(finished, capsys):
    model, unfinished = new_model(), new_model()
    run.load_weights(model, finished)
    assert not capsys.readouterr().err
    (finished / "model.safetensors").unlink()
    run.load_weights(unfinished, finished)
    assert torch.equal(model[0].weight, unfinished[0].weight)
    assert "is not finished: reading" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "other name", "more", "other size", "nan", "inf"])
def test_weights_that_do_not_fit_are_refused(finished, damage):
    path = finished / "model.safetensors"
    weights, whole = load_file(path), path.read_bytes()
    changed = {
        "other name": {"1." + name[2:]: tensor for name, tensor in weights.items()},
        "more": weights | {"2.weight": torch.zeros(1)},
        "other size": weights | {"0.bias": torch.zeros(4)},
    } | {number: weights | {"0.bias": torch.tensor([0, float(number), 0])} for number in ("nan", "inf")}
    path.write_bytes(save(changed[damage]) if damage in changed else whole[:100] if damage == "cut" else b"")
    if damage == "gone":
        path.unlink()
        shutil.rmtree(finished / "checkpoints")
    with pytest.raises(ValueError, match="model.safetensors"):
        run.load_weights(new_model(), finished)


@pytest.mark.parametrize("name", ["progress.json", "model.safetensors", "optimizer.bin", "random_states_0.pkl"])
def test_a_damaged_checkpoint_is_named_and_runs_no_code(tmp_path, finished, name):
    path, archive = finished / "checkpoints/00000003" / name, io.BytesIO()
    torch.save(Command(tmp_path / "ran"), archive)
    pickled = pickle.dumps(Command(tmp_path / "ran"), protocol=2)
    for content in (path.read_bytes()[:20], pickled, archive.getvalue()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="00000003 cannot be resumed"):
            train(finished, Config(steps=4))
    assert not (tmp_path / "ran").exists()


def test_another_number_of_processes_is_named(finished):
    state = finished / "checkpoints/00000003/random_states_0.pkl"
    shutil.copy(state, state.with_name("random_states_1.pkl"))
    with pytest.raises(ValueError, match="2 processes wrote it, 1 would read it"):
        train(finished, Config(steps=4))
