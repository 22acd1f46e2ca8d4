"""Mutation testing with hand-written mutants: does a package's test suite notice each mistake?

    python .ci/mutants.py PACKAGE [WORD ...]        WORDs pick the mutants whose comment contains them all

PACKAGE/tests/mutants.txt holds blocks of four lines, `-` being one whole line of the file (blanks around it aside):

    # the count of the dummy includes padding
    gates.py
    - pruned = keep.sum(-1) - lengths
    + pruned = keep.size(-1) - lengths

Each mutant is written into a copy of the repository and the suite is run on it until the first failure, the test files
that name or import the changed file first. Killed means that a test failed or the suite ran over its time; an error
before any test ran (a mutant that is no Python) counts as a mistake in mutants.txt. A `-` line that is not found just
once is one too. The suite must pass without mutants.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 600  # seconds for one run of the suite


class Mutant(NamedTuple):
    comment: str
    file: str
    old: str
    new: str


def read_mutants(path: Path) -> list[Mutant]:
    """Parse mutants.txt; raises ValueError that names the line of a bad block."""
    mutants, block = [], []
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        if line.strip():
            block.append(line.strip())
            continue
        if not block or all(row.startswith("#") for row in block):  # a heading
            block = []
            continue
        *comments, file, old, new = block
        if len(block) < 4 or not (old.startswith("- ") and new.startswith("+ ") and all(c[0] == "#" for c in comments)):
            raise ValueError(f"{path}:{number}: a block is a comment, a file, a line with '- ', a line with '+ '")
        mutants.append(Mutant(" ".join(c.lstrip("# ") for c in comments), file, old[2:].strip(), new[2:].strip()))
        block = []
    return mutants


def apply(mutant: Mutant, text: str) -> str:
    """The file's text with the mutant in it; raises ValueError unless its line stands there exactly once."""
    lines = text.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if line.strip() == mutant.old]
    if len(places) != 1:
        raise ValueError(f"{mutant.file}: found {len(places)} times, must be once: {mutant.old}")
    lines[places[0]] = lines[places[0]].replace(mutant.old, mutant.new)
    return "".join(lines)


def run_suite(folder: Path, package: str, changed: str = "") -> tuple[str, str]:
    """Run a package's tests: ("passed" | "failed" | "timeout" | "error", last line or first failing test)."""
    stem = Path(changed).stem

    def distance(test: Path) -> tuple[bool, bool, int]:
        text = test.read_text(encoding="utf-8")
        return stem not in test.stem, f".{stem} import" not in text and f"import {stem}" not in text, len(text)

    tests = sorted((folder / package / "tests").rglob("test_*.py"), key=distance)
    command = [sys.executable, "-m", "pytest", *map(str, tests), "-x", "-q", "-rfE", "-p", "no:cacheprovider"]
    # No byte code: a mutant of the same length, written within the same second, would be taken for what it replaced.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    # A session of its own, so that what the tests themselves have started ends with them.
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipes) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "timeout", f"over {TIMEOUT} s"
    lines = output.strip().splitlines() or ["no output"]
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    outcome = {0: "passed", 1: "failed"}.get(process.returncode, "error")  # 2: errors while collecting
    return outcome, (failed or lines)[0 if failed else -1].split(" - ")[0]


def main(arguments: list[str], root: Path = ROOT) -> int:
    package, *words = arguments or [""]
    listing = root / package / "tests" / "mutants.txt"
    if not package or not listing.exists():
        print(f"usage: python .ci/mutants.py PACKAGE [WORD ...]; {listing} does not exist")
        return 2
    mutants = [m for m in read_mutants(listing) if all(word in m.comment for word in words)]
    survived, broken = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        for name in {package, "shared"}:
            if (root / name).exists():
                shutil.copytree(root / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
        if (root / "pyproject.toml").exists():
            shutil.copy(root / "pyproject.toml", top)
        outcome, detail = run_suite(top, package)
        if outcome != "passed":
            print(f"the suite does not pass without mutants: {outcome}: {detail}")
            return 2
        for mutant in mutants:
            path, started = top / package / mutant.file, time.monotonic()
            original = path.read_text(encoding="utf-8")
            try:
                path.write_text(apply(mutant, original), encoding="utf-8")
                outcome, detail = run_suite(top, package, mutant.file)
            except ValueError as error:
                outcome, detail = "error", str(error)
            path.write_text(original, encoding="utf-8")
            verdict = {"passed": "SURVIVED", "failed": "killed", "timeout": "killed"}.get(outcome, "ERROR")
            survived, broken = survived + (verdict == "SURVIVED"), broken + (verdict == "ERROR")
            print(f"{verdict:9}{mutant.comment} [{time.monotonic() - started:.0f} s, {detail}]", flush=True)
    print(f"mutants: {package}: {len(mutants) - survived - broken} killed, {survived} survived, {broken} errors")
    return 1 if survived or broken or not mutants else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
