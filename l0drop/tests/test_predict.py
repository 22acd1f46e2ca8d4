"""Decoding, what is said of a document, and the command."""

import json
from dataclasses import fields

import pytest
import torch

pytest.importorskip("shared")

import sacrebleu  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from shared.data import Example, load, read  # noqa: E402
from shared.score import score  # noqa: E402

from .. import predict as command  # noqa: E402
from ..loading import load_run  # noqa: E402
from ..predict import Options, bracket_pruned, decode, metric_of, predict  # noqa: E402
from ..text import train_tokenizer  # noqa: E402
from ..train import train  # noqa: E402
from .conftest import SMALL  # noqa: E402

DATA = "toy:count=12,seed=9"
TEXTS = ["in Brenton two halls were built .", "the streets   were quiet .", "no town was named by anyone at all ."]


def share(outputs) -> float:
    """Sparsity of all outputs, in percent."""
    closed = [gate for output in outputs for gate in output.pruned[-1]]
    return 100 * sum(closed) / len(closed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose gates are drawn at random, so that some are closed."""
    folder = tmp_path_factory.mktemp("runs") / "l0-0"
    train(SMALL, folder)
    weights = load_file(folder / "model.safetensors")
    torch.manual_seed(0)
    weights["l0drop.0.predictor.weight"] = 2 * torch.randn(1, SMALL.model.width)
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.fixture
def run(folder):
    return load_run(folder)


@pytest.fixture(scope="module")
def stories():
    return load(DATA, "test")[:6]


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def test_decode_keeps_the_order_whatever_the_batch(run, stories, monkeypatch):
    """Outputs stand in the order of the documents, though batches are made by length; padding changes no score."""
    monkeypatch.setattr(command, "WINDOW", 2)  # six documents in three windows of batches of one
    together, alone = (list(decode(run, stories, batch_size=size, extra_length=0)) for size in (5, 1))
    for one, other, item in zip(together, alone, run.encode(stories), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4) and one.item == item
        assert one.pruned == other.pruned and len(one.pruned[-1]) == len(item.source)


def test_decoding_writes_as_it_goes(run, stories, monkeypatch):
    """The first rows are there before the last documents are read."""
    monkeypatch.setattr(command, "WINDOW", 1)
    batches, generate = [], type(run).generate
    monkeypatch.setattr(type(run), "generate", lambda *a, **k: batches.append(1) or generate(*a, **k))
    rows = predict(run, stories, batch_size=2, extra_length=0)
    next(rows)
    assert len(batches) == 1 and len(list(rows)) == 5 and len(batches) == 3


def test_algorithm1_decodes_what_the_dense_memory_decodes(run, stories):
    pruned, dense = (list(decode(run, stories, prune=prune, extra_length=0)) for prune in (True, False))
    assert 0 < share(pruned) < 100
    assert [o.score for o in pruned] == pytest.approx([o.score for o in dense], abs=1e-4)


def test_gates_that_are_half_open_are_not_pruned(run, stories):
    """Sparsity counts gates that are exactly 0 (Section 6), not small ones."""
    for bias, percent in ((-1.5, 0), (-2.5, 100)):  # an expected gate of 0.12; of 0
        with torch.no_grad():
            run.model.l0drop[0].predictor.weight.zero_()
            run.model.l0drop[0].predictor.bias.fill_(bias)
        assert share(decode(run, stories[:3], extra_length=0)) == percent


def test_d9_sparsity_counts_every_encoding_with_eos(run, stories, monkeypatch):
    """D9: #(expected gate = 0) / #encodings of the last layer (Section 6), </s> included; and of each layer."""
    [output] = decode(run, stories[:1], extra_length=0)
    closed = [True] * 3 + [False] * (len(output.item.source) - 3)
    layers = output._replace(pruned=[[False] * len(closed), closed[::-1]])
    row = command.row(run, stories[0], layers)
    assert row["pruned"] == [3, len(closed)] and row["pruned_layer_1"] == [0, len(closed)]
    assert len(closed) == len(run.tokenizer.encode(stories[0].source).ids) + 1


def test_a_baseline_prunes_nothing(base, stories):
    assert {tuple(row["pruned"])[0] for row in predict(load_run(base), stories[:2], extra_length=0)} == {0}


def test_d16_bleu_is_sacrebleus_on_plain_text():
    """D16: the corpus score of shared.score, by which translations are compared, is sacrebleu's 13a."""
    targets = [f"the cat number {i} sat on the mat, it said" for i in range(8)]
    texts = targets[:5] + ["a dog ran off today"] * 3
    rows = [{"id": i, "prediction": texts[i], "references": [[targets[i]]], "system": "a", "seed": 0} for i in range(8)]
    [value] = [row["value"] for row in score(rows, "bleu") if row["metric"] == "bleu"]
    assert value == pytest.approx(sacrebleu.corpus_bleu(texts, [targets]).score)


def test_d16_translations_are_scored_by_bleu():
    """One string each is a translation; several sentences are a summary's."""
    pair = Example(id="a", document=["ein Satz"], summary=["a sentence"], references=[["a sentence"]])
    summary = Example(id="b", document=["one .", "two ."], summary=["one ."], references=[["one ."]])
    assert [metric_of(each) for each in ([pair], [summary], [pair, summary])] == ["bleu", "rouge", "rouge"]


# Brackets


def test_brackets_by_hand():
    """Around each run of words of which every token is pruned, the blank outside; the user's own spelling."""
    tokenizer = train_tokenizer(["the cat sat ."], "char", 0)
    run, source = type("Run", (), {"tokenizer": tokenizer}), "the cát"  # á is unknown to the tokenizer
    the, cat = [True] * 4, [True] * 4  # characters and blanks: " the" then " cát"
    assert bracket_pruned(run, source, [False] * 4 + cat) == "the [cát]"
    assert bracket_pruned(run, source, [False] * 5 + cat[1:]) == "the cát"  # its first character is kept
    assert bracket_pruned(run, source, [False] * 4 + cat[:2]) == "the [c]"  # cut
    assert bracket_pruned(run, source, the + cat) == "[the cát]"


# The command


def test_predict_writes_lines_in_order(run, folder, text_file, tmp_path, capsys):
    """As decoded from Python; brackets around the words of which every gate is closed; blank lines stay."""
    text_file.write_text(TEXTS[0] + "\n\n" + "\n".join(TEXTS[1:]) + "\n")
    command.main([str(folder), str(text_file), "--batch-size", "2"])
    lines, documents = capsys.readouterr().out.split("\n"), [each for each in read([text_file]) if each.document]
    outputs = list(decode(run, documents))
    texts = [run.text(output.tokens) for output in outputs]
    assert lines == [texts[0], "", *texts[1:], ""]
    command.main([str(folder), str(text_file), "--show-pruned", "--out", str(tmp_path / "o.txt")])
    shown = [line for line in (tmp_path / "o.txt").read_text().splitlines() if line.startswith("source: ")]
    for line, output, document in zip(shown, outputs, documents, strict=True):
        encoding, gone = run.tokenizer.encode(document.source), output.pruned[-1]
        words, tokens = encoding.word_ids, encoding.tokens
        closed = [w for w in sorted(set(words)) if all(g for g, word in zip(gone, words, strict=False) if word == w)]
        inside = "".join(part.partition("]")[0] for part in line.split("[")[1:]).replace(" ", "")
        assert inside == "".join(t for t, w in zip(tokens, words, strict=True) if w in closed).replace("▁", "")
    assert any("[" in line for line in shown)


def test_predict_on_data_ends_with_the_table(folder, tmp_path, capsys):
    """A row of each document with its references; sparsity is a share of all encodings."""
    command.main([str(folder), "--data", DATA, "--limit", "4", "--out", str(tmp_path / "l0-0.jsonl")])
    rows, table = [json.loads(line) for line in (tmp_path / "l0-0.jsonl").open()], capsys.readouterr().out
    assert len(rows) == 4 and rows[0]["system"] == "l0" and rows[0]["seed"] == 0 and rows[0]["references"]
    pruned, encodings = (sum(row["pruned"][i] for row in rows) for i in (0, 1))
    assert 0 < pruned < encodings and f"{100 * pruned / encodings:.2f} [" in table and "rouge1" in table


OTHER = {  # of each flag another value, and what of the output it changes
    "data": "toy:count=5,seed=1", "split": "validation", "limit": "2", "out": "{tmp}/o.txt", "system": "mine",
    "metric": "bleu", "show_pruned": "", "beam": "1", "max_length": "3",
}  # fmt: skip
SAME = {
    "run": "the run itself", "files": "test_predict_writes_lines_in_order", "overwrite": "of a file that exists alone",
    "dense": "test_algorithm1_decodes_what_the_dense_memory_decodes", "device": "computes the same elsewhere",
    "length_penalty": "test_the_runs_length_penalty_is_the_default",
    "batch_size": "test_decode_keeps_the_order_whatever_the_batch",
}  # fmt: skip


def test_every_flag_of_predict_is_in_a_list():
    assert OTHER.keys() | SAME.keys() == {field.name for field in fields(Options)}


@pytest.mark.parametrize("name", OTHER)
def test_every_flag_of_predict_changes_what_is_printed(folder, tmp_path, capsys, name):
    outputs, flag = [], f"--{name.replace('_', '-')}"
    for given in ([], [flag] if not OTHER[name] else [flag, OTHER[name].format(tmp=tmp_path)]):
        default = {"--data": DATA, "--limit": "3"}
        default.pop(flag, None)
        command.main(
            [
                str(folder),
                *sum(([k, v] for k, v in default.items()), []),
                *(given or [flag, DATA][: 2 * (name == "data")]),
            ]
        )
        outputs.append(capsys.readouterr().out)
    assert outputs[0] != outputs[1]


def test_the_runs_length_penalty_is_the_default(run, stories, monkeypatch):
    """Section 5: 1.0 for characters; a flag wins."""
    seen, generate = [], command.Run.generate.__globals__["generate"]
    monkeypatch.setitem(
        command.Run.generate.__globals__,
        "generate",
        lambda *a, **k: seen.append(k["length_penalty"]) or generate(*a, **k),
    )
    longer = run._replace(config=type(run.config)(length_penalty=1.0))
    list(decode(longer, stories[:1], extra_length=0))
    list(decode(longer, stories[:1], extra_length=0, length_penalty=0.3))
    assert seen == [1.0, 0.3]
