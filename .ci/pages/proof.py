"""What must hold between a PAPER.md, its code and its tests; README.md here says it in words."""

import re
from collections.abc import Iterator

from paper import Package, Row, asserts, deviations, labels, labels_of_name, sections


def of_row(package: Package, row: Row) -> Iterator[str]:
    """What is wrong with one row of the table of equations."""
    if not row.labels:
        yield 'the first cell names no equation; write "Eq. 7", "Eq. 4-6", "Algorithm 1" or "Section 4.2"'
    if not row.says:
        yield 'the cell "what the paper says there" is empty; write one sentence'
    for file, name in row.places:
        if file not in package.code or name not in package.code[file].definitions:
            yield f"there is no {file}:{name}; correct the row"
    for name in row.tests:
        source, dotted = package.tests.get(name, (None, ""))
        if not source:
            yield f"there is no {name} in tests/; correct the row or write the test"
        elif not asserts(source.definitions[dotted]):
            yield f"{name} asserts nothing or is skipped; make it assert"
    for label in row.labels:
        if not package.home(label, row.places)[0]:
            mark = re.sub(r"Eq\. (.*)", r"Eq. (\1)", label)
            where = " or ".join(f"{file}:{name}" for file, name in row.places) or "(no `file.py:name` in the row)"
            yield f'{label}: no mark "# {mark}" in {where}; put it above the line of code'
        if not any(package.is_tested(label, name) for name in row.tests):
            named = " or ".join(row.tests) or "(none in the row)"
            yield f"{label}: no asserting test with this number in its name or text: {named}"


def of_page(package: Package) -> Iterator[tuple[int, str]]:
    """What PAPER.md promises and the code or the tests do not keep."""
    for title in ("Equations", "Deviations"):
        if not package.section(title):
            yield 1, f'no section "## {title}"; write it (its form: .ci/pages/README.md)'
    for row in package.equations:
        yield from ((row.line, problem) for problem in of_row(package, row))
    known = {label for row in package.equations for label in row.labels}
    for number, line in package.section("Equations"):
        declared = re.match(r"<!--\s*trace:(.*)-->", line)
        for label in sorted((labels(declared[1]) | sections(declared[1])) - known) if declared else ():
            yield number, f"{label} is declared but has no row; write one"
    for line, label, _, has_code in package.deviations:
        if has_code and not any(source.find(label) for source in package.code.values()):
            yield line, f'{label}: no mark "# {label}: ..." in the code; put it where it deviates'
        if has_code and not any(package.is_tested(label, name) for name in package.tests):
            yield line, f"{label}: no asserting test names it; write test_{label.lower()}_..."


def problems(package: Package) -> list[str]:
    """What is wrong with the equations, algorithms and deviations of a package, both ways."""
    found = [f"PAPER.md:{line}: {problem}" for line, problem in of_page(package)]
    known = {label for row in package.equations for label in row.labels}
    known |= {deviation.label for deviation in package.deviations}
    for file, source in package.code.items():
        for number, text in source.prose:
            for label in sorted((labels(text) | deviations(text)) - known):
                found.append(f"{file}:{number}: {label} has no row in PAPER.md; add it")
    for name, (source, dotted) in package.tests.items():
        for label in sorted(labels_of_name(name) - known):
            if not label.startswith("D"):
                line = source.definitions[dotted].lineno
                found.append(f"tests/{source.path.name}:{line}: {name}: {label} has no row in PAPER.md; add or rename")
    return list(dict.fromkeys(found))
