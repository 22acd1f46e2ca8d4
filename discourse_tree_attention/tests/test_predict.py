"""Extraction of plain text: with a tree, with a folder of trees, without one; as it comes."""

import io
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("shared")


from ..predict import main
from ..train import main as train_main

TEXT = "Officials said that a storm hit the town on Monday. Nobody was hurt (they say)."
EDUS = ["Officials said", "that a storm hit the town on Monday.", "Nobody was hurt (they say)."]
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


def test_a_text_and_its_tree(runs, files, tmp_path, capsys):
    """Sentences are spelled as the text, EDUs as the tree, whose blanks may differ; lines are parts of one document."""
    main([str(runs / "sentence"), *files])
    assert capsys.readouterr().out == TEXT + "\n"
    main([str(runs / "edu"), *files, "--out", str(tmp_path / "out.jsonl")])
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert row["id"] == "new-1" and not row["was_cut"]
    parts = ["Officials said", "that a storm hit the town on Monday .", "Nobody was hurt ( they say ) ."]
    assert " ".join(row["prediction"]) in (" ".join(parts[:2]), parts[1], parts[2])


def test_the_example_of_the_readme(runs, capsys):
    """Any run extracts one of the clauses, with its head in the sentence, spelled as in the file."""
    folder = Path(__file__).parent
    main([str(runs / "edu"), str(folder / "storm.txt"), "--tree", str(folder / "storm.dis"), "--units", "1"])
    summary, text = capsys.readouterr().out.strip(), (folder / "storm.txt").read_text().replace("\n", " ")
    assert summary in text and len(summary) < 60
    with pytest.raises(SystemExit):
        main([str(runs / "edu"), "--units", "-1"])
    assert "--units is -1; it must be a whole number from 0" in capsys.readouterr().err


def test_brackets_have_no_texts_so_each_line_is_an_edu(runs, files, tmp_path, capsys):
    (tmp_path / "new.dis").write_text(DIS.replace(" .", ".").replace("( they say )", "(they say)"))
    main([str(runs / "edu"), *files])
    expected = capsys.readouterr().out
    (tmp_path / "new.json").write_text('[[[1,1],"S"], [[2,2],"N"], [[3,3],"S"], [[2,3],"N"]]')
    Path(files[0]).write_text("\n".join(EDUS) + "\n")
    main([str(runs / "edu"), files[0], "--tree", str(tmp_path / "new.json")])
    assert capsys.readouterr().out == expected


def test_a_folder_of_trees_has_one_for_each_document(runs, tmp_path, capsys):
    """As experiments.parse writes it, by the document's id."""
    (tmp_path / "two.txt").write_text(f"{TEXT}\nIt rained.\n")
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees/two-1.dis").write_text(DIS)
    (tmp_path / "trees/two-2.dis").write_text("( Root (leaf 1) (text _!It rained._!) )")
    main([str(runs / "sentence"), str(tmp_path / "two.txt"), "--tree", str(tmp_path / "trees")])
    assert capsys.readouterr().out == f"{TEXT}\nIt rained.\n"
    (tmp_path / "trees/two-2.dis").write_text("( Root (leaf 1) (text _!It poured._!) )")
    with pytest.raises(SystemExit):
        main([str(runs / "edu"), str(tmp_path / "two.txt"), "--tree", str(tmp_path / "trees")])
    assert "two-2.dis: EDUs and text are not the same" in capsys.readouterr().err
    (tmp_path / "trees/two-2.dis").unlink()
    with pytest.raises(SystemExit):
        main([str(runs / "edu"), str(tmp_path / "two.txt"), "--tree", str(tmp_path / "trees")])
    assert "two-2 has no discourse tree: make it (python -m" in capsys.readouterr().err


@pytest.mark.parametrize("units", [1, 2, 3])
def test_units_set_the_length(runs, files, tmp_path, capsys, units):
    """Without dependents in its sentence an EDU comes alone."""
    flat = '[[[1,1],"N"], [[2,2],"N"], [[3,3],"N"], [[2,3],"N"]]'
    (tmp_path / "new.json").write_text(flat)
    lines = ["It rained.", "We stayed.", "They left."]
    Path(files[0]).write_text("\n".join(lines))
    main([str(runs / "edu"), files[0], "--tree", str(tmp_path / "new.json"), "--units", str(units)])
    said = capsys.readouterr().out
    assert sum(line in said for line in lines) == units


def test_an_output_that_is_an_input_is_refused_and_a_wrong_input_empties_none(runs, files, tmp_path, capsys):
    text, tree = Path(files[0]).read_bytes(), (tmp_path / "new.dis").read_bytes()
    (tmp_path / "link.txt").symlink_to(files[0])
    for out in (files[0], str(tmp_path / "link.txt"), f"{tmp_path}/./new.txt", str(tmp_path / "new.dis")):
        with pytest.raises(SystemExit):
            main([str(runs / "edu"), *files, "--out", out])
        assert "would be overwritten" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(runs / "edu"), files[0], "--tree", str(tmp_path), "--out", str(tmp_path / "new.dis")])
    assert (Path(files[0]).read_bytes(), (tmp_path / "new.dis").read_bytes()) == (text, tree)
    (tmp_path / "old.txt").write_text("an older summary")
    for wrong in ([str(tmp_path / "no.txt")], [files[0], "--tree", str(tmp_path / "no.dis")], [files[0]]):
        with pytest.raises(SystemExit):
            main([str(runs / "edu"), *wrong, "--out", str(tmp_path / "old.txt")])
        assert (tmp_path / "old.txt").read_text() == "an older summary"


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
    assert "1 documents are longer than the model can read and were cut" in capsys.readouterr().err


def test_without_a_tree_the_command_that_makes_it_is_named(runs, files, capsys):
    for name in ("edu", "sentence"):
        with pytest.raises(SystemExit) as stop:
            main([str(runs / name), files[0]])
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert stop.value.code == 2 and "experiments.parse FILE --out TREES), then add --tree TREES" in error


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
    assert "no tree format '.rs3'; use .dis" in message([files[0], "--tree", str(tmp_path / "new.rs3")])
    assert "give one FILE" in message([files[0], *files])
    (tmp_path / "new.txt").write_text("")
    (tmp_path / "new.dis").write_text(DIS)
    assert "new.dis: the input is empty" in message(files)
    assert "--device nowhere cannot be used" in message([*files, "--device", "nowhere"])
