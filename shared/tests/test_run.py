"""run.py: batches, checkpoints of a training of a few numbers, flags, one-line errors."""

import itertools
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from accelerate import Accelerator
from safetensors.torch import load_file, save_file

from shared import run
from shared.data import Example
from shared.run import Batches, check, checkpoints, load_weights, read_config, read_progress

torch.set_num_threads(1)


@dataclass(frozen=True)
class Config:
    width: Annotated[int, (1, 64)] = 3  # Units.
    share: Annotated[float, (0, 1)] = 0.5  # Dropout.
    rate: float = 0.1  # Learning rate.
    shift: Annotated[float, (-1, 2)] = -0.5  # Anything.
    sizes: tuple[Annotated[int, (2, 10**9)], ...] = (4,)  # Several.
    limit: Annotated[int, (5, 10**9)] | None = None  # None: no limit.
    kind: Literal["a", "b"] = "a"  # A choice.
    steps: int = 4  # Updates.
    init: str = ""  # Run to begin with.

    def check(self):
        if self.kind == "b" and self.rate:
            raise ValueError("--kind b has no --rate")


# Batches

LENGTHS = np.random.default_rng(0).integers(2, 30, (200, 2))


def test_an_epoch_is_the_corpus_once():
    """No batch has more documents or padded tokens than allowed, and there is no batch too many."""
    for size, tokens in ((0, 100), (7, 0), (4, 90)):
        epoch = Batches(LENGTHS, 0, size, tokens).epoch(0)
        assert sorted(sum(epoch, [])) == list(range(200))
        padded = [len(batch) * max(LENGTHS[i][0] for i in batch) for batch in epoch]
        assert not tokens or max(padded) <= tokens and sum(padded) <= 1.2 * sum(LENGTHS[:, 0])
        assert not size or max(map(len, epoch)) <= size
    assert len(Batches(LENGTHS[:, 0], 0, 7).epoch(0)) == -(-200 // 7)
    # too long for any batch: alone
    assert Batches([50, 60], 0, tokens=10).epoch(0) in ([[0], [1]], [[1], [0]])


def test_batches_are_one_epoch_after_the_other_and_depend_on_the_seed_alone():
    batches = Batches(LENGTHS, 0, tokens=100)
    first, second = batches.epoch(0), batches.epoch(1)
    assert list(itertools.islice(batches, len(first + second))) == first + second
    assert first != second and first != Batches(LENGTHS, 1, tokens=100).epoch(0)


# Checkpoints


@pytest.fixture
def accelerator():
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    accelerator.prepare(torch.nn.Linear(2, 1))
    return accelerator


def progress(*steps, **more):
    return {"data": "7 numbers", "log": [{"step": step, "loss": 1.0} | more for step in steps]}


def test_a_checkpoint_has_its_number_and_the_last_ones_stay(accelerator, tmp_path):
    for number in (1, 2, 3):
        run.save_checkpoint(accelerator, tmp_path, progress(*range(1, number + 1)), keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["00000002", "00000003"]
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"00000002", "00000003"}
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert rows == progress(1, 2, 3)["log"]
    assert read_progress(checkpoints(tmp_path)[-1], 1, "7 numbers") == progress(1, 2, 3)
    # a checkpoint has exactly eight digits
    for name in ("99 backup", "unfinished", "000000099", "9"):
        shutil.copytree(checkpoints(tmp_path)[0], tmp_path / "checkpoints" / name)
    assert [path.name for path in checkpoints(tmp_path)] == ["00000002", "00000003"]


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(
    accelerator, tmp_path, monkeypatch
):
    """At each of its writes; the next checkpoint does not take over what was left."""
    run.save_checkpoint(accelerator, tmp_path, progress(1))
    for name in ("fsync", "replace"):

        def kill(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, name, kill)
            run.save_checkpoint(accelerator, tmp_path, progress(1, 2))
        assert [path.name for path in checkpoints(tmp_path)] == ["00000001"]
        (tmp_path / "checkpoints/unfinished/random_states_9.pkl").write_bytes(b"of another start")
    run.save_checkpoint(accelerator, tmp_path, progress(1, 2))
    assert [path.name for path in checkpoints(tmp_path)] == ["00000002"]
    assert read_progress(checkpoints(tmp_path)[-1], 1, "7 numbers") == progress(1, 2)


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(accelerator, tmp_path, monkeypatch):
    done = []
    fsync, replace_ = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("fsync"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda *a: (done.append("replace"), replace_(*a)))
    run.save_checkpoint(accelerator, tmp_path, progress(1))
    files = len(list(checkpoints(tmp_path)[0].iterdir()))
    assert done == ["fsync"] * files + ["replace"] and files > 2


def test_numbers_that_are_not_finite_are_not_saved(accelerator, tmp_path):
    wrong = progress(6, validation_loss=float("nan"))
    with pytest.raises(ValueError, match="validation_loss is nan at step 6; .* keeps its last"):
        run.save_checkpoint(accelerator, tmp_path, wrong)
    assert not list(tmp_path.iterdir())


def test_what_cannot_go_on_to_the_same_bits_is_refused(accelerator, tmp_path):
    """Other data, another number of processes, and damage that accelerate would only log."""
    run.save_checkpoint(accelerator, tmp_path, progress(4))
    last = checkpoints(tmp_path)[-1]
    for processes, data, said in (
        (1, "8 numbers", "was trained on 7 numbers; this is 8 numbers"),
        (2, "7 numbers", "00000004 is of 1 processes, here are 2"),
    ):
        with pytest.raises(ValueError, match=said):
            read_progress(last, processes, data)

    class Crafted:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    for name, damage in (
        ("random_states_0.pkl", lambda whole: whole[: len(whole) // 2]),
        ("random_states_0.pkl", lambda whole: pickle.dumps(Crafted(), protocol=2)),
        ("progress.json", lambda whole: whole[: len(whole) // 2]),
    ):
        whole = (last / name).read_bytes()
        (last / name).write_bytes(damage(whole))
        with pytest.raises(ValueError, match="00000004 is damaged .*: train anew"):
            read_progress(last, 1, "7 numbers")
        (last / name).write_bytes(whole)
    assert not (tmp_path / "ran").exists()  # no code of a file was run


def test_the_fingerprint_is_of_all_that_is_in_the_examples():
    examples = [Example(str(n), ["a", "b"], ["c"], [["c"]]) for n in range(7)]
    same = run.fingerprint(examples)
    assert same.startswith("7 examples, sha256 ") and same == run.fingerprint(list(examples))
    changed = [replace(examples[0], document=["a", "x"]), *examples[1:]]
    for other in (examples[:6], examples[::-1], changed):
        assert run.fingerprint(other) != same


def test_a_folder_that_is_there_is_left_alone(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "notes").mkdir()
    run.check_out(tmp_path / "notes", resume=True)  # empty, as of a start that was killed
    (tmp_path / "notes/text").write_text("precious")
    run.check_out(tmp_path / "run", resume=True)
    for name, resume, said in (
        ("run", False, "exists: add --resume"),
        ("link", False, "exists: add --resume"),
        ("notes", True, "exists and is not a run"),
    ):
        with pytest.raises(ValueError, match=f"{name} {said}"):
            run.check_out(tmp_path / name, resume)
    assert capsys.readouterr().out == ""
    run.check_out(tmp_path / "new", resume=True)
    assert "new does not exist yet: a new training begins" in capsys.readouterr().out


def test_weights_are_those_of_a_finished_run(tmp_path):
    model, path = torch.nn.Linear(1, 3), tmp_path / "model.safetensors"
    with pytest.raises(ValueError, match="is missing: is the training finished"):
        load_weights(model, path)
    save_file({"weight": torch.ones(3, 1), "bias": torch.zeros(3)}, path)
    load_weights(model, path)
    assert torch.equal(model.weight, load_file(path)["weight"])
    nan = {"weight": torch.full((3, 1), torch.nan), "bias": torch.zeros(3)}
    for weights in (nan, {"bias": torch.zeros(3)}):
        save_file(weights, path)
        with pytest.raises(ValueError, match="model.safetensors"):
            load_weights(model, path)


# Flags


def test_what_is_no_run_of_this_package_is_refused(tmp_path):
    for saved in ({"old": 1}, {"model_type": "bart"}, [], {"config": {"width": 3}}):
        (tmp_path / "config.json").write_text(json.dumps(saved))
        with pytest.raises(ValueError, match="is no run folder of this package: "):
            read_config(tmp_path, Config)


def test_numbers_out_of_range_are_refused():
    check(Config())
    for values, message in [
        ({"width": 0}, "--width is 0; it must be from 1 to 64"),
        ({"rate": float("nan")}, "--rate is nan"),
        ({"rate": -0.1}, "--rate is -0.1; it must be from 0"),
        ({"shift": 2.5}, "--shift is 2.5; it must be from -1 to 2"),
        ({"sizes": (2, 1)}, "--sizes is 1; it must be from 2"),
        ({"limit": 4}, "--limit is 4; it must be from 5"),
        ({"steps": 10**10}, "--steps is 10000000000"),
        ({"kind": "b"}, "--kind b has no --rate"),
    ]:
        with pytest.raises(ValueError, match=message):
            check(replace(Config(), **values))


PRESETS = {"tiny": {}, "wide": {"width": 9, "rate": 0.5}}


def parse(*arguments):
    return run.parse([str(argument) for argument in arguments], Config, PRESETS, "Train.")


def test_flags_win_over_the_preset_and_that_over_the_first_run(tmp_path):
    saved, first = Config(5, 0.25, steps=3), tmp_path / "first"
    first.mkdir()
    (first / "config.json").write_text(json.dumps(asdict(saved)))
    assert run.read_config(first, Config) == saved
    assert parse("--out", tmp_path / "x") == (Config(), tmp_path / "x", False)
    assert parse("--out", "x", "--preset", "wide", "--rate", 0.2)[0] == Config(9, rate=0.2)
    found = parse("--out", "x", "--init", first, "--preset", "wide", "--rate", 0.2)[0]
    assert found == Config(9, 0.25, rate=0.2, steps=3, init=str(first))
    assert parse("--out", "x", "--resume", "--width", "2")[0] == Config(2)  # nothing is there yet
    assert parse("--out", first, "--resume") == (saved, first, True)
    assert parse("--out", first, "--resume", "--steps", 9)[0].steps == 9
    for flags in (("--width", 4), ("--steps", 2), ("--preset", "wide")):
        with pytest.raises(ValueError, match="--resume keeps the values of .*; leave out"):
            parse("--out", first, "--resume", *flags)


def test_help_has_a_line_for_each_example_and_the_comment_of_each_field(capsys):
    text = "Train.\n\npython -m a.train --out x\npython -m shared.score y\n"
    with pytest.raises(SystemExit):
        run.parse(["--help"], Config, PRESETS, text)
    text = capsys.readouterr().out
    lines = set(text.splitlines())
    assert {"python -m a.train --out x", "python -m shared.score y"} < lines
    for words in ("Run folder to make.", "Learning rate.", "(default: 0.1)", "tiny,wide"):
        assert words in text


# Errors


@pytest.mark.parametrize(
    ("kind", "code"), [(ValueError, 2), (ImportError, 2), (FileNotFoundError, 2), (OSError, 1)]
)
def test_errors_are_one_line(capsys, kind, code):
    def main(_):
        raise kind("two\n  words")

    with pytest.raises(SystemExit) as ended:
        run.one_line_errors(main)()
    assert (ended.value.code, capsys.readouterr().err) == (code, "error: two words\n")


def test_the_console_is_utf8_and_a_reader_that_has_gone_ends_a_command_without_a_word():
    said = "print((chr(304) + chr(10)) * 100000)"
    code = f"from shared.run import one_line_errors as way; way(lambda _: {said})()"
    call = ["bash", "-c", f"'{sys.executable}' -c '{code}' | head -n 1"]
    options = {"cwd": Path(__file__).parents[2], "env": os.environ | {"PYTHONIOENCODING": "cp1252"}}
    ended = subprocess.run(call, capture_output=True, **options)
    assert (ended.stdout.decode("utf-8"), ended.stderr) == (chr(304) + "\n", b"")


def test_without_a_console_a_command_ends_well(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    run.one_line_errors(lambda _: print("said to nobody"))()


def test_find_device_gives_one_that_computes_and_names_the_flag_of_others():
    assert run.find_device("cpu") == torch.device("cpu")
    # each fails in torch with another type
    for name in ("foo", "meta", "cuda:99", "hpu", "", "xla"):
        with pytest.raises(ValueError, match=f"^--device {name}: .+$"):
            run.find_device(name)


def test_bf16_is_recommended_only_where_the_cpu_has_it(monkeypatch):
    for has_bf16, has_gpu in ((True, False), (False, False), (True, True)):
        capabilities = {"avx512_bf16": has_bf16}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found)
        monkeypatch.setattr(torch.accelerator, "is_available", lambda found=has_gpu: found)
        assert run.cpu_has_bf16() == (has_bf16 and not has_gpu)
