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
from ..text import Document, positive_weight
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


def test_d12_its_training_weighs_as_the_package_does(monkeypatch):
    """The weight of the units that summaries take, of all texts of the training."""
    seen, loss = [], one.extraction_loss
    monkeypatch.setattr(one, "extraction_loss", lambda *args: seen.append(args[2]) or loss(*args))
    data = one.documents(5, one.by_part)
    one.train("none", one.d_tree, data, updates=1)
    documents = [Document("d", [], None, [], [], labels=label.numpy()) for label in data.labels]
    assert seen[0].item() == pytest.approx(positive_weight(documents))


CONSTANTS = {
    "seed = 0": "seed = 1",
    "N, D, K, INNER, LAYERS = 8, 32, 32, 64, 2": [
        "N, D, K, INNER, LAYERS = 2, 32, 32, 64, 2",
        "N, D, K, INNER, LAYERS = 13, 2, 5, 1, 3",
        "N, D, K, INNER, LAYERS = 8, 33, 32, 64, 2",
        "N, D, K, INNER, LAYERS = 1, 32, 32, 64, 2",
        "N, D, K, INNER, LAYERS = 8, 32, 0, 64, 2",
        "N, D, K, INNER, LAYERS = 8, 32, 32, 64, 0",
    ],
    "UPDATES, TRAINING, TEST = 400, 1000, 400": [
        "UPDATES, TRAINING, TEST = 1, 3, 1",
        "UPDATES, TRAINING, TEST = 2, 8, 0",
    ],
    '"fire flood storm riot crash theft"': ['"fire"', '""', '"fire fire"', '"fire regatta"'],
    '"market parade concert picnic harvest festival wedding regatta"': ['"market"', '""'],
    '"Oslo Lima Rome Kyiv Bonn Cork Nice Bath"': ['"Oslo Ulm"', '" "'],
}
REFUSED = {
    " 33, ",
    "= 1, 32",
    " 0, 64",
    " 64, 0",
    " 8, 0",
    '""',
    '" "',
    "fire fire",
    "fire regatta",
}
CHANGES = [(old, new) for old, news in CONSTANTS.items() for new in np.atleast_1d(news).tolist()]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_another_constant_works_or_is_refused(old, new, capsys):
    """Each constant at the top, by itself, with two updates of a few texts."""
    source = Path(one.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    source = source.replace(old, new).replace("= 400, 1000, 400", "= 2, 8, 4")
    values = {"__name__": "changed"}
    if any(part in new for part in REFUSED):
        with pytest.raises(SystemExit, match="N is 2 or more|each list holds a word"):
            exec(compile(source, "one.py", "exec"), values)
        return
    exec(compile(source, "one.py", "exec"), values)
    values["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    width, inner, key, layers = (values[name] for name in ("D", "INNER", "K", "LAYERS"))
    attention = layers * (2 * width * key + width + key)
    rest = layers * (2 * width * inner + inner + width + 4 * width) + 100 * width + 201
    assert lines[1].split()[-2:] == [f"{attention:,}", f"{attention + rest:,}"]
    assert lines[6].split()[-2] == f"{attention + layers * 2 * (width + 1) * key:,}"


def test_it_prints_what_it_computes(capsys, monkeypatch):
    """Each row has its own system's numbers, on texts that it was not trained on.

    The last lines have the greatest of those that do not see the tree.
    """
    monkeypatch.setattr(one, "TRAINING", 3)
    monkeypatch.setattr(one, "TEST", 2)
    trained, values = [], iter([90, 11, 80, 92, 70, 93, 20, 31, 24, 35, 25, 34, 23, 33])

    def train(kind, matrix_of, data):
        trained.append((kind, matrix_of, data))
        return one.Summarizer(kind)

    def found(model, matrix_of, data):
        old = trained[-2 + len(seen) % 2][2]
        seen.append((matrix_of, len(data.trees), len(old.trees)))
        assert data.units.shape[1:] == (one.N, one.D)
        assert not any((data.units[i] == units).all() for i in range(2) for units in old.units)
        return next(values)

    seen = []
    monkeypatch.setattr(one, "train", train)
    monkeypatch.setattr(one, "found", found)
    one.main()
    lines = capsys.readouterr().out.splitlines()
    systems = list(one.SYSTEMS.values())
    assert [case[:2] for case in trained] == [system for system in systems for _ in range(2)]
    assert seen == [(system.matrix_of, 2, 3) for system in systems for _ in range(2)]
    # by_part alone has but one run of clauses in a summary
    runs = [(data.labels.int().diff(dim=1) != 0).sum(1).max() for _, _, data in trained]
    assert all(run == 1 for run in runs[1::2])
    rows = [line[30:].split()[:2] for line in lines[1:8]]
    assert rows == [[str(a), str(b)] for a, b in ((90, 11), (80, 92), (70, 93), (20, 31), (24, 35),
                                                  (25, 34), (23, 33))]  # fmt: skip
    assert lines[8:10] == [
        "D-Tree finds 90, learned (dot product), the next, 25",
        "C-Tree w/Nuc finds 93, other text's C-Tree, the next, 35",
    ]


def test_found_counts_clauses_of_summaries(monkeypatch):
    """Of three clauses that two summaries take two are among the best as many."""
    labels = torch.zeros(2, one.N, dtype=torch.bool)
    labels[0, :2] = labels[1, 3] = True
    scores = torch.zeros(2, one.N)
    scores[0, 1], scores[0, 5], scores[1, 3] = 1.0, 2.0, 1.0
    data = one.Documents([one.Node(0, one.N)] * 2, torch.zeros(2, one.N, one.D), labels)
    model = lambda units, matrices: scores  # noqa: E731
    assert one.found(model, one.c_tree, data) == pytest.approx(200 / 3)


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
    names, parent, part, parameters, _ = zip(*table, strict=True)
    assert names == tuple(one.SYSTEMS) and len(lines) == 11
    assert parent[0] > 95 and parent[0] > max(parent[1:]) + 15  # D-Tree
    assert min(part[1:3]) > 95 and min(part[1:3]) > max(part[0], *part[3:]) + 7  # the C-Trees
    assert parameters[5] == 2 * parameters[0]
