"""Whole HTML documents for page.py: their head and style, the front page, a check of them all."""

import re
from collections import Counter
from pathlib import Path

from markup import Markup

HERE = Path(__file__).parent
HEAD = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'


def write(path: Path, title: str, body: str) -> None:
    """Write a document with its style and scripts in it."""
    style, tree, pages = (
        (HERE / name).read_text(encoding="utf-8") for name in ("pages.css", "tree.js", "pages.js")
    )
    script = f"<script>{tree if ' data-tree' in body else ''}</script>\n<script>{pages}</script>"
    head = f"{HEAD}<title>{title}</title>\n<style>\n{style}</style>"
    text = f"<head>{head}</head>\n<body>\n{body}\n{script}</body>"
    path.write_text(f'<!doctype html>\n<html lang="en">{text}</html>\n', encoding="utf-8")


def nav(links: dict[str, str]) -> str:
    """Links from a page's head: address -> words."""
    made = "".join(f'<a href="{address}">{words}</a>' for address, words in links.items())
    return f'<nav aria-label="Parts"><a href="index.html">All papers</a>{made}</nav>'


def parts(head: str, sections: dict[str, str], marks: list[str], lesson: str) -> str:
    """A body: links to its sections (title -> HTML) and the lesson, head, links to marks, sections.

    A section without content is left out.
    """
    links, body = {}, ""
    for title, content in sections.items():
        if content:
            name = re.sub(r"\W+", "-", title.lower())
            links[f"#{name}"] = title
            body += f'<section id="{name}"><h2>{title}</h2>{content}</section>\n'
    links[lesson] = "The lesson"
    marked = f'<nav class="marks" aria-label="Equations and files">{"".join(marks)}</nav>'
    return f"{nav(links)}<main>{head}{marked}\n{body}</main>"


def write_index(readme: Path, out: Path, packages: list[str]) -> None:
    """Write the front page: README.md up to its first section, and a card for each paper.

    Below the title stands what is learned on the page of README.md's first paper.
    """
    text = "# Papers\n"
    if readme.exists():
        text = readme.read_text(encoding="utf-8").partition("\n## ")[0]
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n\n(\*[^*]+\*\n)?", "", text)  # the cards have pictures
    packages = sorted(packages, key=text.find)
    pages = [(out / f"{name}.html").read_text(encoding="utf-8") for name in packages]

    cards = ""
    for name, page in zip(packages, pages, strict=True):
        title = re.search("<h1>(.*?)</h1>", page, re.S)[1]
        cards += f'<li><a href="{name}.html">{title}{first(r"<img[^>]*>", page)}</a></li>'
    learned = first('<div class="learn">.*?</figure></div>', pages[0])
    head = Markup([], set()).text(re.sub(r"\b(\w+)/README\.md", r"\1.html", text))
    head = head.replace("</h1>", f"</h1>{learned}", 1)
    write(out / "index.html", "The papers", f'<main>{head}<ul class="cards">{cards}</ul></main>')


def first(pattern: str, page: str) -> str:
    """The first place of a page that fits, or nothing."""
    match = re.search(pattern, page, re.S)
    return match[0] if match else ""


def problems(folder: Path) -> list[str]:
    """What is wrong with the pages of a folder, and links between them that lead nowhere."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.html"))}
    files = {path.name for path in folder.iterdir()}
    ids = {page: re.findall(r'\sid="([^"]+)"', text) for page, text in pages.items()}
    found = []
    for page, text in pages.items():
        for name, count in Counter(ids[page]).items():
            if count > 1:
                found.append(f"{page}: the id {name} stands twice")
        for tag in re.findall(r'<img(?![^>]*alt="[^"]+)[^>]*>', text):
            found.append(f"{page}: a picture without words: {tag}")
        for tag in re.findall(r'<script[^>]*src|src="\w+:', text):
            found.append(f"{page}: {tag} is no part of a static page")
        for link in sorted(set(re.findall(r'(?:href|src)="(?!https?:)([^"]*)"', text))):
            file, _, name = link.partition("#")
            target = file or page
            if target not in files or (name and name not in ids.get(target, [])):
                found.append(f"{page}: the link {link} leads nowhere")
    return found
