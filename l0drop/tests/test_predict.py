"""predict: plain text in, the model's output out."""

import io
import json
from dataclasses import replace

import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file, save_file  # noqa: E402

from shared.data import read_texts  # noqa: E402

from .. import decode as decoding  # noqa: E402
from ..decode import Output, decode_all  # noqa: E402
from ..loading import load_run  # noqa: E402
from ..predict import bracket_pruned, main, predict  # noqa: E402
from ..text import encode_examples, train_tokenizer  # noqa: E402
from ..train import train  # noqa: E402
from .test_train import SMALL  # noqa: E402

TEXTS = ["in Brenton two halls were built .", "Anna   slept .", "no town was named by anyone at all ."]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "l0"
    train(replace(SMALL, extra_length=0), folder)
    weights = load_file(folder / "model.safetensors")
    torch.manual_seed(0)
    weights["l0drop.0.predictor.weight"] = 2 * torch.randn(1, SMALL.width)
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS[:2]) + "\n\n" + TEXTS[2] + "\n")
    return path


def test_lines_come_out_in_order_as_evaluate_decodes_them(run_dir, text_file, tmp_path, capsys):
    """A line each, blank lines skipped, whatever the batch size."""
    run = load_run(run_dir)
    items = encode_examples(list(read_texts([text_file])), run.tokenizer, SMALL.max_source, SMALL.max_target)
    expected = [run.tokenizer.decode(output.tokens) for output in decode_all(run, items, 3, True)]
    for size in ("1", "2", "16"):
        main([str(run_dir), str(text_file), "--batch-size", size])
        output, errors = capsys.readouterr()
        assert output.splitlines() == expected and not errors
    main([str(run_dir), str(text_file), "--out", str(tmp_path / "out.txt")])
    assert (tmp_path / "out.txt").read_text().splitlines() == expected
    assert "document" in capsys.readouterr().err  # a progress bar, where the lines are not to be seen


def test_each_document_gets_its_own_output(run_dir, text_file, monkeypatch):
    """Batches are decoded in the order of length; rows come in that of the input."""

    def decode_backwards(run, items, batch_size):
        for i in reversed(range(len(items))):
            yield i, Output([5 + i], 0.0, [[False] * len(items[i].source)])

    monkeypatch.setattr(decoding, "decode", decode_backwards)
    run = load_run(run_dir)
    rows = list(predict(run, read_texts([text_file])))
    assert [row["prediction"] for row in rows] == [run.tokenizer.decode([5 + i]) for i in range(3)]
    assert [row["source"] for row in rows] == [" ".join(text.split()) for text in TEXTS]


def test_standard_input_and_json_lines(run_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXTS[0] + "\n"))
    main([str(run_dir)])
    [line] = capsys.readouterr().out.splitlines()
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": "a", "source": TEXTS[0]}) + "\n")
    main([str(run_dir), str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "new" / "out.jsonl")])
    [row] = map(json.loads, (tmp_path / "new" / "out.jsonl").read_text().splitlines())
    assert (row["id"], row["prediction"], row["was_cut"]) == ("a", line, False) and 0 <= row["sparsity"] <= 100


def test_outputs_stream(run_dir, text_file, tmp_path, monkeypatch):
    """What was decoded before an error is in the file."""
    real, calls = decoding.generate, iter(range(9))
    monkeypatch.setattr(decoding, "generate", lambda *a, **k: real(*a, **k) if next(calls) < 2 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main([str(run_dir), str(text_file), "--batch-size", "1", "--out", str(tmp_path / "out.txt")])
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 2


def test_an_output_that_is_an_input_is_refused_and_an_old_output_survives_a_typo(run_dir, text_file, tmp_path, capsys):
    before, old, weights = text_file.read_text(), tmp_path / "old.txt", run_dir / "model.safetensors"
    old.write_text("hours of work\n")
    for texts, out in ((text_file, text_file), (tmp_path / "typo.txt", old), (text_file, weights)):
        with pytest.raises(SystemExit):
            main([str(run_dir), str(texts), "--out", str(out)])
        assert ("no file" if out == old else "would be overwritten") in capsys.readouterr().err
    assert text_file.read_text() == before and old.read_text() == "hours of work\n" and load_file(weights)


def test_at_a_terminal_each_line_is_answered_as_it_comes(run_dir, capsys, monkeypatch):
    """A generator stands for the keyboard: the second line is typed when the first answer is there."""

    class Keyboard(io.StringIO):
        def isatty(self):
            return True

        def __next__(self):
            line = super().__next__()
            if line.startswith("b"):
                assert capsys.readouterr().out.count("\n") == 1
            return line

    monkeypatch.setattr("sys.stdin", Keyboard("a cat\nb cat\nc cat\n"))
    main([str(run_dir)])


def test_documents_that_were_cut_are_counted(run_dir, tmp_path, capsys):
    (tmp_path / "long.txt").write_text("word " * 2000 + "\nshort\n")
    main([str(run_dir), str(tmp_path / "long.txt")])
    assert "1 documents were cut to --max-source" in capsys.readouterr().err


def test_pruned_words_stand_in_brackets(run_dir, text_file, capsys):
    main([str(run_dir), str(text_file), "--show-pruned"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    shown = lines[0::2]
    assert [line.replace("[", "").replace("]", "") for line in shown] == [" ".join(text.split()) for text in TEXTS]
    assert any("[" in line for line in shown)


def test_brackets_by_hand():
    """A pair around each run of pruned tokens, the blank before it outside; the user's own spelling."""
    tokenizer = train_tokenizer(["the cat sat ."], "char", 0)
    source = "the cát"  # á is unknown to the tokenizer
    closed = [False] * 4 + [True] * 4  # characters and blanks: " the" then " cát"
    assert bracket_pruned(tokenizer, source, closed) == "the [cát]"
    assert bracket_pruned(tokenizer, source, closed[:6]) == "the [c]"  # cut
    assert bracket_pruned(tokenizer, source, [True] * 8) == "[the cát]"
    assert bracket_pruned(tokenizer, source, [False] * 8) == source


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--out", "{folder}"], "is not a file"),
        (["{folder}/none.txt"], "none.txt"),
        (["{folder}/bad.jsonl"], "bad.jsonl:1"),
        (["--device", "gpu"], "--device gpu"),
    ],
)
def test_bad_input_is_one_line(run_dir, text_file, tmp_path, capsys, flags, message):
    (tmp_path / "bad.jsonl").write_text('{"sorce": "x"}\n')
    with pytest.raises(SystemExit):
        main([str(run_dir), str(text_file), *(flag.format(folder=tmp_path) for flag in flags)])
    error = capsys.readouterr().err
    assert message in error and "error: " in error
