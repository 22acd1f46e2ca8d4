"""Run folders, checkpoints, the command line and one-line errors: what accelerate and tyro leave to
do.

A run folder holds config.json, log.jsonl, what `load_run` of its package reads, and
checkpoints/STEP.
"""

import argparse
import itertools
import json
import logging
import math
import os
import re
import shutil
import sys
from dataclasses import asdict, dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
import tyro
from tyro.conf import FlagConversionOff, FlagCreatePairsOff, OmitArgPrefixes, arg

from .data import load, read


def one_line_errors(main):
    """Decorator of `main`: a foreseen error ends in one line and exit code 2, or 1 where the system
    failed.
    """
    wrong_path = FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError

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
            sys.exit(1 if isinstance(error, OSError) and not isinstance(error, wrong_path) else 2)
        except KeyboardInterrupt:
            sys.exit("stopped; a training goes on from its last checkpoint with --resume")

    return run


def check(config):
    """ValueError for a number that is NaN or out of the range of its type, Annotated[int, (1,
    10**9)]; else 0 to 10^9.

    Then `config.check()`, where there is one.
    """

    def parts_of(kind):  # of Annotated[int, (1, 10**9)] | None also int, the range and None
        return [kind, *(part for inner in get_args(kind) for part in parts_of(inner))]

    for each in fields(config):
        value, parts = getattr(config, each.name), parts_of(each.type)
        low, high = next((part for part in parts if isinstance(part, tuple)), (0, 10**9))
        numbers = [] if value is None or {int, float}.isdisjoint(parts) else np.ravel(value)
        if wrong := [number for number in numbers if not low <= number <= high]:
            raise ValueError(
                f"--{each.name.replace('_', '-')} is {wrong[0]}; it must be from {low:,} to "
                f"{high:,}"
            )
    if hasattr(config, "check"):
        config.check()


def read_flags(options, arguments=None, description=""):
    """Read a command line into the dataclass `options` by tyro, which ends with its own words for a
    wrong flag.
    """
    name = getattr(sys.modules["__main__"].__spec__, "name", options.__module__)
    # as it is called here: a copy may have another name
    package = re.sub(r"(\.experiments)?\.\w+$", "", name)
    lines = re.sub(r"python -m (?!shared)\w+\.", f"python -m {package}.", description)
    lines = re.sub(r"\n+", "\n\n", lines)  # tyro joins lines: the example commands would be one
    flags = tyro.cli(
        options,
        args=arguments,
        prog=f"python -m {name}",
        description=lines,
        config=(FlagCreatePairsOff,),
    )
    check(getattr(flags, "config", flags))
    return flags


def parse(arguments, config_type, presets, description):
    """Command line of `train` -> config, run folder, resume.

    What no flag gives comes from --preset, else from the run of --init; with --resume, from the run
    that goes on.
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
        ("resume", Annotated[bool, arg(help="Go on after the last checkpoint, if there is "
                                            "one.")], False),
    ])  # fmt: skip
    options = read_flags(flags, arguments, description)
    if saved:
        changed = {
            name for name, value in vars(options.config).items() if value != vars(saved)[name]
        }
        # more steps lengthen it
        if wrong := changed - ({"steps"} if options.config.steps > saved.steps else set()):
            raise ValueError(
                f"--resume keeps the values of {given.out}/config.json; leave out "
                f"{', '.join(wrong)}"
            )
    return options.config, options.out, options.resume


def package_of(config_type):
    """The name of the package that a type of config belongs to."""
    return [name for name in config_type.__module__.split(".") if name != "experiments"][-2:][0]


def read_config(run_folder, config_type):
    """The config of a run; ValueError where there is none, or one of another package or version."""
    other = "not a run folder of this package and version"
    try:
        saved = json.loads(Path(run_folder, "config.json").read_text(encoding="utf-8"))
        if saved.get("package", "") not in ("", package_of(config_type)):
            other = f"a run of {saved['package']}"
        lists = {
            name: tuple(value) for name, value in saved["config"].items() if isinstance(value, list)
        }
        return config_type(**saved["config"] | lists)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{run_folder} is {other}: {error}") from None


def last_checkpoint(run_folder):
    """The folder of a run's last checkpoint, whose name is eight digits; None where there is
    none.
    """
    return max(Path(run_folder, "checkpoints").glob("[0-9]" * 8), default=None)


def updates_of(run_folder, config):
    """How many updates are behind a run's weights: fewer than its steps where it is not
    finished.
    """
    last = last_checkpoint(run_folder)
    return int(last.name) if last else config.steps


def load_weights(model, run_folder, name="model.safetensors"):
    """Fill a model with a run's weights, or its last checkpoint's; ValueError: they are damaged, do
    not fit, or NaN.
    """
    from safetensors.torch import load_model

    path = Path(run_folder, name)
    if not path.exists() and (checkpoint := last_checkpoint(run_folder)):
        path = checkpoint / "model.safetensors"
        print(f"{run_folder} is not finished: reading {path}", file=sys.stderr)
    try:
        load_model(model, path)
    except Exception as error:  # safetensors and torch raise types of their own
        raise ValueError(
            f"{path} is missing, cut off or does not fit config.json: {str(error)[:200]}"
        ) from None
    if bad := [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]:
        raise ValueError(f"{path}: {bad[0]} holds NaN or infinite numbers: the training went wrong")


def find_device(name):
    """The torch device of that name; ValueError where this machine cannot compute on it."""
    import torch

    try:
        torch.zeros(1, device=name).item()
        return torch.device(name)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(
            f"--device {name} cannot be used here: {str(error).partition(chr(10))[0]}"
        ) from None


class Setup(NamedTuple):
    """What a training loop works with; `folder` is a `RunFolder`."""

    accelerator: Any
    run: Any
    model: Any  # the run's, as accelerate wraps it
    optimizer: Any
    loader: Any  # endless batches
    training: list  # items
    validation: list
    folder: Any


def setup(
    config,
    out,
    resume,
    begin,
    load_run,
    optimizer,
    length,
    load=load,
    final="",
    checkpoints=1,
    **progress,
):
    """Set up a training; ValueError for bad values or data, or a folder that cannot be used.

    Args:
        begin, load_run: begin(config, examples), load_run(out) -> the package's `Run`, a NamedTuple
            with config, model, encode(examples) -> items, collate(items) -> batch,
            write_files(folder).
        optimizer, length: optimizer(model) -> of torch; length(item) -> number or tuple, by which
            `Batches` sorts.
        load: load(config.data, split) -> examples.
        final: weights that are removed while a finished run goes on: until there are new ones a
            checkpoint is read.
        checkpoints, progress: how many checkpoints stay; what else they save.
    """
    import torch  # here, for --help answers without it
    from accelerate import Accelerator, DataLoaderConfiguration
    from accelerate.utils import GradientAccumulationPlugin, set_seed

    check(config)
    if os.path.lexists(out) and not resume:
        raise ValueError(f"{out} exists: add --resume to go on with it, or choose another --out")
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    # both of a start that was killed
    if names - {".lock", "config.json.unfinished"} and "config.json" not in names:
        raise ValueError(f"{out} exists and is not a run: choose another --out")
    # a line on shared tensors at every checkpoint
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    accelerator = Accelerator(  # whatever ACCELERATE_... variables say
        mixed_precision=getattr(config, "mixed_precision", "no"),
        gradient_accumulation_plugin=GradientAccumulationPlugin(
            num_steps=getattr(config, "accumulate", 1)
        ),
        # or several processes would each believe to be alone
        cpu=not torch.accelerator.is_available(),
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )
    set_seed(config.seed)
    data = load(config.data, "train"), load(config.data, "validation")
    run = (load_run(out) if last_checkpoint(out) else begin(config, data[0]))._replace(
        config=config
    )
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    model, optimizer = accelerator.prepare(run.model, optimizer(run.model))
    with accelerator.main_process_first():
        items, validation = (run.encode(examples) for examples in data)
    sizes = (getattr(config, name, 0) for name in ("batch_size", "batch_tokens"))
    batches = Batches([length(item) for item in items], config.seed, *sizes)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    generator = torch.Generator()
    loader = torch.utils.data.DataLoader(
        items, batch_sampler=batches, collate_fn=run.collate, generator=generator
    )
    flags = {"source": "was_cut", "target": "target_was_cut"}
    cut = {side: sum(getattr(item, flag, False) for item in items) for side, flag in flags.items()}
    if accelerator.is_main_process:
        say_what_is_odd(config, data, cut)
    first = {
        "step": 0,
        "examples": len(items),
        "sources_cut": cut["source"],
        "targets_cut": cut["target"],
    }
    progress |= {"step": 0, "log": [first]}
    folder = RunFolder(accelerator, out, progress, checkpoints, run, final)
    return Setup(
        accelerator, run, model, optimizer, accelerator.prepare(loader), items, validation, folder
    )


def say_what_is_odd(config, data, cut):
    """Lines on texts that are cut, validation data that are too few, or that are trained on."""
    training, validation = data
    for side, number in cut.items():
        if number:
            flag = f"max_{side}"
            most = (
                f"--max-{side} {getattr(config, flag)}"
                if hasattr(config, flag)
                else "what the model reads"
            )
            print(f"{number} of {len(training)} training examples are cut to {most}")
    seen = {repr(replace(example, id="")) for example in training}
    if same := sum(repr(replace(example, id="")) in seen for example in validation):
        print(
            f"{same} of {len(validation)} validation examples are training examples, too: their "
            f"loss says little"
        )
    if len(validation) < 10:
        print(
            f"{len(validation)} validation examples are few: what is chosen by them is chosen by "
            f"chance"
        )


class Batches:
    """Endless lists of indices of documents: the batch sampler of a `DataLoader`.

    An epoch sorts the documents by length, ties in random order, cuts them into batches of at most
    `size` documents and `tokens` padded tokens (0: any number), and shuffles the batches. As the
    cuts depend on lengths alone, every epoch has as many batches. Of a length that is a tuple the
    first number counts.
    """

    def __init__(self, lengths, seed, size=0, tokens=0):
        self.lengths = np.array(lengths).reshape(len(lengths), -1)
        self.seed, self.size, self.tokens = seed, size, tokens

    def __iter__(self):
        for epoch in itertools.count():
            yield from self.epoch(epoch)

    def epoch(self, number):
        rng = np.random.default_rng((self.seed, number))
        keys = (rng.random(len(self.lengths)), *self.lengths.T[::-1])
        batches = [[]]
        for index in np.lexsort(keys).tolist():
            larger = len(batches[-1]) + 1
            if batches[-1] and (
                0 < self.size < larger or 0 < self.tokens < larger * self.lengths[index, 0]
            ):
                batches.append([])
            batches[-1].append(index)
        return [batches[i] for i in rng.permutation(len(batches))]


@dataclass
class RunFolder:
    """The folder of a training. `with` locks it, and makes it or loads its last checkpoint."""

    accelerator: Any
    path: Path
    progress: dict  # what a kill must not lose: "step", "log" (rows), more
    checkpoints: int = 1  # how many of them stay
    run: Any = None  # whose write_files(path) writes what stands beside the weights
    final: str = ""  # see `setup`

    def __enter__(self):
        from filelock import FileLock, Timeout

        self.lock = FileLock(self.path / ".lock")
        self.accelerator.wait_for_everyone()  # all have looked before the first one makes it
        if is_main := self.accelerator.is_main_process:
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                self.lock.acquire(timeout=0)
            except Timeout:
                busy = (
                    f"another process trains in {self.path}: wait for it, or choose another --out"
                )
                raise ValueError(busy) from None
        self.accelerator.wait_for_everyone()
        if begun := last_checkpoint(self.path):
            self.load_checkpoint(begun)
        config = self.run.config
        # steps may be more now
        saved = {"package": package_of(type(config)), "config": asdict(config)}
        self.write("config.json", lambda path: path.write_text(json.dumps(saved, indent=1)))
        if is_main and not begun:
            self.run.write_files(self.path)
        if is_main and self.final and self.progress["step"] < config.steps:
            (self.path / self.final).unlink(missing_ok=True)
        return self

    def __exit__(self, *_):
        self.lock.release()

    def write(self, name, write, by_all=False):
        """Called on every process: write(path) writes under a temporary name; once on the disk, the
        file is renamed.
        """
        path = self.path / f"{name}.unfinished"
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
            raise OSError(
                f"{self.path / name} cannot be written ({error}): make room, then --resume"
            ) from None

    def save_checkpoint(self, row):
        """Add a row to log.jsonl, write checkpoints/STEP, and remove all but the last ones;
        ValueError: NaN.
        """
        if bad := [
            name
            for name, value in row.items()
            if isinstance(value, float) and not math.isfinite(value)
        ]:
            raise ValueError(
                f"{bad[0]} is {row[bad[0]]} at step {row['step']}; {self.path} keeps its last "
                f"checkpoint"
            )
        self.progress |= {"step": row["step"], "log": [*self.progress["log"], row]}
        lines = "".join(json.dumps(row) + "\n" for row in self.progress["log"])

        def write(path):
            self.accelerator.save_state(str(path))
            if self.accelerator.is_main_process:
                (path / "progress.json").write_text(json.dumps(self.progress))

        self.write("log.jsonl", lambda path: path.write_text(lines))
        self.write(f"checkpoints/{row['step']:08d}", write, by_all=True)
        for path in sorted((self.path / "checkpoints").glob("[0-9]" * 8))[: -self.checkpoints]:
            shutil.rmtree(path, ignore_errors=True)
        # where no progress bar is seen
        if self.accelerator.is_main_process and not sys.stderr.isatty():
            print(f"{self.path}: {json.dumps(row)}", file=sys.stderr, flush=True)

    def load_checkpoint(self, folder):
        """Load a checkpoint; ValueError: it is damaged."""
        from accelerate.utils import load as load_safely

        states, processes = list(folder.glob("random_states_*.pkl")), self.accelerator.num_processes
        if len(states) not in (0, processes):
            raise ValueError(
                f"{folder} is of {len(states)} processes, here are {processes}: start as many to "
                f"go on"
            )
        try:
            for state in states:
                load_safely(state)  # load_state would only log a damaged one
            self.accelerator.load_state(str(folder))
            self.progress = json.loads((folder / "progress.json").read_text())
        except Exception as error:  # as many types as there are kinds of damage
            # torch goes on to advise that the file be trusted
            said = str(error).partition(".")[0][:200]
            raise ValueError(
                f"{folder} cannot be resumed ({said}): train anew in another --out"
            ) from None

    def keep_best(self, row, write, name="validation_loss", sign=-1):
        """Write best.safetensors where sign * row[name] is above that of all rows so far."""
        if sign * row[name] > max(
            (sign * old[name] for old in self.progress["log"] if name in old), default=-math.inf
        ):
            self.write("best.safetensors", write)

    def since_best(self):
        """How many validations followed that of the lowest loss, the first of equal ones."""
        losses = [
            row["validation_loss"] for row in self.progress["log"] if "validation_loss" in row
        ]
        return len(losses) - 1 - losses.index(min(losses)) if losses else 0

    def take_best(self, name):
        """Give best.safetensors, where a training wrote it, another name."""
        best = self.path / "best.safetensors"
        if best.exists():  # no more where the run was finished before
            self.write(name, lambda path: shutil.copyfile(best, path))
        if self.accelerator.is_main_process:
            best.unlink(missing_ok=True)


def write_weights(model, path):
    """A model's weights as transformers writes them: what is tied stands once; the same ones are
    the same bytes.
    """
    from safetensors.torch import save_file

    tied = getattr(model, "all_tied_weights_keys", {})
    tensors = {
        name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied
    }
    save_file(tensors, str(path), {"format": "pt"})


def exchanged(items, source, swap):
    """Each item with the source of another one, swap(item, other); None where no two have different
    sources.

    Of eight others, spread over all, the one whose source, source(item), has the fewest tokens in
    common.
    """
    tokens, count, others = [set(source(item)) for item in items], len(items), []
    for i, own in enumerate(tokens):
        candidates = [(i + 1 + count * k // 8) % count for k in range(8)]
        others.append(
            min(candidates, key=lambda j: len(own & tokens[j]) / max(len(own | tokens[j]), 1))
        )  # noqa: B023
    if all(list(source(items[i])) == list(source(items[j])) for i, j in enumerate(others)):
        return None
    return [swap(item, items[j]) for item, j in zip(items, others, strict=True)]


def says_it_reads(loss, exchanged_loss):
    """What the loss with sources exchanged says of a model: a line to print, empty where it reads
    its sources.
    """
    if exchanged_loss is None or exchanged_loss - loss > 0.15 * loss:
        return ""
    reads = "reads little of" if exchanged_loss - loss > 0.05 else "does not read"
    return (
        f"the model {reads} its source: train longer, on more data, or begin with a pretrained "
        f"or trained model"
    )


WINDOW = 16  # batches whose documents are sorted by length, so that a batch has hardly any padding


@dataclass
class DecodingFlags:
    """The flags of every `predict`."""

    run: tyro.conf.Positional[Path]  # Run folder.
    # Text, a document a line, or .jsonl; none: standard input.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    data: str = ""  # In place of files: anything that shared.data.load takes.
    # Split of the data (none: test); without --data, of the data that the run was trained on.
    split: str = ""
    limit: Annotated[int, (1, 10**9)] | None = None  # First documents only.
    # .jsonl for all that is known of each document, else a line each; none: standard output.
    out: Path | None = None
    overwrite: bool = False  # Replace that file.
    system: str = ""  # Name in the table; none: the folder's, without its seed.
    # Documents decoded at a time; outputs do not depend on it.
    batch_size: Annotated[int, (1, 10**9)] = 32
    device: str = "cpu"  # Device of torch.

    def read(self, own_data):
        """The documents; `own_data` is what the run was trained on."""
        data = self.data or (own_data if self.split else "")
        return read(self.files, data, self.split or "test", self.limit)


def in_windows(examples, encode, length, decode, batch_size):
    """Encode and decode(items) in batches of like length; yields (item, output) in the order of the
    examples.
    """
    for start in range(0, len(examples), WINDOW * batch_size):
        items = encode(examples[start : start + WINDOW * batch_size])
        order, outputs = sorted(range(len(items)), key=lambda i: length(items[i])), {}
        for first in range(0, len(items), batch_size):
            places = order[first : first + batch_size]
            outputs |= zip(places, decode([items[i] for i in places]), strict=True)
        yield from ((items[i], outputs[i]) for i in range(len(items)))
