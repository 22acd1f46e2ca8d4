"""Run folders, checkpoints, the command line and one-line errors: what accelerate and tyro leave to do.

A run folder holds config.json, log.jsonl, what `load_run` of its package reads, and checkpoints/STEP.
"""

import argparse
import contextlib
import io
import json
import os
import pickle
import re
import shutil
import sys
import tempfile
from array import array
from dataclasses import asdict, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, get_args

import numpy as np
import tyro
from annotated_types import Interval
from tyro.conf import FlagConversionOff, FlagCreatePairsOff, OmitArgPrefixes, arg

from .data import fingerprint


def one_line_errors(main):
    """Decorator of `main`: a foreseen error ends in one line and exit code 2, or 1 where the system failed."""

    def run(arguments=None):
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


def parts_of(kind):
    """A type and what it is made of: of Annotated[int, Interval(ge=1)] | None also int, the interval and None."""
    return [kind, *(part for inner in get_args(kind) for part in parts_of(inner))]


def check(config):
    """ValueError for a number that is NaN or outside its `Interval` (0 to 10^9); then `config.check()`."""
    for each in fields(config):
        value, parts = getattr(config, each.name), parts_of(each.type)
        interval = next((part for part in parts if isinstance(part, Interval)), Interval())
        low = 0 if interval.ge is None else interval.ge
        high = 10**9 if interval.le is None else interval.le
        numbers = [] if value is None or {int, float}.isdisjoint(parts) else np.ravel(value)
        if wrong := [number for number in numbers if not low <= number <= high]:
            raise ValueError(f"--{each.name.replace('_', '-')} is {wrong[0]}; it must be from {low:,} to {high:,}")
    if hasattr(config, "check"):
        config.check()


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
        default = replace(read_config(init, config_type) if init else config_type(), **values)
    flags = make_dataclass("Flags", [
        ("out", Annotated[Path, arg(help="Run folder to make.")]),
        ("config", FlagConversionOff[OmitArgPrefixes[config_type]], field(default=default)),
        ("preset", Annotated[Literal[tuple(presets)], arg(help="Named set of values.")], "tiny"),
        ("resume", Annotated[bool, arg(help="Go on after the last checkpoint, if there is one.")], False),
    ])  # fmt: skip
    options = read_flags(flags, arguments, description)
    if saved:
        changed = {name for name, value in vars(options.config).items() if value != getattr(saved, name)}
        if wrong := changed - ({"steps"} if options.config.steps > saved.steps else set()):  # more steps lengthen it
            raise ValueError(f"--resume keeps the values of {given.out}/config.json; leave out {', '.join(wrong)}")
    return options.config, options.out, options.resume


def read_config(run_folder, config_type):
    """The config of a run; ValueError where there is none, or one of another package or version."""
    try:
        values = json.loads(Path(run_folder, "config.json").read_text(encoding="utf-8"))["config"]
        return config_type(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{run_folder} is not a run folder of this package and version: {error}") from None


def last_checkpoint(run_folder):
    """The folder of a run's last checkpoint, whose name is eight digits; None where there is none."""
    return max(Path(run_folder, "checkpoints").glob("[0-9]" * 8), default=None)


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
        """Add a row to log.jsonl, write checkpoints/STEP, and remove all but the last `keep` checkpoints."""
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
        saved = {"package": type(config).__module__.split(".")[-2], "config": asdict(config)}  # steps may be more now
        folder.write("config.json", lambda path: path.write_text(json.dumps(saved, indent=1)))
        if not begun and accelerator.is_main_process:
            write_files(out)
        yield folder
    except Timeout:
        raise ValueError(f"another process trains in {out}: wait for it, or choose another --out") from None
    finally:
        lock.release()


def view(buffer, kind):
    """The numbers of an `array.array` of a kind in a buffer."""
    return memoryview(buffer).cast(kind)


def share(accelerator, value):
    """`value`, its arrays in one file that the processes of a machine map; where one process trains, as it is.

    Every process has made the same `value`. It is pickled without the numbers of its arrays, which numpy's leave out by
    themselves and those of `array` by `view`; one process of each machine writes them to a file.
    """
    if accelerator.num_processes == 1:
        return value
    from accelerate.utils import gather_object

    structure, buffers = io.BytesIO(), []
    pickler = pickle.Pickler(structure, protocol=5, buffer_callback=lambda each: buffers.append(each.raw()))
    pickler.dispatch_table = {array: lambda a: (view, (pickle.PickleBuffer(a), a.typecode))}
    pickler.dump(value)
    with tempfile.TemporaryDirectory() as folder:  # removed at the end; what is mapped stays until its last reader ends
        path = Path(folder, "arrays")
        if accelerator.is_local_main_process:
            with path.open("wb") as file:
                file.writelines(buffers)
        # All wait here until it is written, and take the path of their machine's first process.
        path = gather_object([path])[accelerator.process_index - accelerator.local_process_index]
        parts = np.split(np.memmap(path, np.uint8, "r"), np.cumsum([len(each) for each in buffers[:-1]]))
        accelerator.wait_for_everyone()
    return pickle.loads(structure.getvalue(), buffers=parts)
