"""A lesson's notebook, executed, as HTML for page.py."""

import html
import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

from markup import Markup, fold

FOLDED = 25  # lines; a longer cell is folded


def read(notebook: Path) -> tuple[list[dict], list[dict]]:
    """The cells, and the tables of numbers that the one with the tag "learn" printed as JSON."""
    found, learned = [], []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        texts = ["".join(output.get("text", "")) for output in cell.get("outputs", [])]
        cell["source"] = "".join(cell["source"])
        cell["printed"] = "".join(texts)
        if "learn" in cell["metadata"].get("tags", []):
            tables = json.loads(cell["printed"] or "[]")
            learned += tables if isinstance(tables, list) else [tables]
        else:
            found.append(cell)
    return found, learned


def lesson(cells: list[dict], markup: Markup, picture: Callable[[bytes], str], page: str) -> str:
    """All cells in their order with what they printed and drew; links to marks lead to the page."""
    made = ""
    for cell in cells:
        if cell["cell_type"] == "markdown":
            made += markup.text(cell["source"])
            continue
        lines = [*enumerate(cell["source"].splitlines(), 1)]
        code = markup.code(lines)
        made += fold(f"{len(lines)} lines of code", code, "cell") if len(lines) > FOLDED else code
        if cell["printed"]:
            made += f'<pre class="output">{html.escape(cell["printed"])}</pre>'
        for output in cell["outputs"]:
            data = output.get("data", {}).get("image/png")
            if data:
                address = picture(b64decode(data))
                made += f'<p><img src="{address}" alt="what the code above draws"></p>'
    return made.replace('href="#', f'href="{page}#')
