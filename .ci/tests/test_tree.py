"""The pages' scripts, run by V8: tree.js gives what matrices.py gives; where a slider opens."""

import json
import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from py_mini_racer import MiniRacer

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from discourse_tree_attention.matrices import MATRICES
from discourse_tree_attention.trees import Node, nodes

ROLES = [(True, False), (False, True), (True, True)]


@pytest.fixture(scope="module")
def script():
    """Function from a name and arguments to what the scripts' function of that name returns."""
    v8 = MiniRacer()
    for name in ("tree.js", "pages.js"):
        v8.eval((ROOT / ".ci/pages" / name).read_text(encoding="utf-8"))

    def call(name, *given):
        arguments = ", ".join(map(json.dumps, given))
        return json.loads(v8.eval(f"JSON.stringify({name}({arguments}))"))

    return call


def random_tree(rng, start, end, nucleus=None):
    if end == start + 1:
        return Node(start, end, nucleus)
    cut, (left, right) = rng.randrange(start + 1, end), rng.choice(ROLES)
    children = random_tree(rng, start, cut, left), random_tree(rng, cut, end, right)
    return Node(start, end, nucleus, children)


def plain(node):
    children = [plain(child) for child in node.children]
    return {"start": node.start, "end": node.end, "nucleus": node.nucleus, "children": children}


@pytest.mark.parametrize("number", range(50))
def test_fifty_trees_have_the_matrices_of_the_package(script, number):
    rng = random.Random(number)
    tree = random_tree(rng, 0, rng.randint(1, 12))
    for name, matrix in zip(("D-Tree", "C-Tree", "C-Tree w/Nuc"), MATRICES.values(), strict=True):
        np.testing.assert_allclose(script("matrices", plain(tree))[name], matrix(tree), atol=1e-6)
    assert list(MATRICES) == ["d_tree", "c_tree", "c_tree_nuclearity"]


def test_an_exchange_changes_the_roles_of_one_pair_and_comes_back_after_three(script):
    tree = plain(random_tree(random.Random(3), 0, 7))
    place = [bool(node.children) for node in nodes(random_tree(random.Random(3), 0, 7))].index(True)
    before = script("(t => nodes(t).map(n => n.nucleus))", tree)
    seen, exchanged = [], f"((t) => exchange(t, nodes(t)[{place}]))"
    for _ in range(3):
        tree = script(exchanged, tree)
        seen.append(script("(t => nodes(t).map(n => n.nucleus))", tree))
    assert seen[2] == before
    assert {(roles[place - 2], roles[place - 1]) for roles in seen} == set(ROLES)
    for roles in seen:
        del roles[place - 2 : place]
    assert seen[0] == seen[1] == seen[2]  # all the others


def test_the_picture_shows_the_numbers_the_roles_and_the_text_as_text(script):
    tree = Node(0, 2, None, (Node(0, 1, True), Node(1, 2, False)))
    html = script("picture", plain(tree), ["it rained", "<b>as</b> said"])
    numbers = "1.00 0.00 1.00 0.00 0.67 0.33 0.33 0.67 0.75 0.25 0.33 0.67".split()
    assert re.findall(r"<td [^>]*>([\d.]+)</td>", html) == numbers
    assert re.findall(r">([NS])</text>", html) == ["N", "S"]
    assert "<b>" not in html and "2  &#60;b&#62;as" in html


def test_a_slider_opens_where_most_has_changed(script):
    columns = [[0, 0.2, 0.2], [0, 0.3, 0.1], [0, 1, 0], [0, 0, 1], [0, 0.9, 0]]
    assert script("farthest", columns) == 3
    assert script("farthest", [[0.5, 0.5], [0, 1], [1, 0], [0.5, 0.6]]) == 2
