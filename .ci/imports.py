"""Check the import rules of the packages.

    python .ci/imports.py [PACKAGE ...]        default: every folder that holds a PAPER.md

- A package imports its own modules relatively, and no other paper's package: the folder can be copied and renamed.
- What is not in experiments/ imports nothing of experiments/, but tests/test_readme.py may, which tries the commands.
  Nothing but experiments/ and tests imports train.py.
- `shared` is imported by WANT_SHARED and experiments/ alone; a test that needs it says `pytest.importorskip("shared")`
  first. No other file outside experiments/ imports one of WANT_SHARED.
- The idea and the model import nothing of PLUMBING, and of libraries LIBRARIES alone at the top; text.py, config.py and
  lesson.py may import the EXTRA ones. What one option alone needs is imported inside a function.
- What is imported at the top is named in the package's requirements.txt, for experiments/ also in that of its own, and
  is none of HEAVY but in lesson.py: --help and a wrong flag must not wait for those.
- What transformers loads through an Auto class says trust_remote_code=False: a model's folder never runs code.
"""

import ast
import re
import sys
from pathlib import Path

WANT_SHARED = {"loading", "train", "predict"}
PLUMBING = WANT_SHARED | {"config"}
LIBRARIES = {"torch", "numpy", "transformers"}
EXTRA = {
    "text": {"tokenizers", "tqdm", "regex"},
    "labels": {"regex"},
    "oracle": {"regex"},
    "bert_text": {"tqdm"},
    "lesson": {"matplotlib"},
}
HEAVY = {"accelerate", "datasets", "matplotlib", "nltk", "rouge_score", "sacrebleu", "scipy", "stanza"}


def imported(tree: ast.AST) -> list[tuple[int, str, bool]]:
    """Line, top name and whether it stands at the top of the module, of every absolute import."""
    top, found = {id(node) for node in ast.iter_child_nodes(tree)}, []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        found += [(node.lineno, name.split(".")[0], id(node) in top) for name in names]
    return found


def relatively_imported(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and first name of all that is imported from the package itself: `from .text import PAD` is text and PAD."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    names = [(node.lineno, name) for node in nodes for name in [node.module or "", *(a.name for a in node.names)]]
    return [(line, name.split(".")[0]) for line, name in names]


def unsafe_loads(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and function of every call of an Auto class of transformers that does not refuse a model's own code."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    loads = [(call, ast.unparse(call.func)) for call in calls if call.func.attr in ("from_pretrained", "from_config")]
    safe = "trust_remote_code=False"
    return [(c.lineno, f) for c, f in loads if f.startswith("Auto") and safe not in map(ast.unparse, c.keywords)]


def check_file(path: Path, folder: Path, others: set[str]) -> list[str]:
    """Broken import rules of one file of the package in `folder`."""
    text, package, problems = path.read_text(encoding="utf-8"), folder.name, []
    tree, parts, name = ast.parse(text), path.relative_to(folder).parts, path.stem
    in_tests, in_experiments = "tests" in parts, "experiments" in parts
    on_ground = not (in_tests or in_experiments)
    is_lesson = parts == ("lesson.py",)

    def problem(line: int, words: str) -> None:
        problems.append(f"{path}:{line}: {words}")

    for line, module in relatively_imported(tree):
        if module == "experiments" and not in_experiments and parts != ("tests", "test_readme.py"):
            problem(line, "only experiments/ may import experiments/")
        elif module == "train" and on_ground:
            problem(line, f"{path.name} must not import train.py, which is the loop and nothing else")
        elif module in PLUMBING and on_ground and name not in PLUMBING:
            problem(line, f"{path.name} must not import {module}.py: the idea stands below it")
        elif module in WANT_SHARED and on_ground and name not in WANT_SHARED:
            problem(line, f"{path.name} must not import {module}.py, which wants shared")
    for line, call in [] if in_tests else unsafe_loads(tree):
        problem(line, f"{call} must say trust_remote_code=False")
    allowed = LIBRARIES | EXTRA.get(name, set())
    for line, module, at_top in imported(tree):
        if at_top and module in HEAVY and not (in_tests or is_lesson):
            problem(line, f"import {module} inside the function that uses it: --help must not wait for it")
        if module == package and not is_lesson:
            problem(line, f"import {module} relatively (from . or from ..), so that the folder can be renamed")
        elif module in others:
            problem(line, f"{package} must not import {module}: write it twice")
        elif module == "shared" and in_tests:
            if 'importorskip("shared")' not in "\n".join(text.splitlines()[: line - 1]):
                problem(line, 'say pytest.importorskip("shared") first')
        elif on_ground and name not in WANT_SHARED:
            if module == "shared":
                problem(line, f"only {', '.join(sorted(WANT_SHARED))} and experiments/ import shared")
            elif at_top and module not in allowed | {package, *sys.stdlib_module_names}:
                problem(line, f"{path.name} imports {module}; it may import {', '.join(sorted(allowed))}")
    return problems


def named(listing: Path) -> set[str]:
    """The libraries that a requirements file names, as they are imported."""
    text = listing.read_text(encoding="utf-8") if listing.exists() else ""
    return {name.lower().replace("-", "_") for name in re.findall(r"^[\w.-]+", text, re.M)}


def check_requirements(folder: Path) -> list[str]:
    """Libraries that a package's own files import at the top and no requirements.txt of theirs names."""
    known, problems = named(folder / "requirements.txt") | {"shared", folder.name, *sys.stdlib_module_names}, []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        here = known | named(folder / "experiments/requirements.txt") if "experiments" in parts else known
        for line, name, at_top in imported(ast.parse(path.read_text(encoding="utf-8"))):
            if at_top and name not in here and "tests" not in parts:
                problems.append(f"{path}:{line}: {name} is not in requirements.txt")
    return problems


def main(arguments: list[str], root: Path = Path(".")) -> int:
    packages = sorted(path.parent.name for path in root.glob("*/PAPER.md"))
    problems = []
    for package in arguments or packages:
        problems += check_requirements(root / package)
        for path in sorted((root / package).rglob("*.py")):
            problems += check_file(path, root / package, set(packages) - {package})
    print("\n".join(problems) or f"imports: {', '.join(arguments or packages) or 'no package'}: all rules hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[1]))
