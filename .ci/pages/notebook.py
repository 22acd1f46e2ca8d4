"""A lesson's notebook, executed, as HTML for page.py: each section ends with links to the code that it is about."""

import html
import json
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

from markup import Markup, anchor, fold
from paper import in_order, labels, marks

FOLDED = 25  # lines; a longer cell is folded
TAG = re.compile(r"\\q?quad\s*\(([^)]*)\)")  # the number of a formula in a lesson: \quad (4)


def sections(notebook: Path) -> list[tuple[str, list[dict]]]:
    """(title, cells) of each section; a cell of Markdown ends where a heading begins."""
    found = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if "learn" in cell["metadata"].get("tags", []):
            continue  # drawn at the top of the page
        source = "".join(cell["source"])
        for part in re.split(r"(?m)^(?=##? )", source) if cell["cell_type"] == "markdown" else [source]:
            heading = re.match(r"##? (.*)", part) if cell["cell_type"] == "markdown" else None
            if heading or not found:
                found.append((re.sub(r"\$|^\d+\. ", "", heading[1]) if heading else "", []))
            if part.strip():
                found[-1][1].append({**cell, "source": part})
    return found


def subjects(cells: list[dict], known: set[str], defined: dict[str, str]) -> dict[str, str]:
    """Link by name: the labels that a section's text bears, then the functions that its code calls."""
    text = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
    code = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "code")
    numbers = {label for tag in TAG.findall(text.replace(r"\text{-}", "-")) for label in labels(f"Eq. ({tag})")}
    found = {label: anchor(label) for label in in_order((marks(text) | numbers) & known)}
    called = [name for name in dict.fromkeys(re.findall(r"\b(\w+)\(", code)) if name in defined]
    return found | {name: f'<a href="#{defined[name]}"><code>{name}</code></a>' for name in called}


def learned(notebook: Path) -> list[dict]:
    """The tables of numbers that the lesson's cell with the tag "learn" printed as JSON; none without it."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if notebook.exists() else ():
        if "learn" in cell["metadata"].get("tags", []):
            tables = json.loads("".join("".join(output.get("text", "")) for output in cell["outputs"]) or "[]")
            return tables if isinstance(tables, list) else [tables]
    return []


def code_cell(cell: dict, title: str, markup: Markup, picture: Callable[[bytes], str]) -> str:
    """Code, folded if it is long, and what it printed and drew."""
    lines = list(enumerate(cell["source"].splitlines(), 1))
    defined = ", ".join(re.findall(r"(?m)^(?:def|class) (\w+)", cell["source"]))
    code = markup.code(lines)
    summary = f"{len(lines)} lines of code" + (f": {defined}" if defined else "")
    parts = [fold(summary, code, "cell") if len(lines) > FOLDED else code]
    if printed := "".join("".join(output.get("text", "")) for output in cell["outputs"]):
        parts.append(f'<pre class="output">{html.escape(printed)}</pre>')
    for output in cell["outputs"]:
        if data := output.get("data", {}).get("image/png"):
            words = " ".join(re.findall(r'title\(\s*f?"([^"]+)"', cell["source"])) or title or "A picture of the lesson"
            name = picture(b64decode(data))
            parts.append(f'<p><a href="{name}"><img src="{name}" alt="{html.escape(words)}"></a></p>')
    return "".join(parts)


def lesson(
    notebook: Path, markup: Markup, picture: Callable[[bytes], str], defined: dict[str, str], package: str
) -> tuple[str, dict]:
    """The lesson, and by label or function the links to the sections that are about it.

    Args:
        defined: where on the package's page a function or class is defined.
        package: its name: the lesson is NAME-lesson.html, the package's page NAME.html.
    """
    parts, taught, chapters = [], {}, sections(notebook)
    own = {name for _, cells in chapters for cell in cells for name in re.findall(r"(?m)^def (\w+)", cell["source"])}
    defined = {name: place for name, place in defined.items() if name not in own}
    for number, (title, cells) in enumerate(chapters, 1):
        body = ""
        for cell in cells:
            is_text = cell["cell_type"] == "markdown"
            body += markup.text(cell["source"], below=2) if is_text else code_cell(cell, title, markup, picture)
        links = subjects(cells, markup.known, defined)
        for name in links:
            there = f"{package}-lesson.html#lesson-{number}"
            taught.setdefault(name, []).append(f'<a href="{there}">lesson: {html.escape(title)}</a>')
        leads = f'<p class="leads">In the code: {", ".join(links.values())}</p>' if links else ""
        parts.append(f'<div class="chapter" id="lesson-{number}">{body}{leads}</div>')
    made = re.sub(r'href="#(?!lesson-)', f'href="{package}.html#', "".join(parts))
    return made, taught
