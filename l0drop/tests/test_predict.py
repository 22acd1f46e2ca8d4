"""Decoding, what is said of a document, and the command."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file, save_file

from shared import pack as packing
from shared.data import Example, load, read

from .. import loading
from .. import predict as command
from ..loading import load_run
from ..predict import bracket_pruned, metric_of, predict
from ..text import train_tokenizer
from ..train import train
from .conftest import SMALL

DATA = "toy:count=12,seed=9"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose gates are drawn at random, so that some are closed."""
    folder = tmp_path_factory.mktemp("runs") / "l0-0"
    train(SMALL, folder)
    weights = load_file(folder / "model.safetensors")
    torch.manual_seed(0)
    weights["l0drop.0.predictor.weight"] = 2 * torch.randn(1, SMALL.width)
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.fixture
def run(folder):
    return load_run(folder)


@pytest.fixture(scope="module")
def stories():
    return load(DATA, "test")[:6]


def test_decode_keeps_the_order_whatever_the_batch(run, stories, monkeypatch):
    """Outputs stand in the order of the documents, though batches are made by length."""
    monkeypatch.setattr(command, "WINDOW", 2)  # six documents in three windows of batches of one
    together = list(predict(run, stories, batch_size=5, extra_length=0))
    alone = list(predict(run, stories, batch_size=1, extra_length=0))
    assert together == alone and [row["id"] for row in alone] == [story.id for story in stories]
    assert [row["pruned"][1] for row in alone] == [len(item.source) for item in run.encode(stories)]


def test_gates_that_are_half_open_are_not_pruned(run, base, stories):
    """Sparsity counts gates that are exactly 0 (Section 6), not small ones; a baseline has none."""
    for bias, share in ((-1.5, 0), (-2.5, 1)):  # an expected gate of 0.12; of 0
        with torch.no_grad():
            run.model.l0drop[0].predictor.weight.zero_()
            run.model.l0drop[0].predictor.bias.fill_(bias)
        for row in predict(run, stories[:2], extra_length=0):
            assert row["pruned"][0] == share * row["pruned"][1]
    plain = predict(load_run(base), stories[:2], extra_length=0)
    assert [row["pruned"][0] for row in plain] == [0, 0]


def test_d9_sparsity_counts_every_encoding_with_eos(run, stories):
    """D9: pruned and all encodings of each layer (Section 6), </s> included."""
    length = len(run.encode(stories[:1])[0].source)
    closed = torch.arange(length) >= length - 3
    row = command.row(run, stories[0], "text", [torch.zeros(length) > 0, closed], False)
    assert row["pruned"] == [3, length] and row["pruned_layer_1"] == [0, length]
    assert length == len(run.tokenizer.encode(stories[0].source).ids) + 1
    # </s> stands in no word: of three pruned encodings two are of the last words
    assert row["source"].endswith("]") and row["source"].count("[") == 1


def test_d16_translations_are_scored_by_bleu():
    """D16: one string each is a translation."""
    pair = Example("a", ["ein Satz"], ["a sentence"], [["a sentence"]])
    summary = Example("b", ["one .", "two ."], ["one ."], [["one ."]])
    metrics = [metric_of(each) for each in ([pair], [summary], [pair, summary])]
    assert metrics == ["bleu", "rouge", "rouge"]


def test_brackets_by_hand():
    """Around words of which every token is pruned, the blank outside; the user's own spelling."""
    run = SimpleNamespace(tokenizer=train_tokenizer(["the cat sat ."], "char", 0))
    source = "the cát"  # á is unknown to the tokenizer
    the, cat = [True] * 4, [True] * 4  # characters and blanks: " the" then " cát"
    assert bracket_pruned(run, source, [False] * 4 + cat) == "the [cát]"
    # The first character of the second word is kept.
    assert bracket_pruned(run, source, [False] * 5 + cat[1:]) == "the cát"
    assert bracket_pruned(run, source, [False] * 4 + cat[:2]) == "the [c]"  # cut
    assert bracket_pruned(run, source, the + cat) == "[the cát]"


# The command


def test_predict_writes_lines_in_order(run, folder, tmp_path, capsys):
    """As decoded from Python; a blank line stays; brackets around what is pruned."""
    texts, out = tmp_path / "in.txt", tmp_path / "out.txt"
    texts.write_text("in Brenton two halls were built .\n\nthe streets   were quiet .\n")
    first, second = predict(run, [each for each in read([texts]) if each.document])
    command.main([str(folder), str(texts)])
    assert capsys.readouterr().out == f"{first['prediction']}\n\n{second['prediction']}\n"
    command.main([str(folder), str(texts), "--show-pruned", "--out", str(out)])
    lines = [line for line in out.read_text().splitlines() if line.startswith("source: ")]
    assert lines == [f"source: {first['source']}", f"source: {second['source']}"]
    assert "[" in "".join(lines)


def test_predict_on_data_ends_with_the_table(folder, tmp_path, capsys):
    """A row of each document with its references; sparsity is a share of all encodings."""
    out = tmp_path / "l0-0.jsonl"
    command.main([str(folder), "--data", DATA, "--limit", "4", "--out", str(out)])
    table = capsys.readouterr().out
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 4 and rows[0]["references"]
    assert (rows[0]["system"], rows[0]["seed"]) == ("l0", 0)
    pruned, encodings = (sum(row["pruned"][i] for row in rows) for i in (0, 1))
    assert 0 < pruned < encodings
    assert f"{100 * pruned / encodings:.2f} [" in table and "rouge1" in table


def test_every_flag_changes_what_is_printed(folder, capsys):
    flags = ["--metric bleu", "--show-pruned", "--beam 1", "--max-length 3", "--system mine"]
    printed = []
    for more in ("", *flags, "--split validation"):
        command.main([str(folder), "--data", DATA, "--limit", "3", *more.split()])
        printed.append(capsys.readouterr().out)
    assert printed[0] not in printed[1:]


def test_the_length_penalty_is_that_of_the_units(run, stories, monkeypatch):
    """Section 5: 1.0 for characters; a flag wins."""
    seen, generate = [], loading.generate

    def noted(*arguments, length_penalty):
        seen.append(length_penalty)
        return generate(*arguments, length_penalty=length_penalty)

    monkeypatch.setattr(loading, "generate", noted)
    for units in ("bpe", "char"):
        list(predict(run._replace(config=replace(run.config, units=units)), stories[:1]))
    list(predict(run, stories[:1], length_penalty=0.3))
    assert seen == [0.6, 1.0, 0.3]


def test_packed_weights_change_no_output(folder, tmp_path, monkeypatch, capsys):
    """Only the command packs; it says so, and decodes the same tokens."""
    outputs = []
    for packed, gain in ((False, 1.0), (True, 9.0)):
        monkeypatch.setattr(packing, "gain", lambda linear, gain=gain: gain)
        out = tmp_path / f"{packed}.jsonl"
        command.main([str(folder), "--data", DATA, "--limit", "4", "--out", str(out)])
        assert ("decoded with packed weights" in capsys.readouterr().err) == packed
        outputs.append(out.read_text())
    assert outputs[0] == outputs[1]
