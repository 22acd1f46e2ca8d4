"""Discourse trees as RST-DT and GUM publish them, .dis: a file or its text to a `Node`. It needs Python alone."""

import os
import re
from collections.abc import Callable, Sequence
from os.path import commonprefix
from pathlib import Path

from .trees import Node, check_tree, join

ROLES = {"Root": None, "Nucleus": True, "Satellite": False}
DIS_TOKEN = re.compile(r"//TT_ERR|[()]|_!.*?_!|[^\s()]+", re.DOTALL)


def read_tree(path: str | os.PathLike) -> Node:
    """Read a .dis file; ValueError that names the file and the line where it is none."""
    return read_dis(read_text(Path(path)), str(path))


def read_text(path: Path) -> str:
    """The text of a file; ValueError that names it where it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}: convert it first") from None


# ( Root (span 1 2) ( Nucleus (leaf 1) (rel2par span) (text _!..._!) ) ( Satellite ... ) )


def read_dis(text: str, where: str = "tree") -> Node:
    """Read .dis; more than two children are made binary (`trees.join`). ValueError names `where` and the line."""
    stack: list[list] = [[]]  # what each open bracket has held so far
    line, end = 1, 0
    for match in DIS_TOKEN.finditer(text):
        token, line, end = match[0], line + text.count("\n", end, match.start()), match.start()
        if token == "(":
            stack.append([])
        elif token == ")" and len(stack) > 1:
            item = dis_item(stack.pop(), f"{where}:{line}")
            stack[-1].append(item)
        elif token != "//TT_ERR":
            stack[-1].append(token)
    if len(stack) > 1:
        raise ValueError(f"{where}:{line}: {len(stack) - 1} brackets are still open at the end: is the file cut?")
    if len(stack[0]) != 1 or not isinstance(stack[0][0], Node):
        raise ValueError(f"{where}:{line}: one tree '( Root ... )' is needed and nothing else: is the file cut?")
    check_tree(stack[0][0], where)
    return stack[0][0]


def dis_item(items: list, place: str) -> Node | tuple[str, object]:
    """What stood in one pair of brackets: a node, or a property of one as (name, value)."""
    match items:
        case ["span", str(first), str(last)] if (first + last).isdecimal():
            return "span", (int(first), int(last))
        case ["leaf", str(number)] if number.isdecimal():
            return "span", (int(number), int(number))
        case ["rel2par", str(relation)]:
            return "relation", relation  # which nothing here reads
        case ["text", str(text)] if text[:2] == text[2:][-2:] == "_!":
            return "text", clean(text[2:-2])
        case [str(role), *parts] if role in ROLES and not any(isinstance(part, str) for part in parts):
            properties = dict(part for part in parts if isinstance(part, tuple))
            children = [part for part in parts if isinstance(part, Node)]
            first, last = properties.get("span", (0, 0))
            node = Node(first, last, ROLES[role], tuple(children), properties.get("text"))
            if len(children) > 1:
                node = join(children, ROLES[role])
            if (node.first, node.last) == (first, last):
                return node
            raise ValueError(f"{place}: span {first}-{last} has children that cover {node.first}-{node.last}")
    said = " ".join(item if isinstance(item, str) else "(...)" for item in items)
    raise ValueError(f"{place}: '( {said[:60]} )' is no node (Root, Nucleus, Satellite), span, leaf, rel2par or text")


def clean(text: str) -> str:
    """The text of an EDU on one line, without the mark that RST-DT puts at the end of a paragraph."""
    return " ".join(text.strip().removesuffix("<P>").split())


# EDUs and the text that they are of


def letters(text: str) -> str:
    """A text without its blanks, so that tokenised and plain text of the same words are equal."""
    return "".join(text.split())


def check_same_text(edus: Sequence[str], text: Sequence[str], where: str, form: Callable[[str], str] = letters) -> None:
    """ValueError that names the first place where EDUs and text differ in `form`."""
    one, other = form(" ".join(edus)), form(" ".join(text))
    if one != other:
        same = len(commonprefix([one, other]))
        part = slice(max(0, same - 20), same + 20)
        places = f"{one[part]!r} in the EDUs, {other[part]!r} in the text"
        raise ValueError(f"{where}: EDUs and text are not the same: {places}; give the text of the tree")
