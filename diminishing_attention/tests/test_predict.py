"""Prediction: text in, a summary out, in the input's order."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("shared")

from shared.data import Example

from ..predict import decode_all, main, predict
from ..train import load_run
from .conftest import SMALL

TEXTS = ["Mara Kelman opened a bridge . It rained .", "One .", "A storm hit the town hall today . " * 4]


@pytest.fixture
def runs(trained) -> dict[str, Path]:
    bert = dict(width=16, layers=1, heads=2, feed_forward=16, decoder_layers=1, model="bertsum-ext")
    return {"pg": trained(replace(SMALL, max_source=12, min_length=4)), "ext": trained(replace(SMALL, **bert))}


def test_documents_come_out_in_their_order_as_if_alone(runs):
    run = load_run(runs["pg"])
    examples = [Example(str(n), [text.strip()], ["-"], [["-"]]) for n, text in enumerate(TEXTS)]
    rows = list(predict(run, iter(examples), batch_size=2))
    assert [row["id"] for row in rows] == ["0", "1", "2"] and [row["was_cut"] for row in rows] == [False, False, True]
    assert [row["prediction"] for row in rows] == [decode_all(run, [example])[0] for example in examples]
    assert list(predict(run, examples[:1], max_length=4)) != rows[:1]


def test_lines_in_lines_out(runs, tmp_path, monkeypatch, capsys):
    """From standard input to standard output; cut documents are counted on stderr."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(TEXTS)))
    main([str(runs["pg"])])
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3 and "1 documents were cut to 12 tokens" in printed.err
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    main([str(runs["pg"]), str(tmp_path / "in.txt"), "--out", str(tmp_path / "out.txt")])
    assert (tmp_path / "out.txt").read_text() == printed.out


def test_jsonl_of_sources_gives_jsonl(runs, tmp_path):
    """An extractive run takes sentences of the document, which is split; one line of text would join them."""
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": "x", "source": "One is here. Two went. Three came."}))
    main([str(runs["ext"]), str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "o.jsonl"), "--sentences", "2"])
    [row] = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    lines = row["prediction"].split("\n")
    assert row["id"] == "x" and len(lines) == 2 and set(lines) < {"One is here.", "Two went.", "Three came."}


@pytest.mark.parametrize(("flags", "code"), [(["--device", "foo"], 2), (["--out", "{tmp}"], 1), (["nothing.txt"], 2)])
def test_what_cannot_be_read_or_written_is_one_line(runs, tmp_path, capsys, flags, code):
    with pytest.raises(SystemExit) as stop:
        main([str(runs["pg"]), *(flag.format(tmp=tmp_path) for flag in flags)])
    assert stop.value.code == code and capsys.readouterr().err.count("\n") == 1
