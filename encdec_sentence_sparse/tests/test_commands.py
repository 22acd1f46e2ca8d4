"""The commands, end to end: train, be killed and go on, predict; and what bad input gets."""

import json
import re
from dataclasses import replace

import pytest
import torch

pytest.importorskip("shared")

from transformers import GenerationConfig

from shared import rouge
from shared.data import load, split_sentences

from .. import predict
from .. import train as training
from ..loading import begin, load_run, load_run_or_bart
from ..selection import Selection
from ..train import train
from .test_config import save_bart
from .test_train import DATA, SMALL, changed, log, weights

SEARCH = ["--max-length", "9", "--beam", "2"]
TEXTS = ["A storm hit Norwick. Nobody was hurt.", "It rained. We left. He stayed."]


@pytest.mark.parametrize(("name", "command"), [("base-0", "train"), ("kl-0", "predict")])
def test_the_printed_hint_works(runs, tmp_path, capsys, name, command):
    """The command of the last line, as it stands there."""
    config = replace(load_run(runs / name).config, steps=1)
    train(config, tmp_path / "run")
    [hint] = re.findall(rf"next: python -m \S+\.{command} ([^#\n]+)", capsys.readouterr().out)
    more = ["--steps", "1"] if command == "train" else ["--limit", "2", *SEARCH]
    {"train": training.main, "predict": predict.main}[command]([*hint.split(), *more])
    assert capsys.readouterr().out


class Killed(BaseException):
    pass


@pytest.mark.usefixtures("unreported")
@pytest.mark.parametrize(
    ("name", "step"), [("base-0", 3), ("kl-0", 1), ("integrated-0", 3), ("two-0", 3)]
)
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, monkeypatch, runs, name, step):
    """Dropout, Adam, the mode, the data's order, and with patience the best weights, with --init or
    without.
    """
    config, calls, schedule = load_run(runs / name).config, iter(range(9)), training.learning_rate

    def killed(*arguments):
        if next(calls) == step:
            raise Killed
        return schedule(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(training, "learning_rate", killed)
        train(config, tmp_path / "run")
    train(config, tmp_path / "run", resume=True)
    assert weights(tmp_path / "run").keys() == weights(runs / name).keys()
    assert not changed(weights(tmp_path / "run"), weights(runs / name))
    assert log(tmp_path / "run") == log(runs / name)


def test_d20_predict_on_data_writes_rows_and_a_table(runs, tmp_path, capsys):
    """A row a document, a table of scores, R-L over sentences; KL-only leaves the summariser as it
    is.
    """
    rows = {}
    for name, mode in (
        ("base-0", "full"),
        ("kl-0", "full"),
        ("kl-0", "approx"),
        ("base-0", "random"),
    ):
        out = tmp_path / f"{name}.{mode}.jsonl"
        flags = [
            "--data",
            DATA,
            "--limit",
            "4",
            "--mode",
            mode,
            "--r",
            "2",
            *SEARCH,
            "--out",
            str(out),
        ]
        predict.main([str(runs / name), *flags])
        rows[name, mode] = [
            json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()
        ]
    table = capsys.readouterr().out
    examples, run = load(DATA, "test", 4), load_run(runs / "kl-0")
    for example, full, same, chosen in zip(examples, *list(rows.values())[:3], strict=True):
        assert full["prediction"] == same["prediction"] and full["references"] == example.references
        [item] = run.encode([example])
        assert (full["id"], full["seed"], full["was_cut"]) == (example.id, 0, item.was_cut)
        assert full["sentences"] == item.sentence_ids[-1] + 1
        assert (full["system"], chosen["system"]) == ("base.full", "kl.approx.r2")
    outputs = [split_sentences(row["prediction"]) for row in rows["base-0", "full"]]
    expected = rouge.score(outputs, [example.references for example in examples])[
        "rougeLsum"
    ].mean()
    assert f"{expected:.2f}" in table and "base.random.r2" in table


def test_predict_answers_in_order(runs, tmp_path, capsys):
    """A line in is a line out, a blank one too; D8: a document of one string is split."""
    files, out = (tmp_path / "a.txt", tmp_path / "b.jsonl"), tmp_path / "new" / "out.jsonl"
    files[0].write_text(f"{TEXTS[0]}\n\n{TEXTS[1]}\n")
    files[1].write_text(json.dumps({"id": "x", "source": TEXTS[0]}) + "\n")
    predict.main([str(runs / "kl-0"), str(files[0]), *SEARCH])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] and lines[1] == ""
    predict.main(
        [str(runs / "kl-0"), *map(str, files), *SEARCH, "--batch-size", "1", "--out", str(out)]
    )
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prediction"] for row in rows] == [*lines, lines[0]] and rows[3]["id"] == "x"
    assert [row.get("sentences") for row in rows] == [3, None, 4, 3]  # </s> is one


def test_a_run_without_a_map_says_so_and_chooses_ideally(runs, tmp_path, capsys):
    (tmp_path / "a.txt").write_text(TEXTS[0])
    for name, flags, said in (
        ("base-0", [], True),
        ("kl-0", [], False),
        ("base-0", ["--mode", "full"], False),
    ):
        predict.main([str(runs / name), str(tmp_path / "a.txt"), *SEARCH, *flags])
        assert ("no map was trained for" in capsys.readouterr().err) == said
    options = predict.Options(str(runs / "base-0"), mode="random", r=3, seed=7)
    assert predict.choose(load_run(runs / "base-0"), options) == Selection("random", 3, seed=7)
    # the run's r
    assert predict.choose(load_run(runs / "kl-0"), predict.Options("x")) == Selection("approx", 2)


def test_the_length_of_a_run_is_its_own_and_flags_win(runs):
    """A BART whose files have no length would stop at 20 tokens; --decoding is won over by single
    flags.
    """
    assert load_run(runs / "base-0").model.generation_config.max_length == 128
    options = predict.Options("x", decoding="paper", beam=2, max_length=70)
    expected = dict(
        num_beams=2, length_penalty=2.0, no_repeat_ngram_size=3, min_length=50, max_length=70
    )
    assert options.generation() == expected


def test_any_bart_from_a_folder_is_trained_on_and_read(tmp_path):
    """With its weights and generation settings; it reads as many tokens as it can."""
    bart, flags = (
        save_bart(tmp_path / "bart").eval(),
        ["--steps", "1", "--batch-size", "4", "--max-source", "100"],
    )
    run, ids = load_run_or_bart(str(tmp_path / "bart")), torch.randint(4, 300, (1, 9))
    assert run.config.max_source == 256 and run.model.generation_config.num_beams == 3
    theirs = bart(ids, decoder_input_ids=ids).logits
    torch.testing.assert_close(run.model(ids, decoder_input_ids=ids).logits, theirs)
    model = ["--task", "kl", "--model", str(tmp_path / "bart"), "--data", DATA, *flags]
    training.main(["--out", str(tmp_path / "kl"), *model, "--sentence-encoder", "mean"])
    after, run = weights(tmp_path / "kl"), load_run_or_bart(str(tmp_path / "kl"))
    assert all(
        torch.equal(after[name], value)
        for name, value in bart.state_dict().items()
        if name in after
    )
    assert len(run.model.attentions) == 3 and run.model.generation_config.max_length == 21


def test_a_bart_without_a_length_writes_up_to_max_target(tmp_path):
    """As facebook/bart-base: not 20 tokens."""
    bart = save_bart(tmp_path / "bart")
    bart.generation_config = GenerationConfig(decoder_start_token_id=2)
    bart.generation_config.save_pretrained(tmp_path / "bart")
    run = begin(replace(SMALL, model=str(tmp_path / "bart"), max_target=40), [])
    assert run.model.generation_config.max_length == 40
    assert load_run_or_bart(str(tmp_path / "bart")).model.generation_config.max_length == 256


def test_bad_requests_end_with_one_line(runs, tmp_path, capsys):
    (tmp_path / "a.txt").write_text(TEXTS[0])
    base, text = str(runs / "base-0"), str(tmp_path / "a.txt")
    integrated = ["--out", text + "x", "--task", "integrated", "--init", str(runs / "kl-0")]
    for main, flags, message in (
        (predict.main, [base, text, "--mode", "approx"], "mode 'approx' needs an approximator"),
        (
            training.main,
            ["--out", text + "x", "--task", "integrated", "--init", base],
            "needs an approximator",
        ),
        (
            training.main,
            [*integrated, "--sentence-encoder", "mean"],
            "--sentence-encoder: .* has 'gru', leave it",
        ),
        (
            training.main,
            ["--out", text + "x", "--init", base, "--dropout", "0.5"],
            "--dropout: .* has 0.1, leave it",
        ),
        (
            training.main,
            ["--out", text + "x", "--init", base, "--max-source", "1025"],
            "--max-source is 1025, the mod",
        ),
    ):
        with pytest.raises(SystemExit) as stop:
            main(flags)
        said = capsys.readouterr().err.strip()
        assert stop.value.code == 2 and re.search(message, said.splitlines()[-1]), said
    with pytest.raises(
        ValueError, match=r"loss is (nan|inf) at step \d+; .*run keeps its last checkpoint"
    ):
        train(replace(SMALL, steps=9, learning_rate=1e6, warmup=1, save_every=1), tmp_path / "run")
