"""Check the import rules of the packages, and that code which is to be the same is.

    python .ci/imports.py [PACKAGE ...]        default: every folder that holds a run.py

- A package imports its own modules relatively, and no other paper's package at all: the folder can be copied.
- The ground floor, all that is not in experiments/, imports nothing of experiments/, and neither do its tests, which
  are all but tests/experiments/. Nothing on it imports train.py.
- `shared` and what it needs is imported by train.py, evaluate.py, predict.py and experiments/ only; a test that needs
  it says `pytest.importorskip("shared")` first.
- The idea and the model import the standard library, torch, numpy and transformers, nothing else at the top; what one
  option alone needs is imported inside a function. They import none of PLUMBING. text.py and loading.py may import
  `tokenizers`, config.py and loading.py run.py. lesson.py imports the package by its name, as its readers do.
- What is imported at the top is named in the package's requirements.txt, and is none of HEAVY but in lesson.py: those
  libraries are imported where they are used, so that --help and a wrong flag answer at once.
- What transformers loads through an Auto class says trust_remote_code=False: a model's folder never runs code.
- run.py is the same file in all packages, byte for byte.
- `# Same as l0drop/model.py:name` just above a function or class, at both: they are equal but for docstrings and
  comments. Two packages that have a function of some length alike say so.
"""

import ast
import re
import sys
from pathlib import Path

RUNNERS = {"train.py", "evaluate.py", "predict.py"}  # and experiments/: may import shared
PLUMBING = {"config", "loading", "decode", "run", "train", "evaluate", "predict"}
MECHANISM_LIBRARIES = {"torch", "numpy", "transformers"}
EXTRA_LIBRARIES = {
    "text.py": {"tokenizers"},
    "loading.py": {"tokenizers", "safetensors"},
    "run.py": {"tyro"},
    "lesson.py": {"matplotlib"},
}
COPIES = ("run.py",)
HEAVY = {"accelerate", "datasets", "matplotlib", "nltk", "rouge_score", "sacrebleu", "scipy", "stanza"}
LONG = 8  # lines
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


def relatively_imported(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and name of every module that is imported from the package itself."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    return [(node.lineno, name) for node in nodes for name in [node.module or "", *(a.name for a in node.names)]]


def unsafe_loads(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and function of every call of an Auto class of transformers that does not refuse a model's own code."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    loads = [(call, ast.unparse(call.func)) for call in calls if call.func.attr in ("from_pretrained", "from_config")]
    safe = "trust_remote_code=False"
    return [(c.lineno, f) for c, f in loads if f.startswith("Auto") and safe not in map(ast.unparse, c.keywords)]


def check_imports(path: Path, package: str, packages: set[str]) -> list[str]:
    """Broken import rules of one file."""
    text, problems = path.read_text(encoding="utf-8"), []
    parts = path.parts[path.parts.index(package) + 1 :]
    in_tests, in_laboratory, is_lesson = "tests" in parts, "experiments" in parts, parts == ("lesson.py",)
    mechanism = not (in_tests or in_laboratory or path.name in RUNNERS)
    idea = mechanism and path.stem not in PLUMBING | {"lesson"}
    for line, name in relatively_imported(ast.parse(text)):
        top = name.split(".")[0]
        if top == "experiments" and not in_laboratory:
            problems.append(f"{path}:{line}: the ground floor must not import experiments/")
        elif top == "train" and not (in_tests or in_laboratory):
            problems.append(f"{path}:{line}: {path.name} must not import train.py, which is the loop and nothing else")
        elif top in PLUMBING and idea:
            problems.append(f"{path}:{line}: {path.name} must not import {top}.py: the idea stands below it")
        elif f"{top}.py" in RUNNERS and mechanism:
            problems.append(f"{path}:{line}: {path.name} must not import {top}.py, which wants shared")
    for line, call in [] if in_tests else unsafe_loads(ast.parse(text)):
        problems.append(f"{path}:{line}: {call} must say trust_remote_code=False")
    for line, name, at_top in imported(ast.parse(text)):
        where = f"{path}:{line}: "
        if at_top and name in HEAVY and not (in_tests or is_lesson):
            problems.append(f"{where}import {name} inside the function that uses it: --help must not wait for it")
        if name == package:
            if not is_lesson:
                problems.append(
                    f"{where}import {name} relatively (from . or from ..), so that the folder can be renamed"
                )
        elif name in packages:
            problems.append(f"{where}{package} must not import {name}: write it twice and declare it (Same as)")
        elif name == "shared" and in_tests:
            if 'importorskip("shared")' not in "\n".join(text.splitlines()[: line - 1]):
                problems.append(f'{where}say pytest.importorskip("shared") first')
        elif name == "shared" and mechanism:
            problems.append(f"{where}only {', '.join(sorted(RUNNERS))} and experiments/ import shared")
        elif at_top and mechanism:
            allowed = MECHANISM_LIBRARIES | EXTRA_LIBRARIES.get(path.name, set())
            if name not in allowed and name not in sys.stdlib_module_names:
                problems.append(f"{where}{path.name} imports {name}; it may import {', '.join(sorted(allowed))}")
    return problems


def check_requirements(package: str, root: Path) -> list[str]:
    """Libraries that a package's own files import at the top and its requirements.txt does not name."""
    listing, problems = root / package / "requirements.txt", []
    named = re.findall(r"^[\w.-]+", listing.read_text(encoding="utf-8"), re.M) if listing.exists() else None
    known = {name.lower().replace("-", "_") for name in named or []} | {"shared", package, *sys.stdlib_module_names}
    for path in files_of(root / package) if named else []:
        for line, name, at_top in imported(ast.parse(path.read_text(encoding="utf-8"))):
            if at_top and name not in known:
                problems.append(f"{path}:{line}: {name} is not in {package}/requirements.txt")
                known.add(name)
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


def declared_twins(path: Path) -> list[tuple[int, str, str, str]]:
    """Line and name of every definition of a file with `# Same as FILE:NAME` just above it, and that file and name."""
    text, found = path.read_text(encoding="utf-8"), []
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
            while line and lines[line - 1].lstrip().startswith("#"):
                found += [(line, node.name, *twin) for twin in TWIN.findall(lines[line - 1])]
                line -= 1
    return found


def check_twins(path: Path, root: Path) -> list[str]:
    """Twins declared in one file that are gone, differ, or do not declare it in turn."""
    problems, declared = [], declared_twins(path)
    for line, name, other, twin in declared:
        theirs = definition(root / other, twin) if (root / other).exists() else None
        if theirs is None:
            problems.append(f"{path}:{line}: no such twin as {other}:{twin}")
        elif re.sub(rf"\b{name}\b", twin, definition(path, name)) != theirs:
            problems.append(f"{path}:{line}: {name} is no longer the same as {other}:{twin}: change both")
        elif twin not in [twin_name for _, twin_name, *_ in declared_twins(root / other)]:
            problems.append(f"{path}:{line}: {other}:{twin} does not say '# Same as' in turn")
    if len(declared) != len(TWIN.findall(path.read_text(encoding="utf-8"))):
        problems.append(f"{path}:1: a '# Same as' does not stand just above a function or class")
    return problems


def files_of(folder: Path) -> list[Path]:
    """The code of a package without its tests."""
    return [path for path in sorted(folder.rglob("*.py")) if "tests" not in path.parts]


def check_duplicates(packages: list[str], root: Path) -> list[str]:
    """Functions of more than LONG lines, docstring apart, that two packages have alike and do not declare as twins."""
    seen, problems = {}, []
    for path in (path for package in packages for path in files_of(root / package)):
        declared = {name for _, name, *_ in declared_twins(path)}
        for node in ast.parse(path.read_text(encoding="utf-8")).body if path.name not in COPIES else []:
            text = definition(path, node.name) if isinstance(node, ast.FunctionDef) else ""
            first = seen.setdefault(text, path)
            if (
                text.count("\n") >= LONG
                and first.relative_to(root).parts[0] != path.relative_to(root).parts[0]
                and node.name not in declared
            ):
                problems.append(f"{path}:{node.lineno}: {node.name} is the same as in {first}: say so (# Same as)")
    return problems


def check_copies(packages: list[str], root: Path) -> list[str]:
    """Packages whose copy of one of COPIES is missing or differs from that of most packages."""
    problems = []
    for name in COPIES:
        texts = {p: (root / p / name).read_bytes() if (root / p / name).exists() else None for p in packages}
        usual = max(texts.values(), key=list(texts.values()).count, default=None)
        differ = [package for package, text in texts.items() if text != usual]
        problems += [f"{package}/{name}:1: not the same file as in the other packages" for package in differ]
    return problems


def main(arguments: list[str], root: Path = Path(".")) -> int:
    found = sorted(path.parent.name for path in root.glob("*/run.py"))
    problems = check_copies(found, root) + check_duplicates(found, root)
    for package in arguments or found:
        problems += check_requirements(package, root)
        for path in sorted((root / package).rglob("*.py")):
            problems += check_imports(path, package, set(found) - {package}) + check_twins(path, root)
    print("\n".join(problems) or f"imports: {', '.join(arguments or found) or 'no package'}: all rules hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[1]))
