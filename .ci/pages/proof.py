"""What must hold between a PAPER.md, its code and its tests; README.md here says it in words."""

import re
from pathlib import Path

from paper import Package, Row, asserts, deviations, labels, labels_of_name, sections


class Trace:
    """What is wrong with one package, in `problems`."""

    def __init__(self, package: Package):
        self.package, self.problems = package, []
        for title in ("Equations", "Deviations"):
            if not self.package.section(title):
                self.problem(self.package.page, 1, f'no section "## {title}"; write it (its form: .ci/pages/README.md)')

    def problem(self, path: Path, line: int, text: str) -> None:
        self.problems.append(f"{path.relative_to(self.package.folder)}:{line}: {text}")

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

    def check_equations(self) -> None:
        """Check the equations both ways."""
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

    def check_deviations(self) -> None:
        """Check the deviations both ways."""
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


def problems(package: Package) -> list[str]:
    """What is wrong with the equations, algorithms and deviations of a package."""
    trace = Trace(package)
    trace.check_equations()
    trace.check_deviations()
    return trace.problems
