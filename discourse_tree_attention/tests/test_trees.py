"""Reading, writing and checking of trees: literal files in each format, round trips, and what must be refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ..trees import Node, leaves, nodes, read_brackets, read_dis, read_rs3, read_tree, validate, write_dis
from .reference_trees import GUM, brackets, chain, random_tree, rs3

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
RST_WEB = """<rst>
  <header><relations>
    <rel name="elaboration" type="rst"/> <rel name="restatement" type="rst"/> <rel name="background" type="rst"/>
    <rel name="joint" type="multinuc"/> <rel name="restatement" type="multinuc"/>
  </relations></header>
  <body>
    <segment id="1" parent="2" relname="background">Before it ,</segment>
    <segment id="2" parent="10" relname="span">two &amp; two</segment>
    <segment id="3" parent="2" relname="elaboration">make
      four ,</segment>
    <segment id="4" parent="2" relname="elaboration">they say .</segment>
    <segment id="5" parent="11" relname="joint">This is so .</segment>
    <segment id="6" parent="11" relname="joint">That is so .</segment>
    <segment id="7" parent="11" relname="restatement">All is so .</segment>
    <group id="10" type="span" parent="12" relname="span"/>
    <group id="11" type="multinuc" parent="10" relname="elaboration"/>
    <group id="12" type="span"/>
  </body>
</rst>
"""


def shape(node):
    """A tree on one line: EDUs with N or S in front, brackets around siblings."""
    inside = " ".join(shape(child) for child in node.children) if node.children else str(node.first)
    return {True: "N", False: "S", None: ""}[node.nucleus] + (f"({inside})" if node.children else inside)


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
    validate(tree)


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
    validate(tree)
    assert all(node.relation == ("r" if node.nucleus is False else "span") for node in nodes(tree)) or "S" not in roles


def test_limit_one_edu():
    tree = Node(1, 1, None, text="Alone .")
    assert read_dis("( Root (leaf 1) (text _!Alone ._!) )") == tree
    assert read_dis(write_dis(tree)) == tree
    assert read_rs3('<rst><body><segment id="7">Alone .</segment></body></rst>') == tree
    assert read_brackets("[]") == read_brackets('[[[1, 1], "Nucleus"]]') == Node(1, 1, None)
    validate(tree)


def test_rs3_of_rst_web():
    tree = read_rs3(RST_WEB)
    validate(tree)
    # Satellites on both sides, nearest first. "restatement" is of both types: alone in its group it is a Satellite.
    assert shape(tree) == "(N(S1 N(N(N2 S3) S4)) S(N(N5 N6) S7))"
    assert [leaf.text for leaf in leaves(tree)][1:4] == ["two & two", "make four ,", "they say ."]
    assert [leaf.relation for leaf in leaves(tree)] == [
        "background", "span", "elaboration", "elaboration", "joint", "joint", "restatement",
    ]  # fmt: skip
    assert [node.relation for node in nodes(tree) if (node.first, node.last) in ((5, 6), (5, 7))] == [
        "span",
        "elaboration",
    ]


def test_rs3_relation_of_both_types_is_multinuclear_where_two_share_it():
    text = RST_WEB.replace('"joint">', '"restatement">')
    assert shape(read_rs3(text)) == "(N(S1 N(N(N2 S3) S4)) S(N5 N(N6 N7)))"


def test_brackets_of_the_facts_file():
    text = """[[[1,1],"Nucleus"], [[2,2],"Satellite"], [[1,2],"Nucleus"], [[3,3],"Satellite"], [[1,3],"Nucleus"],
        [[4,4],"Nucleus"], [[5,5],"Nucleus"], [[4,5],"Satellite"]]"""
    assert shape(read_brackets(text)) == "(N(N(N1 S2) S3) S(N4 N5))"
    assert read_brackets(text.replace("ucleus", "").replace("atellite", "")) == read_brackets(text)


@pytest.mark.parametrize("seed", range(20))
def test_every_format_gives_back_a_random_tree(seed):
    tree = random_tree(np.random.default_rng(seed), 2 + 2 * seed)
    validate(tree)
    assert read_dis(write_dis(tree)) == tree
    assert read_rs3(rs3(tree)) == tree
    without_text = read_brackets(json.dumps(brackets(tree)))
    assert [replace(node, children=()) for node in nodes(without_text)] == [
        replace(node, children=(), text=None) for node in nodes(tree)
    ]


def test_not_equal_when_one_thing_differs():
    tree = read_dis(GUM_STYLE)
    left, right = tree.children
    others = [
        replace(tree, relation="x"),
        replace(tree, children=(replace(left, text="x"), right)),
        replace(tree, children=(replace(left, nucleus=True), right)),
        replace(tree, children=(left, replace(right, children=right.children[::-1]))),
        replace(tree, children=(left,)),
    ]
    assert all(other != tree for other in others)
    assert tree != "tree"
    assert read_dis(GUM_STYLE) == tree and hash(read_dis(GUM_STYLE)) == hash(tree)


def test_nodes_are_in_post_order():
    spans = [(node.first, node.last) for node in nodes(read_dis(RST_DT))]
    assert spans == [(1, 1), (2, 2), (3, 3), (4, 4), (3, 4), (2, 4), (1, 4), (5, 5), (1, 5)]
    assert [leaf.first for leaf in leaves(read_dis(RST_DT))] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("right_branching", [True, False])
def test_limit_trees_as_deep_as_long(right_branching):
    tree = chain(1500, right_branching)
    validate(tree)
    again = read_dis(write_dis(tree))
    assert again == tree and hash(again) == hash(tree) and len(repr(again)) < 200
    assert read_rs3(rs3(tree)) == tree
    items = [[[n.first, n.last], "N" if n.nucleus else "S", n.relation] for n in nodes(tree)][:-1]
    assert [node.last for node in nodes(read_brackets(json.dumps(items)))] == [node.last for node in nodes(tree)]


@pytest.mark.parametrize("suffix", [".dis", ".rs3", ".json", ".brackets"])
def test_read_tree_goes_by_the_suffix(tmp_path, suffix):
    path = tmp_path / f"wsj_0601.out{suffix}"
    text = {".dis": GUM_STYLE, ".rs3": RST_WEB}.get(suffix, '[[[1, 1], "S"], [[2, 2], "N"]]')
    path.write_text(text, encoding="utf-8")
    assert shape(read_tree(path))[:2] == "(" + {".rs3": "N"}.get(suffix, "S")
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


BRACKETS = '[[[1, 1], "Satellite", "x"], [[2, 2], "Nucleus", "span"]]'


@pytest.mark.parametrize(("reader", "text"), [(read_dis, RST_DT), (read_rs3, RST_WEB), (read_brackets, BRACKETS)])
def test_bad_input_a_file_cut_anywhere(reader, text):
    text = text.removesuffix("\n")
    reader(text)
    for end in range(len(text)):
        with pytest.raises(ValueError, match="^doc 7"):
            reader(text[:end], "doc 7")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (") )//TT_ERR\n)", ") )", r"doc:10: 1 brackets are still open, the last of line 1 at the end.*cut"),
        ("_!(they fell)<P>_!", "_!(they fell)<P>", r"doc:6: '\( text _!\(they fell\)<P>"),
        (
            "Nucleus (leaf 1)",
            "Nucleous (leaf 1)",
            r"doc:3: '\( Nucleous \(\.\.\.\).*no node \(Root, Nucleus, Satellite",
        ),
        ("(leaf 1)", "(leaf one)", r"doc:3: '\( leaf one \)' is no node"),
        ("(span 1 4)", "(span 1 3)", r"doc:2: span 1-3: its children cover 1-4, not 1-3"),
        ("(leaf 2)", "(leaf 1)", r"doc:2: span 1-4: its children 1-1 and 1-1 overlap"),
        ("(leaf 5)", "(leaf 6)", r"doc:1: span 1-5: no child has the EDUs 5-5 between 1-4 and 6-6"),
        ("Nucleus (leaf 3)", "Satellite (leaf 3)", r"doc:5: span 3-4: none of its children is a Nucleus"),
        ("Nucleus (leaf 1)", "Root (leaf 1)", r"doc:2: span 1-4 has a Root inside it"),
        ("( Root", "( Nucleus", r"doc:1: the tree does not open with '\( Root'"),
        ("( Root", "x ( Root", r"doc:1: 'x' where the tree should open"),
        (") )//TT_ERR", ") )\n)\n", r"doc:13: '\)' after the end of the tree"),
        ("(leaf 1)", "(leaf 1) (span 1 2)", r"doc:3: a node needs a span and children, or is a leaf"),
        ("(span 1 4)", "", r"doc:2: a node needs a span and children, or is a leaf"),
        ("(leaf 5)", "(span 5 5)", r"doc:10: span 5-5 has no child; an inner node has two or more"),
    ],
)
def test_bad_input_dis(old, new, message):
    assert RST_DT.count(old) == 1
    with pytest.raises(ValueError, match="^" + message):
        read_dis(RST_DT.replace(old, new), "doc")


def test_bad_input_dis_numbers_from_one_and_is_something():
    with pytest.raises(ValueError, match="^doc: the first EDU is 2; EDUs are counted from 1"):
        read_dis("( Root (leaf 2) (text _!w_!) )", "doc")
    with pytest.raises(ValueError, match="^doc:1: no tree at the end of the text: is the file cut"):
        read_dis("", "doc")
    for text in ("a _! b", "a <P>", "a  b", " a", "a\nb"):
        with pytest.raises(ValueError, match="text of EDU 1 cannot stand in a .dis file"):
            write_dis(Node(1, 1, None, text=text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id="7" parent="11"', 'id="7" parent="99"', "segment 7 hangs on 99, which is not there"),
        ('id="7"', 'id="6"', "segment number 7 has the id 6, which is taken"),
        ('id="7" ', "", "segment number 7 has no id"),
        ('<group id="12" type="span"/>', "", "group 10 hangs on 12, which is not there"),
        (
            'type="multinuc" parent="10"',
            'type="schema" parent="10"',
            "group 11 is of type 'schema', not span or multinuc",
        ),
        ('type="multinuc" parent="10" relname="elaboration"', 'type="multinuc"', r"here are 2 \(11, 12\)"),
        ('<group id="12" type="span"/>', '<group id="12" type="span" parent="10" relname="span"/>', "are 0 .none"),
        ('id="5" parent="11"', 'id="5" parent="5"', "segment 5 does not hang on the root: its parents form a circle"),
        (
            'type="multinuc" parent="10"',
            'type="span" parent="10"',
            "group 11 of type 'span' has 0 nuclei; a span has one",
        ),
        (
            'id="3" parent="2" relname="elaboration"',
            'id="3" parent="10" relname="span"',
            "segment 2: no child has the EDUs 3-3 between",
        ),
        (
            'type="multinuc" parent="10" relname="elaboration"',
            'type="multinuc" parent="10" relname="span"',
            "group 10 of type 'span' has 2 nuclei; a span has one",
        ),
        ('<rel name="joint" type="multinuc"/>', "", "group 11 of type 'multinuc' has 0 nuclei.*declare"),
    ],
)
def test_bad_input_rs3(old, new, message):
    assert RST_WEB.count(old) == 1
    with pytest.raises(ValueError, match=f"^doc: .*{message}"):
        read_rs3(RST_WEB.replace(old, new), "doc")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}', "doc: a list of spans is needed, not dict"),
        ('[[[1, 1], "Nucleous"]]', r"doc: item 1 is \[\[1, 1\], 'Nucleous'\], not"),
        ('[[[1, 1], "N"], [[1, 2], "N"]]', "doc: item 2, span 1-2: 1 nodes stand before it, and it needs two"),
        ('[[[1, 1], "N"], [[2, 2], "N"], [[1, 3], "N"]]', "doc: item 3, span 1-3: its children cover 1-2, not 1-3"),
        ('[[[1, 1], "N"], [[2, 2], "N"], [[3, 3], "N"]]', r"doc: 3 nodes are left at the end \(1-1, 2-2, 3-3\)"),
        ('[[[1, 1], "N"], [[2, 2], "N"], [[1, 2], "N"]]', r"doc: 1 nodes are left at the end \(1-2\)"),
        ('[[[1, 1], "N"], [[3, 3], "N"]]', "doc: the root: no child has the EDUs 2-2 between 1-1 and 3-3"),
        ('[[[1, 1], "N"], [[1, 1], "S"]]', "doc: the root: its children 1-1 and 1-1 overlap"),
        ('[[[1, 1], "S"], [[2, 2], "S"]]', "doc: the root: none of its children is a Nucleus"),
        ('[[[2, 2], "N"], [[3, 3], "N"]]', "doc: the first EDU is 2"),
        ('[[[2, 2], "N"]]', "doc: the first EDU is 2"),
        ('[\n[[1, 1], "N"', "doc:2: no JSON"),
    ],
)
def test_bad_input_brackets(text, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        read_brackets(text, "doc")


def leaf(number, nucleus):
    return Node(number, number, nucleus)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (Node(1, 2, True, children=(leaf(1, True), leaf(2, True))), "the root 1-2 is a Nucleus or Satellite"),
        (Node(1, 2, None), "span 1-2 has no children but more than one EDU"),
        (Node(1, 1, None, children=(leaf(1, True),)), "span 1-1 has 1 children; a binary tree is needed"),
        (Node(1, 3, None, children=tuple(leaf(n, True) for n in (1, 2, 3))), "span 1-3 has 3 children; a binary"),
        (Node(1, 2, None, children=(leaf(1, None), leaf(2, True))), "span 1-2: the nuclearity of its child 1-1 is not"),
        (Node(1, 2, None, children=(leaf(1, False), leaf(2, False))), "span 1-2: none of its children is a Nucleus"),
        (Node(1, 3, None, children=(leaf(1, True), leaf(2, True))), "span 1-3: its children cover 1-2, not 1-3"),
        (Node(1, 3, None, children=(leaf(1, True), leaf(3, True))), "span 1-3: no child has the EDUs 2-2 between"),
        (
            Node(1, 2, None, children=(leaf(2, True), leaf(1, True))),
            "span 1-2: its children 2-2 and 1-1 overlap or are",
        ),
        (Node(2, 3, None, children=(leaf(2, True), leaf(3, True))), "the first EDU is 2; EDUs are counted from 1"),
    ],
)
def test_bad_input_validate(tree, message):
    with pytest.raises(ValueError, match=f"^doc: {message}"):
        validate(tree, "doc")


def test_gum_reads_and_is_written_to_the_letter():
    paths = sorted(GUM.glob("*/*.dis"))
    if not paths:
        pytest.skip(f"no trees in {GUM}; set GUM_FOLDER")
    documents = {}
    for split in GUM.glob("*.jsonl"):
        rows = [json.loads(line) for line in split.read_text(encoding="utf-8").splitlines()]
        documents |= {row["id"]: row["sentences"] for row in rows}
    assert len(paths) == len(documents)
    for path in paths:
        tree = read_tree(path)
        validate(tree, path.name)
        assert write_dis(tree) == path.read_text(encoding="utf-8"), path.name
        assert " ".join(unit.text for unit in leaves(tree)) == " ".join(documents[path.stem]), path.name
