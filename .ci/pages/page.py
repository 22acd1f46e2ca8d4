"""One package's pages: one.py beside its formulas, then all else folded, and its lesson.

A page works without scripts; those it has move a picture that is there without them. Its words are
those of README.md, PAPER.md, lesson.ipynb, the docstrings and the comments with a mark (`Eq. (7)`,
`Algorithm 1`, `Section 4.1`, `D3`).
"""

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

AFTER_ONE = """<p><b>This was the whole method.</b> Below stand what was reproduced and what differs
from the paper. Then follows, folded, the package: the same mathematics for real data and trained
models, in several files. Open one of them when you want to use or change it.</p>"""


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
        if not order:
            self.problems.append('README.md: no `file.py` after "Read in this order"')
        for name in order:
            if not (folder / name).exists():
                self.problems.append(f"README.md: there is no {name} to read")
        self.problems += proof.problems(self.package)
        self.files = self.package.files(order)
        self.used = set()  # ids
        self.lesson, self.learned = notebook.read(folder / "lesson.ipynb")

    def text(self, markdown: str, below: int = 0) -> str:
        """Markdown of the package's folder as HTML; its pictures are copied."""

        def copy(match: re.Match) -> str:
            path = self.folder / match[1]
            if not path.exists():
                self.problems.append(f"there is no {match[1]} to show")
                return ""
            return f"]({self.picture(path.read_bytes())})"

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
        """The attribute id="..." of a label where it stands first, as rows may share a section."""
        is_new = label not in self.used
        self.used.add(label)
        return f' id="{slug(label)}"' if is_new else ""

    def seen(self) -> tuple[str, str]:
        """What the network learns: the tables with a slider or a tree (a script's); the others."""
        moving = [table for table in self.learned if "beside" in table] or self.learned
        data = ""
        for table in self.learned:
            if "tree" in table:
                moving = self.learned
                given = {"tree": table["tree"], "texts": table["rows"]}
                data = f' data-tree="{escape(json.dumps(given))}"'
        largest = [max(map(max, table["values"])) for table in moving]
        most = max(largest, default=0)
        first = "".join(heat(**table, most=most) for table in moving)
        rest = "".join(heat(**table) for table in self.learned if table not in moving)
        more = f'<div class="learn">{rest}</div>' if rest else ""
        return f'<div class="learn"{data}>{first}</div>', more

    def tests_of(self, names: list[str]) -> str:
        links = []
        for name in names:
            word = f"<code>{name.replace('_', '_<wbr>')}</code>"
            links.append(anchor(name, word) if name in self.package.proofs else word)
        return f"<small>test: {', '.join(links)}</small>" if links else ""

    def formula(self, row: Row, has_words: bool) -> str:
        """A formula and, of several in a row with the first one, what it is for, and its tests."""
        first, *rest = row.labels
        more = "".join(f"<span{self.own_id(label)}></span>" for label in rest)
        name = f"{first}-{rest[-1].split()[-1]}" if rest else first
        maths = f'<div class="maths"><b>{name}</b> {self.markup.inline(row.formula)}</div>'
        if has_words:
            maths += f"<p>{self.markup.inline(row.says)}</p>{self.tests_of(row.tests)}"
        return f'<div class="formula"{self.own_id(first)}>{more}{maths}</div>'

    def difference(self, label: str, cells: list[str], kind: str) -> str:
        """A fold: what the paper says, if it does, and what stands here; in it why, and tests."""
        cells = [self.markup.inline(cell.replace("(no code)", "")) for cell in cells]
        paper, here, why = [*cells, "", ""][:3]
        says = "" if paper in ("-", "not said") else f"Paper: {paper}. "
        names = [name for name, labels in self.package.proofs.items() if label in labels]
        title = f"<b>{label}.</b> {says}<b>Here:</b> {here}"
        body = f"<p><b>Why:</b> {why}</p>{self.tests_of(names)}"
        return fold(title, body, kind, self.own_id(label))

    def notes(self, file: str) -> list[tuple[int, str, str]]:
        """Line, label and HTML of what stands left of a file's lines, in their order."""
        is_one = file == "one.py"
        found, told = [], set()
        for row in self.package.equations:
            if is_one:
                homes = [self.package.home_in_one(row, label) for label in row.labels]
            else:
                homes = [self.package.home(label, row.places) for label in row.labels]
            lines = [line for home, line in homes if home == file]
            if lines:
                found.append((min(lines), row.labels[0], self.formula(row, row.line not in told)))
                told.add(row.line)
        if not is_one:
            for _, (label, *cells) in self.package.deviations:
                home, line = self.package.home(label, [(name, "") for name in self.files])
                if home == file:
                    found.append((line, label, self.difference(label, cells, "note")))
        # Of notes at one line the formula comes first.
        return sorted(found, key=lambda note: (note[0], note[1].startswith("D")))

    def code_of(self, file: str) -> str:
        """A file: each function whole and, left of it, its docstring and its notes."""
        notes, made = self.notes(file), ""
        for block in blocks(self.package.code[file]):
            if not block.code:
                made += f'<h4 class="part">{self.markup.inline(plain(block.docstring))}</h4>'
                continue
            own = [note for note in notes if note[0] in block.lines]
            left = f'<h4 class="name"><code>{block.name}</code></h4>' if block.name else ""
            left += self.markup.docstring(block.docstring)
            left += "".join(note for _, _, note in own)
            homes = {line: label for line, label, _ in reversed(own)}
            right = self.markup.code(block.code, file, homes)
            made += f'<div class="row"><div class="left">{left}</div>{right}</div>'
        return made

    def code(self) -> str:
        """All files in the order of reading, folded."""
        made = ""
        for file in self.files:
            name = f'<h3 id="{file}"><code>{file}</code></h3>'
            made += f'<details class="file"><summary>{name}</summary>{self.code_of(file)}</details>'
        return made

    def tests(self) -> str:
        """The tests that prove an equation or a deviation, folded."""
        made = ""
        for name, labels in self.package.proofs.items():
            source, dotted = self.package.tests[name]
            lines = [(line, source.lines[line - 1]) for line in source.lines_of(dotted)]
            code = self.markup.code(lines)
            words = f"<p>proves {', '.join(anchor(label) for label in in_order(labels))}</p>"
            title = f"<code>{name}</code> <small>{source.path.name}</small>"
            made += fold(title, words + code, "test", self.own_id(name))
        return fold(f"{len(self.package.proofs)} tests, each with what it proves", made, "tests")

    def write(self) -> None:
        """Write the page and the lesson's."""
        name, paper = self.folder.name, self.package.text
        first, more_seen = self.seen()
        one = self.code_of("one.py") + AFTER_ONE if "one.py" in self.package.code else ""
        differs = ""
        for _, (label, *cells) in self.package.deviations:
            differs += self.difference(label, cells, "plain")
        parts = {
            "The idea": self.chapter("The idea", self.readme) + more_seen,
            "Symbols": self.chapter("Glossary", paper),
            "The paper's method in one file": one,
            "What was reproduced": self.chapter("What was reproduced", self.readme),
            "What differs from the paper": differs,
            "Limits": self.chapter("Limits", paper),
            "The package, file by file": self.code(),
            "The tests": self.tests(),
        }
        marks = []
        for row in self.package.equations:
            marks += [anchor(label) for label in row.labels if anchor(label) not in marks]
        marks += [f'<a href="#{file}">{file}</a>' for file in self.files]
        # The picture is left out: it is alive here.
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
