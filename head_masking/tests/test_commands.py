"""The two commands: killed and resumed, by several processes, given bad input."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from accelerate import PartialState, debug_launcher
from accelerate.state import AcceleratorState

from .. import predict
from .. import train as training
from ..config import TrainConfig
from ..loading import Run, load_run
from ..train import train
from .conftest import DATA, SHORT, equal, killed_at, log, weights

RUN = replace(SHORT, steps=5, save_every=2, accumulate=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """trained(config): a run that nothing has stopped; each config is trained once."""

    @cache
    def train_once(config: TrainConfig) -> Path:
        torch.manual_seed(7)  # a training does not depend on it
        out = tmp_path_factory.mktemp("whole") / "run"
        train(config, out)
        return out

    return train_once


@pytest.mark.parametrize(("patience", "step"), [(0, 0), (0, 3), (2, 5)])
def test_a_training_killed_by_signal_9_resumes_to_the_same_bits(trained, tmp_path, patience, step):
    """Dropout, Adam, the order of the data; before the first checkpoint (0), too."""
    config, killed = RUN, tmp_path / "killed"
    if patience:
        config = replace(RUN, patience=patience, learning_rate=0.3, steps=9)
        losses = [row["validation_loss"] for row in log(trained(config))]
        assert losses.index(min(losses)) < len(losses) - 1  # the best is not the last
    killed_at(step, training, config, killed)
    for _ in range(2):  # a finished run stays as it is
        train(config, killed, resume=True)
        assert equal(weights(trained(config)), weights(killed))
        assert log(trained(config)) == log(killed)


def test_a_longer_run_ends_as_if_it_had_been_that_long_and_needs_the_same_data(trained, tmp_path):
    out = tmp_path / "run"
    train(replace(RUN, steps=4), out)
    killed_at(4, training, RUN, out, resume=True)
    with pytest.raises(ValueError, match="model.safetensors is missing"):
        load_run(out)  # no old weights in a run that is being lengthened
    train(RUN, out, resume=True)
    assert equal(weights(trained(RUN)), weights(out))
    assert load_run(out).config.steps == 5
    with pytest.raises(ValueError, match="was trained on 24 examples, sha256 .*; this is 24"):
        train(replace(RUN, steps=6, data="toy:count=24,seed=6"), out, resume=True)


def test_two_processes_train_one_model_on_batches_of_their_own(tmp_path, monkeypatch):
    """As torchrun starts them."""
    import torch._dynamo  # noqa: F401  # two seconds, once and not in every child

    collate, out = Run.collate, tmp_path / "run"

    def noted(run, items):
        state = PartialState()
        with (tmp_path / f"read-{state.process_index}").open("a") as file:
            print(state.num_processes, [list(item.ids) for item in items], file=file)
        return collate(run, items)

    monkeypatch.setattr(Run, "collate", noted)
    AcceleratorState._reset_state(True)
    config = replace(SHORT, steps=1, save_every=0, batch_size=4)
    debug_launcher(train, (config, out), num_processes=2)
    one, other = ((tmp_path / f"read-{i}").read_text().splitlines()[0] for i in (0, 1))
    assert one.startswith("2 ") and other.startswith("2 ") and one != other
    assert load_run(out).config.steps == 1
    with pytest.raises(ValueError, match="is of 2 processes, here are 1"):
        train(replace(config, steps=2), out, resume=True)


def test_variables_of_the_shell_change_nothing(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    AcceleratorState._reset_state(True)
    train(RUN, tmp_path / "run")
    assert equal(weights(trained(RUN)), weights(tmp_path / "run"))


def test_a_tracker_gets_what_the_log_gets(trained, tmp_path):
    """And changes no weight; one that is not installed is refused."""
    with pytest.raises(ValueError, match="--log-with aim is not installed"):
        train(replace(RUN, log_with="aim"), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    pytest.importorskip("tensorboard")
    train(replace(RUN, log_with="tensorboard"), tmp_path / "run")
    assert equal(weights(trained(RUN)), weights(tmp_path / "run"))
    assert list((tmp_path / "run").rglob("events.out.tfevents*"))


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        (training, "--out {new} --train-encoder False", "needs --encoder"),
        (training, "--out {new} --encoder no/such-bert --data {toy}", "hf download no/such-bert"),
        (predict, "{runs}/base --data no/such/place", "no/such/place"),
        (predict, "{runs}/tagger --data {toy} --oracle", "is a tagger's run: give a BART"),
        (predict, "{runs}/base {text} --oracle", "--oracle reads references"),
        (predict, "{runs}/base --heads 1:0", "--heads masks nothing without"),
        (predict, "{runs}/base --oracle --threshold 0.1", "--threshold is a tagger's decision"),
        (predict, "{runs}/base --oracle --keep-words x", "give one of them"),
        (predict, "{runs}/base {text} --heads 9:0 --keep-words x", "layer 9 does not exist"),
        (predict, "{new} {text}", "new"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(runs, tmp_path, command, flags, message, capsys):
    (tmp_path / "text.txt").write_text("a storm .\n")
    names = {"new": tmp_path / "new", "runs": runs, "text": tmp_path / "text.txt", "toy": DATA}
    with pytest.raises(SystemExit) as stop:
        command.main(flags.format(**names).split())
    assert stop.value.code in (1, 2) and message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "new").exists()
