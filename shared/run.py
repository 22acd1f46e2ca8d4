"""What five training scripts would else copy: batches, checkpoints, flags, one-line errors."""

import argparse
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import sys
from dataclasses import asdict, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, get_args

import numpy as np
import tyro
from tyro.conf import FlagConversionOff, FlagCreatePairsOff, OmitArgPrefixes, arg


class Batches:
    """Endless lists of indices of documents: the batch sampler of a `DataLoader`.

    An epoch sorts the documents by length, ties in random order, cuts them into batches of at most
    `size` documents and `tokens` padded tokens (0: any number), and shuffles the batches. As the
    cuts depend on lengths alone, every epoch has as many batches.

    Args:
        lengths: of each document a number, or a tuple, whose first number `tokens` counts.
    """

    def __init__(self, lengths, seed, size=0, tokens=0):
        self.lengths = np.array(lengths).reshape(len(lengths), -1)
        self.seed = seed
        self.size = size
        self.tokens = tokens

    def __iter__(self):
        for number in itertools.count():
            yield from self.epoch(number)

    def epoch(self, number):
        """The batches of epoch `number`."""
        rng = np.random.default_rng((self.seed, number))
        ties = rng.random(len(self.lengths))
        batches = [[]]
        for index in np.lexsort((ties, *self.lengths.T[::-1])).tolist():
            larger = len(batches[-1]) + 1
            too_many = 0 < self.size < larger
            too_long = 0 < self.tokens < larger * self.lengths[index, 0]
            if batches[-1] and (too_many or too_long):
                batches.append([])
            batches[-1].append(index)
        return [batches[place] for place in rng.permutation(len(batches))]


# Checkpoints: a run folder has config.json, log.jsonl, and checkpoints/STEP.


def check_out(out, resume):
    """ValueError for a run folder that exists, unless it is a run that goes on."""
    if resume and not out.exists():
        print(f"{out} does not exist yet: a new training begins")
    if not resume and os.path.lexists(out):
        raise ValueError(f"{out} exists: add --resume to go on with it, or choose another --out")
    if out.exists() and any(out.iterdir()) and not (out / "config.json").exists():
        raise ValueError(f"{out} exists and is not a run: choose another --out")


def checkpoints(out):
    """The checkpoints of a run, checkpoints/00000400 and so on, the last one last."""
    return sorted(Path(out, "checkpoints").glob("[0-9]" * 8))


def save_checkpoint(accelerator, out, progress, keep=1):
    """Write log.jsonl and checkpoints/STEP, of which the last `keep` stay; every process calls it.

    Args:
        progress: what a training needs to go on and accelerate does not know, as JSON: "log", its
            rows, of which the last one has the "step", and more.
    Raises:
        ValueError: a number of the last row is NaN or infinite.
    """
    row = progress["log"][-1]
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(
                f"{name} is {value} at step {row['step']}; {out} keeps its last checkpoint"
            )
    unfinished = Path(out, "checkpoints", "unfinished")
    if accelerator.is_main_process:
        shutil.rmtree(unfinished, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(unfinished))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        (unfinished / "progress.json").write_text(json.dumps(progress), encoding="utf-8")
        for path in unfinished.rglob("*"):
            with path.open("r+b") as file:
                os.fsync(file.fileno())  # on the disk before it has its name
        os.replace(unfinished, unfinished.with_name(f"{row['step']:08d}"))
        lines = "".join(json.dumps(row) + "\n" for row in progress["log"])
        Path(out, "log.jsonl").write_text(lines, encoding="utf-8")
        for path in checkpoints(out)[:-keep]:
            shutil.rmtree(path)
    accelerator.wait_for_everyone()


def fingerprint(examples):
    """How many examples, and a hash of all that is in them."""
    text = "\n".join(map(repr, examples)).encode("utf-8", "surrogatepass")
    return f"{len(examples)} examples, sha256 {hashlib.sha256(text).hexdigest()[:16]}"


def read_progress(checkpoint, processes, data):
    """What `save_checkpoint` was given, before `load_state` reads the rest.

    Args:
        data: progress["data"], the fingerprint of the training data.
    Raises:
        ValueError: of another number of processes, with other data, or with a damaged random state,
            of which `load_state` would only log that it goes on with another one.
    """
    from accelerate.utils import load  # refuses a file that would run code

    states = list(checkpoint.glob("random_states_*.pkl"))
    if len(states) != processes:
        raise ValueError(f"{checkpoint} is of {len(states)} processes, here are {processes}")
    try:
        for path in states:
            load(path)
        progress = json.loads((checkpoint / "progress.json").read_text(encoding="utf-8"))
    except Exception as error:  # torch has a type for each kind of damage
        raise ValueError(f"{checkpoint} is damaged ({str(error)[:200]}): train anew") from None
    if progress["data"] != data:
        raise ValueError(f"{checkpoint} was trained on {progress['data']}; this is {data}")
    return progress


# The command line.


def check(config):
    """ValueError for a number that is NaN or out of the range of its type; then `config.check()`.

    The range stands in the type, Annotated[int, (1, 10**9)]; without one it is 0 to 10^9.
    """
    for each in fields(config):
        parts = parts_of(each.type)
        value = getattr(config, each.name)
        if value is None or not {int, float} & set(parts):
            continue
        low, high = next((part for part in parts if isinstance(part, tuple)), (0, 10**9))
        for number in np.ravel(value):
            if not low <= number <= high:
                flag = "--" + each.name.replace("_", "-")
                raise ValueError(f"{flag} is {number}; it must be from {low:,} to {high:,}")
    if hasattr(config, "check"):
        config.check()


def parts_of(kind):
    """A type and all in it: of Annotated[int, (1, 10**9)] | None also int and (1, 10**9)."""
    parts = [kind]
    for inner in get_args(kind):
        parts += parts_of(inner)
    return parts


def read_flags(options, arguments=None, description=""):
    """Read a command line into the dataclass `options`; a wrong flag ends in words of tyro."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    # tyro joins lines: each example command stays on one of its own.
    description = re.sub(r"\n+(?=python -m)", "\n\n", description)
    flags = tyro.cli(
        options,
        args=arguments,
        prog=f"python -m {spec.name}" if spec else None,
        description=description,
        config=(FlagCreatePairsOff,),
    )
    check(getattr(flags, "config", flags))
    return flags


def parse(arguments, config_type, presets, description):
    """Command line of a training -> config, run folder, resume.

    What no flag gives comes from --preset, else from the run that --init names; with --resume, from
    the run that goes on.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--out", "--preset", "--init"):
        first.add_argument(flag, nargs="?")
    first.add_argument("--resume", action="store_true")
    given, _ = first.parse_known_args(arguments)
    saved = None
    if given.resume and given.out and Path(given.out, "config.json").exists():
        saved = read_config(given.out, config_type)
    if saved and not given.preset:
        default = saved
    else:
        preset = presets.get(given.preset, {})
        init = given.init or preset.get("init")
        base = read_config(init, config_type) if init else config_type()
        default = replace(base, **preset)

    config = FlagConversionOff[OmitArgPrefixes[config_type]]
    preset = Annotated[Literal[tuple(presets)], arg(help="Named set of values.")]
    out = Annotated[Path, arg(help="Run folder to make.")]
    resume = Annotated[bool, arg(help="Go on after the last checkpoint, if there is one.")]
    names = [
        ("out", out),
        ("config", config, field(default=default)),
        ("preset", preset, "tiny"),
        ("resume", resume, False),
    ]
    options = read_flags(make_dataclass("Flags", names), arguments, description)
    if saved:
        now, before = asdict(options.config), asdict(saved)
        changed = {name for name in now if now[name] != before[name]}
        if options.config.steps > saved.steps:
            changed -= {"steps"}  # a run may be lengthened
        if changed:
            kept = f"--resume keeps the values of {given.out}/config.json"
            raise ValueError(f"{kept}; leave out {', '.join(sorted(changed))}")
    return options.config, options.out, options.resume


def read_config(folder, config_type):
    """The config of a run; ValueError where there is none, or one that does not fit."""
    try:
        values = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return config_type(**values | lists)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder} is no run folder of this package: {error}") from None


def load_weights(model, path):
    """Fill a model with the weights of a safetensors file.

    ValueError: they are missing, damaged, do not fit, or are not finite.
    """
    from safetensors.torch import load_model

    if not path.exists():
        raise ValueError(f"{path} is missing: is the training finished? It goes on with --resume")
    try:
        load_model(model, path)
    except Exception as error:  # safetensors and torch have types of their own
        raise ValueError(f"{path} does not fit config.json: {str(error)[:200]}") from None
    for name, tensor in model.state_dict().items():
        if not tensor.isfinite().all():
            raise ValueError(f"{path}: {name} holds NaN or infinite numbers")


def find_device(name):
    """The torch device of that name; ValueError where this machine cannot compute on it."""
    import torch

    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(f"--device {name}: {str(error).splitlines()[0]}") from None
    return torch.device(name)


def cpu_has_bf16():
    """Whether the training is on a CPU that computes bfloat16 itself."""
    import torch

    capabilities = getattr(torch.cpu, "get_capabilities", dict)()  # of newer versions of torch
    return not torch.accelerator.is_available() and capabilities.get("avx512_bf16", False)


def one_line_errors(main):
    """Decorator of `main`: what a user can do wrong ends in one line, and exit code 2.

    Exit code 1: the system failed, as with a full disk.
    """
    user_errors = FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError

    def run(arguments=None):
        if hasattr(sys.stdout, "reconfigure"):  # a notebook's has none
            sys.stdout.reconfigure(encoding="utf-8")  # whatever the console's own encoding is
        try:
            main(arguments)
            print(end="", flush=True)  # a process without a console has no sys.stdout
        except BrokenPipeError:  # the reader has gone; Python must not write the rest at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        except (ValueError, ImportError, OSError, MemoryError) as error:
            words = " ".join(str(error).split()) or type(error).__name__
            print("error:", words, file=sys.stderr)
            failed = isinstance(error, OSError) and not isinstance(error, user_errors)
            sys.exit(1 if failed else 2)
        except KeyboardInterrupt:
            sys.exit("stopped; a training goes on from its last checkpoint with --resume")

    return run
