"""run.py: flags, ranges, run folders, checkpoints, errors of one line. It is the same file in every package."""

import errno
import io
import json
import os
import pickle
import shutil
import signal
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
import torch
from accelerate import Accelerator
from filelock import FileLock
from safetensors.torch import load_file, save
from torch import nn

from .. import run


@dataclass(frozen=True)
class Config:
    steps: run.Positive = 3
    rate: run.Share = 0.1
    init: str = ""
    fast: bool = False
    limit: int | None = None
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


def train(out: Path, config: Config = Config(), data: str = "d", exists: bool | None = None) -> Path:
    """Fit a linear map to noise, one step per checkpoint."""
    torch.manual_seed(0)
    accelerator, model = Accelerator(cpu=True), new_model()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters()))
    new, exists = (
        {"step": 0, "log": [{"step": 0}], "data": data},
        run.holds_run(out, True) if exists is None else exists,
    )
    write = lambda folder: (folder / "words").write_text("x")  # noqa: E731
    with run.training(accelerator, out, config, new, write, exists, keep=2) as progress:
        for step in range(progress["step"], config.steps):
            loss = (model(torch.rand(2, 3)) - 1).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            progress |= {"step": step + 1, "log": [*progress["log"], {"step": step + 1, "loss": loss.item()}]}
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
        ("rate", [float("nan"), float("inf"), -1.0, 1.5, 1e300, "x"], "a finite number from 0 to 1"),
        ("steps", [0, float("inf"), 2.5, True, 10**12], "a whole number from 1 to 1,000,000,000"),
        ("steps", [None], "a whole number from 1 to 1,000,000,000"),
        ("steps", [(3,)], "one value"),
        ("sizes", [3], "a list"),
        ("limit", [-1, "2"], "a whole number from 0 to 1,000,000,000"),
        ("sizes", [(1, -1)], "a whole number from 0 to 1,000,000,000"),
        ("kind", ["c"], "one of a, b"),
        ("fast", [1, "yes", None], "True or False"),
        ("init", [3], "text"),
    ],
)
def test_values_of_another_type_not_finite_out_of_range_or_no_choice_are_refused(name, values, must_be):
    run.check_fields(Config(limit=3))
    for value in values:
        with pytest.raises(ValueError, match=f"^--{name} is .*; it must be {must_be}$"):
            run.check_fields(Config(**{name: value}))


PRESETS = {"tiny": {}, "long": {"steps": 9}, "tuned": {"init": "a run of --preset long", "rate": 0.5}}


def parse(*arguments: str):
    return run.parse([str(a) for a in arguments], Config, PRESETS, "Train.")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--ratee", "1"],
            r"^Unrecognized options: --ratee.* \(perhaps you meant --rate\); --help explains every flag",
        ),
        (["--rate", "x"], "--rate"),
        (["--kind", "c"], r"invalid choice 'c' .*\('a', 'b'\); --help"),
        (["--preset", "huge"], "--preset is 'huge'; it must be one of tiny, long, tuned"),
        (["--preset", "tuned"], "--preset tuned starts from a run of --preset long: add --init RUN"),
        (["--init", ""], "--init is empty"),
        (["--steps"], "Missing value for argument '--steps'"),
        (["--out"], "--out: expected one argument"),
    ],
)
def test_a_wrong_flag_is_one_line(flags, message, tmp_path):
    with pytest.raises(ValueError, match=message) as error:
        parse("--out", tmp_path / "new", *flags)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"^missing --out PATH run folder .*Unrecognized options: --ratee"):
        parse("--ratee", "1")


def test_values_come_from_the_preset_from_the_run_of_init_or_from_the_run_itself(tmp_path, finished):
    new = tmp_path / "new"
    assert parse("--out", new) == (Config(), new, False)
    assert parse("--out", new, "--preset", "long", "--rate", "0.3")[0] == Config(steps=9, rate=0.3)
    run.write_config(finished, Config(kind="b", steps=3))
    assert parse("--out", new, "--init", finished)[0] == Config(kind="b", init=str(finished))
    tuned = Config(kind="b", rate=0.5, init=str(finished))
    assert parse("--out", new, "--init", finished, "--preset", "tuned")[0] == tuned
    assert parse("--out", finished, "--resume") == (Config(kind="b"), finished, True)
    assert parse("--out", finished, "--resume", "--steps", "7")[0] == Config(kind="b", steps=7)


def test_resume_names_the_flags_that_contradict_the_run_and_no_others(tmp_path, finished):
    run.write_config(finished, Config(rate=0.7, kind="b"))
    for flags in (["--rate", "0.1"], ["--steps", "2"], ["--rate", "0.1", "--kind", "b"]):
        with pytest.raises(ValueError, match=f"leave out {flags[0][2:]}$"):
            parse("--out", finished, "--resume", *flags)
    with pytest.raises(ValueError, match="leave out init$"):
        parse("--out", finished, "--resume", "--init", tmp_path)
    with pytest.raises(ValueError, match="leave out rate, kind"):
        parse("--out", finished, "--resume", "--preset", "long")
    assert parse("--out", finished, "--resume", "--preset", "long", "--rate", "0.7", "--kind", "b")[0].steps == 9


def stop(error):
    raise error


def test_foreseen_errors_are_one_line_a_closed_pipe_none_and_mistakes_keep_their_traceback(capsys, monkeypatch):
    allocation = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes")
    deep = RecursionError("maximum recursion depth exceeded while decoding a JSON array")
    foreseen = (ValueError("two\nlines"), 2), (ImportError("x"), 2), (OSError("x"), 1), (allocation, 2), (deep, 2)
    for error, code in foreseen:
        with pytest.raises(SystemExit) as exit:
            run.one_line_errors(stop)(error)
        text = capsys.readouterr().err
        assert exit.value.code == code and text.startswith("error: ") and text.count("\n") == 1
    with pytest.raises(SystemExit):
        run.one_line_errors(stop)(ModuleNotFoundError("No module named 'shared'", name="shared"))
    assert "need the folder `shared`" in capsys.readouterr().err
    for error in (ZeroDivisionError(), RuntimeError("shapes differ")):
        with pytest.raises(type(error)):
            run.one_line_errors(stop)(error)
    redirected = []
    with monkeypatch.context() as patch:  # pytest needs dup2 itself
        patch.setattr(os, "dup2", lambda source, target: redirected.append(target) or os.close(source))
        run.one_line_errors(stop)(BrokenPipeError())
        with pytest.raises(SystemExit, match="1"):  # a full disk: what is not written yet must not be tried again
            run.one_line_errors(stop)(OSError(errno.ENOSPC, "No space"))
    assert redirected == [1, 1]


def test_a_closed_stream_is_said_on_the_other_one_and_nothing_begins(capsys, monkeypatch):
    for stream in ("stdout", "stderr"):
        with monkeypatch.context() as patch, pytest.raises(SystemExit, match="1"):
            patch.setattr(sys, stream, None)
            run.one_line_errors(lambda _: pytest.fail("began"))([])
    assert set(capsys.readouterr()) == {"error: standard output or standard error is closed\n"}


def test_an_interrupted_command_speaks_of_itself(monkeypatch):
    for name, said in (("package.train", "stopped; the training goes on .* with --resume"), ("p.predict", "stopped$")):
        with monkeypatch.context() as patch, pytest.raises(SystemExit, match=said):
            patch.setitem(stop.__globals__, "__spec__", ModuleSpec(name, None))  # as `python -m` has it
            run.one_line_errors(stop)(KeyboardInterrupt())


def test_documents_that_are_typed_are_answered_one_by_one(monkeypatch):
    for is_typed, files, size in ((True, (), 1), (True, ("-",), 1), (True, ("notes.txt",), 16), (False, (), 16)):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda is_typed=is_typed: is_typed))
        assert run.at_a_time(files, 16) == size
    monkeypatch.setattr(sys, "stdin", None)
    assert run.at_a_time((), 16) == 16


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
    assert out.exists() == (out / "config.json").exists()
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
    (tmp_path / "empty").mkdir()
    assert not run.holds_run(tmp_path / "empty", resume=False)
    with pytest.raises(ValueError, match="already holds a run: add --resume"):
        run.holds_run(finished, resume=False)
    for path in (tmp_path, finished / "words"):
        with pytest.raises(ValueError, match="is not a run: choose another --out"):
            run.holds_run(path, resume=True)


@pytest.mark.parametrize(("held", "out"), [("run", "run"), ("new.unfinished", "new")])
def test_two_processes_cannot_train_in_one_folder(tmp_path, finished, held, out):
    (tmp_path / held).mkdir(exist_ok=True)
    with FileLock(tmp_path / held / ".lock"):
        with pytest.raises(ValueError, match="another process trains in"):
            train(tmp_path / out, Config(steps=4))
        assert (tmp_path / held).exists()  # the other's
    train(tmp_path / out, Config(steps=4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"package": "other", "config": {"colour": 1}}', "of the package 'other'"),
        ('{"package": "NAME", "config": {"steps": "abc"}}', "--steps is 'abc'"),
        ('{"package": "NAME", "config": ' + "[" * 100_000, "config.json is cut off"),
        ('{"package": "NAME", "config": {"colour": 1}}', "config.json is cut off .*colour"),
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


@pytest.mark.parametrize("wrong", [{"step": "3"}, {"step": 2}, {"log": []}, {"log": [3]}, {"data": 3}])
def test_the_progress_of_a_checkpoint_is_what_a_training_wrote(finished, wrong):
    path = finished / "checkpoints/00000003/progress.json"
    progress = json.loads(path.read_text())
    for content in ({}, [], progress | wrong):
        path.write_text(json.dumps(content))
        with pytest.raises(ValueError, match="00000003 cannot be resumed"):
            train(finished, Config(steps=4))


def test_another_number_of_processes_is_named(finished):
    state = finished / "checkpoints/00000003/random_states_0.pkl"
    shutil.copy(state, state.with_name("random_states_1.pkl"))
    with pytest.raises(ValueError, match="2 processes wrote it, 1 would read it"):
        train(finished, Config(steps=4))


@pytest.mark.parametrize("another", [False, True])
def test_a_run_folder_that_was_moved_stops_its_training_though_another_run_has_its_name(tmp_path, monkeypatch, another):
    original = run.save_checkpoint

    def save_after_a_move(accelerator, folder, progress, keep=1):
        if progress["step"] == 2:
            folder.rename(tmp_path / "moved")
            if another:
                shutil.copytree(tmp_path / "moved", folder)
        original(accelerator, folder, progress, keep)

    monkeypatch.setattr(run, "save_checkpoint", save_after_a_move)
    with pytest.raises(ValueError, match="was moved or removed while it was trained"):
        train(tmp_path / "run")
    assert not (tmp_path / "run/checkpoints/00000002").exists() and (tmp_path / "run").exists() == another
    assert (tmp_path / "moved/checkpoints/00000001").exists()


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Or a power failure could leave a whole name and half a file."""
    events, sync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(run.os, "fsync", lambda file: events.append("sync") or sync(file))
    monkeypatch.setattr(run.os, "replace", lambda a, b: events.append(Path(b).name) or replace(a, b))
    out = train(tmp_path / "run", Config(steps=1))
    files = len(list((out / "checkpoints/00000001").iterdir()))
    assert files > 3 and events.count("sync") == 2 * files and events[:files] == ["sync"] * files
    assert events[files] == "00000000"


def test_a_run_that_another_process_made_meanwhile_is_not_taken_over(tmp_path, finished):
    before = (finished / "config.json").read_bytes()
    with pytest.raises(ValueError, match="was made or removed by another process meanwhile"):
        train(finished, Config(rate=0.9), exists=False)
    assert (finished / "config.json").read_bytes() == before


def test_other_training_data_are_noticed(finished):
    with pytest.raises(ValueError, match="the training data are no longer those"):
        train(finished, Config(steps=4), data="other")
    assert run.fingerprint(["a", "b"]) == run.fingerprint(["a", "b"]) != run.fingerprint(["a", "c"])


def test_a_folder_of_somebody_elses_is_not_emptied(tmp_path):
    (tmp_path / "run.unfinished").mkdir()
    (tmp_path / "run.unfinished/thesis.txt").write_text("x")
    with pytest.raises(ValueError, match="exists and is no start of a run"):
        train(tmp_path / "run")
    assert (tmp_path / "run.unfinished/thesis.txt").read_text() == "x"
    (tmp_path / "run.unfinished/thesis.txt").unlink()  # as a kill leaves it that came before the lock
    assert train(tmp_path / "run")
    with pytest.raises(ValueError, match="exists and is not a run"):
        run.holds_run(Path(os.devnull), resume=False)


def test_the_log_is_whole_after_a_kill_before_it_was_written(tmp_path, finished):
    (finished / "log.jsonl").write_text("")
    (finished / "checkpoints/00000001").mkdir()
    train(finished)
    assert len((finished / "log.jsonl").read_text().splitlines()) == 4
    assert not (finished / "checkpoints/00000001").exists()


def test_a_terminated_command_ends_as_an_interrupted_one(monkeypatch):
    set_to = {}
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)
    monkeypatch.setattr(signal, "signal", set_to.__setitem__)
    run.one_line_errors(lambda _: None)([])
    assert set_to == dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.default_int_handler)
