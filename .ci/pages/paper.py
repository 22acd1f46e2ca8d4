"""What PAPER.md, the code and the tests of a package say, read once.

README.md here has the form of a PAPER.md.
"""

import ast
import io
import re
import tokenize
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

NUMBER = r"[A-Z]?\d+[a-z]?"
# (4), (4-6) or (6, 7), but not the shape (B, 2)
GROUP = rf"\(\s*{NUMBER}(?:\s*[-–,]\s*{NUMBER})*\s*\)"
EQUATIONS = re.compile(
    rf"\bEqs?\.\s*({GROUP}(?:(?:\s*[-–,]\s*|\s+(?:and|to)\s+){GROUP})*|{NUMBER}(?:[-–]\d+)?)"
)
ONE = re.compile(r"\b(?:(?:Algorithm|Section) \d+(?:\.\d+)*|D\d+\b)")
IN_A_NAME = re.compile(r"_(?:(eq|algorithm|d)(\d+[a-z]?)|section_(\d+(?:_\d+)*))(?=_|$)")
KINDS = {"eq": "Eq. ", "algorithm": "Algorithm ", "section": "Section ", "d": "D"}
PLACE = re.compile(r"`([\w/]+\.py):([\w.]+)`")
TEST = re.compile(r"`(?:[\w/]+\.py::?)?(test_\w+)`")
# no `|` of code, of a formula or after a backslash
CELL = re.compile(r"\|((?:`[^`]*`|\$[^$]*\$|\\\||[^|])*)")
DEFINITION = (ast.FunctionDef, ast.ClassDef)


@cache
def marks(text: str) -> frozenset[str]:
    """Return the labels that a text names, one by one: "Eq. (4)-(6)" is Eq. 4, Eq. 5, Eq. 6;
    "Section 4.2", "D3".
    """
    found = set(ONE.findall(text))
    for group in EQUATIONS.findall(text):
        found |= {f"Eq. {number}" for number in re.findall(rf"\b{NUMBER}\b", group)}
        for first, last in re.findall(r"(\d+)[\s()]*(?:[-–]|\bto\b)[\s()]*(\d+)", group):
            found |= {f"Eq. {number}" for number in range(int(first), int(last) + 1)}
    return frozenset(found)


def in_order(names: set[str]) -> list[str]:
    """Return labels in the order of their numbers."""
    return sorted(
        names, key=lambda label: ([int(number) for number in re.findall(r"\d+", label)], label)
    )


def marks_of_name(name: str) -> set[str]:
    """Return what a test's name says it tests: `test_eq4_section_4_2_gate` is Eq. 4 and Section
    4.2.
    """
    found = IN_A_NAME.findall(name)
    return {
        KINDS[kind or "section"] + (number or section.replace("_", "."))
        for kind, number, section in found
    }


def cells(line: str) -> list[str]:
    return [cell.strip().replace(r"\|", "|") for cell in CELL.findall(line.strip().rstrip("|"))]


def chapter(text: str, title: str) -> list[tuple[int, str]]:
    """Return the numbered lines below one `##` heading; empty without it."""
    before, _, after = f"\n{text}\n## ".partition(f"\n## {title}\n")
    return [*enumerate(after.partition("\n## ")[0].splitlines(), start=before.count("\n") + 2)]


class Source:
    """One Python file: its comments and strings by line, and its definitions by dotted name."""

    def __init__(self, path: Path):
        text = path.read_text(encoding="utf-8")
        self.path, self.lines, self.tree = path, text.splitlines(), ast.parse(text)
        kinds, tokens = (
            (tokenize.COMMENT, tokenize.STRING),
            tokenize.generate_tokens(io.StringIO(text).readline),
        )
        self.prose = [(token.start[0], token.string) for token in tokens if token.type in kinds]
        self.definitions = {}  # dotted name -> node
        self._collect(self.tree, "")

    def _collect(self, parent: ast.AST, prefix: str) -> None:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, DEFINITION):
                self.definitions[prefix + node.name] = node
                self._collect(node, f"{prefix}{node.name}.")
            for target in getattr(node, "targets", [getattr(node, "target", None)]):
                if isinstance(target, ast.Name):
                    self.definitions[prefix + target.id] = node

    def lines_of(self, name: str) -> range:
        """Return the lines of a definition, its decorators and the comment block just above it; of
        "", all lines.
        """
        if not name:
            return range(1, len(self.lines) + 1)
        node = self.definitions[name]
        first = min(
            [node.lineno] + [decorator.lineno for decorator in getattr(node, "decorator_list", [])]
        )
        while first > 1 and self.lines[first - 2].lstrip().startswith("#"):
            first -= 1
        return range(first, node.end_lineno + 1)

    def marks(self, name: str = "") -> dict[str, tuple[int, int]]:
        """Return where a definition names its labels first: 0 above a line, 1 behind one, 2 in a
        string; which line.
        """
        lines, places = self.lines_of(name), []
        for line, text in self.prose:
            if line in lines:
                kind = (
                    2
                    if text[0] != "#"
                    else 0
                    if self.lines[line - 1].lstrip().startswith("#")
                    else 1
                )
                places += [(label, (kind, line)) for label in marks(text)]
        return dict(sorted(places, reverse=True))


class Block(NamedTuple):
    """What stands in one row of a page: a function, the head of a class, or the lines between two
    of them.
    """

    name: str  # dotted; or ""
    docstring: str
    lines: list[int]  # all that it covers
    # numbered, without the docstring; empty: a heading, which `docstring` is then
    code: list[tuple[int, str]]


def blocks(source: Source) -> list[Block]:
    """Cut a file at its classes, at functions that stand in no other one, and at comments that are
    headings.
    """
    # line -> dotted name, or heading; line -> the docstring that it is part of
    owner, told = {}, {}
    for name, node in {"": source.tree, **source.definitions}.items():
        outer = source.definitions.get(name.rpartition(".")[0])
        if isinstance(node, (ast.Module, *DEFINITION)) and not isinstance(outer, ast.FunctionDef):
            owner |= dict.fromkeys(source.lines_of(name), name)
            if said := ast.get_docstring(node):
                told |= dict.fromkeys(range(node.body[0].lineno, node.body[0].end_lineno + 1), said)
    for match in re.finditer(r"(?<=\n\n)# .*(?=\n\n)", "\n".join(source.lines)):
        owner[match.string.count("\n", 0, match.start()) + 1] = match[0]
    found = []
    for name, group in groupby(owner, owner.get):
        lines = [*group]
        code = [(line, source.lines[line - 1]) for line in lines if line not in told]
        filled = [place for place, (_, line) in enumerate(code) if line.strip()]
        if name.startswith("# "):
            found.append(Block("", name[2:], lines, []))
        elif filled:
            said = next((told[line] for line in lines if line in told), "")
            is_new = name not in {block.name for block in found}
            found.append(
                Block(name if is_new else "", said, lines, code[filled[0] : filled[-1] + 1])
            )
    return found


def asserts(test: ast.AST) -> bool:
    """Tell whether a test asserts: `assert` of more than a constant, a call of assert_..., or
    pytest.raises/warns.
    """
    skips = [
        each
        for each in test.decorator_list
        if re.search(r"mark\.(skip|xfail)\b", ast.unparse(each))
    ]
    tested = [node.test for node in ast.walk(test) if isinstance(node, ast.Assert)]
    called = [ast.unparse(node.func) for node in ast.walk(test) if isinstance(node, ast.Call)]
    found = [each for each in tested if not isinstance(each, ast.Constant)]
    found += [name for name in called if re.search(r"assert|\b(raises|warns)$", name)]
    return bool(found) and not skips


class Row(NamedTuple):
    """A formula of the table of equations."""

    line: int  # of PAPER.md
    labels: list[str]  # in the order of the paper
    formula: str
    says: str  # what it is for, in our words
    places: list[tuple[str, str]]  # file, dotted name
    tests: list[str]


class Package:
    """One package folder as it stands there."""

    def __init__(self, folder: Path):
        self.text = (folder / "PAPER.md").read_text(encoding="utf-8")
        self.code, self.tests = {}, {}  # file -> source; name of a test -> (source, dotted name)
        for path in sorted(folder.rglob("*.py")):
            source = Source(path)
            if path.is_relative_to(folder / "tests"):
                names = [
                    name for name in source.definitions if name.split(".")[-1].startswith("test_")
                ]
                self.tests |= {name.split(".")[-1]: (source, name) for name in names}
            else:
                self.code[path.relative_to(folder).as_posix()] = source
        self.equations = [
            row for line, row in self.table("Equations") for row in self.rows(line, row)
        ]
        self.deviations = self.table("Deviations")  # line; label, paper, here, why
        self.known = {label for row in self.equations for label in row.labels} | {
            row[0] for _, row in self.deviations
        }
        self.proofs = {}  # test that asserts -> the known labels in its name or its text
        for name, (source, dotted) in self.tests.items():
            proved = (source.marks(dotted).keys() | marks_of_name(name)) & self.known
            if proved and asserts(source.definitions[dotted]):
                self.proofs[name] = proved

    def table(self, title: str) -> list[tuple[int, list[str]]]:
        """Return line and cells of each row of the table below a heading, without its head and
        rule.
        """
        return [
            (number, cells(line))
            for number, line in chapter(self.text, title)
            if line.startswith("|")
        ][2:]

    def rows(self, line: int, row: list[str]) -> list[Row]:
        """Return the formulas of a row: where "Eq. 6-8" has three of them between semicolons, each
        by itself.
        """
        text, names, (formula, says) = (
            " | ".join(row),
            in_order(marks(row[0])),
            [*row[1:3], "", ""][:2],
        )
        places, tests, parts = PLACE.findall(text), TEST.findall(text), formula.split("; ")
        if len(parts) != len(names):
            return [Row(line, names, formula, says, places, tests)]
        return [
            Row(line, [name], part, says, places, tests)
            for name, part in zip(names, parts, strict=True)
        ]

    def files(self, order: list[str]) -> list[str]:
        """Return the core's files in this order, folders unfolded, then the others that have a
        mark.
        """
        found = [
            file
            for name in order
            for file in self.code
            if f"{file}/".startswith(f"{name.rstrip('/')}/")
        ]
        found = [file for file in found if not file.startswith("experiments/")]
        found += [file for file, source in self.code.items() if source.marks().keys() & self.known]
        return [
            file
            for file in dict.fromkeys(found)
            if file not in ("one.py", "lesson.py", "__init__.py")
        ]

    def home(self, label: str, places: list[tuple[str, str]]) -> tuple[str, int]:
        """Return file and line of a mark: best above a line, then in the first of these places; or
        ("", 0).
        """
        found = []
        for rank, (file, name) in enumerate(places):
            if file in self.code and name in ("", *self.code[file].definitions):
                kind, line = self.code[file].marks(name).get(label, (0, 0))
                found += [(kind, rank, line, file)] if line else []
        *_, line, file = min(found, default=(0, ""))
        return file, line
