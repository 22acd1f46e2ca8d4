"""The first second of a command: what it imports to answer --help."""

import ast
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
    code = f"import sys, {', '.join(names)}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
