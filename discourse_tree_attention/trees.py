"""RST constituency trees, as matrices.py needs them, and the published files of them, .dis.

It needs Python alone.

A document is cut into elementary discourse units (EDUs, clauses), which a binary tree joins. In
each pair of siblings at least one is a Nucleus, which matters more; the other one is a Nucleus too,
or a Satellite.

Trees may be as deep as a document is long, so nothing here is recursive.
"""

import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os.path import commonprefix
from pathlib import Path


@dataclass(frozen=True, eq=False)  # to compare or hash by value would be recursive
class Node:
    """A node of a binary RST tree over the EDUs start, ..., end - 1, counted from 0."""

    start: int
    end: int
    nucleus: bool | None  # True Nucleus, False Satellite, None root
    children: tuple["Node", ...] = field(default=(), repr=False)  # none (leaf) or two
    text: str | None = None  # of a leaf; None where the format has none


def nodes(tree: Node) -> Iterator[Node]:
    """All nodes, children before their parent, left before right."""
    stack, order = [tree], []
    while stack:
        order.append(stack.pop())
        stack.extend(order[-1].children)
    return reversed(order)


def leaves(tree: Node) -> list[Node]:
    """The EDUs from left to right."""
    return [node for node in nodes(tree) if not node.children]


def join(children: Sequence[Node], nucleus: bool | None) -> Node:
    """One node over its children, made binary; over a single child it is that child in its place.

    Right-branching; but Satellites behind the last Nucleus join it first, the nearest before the
    others: so no Satellite comes to depend on another one.
    """
    last = max((i for i, child in enumerate(children) if child.nucleus), default=0)
    joined = children[last]
    for satellite in children[last + 1 :]:
        joined = Node(joined.start, satellite.end, True, (joined, satellite))
    for sibling in reversed(children[:last]):
        joined = Node(sibling.start, joined.end, True, (sibling, joined))
    return replace(joined, nucleus=nucleus)


def check_tree(tree: Node, where: str = "tree") -> None:
    """ValueError unless all nodes are binary and tile the EDUs.

    It names `where`, and the span at fault, counted from 1.
    """
    if tree.nucleus is not None or tree.start:
        raise ValueError(
            f"{where}: a tree has a root without a sibling, and its first EDU is 1, not "
            f"{tree.start + 1}"
        )
    for node in nodes(tree):
        spans = [(child.start, child.end) for child in node.children]
        nuclei = {child.nucleus for child in node.children}
        if spans:
            edges = [edge for span in spans for edge in span]
            is_whole = edges == [node.start, edges[1], edges[1], node.end]
        else:
            is_whole = node.end == node.start + 1
        if not is_whole or None in nuclei or nuclei == {False}:
            found = ", ".join(f"{start + 1}-{end}" for start, end in spans) or "none"
            raise ValueError(
                f"{where}: span {node.start + 1}-{node.end} needs two children side by side, one "
                f"of them a Nucleus; it has {found}"
            )


# .dis, as RST-DT and GUM publish it, where EDUs are counted from 1 and spans are inclusive:
# ( Root (span 1 2) ( Nucleus (leaf 1) (rel2par span) (text _!..._!) ) ( Satellite ... ) )

ROLES = {"Root": None, "Nucleus": True, "Satellite": False}
TOKEN = re.compile(r"//TT_ERR|[()]|_!.*?_!|[^\s()]+", re.DOTALL)
IGNORED = ("//TT_ERR", "\x1a")  # RST-DT's own mark of an error; the end of a file under DOS


def read_tree(path: str | os.PathLike) -> Node:
    """Read a .dis file; ValueError that names the file and the line where it is none."""
    return read_dis(read_text(Path(path)), str(path))


def read_text(path: Path) -> str:
    """The text of a file; ValueError that names it where it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}: convert it first") from None


def read_dis(text: str, where: str = "tree") -> Node:
    """The tree of a .dis text; nodes of more than two children are made binary.

    ValueError names `where` and line.
    """
    stack: list[list] = [[]]  # what each open bracket has held so far
    line, end = 1, 0
    for match in TOKEN.finditer(text):
        token = match[0]
        line += text.count("\n", end, match.start())
        end = match.start()
        if token == "(":
            stack.append([])
        elif token == ")" and len(stack) > 1:
            item = dis_item(stack.pop(), f"{where}:{line}")
            stack[-1].append(item)
        elif token not in IGNORED:
            stack[-1].append(token)
    tree = stack[0][0] if len(stack) == 1 == len(stack[0]) else None
    if not isinstance(tree, Node):
        raise ValueError(
            f"{where}:{line}: one whole tree '( Root ... )' is needed and nothing else: is the "
            f"file cut?"
        )
    check_tree(tree, where)
    return tree


def dis_item(items: list, place: str) -> Node | tuple[str, object]:
    """What stood in one pair of brackets: a node, or a property of one as (name, value)."""
    match items:
        case ["span", str(first), str(last)] if (first + last).isdecimal():
            return "span", (int(first) - 1, int(last))
        case ["leaf", str(number)] if number.isdecimal():
            return "span", (int(number) - 1, int(number))
        case ["rel2par", *relation] if all(isinstance(word, str) for word in relation):
            return "relation", relation  # which nothing here reads
        case ["text", str(text)] if text[:2] == text[2:][-2:] == "_!":
            return "text", clean(text[2:-2])
        case [str(role), *parts] if role in ROLES and not any(isinstance(p, str) for p in parts):
            properties = dict(part for part in parts if isinstance(part, tuple))
            children = [part for part in parts if isinstance(part, Node)]
            if children:
                node = join(children, ROLES[role])
            else:
                node = Node(0, 0, ROLES[role], text=properties.get("text"))
            # `check_tree` compares the span with the children's.
            start, end = properties.get("span", (node.start, node.end))
            return replace(node, start=start, end=end)
    said = " ".join(item if isinstance(item, str) else "(...)" for item in items)
    raise ValueError(
        f"{place}: '( {said[:60]} )' is no node (Root, Nucleus, Satellite), span, leaf, rel2par or "
        f"text"
    )


def write_dis(tree: Node) -> str:
    """A tree as .dis text, without relations, a node a line."""
    roles, texts = {nucleus: role for role, nucleus in ROLES.items()}, {}
    for node in nodes(tree):
        if node.children:
            inside = f"(span {node.start + 1} {node.end})\n"
            inside += "".join(texts.pop(child) for child in node.children)
        else:
            inside = f"(leaf {node.end}) (text _!{node.text}_!) "
        texts[node] = f"( {roles[node.nucleus]} {inside})\n"
    return texts[tree]


def clean(text: str) -> str:
    """The text of an EDU on one line, without RST-DT's mark of the end of a paragraph."""
    return unicodedata.normalize("NFC", " ".join(text.strip().removesuffix("<P>").split()))


def letters(text: str) -> str:
    """A text without its blanks, so that tokenised and plain text of the same words are equal."""
    return "".join(text.split())


def check_same_text(
    edus: Sequence[str], text: Sequence[str], where: str, form: Callable[[str], str] = letters
) -> None:
    """ValueError that names the first place where EDUs and text differ in `form`."""
    one, other = form(" ".join(edus)), form(" ".join(text))
    if one != other:
        same = len(commonprefix([one, other]))
        part = slice(max(0, same - 20), same + 20)
        places = f"{one[part]!r} in the EDUs, {other[part]!r} in the text"
        raise ValueError(
            f"{where}: EDUs and text are not the same: {places}; give the text of the tree"
        )
