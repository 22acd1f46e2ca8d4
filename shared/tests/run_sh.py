"""For the packages' tests: run an experiment's run.sh, whole, with tiny numbers.

bash runs the script. What it calls as python -m hands its words and streams over a socket to this
process, which has the imports already. The intervals and tests of shared.score take few resamples.
"""

import contextlib
import os
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from unittest import mock

TOP = Path(__file__).resolve().parents[2]
# Its own input is read to the end first: of a pipe the left side has then run.
SHIM = """#!{python} -SE
import os, shutil, socket, sys, tempfile
if sys.argv[1] != "-m":
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
stdin = tempfile.TemporaryFile()
shutil.copyfileobj(sys.stdin.buffer, stdin)
stdin.seek(0)
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, ["\\0".join([os.getcwd(), *sys.argv[2:]]).encode()], [stdin.fileno(), 1, 2])
sys.exit(int(server.recv(9) or 1))
"""


def run_script(
    script: Path, arguments, folder: Path, flags: dict[str, dict], **environment: str
) -> list[list[str]]:
    """Run a script in `folder`, which gets a copy of its package's scripts and CSVs.

    AssertionError if it fails.

    Args:
        script: PACKAGE/experiments/CORPUS/run.sh; arguments: its own, such as a tiny corpus.
        flags: {"l0drop.train": {"--steps": 2}}: values that win over those in the script; where a
            command of the module lacks it, it is added. The key may go on: "l0drop.experiments.bart
            train"; the longest wins.
        environment: variables of the script, such as SEEDS="0".
    Returns:
        the commands `python -m ...` that were run, each a list of words.
    """
    package, commands = script.parents[2], []
    for path in [*script.parents[1].rglob("*.sh"), *script.parents[1].rglob("*.csv")]:
        copy = folder / path.relative_to(package.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    with (
        few_resamples(),
        tempfile.TemporaryDirectory() as bin,
        socket.socket(socket.AF_UNIX) as server,
    ):
        server.bind(address := f"{bin}/socket")
        server.listen()
        server.settimeout(0.05)
        Path(bin, "python").write_text(SHIM.format(python=sys.executable, address=address))
        Path(bin, "python").chmod(0o755)
        variables = os.environ | {"PYTHONPATH": str(TOP), **environment}
        variables["PATH"] = f"{bin}:{os.environ['PATH']}"
        said, call = folder / "said", ["bash", script.relative_to(package.parent), *arguments]
        with said.open("w") as file:
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": file}
            bash = subprocess.Popen(call, cwd=folder, env=variables, **streams)
            while bash.poll() is None:
                with contextlib.suppress(TimeoutError):
                    answer(server.accept()[0], flags, commands)
        assert bash.returncode == 0, (
            f"{call[1]} ended with {bash.returncode}: {said.read_text()[-2000:]}"
        )
    return commands


@contextlib.contextmanager
def few_resamples():
    """In scipy itself, for runpy executes shared.score anew, as a module of its own."""
    from scipy import stats

    def quick(function):
        return lambda *arguments, **options: function(*arguments, **options | {"n_resamples": 20})

    names = "bootstrap", "permutation_test"
    with mock.patch.multiple(stats, **{name: quick(getattr(stats, name)) for name in names}):
        yield


def answer(connection: socket.socket, flags: dict[str, dict], commands: list[list[str]]) -> None:
    """Run a command, and send its exit status."""
    message, streams, *_ = socket.recv_fds(connection, 2**20, 3)
    folder, module, *words = message.decode().split("\0")
    commands.append(["-m", module, *words])
    stdin, stdout, stderr = (open(*pair) for pair in zip(streams, "rww", strict=True))
    with contextlib.chdir(folder), mock.patch.object(sys, "stdin", stdin), stdin, stdout, stderr:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            status = execute(module, tiny(module, words, flags))
    with connection:
        connection.send(str(status).encode())


def tiny(module: str, words: list[str], flags: dict[str, dict]) -> list[str]:
    """The words with the values of `flags`, in place of the script's or after them."""
    command = " ".join([module, *words, ""])
    fitting = [name for name in flags if command.startswith(f"{name} ")]
    own = flags[max(fitting, key=len)] if fitting else {}
    given = {flag: str(value) for flag, value in own.items()}
    values = [given.get(before, word) for before, word in zip(["", *words], words, strict=False)]
    return values + [word for flag in given.items() if flag[0] not in words for word in flag]


def execute(module: str, words: list[str]) -> int:
    """Run a module as `python -m` would; returns its exit status."""
    ignored = warnings.catch_warnings(action="ignore")  # of runpy: the module is imported already
    try:
        with ignored, mock.patch.object(sys, "argv", [module, *words]):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # or the script would wait for its answer for ever
        traceback.print_exc()
        return 1
    return 0
