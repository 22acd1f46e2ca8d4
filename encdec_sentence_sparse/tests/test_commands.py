"""The commands, end to end: train, be killed and go on, evaluate, predict; and what bad input gets."""

import csv
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel

from shared import rouge
from shared.data import load, split_sentences

from .. import evaluate, predict
from .. import train as training
from ..decode import Summaries
from ..loading import begin, load_run, load_run_or_bart
from ..selection import Selection
from ..text import train_tokenizer
from ..train import train
from .test_config import save_bart
from .test_train import DATA, SMALL, changed, log, weights

SEARCH = ["--max-length", "9", "--beam", "2"]
TEXTS = ["A storm hit Norwick. Nobody was hurt.", "It rained. We left. He stayed."]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A base and, started from it, a kl and an integrated run."""
    folder = tmp_path_factory.mktemp("runs")
    train(SMALL, folder / "base-0")
    train(replace(SMALL, init=str(folder / "base-0"), task="kl", r=2), folder / "kl-0")
    mixed = dict(init=str(folder / "kl-0"), task="integrated", select="mix", mix_steps=4, patience=9)
    train(replace(SMALL, **mixed), folder / "int-0")
    return folder


class Killed(BaseException):
    pass


@pytest.mark.parametrize(("name", "step"), [("base-0", 3), ("kl-0", 1), ("int-0", 3)])
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, monkeypatch, runs, name, step):
    """Dropout, Adam, the mode, the data's order, and with patience the best weights, with --init or without."""
    config, calls, schedule = load_run(runs / name).config, iter(range(9)), training.learning_rate

    def killed(*arguments):
        if next(calls) == step:
            raise Killed
        return schedule(*arguments)

    monkeypatch.setattr(training, "learning_rate", killed)
    with pytest.raises(Killed):
        train(config, tmp_path / "run")
    monkeypatch.undo()
    train(config, tmp_path / "run", resume=True)
    assert weights(tmp_path / "run").keys() == weights(runs / name).keys()
    assert not changed(weights(tmp_path / "run"), weights(runs / name))
    assert log(tmp_path / "run") == log(runs / name)


def test_d20_evaluate_writes_rows_and_a_table(runs, tmp_path, capsys):
    """A row for each document and selection; KL-only leaves the summariser as it is; R-L over sentences; lengths."""
    folders, table = [str(runs / name) for name in ("base-0", "kl-0")], tmp_path / "new" / "table.csv"
    files = ["--predictions", str(tmp_path / "p"), "--csv", str(table)]
    evaluate.main([*folders, "--data", DATA, "--limit", "4", "--r", "2", "1", *SEARCH, *files])
    rows = [json.loads(line) for path in sorted((tmp_path / "p").iterdir()) for line in path.open(encoding="utf-8")]
    texts = {(row["system"], row["id"]): row["prediction"] for row in rows}
    assert len(texts) == len(rows) == 4 * (1 + 2 * 4 + 2 + 3)
    examples, run = load(DATA, "test", 4), load_run(runs / "kl-0")
    for example in examples:
        assert texts["base.full", example.id] == texts["kl.full", example.id]
        row = next(row for row in rows if row["id"] == example.id)
        item = run.encode([example])[0]
        assert row["references"] == example.references and row["seed"] == 0
        assert row["source_sentences"] == item.sentence_ids[-1] + 1 and row["target_tokens"] == len(item.target)
    with table.open(encoding="utf-8") as file:
        found = {(row["system"], row["minus"], row["metric"]): row for row in csv.DictReader(file)}
    assert {minus for _, minus, _ in found} == {"", "base.full"} and ("kl.approx.r1", "", "rouge1") in found
    outputs = [split_sentences(texts["base.full", example.id]) for example in examples]
    expected = rouge.score(outputs, [example.references for example in examples])["rougeLsum"].mean()
    assert float(found["base.full", "", "rougeLsum"]["value"]) == pytest.approx(expected, rel=1e-4)
    lengths = [len(run.encode([example])[0].ids) for example in examples]
    assert float(found["base.full", "", "source_tokens"]["value"]) == pytest.approx(sum(lengths) / 4, rel=1e-4)
    assert "kl.approx.r2" in capsys.readouterr().out


def test_texts_keep_their_documents(runs, monkeypatch):
    """Documents are decoded in the order of their lengths."""
    examples, batch = load(DATA, "test", 3), Summaries(0, [2, 0, 1], ["c", "a", "b"], None)
    monkeypatch.setattr(evaluate, "decode", lambda *a, **k: iter([batch]))
    rows = evaluate.evaluate(load_run(runs / "base-0"), "base-0", examples, {"full": Selection()})
    assert {row["id"]: row["prediction"] for row in rows} == dict(zip([e.id for e in examples], "abc", strict=True))


def test_predict_answers_in_order_from_files_and_standard_input(runs, tmp_path, capsys, monkeypatch):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"id": "x", "source": TEXTS[0]}) + "\n")
    predict.main([str(runs / "kl-0"), str(tmp_path / "a.txt"), *SEARCH])
    lines = capsys.readouterr().out.splitlines()
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(TEXTS)))
    predict.main([str(runs / "kl-0"), *SEARCH, "--batch-size", "1"])
    assert capsys.readouterr().out.splitlines() == lines and len(lines) == 2
    out = tmp_path / "new" / "out.jsonl"
    predict.main([str(runs / "kl-0"), str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl"), *SEARCH, "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prediction"] for row in rows] == [*lines, lines[0]] and rows[2]["id"] == "x"
    assert [row["sentences"] for row in rows] == [3, 4, 3]  # </s> is one


def test_any_bart_from_a_folder_is_trained_on_and_read(tmp_path):
    """With its weights and generation settings; it reads as many tokens as it can."""
    bart, flags = save_bart(tmp_path / "bart").eval(), ["--steps", "1", "--batch-size", "4", "--max-source", "100"]
    run, ids = load_run_or_bart(str(tmp_path / "bart")), torch.randint(4, 300, (1, 9))
    assert run.config.max_source == 256 and run.model.generation_config.num_beams == 3
    theirs = bart(ids, decoder_input_ids=ids).logits
    torch.testing.assert_close(run.model(ids, decoder_input_ids=ids).logits, theirs)
    model = ["--task", "kl", "--model", str(tmp_path / "bart"), "--data", DATA, *flags]
    training.main(["--out", str(tmp_path / "kl"), *model, "--sentence-encoder", "mean"])
    after, run = weights(tmp_path / "kl"), load_run_or_bart(str(tmp_path / "kl"))
    assert all(torch.equal(after[name], value) for name, value in bart.state_dict().items() if name in after)
    assert len(run.model.attentions) == 3 and run.model.generation_config.max_length == 21


@pytest.mark.parametrize("damage", ["missing", "nan", "kind", "nothing"])
def test_a_model_that_cannot_be_used_is_refused(tmp_path, damage):
    """transformers would fill missing weights at random, and make up a tokenizer."""
    if damage == "kind":
        sizes = dict(vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
        BertModel(BertConfig(**sizes)).save_pretrained(tmp_path)
        train_tokenizer(["a storm"], 300).save_pretrained(tmp_path)
    elif damage != "nothing":
        save_bart(tmp_path)
        values = load_file(tmp_path / "model.safetensors")
        name = "model.encoder.layers.0.fc1.weight"
        values |= {name: values.pop(name) * float("nan")} if damage == "nan" else {}
        if damage == "missing":
            values.pop(name)
        save_file(values, tmp_path / "model.safetensors", {"format": "pt"})
    messages = {
        "missing": "do not fit: .*fc1",
        "nan": "holds NaN",
        "kind": "is a bert model",
        "nothing": "neither a run",
    }
    with pytest.raises(ValueError, match=messages[damage]):
        load_run_or_bart(str(tmp_path))


def test_bad_requests_end_with_one_line(runs, tmp_path, capsys):
    (tmp_path / "a.txt").write_text(TEXTS[0])
    base, text = str(runs / "base-0"), str(tmp_path / "a.txt")
    for main, flags, message in (
        (predict.main, [base, text, "--mode", "approx"], "mode 'approx' needs an approximator"),
        (predict.main, [base, text, "--out", text], "a.txt exists: choose another name, or add --overwrite"),
        (predict.main, [base, text, "--min-length", "90", "--max-length", "20"], "--max-length is 20"),
        (evaluate.main, [base, base], "of different names"),
        (training.main, ["--out", base], "add --resume"),
        (training.main, ["--out", text + "x", "--task", "integrated", "--init", base], "needs an approximator"),
        (training.main, ["--out", text + "x", "--init", base, "--dropout", "0.5"], "--dropout: .* has 0.1, leave it"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(flags)
        said = capsys.readouterr().err.strip()
        assert stop.value.code == 2 and re.search(message, said) and said.count("\n") == 0
    with pytest.raises(ValueError, match="--max-source is 1025, the model has 256 positions"):
        begin(replace(SMALL, init=base, max_source=1025), [])
    with pytest.raises(ValueError, match=r"loss is (nan|inf) at step \d+; .*run keeps its last checkpoint"):
        train(replace(SMALL, steps=9, learning_rate=1e6, warmup=1, save_every=1), tmp_path / "run")
