"""Prediction: text in, a summary out, in the input's order."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("shared")

from shared.data import Example

from .. import predict as prediction
from ..loading import load_run
from ..predict import main, predict
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
    alone = [next(predict(run, [example], batch_size=1)) for example in examples]
    assert [row["prediction"] for row in rows] == [row["prediction"] for row in alone]
    assert len({row["prediction"] for row in rows}) > 1
    assert list(predict(run, examples[:1], max_length=4)) != rows[:1]


def test_lines_in_lines_out(runs, tmp_path, monkeypatch, capsys):
    """From standard input to standard output; cut documents are counted on stderr."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(TEXTS)))
    main([str(runs["pg"])])
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3 and "1 documents were cut to --max-source 12 tokens" in printed.err
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    main([str(runs["pg"]), str(tmp_path / "in.txt"), "--out", str(tmp_path / "out.txt")])
    assert (tmp_path / "out.txt").read_text() == printed.out


def test_every_option_of_decoding_reaches_it(runs, monkeypatch):
    flags = {"--beam": 3, "--length-penalty": 1.5, "--released": True, "--trigram-blocking": True, "--min-length": 2,
             "--max-length": 7, "--sentences": 2, "--batch-size": 5}  # fmt: skip
    seen = []
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(TEXTS)))
    monkeypatch.setattr(prediction, "predict", lambda run, examples, size, **rest: seen.append((size, rest)) or [])
    main([str(runs["pg"]), *(str(text) for pair in flags.items() for text in pair)])
    main([str(runs["pg"]), "--average", "True"])
    values = {flag.strip("-").replace("-", "_"): value for flag, value in flags.items() if flag != "--batch-size"}
    assert seen == [(5, values | {"average": False}), (16, {"average": True, "length_penalty": 0.0, "sentences": 3})]


def test_jsonl_of_sources_gives_jsonl(runs, tmp_path):
    """An extractive run takes sentences of the document, which is split; one line of text would join them."""
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": "x", "source": "One is here. Two went. Three came."}))
    main([str(runs["ext"]), str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "o.jsonl"), "--sentences", "2"])
    [row] = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    lines = row["prediction"].split("\n")
    assert row["id"] == "x" and len(lines) == 2 and set(lines) < {"One is here.", "Two went.", "Three came."}


def test_an_output_that_is_an_input_is_refused_and_one_is_opened_late(runs, tmp_path, capsys):
    """`predict F --out F` leaves F; a name that is not there and a beam that cannot be leave an older --out."""
    for name in ("in.txt", "old.txt"):
        (tmp_path / name).write_text(TEXTS[0])
    pairs = [("in.txt", "in.txt"), ("in.txt", "./in.txt"), ("typo.txt", "old.txt"), ("in.txt", "old.txt")]
    for number, (name, out) in enumerate(pairs):
        with pytest.raises(SystemExit):
            flags = ["--beam", "1000"] * (number == 3)
            main([str(runs["pg"]), f"{tmp_path}/{name}", "--out", f"{tmp_path}/{out}", *flags])
    assert (tmp_path / "in.txt").read_text() == (tmp_path / "old.txt").read_text() == TEXTS[0]
    assert "would be overwritten" in capsys.readouterr().err


def test_at_a_terminal_each_line_is_answered_as_it_comes(runs, monkeypatch, capsys):
    """The second line is read after the first one's summary was written."""
    answered = []

    class Terminal(io.StringIO):
        def isatty(self):
            return True

        def readline(self, *arguments):
            answered.append(len(capsys.readouterr().out.splitlines()))
            return super().readline(*arguments)

        def __next__(self):
            answered.append(len(capsys.readouterr().out.splitlines()))
            return super().__next__()

    monkeypatch.setattr(sys, "stdin", Terminal("\n".join(TEXTS)))
    main([str(runs["pg"])])
    assert answered[:3] == [0, 0, 1] or answered[:3] == [0, 1, 1]


@pytest.mark.parametrize(
    ("flags", "code"),
    [(["--device", "foo"], 2), (["--out", "{tmp}"], 1), (["nothing.txt"], 2), (["--batch-size", "0"], 2)],
)
def test_what_cannot_be_read_or_written_is_one_line(runs, tmp_path, capsys, flags, code):
    with pytest.raises(SystemExit) as stop:
        main([str(runs["pg"]), *(flag.format(tmp=tmp_path) for flag in flags)])
    assert stop.value.code == code and capsys.readouterr().err.count("\n") == 1
