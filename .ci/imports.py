"""Check the import rules of the packages, and that code declared to be the same still is.

    python .ci/imports.py [PACKAGE ...]        default: every folder that holds a model.py

- A package imports its own modules relatively, and no other paper's package at all: the folder can be copied.
- `shared` and what it needs is imported by train.py, evaluate.py, figures.py and benchmark.py only; a test that needs
  it says `pytest.importorskip("shared")` first.
- model.py and the mechanisms import the standard library, torch, numpy and transformers, nothing else at the top;
  what one option alone needs is imported inside a function. text.py may import `tokenizers`.
- `# Same as l0drop/model.py:name` just above a function or class: the two are equal but for docstrings and comments.
"""

import ast
import re
import sys
from pathlib import Path

RUNNERS = {"train.py", "evaluate.py", "figures.py", "benchmark.py"}
MECHANISM_LIBRARIES = {"torch", "numpy", "transformers"}
EXTRA_LIBRARIES = {"text.py": {"tokenizers"}}
TWIN = re.compile(r"#\s*Same as ([\w/]+\.py):(\w+)")


def imported(tree: ast.AST) -> list[tuple[int, str, bool]]:
    """Line, top name and whether it stands at the top of the module, of every absolute import."""
    top = {id(node) for node in ast.iter_child_nodes(tree)}
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        found += [(node.lineno, name.split(".")[0], id(node) in top) for name in names]
    return found


def check_imports(path: Path, package: str, packages: set[str]) -> list[str]:
    """Broken import rules of one file."""
    text, problems = path.read_text(encoding="utf-8"), []
    in_tests = path.parent.name == "tests"
    for line, name, at_top in imported(ast.parse(text)):
        where = f"{path}:{line}: "
        if name == package:
            problems.append(f"{where}import {name} relatively (from . or from ..), so that the folder can be renamed")
        elif name in packages:
            problems.append(f"{where}{package} must not import {name}: write it twice and declare it (Same as)")
        elif name == "shared" and in_tests:
            if 'importorskip("shared")' not in "\n".join(text.splitlines()[: line - 1]):
                problems.append(f'{where}say pytest.importorskip("shared") first')
        elif name == "shared" and path.name not in RUNNERS:
            problems.append(f"{where}only {', '.join(sorted(RUNNERS))} import shared")
        elif at_top and not in_tests and path.name not in RUNNERS:
            allowed = MECHANISM_LIBRARIES | EXTRA_LIBRARIES.get(path.name, set())
            if name not in allowed and name not in sys.stdlib_module_names:
                problems.append(f"{where}{path.name} imports {name}; a mechanism has {', '.join(sorted(allowed))}")
    return problems


def definition(path: Path, name: str) -> str | None:
    """A function or class of a file without its docstrings, as text that does not depend on layout."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(inner) is not None:
                    inner.body = inner.body[1:] or [ast.Pass()]
            return ast.unparse(node)
    return None


def check_twins(path: Path, root: Path) -> list[str]:
    """Declared twins of one file that are gone or differ."""
    lines, problems = path.read_text(encoding="utf-8").splitlines(), []
    for number, line in enumerate(lines, 1):
        for other, name in TWIN.findall(line):
            found = next(
                (
                    re.match(r"\s*(?:def|class) (\w+)", text)
                    for text in lines[number:]
                    if "def " in text or "class " in text
                ),
                None,
            )
            mine = definition(path, found[1]) if found else None
            theirs = definition(root / other, name) if (root / other).exists() else None
            if mine is None or theirs is None:
                problems.append(f"{path}:{number}: no such twin as {other}:{name}")
            elif mine.replace(found[1], name) != theirs:
                problems.append(f"{path}:{number}: {found[1]} is no longer the same as {other}:{name}: change both")
    return problems


def main(arguments: list[str], root: Path = Path(".")) -> int:
    found = sorted(path.parent.name for path in root.glob("*/model.py"))
    problems = []
    for package in arguments or found:
        for path in sorted((root / package).rglob("*.py")):
            problems += check_imports(path, package, set(found) - {package}) + check_twins(path, root)
    print("\n".join(problems) or f"imports: {', '.join(arguments or found) or 'no package'}: all rules hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[1]))
