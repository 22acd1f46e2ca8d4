"""The training script of rules and BART: equal to train.py's, and resumed to the same bits.

So rates, lambda, averages and the objective are those of train.py, whose tests are test_train.py
and test_commands.py.
"""

import itertools
import json
from dataclasses import asdict, replace

import pytest

pytest.importorskip("shared")
pytest.importorskip("transformers")

from ...experiments import bart, rules, training  # noqa: E402
from ...loading import load_run  # noqa: E402
from ..conftest import SMALL, log, same_weights  # noqa: E402


class Killed(BaseException):
    """Ends a training as a kill would."""


def train(config, out, resume=False):
    """A training of its kind."""
    kind = "bart" if isinstance(config, bart.GatedBartConfig) else "rules"
    training.train(config, out, resume, {"bart": bart, "rules": rules}[kind].begin, kind)


@pytest.mark.parametrize("name", ["scratch", "init"])
def test_without_a_rule_it_is_the_training_of_the_core(whole, tmp_path, name, monkeypatch):
    """The same bits: with accumulation, from scratch (D20) and from a baseline with a constant
    lambda, whatever the shell's variables say.
    """
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    train(rules.RuleConfig(**asdict(load_run(whole[name]).config)), tmp_path / "run")
    assert same_weights(whole[name], tmp_path / "run")
    assert log(whole[name]) == log(tmp_path / "run")


@pytest.fixture
def configs(bart_folder, tmp_path):
    """Two trainings: a rule from scratch, and gates on a BART."""
    rows = [
        {"source": " ".join(words), "target": words[0]} for words in itertools.permutations("abc")
    ]
    (tmp_path / "data").mkdir()
    for split in ("train", "validation"):
        path = tmp_path / "data" / f"{split}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
    rule = rules.RuleConfig(**asdict(replace(SMALL, l0drop="none")), rule="freq")
    return {
        "rule": rule,
        "bart": bart.GatedBartConfig(
            bart=str(bart_folder),
            data=str(tmp_path / "data"),
            batch_tokens=9,
            max_source=30,
            max_target=30,
            steps=6,
            save_every=2,
            average_last=2,
        ),
    }


@pytest.mark.parametrize("name", ["rule", "bart"])
def test_a_killed_training_resumes_to_the_same_bits(configs, tmp_path, monkeypatch, name):
    train(configs[name], tmp_path / "whole")
    rate, updates = training.learning_rate, itertools.count()

    def kill(*arguments):
        if next(updates) == 3:
            raise Killed
        return rate(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(training, "learning_rate", kill)
        train(configs[name], tmp_path / "killed")
    assert not (tmp_path / "killed/model.safetensors").exists()
    train(configs[name], tmp_path / "killed", resume=True)
    assert same_weights(tmp_path / "whole", tmp_path / "killed")
    assert log(tmp_path / "whole") == log(tmp_path / "killed")


def test_a_training_ends_with_its_loss_and_that_with_the_sources_exchanged(
    configs, tmp_path, capsys
):
    """Of the weights that stay, a mean; each target beside the source of the next document."""
    out = tmp_path / "run"
    train(configs["bart"], out)
    run = bart.load_run(out)
    items = run.encode(training.load(run.config.data, "validation"))
    losses = []
    for shift in (0, 1):
        sources = [items[(number + shift) % 6].source for number in range(6)]
        pairs = zip(items, sources, strict=True)
        moved = [item._replace(source=source) for item, source in pairs]
        losses.append(training.validate(run, moved)["validation_loss"])
    said = capsys.readouterr().out
    assert f"6 updates, validation loss {losses[0]:.3f}, " in said
    assert f"with the sources exchanged {losses[1]:.3f} " in said
    assert f"{losses[0]:.3f}" != f"{losses[1]:.3f}"
    assert f"experiments.bart predict {out} FILE.txt" in said
