"""The training script of rules and BART: equal to train.py's, and resumed to the same bits.

So rates, lambda, averages and the objective are those of train.py, whose tests are test_train.py
and test_commands.py.
"""

from dataclasses import asdict, replace

import pytest

pytest.importorskip("shared")
pytest.importorskip("transformers")

from ...experiments import bart, rules, training
from ...loading import load_run
from ..conftest import SMALL, killed_before, log, same_weights


def train(config, out, resume=False):
    """A training of its kind."""
    module, kind = (bart, "bart") if isinstance(config, bart.GatedBartConfig) else (rules, "rules")
    training.train(config, out, resume, module.begin, kind)


@pytest.mark.parametrize("name", ["scratch", "init"])
def test_without_a_rule_it_is_the_training_of_the_core(whole, tmp_path, name, monkeypatch):
    """The same bits: from scratch (D20), and fine-tuned; whatever the shell's variables say."""
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    train(rules.RuleConfig(**asdict(load_run(whole[name]).config)), tmp_path / "run")
    assert same_weights(whole[name], tmp_path / "run")
    assert log(whole[name]) == log(tmp_path / "run")


@pytest.mark.parametrize("name", ["rule", "bart"])
def test_a_killed_training_resumes_to_the_same_bits(folder, tmp_path, capsys, name):
    """A rule from scratch, and gates on a BART; the last loss is that of the weights that stay."""
    config = rules.RuleConfig(**asdict(replace(SMALL, l0drop="none")), rule="freq")
    load = rules.load_run
    if name == "bart":
        sizes = dict(max_source=30, max_target=30, batch_tokens=9)
        steps = dict(steps=6, save_every=2, average_last=2)
        paths = dict(bart=str(folder / "bart"), data=str(folder))
        config = bart.GatedBartConfig(**paths, **sizes, **steps)
        load = bart.load_run
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train(config, whole)
    run = load(whole)
    items = run.encode(training.load(config.data, "validation"))
    loss = training.validate(run, items)["validation_loss"]
    assert f"6 updates, validation loss {loss:.3f}, " in capsys.readouterr().out
    with killed_before(training, 3):
        train(config, killed)
    assert not (killed / "model.safetensors").exists()
    train(config, killed, resume=True)
    assert same_weights(whole, killed)
    assert log(whole) == log(killed)
