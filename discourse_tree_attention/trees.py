"""RST constituency trees, as matrices.py needs them; formats.py reads and writes them.

A document is cut into elementary discourse units (EDUs, clauses), which a binary tree joins. In each pair of siblings
at least one is a Nucleus, which matters more; the other one is a Nucleus too, or a Satellite.

Trees may be as deep as a document is long, so nothing here is recursive.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, eq=False, slots=True)  # to compare or hash by value would be recursive
class Node:
    """A node of a binary RST tree. EDUs are counted from 1 and spans are inclusive, as published."""

    first: int
    last: int
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
    """A node over two or more children, made binary.

    Right-branching; but Satellites behind the last Nucleus join it first, the nearest before the others. So each new
    node has a Nucleus and is one, and no Satellite comes to depend on another Satellite.
    """
    last = max((i for i, child in enumerate(children) if child.nucleus), default=0)
    joined = children[last]
    for satellite in children[last + 1 :]:
        joined = Node(joined.first, satellite.last, True, (joined, satellite))
    for sibling in reversed(children[:last]):
        joined = Node(sibling.first, joined.last, True, (sibling, joined))
    return replace(joined, nucleus=nucleus)


def check_tree(tree: Node, where: str = "tree") -> None:
    """ValueError that names `where` and the span at fault, unless a tree is binary and its spans tile EDUs 1 to n."""
    if tree.nucleus is not None or tree.first != 1:
        raise ValueError(f"{where}: a tree has a root without a sibling, and its first EDU is 1, not {tree.first}")
    for node in nodes(tree):
        spans = [(child.first, child.last) for child in node.children]
        nuclei = {child.nucleus for child in node.children}
        edges = [edge for span in spans for edge in span]
        is_whole = edges == [node.first, edges[1], edges[1] + 1, node.last] if spans else node.first == node.last
        if not is_whole or None in nuclei or nuclei == {False}:
            what = f"span {node.first}-{node.last} needs two children side by side, one of them a Nucleus"
            raise ValueError(f"{where}: {what}; it has {', '.join(f'{a}-{b}' for a, b in spans) or 'none'}")
