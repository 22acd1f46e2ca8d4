"""Budgets of CONTRIBUTING.md, and that no model's own code is run: python .ci/house.py

A budget's row says at most how many physical lines; its last column, if it has a number, how many
are left to cut: then the check fails when there are more of them.
"""

import ast
import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lines(files: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def measured(root: Path) -> dict[str, int]:
    """Physical lines by the name that the table of budgets has for them; tests: over what they
    test.
    """
    ci = lines([*root.glob(".ci/*.py"), *root.glob(".ci/pages/*.py")])
    found = {"`shared`": lines(root.glob("shared/*.py")), "`.ci`": ci}
    found["tests of `shared`"] = lines(root.glob("shared/tests/*.py")) - found["`shared`"]
    found["tests of `.ci`"] = lines(root.glob(".ci/tests/*.py")) - ci - lines([root / "noxfile.py"])
    found["results (CSV files)"] = len([*root.glob("*/experiments/**/*.csv")])
    for paper in sorted(path.parent for path in root.glob("*/PAPER.md")):
        name, experiments = paper.name, lines(paper.glob("experiments/**/*.py"))
        files = [
            path for path in paper.rglob("*.py") if not {"tests", "experiments"} & set(path.parts)
        ]
        found[f"`{name}/one.py`"] = lines(paper.glob("one.py"))
        found[f"core of `{name}`"] = lines(
            path for path in files if path.name not in ("one.py", "lesson.py")
        )
        found[f"`{name}/experiments`"] = experiments
        found[f"tests of `{name}`"] = lines(paper.glob("tests/*.py")) - lines(files)
        found[f"tests of `{name}/experiments`"] = (
            lines(paper.glob("tests/experiments/*.py")) - experiments
        )
    return found


def over(root: Path) -> list[str]:
    """The budgets that are not kept."""
    text, problems = (root / "CONTRIBUTING.md").read_text(encoding="utf-8"), []
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]+|what they test) \| *([\d,]*)", text, re.M)
    number = {
        name: [int(n.replace(",", "")) if n[:1].isdigit() else 0 for n in cells]
        for name, *cells in rows
    }
    for name, count in measured(root).items():
        # `one.py`, `experiments`
        general = "tests" if name.startswith("tests") else f"`{name.rpartition('/')[2]}"
        limit, left = number.get(name) or number.get(general, (0, 0))
        if count > limit + left:
            problems.append(
                f"{name}: {count}, at most {limit}{f' and {left} still to cut' if left else ''}"
            )
    return problems


def unsafe(path: Path) -> list[str]:
    """Calls of an Auto class of transformers that do not refuse a model's own code."""
    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    loads = [
        call
        for call in map(ast.unparse, calls)
        if re.match(r"(\w+\.)*Auto\w+\.from_(pretrained|config)\(", call)
    ]
    wrong = [call for call in loads if "trust_remote_code=False" not in call]
    return [f"{path}: {call} must say trust_remote_code=False" for call in wrong]


def main(root: Path = ROOT) -> int:
    sources = [
        path
        for path in root.rglob("*.py")
        if not {".nox", "tests"} & set(path.relative_to(root).parts)
    ]
    problems = over(root) + [problem for path in sources for problem in unsafe(path)]
    print(*problems or ["house: budgets hold"], sep="\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
