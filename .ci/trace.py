"""Trace every equation, algorithm and deviation of a package from its PAPER.md to code and test, and back.

    python .ci/trace.py [PACKAGE ...]        default: every folder that holds a PAPER.md

`paper.py` says what the tables of a PAPER.md look like. What must hold:

- the named function, class or constant exists, and carries the mark `Eq. (7)` or `Algorithm 1` in a comment or string
  inside it or in the comment just above it; `Eq. (4)-(6)` marks all three;
- the named test exists, is not skipped, asserts something, and has the number in its name or its text;
- every mark in the code (tests apart) and every number in a test's name (`test_eq7_`) has its row. So the mark is kept
  for the package's own paper: another paper's equation is written "equation 3 of Louizos et al.";
- where the table has the column "what the paper says there", each row says it;
- where a paper numbers no equations, the first cell, the code and the test (`test_section_4_2_`) say `Section 4.2`; not
  the other way, since code may name a section for other reasons;
- every `D1` of PAPER.md stands in a comment or docstring of the code and in a test that asserts (or in that test's
  name, `test_d1_`), and every `D1:` of the code stands in PAPER.md; "(no code)" in its row: nothing to trace.

Standard library only, so that it runs where nothing is installed.
"""

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from paper import Package, Row, asserts, deviations, labels, labels_of_name, sections  # noqa: E402


class Trace:
    """What is wrong with one package, in `problems`."""

    def __init__(self, folder: Path):
        self.package, self.problems = Package(folder), []
        for title in ("Equations", "Deviations"):
            if not self.package.section(title):
                self.problem(self.package.page, 1, f'no section "## {title}"; write it (see .ci/paper.py for its form)')

    def problem(self, path: Path, line: int, text: str) -> None:
        self.problems.append(f"{path.relative_to(self.package.folder.parent)}:{line}: {text}")

    def check_row(self, row: Row) -> None:
        """Check one row of the table of equations."""
        package, page = self.package, self.package.page
        if not row.labels:
            forms = '"Eq. 7", "Eq. 4-6", "Algorithm 1" or "Section 4.2"'
            self.problem(page, row.line, f"the first cell names no equation; write {forms}")
        if row.says == "":
            self.problem(page, row.line, 'the cell "what the paper says there" is empty; write one sentence')
        marked = set()
        for file, name in row.places:
            if file not in package.code or name not in package.code[file].definitions:
                self.problem(page, row.line, f"there is no {file}:{name}; correct the row")
            else:
                text = package.code[file].prose_of(name)
                marked |= labels(text) | sections(text)
        for name in row.tests:
            if name not in package.tests:
                self.problem(page, row.line, f"there is no {name} in tests/; correct the row or write the test")
            elif not asserts(package.tests[name][0].definitions[package.tests[name][1]]):
                self.problem(page, row.line, f"{name} asserts nothing or is skipped; make it assert")
        for label in row.labels:
            if label not in marked:
                mark = re.sub(r"Eq\. (.*)", r"Eq. (\1)", label)
                where = " or ".join(f"{file}:{name}" for file, name in row.places) or "(no `file.py:name` in the row)"
                self.problem(page, row.line, f'{label}: no mark "# {mark}" in {where}; put it above the line of code')
            if not any(package.is_tested(label, name) for name in row.tests):
                named = " or ".join(row.tests) or "(none in the row)"
                self.problem(
                    page, row.line, f"{label}: no asserting test with this number in its name or text: {named}"
                )

    def check_equations(self) -> set[str]:
        """Check the equations both ways and return the labels of the table."""
        package, rows = self.package, self.package.equations()
        for row in rows:
            self.check_row(row)
        known = {label for row in rows for label in row.labels}
        for number, line in package.section("Equations"):
            if declared := re.match(r"<!--\s*trace:(.*)-->", line):
                for label in sorted((labels(declared[1]) | sections(declared[1])) - known):
                    self.problem(package.page, number, f"{label} is declared but has no row; write one")
        for source in package.code.values():
            for number, text in source.prose:
                for label in sorted(labels(text) - known):
                    words = f"{label} has no row in the table of equations of PAPER.md; add it"
                    self.problem(source.path, number, words)
        for name, (source, dotted) in package.tests.items():
            for label in sorted(labels_of_name(name) - known):
                if not label.startswith("D"):
                    words = f"{name}: {label} has no row in the table of PAPER.md; add or rename"
                    self.problem(source.path, source.definitions[dotted].lineno, words)
        return known

    def check_deviations(self) -> int:
        """Check the deviations both ways and return how many PAPER.md has."""
        package, listed, marked = self.package, self.package.deviations(), set()
        for source in package.code.values():
            for number, text in source.prose:
                marked |= deviations(text)
                for label in sorted(deviations(text) - {row.label for row in listed}):
                    self.problem(source.path, number, f"{label} is not in PAPER.md's Deviations; add it there")
        for line, label, _, has_code in listed:
            if has_code and label not in marked:
                words = f'{label}: no mark "# {label}: ..." in the code; put it where it deviates'
                self.problem(package.page, line, words)
            if has_code and not any(package.is_tested(label, name) for name in package.tests):
                self.problem(package.page, line, f"{label}: no asserting test names it; write test_{label.lower()}_...")
        return len(listed)


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
        trace = Trace(options.root / name)
        rows, count = trace.check_equations(), trace.check_deviations()
        algorithms = sum(label.startswith("Algorithm") for label in rows)
        failed |= bool(trace.problems)
        verdict = f"{len(trace.problems)} problems" if trace.problems else "all have code and tests"
        counts = f"{len(rows) - algorithms} equations, {algorithms} algorithms, {count} deviations"
        print(*trace.problems, f"trace: {name}: {counts}, {verdict}", sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
