"""Trees of the toy corpus tile the stories; their nuclei lead to the salient sentences."""

import pytest

pytest.importorskip("shared")

from shared.toy import SOURCES

from ..loading import load
from ..text import sentence_of_edus
from ..toy_trees import toy_tree
from ..trees import leaves, nodes, read_dis

CORPORA = [
    "toy:signal=0,count=60",
    "toy:count=60,seed=7,repetition=0.6",
    "toy:count=20,min_sentences=40,max_sentences=40,min_facts=4,max_facts=4,other_facts=6,repetition=1",
]


def promoted(node):
    """The EDUs that nuclei alone lead to."""
    if not node.children:
        return [node]
    return [edu for child in node.children if child.nucleus for edu in promoted(child)]


@pytest.mark.parametrize("data", CORPORA)
def test_nuclei_lead_to_the_salient_sentences_and_each_sentence_is_a_subtree(data):
    roles = set()  # over two sentences or more, of which none is salient
    for example in load(data, "test"):
        tree = read_dis(example.tree)
        edus = [leaf.text for leaf in leaves(tree)]
        # which checks the text, too
        sentence = sentence_of_edus(edus, example.document, example.id)
        assert sentence.max() + 1 == len(example.document)
        assert [sentence[edu.start] for edu in promoted(tree)] == [
            i for i, s in enumerate(example.salient) if s
        ]
        # the fact, not its source
        assert all(edu.text.split()[-2:] != ["confirmed", "."] for edu in promoted(tree))
        for node in nodes(tree):
            inside = sentence[node.start : node.end]
            if len({*inside}) > 1 and not any(example.salient[i] for i in inside):
                roles.add(tuple(child.nucleus for child in node.children))
        spans = {(node.start, node.end) for node in nodes(tree)}
        for i in range(len(example.document)):
            places = [place for place, own in enumerate(sentence) if own == i]
            assert (places[0], places[-1] + 1) in spans and len(places) <= 3
            [top] = [
                node
                for node in nodes(tree)
                if (node.start, node.end) == (places[0], places[-1] + 1)
            ]
            said = [
                edu
                for edu in leaves(top)
                if edu.text.split()[0] not in (*SOURCES, "because", "while")
            ]
            # a source and a reason are Satellites, what follows "and" is a Nucleus
            assert promoted(top) == said
    assert roles == {(True, True), (True, False), (False, True)}


def test_trees_depend_on_the_seed_and_come_with_toy_alone(tmp_path):
    assert load("toy:seed=1", "test", 2)[0].tree != load("toy", "test", 2)[0].tree
    story = load("toy:signal=0,seed=3", "test", 1)[0]
    assert story.tree == toy_tree(story, 3) != toy_tree(story, 0)
    (tmp_path / "own.jsonl").write_text('{"source": "a b .", "target": "a"}\n')
    assert load(tmp_path / "own.jsonl")[0].tree is None
