"""Trace every equation, algorithm and deviation of a package from its PAPER.md to code and test, and back.

    python .ci/trace.py [PACKAGE ...]        default: every folder that holds a PAPER.md

What a PAPER.md says (tables under their `##` headings; a cell may name several places or tests):

    ## Equations
    <!-- trace: Eq. 1-13, Algorithm 1 -->       optional: each of these must have a row
    | Eq.         | in words        | code                     | test                      |
    |-------------|-----------------|--------------------------|---------------------------|
    | Eq. 7       | stretch         | `gates.py:sample_gates`  | `test_eq7_stretch`        |
    | Eq. 4-6     | the gate itself | `gates.py:HardConcrete`  | `test_eq4_eq5_eq6_gate`   |
    | Algorithm 1 | prune           | `model.py:prune`         | `test_algorithm1_prune`   |

    ## Deviations
    | D1 | paper | here | why |               or a list: - **D1** ...; "(no code)" in the line: nothing to trace

What must then hold:

- the named function, class or constant exists, and carries the mark `Eq. (7)` or `Algorithm 1` in a comment or string
  inside it or in the comment just above it; `Eq. (4)-(6)` marks all three;
- the named test exists, is not skipped, asserts something, and has the number in its name or its text;
- every mark in the code (tests apart) and every number in a test's name (`test_eq7_`) has its row. So the mark is kept
  for the package's own paper: another paper's equation is written "equation 3 of Louizos et al.";
- where a paper numbers no equations, the first cell, the code and the test (`test_section_4_2_`) say `Section 4.2`; not
  the other way, since code may name a section for other reasons;
- every `D1` of PAPER.md stands in a comment or docstring of the code and in a test that asserts (or in that test's
  name, `test_d1_`), and every `D1:` of the code stands in PAPER.md.

Standard library only, so that it runs where nothing is installed.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from pathlib import Path

NUMBER = r"[A-Z]?\d+[a-z]?"
GROUP = r"\([^()]*\)"  # (4) or (4-6)
EQUATIONS = re.compile(rf"\bEqs?\.\s*({GROUP}(?:(?:\s*[-–,]\s*|\s+(?:and|to)\s+){GROUP})*|{NUMBER}(?:[-–]\d+)?)")
ALGORITHM = re.compile(r"\bAlgorithm\s+(\d+)")
DEVIATION = re.compile(r"\bD(\d+)\b")
SECTION = re.compile(r"\bSection\s+(\d+(?:\.\d+)*)")
TEST_SECTION = re.compile(r"_section((?:_\d+)+)(?=_|$)")
TEST_NUMBER = re.compile(r"_(eq|algorithm|d)(\d+[a-z]?)(?=_|$)")
PLACE = re.compile(r"`([\w/]+\.py):([\w.]+)`")
TEST = re.compile(r"`(?:[\w/]+\.py::?)?(test_\w+)`")


def labels(text: str) -> set[str]:
    """Return the equations and algorithms that a text names, one by one: "Eq. (4)-(6)" is Eq. 4, Eq. 5 and Eq. 6."""
    found = {f"Algorithm {number}" for number in ALGORITHM.findall(text)}
    for group in EQUATIONS.findall(text):
        found |= {f"Eq. {number}" for number in re.findall(rf"\b{NUMBER}\b", group)}
        for first, last in re.findall(r"(\d+)[\s()]*(?:[-–]|\bto\b)[\s()]*(\d+)", group):
            found |= {f"Eq. {number}" for number in range(int(first), int(last) + 1)}
    return found


def sections(text: str) -> set[str]:
    """Return the sections that a text names, "Section 4.2"."""
    return {f"Section {number}" for number in SECTION.findall(text)}


def labels_of_name(name: str) -> set[str]:
    """Return what a test's name says it tests: `test_eq4_eq5_gate` is Eq. 4 and Eq. 5."""
    kinds = {"eq": "Eq. ", "algorithm": "Algorithm ", "d": "D"}
    return {kinds[kind] + number for kind, number in TEST_NUMBER.findall(name)}


class Source:
    """One Python file: its comments and strings by line, and its definitions by dotted name."""

    def __init__(self, path: Path):
        text = path.read_text(encoding="utf-8")
        self.path, self.lines = path, text.splitlines()
        self.prose = []  # (line, text)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                self.prose.append((token.start[0], token.string))
        self.definitions = {}  # dotted name -> node
        self._collect(ast.parse(text), "")

    def _collect(self, parent: ast.AST, prefix: str) -> None:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.definitions[prefix + node.name] = node
                self._collect(node, f"{prefix}{node.name}.")
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                for target in getattr(node, "targets", None) or [node.target]:
                    if isinstance(target, ast.Name):
                        self.definitions[prefix + target.id] = node

    def prose_of(self, name: str) -> str:
        """Return the comments and strings inside a definition and in the comment block just above it."""
        node = self.definitions[name]
        first = min([node.lineno] + [decorator.lineno for decorator in getattr(node, "decorator_list", [])])
        while first > 1 and self.lines[first - 2].lstrip().startswith("#"):
            first -= 1
        return "\n".join(text for line, text in self.prose if first <= line <= node.end_lineno)


def asserts(test: ast.AST) -> bool:
    """Tell whether a test asserts: `assert` of more than a constant, a call of assert_..., or pytest.raises/warns."""
    if any(re.search(r"mark\.(skip|xfail)\b", ast.unparse(decorator)) for decorator in test.decorator_list):
        return False
    for node in ast.walk(test):
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            return True
        if isinstance(node, ast.Call) and re.search(r"assert|\b(raises|warns)$", ast.unparse(node.func)):
            return True
    return False


class Package:
    """One package folder, and what is wrong with it in `problems`."""

    def __init__(self, folder: Path):
        self.folder, self.page, self.problems = folder, folder / "PAPER.md", []
        self.code, self.tests = {}, {}  # file -> source; name of a test -> (source, dotted name)
        for path in sorted(folder.rglob("*.py")):
            source = Source(path)
            if path.is_relative_to(folder / "tests"):
                names = [name for name in source.definitions if name.split(".")[-1].startswith("test_")]
                self.tests |= {name.split(".")[-1]: (source, name) for name in names}
            else:
                self.code[path.relative_to(folder).as_posix()] = source

    def problem(self, path: Path, line: int, text: str) -> None:
        self.problems.append(f"{path.relative_to(self.folder.parent)}:{line}: {text}")

    def section(self, title: str) -> list[tuple[int, str]]:
        """Return the numbered lines of PAPER.md below one heading."""
        page = self.page
        lines = page.read_text(encoding="utf-8").splitlines() if page.is_file() else []
        inside, found = False, []
        for number, line in enumerate(lines, start=1):
            if line.startswith("## "):
                inside = line[3:].strip().lower() == title.lower()
                found += [(number, "")] if inside else []
            elif inside:
                found.append((number, line))
        if not found:
            self.problem(page, 1, f'no section "## {title}"; write it (see .ci/trace.py for its form)')
        return found

    def tested(self, label: str, names: list[str]) -> bool:
        """Tell whether one of these tests asserts and has the label in its name or its text."""
        for source, dotted in (self.tests[name] for name in names if name in self.tests):
            text = source.prose_of(dotted)
            here = labels(text) | {f"D{number}" for number in DEVIATION.findall(text)} | labels_of_name(dotted)
            here |= sections(text)
            here |= {f"Section {number[1:].replace('_', '.')}" for number in TEST_SECTION.findall(dotted)}
            if label in here and asserts(source.definitions[dotted]):
                return True
        return False

    def check_row(self, line: int, row: str) -> set[str]:
        """Check one row of the table of equations and return its labels."""
        page = self.page
        here = labels(row.split("|")[1]) | sections(row.split("|")[1])
        if not here:
            forms = '"Eq. 7", "Eq. 4-6", "Algorithm 1" or "Section 4.2"'
            self.problem(page, line, f"the first cell names no equation; write {forms}")
        marked, places, tests = set(), PLACE.findall(row), TEST.findall(row)
        for file, name in places:
            if file not in self.code or name not in self.code[file].definitions:
                self.problem(page, line, f"there is no {file}:{name}; correct the row")
            else:
                marked |= labels(self.code[file].prose_of(name)) | sections(self.code[file].prose_of(name))
        for name in tests:
            if name not in self.tests:
                self.problem(page, line, f"there is no {name} in tests/; correct the row or write the test")
            elif not asserts(self.tests[name][0].definitions[self.tests[name][1]]):
                self.problem(page, line, f"{name} asserts nothing or is skipped; make it assert")
        for label in sorted(here):
            if label not in marked:
                mark = re.sub(r"Eq\. (.*)", r"Eq. (\1)", label)
                where = " or ".join(f"{file}:{name}" for file, name in places) or "(no `file.py:name` in the row)"
                self.problem(page, line, f'{label}: no mark "# {mark}" in {where}; put it above the line of code')
            if not self.tested(label, tests):
                named = " or ".join(tests) or "(none in the row)"
                self.problem(page, line, f"{label}: no asserting test with this number in its name or text: {named}")
        return here

    def check_equations(self) -> set[str]:
        """Check the equations both ways and return the labels of the table."""
        lines, rows = self.section("Equations"), set()
        table = [(number, line) for number, line in lines if line.startswith("|")]
        for number, line in table[2:]:
            rows |= self.check_row(number, line)
        for number, line in lines:
            if declared := re.match(r"<!--\s*trace:(.*)-->", line):
                for label in sorted((labels(declared[1]) | sections(declared[1])) - rows):
                    self.problem(self.page, number, f"{label} is declared but has no row; write one")
        for source in self.code.values():
            for number, text in source.prose:
                for label in sorted(labels(text) - rows):
                    self.problem(
                        source.path, number, f"{label} has no row in the table of equations of PAPER.md; add it"
                    )
        for name, (source, dotted) in self.tests.items():
            for label in sorted(labels_of_name(name) - rows):
                if not label.startswith("D"):
                    line = source.definitions[dotted].lineno
                    self.problem(
                        source.path, line, f"{name}: {label} has no row in the table of PAPER.md; add or rename"
                    )
        return rows

    def check_deviations(self) -> set[str]:
        """Check the deviations both ways and return those of PAPER.md."""
        page, listed, untraced = self.page, {}, set()
        for number, line in self.section("Deviations"):
            if found := re.match(r"[|*\-\s]*(D\d+)\b", line):
                listed[found[1]] = number
                untraced |= {found[1]} if "(no code)" in line else set()
        marked = set()
        for source in self.code.values():
            for number, text in source.prose:
                for label in sorted({f"D{digits}" for digits in DEVIATION.findall(text)}):
                    marked.add(label)
                    if label not in listed:
                        self.problem(source.path, number, f"{label} is not in PAPER.md's Deviations; add it there")
        for label, number in listed.items():
            if label not in marked | untraced:
                self.problem(page, number, f'{label}: no mark "# {label}: ..." in the code; put it where it deviates')
            if label not in untraced and not self.tested(label, list(self.tests)):
                self.problem(page, number, f"{label}: no asserting test names it; write test_{label.lower()}_...")
        return set(listed)


def main(arguments: list[str]) -> int:
    """Check the packages, print what is missing and a count for each; return 1 if anything is."""
    parser = argparse.ArgumentParser(
        description="Trace equations, algorithms and deviations between PAPER.md and code."
    )
    parser.add_argument("packages", nargs="*", help="package folders below the root; default: those with a PAPER.md")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    options = parser.parse_args(arguments)
    failed = False
    for name in options.packages or sorted(path.parent.name for path in options.root.glob("*/PAPER.md")):
        package = Package(options.root / name)
        rows, deviations = package.check_equations(), package.check_deviations()
        algorithms = sum(label.startswith("Algorithm") for label in rows)
        failed |= bool(package.problems)
        verdict = f"{len(package.problems)} problems" if package.problems else "all have code and tests"
        counts = f"{len(rows) - algorithms} equations, {algorithms} algorithms, {len(deviations)} deviations"
        print(*package.problems, f"trace: {name}: {counts}, {verdict}", sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
