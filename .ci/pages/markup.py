"""Markdown, formulas and Python as HTML: a glossary's symbols have one colour, marks are links."""

import html
import re

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.filters import NameHighlightFilter
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from paper import EQUATIONS, ONE, in_order, marks

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
FORMULA = re.compile(r"```.*?```|`[^`]*`|\$\$(.+?)\$\$|\$([^$]+)\$", re.S)
LINKABLE = (
    rf"<(?P<tag>a|math|pre|code|h\d)\b.*?</(?P=tag)>|<[^>]+>|{EQUATIONS.pattern}|{ONE.pattern}"
)
# A link to a file of the repository, which is not beside a page.
FILE = r'<a href="(?!https?:|#|[\w-]+\.(?:html|png))[^"]*">(.*?)</a>'
NARROW = re.compile(
    r"(?:(?<=</mi>)|(?<=</msu.>))(?=<mi>(?:exp|log|tanh)<)|(?<=<mi>log</mi>)(?=<m(?:i|row|sub)>)"
)
# A symbol without its index: g of g_i.
STEM = re.compile(r"(?:\\log)?((?:\\(?:hat|tilde|bar) ?)?\\?[A-Za-z]+)(?:[_^](?:\{[^}]*\}|\w))*")
COLOURS = 12  # .hue0 to .hue11 in pages.css


def slug(label: str) -> str:
    """The id of a label: "Eq. 7" is eq-7."""
    return label.lower().replace(". ", "-").replace(" ", "-")


def anchor(label: str, words: str = "") -> str:
    """A link to the place of a label, or of whatever has this id."""
    return f'<a href="#{slug(label)}">{words or html.escape(label)}</a>'


def fold(summary: str, body: str, kind: str, own_id: str = "") -> str:
    """A part that opens on a click, or when a link leads to its ` id="..."`."""
    return (
        f'<details class="{kind}"><summary>{summary}</summary><div{own_id}>{body}</div></details>'
    )


def plain(text: str) -> str:
    """Markdown of words that are none: a * is a product, a < is less, but not in `code`."""
    return re.sub(r"(`[^`]*`)|([*<])", lambda match: match[1] or f"&#{ord(match[2])};", text)


def mathml(latex: str, display: str = "inline") -> str:
    """The inside of a formula's MathML; raises what latex2mathml raises, many classes."""
    # latex2mathml does not know \arg.
    made = convert(latex.replace(r"\arg", r"\mathrm{arg}"), display=display)
    if re.search(r"\\\w|merror", made):
        raise ValueError(latex)
    inside = re.fullmatch(r"<math[^>]*><mrow>(.*)</mrow></math>", made, re.S)[1]
    return NARROW.sub('<mspace width="0.17em"></mspace>', inside)


class Markup:
    """How the texts of one package become HTML; what does not stands in `problems`."""

    def __init__(self, glossary: list[list[str]], known: set[str]):
        self.known = known
        self.problems = []
        self.lexer = PythonLexer(stripnl=False)
        self.names = {}  # name in the code -> colour
        self.symbols = {}  # MathML -> colour
        count = 0
        for names, symbol, *_ in glossary:
            listed = re.match(r"(\$[^$]+\$(, )?)*", symbol)[0]  # words that follow explain them
            symbols = re.findall(r"\$(.+?)\$", listed)
            code = [name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", names)]
            code = [name for name in code if name not in self.names]
            if code and symbols:
                self.give_colour(f"hue{count % COLOURS}", code, symbols)
                count += 1

    def give_colour(self, colour: str, code: list[str], symbols: list[str]) -> None:
        """Give one colour to names of the code and to LaTeX symbols; also to g where g_i has it."""
        self.names |= dict.fromkeys(code, colour)
        self.lexer.add_filter(NameHighlightFilter(names=code, tokentype=f"Name.{colour.title()}"))
        for latex in symbols:
            self.symbols[mathml(latex)] = colour
            match = STEM.fullmatch(latex)
            if match:
                self.symbols.setdefault(mathml(match[1]), colour)

    def math(self, latex: str, display: str = "inline") -> str:
        """A formula as MathML, its symbols in their colours."""
        try:
            made = mathml(latex, display)
        except Exception:
            self.problems.append(f"this formula does not convert: {latex}")
            return html.escape(latex)

        def coloured(match: re.Match) -> str:
            return f'<mrow class="{self.symbols[match[0]]}">{match[0]}</mrow>'

        # The longest first: h_i has its own colour, not that of its part h.
        symbols = sorted(self.symbols, key=len, reverse=True)
        if symbols:
            made = re.sub("|".join(map(re.escape, symbols)), coloured, made)
        return f'<math display="{display}"><mrow>{made}</mrow></math>'

    def text(self, markdown: str, below: int = 0, render=MARKDOWN.render) -> str:
        """Markdown with $...$ as HTML; headings are set `below` levels lower."""

        def shown(match: re.Match) -> str:
            block, inline = match.groups()
            if block:
                return f'<span class="maths">{self.math(block, "block")}</span>'
            return self.math(inline) if inline else match[0]

        made = render(FORMULA.sub(shown, markdown))
        if "$" in re.sub(r"<(pre|code)\b.*?</\1>", "", made, flags=re.S):
            self.problems.append(f"a $ without its second one: {markdown[:60]!r}")
        return self.finished(made, below)

    def finished(self, made: str, below: int = 0) -> str:
        """HTML of Markdown with colours, links, scrolling tables and headings `below` lower."""
        made = re.sub(r"<code>([\w.]+)</code>", self.coloured, made)
        made = re.sub(r"<(/?)h(\d)>", lambda match: f"<{match[1]}h{int(match[2]) + below}>", made)
        made = re.sub(r"<table>.*?</table>", r'<div class="scroll">\g<0></div>', made, flags=re.S)
        return self.linked(re.sub(FILE, r"\1", made, flags=re.S))

    def coloured(self, match: re.Match) -> str:
        """A name in prose, in its colour."""
        colour = self.names.get(match[1].split(".")[-1])
        return f'<code class="{colour}">{match[1]}</code>' if colour else match[0]

    def inline(self, markdown: str) -> str:
        """The same for a cell of a table."""
        return self.text(markdown, render=MARKDOWN.renderInline)

    def docstring(self, text: str) -> str:
        """A docstring in Google's style: Args, Returns, Raises are a list, columns stay aligned."""
        lines, section = [], ""
        for line in text.splitlines():
            if line in ("Args:", "Returns:", "Raises:", "Yields:"):
                section, line = line.removesuffix(":"), ""
            elif section and re.match(r" {0,4}\S", line):
                name, colon, rest = line.strip().partition(": ")
                if colon and section in ("Args", "Raises"):
                    line = f"- `{name}`: {plain(rest)}"
                else:
                    line = f"- *{section.lower()}* {plain(line.strip())}"
            elif re.match(r"\S.* {3,}\S", line):
                line = f'<pre class="columns">{html.escape(line)}</pre>'
            elif not line.startswith("    "):
                line = plain(line)
            lines.append(line)
        made = "\n".join(lines).replace('</pre>\n<pre class="columns">', "\n")
        return self.finished(MARKDOWN.render(made))  # its mathematics is plain text

    def linked(self, made: str) -> str:
        """HTML in which each known mark links to its place."""

        def to_place(match: re.Match) -> str:
            found = in_order(marks(match[0]) & self.known) if match[0][0] != "<" else []
            return anchor(found[0], match[0]) if found else match[0]

        return re.sub(LINKABLE, to_place, made, flags=re.S)

    def comment(self, match: re.Match) -> str:
        """A comment; a short one is not broken."""
        kind = "c1 short" if len(match[1]) < 40 else "c1"
        return f'<span class="{kind}">{self.linked(match[1])}'

    def code(
        self, lines: list[tuple[int, str]], prefix: str = "", homes: dict[int, str] | None = None
    ) -> str:
        """Numbered lines; with a prefix each has an id, and some numbers link to `homes`."""
        text = "\n".join(line for _, line in lines)
        made = highlight(text, self.lexer, HtmlFormatter(nowrap=True))
        made = re.sub(r'<span class="(?:n|p|o|w)">([^<]*)</span>', r"\1", made)
        made = re.sub(r'<span class="c1">(.*?)(?=</span>)', self.comment, made)
        rows = ""
        for (number, line), shown in zip(lines, made.split("\n"), strict=False):
            link = anchor(homes[number], str(number)) if homes and number in homes else number
            name = f' id="{prefix}-{number}"' if prefix else ""
            indent = len(line) - len(line.lstrip())
            shown = f'<span class="no"{name}>{link}</span>{shown}'
            rows += f'<span class="line" style="--i:{indent}">{shown}</span>'
        return f'<pre class="code">{rows}</pre>'
