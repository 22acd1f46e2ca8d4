"""Run folders, checkpoints and one-line errors: what the libraries leave. The same file in every package.

A run folder holds config.json, log.jsonl, the model, and checkpoints/STEP/: accelerate's state and progress.json.
"""

import contextlib
import functools
import json
import os
import shutil
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Literal, get_args, get_origin

from accelerate.utils import load as load_safely
from filelock import FileLock, Timeout
from safetensors.torch import load_model

NAME = __package__.rpartition(".")[2]


def one_line_errors(main):
    """Decorator of `main`: a foreseen error ends in one line; exit code 2, or 1 where the system failed."""

    @functools.wraps(main)
    def run(arguments=None):
        try:
            main(arguments)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has gone; Python must not write the rest at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except (ValueError, ImportError, OSError) as error:
            print("error:", " ".join(str(error).split()), file=sys.stderr)
            sys.exit(1 if isinstance(error, OSError) else 2)
        except KeyboardInterrupt:
            sys.exit("stopped; a training goes on from its last checkpoint with --resume")

    return run


def check_fields(config, least, most):
    """ValueError for a field that is NaN, infinite, below `least` (or 0), above `most`, or none of its choices."""
    for field in fields(config):
        value, flag = getattr(config, field.name), "--" + field.name.replace("_", "-")
        low, high = least.get(field.name, 0), most.get(field.name, sys.float_info.max)
        if isinstance(value, (int, float)) and not low <= value <= high:
            bounds = f"from {low} to {high}" if field.name in most else f"of at least {low}"
            raise ValueError(f"{flag} is {value}; it must be a finite number {bounds}")
        if get_origin(field.type) is Literal and value not in get_args(field.type):
            raise ValueError(f"{flag} is {value!r}; it must be one of {', '.join(map(str, get_args(field.type)))}")


def read_config(run_folder, config_type):
    """The config of a run; ValueError that names config.json and what is wrong with it."""
    path = Path(run_folder, "config.json")
    if not path.is_file():
        raise ValueError(f"{run_folder} is not a run folder: it has no config.json")
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if saved["package"] != NAME:
            raise ValueError(f"it belongs to the package {saved['package']!r}")
        return config_type(**{k: tuple(v) if isinstance(v, list) else v for k, v in saved["config"].items()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is cut off, or not of this version of {NAME}: {error}") from None


def load_weights(model, run_folder, name="model.safetensors"):
    """Fill a model with a run's weights or, said on stderr, with the last checkpoint's of one still in training.

    ValueError: a missing or cut-off file, names or sizes that differ, NaN or infinite numbers.
    """
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
    OSError: no room or no right to write; the checkpoint before it is whole.
    """
    checkpoints, unfinished = run_folder / "checkpoints", run_folder / "checkpoints/unfinished"
    try:
        accelerator.save_state(str(unfinished))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            (unfinished / "progress.json").write_text(json.dumps(progress))
            os.replace(unfinished, checkpoints / f"{progress['step']:08d}")
            (checkpoints / "log").write_text("".join(json.dumps(row) + "\n" for row in progress["log"]))
            os.replace(checkpoints / "log", run_folder / "log.jsonl")
            for path in sorted(checkpoints.glob("[0-9]*"))[:-keep]:
                shutil.rmtree(path)
    except Exception as error:  # torch and safetensors raise types of their own for a full disk
        raise OSError(f"{checkpoints} cannot be written ({error}): make room, then --resume") from None


def load_checkpoint(accelerator, run_folder):
    """Load a run's last checkpoint; returns its progress. ValueError where it is damaged or of other processes."""
    folder = max(Path(run_folder, "checkpoints").glob("[0-9]*"))
    try:
        states = list(folder.glob("random_states_*.pkl"))
        if len(states) != accelerator.num_processes:
            raise ValueError(f"{len(states)} processes wrote it, {accelerator.num_processes} would read it")
        for state in states:
            load_safely(state)  # load_state would go on with other random numbers
        accelerator.load_state(str(folder))
        return json.loads((folder / "progress.json").read_text())
    except Exception as error:  # as many types as there are kinds of damage
        raise ValueError(f"{folder} cannot be resumed: {str(error)[:200]}") from None


def holds_run(out, resume):
    """Whether the folder `out` holds a run to go on with; ValueError if that, or what else it holds, is not wanted."""
    exists = (out / "config.json").exists()
    if exists and not resume:
        raise ValueError(f"{out} already holds a run: add --resume to go on with it, or choose another --out")
    if not exists and (out.is_file() or (out.is_dir() and any(out.iterdir()))):
        raise ValueError(f"{out} exists and is not a run: choose another --out")
    return exists


@contextlib.contextmanager
def training(accelerator, out, config, progress, write_files):
    """Hold the run folder `out` for one training: load its last checkpoint, or start it. Yields the progress.

    A new run is written as OUT.unfinished and renamed: what has a config.json has a checkpoint, and a start that
    fails leaves nothing. It begins with `progress` (see `save_checkpoint`); `write_files(folder)` writes what else it
    holds, such as a tokenizer. ValueError: another process trains in the folder; its checkpoint is damaged.
    """
    exists = (out / "config.json").exists()
    folder = out if exists else out.with_name(out.name + ".unfinished")
    accelerator.wait_for_everyone()  # all have looked before the first one makes it
    lock = FileLock(folder / ".lock")
    try:
        if accelerator.is_main_process:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        if exists:
            progress = load_checkpoint(accelerator, out)
        else:
            save_checkpoint(accelerator, folder, progress)
        if accelerator.is_main_process:
            if not exists:
                write_files(folder)
            text = json.dumps({"package": NAME, "config": asdict(config)}, indent=1) + "\n"
            (folder / "config.unfinished").write_text(text, encoding="utf-8")
            os.replace(folder / "config.unfinished", folder / "config.json")  # a longer run has more steps than before
            os.replace(folder, out)
        accelerator.wait_for_everyone()
        yield progress
    except Timeout:
        raise ValueError(f"another process trains in {out}: wait for it, or choose another --out") from None
    finally:
        if lock.is_locked and not exists:
            shutil.rmtree(folder, ignore_errors=True)
        lock.release()
