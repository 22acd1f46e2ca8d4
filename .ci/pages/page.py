"""One package's pages: one.py beside its formulas, then all else folded, and its lesson.

A page works without scripts; those it has move a picture that is there without them. Its words are those of README.md,
PAPER.md, lesson.ipynb, the docstrings and the comments with a mark (`Eq. (7)`, `Algorithm 1`, `Section 4.1`, `D3`).
"""

import ast
import json
import re
from pathlib import Path

from heat import heat

import document
import notebook
import proof
from markup import MARK, Markup, anchor, fold, plain, slug
from paper import Deviation, Package, Row, Segment, in_order, marks, segments

SHAPE = r"\((?:[A-Z]|\.\.\.)(?:,|(?:, (?:[A-Z]|\d+))+)\)"  # (B, T, D), (N,)


def chapter(text: str, title: str) -> str:
    """The Markdown below one `##` heading; empty without it."""
    return f"{text}\n## ".partition(f"\n## {title}\n")[2].partition("\n## ")[0]


class Page:
    """One package's page; `problems` says what is wrong with it."""

    def __init__(self, folder: Path, out: Path):
        self.folder, self.out, self.package = folder, out, Package(folder)
        self.readme, self.paper = ((folder / name).read_text(encoding="utf-8") for name in ("README.md", "PAPER.md"))
        self.deviations, self.rows = self.package.deviations(), self.package.formulas()
        self.proofs = self.package.proofs()
        known = {label for row in self.rows for label in row.labels} | {d.label for d in self.deviations}
        self.markup = Markup([cells for _, cells in self.package.table("Glossary")[1:]], known)
        self.problems = self.markup.problems
        self.problems += proof.problems(self.package)
        order = re.findall(r"`([\w/]+(?:\.py|/))`", chapter(self.readme, "Read in this order"))
        gone = [name for name in order if not (folder / name).exists()]
        self.problems += [f"README.md: there is no {name} to read" for name in gone]
        self.pieces = []  # (file, segment) in the order of reading
        for file, is_excerpt in self.package.files(order).items():
            self.pieces += [(file, part) for part in segments(self.package.code[file], known, is_excerpt)]
        # ids, lines of PAPER.md; label or definition -> links to sections of the lesson
        self.used, self.taught = set(), {}
        one = self.package.code.get("one.py")
        self.one = [("one.py", part) for part in segments(one, known)] if one else []

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

    def lesson(self) -> str:
        """The lesson, executed."""
        defined = {part.name: f"{file}-{part.code[0][0]}" for file, part in self.pieces if part.name and part.code}
        path = self.folder / "lesson.ipynb"
        made, self.taught = notebook.lesson(path, self.markup, self.picture, defined, self.folder.name)
        return made

    def learned(self) -> tuple[str, str]:
        """What the network learns, seen: a table of numbers, with a slider or a tree where a script runs; and more."""
        tables = notebook.learned(self.folder / "lesson.ipynb")
        moving = [table for table in tables if {"beside", "tree"} & table.keys()] or tables
        first, rest = ("".join(heat(**t) for t in tables if (t in moving) == is_first) for is_first in (True, False))
        if tables and "tree" in tables[0]:
            tree = {"tree": tables[0]["tree"], "texts": tables[0]["rows"]}
            data = json.dumps(tree, ensure_ascii=False).replace("</", "<\\/")
            made = f'<script type="application/json">{data}</script>{first}{rest}'
            return f'<div class="learn" data-tree>{made}</div>', ""
        return f'<div class="learn">{first}</div>' if first else "", rest

    def home(self, label: str, places: list[tuple[str, str]]) -> int | None:
        """The piece beside which a label stands: a comment above a line, or else behind one, or else a docstring."""
        found = []
        for rank, (file, name) in enumerate(places):
            source = self.package.code.get(file)
            if not source or name not in ("", *source.definitions):
                continue  # proof.py says so
            for line, text in source.prose_in(name) if name else source.prose:
                kind = 2 if text[0] != "#" else 0 if source.lines[line - 1].lstrip()[0] == "#" else 1
                found += [(kind, rank, line, file)] if label in marks(text) else []
        for *_, line, file in sorted(found):
            for number, (of_file, part) in enumerate(self.pieces):
                if of_file == file and line in part.lines and part.code:
                    return number
        return None

    def tests_of(self, names: list[str]) -> str:
        links = [anchor(name, f"<code>{name}</code>") for name in names if name in self.proofs]
        return f"<small>test: {', '.join(links)}</small>" if links else ""

    def formula(self, row: Row) -> str:
        """A formula, what the paper says there, its tests, and the sections of the lesson that have it."""
        first, *rest = row.labels
        more = "".join(f"<span{self.own_id(label)}></span>" for label in rest)
        name = f"{first}-{rest[-1].split()[-1]}" if rest else first
        says = f"<p>{self.markup.inline(row.says)}</p>" if row.says and row.line not in self.used else ""
        self.used.add(row.line)  # of "Eq. 6-8", the first formula has the words
        links = dict.fromkeys(link for label in row.labels for link in self.taught.get(label, ()))
        seen = f"<small>{'; '.join(links)}</small>" if links else ""
        maths = f'<div class="maths"><b>{name}</b> {self.markup.inline(row.formula)}</div>'
        return f'<div class="formula"{self.own_id(first)}>{more}{maths}{says}{self.tests_of(row.tests)}{seen}</div>'

    def difference(self, deviation: Deviation) -> str:
        """What stands here, why, and the tests of it."""
        named = zip(("Here", "Why"), deviation.cells[1:], strict=False)
        words = "".join(f"<p><b>{word}:</b> {self.markup.inline(cell)}</p>" for word, cell in named)
        return words + self.tests_of([name for name, labels in self.proofs.items() if deviation.label in labels])

    def beside(self) -> dict[int, list[tuple[str, str]]]:
        """By piece: the label and the HTML of what stands left of it."""
        found, files = {}, dict.fromkeys((file, "") for file, _ in self.pieces)
        for row in self.rows:
            homes = [self.home(label, row.places) for label in row.labels]
            if None in homes:
                self.problems.append(f"PAPER.md:{row.line}: {', '.join(row.labels)} stands beside no line of code")
            else:
                found.setdefault(homes[0], []).append((row.labels[0], self.formula(row)))
        for deviation in self.deviations:
            home = self.home(deviation.label, list(files))
            if home is not None:
                summary = f"<b>{deviation.label}</b> differs from the paper: {self.markup.inline(deviation.cells[0])}"
                name = "" if deviation.label in self.used else slug(deviation.label)
                note = fold(summary, self.difference(deviation), "note", name)
                found.setdefault(home, []).append((deviation.label, note))
            elif deviation.has_code:
                self.problems.append(f"PAPER.md:{deviation.line}: {deviation.label} stands beside no line of code")
        return found

    def beside_one(self) -> dict[int, list[tuple[str, str]]]:
        """The same of one.py: a formula stands at the first comment with its mark, or else a docstring."""
        found, seen = {}, set()
        comments = [(number, part.comment) for number, (_, part) in enumerate(self.one)]
        docstrings = [(number, part.docstring) for number, (_, part) in enumerate(self.one) if part.name]
        for number, said in comments + docstrings:
            for row in self.rows:
                if row.labels[0] not in seen and set(row.labels) & marks(said):
                    seen |= set(row.labels)
                    found.setdefault(number, []).append((row.labels[0], row))
        return {n: [(label, self.formula(row)) for label, row in found[n]] for n in sorted(found)}

    def rows_of(self, pieces: list[tuple[str, Segment]], beside: dict[int, list[tuple[str, str]]]) -> dict[str, str]:
        """By file: its rows, in which a function and the pieces that its marks cut off are one."""
        rows: list[tuple[str, list[tuple[int, Segment]]]] = []
        for number, (file, part) in enumerate(pieces):
            inside = rows and rows[-1][0] == file and not part.name and self.is_inside(file, rows[-1][1][0][1], part)
            rows = [*rows[:-1], (file, [*rows[-1][1], (number, part)])] if inside else [*rows, (file, [(number, part)])]
        files = dict.fromkeys(file for file, _ in rows)
        return {file: "".join(self.row(file, own, beside) for name, own in rows if name == file) for file in files}

    def row(self, file: str, parts: list[tuple[int, Segment]], beside: dict[int, list[tuple[str, str]]]) -> str:
        """A function whole and, left of it, its docstring, then each comment with a mark, its line and its notes."""
        left, lines, homes = "", [], {}
        for number, part in parts:
            if part.is_heading:
                return f'<h4 class="part">{self.markup.inline(plain(part.comment))}</h4>'
            notes, links = beside.get(number, []), self.taught.get(part.name, ())
            said = f'<h4 class="name"><code>{part.name}</code></h4>' if part.name else ""
            said += self.flow(file, part.name)
            said += self.markup.docstring(part.docstring)
            if re.sub(MARK, "", part.comment).strip(" .,;:-") or not notes:  # a mark alone is in the note
                line = f'<a class="at" href="#{file}-{part.code[0][0]}">{part.code[0][0]}</a> ' if part.code else ""
                said += self.markup.text(line + plain(part.comment), has_formulas=False) if part.comment else ""
            said += "".join(note for _, note in notes)
            links = [link for link in links if link not in said]
            left += said + (f"<small>{'; '.join(links)}</small>" if links else "")
            lines += part.code
            homes |= {part.code[0][0]: notes[0][0]} if notes and part.code else {}
        right = self.markup.code(lines, file, homes) if lines else ""
        return f'<div class="row"><div class="left">{left}</div>{right}</div>'

    def flow(self, file: str, name: str) -> str:
        """The tensors of a class in their order, each with its shape, as its docstrings and comments have them."""
        node, found = self.package.code[file].definitions.get(name), []
        lines = (
            self.package.code[file].lines[node.lineno - 1 : node.end_lineno] if isinstance(node, ast.ClassDef) else []
        )
        for line in lines:
            if named := re.match(rf" +(?:def \w+\(self, )?(\w+)(?:: | = |[,)].*# ?).*?({SHAPE})", line):
                found += [" ".join(named.groups())] if named[1] not in ("for", "if", "return") else []
        flow = " → ".join(dict.fromkeys(found))
        return f'<p class="flow"><code>{flow}</code></p>' if "→" in flow else ""

    def whole(self) -> str:
        """one.py beside its formulas."""
        return "".join(self.rows_of(self.one, self.beside_one()).values())

    def code(self) -> str:
        """The glossary, whose colours the code has, then all files in the order of reading, folded."""
        parts = [self.text(chapter(self.paper, "Glossary"))]
        for file, body in self.rows_of(self.pieces, self.beside()).items():
            lines = len(self.package.code[file].lines)
            name = f'<h3 id="{file}"><code>{file}</code></h3> <small>{lines} lines</small>'
            parts.append(f'<details class="file"><summary>{name}</summary>{body}</details>')
        return "".join(parts)

    def is_inside(self, file: str, first: Segment, part: Segment) -> bool:
        """Whether a piece lies in the function that begins with another one."""
        node = self.package.code[file].definitions.get(first.name)
        return isinstance(node, ast.FunctionDef) and part.lines[0] <= node.end_lineno

    def differs(self) -> str:
        """The deviations as a list."""
        parts = []
        for deviation in self.deviations:
            words = f"<b>{deviation.label}.</b> Paper: {self.markup.inline(deviation.cells[0])}"
            parts.append(f"<li{self.own_id(deviation.label)}>{fold(words, self.difference(deviation), 'plain')}</li>")
        return f'<ul class="plain">{"".join(parts)}</ul>'

    def tests(self) -> str:
        """The tests that prove an equation or a deviation, folded."""
        parts = []
        for name, labels in self.proofs.items():
            source, dotted = self.package.tests[name]
            first, last = source.first_line(dotted), source.definitions[dotted].end_lineno
            code = self.markup.code(list(enumerate(source.lines, 1))[first - 1 : last])
            words = f"<p>proves {', '.join(anchor(label) for label in in_order(labels))}</p>"
            place = f"{source.path.relative_to(self.folder).as_posix()}:{first}"
            parts.append(fold(f"<code>{name}</code> <small>{place}</small>", words + code, "test", slug(name)))
        return fold(f"{len(parts)} tests, each with what it proves", "".join(parts), "tests") if parts else ""

    def write(self) -> None:
        """Write the page and the lesson's; the lesson is made first, for the code links to its sections."""
        name, lesson, one = self.folder.name, self.lesson(), len(self.package.code["one.py"].lines) if self.one else 0
        first, more_seen = self.learned()
        parts = {"The idea": self.text(chapter(self.readme, "The idea")) + more_seen}
        parts |= {f"The whole paper in {one} lines": self.whole()} if one else {}
        parts |= {"What was reproduced": self.text(chapter(self.readme, "What was reproduced"))}
        parts |= {"What differs from the paper": self.differs(), "Limits": self.text(chapter(self.paper, "Limits"))}
        parts |= {"The package, file by file": self.code(), "The tests": self.tests()}
        files = [f'<a href="#{file}">{file}</a>' for file in dict.fromkeys(file for file, _ in self.pieces)]
        labels = [anchor(label) for label in dict.fromkeys(label for row in self.rows for label in row.labels)]
        head = re.sub(r"!\[[^]]*\]\(learn\.png\)\n", "", self.readme.partition("\n## ")[0])  # it is alive here
        head = self.text(head, below=0)
        title, rest = (*head.partition("</h1>")[::2],)
        head = f"{title}</h1>{first}{rest}" if rest else head
        parts = {title: part for title, part in parts.items() if part}
        more = {"The lesson": f"{name}-lesson.html"} if lesson else {}
        page = document.parts(head, parts, [*labels, *files], more)
        document.write(self.out / f"{name}.html", name, page)
        if lesson:
            back = f'<nav aria-label="Parts"><a href="index.html">All papers</a><a href="{name}.html">{name}</a></nav>'
            document.write(self.out / f"{name}-lesson.html", f"{name}: the lesson", f"{back}<main>{lesson}</main>")
