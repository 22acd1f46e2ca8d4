"""Markdown, formulas and Python as HTML, for page.py: symbols of a glossary have one colour, marks are links."""

import html
import re
from collections.abc import Callable

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.filters import NameHighlightFilter
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from paper import ALGORITHM, DEVIATION, EQUATIONS, SECTION, in_order, marks

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
FORMULA = re.compile(r"```.*?```|`[^`]*`|\$\$(.+?)\$\$|\$([^$]+)\$", re.S)
TOKEN = re.compile(r"\\(?:text|mathrm|mathbf|operatorname)\{[^{}]*\}|\\[A-Za-z]+|\\.|\d+\.\d+|\S")
COMPOSED = re.compile(r"[_^{}]|\\(hat|tilde|bar|vec|dot|over\w+|wide\w+)\b")  # not to be coloured word by word
MARK = "|".join(pattern.pattern for pattern in (EQUATIONS, ALGORITHM, SECTION, DEVIATION))
LINKABLE = re.compile(rf"<(?P<tag>a|math|pre|code|h\d)\b.*?</(?P=tag)>|<[^>]+>|{MARK}", re.S)
COLOURS = 12  # .hue0 to .hue11 in pages.css


def slug(label: str) -> str:
    """The id of a label: "Eq. 7" is eq-7."""
    return label.lower().replace(". ", "-").replace(" ", "-")


def anchor(label: str, words: str = "") -> str:
    """A link to the place of a label, or of whatever has this id."""
    return f'<a href="#{slug(label)}">{words or html.escape(label)}</a>'


def fold(summary: str, body: str, kind: str, name: str = "") -> str:
    """A part that opens on a click, or when a link leads to the id `name` in it."""
    target = f' id="{name}"' if name else ""
    return f'<details class="{kind}"><summary>{summary}</summary><div{target}>{body}</div></details>'


def plain(text: str) -> str:
    """Markdown of words that are none: a * is a product, a < is less, but not in `code`."""
    return re.sub(r"(`[^`]*`)|([*<])", lambda match: match[1] or f"&#{ord(match[2])};", text)


def tokens(latex: str) -> tuple[str, ...]:
    """LaTeX in its words; a \\mathrm{...} is one."""
    return tuple(TOKEN.findall(latex))


class Markup:
    """How the texts of one package become HTML; what does not stands in `problems`."""

    def __init__(self, glossary: list[list[str]], known: set[str]):
        self.known, self.problems = known, []
        self.lexer, self.names, self.symbols = PythonLexer(stripnl=False), {}, {}  # name, words of a symbol -> colour
        for row in glossary:
            cell = re.match(r"(\$[^$]+\$(, )?)*", row[1])[0]  # symbols; in words that explain, there is no other name
            printed = [tokens(symbol) for symbol in re.findall(r"\$(.+?)\$", cell)]
            new = {name.split(".")[-1] for name in re.findall(r"`([\w.]+)`", row[0])} - self.names.keys()
            if new and printed:
                colour = f"hue{len(set(self.names.values())) % COLOURS}"
                self.names |= dict.fromkeys(new, colour)
                self.lexer.add_filter(NameHighlightFilter(names=[*new], tokentype=f"Name.{colour.title()}"))
                bare = [tokens(re.sub(r"( ?[_^] (\{[^}]*\}|\S+))+$", "", " ".join(symbol))) for symbol in printed]
                self.symbols = dict.fromkeys(bare, colour) | self.symbols | dict.fromkeys(printed, colour)

    def math(self, latex: str, display: str = "inline") -> str:
        """A formula as MathML."""
        rest, parts = tokens(latex.replace(r"\arg", r"\mathrm{arg}")), []  # the converter does not know \arg
        while rest:
            symbol = max((each for each in self.symbols if rest[: len(each)] == each), key=len, default=rest[:1])
            words = [" ".join(symbol)] if COMPOSED.search(" ".join(symbol)) else symbol
            colour = self.symbols.get(symbol)
            parts += [f"{{\\color{{{colour}}}{{{word}}}}}" for word in words] if colour else symbol
            rest = rest[len(symbol) :]
        try:
            made = convert(" ".join(parts), display=display)
        except Exception as error:  # latex2mathml has a class for each mistake
            made = f"\\{type(error).__name__}"
        if re.search(r"\\\w|merror", made):
            self.problems.append(f"this formula does not convert: {latex}")
        return re.sub(r'mathcolor="(hue\d+)"', r'class="\1"', made)

    def text(self, markdown: str, below: int = 0, has_formulas: bool = True, render: Callable = MARKDOWN.render) -> str:
        """Markdown with $...$ as HTML; headings are set `below` levels lower."""
        formulas = []

        def keep(match: re.Match) -> str:
            if match[0].startswith("`"):
                return match[0]
            block = f'<span class="maths">{self.math(match[1], "block")}</span>' if match[1] else ""
            formulas.append(block or self.math(match[2]))
            return f"\ue000{len(formulas) - 1}\ue001"

        made = render(FORMULA.sub(keep, markdown) if has_formulas else markdown)
        if has_formulas and "$" in re.sub(r"<(pre|code)\b.*?</\1>", "", made, flags=re.S):
            self.problems.append(f"a $ without its second one: {markdown[:60]!r}")
        made = re.sub("\ue000(\\d+)\ue001", lambda match: formulas[int(match[1])], made)
        made = re.sub(r"<code>([\w.]+)</code>", self.coloured, made)
        made = re.sub(r"<(/?)h(\d)>", lambda match: f"<{match[1]}h{min(6, int(match[2]) + below)}>", made)
        made = re.sub(r'<img src="([^"]+)"[^>]*>', r'<a href="\1">\g<0></a>', made)  # a narrow screen wants it whole
        made = re.sub(r"<table>.*?</table>", r'<div class="scroll">\g<0></div>', made, flags=re.S)
        file = r'<a href="(?!https?:|#|[\w-]+\.(?:html|png))[^"]*">(.*?)</a>'  # one of the repository is not here
        return self.linked(re.sub(file, r"\1", made, flags=re.S))

    def coloured(self, match: re.Match) -> str:
        """A name in prose, in its colour."""
        colour = self.names.get(match[1].split(".")[-1])
        return f'<code class="{colour}">{match[1]}</code>' if colour else match[0]

    def inline(self, markdown: str) -> str:
        """The same for a cell of a table."""
        return self.text(markdown, render=MARKDOWN.renderInline) if markdown.strip("- ") else "nothing is said"

    def docstring(self, text: str) -> str:
        """A docstring in Google's style: Args, Returns and Raises are a list, aligned columns stay as they are."""
        lines, section = [], ""
        for line in text.splitlines():
            if match := re.fullmatch(r"(Args|Returns|Raises|Yields):", line.strip()):
                section, line = match[1], ""
            elif section and re.match(r" {0,4}\S", line):
                name, colon, rest = line.strip().partition(": ")
                is_name = colon and section in ("Args", "Raises")
                line = f"- `{name}`: {plain(rest)}" if is_name else f"- *{section.lower()}* {plain(line.strip())}"
            elif re.match(r"\S.* {3,}\S", line):
                line = f'<pre class="columns">{html.escape(line)}</pre>'
            elif not line.startswith("    "):
                line = plain(line)
            lines.append(line)
        made = "\n".join(lines).replace('</pre>\n<pre class="columns">', "\n")
        return self.text(made, has_formulas=False)  # their mathematics is plain text, a $ is a shell's

    def linked(self, made: str) -> str:
        """HTML in which each known mark links to its place."""

        def to_place(match: re.Match) -> str:
            found = in_order(marks(match[0]) & self.known) if match[0][0] != "<" else []
            return anchor(found[0], match[0]) if found else match[0]

        return LINKABLE.sub(to_place, made)

    def code(self, lines: list[tuple[int, str]], prefix: str = "", homes: dict[int, str] | None = None) -> str:
        """Numbered lines; with a prefix each has an id. Some numbers link to `homes`, left of them."""
        made = highlight("\n".join(line for _, line in lines), self.lexer, HtmlFormatter(nowrap=True))
        made = re.sub(r'<span class="(?:n|p|o|w)">([^<]*)</span>', r"\1", made)
        made = re.sub(r'(<span class="c1">)(.*?)(?=</span>)', lambda match: match[1] + self.linked(match[2]), made)
        rows = []
        for (number, line), shown in zip(lines, made.split("\n"), strict=False):
            link = anchor(homes[number], str(number)) if number in (homes or {}) else number
            name, indent = f' id="{prefix}-{number}"' if prefix else "", len(line) - len(line.lstrip())
            rows.append(f'<span class="line" style="--i:{indent}"><span class="no"{name}>{link}</span>{shown}</span>')
        return f'<pre class="code">{"".join(rows)}</pre>'
