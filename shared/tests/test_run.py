"""run.py with a training of a few numbers: killed at every write, moved, started twice, fed other data."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Literal

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from annotated_types import Interval
from safetensors.torch import load_file, save_file

from shared import run
from shared.data import open_output
from shared.run import check, check_folder, last_checkpoint, load_weights, one_line_errors, training

torch.set_num_threads(1)
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="a kill needs a process of its own")


@dataclass(frozen=True)
class Config:
    width: Annotated[int, Interval(ge=1, le=64)] = 3  # Units.
    rate: float = 0.1  # Learning rate.
    share: Annotated[float, Interval(ge=0, le=1)] = 0.5  # Dropout.
    sizes: tuple[Annotated[int, Interval(ge=2)], ...] = (4,)  # Several.
    limit: Annotated[int, Interval(ge=5)] | None = None  # None: no limit.
    kind: Literal["a", "b"] = "a"  # A choice.
    steps: int = 4  # Updates.

    def check(self):
        if self.kind == "b" and self.rate:
            raise ValueError("--kind b has no --rate")


def train(
    out: Path, resume: bool = False, config: Config = Config(), train=(1.0, 2.0), validation=(3.0,), between=None
):
    """A training as those of the packages: dropout, a best model, a checkpoint at every second step."""
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    begun = check_folder(out, resume)
    accelerator = Accelerator(cpu=True)
    set_seed(0, device_specific=True)
    net = torch.nn.Sequential(torch.nn.Linear(2, config.width), torch.nn.Dropout(config.share))
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), config.rate))
    data = {"training": train, "validation": validation}
    start = {"step": 0}
    with training(
        accelerator, out, config, lambda f: (f / "words.txt").write_text("a"), begun, data, start, best=None
    ) as folder:
        for step in range(folder.progress["step"], config.steps):
            loss = model(torch.tensor(train)).square().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 2:
                if between:
                    between()
                folder.progress |= {"best": step}
                weights = {name: value.clone() for name, value in net.state_dict().items()}
                folder.write("best.safetensors", lambda path, weights=weights: save_file(weights, path))
                folder.save_checkpoint({"step": step + 1, "loss": loss.item()})
        folder.write("model.safetensors", lambda path: save_file(net.state_dict(), path))


def in_child(function, *arguments, kill_at: int = 0) -> int:
    """Exit status of a call in a process of its own, which kills itself at its so many-th change of a file."""
    sys.stdout.flush()
    if process := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    changes = []

    def count(event, details):
        writes = event == "open" and isinstance(details[1], str) and set(details[1]) & set("wxa+")
        if writes or event in ("os.rename", "os.mkdir", "os.remove", "shutil.rmtree"):
            changes.append(event)
            if len(changes) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(count)
        function(*arguments)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def by_two(*arguments, call=train) -> list[int]:
    """Exit statuses of two processes that train together."""
    import torch._dynamo  # noqa: F401  # two seconds, once and not in every child

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    children = []
    for rank in ("0", "1"):
        if not (child := os.fork()):
            os.environ |= place | {"RANK": rank, "LOCAL_RANK": rank, "ACCELERATE_USE_CPU": "true"}
            os._exit(in_child(call, *arguments))
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def files(folder: Path) -> dict[str, bytes]:
    """Content of every file of a run, but of its lock and what a kill left unfinished."""
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in contents.items() if name != ".lock" and ".unfinished" not in name}


@pytest.fixture(autouse=True)
def another_accelerator():
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)


@pytest.fixture
def finished(tmp_path) -> Path:
    train(tmp_path / "whole")
    return tmp_path / "whole"


def test_a_run_has_config_log_and_last_checkpoint(finished):
    names = set(files(finished))
    assert {"config.json", "log.jsonl", "words.txt", "best.safetensors", "model.safetensors"} < names
    assert {name.split("/")[1] for name in names if "/" in name} == {"00000004"}
    rows = [json.loads(line) for line in (finished / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 2, 4] and rows[-1]["loss"] > 0
    assert run.read_config(finished, Config) == Config()


@forks
def test_a_training_killed_at_every_write_and_resumed_ends_with_equal_bits(finished, tmp_path):
    expected, kills = files(finished), 0
    while True:
        out = tmp_path / f"killed-{kills}"
        if (status := in_child(train, out, kill_at=kills + 1)) == 0:
            break
        assert status == -signal.SIGKILL, kills
        assert in_child(train, out, out.exists()) == 0, kills
        left = files(out)
        assert expected == {name: left[name] for name in expected}, kills
        assert all(name.startswith("checkpoints/00000002/") for name in left.keys() - expected.keys()), kills
        shutil.rmtree(out)
        kills += 1
    assert kills > 20


@forks
def test_two_processes_train_one_run_and_go_on_with_it(tmp_path):
    whole, parts, four = tmp_path / "whole", tmp_path / "parts", Config(steps=4)
    assert by_two(whole, False, four) == by_two(parts, False, Config(steps=2)) == by_two(parts, True, four) == [0, 0]
    assert files(parts) == files(whole) and len(list(last_checkpoint(whole).glob("random_states_*"))) == 2
    assert by_two(whole, False, four) == [1, 1]  # it is there
    assert files(parts) == files(whole)


def test_a_finished_run_is_lengthened_as_if_it_had_been_longer(finished, tmp_path):
    train(tmp_path / "long", config=Config(steps=8))
    train(finished, True, Config(steps=8))
    assert files(finished) == files(tmp_path / "long")


def test_a_folder_that_is_there_is_left_alone(finished, tmp_path):
    unfinished, before = tmp_path / "new.unfinished", files(finished)
    shutil.copytree(finished, unfinished)  # a run of that name is a run like another
    train(tmp_path / "new")
    assert files(unfinished) == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/text").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for out, resume, message in [
        (finished, False, "whole exists: add --resume"),
        (tmp_path / "link", False, "link exists"),
        (tmp_path / "notes", False, "notes exists"),
        (tmp_path / "notes", True, "notes exists and is not a run"),
    ]:
        with pytest.raises(ValueError, match=message):
            train(out, resume)
    assert files(finished) == before and files(tmp_path / "notes") == {"text": b"precious"}


def test_a_training_whose_folder_was_replaced_writes_nothing_into_the_other_run(finished, tmp_path):
    out, before = tmp_path / "out", files(finished)

    def replace_it():
        out.rename(tmp_path / "away")
        shutil.copytree(finished, out)

    with pytest.raises(ValueError, match="out was moved or removed while it was trained"):
        train(out, between=replace_it)
    assert files(out) == before
    train(tmp_path / "away", True)
    assert files(tmp_path / "away") == before

    with pytest.raises(ValueError, match="moved or removed"):
        train(tmp_path / "gone", between=lambda: shutil.rmtree(tmp_path / "gone"))
    assert not (tmp_path / "gone").exists()


@forks
def test_of_two_trainings_of_one_folder_one_is_refused(tmp_path):
    out = tmp_path / "out"
    refused = []

    def second(resume):
        with pytest.raises(ValueError, match="another process trains in .*out" if resume else "out exists"):
            train(out, resume)

    train(out, between=lambda: refused.append([in_child(second, resume) for resume in (False, True)]))
    assert refused == [[0, 0]] * 2


def test_what_began_meanwhile_is_not_trained_from_the_start(tmp_path, monkeypatch):
    """Two commands found no folder; the other one had its checkpoint before this one made the folder."""
    out, checked = tmp_path / "out", run.check_folder
    train(out)
    before = files(out)
    monkeypatch.setattr(sys.modules[__name__], "check_folder", lambda *_: False)
    with pytest.raises(ValueError, match="--resume goes on with it"):
        train(out)
    assert checked(out, True) and files(out) == before


def test_checkpoints_have_exactly_eight_digits(finished):
    checkpoint = last_checkpoint(finished)
    for name in ("99 backup", "00000099.unfinished", "000000099", "9"):
        shutil.copytree(checkpoint, checkpoint.with_name(name))
    assert last_checkpoint(finished) == checkpoint and checkpoint.name == "00000004"
    train(finished, True, Config(steps=6))
    names = {path.name for path in (finished / "checkpoints").iterdir()}
    assert names == {"00000006", "99 backup", "00000099.unfinished", "000000099", "9"}


@pytest.mark.parametrize("name", ["training", "validation"])
def test_changed_data_are_named(tmp_path, name):
    data = {"train": (1.0, 2.0), "validation": (3.0,)}
    train(tmp_path / "out", **data)
    before = files(tmp_path / "out")
    key = "train" if name == "training" else name
    with pytest.raises(ValueError, match=f"the {name} data are no longer those that .*out began with"):
        train(tmp_path / "out", True, **data | {key: (*data[key], 4.0)})
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize("damaged", ["model.safetensors", "optimizer.bin", "random_states_0.pkl", "progress.json"])
def test_a_damaged_checkpoint_is_refused(finished, damaged):
    path = last_checkpoint(finished) / damaged
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="00000004 cannot be resumed .*train anew"):
        train(finished, True)


def test_a_checkpoint_of_another_number_of_processes_is_refused(finished):
    path = last_checkpoint(finished) / "random_states_0.pkl"
    shutil.copy(path, path.with_name("random_states_1.pkl"))
    with pytest.raises(ValueError, match="2 processes wrote it, 1 would read it"):
        train(finished, True)


def test_a_write_that_fails_says_what_and_leaves_the_old_file(tmp_path):
    def full(path):
        path.write_text("half")
        raise RuntimeError("No space left on device")

    (tmp_path / ".lock").touch()
    accelerator = SimpleNamespace(is_main_process=True, wait_for_everyone=lambda: None)
    folder = run.RunFolder(accelerator, tmp_path, {}, 1)
    folder.write("file", lambda path: path.write_text("old"))
    with pytest.raises(OSError, match="file cannot be written .No space left .*make room, then --resume"):
        folder.write("file", full)
    assert (tmp_path / "file").read_text() == "old"


# Weights and configs


def test_weights_are_those_of_the_run_or_of_its_last_checkpoint(finished, capsys):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3))
    load_weights(model, finished)
    assert torch.equal(model[0].weight, load_file(finished / "model.safetensors")["0.weight"])
    (finished / "model.safetensors").unlink()
    torch.nn.init.zeros_(model[0].weight)
    load_weights(model, finished)
    assert model[0].weight.any() and "is not finished: reading" in capsys.readouterr().err
    for weights in (
        {"0.weight": torch.full((3, 2), float("nan")), "0.bias": torch.zeros(3)},
        {"0.bias": torch.zeros(3)},
    ):
        save_file(weights, finished / "model.safetensors")
        with pytest.raises(ValueError, match="model.safetensors"):
            load_weights(model, finished)


# The command line


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 0}, "--width is 0; it must be from 1 to 64"),
        ({"rate": float("nan")}, "--rate is nan"),
        ({"rate": -0.1}, "--rate is -0.1; it must be from 0"),
        ({"share": 1.1}, "--share is 1.1; it must be from 0 to 1"),
        ({"sizes": (2, 1)}, "--sizes is 1; it must be from 2"),
        ({"limit": 4}, "--limit is 4; it must be from 5"),
        ({"steps": 10**10}, "--steps is 10000000000"),
        ({"kind": "b"}, "--kind b has no --rate"),
    ],
)
def test_numbers_out_of_range_are_refused(values, message):
    check(Config())
    with pytest.raises(ValueError, match=message):
        check(replace(Config(), **values))


PRESETS = {"tiny": {}, "wide": {"width": 9, "rate": 0.5}}


def parse(*arguments):
    return run.parse([str(argument) for argument in arguments], Config, PRESETS, "Train.")


def test_flags_win_over_the_preset_and_that_over_the_first_run(tmp_path):
    assert parse("--out", tmp_path / "x") == (Config(), tmp_path / "x", False)
    assert parse("--out", "x", "--preset", "wide", "--rate", 0.2)[0] == Config(width=9, rate=0.2)
    train(tmp_path / "first", config=Config(width=5, share=0.25))
    assert parse("--out", "x", "--resume", "--width", "2")[0] == Config(width=2)  # nothing is there yet
    saved, out, resume = parse("--out", tmp_path / "first", "--resume")
    assert (saved, resume) == (Config(width=5, share=0.25), True)
    assert parse("--out", out, "--resume", "--steps", 9)[0].steps == 9
    for flags in (("--width", 4), ("--steps", 3), ("--preset", "wide")):
        with pytest.raises(ValueError, match="--resume keeps the values of .*config.json; leave out"):
            parse("--out", out, "--resume", *flags)


@pytest.mark.parametrize("flags", [["--wdth", "3"], ["--width", "x"], ["--kind", "c"], ["--preset", "none"], []])
def test_a_wrong_flag_ends_with_code_2(flags, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(*(["--out", "x", *flags] if flags else []))
    assert ended.value.code == 2 and capsys.readouterr().err


def test_help_has_a_line_for_each_example_and_the_comment_of_each_field(capsys):
    with pytest.raises(SystemExit) as ended:
        run.parse(["--help"], Config, PRESETS, "Train.\n\npython -m a --out x\npython -m b --out y\n")
    text = capsys.readouterr().out
    assert ended.value.code == 0 and {"python -m a --out x", "python -m b --out y"} < set(text.splitlines())
    assert all(words in text for words in ("Run folder to make.", "Learning rate.", "(default: 0.1)", "tiny,wide"))


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("two\n  lines"), 2, "error: two lines\n"),
        (ImportError("pip install it"), 2, "error: pip install it\n"),
        (OSError("disk full"), 1, "error: disk full\n"),
    ],
)
def test_errors_are_one_line(capsys, error, code, text):
    @one_line_errors
    def main(arguments):
        raise error

    with pytest.raises(SystemExit) as ended:
        main([])
    assert (ended.value.code, capsys.readouterr().err) == (code, text)


def test_a_reader_that_has_gone_ends_a_command_without_a_word():
    code = "from shared.run import one_line_errors\n@one_line_errors\ndef main(a):\n    print('x\\n' * 100000)\nmain()"
    command = f"'{sys.executable}' -c \"{code}\" | head -n 1"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (ended.stdout, ended.stderr) == ("x\n", "")


def test_flags_and_presets_reach_the_models_config(tmp_path):
    """A config may hold its model's: flags, presets and a saved run know the fields of both by name alone."""
    presets = {"tiny": {}, "wide": {"width": 9, "steps": 7}}

    def nested(*arguments):
        return run.parse([str(argument) for argument in arguments], Nested, presets, "Train.")[0]

    assert nested("--out", "x", "--preset", "wide", "--rate", 0.2) == Nested(Inner(9, 0.2), steps=7)
    (tmp_path / "config.json").write_text(json.dumps({"config": asdict(Nested(Inner(5), steps=3))}))
    assert run.read_config(tmp_path, Nested) == Nested(Inner(5), steps=3)
    # What wins: a flag, the preset, the run of --init, the default.
    found = nested("--out", "x", "--init", tmp_path, "--preset", "wide", "--width", 2)
    assert found == Nested(Inner(2), steps=7, init=str(tmp_path))
    assert nested("--out", "x", "--init", tmp_path) == Nested(Inner(5), steps=3, init=str(tmp_path))
    with pytest.raises(ValueError, match="--width is 0; it must be from 1 to 64"):
        check(run.update(Nested(), width=0))
    check(run.update(Nested(), rate=-1.0))
    with pytest.raises(ValueError, match="--rate is 2.5; it must be from -1 to 2"):
        check(run.update(Nested(), rate=2.5))


@dataclass(frozen=True)
class Inner:
    width: Annotated[int, Interval(ge=1, le=64)] = 3  # Units.
    rate: Annotated[float, (-1, 2)] = 0.1  # Rate.


@dataclass(frozen=True)
class Nested:
    model: Inner = Inner(4)
    steps: int = 1  # Updates.
    init: str = ""  # Run to go on from.


# accelerate, and what came out


def test_variables_of_accelerate_do_not_change_a_training(monkeypatch):
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    accelerator = run.new_accelerator(SimpleNamespace(mixed_precision="no", accumulate=2))
    assert accelerator.gradient_accumulation_steps == 2 and accelerator.even_batches is False
    with pytest.raises(ValueError, match="another --mixed-precision: start a new one$"):
        run.new_accelerator(SimpleNamespace(mixed_precision="bf16", accumulate=1))


def test_sources_are_exchanged_over_the_corpus():
    items = [("a", 1), ("b", 2), ("c", 3)]

    def swap(item, other):
        return other[0], item[1]

    assert run.exchanged(items, swap) == [("b", 1), ("c", 2), ("a", 3)]
    assert run.exchanged(items[:1], swap) is None and run.exchanged([("a", 1), ("a", 2)], swap) is None
    assert "does not read its source" in run.says_it_reads(2.0, 2.04)
    assert "reads little of its source" in run.says_it_reads(4.8, 5.3)
    assert run.says_it_reads(1.2, 3.1) == run.says_it_reads(1.2, None) == ""


def test_find_device_gives_one_that_computes_and_names_the_flag_of_others():
    assert run.find_device("cpu") == torch.device("cpu")
    for name in ("foo", "meta", "cuda:99", "hpu", "", "xla"):  # each fails in torch with another type
        with pytest.raises(ValueError, match=f"^--device {name} cannot be used here: .+$"):
            run.find_device(name)


# Outputs


def test_the_console_is_utf8_whatever_its_encoding():
    code = "from shared.run import one_line_errors\n@one_line_errors\ndef main(a):\n    print(chr(304))\nmain()"
    options = {
        "capture_output": True,
        "cwd": Path(__file__).parents[2],
        "env": os.environ | {"PYTHONIOENCODING": "cp1252"},
    }
    ended = subprocess.run([sys.executable, "-c", code], **options)
    assert ended.stdout.decode("utf-8") == chr(304) + os.linesep


def test_an_output_must_not_exist(tmp_path, capsys):
    path = tmp_path / "new" / "out.txt"
    with open_output(path) as file:
        file.write("ä\n")
    assert path.read_bytes() == "ä\n".encode()
    (tmp_path / "link").symlink_to(path)
    for taken in (path, tmp_path / "new/../new/out.txt", tmp_path / "link", tmp_path, Path("/dev/stdin")):
        with pytest.raises(ValueError, match="exists: choose another name, or add --overwrite"):
            with open_output(taken):
                pytest.fail("must not be opened")
    assert path.read_text(encoding="utf-8") == "ä\n"
    with open_output(None) as file:
        file.write("printed")
    assert capsys.readouterr().out == "printed"


def test_an_input_that_is_overwritten_has_been_read_whole(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("one\ntwo\n")
    with path.open() as source, open_output(path, overwrite=True) as file:
        for line in source:
            file.write(line.upper())
            assert path.read_text() == "one\ntwo\n"
    assert path.read_text() == "ONE\nTWO\n" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(KeyboardInterrupt):
        with open_output(path, overwrite=True) as file:
            file.write("half")
            raise KeyboardInterrupt
    assert path.read_text() == "ONE\nTWO\n" and list(tmp_path.iterdir()) == [path]


def test_a_command_that_fails_before_its_first_line_leaves_no_output(tmp_path):
    with pytest.raises(ValueError):
        with open_output(tmp_path / "out.txt"):
            raise ValueError("no such run")
    assert not list(tmp_path.iterdir())
