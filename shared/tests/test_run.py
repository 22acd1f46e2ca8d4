"""run.py with a training of a few numbers: killed at every write, moved, started twice, fed other
data.
"""

import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")

from safetensors.torch import load_file, save_file

from shared import run
from shared.data import Example, open_output
from shared.run import (
    Batches,
    RunFolder,
    check,
    last_checkpoint,
    load_weights,
    read_config,
    setup,
    write_weights,
)

torch.set_num_threads(1)
# as accelerate with one process
ALONE = SimpleNamespace(is_main_process=True, wait_for_everyone=lambda: None)


@dataclass(frozen=True)
class Config:
    width: Annotated[int, (1, 64)] = 3  # Units.
    share: Annotated[float, (0, 1)] = 0.5  # Dropout.
    rate: float = 0.1  # Learning rate.
    shift: Annotated[float, (-1, 2)] = -0.5  # Anything.
    sizes: tuple[Annotated[int, (2, 10**9)], ...] = (4,)  # Several.
    limit: Annotated[int, (5, 10**9)] | None = None  # None: no limit.
    kind: Literal["a", "b"] = "a"  # A choice.
    data: str = "numbers"  # Examples.
    batch_size: int = 2  # Examples of a batch.
    steps: int = 4  # Updates.
    mixed_precision: Literal["no", "bf16"] = "no"  # Of the forward pass.
    seed: int = 0  # Of weights, order and dropout.
    init: str = ""  # Run to begin with.

    def check(self):
        if self.kind == "b" and self.rate:
            raise ValueError("--kind b has no --rate")


class Item(NamedTuple):
    number: float
    was_cut: bool = False


class Run(NamedTuple):
    config: Config
    model: torch.nn.Module

    def encode(self, examples):
        return [Item(float(example.target)) for example in examples]

    def collate(self, items):
        return torch.tensor([[item.number] for item in items])

    def write_files(self, folder):
        (folder / "words.txt").write_text("a")


def examples_of(data, split):
    numbers = range(7) if split == "train" else range(9, 12)
    return [Example(str(number), ["a"], [str(number)], [[str(number)]]) for number in numbers]


def new_run(config, examples=None):
    net = torch.nn.Sequential(torch.nn.Linear(1, config.width), torch.nn.Dropout(config.share))
    return Run(config, net)


def saved_run(out):
    run = new_run(read_config(out, Config))
    load_weights(run.model, out)
    return run


def make(out, resume=False, config: Config = Config(), load=examples_of):
    how = (
        new_run,
        saved_run,
        lambda model: torch.optim.AdamW(model.parameters(), 0.1),
        lambda item: 1,
        load,
    )
    return setup(config, out, resume, *how, "model.safetensors", total=[0])


def train(*how, between=None, **more):
    """A training as those of the packages: dropout, the best weights, a checkpoint at every second
    step.
    """
    made = make(*how, **more)
    config = made.run.config
    with made.folder as folder:
        done = folder.progress["step"]
        batches = iter(made.accelerator.skip_first_batches(made.loader, done))
        for step in range(done, config.steps):
            batch = next(batches)
            loss = (made.model(batch) - batch).square().mean()
            made.accelerator.backward(loss)
            made.optimizer.step()
            made.optimizer.zero_grad()
            if step % 2:
                if between:
                    between()
                folder.progress["total"][0] += step
                row = {"step": step + 1, "loss": loss.item(), "validation_loss": abs(3 - step)}
                folder.keep_best(row, lambda path: write_weights(made.run.model, path))
                folder.save_checkpoint(row)
        folder.write("model.safetensors", lambda path: write_weights(made.run.model, path))


def train_with_copies(out, copies):
    """A training whose folder is copied before each change of a file: what a kill at that moment
    would leave.
    """
    copying = []

    def copy(event, details):
        writes = event == "open" and isinstance(details[1], str) and set(details[1]) & set("wxa")
        changes = writes or event in ("os.rename", "os.mkdir", "os.remove", "shutil.rmtree")
        if changes and not copying and out.exists():
            copying.append(event)
            shutil.copytree(out, copies / f"{len(os.listdir(copies)):02d}")
            copying.clear()

    sys.addaudithook(copy)
    train(out)


def in_child(function, *arguments) -> int:
    """Exit status of a call in a process of its own."""
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def files(folder: Path) -> dict[str, bytes]:
    """Content of every file of a run, but of its lock and what a kill left unfinished."""
    contents = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    return {
        name: content
        for name, content in contents.items()
        if name != ".lock" and ".unfinished" not in name
    }


@pytest.fixture(autouse=True)
def another_accelerator():
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(out)
    return out


@pytest.fixture
def finished(whole, tmp_path) -> Path:
    return shutil.copytree(whole, tmp_path / "whole")


def test_a_run_has_config_log_and_last_checkpoint(whole):
    names = set(files(whole))
    assert {
        "config.json",
        "log.jsonl",
        "words.txt",
        "best.safetensors",
        "model.safetensors",
    } < names
    assert {name.split("/")[1] for name in names if "/" in name} == {"00000004"}
    rows = [json.loads(line) for line in (whole / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 2, 4] and rows[-1]["loss"] > 0


def test_a_training_killed_at_every_write_and_resumed_ends_with_equal_bits(whole, tmp_path):
    expected, copies = files(whole), tmp_path / "copies"
    copies.mkdir()
    assert in_child(train_with_copies, tmp_path / "out", copies) == 0
    killed = sorted(copies.iterdir())
    for out in killed:
        train(out, True)
        left = files(out)
        assert expected == {name: left[name] for name in expected}, out
        assert all(
            name.startswith("checkpoints/00000002/") for name in left.keys() - expected.keys()
        ), out
    assert len(killed) > 20


def test_two_processes_train_one_run_and_go_on_with_it(tmp_path):
    import torch._dynamo  # noqa: F401  # two seconds, once and not in every child
    from accelerate import debug_launcher

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for out, resume, steps in ((whole, False, 4), (parts, False, 2), (parts, True, 4)):
        debug_launcher(train, (out, resume, Config(steps=steps)), num_processes=2)
    assert (
        files(parts) == files(whole)
        and len(list(last_checkpoint(whole).glob("random_states_*"))) == 2
    )
    with pytest.raises(ValueError, match="00000004 is of 2 processes, here are 1: start as many"):
        train(whole, True, Config(steps=6))


def test_a_finished_run_is_lengthened_as_if_it_had_been_longer(finished, tmp_path):
    # a checkpoint has exactly eight digits
    others = {"99 backup", "00000099.unfinished", "000000099", "9"}
    for name in others:
        shutil.copytree(last_checkpoint(finished), finished / "checkpoints" / name)
    for out, resume in ((tmp_path / "long", False), (finished, True)):
        train(out, resume, Config(steps=6))
    assert {path.name for path in (finished / "checkpoints").iterdir()} == {"00000006", *others}
    for name in others:
        shutil.rmtree(finished / "checkpoints" / name)
    assert files(finished) == files(tmp_path / "long")


def test_a_finished_run_that_goes_on_is_read_from_its_checkpoints(finished, capsys):
    """Its old last weights would be taken for the new ones."""

    def look():
        load_weights(new_run(Config()).model, finished)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(finished, True, Config(steps=6), between=look)
    assert "is not finished: reading" in capsys.readouterr().err
    assert run.updates_of(finished, Config(steps=6)) == 4
    shutil.rmtree(finished / "checkpoints")
    assert run.updates_of(finished, Config(steps=6)) == 6


def test_the_weights_follow_the_seed(tmp_path):
    """Or every interval over seeds would hold one draw of weights."""
    draws = [make(tmp_path / "run", config=Config(seed=seed)).model[0].weight for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def test_numbers_that_are_not_finite_are_not_saved(tmp_path):
    with pytest.raises(
        ValueError, match="validation_loss is nan at step 6; .* keeps its last checkpoint"
    ):
        RunFolder(None, tmp_path, {"log": []}).save_checkpoint(
            {"step": 6, "validation_loss": float("nan")}
        )
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(finished, tmp_path):
    unfinished, before = tmp_path / "new.unfinished", files(finished)
    shutil.copytree(finished, unfinished)  # a run of that name is a run like another
    train(tmp_path / "new")
    assert files(unfinished) == before
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("whole", "link"):
        with pytest.raises(ValueError, match=f"{name} exists: add --resume"):
            train(tmp_path / name)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/text").write_text("precious")
    with pytest.raises(ValueError, match="notes exists and is not a run"):
        train(tmp_path / "notes", True)
    assert files(finished) == before


def test_of_two_trainings_of_one_folder_one_is_refused(tmp_path):
    out, refused = tmp_path / "out", []

    def second():
        with pytest.raises(ValueError, match="another process trains in .*out"):
            train(out, True)

    train(out, between=lambda: refused.append(in_child(second)))
    assert refused == [0, 0]


@pytest.mark.parametrize(
    "damaged", ["model.safetensors", "optimizer.bin", "random_states_0.pkl", "progress.json"]
)
def test_a_damaged_checkpoint_is_refused(finished, damaged):
    path = last_checkpoint(finished) / damaged
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="00000004 cannot be resumed .*train anew"):
        train(finished, True)


def test_a_write_that_fails_says_what_and_leaves_the_old_file(tmp_path):
    def full(path):
        path.write_text("half")
        raise RuntimeError("No space left on device")

    folder = RunFolder(ALONE, tmp_path, {})
    folder.write("file", lambda path: path.write_text("old"))
    with pytest.raises(
        OSError, match="file cannot be written .No space left .*make room, then --resume"
    ):
        folder.write("file", full)
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("by", [(), ("f1", 1)])
def test_the_best_weights_are_the_first_of_equal_ones_and_patience_counts_from_there(tmp_path, by):
    folder = RunFolder(ALONE, tmp_path, {"log": [{"step": 0}]})
    assert folder.since_best() == 0
    for score, since in ((3.0, 0), (2.0, 0), (2.5, 1), (2.0, 2)):
        row = {"validation_loss": score, "f1": -score}
        folder.keep_best(row, lambda path: path.write_text(str(len(folder.progress["log"]))), *by)
        folder.progress["log"].append(row)
        assert folder.since_best() == since
    folder.take_best("model")
    folder.take_best("model")  # of a run that was finished before
    assert (tmp_path / "model").read_text() == "2" and not (tmp_path / "best.safetensors").exists()


LENGTHS = np.random.default_rng(0).integers(2, 30, (200, 2))


def test_an_epoch_is_the_corpus_once():
    """Every example once, in no batch more documents or padded tokens than allowed, and no batch
    too many.
    """
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


def test_windows_keep_the_order_and_batch_what_is_of_like_length(monkeypatch):
    monkeypatch.setattr(run, "WINDOW", 2)
    seen, words = [], "aaaa b ccc dd eeeee f ggg".split()
    decode = lambda items: seen.append(items) or [item.upper() for item in items]  # noqa: E731
    assert list(run.in_windows(words, list, len, decode, 2)) == [
        (word, word.upper()) for word in words
    ]
    assert seen == [["b", "dd"], ["ccc", "aaaa"], ["f", "ggg"], ["eeeee"]]


def test_what_is_odd_in_data_is_said_once(tmp_path, capsys, monkeypatch):
    """Cut examples, validation rows that are trained on, and too few of them to choose by."""

    def few(data, split):
        numbers = range(7 if split == "train" else 3)
        return [
            Example(f"{split} {number}", ["a"], [str(number)], [[str(number)]])
            for number in numbers
        ]

    monkeypatch.setattr(
        Run,
        "encode",
        lambda run, rows: [Item(float(row.target), row.target == "3") for row in rows],
    )
    make(tmp_path / "run", load=few)
    said = capsys.readouterr().out
    assert "1 of 7 training examples are cut to what the model reads" in said
    assert (
        "3 of 3 validation examples are training examples, too" in said
        and "3 validation examples are few" in said
    )


def test_weights_are_those_of_the_run_or_of_its_last_checkpoint(finished, capsys):
    model, path = torch.nn.Sequential(torch.nn.Linear(1, 3)), finished / "model.safetensors"
    load_weights(model, finished)
    assert torch.equal(model[0].weight, load_file(path)["0.weight"])
    path.unlink()
    torch.nn.init.zeros_(model[0].weight)
    load_weights(model, finished)
    assert model[0].weight.any() and "is not finished: reading" in capsys.readouterr().err
    for weights in (
        {"0.weight": torch.full((3, 1), torch.nan), "0.bias": torch.zeros(3)},
        {"0.bias": torch.zeros(3)},
    ):
        save_file(weights, path)
        with pytest.raises(ValueError, match="model.safetensors"):
            load_weights(model, finished)


def test_what_is_no_run_of_this_package_is_refused(tmp_path):
    foreign, old = "is not a run folder of this package and version: ", {"config": {"old": 1}}
    for saved, message in [
        (old, f"{foreign}.*old"),
        (old | {"package": run.package_of(Config)}, f"{foreign}.*old"),
        ({"model_type": "bart"}, foreign),
        ({"package": "l0drop", "config": {"l0_weight": 1}}, "is a run of l0drop: "),
    ]:
        (tmp_path / "config.json").write_text(json.dumps(saved))
        with pytest.raises(ValueError, match=message):
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
    (first / "config.json").write_text(json.dumps({"config": asdict(saved)}))
    assert run.read_config(first, Config) == saved
    assert parse("--out", tmp_path / "x") == (Config(), tmp_path / "x", False)
    assert parse("--out", "x", "--preset", "wide", "--rate", 0.2)[0] == Config(9, rate=0.2)
    found = parse("--out", "x", "--init", first, "--preset", "wide", "--rate", 0.2)[0]
    assert found == Config(9, 0.25, rate=0.2, steps=3, init=str(first))
    assert parse("--out", "x", "--resume", "--width", "2")[0] == Config(2)  # nothing is there yet
    assert parse("--out", first, "--resume") == (saved, first, True)
    assert parse("--out", first, "--resume", "--steps", 9)[0].steps == 9
    for flags in (("--width", 4), ("--steps", 2), ("--preset", "wide")):
        with pytest.raises(
            ValueError, match="--resume keeps the values of .*config.json; leave out"
        ):
            parse("--out", first, "--resume", *flags)


def test_help_has_a_line_for_each_example_and_the_comment_of_each_field(capsys, monkeypatch):
    """The examples name the package as it is called here."""
    monkeypatch.setattr(
        sys.modules["__main__"], "__spec__", SimpleNamespace(name="vendor.copy.train")
    )
    with pytest.raises(SystemExit):
        run.parse(
            ["--help"],
            Config,
            PRESETS,
            "Train.\n\npython -m a.train --out x\npython -m shared.score y\n",
        )
    text = capsys.readouterr().out
    assert {"python -m vendor.copy.train --out x", "python -m shared.score y"} < set(
        text.splitlines()
    )
    assert all(
        words in text
        for words in ("Run folder to make.", "Learning rate.", "(default: 0.1)", "tiny,wide")
    )


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
    code = (
        "from shared.run import one_line_errors as way; way(lambda _: print((chr(304) + "
        "chr(10)) * 100000))()"
    )
    call = ["bash", "-c", f"'{sys.executable}' -c '{code}' | head -n 1"]
    options = {"cwd": Path(__file__).parents[2], "env": os.environ | {"PYTHONIOENCODING": "cp1252"}}
    ended = subprocess.run(call, capture_output=True, **options)
    assert (ended.stdout.decode("utf-8"), ended.stderr) == (chr(304) + "\n", b"")


def test_variables_of_accelerate_do_not_change_a_training(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    accelerator = make(tmp_path / "run").accelerator
    assert accelerator.gradient_accumulation_steps == 1 and accelerator.even_batches is False


def test_sources_are_exchanged_for_other_ones():
    """Not for the next row, where every source stands ten times; nor for one that is nearly
    equal.
    """

    def exchanged(sources):
        return run.exchanged(sources, str.split, lambda item, other: other)

    many = [text for text in ("a b c d", "a b c e", "v w x y") for _ in range(10)]
    for text, other in zip(many, exchanged(many), strict=True):
        assert not set(text.split()) & set(other.split())
    assert sorted(exchanged(["a", "b", "c"])) == ["a", "b", "c"]
    assert exchanged(["a"]) is None and exchanged(["a", "a"]) is None
    assert "does not read its source" in run.says_it_reads(2.0, 2.04)
    assert "reads little of its source" in run.says_it_reads(4.8, 5.3)
    assert run.says_it_reads(1.2, 3.1) == run.says_it_reads(1.2, None) == ""


def test_find_device_gives_one_that_computes_and_names_the_flag_of_others():
    assert run.find_device("cpu") == torch.device("cpu")
    # each fails in torch with another type
    for name in ("foo", "meta", "cuda:99", "hpu", "", "xla"):
        with pytest.raises(ValueError, match=f"^--device {name} cannot be used here: .+$"):
            run.find_device(name)


def test_an_output_must_not_exist_unless_it_is_overwritten_at_the_end(tmp_path):
    path = tmp_path / "new" / "out.txt"
    with open_output(path) as file:
        file.write("ä\n")
    assert path.read_bytes() == "ä\n".encode()
    for taken, overwrite in ((path, False), (tmp_path, True)):
        with (
            pytest.raises(ValueError, match="exists: choose another name"),
            open_output(taken, overwrite),
        ):
            pytest.fail("must not be opened")
    with pytest.raises(KeyboardInterrupt), open_output(path, overwrite=True) as file:
        file.write("half")
        raise KeyboardInterrupt
    assert path.read_bytes() == "ä\n".encode()
    with pytest.raises(ValueError, match="leave out .gz"), open_output(tmp_path / "out.jsonl.gz"):
        pytest.fail("must not be opened")
    with open_output(Path(os.devnull), overwrite=True) as file:
        file.write("nothing")
    assert Path(os.devnull).is_char_device()  # not replaced by a file
    with open_output(path, overwrite=True) as file:
        file.write("new")
    assert path.read_text() == "new" and list(path.parent.iterdir()) == [path]
