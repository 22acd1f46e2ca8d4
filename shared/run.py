"""Run folders, checkpoints, the command line and one-line errors: what accelerate and tyro leave to do.

A run folder holds config.json, log.jsonl, what `load_run` of its package reads, and checkpoints/STEP.
"""

import argparse
import contextlib
import hashlib
import json
import logging
import math
import os
import re
import shutil
import sys
from dataclasses import asdict, field, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, get_args

import numpy as np
import tyro
from tyro.conf import FlagConversionOff, FlagCreatePairsOff, OmitArgPrefixes, arg


def one_line_errors(main):
    """Decorator of `main`: a foreseen error ends in one line and exit code 2, or 1 where the system failed."""

    def run(arguments=None):
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")  # whatever the console's own encoding is
        try:
            main(arguments)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has gone; Python must not write the rest at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except (ValueError, ImportError, OSError, MemoryError) as error:
            print("error:", " ".join(str(error).split()) or type(error).__name__, file=sys.stderr)
            sys.exit(1 if isinstance(error, OSError) else 2)
        except KeyboardInterrupt:
            sys.exit("stopped; a training goes on from its last checkpoint with --resume")

    return run


# The command line


def check(config):
    """ValueError for a number that is NaN or outside its range (0 to 10^9); then `config.check()`.

    A range is part of a type: Annotated[int, (1, 10**9)].
    """
    for each in fields(config):
        value, parts = getattr(config, each.name), parts_of(each.type)
        if is_dataclass(value):
            check(value)
        low, high = next((part for part in parts if isinstance(part, tuple)), (0, 10**9))
        numbers = [] if value is None or {int, float}.isdisjoint(parts) else np.ravel(value)
        if wrong := [number for number in numbers if not low <= number <= high]:
            raise ValueError(f"--{each.name.replace('_', '-')} is {wrong[0]}; it must be from {low:,} to {high:,}")
    if hasattr(config, "check"):
        config.check()


def parts_of(kind):
    """A type and what it is made of: of Annotated[int, (1, 10**9)] | None also int, the range and None."""
    return [kind, *(part for inner in get_args(kind) for part in parts_of(inner))]


def flat(config):
    """{name: value} of a config's fields, those of the model's config in it among them."""
    values = {}
    for name, value in vars(config).items():
        values |= vars(value) if is_dataclass(value) else {name: value}
    return values


def update(config, **values):
    """`dataclasses.replace` that finds a field of the model's config in a config by its name, too."""
    for name, part in vars(config).items():
        if is_dataclass(part) and name not in values:
            own = {key: values.pop(key) for key in vars(part) if key in values and key not in vars(config)}
            values[name] = replace(part, **own)
    return replace(config, **values)


def read_flags(options, arguments=None, description=""):
    """Read a command line into the dataclass `options` by tyro, which ends with its own words for a wrong flag."""
    prog = f"python -m {getattr(sys.modules['__main__'].__spec__, 'name', options.__module__)}"
    lines = re.sub(r"\n+", "\n\n", description)  # tyro joins lines: the example commands would be one
    flags = tyro.cli(options, args=arguments, prog=prog, description=lines, config=(FlagCreatePairsOff,))
    check(getattr(flags, "config", flags))
    return flags


def parse(arguments, config_type, presets, description):
    """Command line of `train` -> config, run folder, resume.

    What no flag gives comes from --preset, else from the run of --init; with --resume, from the run that goes on.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--out", "--preset", "--init"):
        first.add_argument(flag, nargs="?")
    first.add_argument("--resume", action="store_true")
    given, _ = first.parse_known_args(arguments)
    begun = given.resume and given.out and Path(given.out, "config.json").exists()
    default = saved = read_config(given.out, config_type) if begun else None
    if not saved or given.preset:
        values = presets.get(given.preset, {})
        init = given.init or values.get("init")
        default = update(read_config(init, config_type) if init else config_type(), **values)
    flags = make_dataclass("Flags", [
        ("out", Annotated[Path, arg(help="Run folder to make.")]),
        ("config", FlagConversionOff[OmitArgPrefixes[config_type]], field(default=default)),
        ("preset", Annotated[Literal[tuple(presets)], arg(help="Named set of values.")], "tiny"),
        ("resume", Annotated[bool, arg(help="Go on after the last checkpoint, if there is one.")], False),
    ])  # fmt: skip
    options = read_flags(flags, arguments, description)
    if saved:
        changed = {name for name, value in flat(options.config).items() if value != flat(saved)[name]}
        if wrong := changed - ({"steps"} if options.config.steps > saved.steps else set()):  # more steps lengthen it
            raise ValueError(f"--resume keeps the values of {given.out}/config.json; leave out {', '.join(wrong)}")
    return options.config, options.out, options.resume


# Run folders


def read_config(run_folder, config_type):
    """The config of a run; ValueError where there is none, or one of another package or version."""
    try:
        saved = json.loads(Path(run_folder, "config.json").read_text(encoding="utf-8"))["config"]
        return rebuild(config_type, saved)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{run_folder} is not a run folder of this package and version: {error}") from None


def rebuild(kind, values):
    """A dataclass from what `asdict` and JSON made of it."""
    inner = {each.name: each.type for each in fields(kind) if is_dataclass(each.type)}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return kind(**values | {name: rebuild(inner[name], values[name]) for name in inner if name in values})


def last_checkpoint(run_folder):
    """The folder of a run's last checkpoint, whose name is eight digits; None where there is none."""
    return max(Path(run_folder, "checkpoints").glob("[0-9]" * 8), default=None)


def updates_of(run_folder, config):
    """How many updates are behind a run's weights: fewer than its steps where it is not finished."""
    last = last_checkpoint(run_folder)
    return int(last.name) if last else config.steps


def load_weights(model, run_folder, name="model.safetensors"):
    """Fill a model with a run's weights, or its last checkpoint's; ValueError: they are damaged, do not fit, or NaN."""
    from safetensors.torch import load_model

    path = Path(run_folder, name)
    if not path.exists() and (checkpoint := last_checkpoint(run_folder)):
        path = checkpoint / "model.safetensors"
        print(f"{run_folder} is not finished: reading {path}", file=sys.stderr)
    try:
        load_model(model, path)
    except Exception as error:  # safetensors and torch raise types of their own
        raise ValueError(f"{path} is missing, cut off or does not fit config.json: {str(error)[:200]}") from None
    if bad := [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]:
        raise ValueError(f"{path}: {bad[0]} holds NaN or infinite numbers: the training went wrong")


def find_device(name):
    """The torch device of that name; ValueError where this machine cannot compute on it."""
    import torch

    try:
        number = torch.zeros(1, device=name)
        number.item()
        return number.device
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(f"--device {name} cannot be used here: {str(error).partition(chr(10))[0]}") from None


# A training


def new_accelerator(config):
    """`accelerate`, set by the config's mixed_precision and accumulate alone, whatever ACCELERATE_... variables say."""
    import torch
    from accelerate import Accelerator, DataLoaderConfiguration
    from accelerate.utils import GradientAccumulationPlugin

    logging.getLogger("accelerate").setLevel(logging.ERROR)  # a line on shared tensors at every checkpoint
    return Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=config.accumulate),
        cpu=not torch.accelerator.is_available(),  # or several processes would each believe to be alone
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )


def check_folder(out, resume):
    """Whether `out` has a checkpoint to go on from; ValueError if it exists, but is no run or not to be resumed."""
    if os.path.lexists(out) and not resume:
        raise ValueError(f"{out} exists: add --resume to go on with it, or choose another --out")
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    if names - {".lock", "config.json.unfinished"} and "config.json" not in names:  # both of a start that was killed
        raise ValueError(f"{out} exists and is not a run: choose another --out")
    return last_checkpoint(out) is not None


class RunFolder:
    """The folder that a training has locked; `progress` is what a kill must not lose: "step", "log" (rows), more."""

    def __init__(self, accelerator, path, progress, keep):
        self.accelerator, self.path, self.progress, self.keep = accelerator, path, progress, keep
        self.lock = os.open(path / ".lock", os.O_RDONLY)

    def write(self, name, write, by_all=False):
        """Called on every process: write(path) writes under a temporary name; once on the disk, the file is renamed."""
        path, lock = self.path / f"{name}.unfinished", self.path / ".lock"
        if not (lock.exists() and os.path.samestat(os.fstat(self.lock), os.stat(lock))):
            raise ValueError(f"{self.path} was moved or removed while it was trained: the training stops")
        try:
            if by_all or self.accelerator.is_main_process:
                write(path)
            self.accelerator.wait_for_everyone()
            if self.accelerator.is_main_process:
                for file in path.rglob("*") if path.is_dir() else [path]:
                    with file.open("r+b") as handle:
                        os.fsync(handle.fileno())
                os.replace(path, self.path / name)
            self.accelerator.wait_for_everyone()
        except Exception as error:  # torch and safetensors raise types of their own for a full disk
            raise OSError(f"{self.path / name} cannot be written ({error}): make room, then --resume") from None

    def save_checkpoint(self, row):
        """Add a row to log.jsonl, write checkpoints/STEP, and remove all but the last `keep` checkpoints.

        ValueError: a number of the row is not finite; the last checkpoint stays.
        """
        if bad := [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]:
            raise ValueError(f"{bad[0]} is {row[bad[0]]} at step {row['step']}; {self.path} keeps its last checkpoint")
        self.progress |= {"step": row["step"], "log": [*self.progress["log"], row]}
        lines = "".join(json.dumps(row) + "\n" for row in self.progress["log"])

        def write(path):
            self.accelerator.save_state(str(path))
            if self.accelerator.is_main_process:
                (path / "progress.json").write_text(json.dumps(self.progress))

        self.write("log.jsonl", lambda path: path.write_text(lines))
        self.write(f"checkpoints/{row['step']:08d}", write, by_all=True)
        for path in sorted((self.path / "checkpoints").glob("[0-9]" * 8))[: -self.keep]:
            shutil.rmtree(path, ignore_errors=True)
        if self.accelerator.is_main_process and not sys.stderr.isatty():  # where no progress bar is seen
            print(f"{self.path}: {json.dumps(row)}", file=sys.stderr, flush=True)

    def reopen(self, name):
        """Remove the last weights of a finished run that goes on: until there are new ones a checkpoint is read."""
        if self.accelerator.is_main_process:
            (self.path / name).unlink(missing_ok=True)

    def load_checkpoint(self):
        """Load the last checkpoint; ValueError: it is damaged, or of another number of processes."""
        from accelerate.utils import load as load_safely

        folder, processes = last_checkpoint(self.path), self.accelerator.num_processes
        try:
            if len(states := list(folder.glob("random_states_*.pkl"))) != processes:
                raise ValueError(f"{len(states)} processes wrote it, {processes} would read it")
            for state in states:
                load_safely(state)  # load_state would only log a damaged one
            self.accelerator.load_state(str(folder))
            self.progress = json.loads((folder / "progress.json").read_text())
        except Exception as error:  # as many types as there are kinds of damage
            said = str(error).partition(".")[0][:200]  # torch goes on to advise that the file be trusted
            raise ValueError(f"{folder} cannot be resumed ({said}): train anew in another --out") from None


def fingerprint(examples):
    """A hash of examples, by which a training that goes on knows its data again."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def training(accelerator, out, config, write_files, begun, data, first, keep=1, **more):
    """Lock the run folder `out` for one training: make it, or load its last checkpoint. Yields a `RunFolder`.

    `write_files(out)` writes what stands beside the weights, `begun` is what `check_folder` said, `data` has the
    examples of "training" and "validation", `first` is the log's first row, `more` what else is in the progress.
    """
    from filelock import FileLock, Timeout

    data = {name: fingerprint(data[name]) for name in data}
    lock = FileLock(out / ".lock")
    accelerator.wait_for_everyone()  # all have looked before the first one makes it
    try:
        if accelerator.is_main_process:
            out.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
            if check_folder(out, resume=True) != begun:
                raise ValueError(f"another process trained in {out} meanwhile: --resume goes on with it")
        accelerator.wait_for_everyone()
        folder = RunFolder(accelerator, out, {"step": 0, "log": [first], "data": data, **more}, keep)
        if begun:
            folder.load_checkpoint()
        if changed := [name for name in data if folder.progress["data"][name] != data[name]]:
            raise ValueError(f"the {changed[0]} data are no longer those that {out} began with: restore them")
        package = [name for name in type(config).__module__.split(".") if name != "experiments"]
        saved = {"package": package[-2:][0], "config": asdict(config)}  # steps may be more now
        folder.write("config.json", lambda path: path.write_text(json.dumps(saved, indent=1)))
        if not begun and accelerator.is_main_process:
            write_files(out)
        yield folder
    except Timeout:
        raise ValueError(f"another process trains in {out}: wait for it, or choose another --out") from None
    finally:
        lock.release()


# What came out


def exchanged(items, swap):
    """Each item with the source of the next one, swap(item, next); None where no two have different sources."""
    others = [swap(item, other) for item, other in zip(items, [*items[1:], *items[:1]], strict=True)]
    return None if others == list(items) else others


def says_it_reads(loss, exchanged_loss):
    """What the loss with sources exchanged says of a model: a line to print, empty where it reads its sources."""
    if exchanged_loss is None or exchanged_loss - loss > 0.15 * loss:
        return ""
    reads = "reads little of" if exchanged_loss - loss > 0.05 else "does not read"
    return f"the model {reads} its source: train longer, on more data, or begin with a pretrained or trained model"
