"""What PAPER.md, the code and the tests of a package say, read once. README.md here has the form of a PAPER.md."""

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import NamedTuple

NUMBER = r"[A-Z]?\d+[a-z]?"
GROUP = rf"\(\s*{NUMBER}(?:\s*[-–,]\s*{NUMBER})*\s*\)"  # (4), (4-6) or (6, 7), but not the shape (B, 2)
EQUATIONS = re.compile(rf"\bEqs?\.\s*({GROUP}(?:(?:\s*[-–,]\s*|\s+(?:and|to)\s+){GROUP})*|{NUMBER}(?:[-–]\d+)?)")
ALGORITHM = re.compile(r"\bAlgorithm\s+(\d+)")
DEVIATION = re.compile(r"\bD(\d+)\b")
SECTION = re.compile(r"\bSection\s+(\d+(?:\.\d+)*)")
TEST_SECTION = re.compile(r"_section((?:_\d+)+)(?=_|$)")
TEST_NUMBER = re.compile(r"_(eq|algorithm|d)(\d+[a-z]?)(?=_|$)")
PLACE = re.compile(r"`([\w/]+\.py):([\w.]+)`")
TEST = re.compile(r"`(?:[\w/]+\.py::?)?(test_\w+)`")
DEFINITION = (ast.FunctionDef, ast.ClassDef)
UNBROKEN = re.compile(r"`[^`]*`|\$[^$]*\$|\\\|")  # a `|` in code, in a formula or after a backslash parts no cells


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


def deviations(text: str) -> set[str]:
    """Return the deviations that a text names, "D3"."""
    return {f"D{number}" for number in DEVIATION.findall(text)}


def marks(text: str) -> set[str]:
    """Return all of these that a text names."""
    return labels(text) | sections(text) | deviations(text)


def in_order(names: set[str]) -> list[str]:
    """Return labels in the order of their numbers."""
    return sorted(names, key=lambda label: ([int(number) for number in re.findall(r"\d+", label)], label))


def labels_of_name(name: str) -> set[str]:
    """Return what a test's name says it tests: `test_eq4_eq5_gate` is Eq. 4 and Eq. 5."""
    kinds = {"eq": "Eq. ", "algorithm": "Algorithm ", "d": "D"}
    return {kinds[kind] + number for kind, number in TEST_NUMBER.findall(name)}


def cells(line: str) -> list[str]:
    """Return the cells of a table's line."""
    kept = []
    masked = UNBROKEN.sub(lambda match: kept.append(match[0]) or f"\0{len(kept) - 1}\0", line)
    parts = [cell.strip() for cell in masked.strip().strip("|").split("|")]
    return [re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])].replace(r"\|", "|"), part) for part in parts]


class Source:
    """One Python file: its comments and strings by line, and its definitions by dotted name."""

    def __init__(self, path: Path):
        text = path.read_text(encoding="utf-8")
        self.path, self.lines, self.tree = path, text.splitlines(), ast.parse(text)
        kinds, tokens = (tokenize.COMMENT, tokenize.STRING), tokenize.generate_tokens(io.StringIO(text).readline)
        self.prose = [(token.start[0], token.string) for token in tokens if token.type in kinds]
        self.definitions = {}  # dotted name -> node
        self._collect(self.tree, "")

    def _collect(self, parent: ast.AST, prefix: str) -> None:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, DEFINITION):
                self.definitions[prefix + node.name] = node
                self._collect(node, f"{prefix}{node.name}.")
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                for target in getattr(node, "targets", None) or [node.target]:
                    if isinstance(target, ast.Name):
                        self.definitions[prefix + target.id] = node

    def lines_of(self, name: str) -> range:
        """Return the lines of a definition, its decorators and the comment block just above it included."""
        node = self.definitions[name]
        first = min([node.lineno] + [decorator.lineno for decorator in getattr(node, "decorator_list", [])])
        while first > 1 and self.lines[first - 2].lstrip().startswith("#"):
            first -= 1
        return range(first, node.end_lineno + 1)

    def prose_of(self, name: str) -> str:
        """Return the comments and strings of a definition as one text."""
        lines = self.lines_of(name)
        return "\n".join(text for line, text in self.prose if line in lines)

    def find(self, label: str, name: str = "") -> list[tuple[int, int]]:
        """Return where a definition, or the whole file, has a mark: 0 above, 1 behind a line, 2 in a string; line."""
        lines, found = self.lines_of(name) if name else range(1, len(self.lines) + 1), []
        for line, text in self.prose:
            if line in lines and label in marks(text):
                is_above = self.lines[line - 1].lstrip().startswith("#")
                found.append((2 if text[0] != "#" else 0 if is_above else 1, line))
        return sorted(found)


class Block(NamedTuple):
    """What stands in one row of a page: a function, the head of a class, or the lines between two of them."""

    name: str  # dotted; or ""
    docstring: str
    lines: range  # all that it covers
    code: list[tuple[int, str]]  # numbered, without the docstring; empty: a heading, which `docstring` is then


def blocks(source: Source) -> list[Block]:
    """Cut a file at its classes, at functions that stand in no other one, and at comments that are headings."""
    starts, docstrings, headings = {1: ""}, {}, {}
    for name, node in {"": source.tree, **source.definitions}.items():
        if isinstance(node, (ast.Module, *DEFINITION)) and ast.get_docstring(node):
            docstrings[name] = range(node.body[0].lineno, node.body[0].end_lineno + 1)
        outer = source.definitions.get(name.rpartition(".")[0])
        if isinstance(node, DEFINITION) and not isinstance(outer, ast.FunctionDef):
            lines = source.lines_of(name)
            starts |= {lines[0]: name, lines[-1] + 1: starts.get(lines[-1] + 1, "")}
    for number in range(2, len(source.lines)):
        before, line, after = source.lines[number - 2 : number + 1]
        if line.startswith("# ") and not before.strip() and not after.strip():
            headings[number] = line[2:]
            starts |= {number: "", number + 1: starts.get(number + 1, "")}
    found, bounds = [], [*sorted(starts), len(source.lines) + 1]
    for first, end in zip(bounds, bounds[1:], strict=False):
        name = starts[first]
        hidden = docstrings.get(name, ()) if name or first == 1 else ()
        code = [(n, source.lines[n - 1]) for n in range(first, end) if n not in hidden]
        filled = [place for place, (_, line) in enumerate(code) if line.strip()]
        code = code[filled[0] : filled[-1] + 1] if filled and first not in headings else []
        said = headings.get(first) or (ast.get_docstring(source.definitions.get(name, source.tree)) if hidden else "")
        if code or said:
            found.append(Block(name, said, range(first, end), code))
    return found


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


class Row(NamedTuple):
    """A formula of the table of equations."""

    line: int  # of PAPER.md
    labels: list[str]  # in the order of the paper
    formula: str
    says: str  # what the paper says there
    places: list[tuple[str, str]]  # file, dotted name
    tests: list[str]


class Deviation(NamedTuple):
    """A row of the table of deviations."""

    line: int
    label: str
    cells: list[str]  # paper, here, why
    has_code: bool


class Package:
    """One package folder as it stands there."""

    def __init__(self, folder: Path):
        self.folder, self.page = folder, folder / "PAPER.md"
        self.code, self.tests = {}, {}  # file -> source; name of a test -> (source, dotted name)
        for path in sorted(folder.rglob("*.py")):
            source = Source(path)
            if path.is_relative_to(folder / "tests"):
                names = [name for name in source.definitions if name.split(".")[-1].startswith("test_")]
                self.tests |= {name.split(".")[-1]: (source, name) for name in names}
            else:
                self.code[path.relative_to(folder).as_posix()] = source
        self.equations = [row for line, row in self.table("Equations") for row in self.rows(line, row)]
        self.deviations = []
        for line, (label, *rest) in self.table("Deviations"):
            self.deviations.append(Deviation(line, label, rest, "(no code)" not in " ".join(rest)))

    def section(self, title: str) -> list[tuple[int, str]]:
        """Return the numbered lines of PAPER.md from one heading on; empty without it."""
        lines = [*enumerate(self.page.read_text(encoding="utf-8").splitlines(), start=1)]
        heads = [place for place, (_, line) in enumerate(lines) if line.startswith("## ")]
        first = next((place for place in heads if lines[place][1] == f"## {title}"), len(lines))
        return lines[first : min((place for place in heads if place > first), default=len(lines))]

    def table(self, title: str) -> list[tuple[int, list[str]]]:
        """Return line and cells of each row of the table below a heading, without its head and rule."""
        return [(number, cells(line)) for number, line in self.section(title) if line.startswith("|")][2:]

    def rows(self, line: int, row: list[str]) -> list[Row]:
        """Return the formulas of a row: where "Eq. 6-8" has three of them between semicolons, each by itself."""
        text, names = " | ".join(row), in_order(labels(row[0]) | sections(row[0]))
        formula, says = [*row[1:3], "", ""][:2]
        places, tests, parts = PLACE.findall(text), TEST.findall(text), formula.split("; ")
        if len(parts) != len(names):
            return [Row(line, names, formula, says, places, tests)]
        return [Row(line, [name], part, says, places, tests) for name, part in zip(names, parts, strict=True)]

    def files(self, order: list[str]) -> list[str]:
        """Return the core's files in this order, folders unfolded, then those that a mark leads to."""
        whole = [
            file for name in order for file in self.code if file == name or name[-1] == "/" and file.startswith(name)
        ]
        led = [file for row in self.equations for file, _ in row.places if file in self.code]
        for deviation in self.deviations:
            led += [file for file, source in self.code.items() if source.find(deviation.label)]
        found = [file for file in whole if not file.startswith("experiments/")] + led
        return [file for file in dict.fromkeys(found) if file not in ("one.py", "lesson.py", "__init__.py")]

    def home(self, label: str, places: list[tuple[str, str]]) -> tuple[str, int]:
        """Return file and line of a mark: best a comment above a line, then behind it, then a string; or ("", 0)."""
        found = []
        for rank, (file, name) in enumerate(places):
            if file in self.code and name in ("", *self.code[file].definitions):
                found += [(kind, rank, line, file) for kind, line in self.code[file].find(label, name)]
        *_, line, file = min(found, default=(0, ""))
        return file, line

    def is_tested(self, label: str, test: str) -> bool:
        """Tell whether this test exists, asserts and has the label in its name or its text."""
        if test not in self.tests:
            return False
        source, name = self.tests[test]
        numbers = {f"Section {number[1:].replace('_', '.')}" for number in TEST_SECTION.findall(name)}
        here = marks(source.prose_of(name)) | labels_of_name(name) | numbers
        return label in here and asserts(source.definitions[name])

    def proofs(self) -> dict[str, set[str]]:
        """Return the labels that each test proves, in the order of PAPER.md's equations, then of its deviations."""
        found = {name: set() for row in self.equations for name in row.tests if name in self.tests}
        for row in self.equations:
            for name in found.keys() & row.tests:
                found[name] |= set(row.labels)
        for deviation in self.deviations:
            for name in self.tests:
                if self.is_tested(deviation.label, name):
                    found.setdefault(name, set()).add(deviation.label)
        return found
