"""Whole HTML documents for page.py: their head and style, the front page, and what a check of all
of them finds.
"""

import re
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
    text = (
        f"<!doctype html>\n<html "
        f'lang="en"><head>{head}</head>\n<body>\n{body}\n{script}</body></html>\n'
    )
    path.write_text(text, encoding="utf-8")


def nav(links: dict[str, str]) -> str:
    """Links from a page's head: address -> words."""
    made = "".join(f'<a href="{address}">{words}</a>' for address, words in links.items())
    return f'<nav aria-label="Parts"><a href="index.html">All papers</a>{made}</nav>'


def parts(head: str, sections: dict[str, str], marks: list[str], lesson: str) -> str:
    """A body: links to its sections (title -> HTML) and the lesson, the head, links to its
    equations and files.
    """
    ids = {title: re.sub(r"\W+", "-", title.lower()) for title, part in sections.items() if part}
    marked = f'<nav class="marks" aria-label="Equations and files">{"".join(marks)}</nav>'
    body = "".join(
        f'<section id="{name}"><h2>{title}</h2>{sections[title]}</section>\n'
        for title, name in ids.items()
    )
    links = {f"#{name}": title for title, name in ids.items()} | {lesson: "The lesson"}
    return f"{nav(links)}<main>{head}{marked}\n{body}</main>"


def write_index(readme: Path, out: Path, packages: list[str]) -> None:
    """Write the front page: README.md up to its first section, what is learned, and a card for each
    paper.
    """
    text = (
        readme.read_text(encoding="utf-8").partition("\n## ")[0]
        if readme.exists()
        else "# Papers\n"
    )
    # the cards have the pictures
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n\n(\*[^*]+\*\n)?", "", text)
    head, cards = Markup([], set()).text(re.sub(r"\b(\w+)/README\.md", r"\1.html", text)), ""
    for name in sorted(packages, key=text.find, reverse=True):  # the first one of README.md stays
        page = (out / f"{name}.html").read_text(encoding="utf-8")
        title, picture = re.search("<h1>(.*?)</h1>", page, re.S), re.search("<img[^>]*>", page)
        learned = re.search('<div class="learn">.*?</figure></div>', page, re.S)
        cards = (
            f'<li><a href="{name}.html">{title[1]}{picture[0] if picture else ""}</a></li>{cards}'
        )
    head = head.replace("</h1>", f"</h1>{learned[0] if learned else ''}", 1)
    write(out / "index.html", "The papers", f'<main>{head}<ul class="cards">{cards}</ul></main>')


def problems(folder: Path) -> list[str]:
    """Links that lead nowhere, ids that stand twice, pictures without words, and anything from
    elsewhere.
    """
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.html"))}
    files = {path.name for path in folder.iterdir()}
    ids = {page: re.findall(r'\sid="([^"]+)"', text) for page, text in pages.items()}
    found = []
    for page, text in pages.items():
        wrong = [
            f"the id {name} stands twice" for name in set(ids[page]) if ids[page].count(name) > 1
        ]
        wrong += [
            f"a picture without words: {tag}"
            for tag in re.findall(r'<img(?![^>]*alt="[^"]+)[^>]*>', text)
        ]
        wrong += [
            f"{tag} is no part of a static page"
            for tag in re.findall(r'<script[^>]*src|src="\w+:', text)
        ]
        for link in set(re.findall(r'(?:href|src)="(?!https?:)([^"]*)"', text)):
            file, _, name = link.partition("#")
            if (file or page) not in files or (name and name not in ids.get(file or page, ())):
                wrong.append(f"the link {link} leads nowhere")
        found += [f"{page}: {problem}" for problem in wrong]
    return found
