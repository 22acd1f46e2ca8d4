"""Whole HTML documents for page.py: their head and style, the front page, and what a check of all of them finds."""

import re
from pathlib import Path

from markup import Markup

HERE = Path(__file__).parent


def write(path: Path, title: str, body: str) -> None:
    """Write a document with its style in it."""
    style = Path(__file__).with_name("pages.css").read_text(encoding="utf-8")
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"<title>{title}</title>\n<style>\n{style}</style>"
    names = [name for sign, name in ((" data-tree", "tree.js"), ("<", "pages.js")) if sign in body]
    scripts = "".join(f"<script>{path.read_text(encoding='utf-8')}</script>" for path in map(HERE.joinpath, names))
    text = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n{scripts}</body></html>\n'
    path.write_text(text, encoding="utf-8")


def parts(head: str, sections: dict[str, str], marks: list[str], pages: dict[str, str]) -> str:
    """A body: links to its sections (title -> HTML) and other pages (title -> address), the head, links to its
    equations and files, the sections."""
    ids = {title: re.sub(r"\W+", "-", title.lower()) for title in sections}
    links = "".join(f'<a href="#{name}">{title}</a>' for title, name in ids.items())
    links += "".join(f'<a href="{page}">{title}</a>' for title, page in pages.items())
    nav = f'<nav aria-label="Parts"><a href="index.html">All papers</a>{links}</nav>'
    marked = f'<nav class="marks" aria-label="Equations and files">{"".join(marks)}</nav>'
    body = "".join(f'<section id="{ids[title]}"><h2>{title}</h2>{part}</section>\n' for title, part in sections.items())
    return f"{nav}<main>{head}{marked}\n{body}</main>"


def write_index(readme: Path, out: Path, packages: list[str]) -> None:
    """Write the front page: what README.md says before its first section, and a card for each paper."""
    text = readme.read_text(encoding="utf-8").partition("\n## ")[0] if readme.exists() else "# Papers"
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n\n(\*[^*]+\*\n)?", "", text)  # the cards have the pictures
    body, cards = Markup([], set()).text(re.sub(r"\b(\w+)/README\.md", r"\1.html", text)), []
    learned = None
    for name in sorted(packages, key=text.find):  # in the order of README.md
        page = (out / f"{name}.html").read_text(encoding="utf-8")
        title, picture = re.search(r"<h1>(.*?)</h1>", page, re.S), re.search(r"<img[^>]*>", page)
        words = (title[1] if title else name) + (picture[0] if picture else "")
        learned = learned or re.search(r'<div class="learn">.*?</figure></div>', page, re.S)
        cards.append(f'<li><a href="{name}.html">{words}</a></li>')
    seen = learned[0] if learned else ""
    body = body.replace("</h1>", f"</h1>{seen}", 1)
    write(out / "index.html", "The papers", f'<main>{body}<ul class="cards">{"".join(cards)}</ul></main>')


def problems(folder: Path) -> list[str]:
    """Links that lead nowhere, ids that stand twice, pictures without words, and anything from elsewhere."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.html"))}
    files = {path.name for path in folder.iterdir()}
    ids = {page: re.findall(r'\sid="([^"]+)"', text) for page, text in pages.items()}
    found = []
    for page, text in pages.items():
        found += [f"{page}: the id {name} stands twice" for name in set(ids[page]) if ids[page].count(name) > 1]
        found += [
            f"{page}: a picture without words: {tag}" for tag in re.findall(r'<img(?![^>]*alt="[^"]+)[^>]*>', text)
        ]
        found += [
            f"{page}: {tag} is no part of a static page" for tag in re.findall(r'<script[^>]*src|src="\w+:[^"]*"', text)
        ]
        for link in re.findall(r'(?:href|src)="(?!https?:)([^"]*)"', text):
            file, _, name = link.partition("#")
            if (file or page) not in files or (name and name not in ids.get(file or page, ())):
                found.append(f"{page}: the link {link} leads nowhere")
    return found
