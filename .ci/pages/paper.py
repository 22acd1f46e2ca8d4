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
KINDS = {"eq": "Eq. ", "algorithm": "Algorithm ", "d": "D"}
PLACE = re.compile(r"`([\w/]+\.py):([\w.]+)`")
TEST = re.compile(r"`(?:[\w/]+\.py::?)?(test_\w+)`")
# A cell ends at a `|` that is not in code, in a formula or behind a backslash.
CELL = re.compile(r"\|((?:`[^`]*`|\$[^$]*\$|\\\||[^|])*)")
DEFINITION = (ast.FunctionDef, ast.ClassDef)


@cache
def marks(text: str) -> frozenset[str]:
    """Return the labels that a text names, one by one.

    "Eq. (4)-(6)" is Eq. 4, Eq. 5, Eq. 6; others are "Section 4.2", "D3".
    """
    found = set(ONE.findall(text))
    for group in EQUATIONS.findall(text):
        found |= {f"Eq. {number}" for number in re.findall(rf"\b{NUMBER}\b", group)}
        for first, last in re.findall(r"(\d+)[\s()]*(?:[-–]|\bto\b)[\s()]*(\d+)", group):
            found |= {f"Eq. {number}" for number in range(int(first), int(last) + 1)}
    return frozenset(found)


def in_order(names: set[str]) -> list[str]:
    """Return labels in the order of their numbers."""

    def numbers(label: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", label)]

    return sorted(names, key=lambda label: (numbers(label), label))


def marks_of_name(name: str) -> set[str]:
    """Return what a test is of: `test_eq4_section_4_2_gate` is of Eq. 4 and Section 4.2."""
    found = set()
    for kind, number, section in IN_A_NAME.findall(name):
        found.add(KINDS[kind] + number if kind else "Section " + section.replace("_", "."))
    return found


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
        self.path = path
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        prose = [token for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING)]
        self.prose = [(token.start[0], token.string) for token in prose]
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
        """Return the lines of a definition with its decorators and comment; of "", all lines."""
        if not name:
            return range(1, len(self.lines) + 1)
        node = self.definitions[name]
        decorators = getattr(node, "decorator_list", [])
        first = min(part.lineno for part in [node, *decorators])
        while first > 1 and self.lines[first - 2].lstrip().startswith("#"):
            first -= 1
        return range(first, node.end_lineno + 1)

    def marks(self, name: str = "") -> dict[str, tuple[int, int]]:
        """Return where a definition names each label best, and in which line.

        Best is 0, a comment above a line; then 1, behind one; then 2, a string.
        """
        lines = self.lines_of(name)
        best = {}
        for line, text in self.prose:
            if line not in lines:
                continue
            is_comment = text.startswith("#")
            is_above = self.lines[line - 1].lstrip().startswith("#")
            kind = 2 if not is_comment else int(not is_above)
            for label in marks(text):
                best[label] = min(best.get(label, (kind, line)), (kind, line))
        return best


class Block(NamedTuple):
    """What one row of a page shows: a function, a class without them, or what is between two."""

    name: str  # dotted; or ""
    docstring: str
    lines: list[int]  # all that it covers
    # Numbered, without the docstring. It is empty for a heading, whose words are the docstring.
    code: list[tuple[int, str]]


def blocks(source: Source) -> list[Block]:
    """Cut a file at classes, at functions that stand in no other one, and at headings."""
    owner = {}  # line -> dotted name, or heading
    docstrings = {}  # line -> the docstring that it is part of
    for name, node in {"": source.tree, **source.definitions}.items():
        outer = source.definitions.get(name.rpartition(".")[0])
        if not isinstance(node, (ast.Module, *DEFINITION)) or isinstance(outer, ast.FunctionDef):
            continue
        owner |= dict.fromkeys(source.lines_of(name), name)
        docstring = ast.get_docstring(node)
        if docstring:
            lines = range(node.body[0].lineno, node.body[0].end_lineno + 1)
            docstrings |= dict.fromkeys(lines, docstring)
    text = "\n".join(source.lines)
    for match in re.finditer(r"(?<=\n\n)# .*(?=\n\n)", text):
        owner[text.count("\n", 0, match.start()) + 1] = match[0]

    found, names = [], set()
    for name, group in groupby(owner, owner.get):
        lines = [*group]
        if name.startswith("# "):
            found.append(Block("", name[2:], lines, []))
            continue
        code = [(line, source.lines[line - 1]) for line in lines if line not in docstrings]
        filled = [place for place, (_, line) in enumerate(code) if line.strip()]
        if filled:
            docstring = next((docstrings[line] for line in lines if line in docstrings), "")
            code = code[filled[0] : filled[-1] + 1]
            found.append(Block("" if name in names else name, docstring, lines, code))
            names.add(name)
    return found


def short_name(dotted: str) -> str:
    """A definition's name without its class; that of a `forward` is its class's, too."""
    name = dotted.rpartition(".")[2]
    return dotted if name == "forward" else name


def asserts(test: ast.AST) -> bool:
    """Tell whether a test runs and asserts.

    It has an `assert` of more than a constant, a call of assert_..., or pytest.raises or warns.
    """
    decorators = [ast.unparse(decorator) for decorator in test.decorator_list]
    if any(re.search(r"mark\.(skip|xfail)\b", decorator) for decorator in decorators):
        return False
    for node in ast.walk(test):
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            return True
        if isinstance(node, ast.Call):
            if re.search(r"assert|\b(raises|warns)$", ast.unparse(node.func)):
                return True
    return False


class Row(NamedTuple):
    """A formula of the table of equations."""

    line: int  # of PAPER.md
    labels: list[str]  # in the order of the paper
    formula: str
    says: str  # what it is for, in our words
    places: list[tuple[str, str]]  # file, dotted name; without those in one.py
    in_one: list[str]  # dotted names in one.py
    tests: list[str]


def rows(line: int, row: list[str]) -> list[Row]:
    """Return the formulas of a row: of "Eq. 6-8" with three between semicolons, each by itself."""
    text = " | ".join(row)
    labels = in_order(marks(row[0]))
    formula, says = [*row[1:3], "", ""][:2]
    found = PLACE.findall(text)
    places = [place for place in found if place[0] != "one.py"]
    in_one = [name for file, name in found if file == "one.py"]
    tests = TEST.findall(text)
    formulas = formula.split("; ")
    if len(formulas) != len(labels):
        return [Row(line, labels, formula, says, places, in_one, tests)]
    return [
        Row(line, [label], part, says, places, in_one, tests)
        for label, part in zip(labels, formulas, strict=True)
    ]


class Package:
    """One package folder as it stands there."""

    def __init__(self, folder: Path):
        self.text = (folder / "PAPER.md").read_text(encoding="utf-8")
        self.code = {}  # file -> source
        self.tests = {}  # name of a test -> source, dotted name
        for path in sorted(folder.rglob("*.py")):
            source = Source(path)
            if not path.is_relative_to(folder / "tests"):
                self.code[path.relative_to(folder).as_posix()] = source
                continue
            for dotted in source.definitions:
                name = dotted.rpartition(".")[2]
                if name.startswith("test_"):
                    self.tests[name] = source, dotted
        self.equations = []
        for line, row in self.table("Equations"):
            self.equations += rows(line, row)
        self.deviations = self.table("Deviations")  # line; label, paper, here, why
        self.known = {row[0] for _, row in self.deviations}
        for row in self.equations:
            self.known.update(row.labels)
        self.proofs = {}  # test that asserts -> the known labels in its name or its text
        for name, (source, dotted) in self.tests.items():
            proved = (source.marks(dotted).keys() | marks_of_name(name)) & self.known
            if proved and asserts(source.definitions[dotted]):
                self.proofs[name] = proved

    def table(self, title: str) -> list[tuple[int, list[str]]]:
        """Return line and cells of each row of the table below a heading, without its head."""
        lines = [each for each in chapter(self.text, title) if each[1].startswith("|")]
        return [(number, cells(line)) for number, line in lines[2:]]

    def files(self, order: list[str]) -> list[str]:
        """Return the core's files in this order, folders unfolded; then the others with a mark."""
        core = [file for file in self.code if not file.startswith("experiments/")]
        found = []
        for name in order:
            folder = name.rstrip("/") + "/"
            found += [file for file in core if file == name or file.startswith(folder)]
        found += [file for file, source in self.code.items() if source.marks().keys() & self.known]
        left_out = ("one.py", "lesson.py", "__init__.py")
        return [file for file in dict.fromkeys(found) if file not in left_out]

    def home_in_one(self, row: Row, label: str) -> tuple[str, int]:
        """Return where one.py has a row's label.

        It is in what the row names there, or in what has the name that stands in the row; anywhere,
        if no other row has this label.
        """
        names = [*self.code["one.py"].definitions]
        called = [short_name(name) for _, name in row.places]
        alike = [name for name in names if short_name(name) in called]
        is_only = sum(label in other.labels for other in self.equations) == 1
        for chosen in (row.in_one, alike, names if is_only else []):
            file, line = self.home(label, [("one.py", name) for name in chosen])
            if line:
                return file, line
        return "", 0

    def home(self, label: str, places: list[tuple[str, str]]) -> tuple[str, int]:
        """Return file and line of a mark: above a line first, then in the first of these places.

        Without one: ("", 0).
        """
        found = []
        for rank, (file, name) in enumerate(places):
            source = self.code.get(file)
            if source and (not name or name in source.definitions):
                marked = source.marks(name)
                if label in marked:
                    kind, line = marked[label]
                    found.append((kind, rank, line, file))
        *_, line, file = min(found, default=(0, ""))
        return file, line
