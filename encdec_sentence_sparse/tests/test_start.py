"""The first second of a command: what it imports to answer --help, and Ctrl-C while it does."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("shared")
FOLDER = Path(__file__).resolve().parents[1]
PACKAGE = __package__.rpartition(".")[0]
# Who needs one imports it in the function that uses it. transformers, which model.py is made of, brings accelerate.
HEAVY = {"datasets", "matplotlib", "nltk", "rouge_score", "sacrebleu", "scipy", "stanza"}


def commands() -> list[str]:
    """Every module with a command line."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FOLDER.rglob("*.py")}
    functions = [
        (path, node) for path, tree in trees.items() for node in tree.body if isinstance(node, ast.FunctionDef)
    ]
    found = [path for path, node in functions if "one_line_errors" in map(ast.unparse, node.decorator_list)]
    return sorted(".".join((PACKAGE, *path.relative_to(FOLDER).with_suffix("").parts)) for path in found)


def test_no_command_imports_what_help_does_not_need():
    names = commands()
    assert {f"{PACKAGE}.{name}" for name in ("train", "evaluate", "predict")} <= set(names)
    # What transformers itself brings does not count: scipy, where scikit-learn is installed.
    code = f"""import sys
from transformers import BartForConditionalGeneration
given = set(sys.modules)
import {", ".join(names)}
print(*sorted({HEAVY!r} & (set(sys.modules) - given)))"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_ctrl_c_while_a_command_imports_its_libraries_shows_no_traceback():
    command = [sys.executable, "-v", "-m", f"{PACKAGE}.train", "--help"]
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # also where the tests run behind `&`
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **heard) as process:
        said = ""
        for line in process.stderr:
            if line.startswith("import 'torch.") and not said:
                process.send_signal(signal.SIGINT)
            said += line if said or line.startswith("import 'torch.") else ""
    assert process.returncode == -signal.SIGINT and "Traceback" not in said


def test_ctrl_c_stays_the_programs_that_imports_the_package(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/__init__.py").write_text(f"import {PACKAGE}\n")
    (tmp_path / "theirs/__main__.py").write_text(
        "import signal\nprint(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path), os.getcwd()])
    heard = {
        "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        "env": os.environ | {"PYTHONPATH": path},
    }
    result = subprocess.run([sys.executable, "-m", "theirs"], capture_output=True, text=True, check=True, **heard)
    assert result.stdout.strip() == "True"
