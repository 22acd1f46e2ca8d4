"""One package's pages: one.py beside its formulas, then all else folded, and its lesson.

A page works without scripts; those it has move a picture that is there without them. Its words are those of README.md,
PAPER.md, lesson.ipynb, the docstrings and the comments with a mark (`Eq. (7)`, `Algorithm 1`, `Section 4.1`, `D3`).
"""

import ast
import json
import re
from pathlib import Path

import document
import notebook
import proof
from heat import heat
from markup import Markup, anchor, fold, plain, slug
from paper import Block, Deviation, Package, Row, blocks, in_order

SHAPE = r"\((?:[A-Z]|\.\.\.)(?:,|(?:, (?:[A-Z]|\d+))+)\)"  # (B, T, D), (N,)
Notes = dict[str, list[tuple[int, str, str]]]  # of a file: line, label, and what stands left of it


def chapter(text: str, title: str) -> str:
    """The Markdown below one `##` heading; empty without it."""
    return f"{text}\n## ".partition(f"\n## {title}\n")[2].partition("\n## ")[0]


class Page:
    """One package's page; `problems` says what is wrong with it."""

    def __init__(self, folder: Path, out: Path):
        self.folder, self.out, self.package = folder, out, Package(folder)
        self.readme, self.paper = ((folder / name).read_text(encoding="utf-8") for name in ("README.md", "PAPER.md"))
        self.deviations, self.rows = self.package.deviations, self.package.equations
        self.proofs = self.package.proofs()
        known = {label for row in self.rows for label in row.labels} | {d.label for d in self.deviations}
        self.markup = Markup([cells for _, cells in self.package.table("Glossary")], known)
        self.problems = self.markup.problems
        self.problems += proof.problems(self.package)
        order = re.findall(r"`([\w/]+(?:\.py|/))`", chapter(self.readme, "Read in this order"))
        gone = [name for name in order if not (folder / name).exists()]
        self.problems += [f"README.md: there is no {name} to read" for name in gone]
        self.files = self.package.files(order)
        self.used = set()  # ids, lines of PAPER.md

    def text(self, markdown: str, below: int = 1) -> str:
        """Markdown of the package's folder as HTML; its pictures are copied."""
        local = re.compile(r"\]\(([\w/.-]+\.png)\)")
        markdown = local.sub(lambda match: f"]({self.picture((self.folder / match[1]).read_bytes())})", markdown)
        return self.markup.text(markdown, below)

    def picture(self, data: bytes) -> str:
        """Write a picture beside the page, once, and return its name."""
        written = sorted(self.out.glob(f"{self.folder.name}-*.png"))
        new = f"{self.folder.name}-{len(written)}.png"
        name = next((path.name for path in written if path.read_bytes() == data), new)
        (self.out / name).write_bytes(data)
        return name

    def own_id(self, label: str) -> str:
        """The attribute id="..." of a label where it stands first: several rows may have the same section."""
        is_new = label not in self.used
        self.used.add(label)
        return f' id="{slug(label)}"' if is_new else ""

    def learned(self) -> tuple[str, str]:
        """What the network learns, seen: a table of numbers, with a slider or a tree where a script runs; and more."""
        tables = notebook.learned(self.folder / "lesson.ipynb")
        moving = [table for table in tables if {"beside", "tree"} & table.keys()] or tables
        most = max((number for table in moving for line in table["values"] for number in line), default=0)
        first = "".join(heat(**table, most=most) for table in moving)
        rest = "".join(heat(**table) for table in tables if table not in moving)
        if tables and "tree" in tables[0]:
            tree = {"tree": tables[0]["tree"], "texts": tables[0]["rows"]}
            data = json.dumps(tree, ensure_ascii=False).replace("</", "<\\/")
            made = f'<script type="application/json">{data}</script>{first}{rest}'
            return f'<div class="learn" data-tree>{made}</div>', ""
        return f'<div class="learn">{first}</div>' if first else "", f'<div class="learn">{rest}</div>' if rest else ""

    def tests_of(self, names: list[str]) -> str:
        links = [anchor(name, f"<code>{name}</code>") for name in names if name in self.proofs]
        return f"<small>test: {', '.join(links)}</small>" if links else ""

    def formula(self, row: Row) -> str:
        """A formula, what the paper says there, and its tests."""
        first, *rest = row.labels
        more = "".join(f"<span{self.own_id(label)}></span>" for label in rest)
        name = f"{first}-{rest[-1].split()[-1]}" if rest else first
        says = f"<p>{self.markup.inline(row.says)}</p>" if row.line not in self.used else ""
        tests = self.tests_of(row.tests) if row.line not in self.used else ""
        self.used.add(row.line)  # of "Eq. 6-8", the first formula has the words
        maths = f'<div class="maths"><b>{name}</b> {self.markup.inline(row.formula)}</div>'
        return f'<div class="formula"{self.own_id(first)}>{more}{maths}{says}{tests}</div>'

    def difference(self, deviation: Deviation, kind: str) -> str:
        """A fold: what stands here; in it what the paper has, why, and the tests of it."""
        paper, here, why = (self.markup.inline(cell) for cell in [*deviation.cells, "", "", ""][:3])
        tests = self.tests_of([name for name, labels in self.proofs.items() if deviation.label in labels])
        words = f"<p><b>Paper:</b> {paper}</p><p><b>Why:</b> {why}</p>{tests}"
        name = "" if deviation.label in self.used else slug(deviation.label)
        self.used.add(deviation.label)
        return fold(f"<b>{deviation.label}. Here:</b> {here}", words, kind, name)

    def notes_of_one(self) -> Notes:
        """The formulas of one.py, each at a comment with its mark, or else at a docstring."""
        source, found = self.package.code["one.py"], []
        for row in self.rows:
            places = [("one.py", name) for name in source.definitions]
            lines = [line for label in row.labels if (line := self.package.home(label, places)[1])]
            found += [(min(lines), row.labels[0], row)] if lines else []
        return {"one.py": [(line, label, self.formula(row)) for line, label, row in sorted(found)]}

    def notes(self) -> Notes:
        """The formulas and deviations of all files but one.py."""
        found = {file: [] for file in self.files}
        for row in self.rows:
            file, line = min(self.package.home(label, row.places) for label in row.labels)
            if file:  # or else proof.py says so
                found[file].append((line, row.labels[0], self.formula(row)))
        for deviation in self.deviations:
            file, line = self.package.home(deviation.label, [(file, "") for file in self.files])
            if file:
                found[file].append((line, deviation.label, self.difference(deviation, "note")))
        return found

    def code_of(self, file: str, notes: Notes) -> str:
        """A file: a row for each block."""
        return "".join(self.row(file, block, notes[file]) for block in blocks(self.package.code[file]))

    def row(self, file: str, block: Block, notes: list[tuple[int, str, str]]) -> str:
        """A function whole and, left of it, its docstring and its notes in the order of their lines."""
        if not block.code:
            return f'<h4 class="part">{self.markup.inline(plain(block.docstring))}</h4>'
        own = sorted((note for note in notes if note[0] in block.lines), key=lambda note: note[0])
        left = f'<h4 class="name"><code>{block.name}</code></h4>' if block.name else ""
        left += self.flow(file, block.name) + self.markup.docstring(block.docstring)
        left += "".join(note for _, _, note in own)
        right = self.markup.code(block.code, file, {line: label for line, label, _ in reversed(own)})
        return f'<div class="row"><div class="left">{left}</div>{right}</div>'

    def flow(self, file: str, name: str) -> str:
        """How a module's tensors follow from each other: the names and shapes in the comments of its `forward`."""
        source = self.package.code[file]
        node, found = source.definitions.get(name), []
        if isinstance(node, ast.ClassDef) and "Module" in ast.unparse(node) and f"{name}.forward" in source.definitions:
            for number in source.lines_of(f"{name}.forward"):
                line = re.sub(r"def forward\(self, (\w+).*\):", r"\1 =", source.lines[number - 1])
                if named := re.match(rf" +(\w+) = .*# .*?({SHAPE})", line):
                    found.append(" ".join(named.groups()))
        return f'<p class="flow"><code>{" → ".join(found)}</code></p>' if len(found) > 1 else ""

    def code(self) -> str:
        """The glossary, whose colours the code has, then all files in the order of reading, folded."""
        made, notes = self.text(chapter(self.paper, "Glossary")), self.notes()
        for file in self.files:
            name = f'<h3 id="{file}"><code>{file}</code></h3> <small>{len(self.package.code[file].lines)} lines</small>'
            made += f'<details class="file"><summary>{name}</summary>{self.code_of(file, notes)}</details>'
        return made

    def tests(self) -> str:
        """The tests that prove an equation or a deviation, folded."""
        made = ""
        for name, labels in self.proofs.items():
            source, dotted = self.package.tests[name]
            code = self.markup.code([(line, source.lines[line - 1]) for line in source.lines_of(dotted)])
            words = f"<p>proves {', '.join(anchor(label) for label in in_order(labels))}</p>"
            place = f"{source.path.relative_to(self.folder).as_posix()}:{source.lines_of(dotted)[0]}"
            made += fold(f"<code>{name}</code> <small>{place}</small>", words + code, "test", slug(name))
        return fold(f"{len(self.proofs)} tests, each with what it proves", made, "tests") if made else ""

    def write(self) -> None:
        """Write the page and the lesson's."""
        name, one = self.folder.name, self.package.code.get("one.py")
        first, more_seen = self.learned()
        parts = {"The idea": self.text(chapter(self.readme, "The idea")) + more_seen}
        if one:
            parts[f"The whole paper in {len(one.lines)} lines"] = self.code_of("one.py", self.notes_of_one())
        parts["What was reproduced"] = self.text(chapter(self.readme, "What was reproduced"))
        parts["What differs from the paper"] = "".join(self.difference(each, "plain") for each in self.deviations)
        parts["Limits"] = self.text(chapter(self.paper, "Limits"))
        parts |= {"The package, file by file": self.code(), "The tests": self.tests()}
        marks = [anchor(label) for label in dict.fromkeys(label for row in self.rows for label in row.labels)]
        marks += [f'<a href="#{file}">{file}</a>' for file in self.files]
        head = re.sub(r"!\[[^]]*\]\(learn\.png\)\n", "", self.readme.partition("\n## ")[0])  # it is alive here
        title, _, rest = self.text(head, below=0).partition("</h1>")
        page = document.parts(f"{title}</h1>{first}{rest}", parts, marks, f"{name}-lesson.html")
        document.write(self.out / f"{name}.html", name, page)
        lesson = notebook.lesson(self.folder / "lesson.ipynb", self.markup, self.picture)
        back = f'<nav aria-label="Parts"><a href="index.html">All papers</a><a href="{name}.html">{name}</a></nav>'
        document.write(self.out / f"{name}-lesson.html", f"{name}: the lesson", f"{back}<main>{lesson}</main>")
