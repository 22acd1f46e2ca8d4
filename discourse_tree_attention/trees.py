"""RST constituency trees: reading them as they are published, writing, checking.

A document is cut into elementary discourse units (EDUs, clauses), which a binary tree joins. In each pair of siblings
at least one is a Nucleus, which matters more; the other one is a Nucleus too, or a Satellite.

Trees may be as deep as a document is long, so nothing here is recursive.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

ROLES = {"Root": None, "Nucleus": True, "Satellite": False}
NUCLEARITY = {"Nucleus": True, "N": True, "Satellite": False, "S": False}
KINDS = ("rst", "multinuc")  # of relations in .rs3
DIS_TOKEN = re.compile(r"//TT_ERR|[()]|_!.*?_!|_!|[^\s()]+", re.DOTALL)


@dataclass(frozen=True)
class Node:
    """A node of a binary RST tree. EDUs are counted from 1 and spans are inclusive, as published."""

    first: int
    last: int
    nucleus: bool | None  # True Nucleus, False Satellite, None root
    relation: str = "span"  # to its sibling; "span" for the Nucleus beside a Satellite
    children: tuple["Node", ...] = field(default=(), repr=False)  # none (leaf) or two
    text: str | None = None  # of a leaf; None where the format has none

    def __eq__(self, other: object) -> bool:
        # What a dataclass brings is recursive. Post-order with the number of children determines a tree.
        if not isinstance(other, Node):
            return NotImplemented
        return [_own(node) for node in nodes(self)] == [_own(node) for node in nodes(other)]

    def __hash__(self) -> int:
        return hash(_own(self))


def _own(node: Node) -> tuple:
    """All of a node but its children themselves."""
    return node.first, node.last, node.nucleus, node.relation, len(node.children), node.text


def nodes(node: Node) -> Iterator[Node]:
    """All nodes, children before their parent, left before right."""
    stack, found = [node], []
    while stack:
        found.append(stack.pop())
        stack.extend(found[-1].children)
    return reversed(found)


def leaves(node: Node) -> list[Node]:
    """The EDUs from left to right."""
    return [below for below in nodes(node) if not below.children]


def read_tree(path: str | os.PathLike) -> Node:
    """Read a tree from a file by its suffix: .dis, .rs3, .json or .brackets.

    Raises:
        ValueError: no such format, no UTF-8, or no sound tree; names the file and the place.
    """
    readers = {".dis": read_dis, ".rs3": read_rs3, ".json": read_brackets, ".brackets": read_brackets}
    path = Path(path)
    if path.suffix not in readers:
        raise ValueError(f"{path}: no tree format {path.suffix!r}; use {', '.join(readers)}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}: convert it first") from None
    return readers[path.suffix](text, str(path))


def validate(node: Node, where: str = "tree") -> None:
    """Check that a tree is one: binary, spans tile, nuclearity known, leaves 1 to n.

    Raises:
        ValueError: it is not; names `where` and the span at fault.
    """
    if node.nucleus is not None:
        raise ValueError(f"{where}: the root {_span(node)} is a Nucleus or Satellite, but it has no sibling: use None")
    for below in nodes(node):
        place = f"{where}: span {_span(below)}"
        if not below.children and below.first != below.last:
            raise ValueError(f"{place} has no children but more than one EDU")
        if below.children:
            if len(below.children) != 2:
                raise ValueError(f"{place} has {len(below.children)} children; a binary tree is needed")
            _check_siblings(below.children, place)
            _check_span(below, below.children[0].first, below.children[-1].last, place)
    _check_start(node, where)


def _span(node: Node) -> str:
    return f"{node.first}-{node.last}"


def _check_start(root: Node, where: str) -> None:
    if root.first != 1:
        raise ValueError(f"{where}: the first EDU is {root.first}; EDUs are counted from 1")


def _check_span(node: Node, first: int, last: int, place: str) -> None:
    if (node.first, node.last) != (first, last):
        raise ValueError(f"{place}: its children cover {first}-{last}, not {_span(node)}")


def _check_siblings(children: list[Node] | tuple[Node, ...], place: str) -> None:
    """Siblings follow each other without gap or overlap, and one of them is a Nucleus."""
    for left, right in zip(children, children[1:], strict=False):
        if right.first <= left.last:
            raise ValueError(f"{place}: its children {_span(left)} and {_span(right)} overlap or are out of order")
        if right.first != left.last + 1:
            raise ValueError(
                f"{place}: no child has the EDUs {left.last + 1}-{right.first - 1} between {_span(left)} and "
                f"{_span(right)}"
            )
    for child in children:
        if child.nucleus not in (True, False):
            raise ValueError(f"{place}: the nuclearity of its child {_span(child)} is not known ({child.nucleus!r})")
    if not any(child.nucleus for child in children):
        raise ValueError(f"{place}: none of its children is a Nucleus")


def _join(children: list[Node], nucleus: bool | None, relation: str, place: str) -> Node:
    """An inner node over two or more children, made binary.

    Right-branching; but Satellites behind the last Nucleus join it first, the nearest before the others. So each new
    node has a Nucleus and is one, and no Satellite comes to depend on another Satellite.
    """
    if len(children) < 2:
        raise ValueError(f"{place} has {len(children) or 'no'} child; an inner node has two or more")
    _check_siblings(children, place)
    last = max(i for i, child in enumerate(children) if child.nucleus)
    joined = children[last]
    for satellite in children[last + 1 :]:
        joined = _pair(joined, satellite)
    for sibling in reversed(children[:last]):
        joined = _pair(sibling, joined)
    return replace(joined, nucleus=nucleus, relation=relation)


def _pair(left: Node, right: Node) -> Node:
    """The Nucleus over two siblings. It takes the relation of the Nucleus, which beside a Satellite becomes "span"."""
    relation = right.relation if right.nucleus else left.relation
    if not (left.nucleus and right.nucleus):
        left, right = (replace(node, relation="span") if node.nucleus else node for node in (left, right))
    return Node(left.first, right.last, True, relation, (left, right))


# The .dis format: ( Root (span 1 2) ( Nucleus (leaf 1) (rel2par span) (text _!..._!) ) ( Satellite ... ) )


def read_dis(text: str, where: str = "tree") -> Node:
    """Read the .dis format of RST-DT and GUM; nodes with more than two children are made binary (`_join`).

    Raises:
        ValueError: the text is cut or is no tree; names `where` and the line.
    """
    stack: list[tuple[int, list]] = []  # where a bracket opened, and what it has held so far
    root, line, end = None, 1, 0
    for match in DIS_TOKEN.finditer(text):
        token, line, end = match[0], line + text.count("\n", end, match.start()), match.start()
        place = f"{where}:{line}"
        if token == "//TT_ERR":
            continue
        if root is not None:
            raise ValueError(f"{place}: {token[:20]!r} after the end of the tree")
        if token == "_!":
            raise ValueError(f"{place}: a text opens here with _! and does not close: is the file cut?")
        if token == "(":
            stack.append((line, []))
        elif not stack:
            raise ValueError(f"{place}: {token[:20]!r} where the tree should open with '( Root'")
        elif token != ")":
            stack[-1][1].append(token)
        else:
            opened, items = stack.pop()
            item = _dis_item(items, f"{where}:{opened}")
            if stack:
                stack[-1][1].append(item)
            elif not isinstance(item, Node) or item.nucleus is not None:
                raise ValueError(f"{where}:{opened}: the tree does not open with '( Root'")
            else:
                root = item
    if root is None:
        problem = f"{len(stack)} brackets are still open, the last of line {stack[-1][0]}" if stack else "no tree"
        raise ValueError(f"{where}:{line}: {problem} at the end of the text: is the file cut?")
    _check_start(root, where)
    return root


def _dis_item(items: list, place: str) -> Node | tuple[str, object]:
    """What stood in one pair of brackets: a node, or a property of one as (name, value)."""
    match items:
        case ["span", str(first), str(last)] if first.isdecimal() and last.isdecimal():
            return "span", (int(first), int(last))
        case ["leaf", str(number)] if number.isdecimal():
            return "leaf", int(number)
        case ["rel2par", str(relation)]:
            return "relation", relation
        case ["text", str(text)] if text.startswith("_!"):
            return "text", _clean(text[2:-2])
        case [str(role), *parts] if role in ROLES and not any(isinstance(part, str) for part in parts):
            return _dis_node(ROLES[role], parts, place)
    said = " ".join(item if isinstance(item, str) else "(...)" for item in items)
    raise ValueError(
        f"{place}: '( {said[:60]} )' is no node (Root, Nucleus, Satellite) and no span, leaf, rel2par or text of one"
    )


def _clean(text: str) -> str:
    """The text of an EDU on one line, without the mark that RST-DT puts at the end of a paragraph."""
    return " ".join(text.strip().removesuffix("<P>").split())


def _dis_node(nucleus: bool | None, parts: list, place: str) -> Node:
    """A node from its properties and children."""
    properties = dict(part for part in parts if isinstance(part, tuple))
    children = [part for part in parts if isinstance(part, Node)]
    relation = properties.get("relation", "span")
    if "leaf" in properties and "span" not in properties and not children:
        return Node(properties["leaf"], properties["leaf"], nucleus, relation, text=properties.get("text"))
    if "span" not in properties or "leaf" in properties:
        raise ValueError(f"{place}: a node needs a span and children, or is a leaf")
    first, last = properties["span"]
    if any(child.nucleus is None for child in children):
        raise ValueError(f"{place}: span {first}-{last} has a Root inside it")
    node = _join(children, nucleus, relation, f"{place}: span {first}-{last}")
    _check_span(Node(first, last, nucleus), node.first, node.last, f"{place}: span {first}-{last}")
    return node


def write_dis(node: Node) -> str:
    """Write a tree as GUM's .dis files are written; `read_dis` gives it back.

    Raises:
        ValueError: a text has `_!` in it, or something else that `read_dis` would not give back.
    """
    names = {nucleus: role for role, nucleus in ROLES.items()}
    lines, stack = [], [(node, "")]
    while stack:
        below, indent = stack.pop()
        if below is None:
            lines.append(f"{indent})")
            continue
        relation = "" if below.nucleus is None else f"(rel2par {below.relation})"
        head = f"{indent}( {names[below.nucleus]}"
        if below.children:
            lines.append(f"{head} (span {below.first} {below.last}) {relation}")
            stack.append((None, indent))
            stack += [(child, indent + "  ") for child in reversed(below.children)]
            continue
        text = "" if below.text is None else f"(text _!{below.text}_!)"
        if below.text is not None and ("_!" in below.text or _clean(below.text) != below.text):
            raise ValueError(
                f"the text of EDU {below.first} cannot stand in a .dis file: {below.text!r} has _!, a last <P>, or "
                "blanks other than one between two words"
            )
        lines.append(" ".join(part for part in (head, f"(leaf {below.first})", relation, text, ")") if part))
    return "\n".join(lines) + "\n"


# The .rs3 format: <segment id= parent= relname=>text</segment> and <group id= type="span|multinuc" parent= relname=/>


def read_rs3(text: str, where: str = "tree") -> Node:
    """Read the .rs3 format of rstWeb and RSTTool; EDUs are numbered in the order of the file.

    A group "span" stands for its one child with relation "span" together with all Satellites of that child; it needs
    no node of its own. Several Satellites or nuclei are made binary (`_join`).

    Raises:
        ValueError: the text is cut or is no tree; names `where` and the id of the segment or group.
    """
    try:
        document = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"{where}:{error.position[0]}: no well-formed XML ({error}): is the file cut?") from None
    elements = _rs3_elements(document, where)
    below = _rs3_children(elements, where)
    nuclear = _rs3_nuclear(document, elements, below)
    segments = [name for name, element in elements.items() if element.tag == "segment"]
    number = {name: index for index, name in enumerate(segments, 1)}
    whole: dict[str, Node] = {}  # each element with all that hangs on it
    for name in _rs3_order(elements, below, where):
        place, element = f"{where}: {elements[name].tag} {name}", elements[name]
        nuclei, satellites = [], []
        for child in below[name]:
            # In .dis a blank or bracket would end the name of a relation.
            relation = re.sub(r"[\s()]+", "_", elements[child].get("relname", "span")).strip("_")
            node = replace(whole[child], nucleus=child in nuclear, relation=relation)
            (nuclei if node.nucleus else satellites).append(node)
        if element.tag == "segment":
            node = Node(number[name], number[name], None, text=" ".join("".join(element.itertext()).split()))
        elif not nuclei or (len(nuclei) > 1 and element.get("type") != "multinuc"):
            raise ValueError(
                f"{place} of type {element.get('type')!r} has {len(nuclei)} nuclei; a span has one (relname span), a "
                "multinuc two or more (with a relation that the header declares as multinuc)"
            )
        else:
            node = _rs3_join(nuclei, place) if len(nuclei) > 1 else nuclei[0]
        whole[name] = _rs3_join([replace(node, nucleus=True, relation="span"), *satellites], place)
    root = replace(whole[name], nucleus=None, relation="span")  # the root is the last of the order
    _check_start(root, where)
    return root


def _rs3_join(children: list[Node], place: str) -> Node:
    """Siblings in the order of the text, made binary; an only child as it is."""
    children = sorted(children, key=lambda child: child.first)
    return _join(children, True, "span", place) if len(children) > 1 else children[0]


def _rs3_elements(document: ElementTree.Element, where: str) -> dict[str, ElementTree.Element]:
    """Segments and groups by their id."""
    elements: dict[str, ElementTree.Element] = {}
    for element in document.iter():
        if element.tag in ("segment", "group"):
            name = element.get("id")
            if name is None or name in elements:
                problem = "has no id" if name is None else f"has the id {name}, which is taken"
                raise ValueError(f"{where}: {element.tag} number {len(elements) + 1} {problem}")
            if element.tag == "group" and element.get("type") not in ("span", "multinuc"):
                raise ValueError(f"{where}: group {name} is of type {element.get('type')!r}, not span or multinuc")
            elements[name] = element
    return elements


def _rs3_children(elements: dict[str, ElementTree.Element], where: str) -> dict[str, list[str]]:
    """Ids of what hangs on each element, in the order of the file."""
    below: dict[str, list[str]] = {name: [] for name in elements}
    for name, element in elements.items():
        parent = element.get("parent")
        if parent is not None and parent not in elements:
            raise ValueError(f"{where}: {element.tag} {name} hangs on {parent}, which is not there")
        if parent is not None:
            below[parent].append(name)
    return below


def _rs3_nuclear(
    document: ElementTree.Element, elements: dict[str, ElementTree.Element], below: dict[str, list[str]]
) -> set[str]:
    """Ids of all that is a nucleus of the group it hangs on.

    Some corpora have a relation twice, as rst and as multinuc. Nuclei of a group share their relation, so it takes two
    children for the latter.
    """
    kinds = {kind: {rel.get("name") for rel in document.iter("rel") if rel.get("type") == kind} for kind in KINDS}
    found = set()
    for name, children in below.items():
        relations = [elements[child].get("relname", "span") for child in children]
        for child, relation in zip(children, relations, strict=True):
            twice = relation not in kinds["rst"] or relations.count(relation) > 1
            in_multinuc = elements[name].get("type") == "multinuc" and relation in kinds["multinuc"] and twice
            if elements[name].tag == "group" and (relation == "span" or in_multinuc):
                found.add(child)
    return found


def _rs3_order(elements: dict[str, ElementTree.Element], below: dict[str, list[str]], where: str) -> list[str]:
    """All ids, children before parents, the root last."""
    roots = [name for name, element in elements.items() if element.get("parent") is None]
    if len(roots) != 1:
        listed = ", ".join(roots[:5]) or "none"
        raise ValueError(f"{where}: a tree has one element without a parent; here are {len(roots)} ({listed})")
    order = []
    while roots:
        order.append(roots.pop())
        roots.extend(below[order[-1]])
    if len(order) < len(elements):
        lost = next(name for name in elements if name not in set(order))
        raise ValueError(f"{where}: {elements[lost].tag} {lost} does not hang on the root: its parents form a circle")
    return order[::-1]


# The bracket JSON of the paper's code: [[[1, 1], "Nucleus"], [[2, 2], "Satellite"], ...]


def read_brackets(text: str, where: str = "tree") -> Node:
    """Read a JSON list of [[first, last], nuclearity] or [[first, last], nuclearity, relation] in post-order.

    The root is not listed: its children are what is left at the end. A document of one EDU is a list of that EDU, or
    empty. Texts are not part of the format.

    Raises:
        ValueError: no JSON, or no binary tree; names `where` and the item, counted from 1.
    """
    try:
        items = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}:{error.lineno}: no JSON ({error}): is the file cut?") from None
    if not isinstance(items, list):
        raise ValueError(f"{where}: a list of spans is needed, not {type(items).__name__}")
    stack: list[Node] = []
    for number, item in enumerate(items, 1):
        match item:
            case [[int(first), int(last)], str(role), *rest] if role in NUCLEARITY and len(rest) <= 1:
                node = Node(first, last, NUCLEARITY[role], *map(str, rest))
            case _:
                raise ValueError(f"{where}: item {number} is {item!r}, not [[first, last], 'Nucleus' or 'Satellite']")
        place = f"{where}: item {number}, span {_span(node)}"
        if first != last:
            if len(stack) < 2:
                raise ValueError(f"{place}: {len(stack)} nodes stand before it, and it needs two as children")
            right, left = stack.pop(), stack.pop()
            _check_siblings((left, right), place)
            _check_span(node, left.first, right.last, place)
            node = replace(node, children=(left, right))
        stack.append(node)
    if not stack:
        return Node(1, 1, None)
    if len(stack) == 1 and not stack[0].children:
        _check_start(stack[0], where)
        return Node(1, 1, None)
    if len(stack) != 2:
        left_over = ", ".join(_span(node) for node in stack[:5])
        raise ValueError(
            f"{where}: {len(stack)} nodes are left at the end ({left_over}), not the two children of the root, which "
            "itself is not listed: is the list cut?"
        )
    _check_siblings(stack, f"{where}: the root")
    root = Node(stack[0].first, stack[1].last, None, children=tuple(stack))
    _check_start(root, where)
    return root
