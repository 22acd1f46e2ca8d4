"""Summaries of plain text: of a run and of any BART, from files and standard input."""

import io
import json
import sys
from dataclasses import replace

import pytest
import torch

pytest.importorskip("shared")

from shared.data import Example

from .. import predict as prediction
from ..loading import Run, load_run
from ..predict import main, predict
from ..selection import Selection
from ..text import encode
from ..train import train
from .test_train import SMALL, save_bart

TEXTS = ["A storm hit Norwick. Nobody was hurt.", "It rained. We left. He stayed."]
QUICK = ["--max-length", "9", "--beam", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with an approximator, and the base that it started from."""
    top = tmp_path_factory.mktemp("runs")
    train(replace(SMALL, steps=1), top / "base")
    train(replace(SMALL, steps=1, init=str(top / "base"), task="kl", sentence_encoder="mean", r=2), top / "kl")
    return top


@pytest.fixture(scope="module")
def run(folder) -> Run:
    return load_run(folder / "kl")


def documents() -> list[Example]:
    return [Example(str(i), [text], ["-"], [["-"]]) for i, text in enumerate(TEXTS)]


def test_outputs_are_those_of_generate_in_order_whatever_the_batch(run):
    """Each text is split into its sentences, and read under the selection that was asked for."""
    selection = Selection("approx", 2)
    rows = {size: list(predict(run, documents(), selection, size, max_length=9)) for size in (1, 2)}
    assert rows[1] == rows[2] and [row["id"] for row in rows[1]] == ["0", "1"]
    assert run.model.selection == selection
    assert [row["sentences"] for row in rows[1]] == [3, 4]  # </s> is one
    item = encode(run.tokenizer, ["It rained.", "We left.", "He stayed."], 99)
    ids, sentence_ids = torch.tensor([item.ids]), torch.tensor([item.sentence_ids])
    run.model.selection = selection
    tokens = run.model.generate(ids, sentence_ids=sentence_ids, max_length=9)
    assert " ".join(run.tokenizer.decode(tokens[0], skip_special_tokens=True).split()) == rows[1][1]["prediction"]


def test_documents_are_read_as_they_come(run):
    """The first output is there before the second batch is asked for."""

    def stream():
        yield documents()[0]
        raise KeyError("read too far")

    assert next(predict(run, stream(), Selection(), 1, max_length=5))["id"] == "0"


def test_from_files_and_standard_input(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"id": "x", "source": TEXTS[0]}) + "\n")
    main([str(folder / "kl"), str(tmp_path / "a.txt"), *QUICK])
    lines = capsys.readouterr().out.splitlines()
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(TEXTS)))
    main([str(folder / "kl"), *QUICK])
    assert capsys.readouterr().out.splitlines() == lines and len(lines) == 2
    out = tmp_path / "new" / "out.jsonl"
    main([str(folder / "kl"), str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl"), *QUICK, "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prediction"] for row in rows] == [*lines, lines[0]] and rows[2]["id"] == "x"
    assert not rows[0]["was_cut"] and capsys.readouterr().out == ""


def test_the_selection_is_the_learned_one_or_the_mean_key(folder, tmp_path, monkeypatch, capsys):
    """By default approx at the run's r; a model without an approximator has the mean key; flags win."""
    seen = []

    def note(run, texts, selection, batch_size, **generation):
        seen.append((selection, generation))
        return []

    monkeypatch.setattr(prediction, "predict", note)
    save_bart(tmp_path / "bart")
    (text := tmp_path / "a.txt").write_text(TEXTS[0])
    for model in (folder / "kl", folder / "base", tmp_path / "bart"):
        main([str(model), str(text)])
    flags = ["--mode", "ideal", "--r", "3", "--min-length", "0", "--max-length", "9", "--beam", "2"]
    main([str(folder / "kl"), str(text), *flags])
    assert seen == [
        (Selection("approx", 2), {}), (Selection("mean_key", 5), {}), (Selection("mean_key", 5), {}),
        (Selection("ideal", 3), {"min_length": 0, "max_length": 9, "num_beams": 2}),
    ]  # fmt: skip


def test_what_was_cut_is_said_once(folder, tmp_path, capsys):
    (tmp_path / "a.txt").write_text(("It rained . " * 100 + "\n") * 2)
    main([str(folder / "base"), str(tmp_path / "a.txt"), *QUICK])
    assert capsys.readouterr().err.count("2 documents were cut to the model's 120 tokens") == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mode", "approx"], "mode 'approx' needs an approximator"),
        (["--r", "0"], "--r is 0; it must be a whole number from 1"),
        (["--min-length", "90", "--max-length", "20"], "--max-length is 20"),
        (["--out", "{folder}"], "is not a file"),
        (["--batch-size", "0"], "--batch-size is 0"),
        (["--min-length", "-1"], "--min-length is -1"),
        (["--beam", "0"], "--beam is 0"),
        (["--device", "cuda:9"], "--device cuda:9 cannot be used here"),
    ],
)
def test_bad_requests_end_with_a_message(folder, tmp_path, capsys, flags, message):
    (tmp_path / "a.txt").write_text(TEXTS[0])
    with pytest.raises(SystemExit) as stop:
        main([str(folder / "base"), str(tmp_path / "a.txt"), *(flag.format(folder=folder) for flag in flags)])
    assert stop.value.code in (1, 2) and message in capsys.readouterr().err


def test_an_output_that_is_an_input_is_refused_and_a_typo_empties_nothing(folder, tmp_path, capsys):
    """By its name, by a link, by another spelling; an older output stays where the input is not there."""
    text, older = tmp_path / "a.txt", tmp_path / "older.txt"
    text.write_text(TEXTS[0])
    older.write_text("old")
    (tmp_path / "link.txt").symlink_to(text)
    for out in (f"{tmp_path}/a.txt", f"{tmp_path}/link.txt", f"{tmp_path}/./a.txt", f"{folder}/base/config.json"):
        with pytest.raises(SystemExit):
            main([str(folder / "base"), str(text), "--out", out])
        assert "would be overwritten" in capsys.readouterr().err and text.read_text() == TEXTS[0]
    with pytest.raises(SystemExit):
        main([str(folder / "base"), str(tmp_path / "b.txt"), "--out", str(older)])
    assert older.read_text() == "old"


def test_at_a_terminal_each_line_is_answered_as_it_comes(folder, monkeypatch):
    """And by files, or where lines are piped in, so many at a time as --batch-size says."""
    seen = []
    monkeypatch.setattr(prediction, "predict", lambda run, texts, selection, size, **k: seen.append(size) or [])
    for is_terminal in (True, False):
        stream = io.StringIO(TEXTS[0])
        stream.isatty = lambda answer=is_terminal: answer
        monkeypatch.setattr(sys, "stdin", stream)
        main([str(folder / "base"), "--batch-size", "5"])
    assert seen == [1, 5]


def test_how_a_barts_documents_are_split_is_said(tmp_path, monkeypatch):
    """--sentences reaches the run; the data's own is the default."""
    save_bart(tmp_path / "bart")
    (tmp_path / "a.txt").write_text(TEXTS[0])
    seen = []
    monkeypatch.setattr(prediction, "predict", lambda run, *a, **k: seen.append(run.config.sentences) or [])
    for flags in ([], ["--sentences", "nltk"]):
        main([str(tmp_path / "bart"), str(tmp_path / "a.txt"), *flags])
    assert seen == ["given", "nltk"]
