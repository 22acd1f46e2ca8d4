"""Training: schedules, the objective, averages, fine-tuning, several processes, presets."""

import json
import math
import subprocess
import sys
import tracemalloc
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("shared")

from accelerate.state import AcceleratorState  # noqa: E402
from accelerate.utils import set_seed  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from shared.data import load  # noqa: E402
from shared.run import parse as parse_flags  # noqa: E402

from .. import train as training  # noqa: E402
from ..config import PRESETS, TrainConfig, follow, holds_open, l0_weight, learning_rate  # noqa: E402
from ..loading import load_run  # noqa: E402
from ..model import Encoding, Transformer, translation_loss  # noqa: E402
from ..text import Item, Items, collate  # noqa: E402
from ..train import save_average, sparsity, train, validate  # noqa: E402
from .conftest import SMALL, log  # noqa: E402

# Enough for the penalty to close gates.
FAST = replace(SMALL, steps=20, save_every=20, average_last=1, learning_rate=0.2, warmup=1)


def parse(flags):
    return parse_flags(flags, TrainConfig, PRESETS, training.__doc__)


def flags_of(config: TrainConfig) -> list[str]:
    """The command line of a config."""
    changed = {name: value for name, value in asdict(config).items() if value != getattr(TrainConfig(), name)}
    return [text for name, value in changed.items() for text in ("--" + name.replace("_", "-"), str(value))]


# Schedules


def test_learning_rate_is_the_inverse_square_root_with_warm_up():
    """Appendix A: rises to (D warmup)^-0.5 at `warmup` steps, then falls as the inverse root; fine-tuning counts on."""
    config = TrainConfig(width=512, heads=8, learning_rate=1.0, warmup=4000)
    assert learning_rate(3999, config) == pytest.approx(1 / math.sqrt(512 * 4000))
    assert learning_rate(999, config) == pytest.approx(0.25 * learning_rate(3999, config))
    assert learning_rate(15999, config) == pytest.approx(0.5 * learning_rate(3999, config))
    assert learning_rate(10, config, first_step=300_000) == learning_rate(300_010, config)  # D6


def test_lambda_is_constant_or_rises_linearly():
    """Section 6: constant in fine-tuning; from scratch it rises linearly for `l0_warmup` steps."""
    assert [l0_weight(step, TrainConfig(l0_weight=0.3)) for step in (0, 7)] == [0.3, 0.3]
    scheduled = TrainConfig(l0_weight=0.2, l0_warmup=200)
    assert [l0_weight(step, scheduled) for step in (0, 50, 200, 900)] == pytest.approx([0, 0.05, 0.2, 0.2])
    delayed = replace(scheduled, l0_start=100)
    assert [l0_weight(step, delayed) for step in (0, 99, 150, 300)] == pytest.approx([0, 0, 0.05, 0.2])
    assert [l0_weight(step, TrainConfig(l0_weight=0.3, l0_start=5)) for step in (4, 5)] == [0, 0.3]


def test_d20_lambda_follows_the_target():
    """Open for two fifths of the steps; then lambda rises while too few are pruned. Off in the paper's presets."""
    config = TrainConfig(steps=100)
    assert [holds_open(step, config) for step in (0, 39, 40)] == [True, True, False]
    assert not holds_open(0, replace(config, l0_weight=0.3))
    multiplier, weight = follow(0.5, 0.1)
    assert 0.5 < multiplier < weight
    multiplier, weight = follow(0.5, -0.1)
    assert 0.5 > multiplier > weight
    assert all(PRESETS[name].get("l0_weight", 0) > 0 for name in PRESETS if "finetune" in name or "scratch" in name)


@pytest.mark.parametrize(("last", "averaged"), [(5, [7, 8, 9, 10, 11]), (3, [9, 10, 11]), (1, [11])])
def test_d13_average_of_as_many_last_checkpoints_as_the_recipe_says(tmp_path, last, averaged):
    """D13: whatever the length of the run, so that a system and its control average alike."""
    for step in range(1, 12):
        (tmp_path / "checkpoints" / f"{step:08d}").mkdir(parents=True)
        save_file({"x": torch.tensor([step, -1.0])}, tmp_path / "checkpoints" / f"{step:08d}" / "model.safetensors")
    folder = SimpleNamespace(path=tmp_path, write=lambda name, write: write(tmp_path / name))
    assert save_average(folder, replace(SMALL, average_last=last)) == averaged
    assert load_file(tmp_path / "model.safetensors")["x"].tolist() == [sum(averaged) / len(averaged), -1]


def test_d13_a_run_too_short_for_its_average_is_refused():
    """D13: a short fine-tuning must say that it averages less, and then its control does, too."""
    with pytest.raises(ValueError, match="4 steps are too few for 3 checkpoints, 2 apart: add --average-last 1"):
        replace(SMALL, steps=4, average_last=3).check()
    replace(SMALL, steps=5, average_last=3).check()


def test_as_many_checkpoints_are_kept_as_are_averaged(whole):
    assert sorted(path.name for path in (whole["scratch"] / "checkpoints").glob("[0-9]*")) == ["00000004", "00000006"]


# A run


def test_d15_the_penalty_closes_gates_and_an_open_start_delays_it(tmp_path):
    """With a large lambda training prunes; with lambda almost 0 it does not; gates that start open stay open longer."""
    pruned, bias = [], []
    for weight, start in ((1e-6, 3.0), (30.0, 0.0), (30.0, 9.0)):
        train(replace(FAST, l0_weight=weight, gate_start=start), tmp_path / f"{weight} {start}")
        pruned.append(log(tmp_path / f"{weight} {start}")[-1]["sparsity"])
        bias.append(load_file(tmp_path / f"{weight} {start}/model.safetensors")["l0drop.0.predictor.bias"].item())
    assert pruned[0] < 0.1 and pruned[1] > 0.9 and pruned[2] <= pruned[1]
    assert bias[2] > 5 > bias[1]


def test_d19_the_gates_are_held_open_until_lambda_rises(tmp_path):
    """Even gates that start closed, and the encoder cannot close them; the rest trains from the first step on."""
    train(replace(SMALL, l0_weight=0.3, l0_start=4, gate_start=-5.0, average_last=3), tmp_path / "run")
    assert [row.get("sparsity", 0) > 0.5 for row in log(tmp_path / "run")] == [False, False, False, True]
    states = [load_file(path) for path in sorted((tmp_path / "run/checkpoints").glob("*/model.safetensors"))]
    gate = [state["l0drop.0.predictor.weight"] for state in states]
    assert len(states) == 3 and torch.equal(gate[0], gate[1]) and not torch.equal(gate[1], gate[2])
    assert [state["l0drop.0.predictor.bias"].item() == -5 for state in states] == [True, True, False]
    assert not torch.equal(states[0]["embedding.weight"], states[1]["embedding.weight"])


def test_the_optimizer_is_the_papers(tmp_path, monkeypatch, base):
    """Appendix A: Adam with beta 0.9 and 0.98; released code: eps 1e-8. Its rate counts on from the base run's."""
    made = []
    adam = torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda *a, **k: made.append(adam(*a, **k)) or made[-1])
    train(replace(SMALL, steps=3, init=str(base)), tmp_path / "run")
    defaults = made[0].defaults
    assert (defaults["betas"], defaults["eps"], defaults["weight_decay"]) == ((0.9, 0.98), 1e-8, 0)
    assert made[0].param_groups[0]["lr"] == pytest.approx(learning_rate(6 + 2, SMALL))  # D6


def test_validation_loss_is_not_smoothed_and_uses_expected_gates(whole):
    """The number in log.jsonl: mean over sentences of the unsmoothed loss per token, gates as at test time."""
    run, losses = load_run(whole["scratch"]), []
    run.model.load_state_dict(load_file(whole["scratch"] / "checkpoints/00000006/model.safetensors"))  # not averaged
    for item in run.encode(load(SMALL.data, "validation")):
        batch = collate([item])
        losses.append(translation_loss(run.model(batch.source, batch.target_input)[0], batch.target, smoothing=0.0))
    assert log(whole["scratch"])[-1]["validation_loss"] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-4)


def test_a_training_step_is_adam_on_eq12(tmp_path):
    """One update by hand, without dropout and gates: the weights after it."""
    config = replace(SMALL, l0drop="none", residual_dropout=0.0, steps=1, batch_tokens=10_000, average_last=1)
    train(config, tmp_path / "run")
    run = load_run(tmp_path / "run")
    start = load_file(tmp_path / "run" / "model.safetensors")
    set_seed(config.seed)
    model = Transformer(config.model_config(run.tokenizer.get_vocab_size()))
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate(0, config), betas=(0.9, 0.98), eps=1e-8)
    batch = collate(run.encode(load(SMALL.data, "train")))
    logits, _ = model(batch.source, batch.target_input)
    translation_loss(logits, batch.target, smoothing=0.1).mean().backward()
    optimizer.step()
    for name, value in model.state_dict().items():
        if not name.endswith("key.bias"):  # its gradient is zero but for rounding, which Adam scales up
            torch.testing.assert_close(start[name], value, rtol=1e-3, atol=2e-5)


def test_fine_tuning_starts_from_the_baseline(tmp_path, base):
    """--init takes weights, tokenizer, data, sizes and the step count; only the gates are new."""
    config, _, _ = parse(["--out", str(tmp_path / "tuned"), "--init", str(base), "--l0drop", "output", "--steps", "2",
                          "--average-last", "1"])  # fmt: skip
    expected = replace(SMALL, init=str(base), steps=2, average_last=1)
    assert config == expected
    train(replace(config, learning_rate=0.0), tmp_path / "tuned")
    tuned, untuned = load_run(tmp_path / "tuned"), load_run(base)
    assert tuned.first_step == 6 and untuned.first_step == 0
    train(replace(config, init=str(tmp_path / "tuned"), steps=1), tmp_path / "again")
    assert load_run(tmp_path / "again").first_step == 8  # of both before it
    assert tuned.tokenizer.to_str() == untuned.tokenizer.to_str()
    before, after = untuned.model.state_dict(), tuned.model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert set(after) - set(before) == {"l0drop.0.predictor.weight", "l0drop.0.predictor.bias"}


def test_sparsity_is_of_real_tokens_and_expected_gates():
    """Exactly 0 where log alpha is below -2.4 (Eq. 13); padding does not count."""
    keep = torch.tensor([[True, True, True, False]])
    assert sparsity(Encoding(None, keep, [], [torch.tensor([[-3.0, -2.0, 1.0, -9.0]])])) == pytest.approx(1 / 3)


def test_exchanged_sources_are_read_by_the_validation(whole):
    """What the last line of a training compares: other sources give another loss, the own ones the logged one."""
    run = load_run(whole["base"])
    items = run.encode(load(SMALL.data, "validation"))
    assert validate(run, items, shift=1)["validation_loss"] != validate(run, items)["validation_loss"]


def test_character_level_and_patterns_train(tmp_path):
    """Section 5's characters and Section 7's patterns go the whole way; a pattern's dropped units are kept on disk.

    What is cut is counted.
    """
    for name, flags in {"char": {"units": "char"}, "freq": {"l0drop": "none", "pattern": "freq"}}.items():
        train(replace(SMALL, steps=2, average_last=1, max_source=20, **flags), tmp_path / name)
    assert load_run(tmp_path / "char").dropped == set() and len(load_run(tmp_path / "freq").dropped) > 0
    vocabulary = load_run(tmp_path / "char").tokenizer.get_vocab()
    assert all(len(unit) == 1 for unit in vocabulary if not unit.startswith("<"))
    row = log(tmp_path / "freq")[0]
    assert row["sources_cut"] == row["examples"] == 24


def test_bfloat16_trains(tmp_path):
    AcceleratorState._reset_state(True)  # it holds the precision of the first Accelerator of a process
    train(replace(SMALL, mixed_precision="bf16", steps=2, average_last=1), tmp_path / "run")
    AcceleratorState._reset_state(True)
    assert math.isfinite(log(tmp_path / "run")[-1]["loss"])


def test_d14_two_processes_train_like_one_that_accumulates_twice_as_much(tmp_path):
    """Two CPU processes make the update of one process with twice the micro-batches (not of one with half of them)."""
    parents = len(training.__name__.split("."))
    top = Path(training.__file__).parents[parents - 1]
    config = replace(SMALL, l0drop="none", residual_dropout=0.0, steps=4, save_every=4, average_last=1, warmup=40)
    train(replace(config, accumulate=2), tmp_path / "one")
    train(config, tmp_path / "half")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, "-m", training.__name__, "--out", tmp_path / "two", *flags_of(config)]
    done = subprocess.run(command, cwd=top, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    one, two, half = (load_file(tmp_path / run / "model.safetensors") for run in ("one", "two", "half"))
    for name in one:
        if not name.endswith("key.bias"):  # its gradient is zero (softmax is shift-invariant): Adam scales up rounding
            torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-4)
    assert (one["embedding.weight"] - half["embedding.weight"]).abs().max() > 1e-3


BASE = dict(
    width=512, feed_forward=2048, heads=8, encoder_layers=6, decoder_layers=6, batch_tokens=25_000, warmup=4000,
    learning_rate=1.0, label_smoothing=0.1, average_last=5, save_every=2000, beam=4, residual_dropout=0.1,
    attention_dropout=0.1, vocabulary=32_000, extra_length=50, l0_reduction="token_mean", gate_bias=True,
    gate_start=0.0, mask_closed_in_training=False, l0_start=0, seed=0, positions=4096, accumulate=1,
)  # fmt: skip
NEWS = BASE | dict(attention_dropout=0.3, residual_dropout=0.5)
PAPERS = {  # Appendix A; Section 5 for characters; Section 6 for fine-tuning and from scratch; lambda of Table 1
    "paper": BASE | dict(data="wmt14-en-de", l0drop="none", steps=300_000, length_penalty=0.6, units="bpe"),
    "paper-scratch": BASE | dict(l0drop="output", l0_weight=0.2, l0_warmup=200_000, steps=300_000),
    "paper-finetune": BASE | dict(l0drop="output", l0_weight=0.3, l0_warmup=0, steps=50_000, units="bpe"),
    "paper-char": BASE | dict(l0drop="none", units="char", batch_tokens=85_000, length_penalty=1.0, steps=300_000,
                              max_source=1024, max_target=1024),
    "paper-char-finetune": BASE | dict(units="char", batch_tokens=85_000, length_penalty=1.0, l0_weight=0.02,
                                       l0_warmup=0, steps=50_000, l0drop="output"),
    "paper-cnndm": NEWS | dict(data="cnn_dailymail", max_source=400, steps=80_000, l0drop="none"),
    "paper-cnndm-finetune": NEWS | dict(data="cnn_dailymail", max_source=400, steps=20_000, l0drop="output",
                                        l0_weight=0.3, l0_warmup=0),
    "paper-wikisum": BASE | dict(data="wikisum", max_source=2048, steps=100_000, l0drop="none"),
}  # fmt: skip


@pytest.mark.parametrize("preset", PAPERS)
def test_presets_hold_the_papers_values(tmp_path, preset):
    """Each value of each preset; a fine-tuning has those of its baseline besides its own."""
    flags = ["--out", "nowhere", "--preset", preset]
    if preset.endswith("-finetune"):
        with pytest.raises(ValueError, match=f"a run of --preset {preset[:-9]} is not a run folder"):
            parse(flags)
        base = parse(["--out", "nowhere", "--preset", preset.removesuffix("-finetune")])[0]
        (tmp_path / "base").mkdir()
        (tmp_path / "base" / "config.json").write_text(json.dumps({"config": asdict(base)}))
        flags += ["--init", str(tmp_path / "base")]
    config = parse(flags)[0]
    config.check()
    values = BASE | PAPERS[preset]
    assert {name: getattr(config, name) for name in values} == values


def test_a_loss_that_is_not_finite_stops_training(tmp_path):
    """The step is named, and the last good checkpoint stays."""
    with pytest.raises(ValueError, match=r"the loss is (nan|inf) at step \d+; .* keeps its last checkpoint"):
        train(replace(SMALL, learning_rate=1e6, warmup=1, steps=20), tmp_path / "run")
    load_run(tmp_path / "run")


def test_a_run_whose_gates_are_all_open_or_closed_says_so(tmp_path, capsys):
    """At a checkpoint, with the remedy; not while the gates are held open, and not of a baseline."""
    for weight, said in ((1e-6, "every gate is open"), (30.0, "every gate is closed")):
        config = replace(FAST, l0_weight=weight, gate_start=3.0 if weight < 1 else -3.0)
        train(config, tmp_path / str(weight))
        assert f"{said}: {training.REMEDY}" in capsys.readouterr().out
    train(replace(FAST, l0drop="none"), tmp_path / "base")
    assert "every gate" not in capsys.readouterr().out


def test_a_pair_of_34_tokens_takes_less_than_a_quarter_of_a_kilobyte():
    """Kept for a whole training; as lists of numbers it would take 1.8 kB."""
    tracemalloc.start()
    items, pairs = Items(), 20_000
    for number in range(pairs):
        items.append(Item(list(range(number, number + 17)), list(range(17)), [True] * 17, False))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / pairs < 250
    assert items[7] == (list(range(7, 24)), list(range(17)), [1] * 17, 0) and len(items) == pairs
