"""one.py is the package's mathematics, and shows the effect."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from .. import matrices, one, selection
from ..model import ModelConfig, Summarizer, extraction_loss
from ..trees import Node, check_tree

SIZES = dict(width=one.D, head_width=one.K, feed_forward=one.INNER, layers=one.LAYERS, dropout=0.0)


def packages_own(tree: one.Node) -> Node:
    """The same tree, made of the package's nodes."""
    return Node(tree.start, tree.end, tree.nucleus, tuple(map(packages_own, tree.children)))


@pytest.mark.parametrize("number", range(20))
def test_the_functions_of_the_idea_are_equal(number):
    random.seed(number)
    small = one.random_tree(0, number + 1)
    large, sentence = packages_own(small), torch.arange(number + 1) // 3
    check_tree(large)
    np.testing.assert_array_equal(one.dependency_parents(small), matrices.dependency_parents(large))
    for name in ("d_tree", "c_tree", "c_tree_nuclearity"):
        one_matrix, matrix = getattr(one, name)(small), getattr(matrices, name)(large)
        np.testing.assert_allclose(one_matrix, matrix, atol=1e-6)
        expected = matrices.sentence_matrix(matrix, sentence.numpy(), number // 3 + 1)
        np.testing.assert_allclose(one.sentence_matrix(one_matrix, sentence), expected, atol=1e-6)
    scores = torch.randn(number + 1).round(decimals=1)  # some are equal
    taken = selection.select(scores, [[]] * (number + 1), 3)
    assert one.select(scores, 3).tolist() == taken


@pytest.mark.parametrize(
    ("kind", "attention"), [("tree", "c_tree"), ("dot", "dot"), ("none", "none")]
)
def test_three_updates_are_equal(kind, attention):
    """Loss, gradients and outputs, before and after each."""
    random.seed(0)
    small, large = one.Summarizer(kind), Summarizer(ModelConfig(attention=attention, **SIZES))
    # there is dropout
    names = {name: name.replace("classifier.2", "classifier.3") for name in small.state_dict()}
    large.load_state_dict({names[name]: weight for name, weight in small.state_dict().items()})
    optimizers = [torch.optim.Adam(model.parameters(), 3e-3) for model in (small, large)]
    keep, weight = torch.ones(16, one.N, dtype=torch.bool), torch.tensor(1.7)
    for _ in range(4):
        trees, units, labels = one.documents(16, one.by_parent)
        matrix = torch.stack([one.c_tree(tree) for tree in trees])
        scores, large_scores = small(units, matrix), large(units, keep, matrix)
        loss = one.extraction_loss(scores, labels.float(), weight)
        large_loss = extraction_loss(large_scores, labels, keep, weight.item())
        torch.testing.assert_close((scores, loss), (large_scores, large_loss), rtol=1e-5, atol=1e-5)
        for optimizer, each in zip(optimizers, (loss, large_loss), strict=True):
            optimizer.zero_grad()
            each.backward()
            optimizer.step()
        own = {names[name]: weight.grad for name, weight in small.named_parameters()}
        expected = {name: weight.grad for name, weight in large.named_parameters()}
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)


def test_it_runs_alone_and_shows_the_effect(tmp_path):
    """Margins: half of the difference over ten seeds."""
    shutil.copy(Path(one.__file__), tmp_path / "paper.py")
    command = [sys.executable, "paper.py"]
    lines = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    table = [
        (line[:30].strip(), *map(float, line[30:].replace(",", "").split())) for line in lines[1:8]
    ]
    names, parent, part, parameters = zip(*table, strict=True)
    assert names == tuple(one.SYSTEMS) and len(lines) == 10 and lines[8].startswith("D-Tree finds ")
    assert parent[0] > 95 and parent[0] > max(parent[1:]) + 15  # D-Tree
    assert min(part[1:3]) > 95 and min(part[1:3]) > max(part[0], *part[3:]) + 7  # the C-Trees
    assert parameters[5] == 2 * parameters[0]
