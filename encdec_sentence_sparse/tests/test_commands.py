"""The commands, end to end: train, be killed and go on, predict; and what bad input gets."""

import itertools
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
from ..config import DECODING
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


def killed(config, out, number, resume=False):
    """Start a training and end it before its update `number`, from 0."""
    rate = training.learning_rate
    updates = itertools.count()

    def kill(*arguments):
        if next(updates) == number:
            raise Killed
        return rate(*arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(training, "learning_rate", kill)
        train(config, out, resume)


def same(one, other) -> bool:
    """Whether two runs have the same weights, bit for bit, and the same log."""
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and not changed(first, second) and log(one) == log(other)


@pytest.mark.usefixtures("unreported")
@pytest.mark.parametrize(("name", "number"), [("kl-0", 1), ("integrated-0", 3), ("two-0", 3)])
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, runs, name, number):
    """Dropout, Adam, the mode, the order of the data, and with patience the best weights."""
    config = load_run(runs / name).config
    killed(config, tmp_path / "run", number)
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
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=top, stdout=subprocess.DEVNULL) as child:
        while not checkpoints(out) and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    train(load_run(start).config, out, resume=True)
    assert same(out, start)


@pytest.mark.usefixtures("unreported")
def test_a_finished_run_resumes_to_nothing_and_a_longer_one_goes_on(runs, tmp_path):
    """With more steps it ends as if it had been that long from the start.

    Until then it has no weights, for those of before are not its own; other data are refused.
    """
    out = tmp_path / "run"
    longer = load_run(runs / "base-0").config
    config = replace(longer, steps=2)
    train(config, out)
    before = {path: path.read_bytes() for path in out.rglob("*.*") if path.is_file()}
    train(config, out, resume=True)
    with pytest.raises(ValueError, match=r"was trained on \d+ examples, sha256"):
        train(replace(longer, data="toy:count=8,seed=6"), out, resume=True)
    assert {path: path.read_bytes() for path in before} == before
    killed(longer, out, 0, resume=True)
    with pytest.raises(ValueError, match="model.safetensors is missing"):
        load_run(out)
    train(longer, out, resume=True)
    assert same(out, runs / "base-0")


@pytest.mark.usefixtures("unreported")
def test_variables_of_the_shell_change_nothing(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    AcceleratorState._reset_state(True)
    train(load_run(runs / "two-0").config, tmp_path / "run")
    assert same(tmp_path / "run", runs / "two-0")


@pytest.mark.usefixtures("unreported")
def test_a_tracker_gets_what_the_log_gets(runs, tmp_path):
    """And changes no weight."""
    pytest.importorskip("tensorboard")
    config = replace(load_run(runs / "two-0").config, log_with="tensorboard")
    train(config, tmp_path / "run")
    assert same(tmp_path / "run", runs / "two-0")
    assert list((tmp_path / "run").rglob("events.out.tfevents*"))


def test_d20_predict_on_data_writes_rows_and_a_table(runs, tmp_path, capsys):
    """A row a document, R-L over sentences; KL-only leaves the summariser as it is."""
    rows = []
    for name, mode in [("base", "full"), ("kl", "full"), ("kl", "approx"), ("base", "random")]:
        out = tmp_path / f"{name}.{mode}.jsonl"
        flags = f"--data {DATA} --limit 4 --mode {mode} --r 2 --out {out}"
        predict.main([str(runs / f"{name}-0"), *flags.split(), *SEARCH])
        rows.append([json.loads(line) for line in out.read_text().splitlines()])
    table = capsys.readouterr().out
    examples = load(DATA, "test", 4)
    items = load_run(runs / "kl-0").encode(examples)
    for example, item, full, same, chosen in zip(examples, items, *rows[:3], strict=True):
        assert full["prediction"] == same["prediction"] and full["references"] == example.references
        assert (full["id"], full["seed"], full["was_cut"]) == (example.id, 0, item.was_cut)
        assert full["sentences"] == item.sentence_ids[-1] + 1
        assert (full["system"], chosen["system"]) == ("base.full", "kl.approx.r2")
    outputs = [split_sentences(row["prediction"]) for row in rows[0]]
    expected = rouge.score(outputs, [example.references for example in examples])["rougeLsum"]
    assert f"{expected.mean():.2f}" in table and "base.random.r2" in table


def test_predict_answers_in_order(runs, tmp_path, capsys):
    """A line in is a line out, a blank one too; D8: a document of one string is split."""
    texts, pair, out = tmp_path / "a.txt", tmp_path / "b.jsonl", tmp_path / "new/out.jsonl"
    texts.write_text(f"{TEXTS[0]}\n\n{TEXTS[1]}\n")
    pair.write_text(json.dumps({"id": "x", "source": TEXTS[0]}) + "\n")
    predict.main([str(runs / "kl-0"), str(texts), *SEARCH])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] and lines[1] == ""
    flags = f"{runs}/kl-0 {texts} {pair} --batch-size 1 --out {out}"
    predict.main([*flags.split(), *SEARCH])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["prediction"] for row in rows] == [*lines, lines[0]] and rows[3]["id"] == "x"
    assert [row.get("sentences") for row in rows] == [3, None, 4, 3]  # </s> is one


def test_a_run_without_a_map_says_so_and_chooses_ideally(runs, tmp_path, capsys):
    text = tmp_path / "a.txt"
    text.write_text(TEXTS[0])
    full = ["--mode", "full"]
    for name, flags, said in [("base-0", [], True), ("kl-0", [], False), ("base-0", full, False)]:
        predict.main([str(runs / name), str(text), *SEARCH, *flags])
        assert ("no map was trained for" in capsys.readouterr().err) == said
    options = predict.Options(str(runs / "base-0"), mode="random", r=3, seed=7)
    assert predict.choose(load_run(runs / "base-0"), options) == Selection("random", 3, seed=7)
    # the run's r
    assert predict.choose(load_run(runs / "kl-0"), predict.Options("x")) == Selection("approx", 2)


def test_the_length_of_a_run_is_its_own_and_flags_win(runs):
    """Without a length of its own it would stop at 20 tokens; single flags win over --decoding."""
    assert load_run(runs / "base-0").model.generation_config.max_length == 128
    options = predict.Options("x", decoding="paper", beam=2, max_length=70)
    assert options.generation() == DECODING["paper"] | dict(num_beams=2, max_length=70)


def test_any_bart_from_a_folder_is_trained_on_and_read(tmp_path):
    """With its weights and generation settings; it reads as many tokens as it can."""
    bart = save_bart(tmp_path / "bart").eval()
    run, ids = load_run_or_bart(str(tmp_path / "bart")), torch.randint(4, 300, (1, 9))
    assert run.config.max_source == 256 and run.model.generation_config.num_beams == 3
    theirs = bart(ids, decoder_input_ids=ids).logits
    torch.testing.assert_close(run.model(ids, decoder_input_ids=ids).logits, theirs)
    model = f"--task kl --model {tmp_path}/bart --sentence-encoder mean --out {tmp_path}/kl"
    flags = f"--data {DATA} --steps 1 --batch-size 4 --max-source 100"
    training.main([*model.split(), *flags.split()])
    run = load_run_or_bart(str(tmp_path / "kl"))
    assert not changed(bart.state_dict(), weights(tmp_path / "kl"))
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


REFUSED = [  # command, flags, words of its one line
    (training, "--out {out} --task kl", "--task kl starts from a trained model: give --init RUN"),
    (training, "--out {out} --vocabulary 10", "--vocabulary is 10"),
    (training, "--out {out} --max-source 2", "--max-source is 2"),
    (training, "--out {out} --log-with aim", "--log-with aim is not installed"),
    (training, "--out {out} --task integrated --init {runs}/base-0", "needs an approximator"),
    (
        training,
        "--out {out} --task integrated --init {runs}/kl-0 --sentence-encoder mean",
        "kl-0 has 'gru', leave it out",
    ),
    (training, "--out {out} --init {runs}/base-0 --dropout 0.5", "has 0.1, leave it out"),
    (
        training,
        "--out {out} --init {runs}/base-0 --max-source 1025",
        "--max-source is 1025, the model has",
    ),
    (training, "--out {runs}/base-0", "exists: add --resume to go on with it"),
    (predict, "{runs}/base-0 --data toy --limit 1 --mode approx", "needs an approximator"),
]


def test_bad_requests_end_with_one_line(runs, tmp_path, capsys):
    for command, flags, message in REFUSED:
        with pytest.raises(SystemExit) as stop:
            command.main(flags.format(out=tmp_path / "new", runs=runs).split())
        said = capsys.readouterr().err.splitlines()
        assert stop.value.code == 2 and message in said[-1], said
    assert not (tmp_path / "new").exists()


def test_a_loss_that_is_not_finite_stops_training(tmp_path, monkeypatch):
    """The step is named, and the last good checkpoint stays: that of two updates at a fair rate."""
    monkeypatch.setattr(training, "learning_rate", lambda step, config: 1e-3 if step < 2 else 1e9)
    config = replace(SMALL, steps=9, save_every=2)
    message = r"the loss is (nan|inf) at step 4; .*run keeps its last checkpoint"
    with pytest.raises(ValueError, match=message):
        train(config, tmp_path / "run")
    [last] = checkpoints(tmp_path / "run")
    assert int(last.name) == 2
