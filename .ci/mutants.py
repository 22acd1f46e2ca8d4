"""Mutation testing with hand-written mutants: does a package's test suite notice each mistake?

    python .ci/mutants.py PACKAGE [WORD ...]     the mutants whose comment has all of these words

PACKAGE/tests/mutants.txt holds blocks; `-` is one whole line of the file, blanks around it aside:

    # the count of the dummy includes padding
    gates.py
    - pruned = keep.sum(-1) - lengths
    + pruned = keep.size(-1) - lengths

Each mutant is written into a copy of the repository and the suite is run on it until the first
failure, the test files that name the changed file first. Killed means that a test failed or the
suite ran over its time; an error before any test ran (a mutant that is no Python) counts as a
mistake in mutants.txt. The suite must pass without mutants.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 600  # seconds for one run of the suite


def read_mutants(path: Path) -> list[tuple[str, str, str, str]]:
    """(comment, file, old, new) of each block of mutants.txt; a comment alone is a heading."""
    found = []
    for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8").strip()):
        match = re.fullmatch(r"((?:# .*\n)+)(\S+)\n- (.*)\n\+ (.*)", block)
        if match:
            comment = match[1].replace("# ", "").replace("\n", " ").strip()
            found.append((comment, *match.groups()[1:]))
        elif re.search("(?m)^[^#]", block):
            raise ValueError(
                f"{path}: a block is a comment, a file, a line with '- ', a line with '+ ', "
                f"not:\n{block}"
            )
    return found


def apply(text: str, old: str, new: str) -> str:
    """The file's text with the mutant in it; ValueError unless its line stands there once."""
    line = rf"(?m)^(\s*){re.escape(old.strip())}\s*$"
    changed, count = re.subn(line, lambda match: match[1] + new.strip(), text)
    if count != 1:
        raise ValueError(f"found {count} times, must be once: {old}")
    return changed


def run_suite(folder: Path, package: str, changed: str = "") -> tuple[str, str]:
    """Run a package's tests: ("SURVIVED" | "killed" | "ERROR", last line or first failing test)."""

    def likely_first(path: Path) -> tuple[bool, int]:
        return Path(changed).stem not in path.read_text("utf-8"), path.stat().st_size

    tests = sorted((folder / package / "tests").rglob("test_*.py"), key=likely_first)
    command = [sys.executable, "-m", "pytest", *map(str, tests), "-x", "-q", "-rfE"]
    command += ["-p", "no:cacheprovider"]
    # Byte code of the same second and length would be taken for that of the next mutant.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    # A session of its own, so that what the tests themselves have started ends with them.
    options = {"cwd": folder, "env": environment, "text": True, "start_new_session": True}
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, **options) as process:
        try:
            lines = process.communicate(timeout=TIMEOUT)[0].strip().splitlines() or ["no output"]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "killed", f"over {TIMEOUT} s"
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    # Exit code 2: errors while collecting.
    verdict = {0: "SURVIVED", 1: "killed"}.get(process.returncode, "ERROR")
    return verdict, (failed[0] if failed else lines[-1]).split(" - ")[0]


def main(package: str, *words: str, root: Path = ROOT) -> int:
    listed = read_mutants(root / package / "tests" / "mutants.txt")
    chosen = [mutant for mutant in listed if all(word in mutant[0] for word in words)]
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        for name in (package, "shared"):
            shutil.copytree(root / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
        (top / "pyproject.toml").write_bytes((root / "pyproject.toml").read_bytes())
        verdict, detail = run_suite(top, package)
        if verdict != "SURVIVED":
            print(f"the suite does not pass without mutants: {verdict}, {detail}")
            return 2
        for comment, file, old, new in chosen:
            path = top / package / file
            original = path.read_text(encoding="utf-8")
            try:
                path.write_text(apply(original, old, new), encoding="utf-8")
                verdict, detail = run_suite(top, package, file)
            except ValueError as error:
                verdict, detail = "ERROR", str(error)
            path.write_text(original, encoding="utf-8")
            verdicts.append(verdict)
            print(f"{verdict:9}{comment} [{detail}]", flush=True)
    print(f"mutants: {package}: {verdicts.count('killed')} of {len(verdicts)} killed")
    return int(not verdicts or set(verdicts) != {"killed"})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
