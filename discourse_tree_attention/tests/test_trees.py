"""Trees and their published format: literal files, and what must be refused."""

import pytest

from ..matrices import dependency_parents
from ..trees import leaves, nodes, read_dis, read_tree, write_dis
from .reference_trees import chain

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
ALONE = "( Root (leaf 1) (text _!Alone ( é ) ._!) )"


def shape(node):
    """A tree on one line: EDUs with N or S in front, brackets around siblings."""
    inside = " ".join(shape(child) for child in node.children) if node.children else str(node.end)
    return {True: "N", False: "S", None: ""}[node.nucleus] + (
        f"({inside})" if node.children else inside
    )


def flat(roles):
    """A .dis text of one node over leaves with these roles."""
    names = {"N": "Nucleus", "S": "Satellite"}
    return (
        f"( Root {' '.join(f'( {names[role]} (leaf {n}) )' for n, role in enumerate(roles, 1))} )"
    )


def test_dis_of_rst_dt_limit_one_edu():
    (tree,) = nodes(read_dis(ALONE))
    assert (tree.start, tree.end, tree.nucleus, tree.text) == (0, 1, None, "Alone ( é ) .")
    tree = read_dis(RST_DT)
    assert shape(tree) == "(N(N1 N(N2 N(N3 S4))) S5)"
    texts = ["Prices rose,", 'he said "no!"', "(they fell)", "on Monday", "The end."]
    assert [leaf.text for leaf in leaves(tree)] == texts
    again = read_dis(write_dis(tree))
    assert shape(again) == shape(tree) and [leaf.text for leaf in leaves(again)] == texts


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ("NNNN", "(N1 N(N2 N(N3 N4)))"),
        ("SNS", "(S1 N(N2 S3))"),
        ("SSNSS", "(S1 N(S2 N(N(N3 S4) S5)))"),
        ("NSN", "(N1 N(S2 N3))"),
    ],
)
def test_nodes_of_many_children_become_right_branching(roles, expected):
    assert shape(read_dis(flat(roles))) == expected


def test_files_as_people_have_them():
    """Nodes of one child; DOS's end of a file, blanks after <P>, no span, split accents."""
    inner = "( Nucleus (leaf 1) (rel2par span) (text _!It rained ,_!) )"
    assert shape(read_dis(f"( Root (span 1 1) {inner} )")) == "1"
    other, satellite = (
        "( Nucleus (leaf 2) (text _!they said ._!) )",
        f"( Satellite (span 1 1) {inner} )",
    )
    assert shape(read_dis(f"( Root (span 1 2) {satellite} {other} )")) == "(S1 N2)"
    nucleus = "( Nucleus (leaf 1) (text _!Cafe\u0301 closed , <P> _!) )"
    tree = read_dis(f"( Root\r\n {nucleus}\r\n ( Satellite (leaf 2) (text _!x_!) )\r\n)\r\n\x1a")
    assert shape(tree) == "(N1 S2)" and leaves(tree)[0].text == "Caf\u00e9 closed ,"


@pytest.mark.parametrize("right_branching", [True, False])
def test_limit_trees_as_deep_as_long(right_branching):
    """Nothing is recursive."""
    tree = chain(1500, right_branching)
    parents = [0, *range(1499)] if right_branching else [0] * 1500
    assert dependency_parents(tree).tolist() == parents and len(repr(tree)) < 200
    deep = (
        "".join(f"( Nucleus (leaf {n}) ) ( Satellite " for n in range(1, 1500))
        + "(leaf 1500)"
        + " )" * 1499
    )
    assert dependency_parents(read_dis(f"( Root {deep} )")).tolist() == [0, *range(1499)]


def test_read_tree_names_the_file(tmp_path):
    path = tmp_path / "wsj_0601.out.dis"
    path.write_text(ALONE, encoding="utf-8")
    assert shape(read_tree(path)) == "1"
    path.write_bytes(ALONE.encode("latin-1"))
    with pytest.raises(ValueError, match=r"0601\.out\.dis is not UTF-8 at byte 32"):
        read_tree(path)


def test_bad_input_a_file_cut_anywhere_or_not_one_tree():
    text = RST_DT.removesuffix("\n")
    read_dis(text)
    for end in range(len(text)):
        with pytest.raises(ValueError, match="^doc 7"):
            read_dis(text[:end], "doc 7")
    for text in ("", "word", f"{ALONE} )", f"{ALONE} word", f"{ALONE} {ALONE}"):
        with pytest.raises(ValueError, match="^doc:1: one whole tree .* is the file cut"):
            read_dis(text, "doc")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (") )//TT_ERR\n)", ") )", r"doc:10: one whole tree .* is the file cut"),
        ("_!(they fell)<P>_!", "_!(they fell)<P>", r"doc:7: '\( text _!\(they fell\)<P>"),
        (
            "Nucleus (leaf 1)",
            "Nucleous (leaf 1)",
            r"doc:3: '\( Nucleous \(\.\.\.\).*no node \(Root, Nucleus",
        ),
        (
            "(span 3 4)",
            "(span 3 5)",
            r"doc: span 3-5 needs two children side by side, .*; it has 3-3, 4-4",
        ),
        (
            "(leaf 2)",
            "(leaf 1)",
            r"doc: span 1-4 needs two children side by side, .*; it has 1-1, 3-4",
        ),
        ("Nucleus (leaf 3)", "Satellite (leaf 3)", r"doc: span 3-4 needs two children"),
        ("( Root", "( Nucleus", r"doc: a tree has a root without a sibling"),
        ("(leaf 5)", "(span 4 5)", r"doc: span 4-5 needs two children .*; it has none"),
    ],
)
def test_bad_input_dis(old, new, message):
    assert RST_DT.count(old) == 1
    with pytest.raises(ValueError, match="^" + message):
        read_dis(RST_DT.replace(old, new), "doc")
