"""For the packages' tests: an experiment's run.sh, run from its first line to its last with tiny numbers.

bash runs the script. Each `python -m MODULE ...` in it is executed by this process, which has the imports already. Of
commands that differ in numbers alone the first is run; for the others its outputs are copied under their names. The
intervals and tests of shared.score take few resamples.
"""

import contextlib
import io
import json
import os
import re
import runpy
import select
import shutil
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from unittest import mock

# Stands for python: hands its arguments and its standard input over, waits, and gives back what was printed.
SHIM = """#!/bin/bash
call=$(mktemp -d "$CALLS/XXXXXX")
mkfifo "$call/status"
cat > "$call/stdin"
printf '%s\\0' "$@" > "$call/arguments"
echo "$call" > "$CALLS/requests"
status=$(cat "$call/status")
cat "$call/stdout"
cat "$call/stderr" >&2
exit "$status"
"""
TOP = Path(__file__).resolve().parents[2]
RESAMPLING = ("bootstrap", "permutation_test")
NUMBER = re.compile(r"\d+(\.\d+)?(e-?\d+)?")


def run_script(script: Path, arguments, folder: Path, flags: dict[str, dict], **environment: str) -> list[list[str]]:
    """Run a script in `folder`, which gets a copy of its package's scripts and CSVs; AssertionError if it fails.

    Args:
        script: PACKAGE/experiments/CORPUS/run.sh; arguments: its own, such as a tiny corpus.
        flags: {"l0drop.train": {"--steps": 2}}: values that win over those in the script; where a command of the module
            lacks it, it is added. The key may go on: "l0drop.experiments.bart train"; the longest wins.
        environment: variables of the script, such as SEEDS="0".
    Returns:
        the commands that were run, each a list of words.
    """
    experiments = script.parents[1]
    for path in [*experiments.rglob("*.sh"), *experiments.rglob("*.csv")]:
        copy = folder / path.relative_to(experiments.parents[1])
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/python").write_text(SHIM)
    (folder / "bin/python").chmod(0o755)
    calls, commands = folder / "calls", Commands(folder, flags)
    calls.mkdir()
    os.mkfifo(calls / "requests")
    requests = os.open(calls / "requests", os.O_RDWR)
    variables = {"CALLS": str(calls), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **environment}
    ours = script.relative_to(experiments.parents[1])
    options = {"cwd": folder, "env": os.environ | variables, "text": True, "stdin": subprocess.DEVNULL}
    options |= {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with few_resamples(), subprocess.Popen(["bash", ours, *arguments], **options) as bash:
        while bash.poll() is None:
            if select.select([requests], [], [], 0.05)[0]:
                for call in os.read(requests, 4096).decode().split():
                    (Path(call) / "status").write_text(str(commands.answer(Path(call))))
        said = bash.stderr.read()
    os.close(requests)
    assert bash.returncode == 0, f"{ours} ended with {bash.returncode}: {said[-2000:]}"
    return commands.run


@contextlib.contextmanager
def few_resamples(count: int = 20):
    """In scipy itself, for runpy executes shared.score anew, as a module of its own."""
    from scipy import stats

    def quick(function):
        return lambda *arguments, **options: function(*arguments, **options | {"n_resamples": count})

    with mock.patch.multiple(stats, **{name: quick(getattr(stats, name)) for name in RESAMPLING}):
        yield


class Commands:
    """What stands behind the stand-in for python; `run` are the command lines that were executed."""

    def __init__(self, folder: Path, flags: dict[str, dict]) -> None:
        self.folder, self.flags = folder, flags
        self.run, self.first = [], {}

    def answer(self, call: Path) -> int:
        """Execute or copy one command; its output lies beside it. Returns the exit status."""
        words = (call / "arguments").read_text().split("\0")[:-1]
        out, error = io.StringIO(), io.StringIO()
        if words[0] != "-m":
            with (call / "stdin").open() as stdin:
                options = {"cwd": self.folder, "env": os.environ | {"PYTHONPATH": str(TOP)}, "stdin": stdin}
                result = subprocess.run([sys.executable, *words], text=True, capture_output=True, **options)
            out.write(result.stdout), error.write(result.stderr)
            status = result.returncode
        elif before := self.first.get(kind := NUMBER.sub("#", " ".join(words))):
            status = self.copy(before, words)
        else:
            status = self.execute(words[1], self.tiny(words[1], words[2:]), call / "stdin", out, error)
            self.run.append(words)
            if has_output(words):
                self.first[kind] = words
        (call / "stdout").write_text(out.getvalue())
        (call / "stderr").write_text(error.getvalue())
        return status

    def tiny(self, module: str, words: list[str]) -> list[str]:
        """The words with the values of `flags`, in place of the script's or after them."""
        fitting = [name for name in self.flags if f"{' '.join([module, *words])} ".startswith(f"{name} ")]
        given = self.flags[max(fitting, key=len)] if fitting else {}
        flags = {flag: str(value) for flag, value in given.items()}
        values = [flags.get(before, word) for before, word in zip(["", *words], words, strict=False)]
        return values + [word for flag in flags.items() if flag[0] not in words for word in flag]

    def execute(self, module: str, words: list[str], stdin: Path, out: io.StringIO, error: io.StringIO) -> int:
        """Run a module as `python -m` would; returns its exit status."""
        streams = contextlib.ExitStack()
        with streams, stdin.open() as file, contextlib.chdir(self.folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # runpy: the module was imported before
            streams.enter_context(contextlib.redirect_stdout(out))
            streams.enter_context(contextlib.redirect_stderr(error))
            streams.enter_context(mock.patch.object(sys, "stdin", file))
            streams.enter_context(mock.patch.object(sys, "argv", [module, *words]))
            try:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            except SystemExit as end:
                print(end.code if isinstance(end.code, str) else "", file=error)
                return int(end.code or 0) if not isinstance(end.code, str) else 1
            except Exception:  # or the script would wait for its answer for ever
                traceback.print_exc(file=error)
                return 1
        return 0

    def copy(self, before: list[str], words: list[str]) -> int:
        """Give a command the outputs of one that differs in numbers alone; rows of outputs get its own names."""
        for old, new, flag in zip(before, words, ["", *words], strict=False):
            if flag not in ("--out", "--csv") or old == new:
                continue
            source, target = self.folder / old, self.folder / new
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            elif target.suffix == ".jsonl":
                target.write_text("".join(renamed(line, before, words) for line in source.open()))
            else:
                shutil.copy(source, target)
        return 0


def has_output(words: list[str]) -> bool:
    return "--out" in words or "--csv" in words


def renamed(line: str, before: list[str], words: list[str]) -> str:
    """A row of outputs under the system and seed of another run: a run, or a number at the system's end, may differ."""
    row = json.loads(line)
    for flag, old, new in zip(["", *words], before, words, strict=False):
        if old == new or flag in ("--out", "--csv", "--seed"):
            continue
        old, new = Path(old).name, Path(new).name
        stems = [re.sub(r"[-_](seed)?\d+$", "", name) for name in (old, new)]
        system = str(row.get("system", ""))
        row["system"] = re.sub(rf"(?<!\d){old}$", new, system) if old.isdigit() else system.replace(*stems)
        if not old.isdigit() and (seed := re.search(r"[-_](?:seed)?(\d+)$", new)):
            row["seed"] = int(seed[1])
    return json.dumps(row) + "\n"
