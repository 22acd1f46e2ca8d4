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

    def first_line(self, name: str) -> int:
        """Return the first line of a definition, its decorators and the comment block just above it included."""
        node = self.definitions[name]
        first = min([node.lineno] + [decorator.lineno for decorator in getattr(node, "decorator_list", [])])
        while first > 1 and self.lines[first - 2].lstrip().startswith("#"):
            first -= 1
        return first

    def prose_in(self, name: str) -> list[tuple[int, str]]:
        """Return the comments and strings of a definition, each with its line."""
        lines = range(self.first_line(name), self.definitions[name].end_lineno + 1)
        return [(line, text) for line, text in self.prose if line in lines]

    def prose_of(self, name: str) -> str:
        """Return the comments and strings of a definition as one text."""
        return "\n".join(text for _, text in self.prose_in(name))


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
    """A row of the table of equations."""

    line: int  # of PAPER.md
    labels: list[str]  # in the order of the paper
    formula: str
    says: str | None  # what the paper says there; None: the table has no such column
    places: list[tuple[str, str]]  # file, dotted name
    tests: list[str]


class Deviation(NamedTuple):
    """A row of the table of deviations, or a line of their list."""

    line: int
    label: str
    cells: list[str]  # paper, here, why
    has_code: bool


class Segment(NamedTuple):
    """Some lines of code, and what the code says of them: a docstring, or a comment with a mark."""

    name: str  # of the definition that begins here, dotted; or ""
    docstring: str
    comment: str
    code: list[tuple[int, str]]  # numbered lines, without these two
    lines: range  # all that it covers
    is_heading: bool = False  # a comment between two definitions, with blank lines around


def segments(source: Source, known: set[str], is_excerpt: bool = False) -> list[Segment]:
    """Cut a file at each definition and each comment with a known mark; an excerpt has marked definitions alone."""
    tree, starts, hidden = ast.parse("\n".join(source.lines)), {}, set()
    for name, node in {"": tree, **source.definitions}.items():
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
            starts[source.first_line(name) if name else 1] = name, ast.get_docstring(node) or ""
            if name:
                starts.setdefault(node.end_lineno + 1, ("", ""))
            if ast.get_docstring(node) is not None:
                hidden |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    comments = [
        line for line, text in source.prose if source.lines[line - 1].lstrip().startswith("#") and text[0] == "#"
    ]
    block, headings = [], set()
    for line in comments:
        block = [*block, line] if block and line == block[-1] + 1 else [line]
        around = [source.lines[n - 1].strip() for n in (block[0] - 1, line + 1) if 0 < n <= len(source.lines)]
        is_heading = source.lines[line - 1][0] == "#" and not any(around) and len(block) < 3
        if line + 1 not in comments and (is_heading or marks("\n".join(source.lines[n - 1] for n in block)) & known):
            starts.setdefault(block[0], ("", ""))
            hidden |= set(block)
            if is_heading:
                headings.add(block[0])
                starts.setdefault(line + 1, ("", ""))
    shown = set(range(1, len(source.lines) + 1))
    if is_excerpt:
        tops = [name for name in source.definitions if "." not in name and marks(source.prose_of(name)) & known]
        shown = {n for name in tops for n in range(source.first_line(name), source.definitions[name].end_lineno + 1)}
    found, bounds = [], [*sorted(starts), len(source.lines) + 1]
    for first, end in zip(bounds, bounds[1:], strict=False):
        lines = [n for n in range(first, end) if n in shown]
        comment = " ".join(source.lines[n - 1].strip().lstrip("# ") for n in lines if n in hidden and n in comments)
        code = [(n, source.lines[n - 1]) for n in lines if n not in hidden]
        filled = [place for place, (_, line) in enumerate(code) if line.strip()]
        if filled or comment or first == 1:
            code = code[filled[0] : filled[-1] + 1] if filled else []
            found.append(Segment(*starts[first], comment, code, range(first, end), first in headings))
    return found


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

    def section(self, title: str) -> list[tuple[int, str]]:
        """Return the numbered lines of PAPER.md below one heading; empty without it."""
        lines = self.page.read_text(encoding="utf-8").splitlines() if self.page.is_file() else []
        inside, found = False, []
        for number, line in enumerate(lines, start=1):
            if line.startswith("## "):
                inside = line[3:].strip().lower() == title.lower()
                found += [(number, "")] if inside else []
            elif inside:
                found.append((number, line))
        return found

    def table(self, title: str) -> list[tuple[int, list[str]]]:
        """Return line and cells of each row of the table below a heading, its head first, its rule left out."""
        table = [(number, cells(line)) for number, line in self.section(title) if line.startswith("|")]
        return table[:1] + table[2:]

    def equations(self) -> list[Row]:
        """Return the table of equations, with or without the column "what the paper says there"."""
        (_, head), *rows = self.table("Equations") or [(0, [])]
        has_says, found = any("says" in cell for cell in head), []
        for line, row in rows:
            text, names = " | ".join(row[1:]), in_order(labels(row[0]) | sections(row[0]))
            formula, says = [*row[1:3], "", ""][:2]
            places, tests = PLACE.findall(text), TEST.findall(text)
            found.append(Row(line, names, formula, says if has_says else None, places, tests))
        return found

    def files(self, order: list[str]) -> dict[str, bool]:
        """Return the core's files in this order, folders unfolded: False; and those that only a mark leads to: True."""
        whole = [
            file for name in order for file in self.code if file == name or name[-1] == "/" and file.startswith(name)
        ]
        whole = [file for file in whole if not file.startswith("experiments/")]
        led = [file for row in self.equations() for file, _ in row.places if file in self.code]
        known = {deviation.label for deviation in self.deviations()}
        led += [file for file, source in self.code.items() if any(marks(text) & known for _, text in source.prose)]
        found = {file: file not in whole for file in [*whole, *led]}
        return {
            file: is_excerpt for file, is_excerpt in found.items() if file not in ("one.py", "lesson.py", "__init__.py")
        }

    def deviations(self) -> list[Deviation]:
        """Return the deviations, of a table or a list, in their order."""
        found = []
        for line, text in self.section("Deviations"):
            if label := re.match(r"[|*\-\s]*(D\d+)\b", text):
                rest = cells(text)[1:] if text.startswith("|") else [text[label.end() :].strip(" *:")]
                found.append(Deviation(line, label[1], rest, "(no code)" not in text))
        return found

    def is_tested(self, label: str, test: str) -> bool:
        """Tell whether this test exists, asserts and has the label in its name or its text."""
        if test not in self.tests:
            return False
        source, name = self.tests[test]
        numbers = {f"Section {number[1:].replace('_', '.')}" for number in TEST_SECTION.findall(name)}
        here = marks(source.prose_of(name)) | labels_of_name(name) | numbers
        return label in here and asserts(source.definitions[name])

    def formulas(self) -> list[Row]:
        """Return the rows of equations; where "Eq. 6-8" has three formulas between semicolons, each has its own row."""
        found = []
        for row in self.equations():
            parts = row.formula.split("; ")
            shares = [([label], part) for label, part in zip(row.labels, parts, strict=False)]
            shares = shares if len(parts) == len(row.labels) else [(row.labels, row.formula)]
            found += [row._replace(labels=names, formula=formula) for names, formula in shares]
        return found

    def proofs(self) -> dict[str, set[str]]:
        """Return the labels that each test proves, in the order of PAPER.md's equations, then of its deviations."""
        found = {}
        for row in self.equations():
            for name in row.tests:
                found.setdefault(name, set()).update(row.labels)
        for deviation in self.deviations():
            for name in self.tests:
                if self.is_tested(deviation.label, name):
                    found.setdefault(name, set()).add(deviation.label)
        return {name: labels for name, labels in found.items() if name in self.tests}
