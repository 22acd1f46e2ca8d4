"""What must hold between a PAPER.md, its code and its tests; README.md here says it in words."""

import re
from collections.abc import Iterator

from paper import Package, Row, asserts, chapter, marks, marks_of_name


def of_row(package: Package, row: Row) -> Iterator[str]:
    """What is wrong with one row of the table of equations."""
    if not row.labels:
        yield (
            'the first cell names no equation; write "Eq. 7", "Eq. 4-6", "Algorithm 1" or "Section '
            '4.2"'
        )
    if not row.says:
        yield 'the cell "what it is for, in our words" is empty; write one sentence'
    for file, name in [*row.places, *(("one.py", name) for name in row.in_one)]:
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
            where = (
                " or ".join(f"{file}:{name}" for file, name in row.places)
                or "(no `file.py:name` in the row)"
            )
            yield f'{label}: no mark "# {mark}" in {where}; put it above the line of code'
        if not any(label in package.proofs.get(name, ()) for name in row.tests):
            yield (
                f"{label}: no asserting test with this number in its name or text: "
                f"{', '.join(row.tests) or 'none'}"
            )


def of_page(package: Package) -> Iterator[tuple[int, str]]:
    """What PAPER.md promises and the code or the tests do not keep."""
    for title in ("Equations", "Deviations"):
        if not chapter(package.text, title):
            yield 1, f'no section "## {title}"; write it (its form: .ci/pages/README.md)'
    for row in package.equations:
        yield from ((row.line, problem) for problem in of_row(package, row))
    for number, line in chapter(package.text, "Equations"):
        declared = re.match(r"<!--\s*trace:(.*)-->", line)
        for label in sorted(marks(declared[1]) - package.known) if declared else ():
            yield number, f"{label} is declared but has no row; write one"
    for line, (label, *rest) in package.deviations:
        if "(no code)" in " ".join(rest):
            continue
        if not any(label in source.marks() for source in package.code.values()):
            yield line, f'{label}: no mark "# {label}: ..." in the code; put it where it deviates'
        if not any(label in proved for proved in package.proofs.values()):
            yield line, f"{label}: no asserting test names it; write test_{label.lower()}_..."


def problems(package: Package) -> list[str]:
    """What is wrong with the equations, algorithms and deviations of a package, both ways."""
    found = [f"PAPER.md:{line}: {problem}" for line, problem in of_page(package)]
    for file, source in package.code.items():
        for label, (_, line) in source.marks().items():
            if label not in package.known and not label.startswith("Section"):
                found.append(f"{file}:{line}: {label} has no row in PAPER.md; add it")
    for name, (source, dotted) in package.tests.items():
        place = f"tests/{source.path.name}:{source.definitions[dotted].lineno}: {name}"
        for label in marks_of_name(name) - package.known:
            if label.startswith(("Eq.", "Algorithm")):
                found.append(f"{place}: {label} has no row in PAPER.md; add or rename")
    return list(dict.fromkeys(found))
