"""One package's pages: one.py beside its formulas, then all else folded, and its lesson.

A page works without scripts; those it has move a picture that is there without them. Its words are
those of README.md, PAPER.md, lesson.ipynb, the docstrings and the comments with a mark (`Eq. (7)`,
`Algorithm 1`, `Section 4.1`, `D3`).
"""

import ast
import json
import re
import zlib
from html import escape
from pathlib import Path

import document
import notebook
import proof
from heat import heat
from markup import Markup, anchor, fold, plain, slug
from paper import Package, Row, blocks, chapter, in_order

SHAPE = r"\((?:[A-Z]|\.\.\.)(?:,|(?:, (?:[A-Z]|\d+))+)\)"  # (B, T, D), (N,)


class Page:
    """One package's page; `problems` says what is wrong with it."""

    def __init__(self, folder: Path, out: Path):
        self.folder, self.out, self.package = folder, out, Package(folder)
        self.readme = (folder / "README.md").read_text(encoding="utf-8")
        self.markup = Markup(
            [cells for _, cells in self.package.table("Glossary")], self.package.known
        )
        order = self.readme.partition("Read in this order")[2].partition("\n## ")[0]
        order = re.findall(r"`([\w/]+(?:\.py|/))`", order)
        self.problems = self.markup.problems
        self.problems += [] if order else ['README.md: no `file.py` after "Read in this order"']
        self.problems += [
            f"README.md: there is no {name} to read"
            for name in order
            if not (folder / name).exists()
        ]
        self.problems += proof.problems(self.package)
        self.files = self.package.files(order)
        self.used = set()  # ids
        self.lesson, self.learned = notebook.read(folder / "lesson.ipynb")

    def text(self, markdown: str, below: int = 0) -> str:
        """Markdown of the package's folder as HTML; its pictures are copied."""

        def copy(match: re.Match) -> str:
            return f"]({self.picture((self.folder / match[1]).read_bytes())})"

        return self.markup.text(re.sub(r"\]\(([\w/.-]+\.png)\)", copy, markdown), below)

    def chapter(self, title: str, text: str) -> str:
        """A chapter of README.md or PAPER.md as HTML."""
        return self.text("\n".join(line for _, line in chapter(text, title)), below=1)

    def picture(self, data: bytes) -> str:
        """Write a picture beside the page and return its name."""
        name = f"{self.folder.name}-{zlib.crc32(data):08x}.png"
        (self.out / name).write_bytes(data)
        return name

    def own_id(self, label: str) -> str:
        """The attribute id="..." of a label where it stands first: several rows may have the same
        section.
        """
        is_new = label not in self.used
        self.used.add(label)
        return f' id="{slug(label)}"' if is_new else ""

    def seen(self) -> tuple[str, str]:
        """What the network learns: tables of numbers with a slider or a tree where a script runs;
        and others.
        """
        tree = next((table for table in self.learned if "tree" in table), None)
        moving = (
            self.learned
            if tree
            else [table for table in self.learned if "beside" in table] or self.learned
        )
        most = max(
            (number for table in moving for line in table["values"] for number in line), default=0
        )
        data = (
            f' data-tree="{escape(json.dumps({"tree": tree["tree"], "texts": tree["rows"]}))}"'
            if tree
            else ""
        )
        first = "".join(heat(**table, most=most) for table in moving)
        rest = "".join(heat(**table) for table in self.learned if table not in moving)
        return (
            f'<div class="learn"{data}>{first}</div>',
            f'<div class="learn">{rest}</div>' if rest else "",
        )

    def tests_of(self, names: list[str]) -> str:
        words = {name: f"<code>{name.replace('_', '_<wbr>')}</code>" for name in names}
        links = [
            anchor(name, word) if name in self.package.proofs else word
            for name, word in words.items()
        ]
        return f"<small>test: {', '.join(links)}</small>" if links else ""

    def formula(self, row: Row, has_words: bool) -> str:
        """A formula and, of "Eq. 6-8" with the first one, what it is for, in our words and its
        tests.
        """
        first, *rest = row.labels
        more = "".join(f"<span{self.own_id(label)}></span>" for label in rest)
        name = f"{first}-{rest[-1].split()[-1]}" if rest else first
        maths = f'<div class="maths"><b>{name}</b> {self.markup.inline(row.formula)}</div>'
        if has_words:
            maths += f"<p>{self.markup.inline(row.says)}</p>{self.tests_of(row.tests)}"
        return f'<div class="formula"{self.own_id(first)}>{more}{maths}</div>'

    def difference(self, label: str, cells: list[str], kind: str) -> str:
        """A fold: what the paper says, if it does, and what stands here; in it why, and the tests
        of it.
        """
        paper, here, why = (
            self.markup.inline(cell.replace("(no code)", "")) for cell in [*cells, "", ""][:3]
        )
        says = "" if paper in ("-", "not said") else f"Paper: {paper}. "
        tests = self.tests_of(
            [name for name, labels in self.package.proofs.items() if label in labels]
        )
        title = f"<b>{label}.</b> {says}<b>Here:</b> {here}"
        return fold(title, f"<p><b>Why:</b> {why}</p>{tests}", kind, self.own_id(label))

    def notes(self, file: str) -> list[tuple[int, str, str]]:
        """Line, label and HTML of what stands left of a file's lines; one.py has all formulas that
        it marks.
        """
        found, told, is_one = [], set(), file == "one.py"
        for row in self.package.equations:
            homes = [
                self.package.home_in_one(row, label)
                if is_one
                else self.package.home(label, row.places)
                for label in row.labels
            ]
            lines = [line for home, line in homes if home == file]
            if lines:
                found.append((min(lines), row.labels[0], self.formula(row, row.line not in told)))
                told.add(row.line)
        for _, (label, *cells) in [] if is_one else self.package.deviations:
            home, line = self.package.home(label, [(name, "") for name in self.files])
            if home == file:
                found.append((line, label, self.difference(label, cells, "note")))
        # of a line, the formula first
        return sorted(found, key=lambda note: (note[0], note[1][0] == "D"))

    def code_of(self, file: str) -> str:
        """A file: each function whole and, left of it, its docstring and its notes in the order of
        their lines.
        """
        notes, made = self.notes(file), ""
        for block in blocks(self.package.code[file]):
            if not block.code:
                made += f'<h4 class="part">{self.markup.inline(plain(block.docstring))}</h4>'
                continue
            own = [note for note in notes if note[0] in block.lines]
            left = f'<h4 class="name"><code>{block.name}</code></h4>' if block.name else ""
            left += self.flow(file, block.name) + self.markup.docstring(block.docstring)
            left += "".join(note for _, _, note in own)
            right = self.markup.code(
                block.code, file, {line: label for line, label, _ in reversed(own)}
            )
            made += f'<div class="row"><div class="left">{left}</div>{right}</div>'
        return made

    def flow(self, file: str, name: str) -> str:
        """How a module's tensors follow from each other: the names and shapes in the comments of
        its `forward`.
        """
        source, found = self.package.code[file], []
        if f"{name}.forward" in source.definitions and "Module" in ast.unparse(
            source.definitions[name]
        ):
            for number in source.lines_of(f"{name}.forward"):
                line = re.sub(r"def forward\(self, (\w+).*\):", r"\1 =", source.lines[number - 1])
                found += [
                    " ".join(part) for part in re.findall(rf"^ +(\w+) = .*# .*?({SHAPE})", line)
                ]
        return f'<p class="flow"><code>{" → ".join(found)}</code></p>' if len(found) > 1 else ""

    def code(self) -> str:
        """All files in the order of reading, folded."""
        made = ""
        for file in self.files:
            name = (
                f'<h3 id="{file}"><code>{file}</code></h3> '
                f"<small>{len(self.package.code[file].lines)} lines</small>"
            )
            made += f'<details class="file"><summary>{name}</summary>{self.code_of(file)}</details>'
        return made

    def tests(self) -> str:
        """The tests that prove an equation or a deviation, folded."""
        made = ""
        for name, labels in self.package.proofs.items():
            source, dotted = self.package.tests[name]
            code = self.markup.code(
                [(line, source.lines[line - 1]) for line in source.lines_of(dotted)]
            )
            words = f"<p>proves {', '.join(anchor(label) for label in in_order(labels))}</p>"
            title = f"<code>{name}</code> <small>{source.path.name}</small>"
            made += fold(title, words + code, "test", self.own_id(name))
        return fold(f"{len(self.package.proofs)} tests, each with what it proves", made, "tests")

    def write(self) -> None:
        """Write the page and the lesson's."""
        name, paper, one = self.folder.name, self.package.text, self.package.code.get("one.py")
        first, more_seen = self.seen()
        parts = {"The idea": self.chapter("The idea", self.readme) + more_seen}
        parts["Symbols"] = self.chapter("Glossary", paper)
        parts |= {"The paper's method in one file": self.code_of("one.py")} if one else {}
        parts["What was reproduced"] = self.chapter("What was reproduced", self.readme)
        differs = [
            self.difference(label, cells, "plain") for _, (label, *cells) in self.package.deviations
        ]
        parts |= {
            "What differs from the paper": "".join(differs),
            "Limits": self.chapter("Limits", paper),
        }
        parts |= {"The package, file by file": self.code(), "The tests": self.tests()}
        labels = dict.fromkeys(label for row in self.package.equations for label in row.labels)
        marks = [*map(anchor, labels), *(f'<a href="#{file}">{file}</a>' for file in self.files)]
        # it is alive here
        head = re.sub(r"!\[[^]]*\]\(learn\.png\)\n", "", self.readme.partition("\n## ")[0])
        head = self.text(head).replace("</h1>", f"</h1>{first}", 1)
        document.write(
            self.out / f"{name}.html",
            name,
            document.parts(head, parts, marks, f"{name}-lesson.html"),
        )
        lesson = notebook.lesson(self.lesson, self.markup, self.picture, f"{name}.html")
        nav = document.nav({f"{name}.html": name})
        document.write(
            self.out / f"{name}-lesson.html", f"{name}: the lesson", f"{nav}<main>{lesson}</main>"
        )
