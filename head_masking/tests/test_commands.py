"""The two commands: killed and resumed, by several processes, given bad input."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from shared.run import checkpoints

from .. import predict
from .. import train as training
from ..loading import load_run
from ..train import train
from .conftest import DATA, SHORT, equal, killed_at, killed_by_a_signal, log, weights

RUN = replace(SHORT, steps=5, save_every=2, accumulate=2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing has stopped."""
    torch.manual_seed(7)  # a training does not depend on it
    out = tmp_path_factory.mktemp("whole") / "run"
    train(RUN, out)
    return out


@pytest.mark.parametrize("step", [0, 3])
def test_a_killed_training_resumes_to_the_same_bits(whole, tmp_path, step):
    """At once, before its first checkpoint, or later: dropout, Adam, the order of the data."""
    killed_at(step, training, RUN, tmp_path / "killed")
    train(RUN, tmp_path / "killed", resume=True)
    assert equal(weights(whole), weights(tmp_path / "killed"))
    assert log(whole) == log(tmp_path / "killed")


def test_with_patience_a_killed_training_keeps_the_same_best(tmp_path):
    config = replace(RUN, patience=2, learning_rate=0.3, steps=9)
    train(config, tmp_path / "whole")
    losses = [row["validation_loss"] for row in log(tmp_path / "whole")]
    assert losses.index(min(losses)) < len(losses) - 1  # the best is not the last
    killed_at(5, training, config, tmp_path / "killed")
    for _ in range(2):  # a finished run stays as it is
        train(config, tmp_path / "killed", resume=True)
        assert equal(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
        assert log(tmp_path / "whole") == log(tmp_path / "killed")


def test_a_training_killed_by_a_signal_resumes_to_the_same_bits(whole, tmp_path):
    """As an operating system kills: at any moment after the first checkpoint."""
    killed_by_a_signal(training, "TrainConfig", whole / "config.json", tmp_path / "killed")
    train(RUN, tmp_path / "killed", resume=True)
    assert equal(weights(whole), weights(tmp_path / "killed"))
    assert log(whole) == log(tmp_path / "killed")


def test_a_finished_run_resumes_to_nothing_and_a_longer_one_goes_on(whole, tmp_path):
    """With more steps it ends as if it had been that long from the start."""
    config = replace(RUN, steps=4)
    train(config, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").glob("*.*")}
    train(config, tmp_path / "run", resume=True)
    assert {path: path.read_bytes() for path in before} == before
    killed_at(4, training, RUN, tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="model.safetensors is missing"):
        load_run(tmp_path / "run")  # no old weights in a run that is being lengthened
    train(RUN, tmp_path / "run", resume=True)
    assert equal(weights(whole), weights(tmp_path / "run"))
    assert load_run(tmp_path / "run").config.steps == 5


def test_resume_says_where_it_begins_and_refuses_other_data(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    rows = [{"document": [f"the {n} dogs ran .", "home"], "summary": ["dogs"]} for n in range(12)]
    text = "\n".join(map(json.dumps, rows))
    for split in ("train", "validation"):
        (tmp_path / f"data/{split}.jsonl").write_text(text)
    config = replace(SHORT, data=str(tmp_path / "data"), steps=1)
    train(config, tmp_path / "run", resume=True)
    assert "does not exist yet: a new training begins" in capsys.readouterr().out
    (tmp_path / "data/train.jsonl").write_text(text.replace("7 dogs", "7 cats"))
    with pytest.raises(ValueError, match="was trained on 12 examples, sha256"):
        train(replace(config, steps=2), tmp_path / "run", resume=True)


def two_processes(out):
    """A training in which each process notes the documents that it reads."""
    from accelerate.state import AcceleratorState, PartialState

    AcceleratorState._reset_state(True)  # that of the process which was copied
    collate = training.Run.collate

    def noted(run, items):
        with Path(f"{out}-{PartialState().process_index}").open("a") as file:
            print([list(item.ids) for item in items], file=file)
        return collate(run, items)

    training.Run.collate = noted
    assert PartialState(cpu=True).num_processes == 2
    train(replace(SHORT, steps=1, save_every=0, batch_size=4), out)


def test_two_processes_train_one_model(tmp_path):
    """They read different batches, and what is left is one run."""
    import torch._dynamo  # noqa: F401  # two seconds, once and not in every child
    from accelerate import debug_launcher

    out = tmp_path / "run"
    debug_launcher(two_processes, (out,), num_processes=2)
    first, second = (Path(f"{out}-{i}").read_text().splitlines()[0] for i in (0, 1))
    assert first != second
    assert len(list(checkpoints(out)[-1].glob("random_states_*"))) == 2
    assert load_run(out).config.steps == 1
    with pytest.raises(ValueError, match="is of 2 processes, here are 1"):
        train(replace(load_run(out).config, steps=2), out, resume=True)


def test_variables_of_the_shell_change_nothing(whole, tmp_path, monkeypatch):
    from accelerate.state import AcceleratorState

    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    AcceleratorState._reset_state(True)
    train(RUN, tmp_path / "run")
    assert equal(weights(whole), weights(tmp_path / "run"))


def test_a_tracker_gets_what_the_log_gets(whole, tmp_path):
    """And changes no weight; one that is not installed is refused."""
    with pytest.raises(ValueError, match="--log-with aim is not installed"):
        train(replace(RUN, log_with="aim"), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    pytest.importorskip("tensorboard")
    train(replace(RUN, log_with="tensorboard"), tmp_path / "run")
    assert equal(weights(whole), weights(tmp_path / "run"))
    assert list((tmp_path / "run").rglob("events.out.tfevents*"))


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training.main, ["--out", "{new}", "--train-encoder", "False"], "needs --encoder"),
        (
            training.main,
            ["--out", "{new}", "--encoder", "no/such-bert", "--data", DATA],
            "hf download no/such-bert",
        ),
        (predict.main, ["{runs}/base", "--data", "no/such/place"], "no/such/place"),
        (
            predict.main,
            ["{runs}/tagger", "--data", DATA, "--oracle"],
            "is a tagger's run: give a BART",
        ),
        (predict.main, ["{runs}/base", "{text}", "--oracle"], "--oracle reads references"),
        (predict.main, ["{runs}/base", "--heads", "1:0"], "--heads masks nothing without"),
        (predict.main, ["{runs}/base", "--oracle", "--keep-words", "x"], "give one of them"),
        (
            predict.main,
            ["{runs}/base", "{text}", "--heads", "9:0", "--keep-words", "storm"],
            "layer 9 does not exist",
        ),
        (predict.main, ["{new}", "{text}"], "new"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(runs, tmp_path, command, flags, message, capsys):
    (tmp_path / "text.txt").write_text("a storm .\n")
    names = {"new": tmp_path / "new", "runs": runs, "text": tmp_path / "text.txt"}
    with pytest.raises(SystemExit) as stop:
        command([flag.format(**names) for flag in flags])
    assert stop.value.code in (1, 2) and message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "new").exists()
