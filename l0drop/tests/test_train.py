"""Training: schedules, the objective, averages, fine-tuning, several processes, presets."""

import json
import math
import subprocess
import sys
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
from shared.run import flat, update  # noqa: E402
from shared.run import parse as parse_flags  # noqa: E402

from .. import train as training  # noqa: E402
from ..config import PRESETS, L0Weight, TrainConfig, l0_weight, learning_rate  # noqa: E402
from ..loading import load_run  # noqa: E402
from ..model import Encoding, Transformer, translation_loss  # noqa: E402
from ..text import collate  # noqa: E402
from ..train import save_average, sparsity, train  # noqa: E402
from .conftest import SMALL, log, same_weights  # noqa: E402

# Enough for the penalty to close gates.
FAST = replace(SMALL, steps=20, save_every=20, average_last=1, learning_rate=0.2, warmup=1)


def parse(flags):
    return parse_flags(flags, TrainConfig, PRESETS, training.__doc__)


def flags_of(config: TrainConfig) -> list[str]:
    """The command line of a config."""
    changed = {name: value for name, value in flat(config).items() if value != flat(TrainConfig())[name]}
    return [text for name, value in changed.items() for text in ("--" + name.replace("_", "-"), str(value))]


# Schedules


def test_learning_rate_is_the_inverse_square_root_with_warm_up():
    """Appendix A: rises to (D warmup)^-0.5 at `warmup` steps, then falls as the inverse root; fine-tuning counts on."""
    config = TrainConfig(learning_rate=1.0, warmup=4000)
    assert learning_rate(4000, 512, config) == pytest.approx(1 / math.sqrt(512 * 4000))
    assert learning_rate(1000, 512, config) == pytest.approx(0.25 * learning_rate(4000, 512, config))
    assert learning_rate(16_000, 512, config) == pytest.approx(0.5 * learning_rate(4000, 512, config))
    assert learning_rate(7, 768, config) == pytest.approx((512 / 768) ** 0.5 * learning_rate(7, 512, config))


def test_lambda_is_constant_or_rises_linearly():
    """Section 6: constant in fine-tuning; from scratch it rises linearly for `l0_warmup` steps."""
    assert [l0_weight(step, TrainConfig(l0_weight=0.3)) for step in (0, 7)] == [0.3, 0.3]
    scheduled = TrainConfig(l0_weight=0.2, l0_warmup=200)
    assert [l0_weight(step, scheduled) for step in (0, 50, 200, 900)] == pytest.approx([0, 0.05, 0.2, 0.2])
    delayed = replace(scheduled, l0_start=100)
    assert [l0_weight(step, delayed) for step in (0, 99, 150, 300)] == pytest.approx([0, 0, 0.05, 0.2])
    assert [l0_weight(step, TrainConfig(l0_weight=0.3, l0_start=5)) for step in (4, 5)] == [0, 0.3]


def weight_of(config: TrainConfig) -> L0Weight:
    return L0Weight(config, L0Weight.new_state(config))


def test_d20_lambda_follows_the_target():
    """Open for two fifths of the steps; then lambda rises while too few are pruned. Off in the paper's presets."""
    config = TrainConfig(steps=100, target_sparsity=0.5)
    weight = weight_of(config)
    assert [weight.holds_open(step) for step in (0, 39, 40)] == [True, True, False]
    assert not weight_of(replace(config, l0_weight=0.3)).holds_open(0)
    assert weight.at(39, 0.0) == 0 and weight.state["multiplier"] == 0  # held open: nothing is learned of lambda
    assert weight.at(40, 0.4) == pytest.approx(0.02 * 0.1 + 8 * 0.1)  # too little is pruned: the multiplier rises
    assert weight.at(41, 0.4) == pytest.approx(0.02 * 0.2 + 8 * 0.1)
    assert weight.at(42, 0.6) == pytest.approx(0.02 * 0.1 - 8 * 0.1)  # too much: lambda falls, even below 0
    assert weight_of(replace(config, l0_weight=0.3)).at(41, 0.4) == 0.3
    assert weight_of(update(config, l0drop="none")).at(41, 0.0) == 0  # a baseline has no lambda
    assert all(PRESETS[name].get("l0_weight", 0) > 0 for name in PRESETS if "finetune" in name or "scratch" in name)


def test_d20_the_aim_is_corrected_by_what_validation_prunes():
    """Batches that prune 0.6 where the validation data are pruned by 0.5 have to prune 0.1 more than is wanted."""
    weight = weight_of(TrainConfig(steps=100, target_sparsity=0.5))
    for step in range(40, 400):
        weight.at(step, 0.6)
    assert weight.state["pruned"] == pytest.approx(0.6, abs=1e-6)  # a running mean over about 20 batches
    weight.correct(0.5)
    assert weight.state["aim"] == pytest.approx(0.6)
    before = weight.state["multiplier"]
    assert weight.at(400, 0.6) == pytest.approx(before, abs=1e-6)  # what is aimed at


def test_d20_a_training_meets_its_target(tmp_path):
    """The whole controller, in the loop: the share pruned of the validation data is near the target at the end."""
    config = replace(FAST, steps=150, save_every=10, learning_rate=0.05, target_sparsity=0.4)
    train(config, tmp_path / "run")
    pruned = [row["sparsity"] for row in log(tmp_path / "run")[1:]]
    assert pruned[:5] == [0] * 5 and 0.2 < sum(pruned[-3:]) / 3 < 0.6


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
        train(update(FAST, l0_weight=weight, gate_start=start), tmp_path / f"{weight} {start}")
        pruned.append(log(tmp_path / f"{weight} {start}")[-1]["sparsity"])
        bias.append(load_file(tmp_path / f"{weight} {start}/model.safetensors")["l0drop.0.predictor.bias"].item())
    assert pruned[0] < 0.1 and pruned[1] > 0.9 and pruned[2] <= pruned[1]
    assert bias[2] > 5 > bias[1]


def test_d19_the_gates_are_held_open_until_lambda_rises(tmp_path):
    """Even gates that start closed, and the encoder cannot close them; the rest trains from the first step on."""
    train(update(SMALL, l0_weight=0.3, l0_start=4, gate_start=-5.0, average_last=3), tmp_path / "run")
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
    assert made[0].param_groups[0]["lr"] == pytest.approx(learning_rate(6 + 3, 16, SMALL))  # D6


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
    config = update(SMALL, l0drop="none", residual_dropout=0.0, steps=1, batch_tokens=10_000, average_last=1)
    train(config, tmp_path / "run")
    run = load_run(tmp_path / "run")
    start = load_file(tmp_path / "run" / "model.safetensors")
    set_seed(config.seed)
    model = Transformer(replace(config.model, vocabulary=run.tokenizer.get_vocab_size()))
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate(1, 16, config), betas=(0.9, 0.98), eps=1e-8)
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


@pytest.mark.parametrize(("batch_tokens", "count"), [(10_000, 24), (1, 24), (150, 1)])
def test_exchanged_sources_are_those_of_the_corpus(whole, tmp_path, capsys, batch_tokens, count, monkeypatch):
    """The verdict does not depend on the batches; of one example nothing can be exchanged, and nothing is said."""
    data = tmp_path / "data.jsonl"
    rows = [{"document": e.document, "summary": e.summary} for e in load(SMALL.data, "validation", count)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = replace(SMALL, data=str(data), init=str(whole["base"]), batch_tokens=batch_tokens, steps=1, average_last=1)
    losses = []
    monkeypatch.setattr(training, "says_it_reads", lambda *pair: losses.append(pair) or "VERDICT")
    train(config, tmp_path / "run")
    assert ("VERDICT" in capsys.readouterr().out) == (count > 1)
    assert all(own != other for own, other in losses) and len(losses) == (count > 1)


def test_a_training_from_scratch_on_few_pairs_says_what_else_to_do(tmp_path, capsys):
    (tmp_path / "data.jsonl").write_text(json.dumps({"source": "a b .", "target": "b ."}) + "\n")
    train(replace(SMALL, data=str(tmp_path / "data.jsonl"), steps=1, average_last=1), tmp_path / "run")
    assert "1 pairs are few" in capsys.readouterr().out.splitlines()[0]
    train(replace(SMALL, steps=1, average_last=1), tmp_path / "toy")
    assert "are few" not in capsys.readouterr().out


def test_character_level_trains_and_what_is_cut_is_counted(tmp_path):
    """Section 5's characters go the whole way."""
    train(replace(SMALL, steps=2, average_last=1, max_source=20, units="char"), tmp_path / "char")
    vocabulary = load_run(tmp_path / "char").tokenizer.get_vocab()
    assert all(len(unit) == 1 for unit in vocabulary if not unit.startswith("<"))
    row = log(tmp_path / "char")[0]
    assert row["sources_cut"] == row["examples"] == 24


def test_the_seed_moves_the_weights_too(tmp_path):
    """Not only order, dropout and gates."""
    for seed in (0, 1):
        train(replace(SMALL, learning_rate=0.0, seed=seed, steps=1, average_last=1), tmp_path / str(seed))
    assert not same_weights(tmp_path / "0", tmp_path / "1")


OTHER = dict(  # of each flag another value
    data="toy:count=25,seed=5", units="char", max_source=20, max_target=5, vocabulary=200, width=32, feed_forward=8,
    heads=4, encoder_layers=2, decoder_layers=2, residual_dropout=0.4, attention_dropout=0.4, l0drop="every",
    gate_bias=False, gate_start=1.0, mask_closed_in_training=True, target_sparsity=0.9, l0_weight=9.0, l0_warmup=9,
    l0_start=1, l0_reduction="sum", steps=1, batch_tokens=60, accumulate=2, learning_rate=0.3, warmup=2,
    average_last=2, mixed_precision="bf16", seed=1,
)  # fmt: skip
SAME = {
    "positions": "a longer table of sinusoids has the same rows",
    "save_every": "checkpoints change nothing but what is averaged",
    "length_penalty": "of the search alone: test_predict.py",
    "init": "test_fine_tuning_starts_from_the_baseline",
}
# With which other values a flag acts.
GIVEN = {
    "l0_warmup": {"l0_weight": 5.0}, "l0_start": {"l0_weight": 5.0}, "l0_reduction": {"l0_weight": 5.0},
    "mask_closed_in_training": {"l0_weight": 5.0, "gate_start": -2.0}, "l0drop": {"encoder_layers": 2},
}  # fmt: skip
TWO = replace(SMALL, steps=2, average_last=1, save_every=1, learning_rate=0.1)


def test_every_flag_is_in_the_list():
    assert OTHER.keys() | SAME.keys() == flat(TrainConfig()).keys()


@pytest.mark.parametrize("name", OTHER)
def test_every_flag_changes_two_updates(tmp_path, name):
    """With another value of the flag, and nothing else, the weights after two updates are others."""
    config = update(TWO, **GIVEN.get(name, {}))
    assert flat(config)[name] != OTHER[name]
    for folder, value in (("one", flat(config)[name]), ("other", OTHER[name])):
        AcceleratorState._reset_state(True)  # it holds the precision of a process
        train(update(config, **{name: value}), tmp_path / folder)
    AcceleratorState._reset_state(True)
    assert not same_weights(tmp_path / "one", tmp_path / "other")


def test_what_wins_among_default_preset_init_flag_and_resume(tmp_path, base):
    """A flag wins over the preset, the preset over the run of --init, that over the defaults; resumed runs keep all."""
    init = ["--out", str(tmp_path / "run"), "--init", str(base)]
    preset, width, warmup = ["--preset", "multi30k"], ("--width", "32"), ("--warmup", "7")
    table = [
        (init[:2], (128, 100, 0.12)), ([*init[:2], *preset], (128, 1000, 1.0)), (init, (16, 100, 0.12)),
        ([*init, *preset], (128, 1000, 1.0)), ([*init, *preset, *width, *warmup], (32, 7, 1.0)),
        ([*init, *warmup], (16, 7, 0.12)),
    ]  # fmt: skip
    for flags, values in table:
        config, out, resume = parse(flags)
        assert (config.model.width, config.warmup, config.learning_rate) == values and not resume
    train(replace(parse([*init, *warmup])[0], steps=1, average_last=1), out)
    resumed = parse([*init[:2], "--resume"])[0]
    assert resumed.warmup == 7 and resumed.init == str(base)
    with pytest.raises(ValueError, match="leave out warmup"):
        parse([*init[:2], "--resume", "--warmup", "8"])


def test_bfloat16_trains(tmp_path):
    AcceleratorState._reset_state(True)  # it holds the precision of the first Accelerator of a process
    train(replace(SMALL, mixed_precision="bf16", steps=2, average_last=1), tmp_path / "run")
    AcceleratorState._reset_state(True)
    assert math.isfinite(log(tmp_path / "run")[-1]["loss"])


def test_d14_two_processes_train_like_one_that_accumulates_twice_as_much(tmp_path):
    """Two CPU processes make the update of one process with twice the micro-batches (not of one with half of them)."""
    parents = len(training.__name__.split("."))
    top = Path(training.__file__).parents[parents - 1]
    config = update(SMALL, l0drop="none", residual_dropout=0.0, steps=4, save_every=4, average_last=1, warmup=40)
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
    learning_rate=1.0, average_last=5, save_every=5000, residual_dropout=0.1, attention_dropout=0.1, vocabulary=32_000,
    l0_reduction="token_mean", gate_bias=True, gate_start=0.0, mask_closed_in_training=False, l0_start=0, seed=0,
    positions=4096, accumulate=1, max_source=256, max_target=256, length_penalty=0.6,
)  # fmt: skip
NEWS = BASE | dict(attention_dropout=0.3, residual_dropout=0.5)
# Lengths and save_every as released; 20,000 updates hold five checkpoints 4,000 apart.
PAPERS = {  # Appendix A; Section 5 for characters; Section 6 for fine-tuning and from scratch; lambda of Table 1
    "paper": BASE | dict(data="wmt14-en-de", l0drop="none", steps=300_000, units="bpe"),
    "paper-scratch": BASE | dict(l0drop="output", l0_weight=0.2, l0_warmup=200_000, steps=300_000),
    "paper-finetune": BASE | dict(l0drop="output", l0_weight=0.3, l0_warmup=0, steps=50_000, units="bpe"),
    "paper-char": BASE | dict(l0drop="none", units="char", batch_tokens=85_000, length_penalty=1.0, steps=300_000,
                              max_source=1024, max_target=1024),
    "paper-char-finetune": BASE | dict(units="char", batch_tokens=85_000, length_penalty=1.0, l0_weight=0.02,
                                       l0_warmup=0, steps=50_000, l0drop="output", max_source=1024, max_target=1024),
    "paper-cnndm": NEWS | dict(data="cnn_dailymail", max_source=400, steps=80_000, l0drop="none"),
    "paper-cnndm-finetune": NEWS | dict(data="cnn_dailymail", max_source=400, steps=20_000, l0drop="output",
                                        l0_weight=0.3, l0_warmup=0, save_every=4000),
    "paper-wikisum": BASE | dict(data="wikisum", max_source=2048, steps=100_000, l0drop="none"),
}  # fmt: skip


@pytest.mark.parametrize("preset", PAPERS)
def test_presets_hold_the_papers_values(tmp_path, preset):
    """Each value of each preset, lengths as of D23; a fine-tuning has those of its baseline besides its own."""
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
    assert {name: flat(config)[name] for name in PAPERS[preset]} == PAPERS[preset]


def test_a_loss_that_is_not_finite_stops_training(tmp_path):
    """The step is named, and the last good checkpoint stays."""
    with pytest.raises(ValueError, match=r"the loss is (nan|inf) at step \d+; .* keeps its last checkpoint"):
        train(replace(SMALL, learning_rate=1e6, warmup=1, steps=20), tmp_path / "run")
    load_run(tmp_path / "run")


def test_a_run_whose_gates_are_all_open_or_closed_says_so(tmp_path, capsys):
    """At a checkpoint, with the remedy; not while the gates are held open, and not of a baseline."""
    for weight, said in ((1e-6, "every gate is open"), (30.0, "every gate is closed")):
        config = update(FAST, l0_weight=weight, gate_start=3.0 if weight < 1 else -3.0)
        train(config, tmp_path / str(weight))
        assert f"{said}: if that stays so, leave --l0-weight out" in capsys.readouterr().out
    train(update(FAST, l0drop="none"), tmp_path / "base")
    assert "every gate" not in capsys.readouterr().out
