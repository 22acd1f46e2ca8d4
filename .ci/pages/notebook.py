"""A lesson's notebook, executed, as HTML for page.py."""

import html
import json
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

from markup import Markup, fold

FOLDED = 25  # lines; a longer cell is folded


def cells(notebook: Path) -> list[dict]:
    """Its cells, with their sources as one string; none without a notebook."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"] if notebook.exists() else []
    return [cell | {"source": "".join(cell["source"])} for cell in found]


def is_learned(cell: dict) -> bool:
    """Whether the cell prints what is drawn at the top of the page."""
    return "learn" in cell["metadata"].get("tags", [])


def printed(cell: dict) -> str:
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


def learned(notebook: Path) -> list[dict]:
    """The tables of numbers that the lesson's cell with the tag "learn" printed as JSON."""
    found = [json.loads(printed(cell) or "[]") for cell in cells(notebook) if is_learned(cell)]
    return [table for tables in found for table in (tables if isinstance(tables, list) else [tables])]


def code_cell(cell: dict, markup: Markup, picture: Callable[[bytes], str]) -> str:
    """Code, folded if it is long, and what it printed and drew."""
    lines = list(enumerate(cell["source"].splitlines(), 1))
    code = markup.code(lines)
    parts = [fold(f"{len(lines)} lines of code", code, "cell") if len(lines) > FOLDED else code]
    if said := printed(cell):
        parts.append(f'<pre class="output">{html.escape(said)}</pre>')
    for output in cell["outputs"]:
        if data := output.get("data", {}).get("image/png"):
            words = " ".join(re.findall(r'title\(\s*f?"([^"]+)"', cell["source"])) or "A picture of the lesson"
            parts.append(f'<p><img src="{picture(b64decode(data))}" alt="{html.escape(words)}"></p>')
    return "".join(parts)


def lesson(notebook: Path, markup: Markup, picture: Callable[[bytes], str]) -> str:
    """All cells in their order, but for the one that the page draws; a link to a mark leads to the package's page."""
    made = ""
    for cell in cells(notebook):
        if cell["cell_type"] == "markdown":
            made += markup.text(cell["source"])
        elif not is_learned(cell):
            made += code_cell(cell, markup, picture)
    return made.replace('href="#', f'href="{notebook.parent.name}.html#')
