"""The commands, end to end: train, be killed and go on, predict; and what bad input gets."""

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from accelerate.state import AcceleratorState
from transformers import GenerationConfig

from shared import rouge
from shared.data import load, split_sentences
from shared.run import checkpoints

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


def killed(monkeypatch, config, out, step, resume=False):
    """Start a training and end it before the update that is the `step`-th one here, from 0."""
    calls = iter(range(99))
    schedule = training.learning_rate

    def kill(*arguments):
        if next(calls) == step:
            raise Killed
        return schedule(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(training, "learning_rate", kill)
        train(config, out, resume)


def same(one, other) -> bool:
    """Whether two runs have the same weights, bit for bit, and the same log."""
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and not changed(first, second) and log(one) == log(other)


@pytest.mark.usefixtures("unreported")
@pytest.mark.parametrize(("name", "step"), [("kl-0", 1), ("integrated-0", 3), ("two-0", 3)])
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, monkeypatch, runs, name, step):
    """Dropout, Adam, the mode, the data's order, and with patience the best weights, with --init or
    without.
    """
    config = load_run(runs / name).config
    killed(monkeypatch, config, tmp_path / "run", step)
    train(config, tmp_path / "run", resume=True)
    assert same(tmp_path / "run", runs / name)


@pytest.mark.usefixtures("unreported")
def test_a_training_killed_by_a_signal_resumes_to_the_same_bits(runs, tmp_path):
    """As an operating system kills: at any moment after the first checkpoint."""
    out, start = tmp_path / "killed", runs / "integrated-0"
    code = (
        f"import pathlib, torch; torch.set_num_threads(1); from {training.__name__} import train; "
        f"from {training.__package__}.loading import load_run; "
        f"train(load_run({str(start)!r}).config, pathlib.Path({str(out)!r}))"
    )
    top = Path(sys.modules[training.__name__.split(".")[0]].__path__[0]).parent
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=top, stdout=subprocess.DEVNULL
    ) as child:
        while not checkpoints(out) and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    train(load_run(start).config, out, resume=True)
    assert same(out, start)


@pytest.mark.usefixtures("unreported")
def test_a_finished_run_resumes_to_nothing_and_a_longer_one_goes_on(runs, tmp_path, monkeypatch):
    """With more steps it ends as if it had been that long from the start; until then there are no
    weights, for those of before are not its own.
    """
    config = replace(load_run(runs / "base-0").config, steps=2)
    train(config, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.*") if path.is_file()}
    train(config, tmp_path / "run", resume=True)
    assert {path: path.read_bytes() for path in before} == before
    killed(monkeypatch, replace(config, steps=4), tmp_path / "run", 0, resume=True)
    with pytest.raises(ValueError, match="model.safetensors is missing"):
        load_run(tmp_path / "run")
    train(replace(config, steps=4), tmp_path / "run", resume=True)
    assert same(tmp_path / "run", runs / "base-0")


@pytest.mark.usefixtures("unreported")
def test_resume_says_where_it_begins_and_refuses_other_data(tmp_path, capsys):
    rows = [
        {"document": [f"{number} dogs ran .", "home"], "summary": "dogs"} for number in range(9)
    ]
    text = "\n".join(map(json.dumps, rows))
    for split in ("train", "validation"):
        (tmp_path / f"{split}.jsonl").write_text(text)
    config = replace(SMALL, data=str(tmp_path), steps=1)
    train(config, tmp_path / "run", resume=True)
    assert "does not exist yet: a new training begins" in capsys.readouterr().out
    (tmp_path / "train.jsonl").write_text(text.replace("7 dogs", "7 cats"))
    with pytest.raises(ValueError, match="was trained on 9 examples, sha256"):
        train(replace(config, steps=4), tmp_path / "run", resume=True)


@pytest.mark.usefixtures("unreported")
def test_variables_of_the_shell_change_nothing(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    AcceleratorState._reset_state(True)
    train(load_run(runs / "two-0").config, tmp_path / "run")
    assert same(tmp_path / "run", runs / "two-0")


@pytest.mark.usefixtures("unreported")
def test_a_tracker_gets_what_the_log_gets(runs, tmp_path):
    """And changes no weight; one that is not installed is refused."""
    config = load_run(runs / "two-0").config
    with pytest.raises(ValueError, match="--log-with aim is not installed"):
        train(replace(config, log_with="aim"), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    pytest.importorskip("tensorboard")
    train(replace(config, log_with="tensorboard"), tmp_path / "run")
    assert same(tmp_path / "run", runs / "two-0")
    assert list((tmp_path / "run").rglob("events.out.tfevents*"))


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
    ids = dict(decoder_start_token_id=2, eos_token_id=2, pad_token_id=1)
    bart.generation_config = GenerationConfig(**ids)
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
