"""Run folders, checkpoints, the command line and one-line errors: what the libraries leave. The same in every package.

A run folder holds config.json, log.jsonl, the model, and checkpoints/STEP/: accelerate's state and progress.json.
"""

import argparse
import contextlib
import errno
import functools
import hashlib
import io
import json
import os
import re
import shutil
import signal
import sys
from dataclasses import asdict, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args, get_origin

import tyro

NAME = __package__.rpartition(".")[2]


class Range(NamedTuple):
    """The least and the largest value of a field, both allowed."""

    low: float
    high: float


# Kinds of a config's numbers. A plain int is from 0 to 10^9, a plain float from 0 to 10^6.
Size = Annotated[int, Range(1, 10**6)]  # of a model
Positive = Annotated[int, Range(1, 10**9)]
Share = Annotated[float, Range(0, 1)]
DEFAULT_RANGES = {int: Range(0, 10**9), float: Range(0, 10**6)}


def one_line_errors(main):
    """Decorator of `main`: a foreseen error ends in one line; exit code 2, or 1 where the system failed."""

    @functools.wraps(main)
    def run(arguments=None):
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(encoding="utf-8")  # whatever the locale
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            with contextlib.suppress(ValueError):  # not the main thread
                if number and signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, signal.default_int_handler)
        try:
            if sys.stdout is None or sys.stderr is None:
                raise OSError("standard output or standard error is closed")
            main(arguments)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has gone; Python must not write the rest at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except (ValueError, ImportError, OSError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not re.search("(out of|allocate) memory|recursion", str(error)):
                raise
            end_in_one_line(error)
        except KeyboardInterrupt:
            spec = main.__globals__.get("__spec__")  # of `python -m`, where the module's name is __main__
            training = (spec.name if spec else "").endswith(".train")
            sys.exit("stopped" + "; the training goes on from its last checkpoint with --resume" * training)

    return run


def end_in_one_line(error):
    """Say the error and exit: 2, or 1 where the system failed."""
    said = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ModuleNotFoundError) and error.name == "shared":
        said = "the commands need the folder `shared` of the repository beside this package"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # Python would write the rest at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    print("error:", said, file=sys.stderr)  # or, where that is closed, on standard output
    sys.exit(1 if isinstance(error, OSError) else 2)


def check_fields(config):
    """ValueError for a field of another type, NaN, infinite, out of its `Range`, or none of its choices."""
    for each in fields(config):
        value, flag = getattr(config, each.name), "--" + each.name.replace("_", "-")
        parts = [each.type, *get_args(each.type)]  # of Annotated[...] and of X | None, too
        parts += [inner for part in parts[1:] for inner in get_args(part)]
        kind = next((part for part in parts if part in (int, float, str, bool)), None)
        low, high = next((part for part in parts if isinstance(part, Range)), DEFAULT_RANGES.get(kind, (0, 0)))
        if value is None and type(None) in parts:  # an option that was not given
            continue
        if isinstance(value, tuple) != any(get_origin(part) is tuple for part in parts):
            raise ValueError(f"{flag} is {value!r}; it must be {'one value' if isinstance(value, tuple) else 'a list'}")
        for one in value if isinstance(value, tuple) else [value]:
            if get_origin(each.type) is Literal and one not in get_args(each.type):
                raise ValueError(f"{flag} is {one!r}; it must be one of {', '.join(map(str, get_args(each.type)))}")
            if kind in (int, float) and not (type(one) in (int, kind) and low <= one <= high):
                name = "a whole number" if kind is int else "a finite number"
                raise ValueError(f"{flag} is {one!r}; it must be {name} from {low:,} to {high:,}")
            if kind in (str, bool) and get_origin(each.type) is not Literal and type(one) is not kind:
                raise ValueError(f"{flag} is {one!r}; it must be {'text' if kind is str else 'True or False'}")


def read_flags(options, arguments=None, **settings):
    """Read the command line as `tyro.cli` does; ValueError of one line for a wrong flag or a value out of range."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(options, args=arguments, **settings)
    except SystemExit as end:
        if not end.code:  # --help
            raise
        boxes = said.getvalue().split("╰")
        box = next((box for box in boxes if "Unrecognized" in box), boxes[0])
        below = re.sub("[│╭╮]", " ", box.partition("\n")[2])  # the title
        said_first = below.partition("For full helptext" if "Missing from" in below else "───")[0]
        message = re.sub("^Missing from .*?:", "missing", " ".join(said_first.replace("─", "").split()))
        meant = re.search(r"Perhaps you meant:[\s│]*(--[\w-]+)", said.getvalue())
        hint = f" (perhaps you meant {meant[1]})" if meant else ""
        raise ValueError(f"{message.rstrip('.')}{hint}; --help explains every flag") from None


def parse(arguments, config_type, presets, description):
    """Command line of `train` -> config, run folder, resume.

    What is not given comes from --preset, which may change the values of the run of --init; with --resume, from the
    run itself. A preset whose `init` says what it starts from needs --init.

    ValueError: a wrong flag; beside --resume, a flag that contradicts the run.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in ("--out", "--preset", "--init"):
        first.add_argument(flag, default="")
    first.add_argument("--resume", action="store_true")
    try:
        given, _ = first.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise ValueError(f"{error}; --help explains every flag") from None
    if given.preset and given.preset not in presets:
        raise ValueError(f"--preset is {given.preset!r}; it must be one of {', '.join(presets)}")
    values = presets.get(given.preset, {})

    def read(default):
        flags = make_dataclass("Flags", [
            ("out", Annotated[Path, tyro.conf.arg(help="run folder")]),
            ("config", tyro.conf.FlagConversionOff[tyro.conf.OmitArgPrefixes[config_type]], field(default=default)),
            ("preset", Annotated[Literal[tuple(presets)], tyro.conf.arg(help="named set of values")], "tiny"),
            ("resume", Annotated[bool, tyro.conf.arg(help="go on after the last checkpoint, if there is one")], False),
        ])  # fmt: skip
        settings = dict(prog=f"python -m {__package__}.train", description=description)
        return read_flags(flags, arguments, config=(tyro.conf.FlagCreatePairsOff,), **settings)

    if given.resume and given.out and Path(given.out, "config.json").exists():
        saved = read_config(given.out, config_type)
        config = read(saved).config
        if given.preset:  # what was given once may be given again
            base = read_config(given.init, config_type) if given.init else config_type()
            config = read(replace(base, **values | ({"init": given.init} if given.init else {}))).config
        changed = [name for name, value in vars(config).items() if value != getattr(saved, name)]
        if wrong := [name for name in changed if name != "steps" or config.steps < saved.steps]:  # more lengthen it
            raise ValueError(f"--resume keeps the values of {given.out}/config.json; leave out {', '.join(wrong)}")
        return config, Path(given.out), True
    if given.init:
        default = replace(read_config(given.init, config_type), **values | {"init": given.init})
    elif values.get("init"):
        raise ValueError(f"--preset {given.preset} starts from {values['init']}: add --init RUN")
    else:
        default = config_type(**values)
    options = read(default)
    if not options.config.init and any(a.startswith("--init") for a in arguments):
        raise ValueError("--init is empty: name a run folder, or leave it out")
    return options.config, options.out, options.resume


def at_a_time(files, batch_size):
    """How many documents `predict` decodes together: one where somebody types them and waits for each."""
    return 1 if all(str(file) == "-" for file in files) and sys.stdin and sys.stdin.isatty() else batch_size


def fingerprint(examples):
    """A hash of the training data, by which a run that goes on knows them again."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def read_config(run_folder, config_type):
    """The config of a run; ValueError that names config.json and what is wrong with it."""
    path = Path(run_folder, "config.json")
    if not path.is_file():
        raise ValueError(f"{run_folder} is not a run folder: it has no config.json")
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        config = config_type(**{k: tuple(v) if isinstance(v, list) else v for k, v in saved["config"].items()})
        check_fields(config)
        return config
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        package = saved.get("package") if isinstance(locals().get("saved"), dict) else None
        whose = f"of the package {package!r}" if package not in (None, NAME) else f"not of this version of {NAME}"
        raise ValueError(f"{path} is cut off or {whose}: {error}") from None


def write_config(run_folder, config, **more):
    """Write config.json under another name and rename it; `more` is what stands beside the config."""
    text = json.dumps({"package": NAME, "config": asdict(config)} | more, indent=1) + "\n"
    Path(run_folder, "config.unfinished").write_text(text, encoding="utf-8")
    os.replace(Path(run_folder, "config.unfinished"), Path(run_folder, "config.json"))


def load_weights(model, run_folder, name="model.safetensors"):
    """Fill a model with a run's weights or, said on stderr, with the last checkpoint's of one still in training.

    ValueError: a missing or cut-off file, names or sizes that differ, NaN or infinite numbers.
    """
    from safetensors.torch import load_model

    if not (path := Path(run_folder, name)).exists():
        path = max(Path(run_folder, "checkpoints").glob("[0-9]*"), default=path.parent) / "model.safetensors"
        print(f"{run_folder} is not finished: reading {path}", file=sys.stderr)
    try:
        load_model(model, path)
    except Exception as error:  # safetensors and torch raise types of their own
        raise ValueError(f"{path} is missing, cut off or does not fit config.json: {str(error)[:200]}") from None
    if bad := [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]:
        raise ValueError(f"{path}: {bad[0]} holds NaN or infinite numbers: the training went wrong")


def save_checkpoint(accelerator, run_folder, progress, keep=1):
    """Write checkpoints/STEP and log.jsonl, and remove all but the last `keep` checkpoints.

    `progress` is what accelerate does not save, as JSON: "step", "log" (rows), and what else the training needs.
    ValueError: the run folder was moved or removed, or another is in its place. OSError: no room or no right to write;
    the checkpoint before it is whole.
    """
    checkpoints, unfinished = run_folder / "checkpoints", run_folder / "checkpoints/unfinished"
    if "folder" in progress and progress["folder"] != identity(run_folder):
        raise ValueError(f"{run_folder} was moved or removed while it was trained: the training stops")
    try:
        accelerator.save_state(str(unfinished))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            (unfinished / "progress.json").write_text(json.dumps(progress))
            for path in unfinished.iterdir():  # on the disk, before the name says that it is whole
                with open(path, "r+b") as file:
                    os.fsync(file.fileno())
            os.replace(unfinished, checkpoints / f"{progress['step']:08d}")
            tidy(run_folder, progress, keep)
    except Exception as error:  # torch and safetensors raise types of their own for a full disk
        raise OSError(f"{checkpoints} cannot be written ({error}): make room, then --resume") from None


def identity(run_folder):
    """What tells a run folder from another of its name; None where there is no run."""
    config = Path(run_folder, "config.json")
    return [os.stat(run_folder).st_ino, config.stat().st_mtime_ns] if config.exists() else None


def tidy(run_folder, progress, keep):
    """Write log.jsonl from a checkpoint's progress, and remove all but the last `keep` checkpoints."""
    checkpoints = run_folder / "checkpoints"
    (checkpoints / "log").write_text("".join(json.dumps(row) + "\n" for row in progress["log"]))
    os.replace(checkpoints / "log", run_folder / "log.jsonl")
    for path in sorted(checkpoints.glob("[0-9]*"))[:-keep]:
        shutil.rmtree(path)


def load_checkpoint(accelerator, run_folder, begun):
    """Load a run's last checkpoint; returns its progress, like `begun`. ValueError: damaged, or of other processes."""
    from accelerate.utils import load as load_safely

    folder = max(Path(run_folder, "checkpoints").glob("[0-9]*"))
    try:
        states = list(folder.glob("random_states_*.pkl"))
        if len(states) != accelerator.num_processes:
            raise ValueError(f"{len(states)} processes wrote it, {accelerator.num_processes} would read it")
        for state in states:
            load_safely(state)  # load_state would go on with other random numbers
        accelerator.load_state(str(folder))
        progress = json.loads((folder / "progress.json").read_text())
        right = all(isinstance(progress[k], float | None if v is None else type(v)) for k, v in begun.items())
        if not right or progress["log"][-1]["step"] != progress["step"]:
            raise ValueError("progress.json is not as a training wrote it")
        return progress
    except Exception as error:  # as many types as there are kinds of damage; torch would advise to trust the file
        said = re.split(r"Please|Re-running|In PyTorch", str(error) or type(error).__name__)[0][:200]
        raise ValueError(f"{folder} cannot be resumed ({said}): restore it, or train anew in another --out") from None


def holds_run(out, resume):
    """Whether the folder `out` holds a run to go on with; ValueError if that, or what else it holds, is not wanted."""
    exists = (out / "config.json").exists()
    if exists and not resume:
        raise ValueError(f"{out} already holds a run: add --resume to go on with it, or choose another --out")
    if not exists and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} exists and is not a run: choose another --out")
    return exists


@contextlib.contextmanager
def training(accelerator, out, config, progress, write_files, exists, keep=1):
    """Hold the run folder `out` for one training: load its last checkpoint, or start it. Yields the progress.

    A new run is written as OUT.unfinished and renamed: what has a config.json has a checkpoint, and a start that
    fails leaves nothing. It begins with `progress` (see `save_checkpoint`), whose "data" is the fingerprint of what it
    is trained on; `write_files(folder)` writes what else it holds, such as a tokenizer; `exists` and `keep` are what
    `holds_run` said and `save_checkpoint` gets.

    ValueError: another process trains in the folder, or made a run of it; a damaged checkpoint; data that have changed.
    """
    from filelock import FileLock, Timeout

    folder = out if exists else out.with_name(out.name + ".unfinished")
    accelerator.wait_for_everyone()  # all have looked before the first one makes it
    lock = FileLock(folder / ".lock")
    try:
        if accelerator.is_main_process:
            if not exists and folder.exists() and any(folder.iterdir()) and not (folder / ".lock").exists():
                raise ValueError(f"{folder} exists and is no start of a run: rename it, or choose another --out")
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
            if (out / "config.json").exists() != exists:
                raise ValueError(f"{out} was made or removed by another process meanwhile: choose another --out")
            shutil.rmtree(folder / "checkpoints" / ("unfinished" if exists else ""), ignore_errors=True)  # of a kill
        accelerator.wait_for_everyone()
        if exists:
            new, progress = progress, load_checkpoint(accelerator, out, progress)
            if progress["data"] != new["data"]:
                raise ValueError(f"the training data are no longer those that {out} began with: restore them")
        else:
            save_checkpoint(accelerator, folder, progress)
        if accelerator.is_main_process:
            if exists:
                tidy(out, progress, keep)  # a kill may have come between a checkpoint and its log
            else:
                write_files(folder)
            write_config(folder, config)  # a longer run has more steps than before
            os.replace(folder, out)
        accelerator.wait_for_everyone()
        yield progress | {"folder": identity(out)}
    except Timeout:
        raise ValueError(f"another process trains in {out}: wait for it, or choose another --out") from None
    finally:
        if lock.is_locked and not exists:
            shutil.rmtree(folder, ignore_errors=True)
        lock.release()
