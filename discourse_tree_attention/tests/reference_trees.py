"""The trees again, from the paper and slowly: sets of EDUs, loops and recursion.

EDUs are counted from 1 here.
"""

from ..trees import Node


def span(first, last, nucleus=None, children=(), text=None):
    """A node over the EDUs first to last, counted from 1 and inclusive, as in the paper."""
    return Node(first - 1, last, nucleus, tuple(children), text)


def random_tree(rng, edus, first=1, nucleus=None):
    """A tree with random shape and nuclearity; `rng` is a NumPy generator."""
    if edus == 1:
        return span(first, first, nucleus, text=f"unit {first} says ({rng.integers(9)}) ! _")
    cut = int(rng.integers(1, edus))
    roles = [(True, True), (True, False), (False, True)][rng.integers(3)]
    left = random_tree(rng, cut, first, roles[0])
    right = random_tree(rng, edus - cut, first + cut, roles[1])
    return span(first, first + edus - 1, nucleus, (left, right))


def tree_of(spans):
    """The tree of the paper's code's list, "1N 2S 12N ...", in post-order without the root."""
    stack = []
    for first, *last, role in spans.split():
        below = tuple(stack[-2:]) if last else ()
        del stack[len(stack) - len(below) :]
        stack.append(span(int(first), int((last or first)[0]), role == "N", children=below))
    return span(1, stack[-1].end, None, children=tuple(stack))


def chain(edus, right_branching=True):
    """A tree as deep as it is long, whose first EDU is its root; built without recursion."""
    if right_branching:
        tree = span(edus, edus, False, text="w")
        for first in range(edus - 1, 0, -1):
            tree = span(
                first,
                edus,
                None if first == 1 else False,
                (span(first, first, True, text="w"), tree),
            )
        return tree
    tree = span(1, 1, True, text="w")
    for last in range(2, edus + 1):
        tree = span(
            1, last, None if last == edus else True, (tree, span(last, last, False, text="w"))
        )
    return tree


def constituents(node, depth=0):
    """(EDUs, depth, nucleus) of every node."""
    found = [(set(range(node.start + 1, node.end + 1)), depth, node.nucleus)]
    for child in node.children:
        found += constituents(child, depth + 1)
    return found


def level_matrices(tree, nuclearity):
    """Section 4.2 and 4.3: the list of M^L, entry by entry, root level first."""
    all_of_them = constituents(tree)
    matrices = []
    for level in range(max(depth for _, depth, _ in all_of_them) + 1):
        matrix = [[0] * tree.end for _ in range(tree.end)]
        for i in range(tree.end):
            for j in range(tree.end):
                for edus, depth, nucleus in all_of_them:
                    if depth == level and {i + 1, j + 1} <= edus:
                        matrix[i][j] = 2 if nuclearity and nucleus else 1
        matrices.append(matrix)
    return matrices


def row_normalised(matrix):
    return [[value / sum(row) for value in row] for row in matrix]


def head_of(edus, all_of_them):
    """The first EDU of a constituent that is Nucleus all the way up to it."""
    for edu in sorted(edus):
        if all(nucleus for other, _, nucleus in all_of_them if edu in other and other < edus):
            return edu
    raise AssertionError("every constituent has a head")


def hirao(tree):
    """{EDU: parent}, 0 of a root: the head of what its smallest Satellite hangs in."""
    all_of_them = constituents(tree)
    parents = {}
    for edu in range(1, tree.end + 1):
        around = [edus for edus, _, nucleus in all_of_them if edu in edus and nucleus is False]
        parents[edu] = 0
        if around:
            satellite = min(around, key=len)
            parent = min((edus for edus, _, _ in all_of_them if satellite < edus), key=len)
            parents[edu] = head_of(parent, all_of_them)
    return parents


def discobert(tree):
    """{EDU: parent}, 0 of the root: the head of its smallest constituent with another head."""
    heads = {
        frozenset(edus): head_of(edus, constituents(tree)) for edus, _, _ in constituents(tree)
    }
    parents = {}
    for edu in range(1, tree.end + 1):
        other = [edus for edus, head in heads.items() if edu in edus and head != edu]
        parents[edu] = heads[min(other, key=len)] if other else 0
    return parents


def steps_to_root(parents, edu):
    return 0 if parents[edu] == 0 else 1 + steps_to_root(parents, parents[edu])


def edited(parents, sentence):
    """D2 in words: {EDU: parent} with one root in each sentence; `sentence` is {EDU: sentence}."""
    result = dict(parents)
    for name in set(sentence.values()):
        inside = [edu for edu in parents if sentence[edu] == name]
        tops = [edu for edu in inside if parents[edu] not in inside]
        stays = min(tops, key=lambda edu: (steps_to_root(parents, edu), edu))
        for edu in tops:
            if edu != stays:
                result[edu] = stays
    return result


def between_sentences(matrix, sentence, count):
    """Section 4.4, entry by entry: I A I^T. `sentence` is a list, both counted from 0."""
    result = [[0.0] * count for _ in range(count)]
    for i, of_i in enumerate(sentence):
        for j, of_j in enumerate(sentence):
            result[of_i][of_j] += matrix[i][j]
    return result


def needed(parents, sentence, edu):
    """Section 5.1: the ancestors of an EDU within its sentence, recursively."""
    parent = parents[edu]
    if parent == 0 or sentence[parent] != sentence[edu]:
        return []
    return [parent, *needed(parents, sentence, parent)]
