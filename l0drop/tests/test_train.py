"""Training: schedules, the objective, averages, fine-tuning, flags, presets."""

import json
import math
import re
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from accelerate.state import AcceleratorState
from accelerate.utils import set_seed
from safetensors.torch import load_file

from shared.data import load
from shared.run import Batches, checkpoints
from shared.run import parse as parse_flags

from .. import predict
from .. import train as training
from ..config import PRESETS, TrainConfig, held_open, l0_weight, learning_rate
from ..loading import Run, begin, load_run, new_model
from ..model import Encoding, translation_loss
from ..sparsity import SparsityControl
from ..text import collate
from ..train import lengths, sparsity, train
from .conftest import SMALL, log, same_weights

WEIGHTS = "model.safetensors"
# Enough for the penalty to close gates.
FAST = replace(SMALL, steps=20, save_every=20, average_last=1, learning_rate=0.2, warmup=1)


def parse(flags):
    return parse_flags(flags, TrainConfig, PRESETS, training.__doc__)


# Schedules


def test_learning_rate_is_the_inverse_square_root_with_warm_up():
    """Appendix A: rises to (D warmup)^-0.5 at `warmup` steps, then falls as the inverse root."""
    config = TrainConfig(learning_rate=1.0, warmup=4000)
    for width in (512, 768):
        highest = 1 / math.sqrt(width * 4000)
        rates = [learning_rate(number, width, config) for number in (1000, 4000, 16_000)]
        assert rates == pytest.approx([0.25 * highest, highest, 0.5 * highest])


def test_lambda_is_constant_or_rises_linearly():
    """Section 6: constant in fine-tuning, linear over `l0_warmup` from scratch; D19 delays it."""
    lambdas = [
        (dict(l0_weight=0.3), {0: 0.3, 7: 0.3}),
        (dict(l0_weight=0.3, l0_start=5), {4: 0, 5: 0.3}),
        (dict(l0_weight=0.2, l0_warmup=200), {0: 0, 50: 0.05, 200: 0.2, 900: 0.2}),
        (dict(l0_weight=0.2, l0_warmup=200, l0_start=100), {0: 0, 99: 0, 150: 0.05, 300: 0.2}),
        (dict(l0_weight=0.3, l0drop="none"), {0: 0, 10**6: 0}),
    ]
    for flags, values in lambdas:
        config = TrainConfig(**flags)
        assert [l0_weight(step, config) for step in values] == pytest.approx(list(values.values()))


def test_d20_lambda_follows_the_target():
    """Open for two fifths of the steps; then lambda rises while too few encodings are pruned.

    Validation corrects the aim.
    """
    assert held_open(TrainConfig(steps=100)) == 40
    assert held_open(TrainConfig(l0_weight=0.3, l0_start=7)) == 7
    assert l0_weight(39, TrainConfig(steps=100)) == 0
    control = SparsityControl(0.5, 40)
    # too little is pruned: the multiplier rises
    assert control.follow(0.4) == pytest.approx(0.02 * 0.1 + 8 * 0.1)
    assert control.follow(0.4) == pytest.approx(0.02 * 0.2 + 8 * 0.1)
    # too much: lambda falls, even below 0
    assert control.follow(0.6) == pytest.approx(0.02 * 0.1 - 8 * 0.1)
    for _ in range(357):
        control.follow(0.6)
    control.correct(0.5, 0.5)  # batches prune 0.1 more than the validation data: they have to
    before = control.multiplier
    assert control.follow(0.6) == pytest.approx(before, abs=1e-6)


def test_d20_a_lengthened_run_is_not_opened_again(tmp_path):
    """Two fifths of the steps are those of the run as it began, not of the longer one."""
    config = replace(FAST, save_every=5, target_sparsity=0.9, learning_rate=0.3)
    train(config, tmp_path / "run")
    train(replace(config, steps=60), tmp_path / "run", resume=True)
    lambdas = [row["lambda"] for row in log(tmp_path / "run")]
    assert lambdas[0] == 0 and all(lambdas[1:])


def test_d20_a_training_meets_its_target(tmp_path):
    """The whole controller, in the loop: in the end the share pruned is near the target."""
    config = replace(FAST, steps=150, save_every=10, learning_rate=0.05, target_sparsity=0.4)
    train(config, tmp_path / "run")
    pruned = [row["sparsity"] for row in log(tmp_path / "run")]
    assert pruned[:5] == [0] * 5 and 0.2 < sum(pruned[-3:]) / 3 < 0.6


# What a run averages


def test_d13_a_run_averages_as_many_last_checkpoints_as_the_recipe_says_and_keeps_them(whole):
    """D13: whatever its length, so that a system and its control average alike."""
    paths = checkpoints(whole["scratch"])
    assert [path.name for path in paths] == ["00000004", "00000006"]
    first, last = (load_file(path / WEIGHTS) for path in paths)
    mean = load_file(whole["scratch"] / WEIGHTS)
    assert all(torch.equal(mean[name], (first[name] + last[name]) / 2) for name in mean)


# A run


def test_d15_the_penalty_closes_gates_and_an_open_start_delays_it(tmp_path, capsys):
    """With almost no lambda every gate stays open, which is said, with the remedy."""
    pruned = []
    bias = []
    for weight, first in ((1e-6, 3.0), (30.0, 0.0), (30.0, 9.0)):
        out = tmp_path / f"{weight} {first}"
        train(replace(FAST, l0_weight=weight, gate_start=first), out)
        pruned.append(log(out)[-1]["sparsity"])
        bias.append(load_file(out / WEIGHTS)["l0drop.0.predictor.bias"].item())
    assert pruned[0] == 0 and pruned[1] > 0.9 and pruned[2] <= pruned[1]
    assert bias[2] > 5 > bias[1]
    assert "all gates are open, or all are closed: leave --l0-weight out" in capsys.readouterr().out


def test_d19_the_gates_are_held_open_until_lambda_rises(tmp_path, capsys):
    """Even gates that start closed; the rest trains from the first step on."""
    config = replace(SMALL, l0_weight=0.3, l0_start=4, gate_start=-5.0, average_last=3)
    train(config, tmp_path / "run")
    assert [row["sparsity"] > 0.5 for row in log(tmp_path / "run")] == [False, False, True]
    states = [load_file(path / WEIGHTS) for path in checkpoints(tmp_path / "run")]
    gate = [state["l0drop.0.predictor.weight"] for state in states]
    assert len(states) == 3 and torch.equal(gate[0], gate[1]) and not torch.equal(gate[1], gate[2])
    assert not torch.equal(states[0]["embedding.weight"], states[1]["embedding.weight"])
    assert "all gates are" not in capsys.readouterr().out


def test_the_optimizer_is_the_papers(tmp_path, monkeypatch, base):
    """Appendix A: Adam with beta 0.9 and 0.98; released code: eps 1e-8.

    Its rate counts on from the base run's.
    """
    made = []
    adam = torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda *a, **k: made.append(adam(*a, **k)) or made[-1])
    train(replace(SMALL, steps=3, init=str(base)), tmp_path / "run")
    defaults = made[0].defaults
    assert (defaults["betas"], defaults["eps"], defaults["weight_decay"]) == ((0.9, 0.98), 1e-8, 0)
    assert made[0].param_groups[0]["lr"] == pytest.approx(learning_rate(6 + 3, 16, SMALL))  # D6


@pytest.mark.parametrize("accumulate", [1, 2])
def test_d14_a_training_step_is_adam_on_the_mean_of_eq12(tmp_path, accumulate):
    """D14: an update by hand, without dropout and gates: the mean of its micro-batches' means."""
    config = replace(SMALL, l0drop="none", residual_dropout=0.0, steps=1, average_last=1)
    config = replace(config, accumulate=accumulate)
    train(config, tmp_path / "run")
    run = load_run(tmp_path / "run")
    set_seed(config.seed)
    model = new_model(config, run.tokenizer)
    rate = learning_rate(1, 16, config)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98), eps=1e-8)
    items = run.encode(load(SMALL.data, "train"))
    batches = Batches(lengths(items), config.seed, tokens=config.batch_tokens)
    for indices in batches.epoch(0)[:accumulate]:
        batch = collate([items[i] for i in indices])
        logits, _ = model(batch.source, batch.target_input)
        (translation_loss(logits, batch.target, smoothing=0.1).mean() / accumulate).backward()
    optimizer.step()
    for name, value in model.state_dict().items():
        # its gradient is zero but for rounding, which Adam scales up
        if not name.endswith("key.bias"):
            torch.testing.assert_close(run.model.state_dict()[name], value, rtol=1e-3, atol=2e-5)


def test_fine_tuning_starts_from_the_baseline(tmp_path, base):
    """--init takes weights, tokenizer, data, sizes and the step count; only the gates are new."""
    flags = f"--out tuned --init {base} --l0drop output --steps 2 --average-last 1"
    config, _, _ = parse(flags.split())
    assert config == replace(SMALL, init=str(base), steps=2, average_last=1)
    train(replace(config, learning_rate=0.0), tmp_path / "tuned")
    tuned, untuned = load_run(tmp_path / "tuned"), load_run(base)
    again = begin(replace(config, init=str(tmp_path / "tuned")), [])
    assert [run.first_step for run in (untuned, tuned, again)] == [0, 6, 8]
    assert tuned.tokenizer.to_str() == untuned.tokenizer.to_str()
    before, after = untuned.model.state_dict(), tuned.model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert set(after) - set(before) == {"l0drop.0.predictor.weight", "l0drop.0.predictor.bias"}


def test_sparsity_is_of_real_tokens_and_expected_gates():
    """Exactly 0 where log alpha is below -2.4 (Eq. 13); padding does not count."""
    keep = torch.tensor([[True, True, True, False]])
    log_alpha = torch.tensor([[-3.0, -2.0, 1.0, -9.0]])
    assert sparsity(Encoding(None, keep, [], [log_alpha])) == pytest.approx(1 / 3)


def loss_by_hand(run: Run, shift: int = 0) -> float:
    """Mean over the validation pairs of the unsmoothed loss per token, gates as at test time.

    Each target stands beside the source `shift` places later.
    """
    items = run.encode(load(SMALL.data, "validation"))
    losses = []
    for number, item in enumerate(items):
        source = items[(number + shift) % len(items)].source
        batch = collate([item._replace(source=source)])
        logits, _ = run.model(batch.source, batch.target_input)
        losses.append(translation_loss(logits, batch.target, smoothing=0.0).item())
    return sum(losses) / len(losses)


def test_a_training_ends_with_its_loss_and_that_with_the_sources_exchanged(whole, tmp_path, capsys):
    """Of the weights that stay, a mean; the log has the loss of those of its own step.

    The last line is a command that works.
    """
    out = tmp_path / "run"
    train(load_run(whole["scratch"]).config, out)
    said = capsys.readouterr().out
    run = load_run(out)
    loss = float(re.search(r"validation loss ([\d.]+)", said)[1])
    assert loss == pytest.approx(loss_by_hand(run), abs=1e-3)
    run.model.load_state_dict(load_file(checkpoints(out)[-1] / WEIGHTS))
    assert log(out)[-1]["validation_loss"] == pytest.approx(loss_by_hand(run), rel=1e-4)
    (tmp_path / "FILE.txt").write_text("in Brenton two halls were built .\n")
    command = re.search(r"next: python -m \S+\.predict (.*)", said)[1]
    predict.main(command.replace("FILE.txt", str(tmp_path / "FILE.txt")).split())
    assert capsys.readouterr().out
    # Each target stands beside the source of the next one, of a model that reads.
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter += torch.randn_like(parameter)
    training.report(run, run.encode(load(SMALL.data, "validation")), out)
    losses = [float(number) for number in re.findall(r"\d+\.\d{3}", capsys.readouterr().out)]
    assert losses == pytest.approx([loss_by_hand(run), loss_by_hand(run, shift=1)], abs=1e-3)
    assert abs(losses[0] - losses[1]) > 0.01


def test_a_loss_that_is_not_finite_stops_training(tmp_path):
    """The step is named, and the last good checkpoint stays."""
    config = replace(SMALL, learning_rate=1e6, warmup=1, steps=20)
    message = r"the loss is (nan|inf) at step \d+; .* keeps its last checkpoint"
    with pytest.raises(ValueError, match=message):
        train(config, tmp_path / "run")
    assert checkpoints(tmp_path / "run")


# Flags and presets


OTHER = dict(  # of each flag another value
    data="toy:count=25,seed=5",
    units="char",
    max_source=20,
    max_target=5,
    vocabulary=200,
    width=32,
    feed_forward=8,
    heads=4,
    encoder_layers=2,
    decoder_layers=2,
    residual_dropout=0.4,
    attention_dropout=0.4,
    l0drop="every",
    gate_start=1.0,
    mask_closed_in_training=True,
    target_sparsity=0.9,
    l0_weight=9.0,
    l0_warmup=9,
    l0_start=1,
    steps=1,
    batch_tokens=60,
    accumulate=2,
    learning_rate=0.3,
    warmup=2,
    average_last=2,
    mixed_precision="bf16",
    seed=1,
)
SAME = {
    "save_every": "checkpoints change nothing but what is averaged",
    "init": "test_fine_tuning_starts_from_the_baseline",
    "log_with": "test_a_tracker_gets_what_the_log_gets",
}
# With which other values a flag acts.
GIVEN = {
    "l0_warmup": {"l0_weight": 5.0},
    "l0_start": {"l0_weight": 5.0},
    "l0drop": {"encoder_layers": 2},
    "mask_closed_in_training": {"l0_weight": 5.0, "gate_start": -2.0},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """trained(**values) is the folder of two updates with these values, each trained once."""

    @cache
    def run(**values) -> Path:
        AcceleratorState._reset_state(True)  # it holds the precision of a process
        out = tmp_path_factory.mktemp("flags") / "run"
        config = replace(SMALL, steps=2, average_last=1, save_every=1, learning_rate=0.1)
        train(replace(config, **values), out)
        AcceleratorState._reset_state(True)
        return out

    return run


@pytest.mark.parametrize("name", OTHER)
def test_every_flag_changes_two_updates(trained, name):
    """Another value of the flag, and nothing else, makes other weights."""
    assert OTHER.keys() | SAME.keys() == vars(TrainConfig()).keys()
    given = GIVEN.get(name, {})
    assert not same_weights(trained(**given), trained(**given | {name: OTHER[name]}))


BASE = dict(
    width=512,
    feed_forward=2048,
    heads=8,
    encoder_layers=6,
    decoder_layers=6,
    batch_tokens=25_000,
    warmup=4000,
    learning_rate=1.0,
    average_last=5,
    save_every=5000,
    residual_dropout=0.1,
    attention_dropout=0.1,
    vocabulary=32_000,
    gate_start=0.0,
    mask_closed_in_training=False,
    l0_start=0,
    l0_warmup=0,
    seed=0,
    accumulate=1,
    max_source=256,
    max_target=256,
    units="bpe",
)
CHAR = BASE | dict(units="char", batch_tokens=85_000, max_source=1024, max_target=1024)
NEWS = BASE | dict(
    attention_dropout=0.3, residual_dropout=0.5, data="cnn_dailymail", max_source=400
)
# Lengths and save_every as released; 20,000 updates hold five checkpoints 4,000 apart.
# Appendix A; Section 5 for characters; Section 6 for fine-tuning and from scratch; lambda of Table
# 1
PAPERS = {
    "paper": BASE | dict(data="wmt14-en-de", l0drop="none", steps=300_000),
    "paper-scratch": BASE | dict(l0drop="output", l0_weight=0.2, l0_warmup=200_000, steps=300_000),
    "paper-finetune": BASE | dict(l0drop="output", l0_weight=0.3, steps=50_000),
    "paper-char": CHAR | dict(l0drop="none", steps=300_000),
    "paper-char-finetune": CHAR | dict(l0drop="output", l0_weight=0.02, steps=50_000),
    "paper-cnndm": NEWS | dict(l0drop="none", steps=80_000),
    "paper-cnndm-finetune": NEWS
    | dict(l0drop="output", l0_weight=0.3, steps=20_000, save_every=4000),
    "paper-wikisum": BASE | dict(data="wikisum", max_source=2048, steps=100_000, l0drop="none"),
}


@pytest.mark.parametrize("preset", PAPERS)
def test_presets_hold_the_papers_values(tmp_path, preset):
    """D23: lengths, too. A fine-tuning has the values of its baseline besides its own."""
    flags = ["--out", "nowhere", "--preset", preset]
    if preset.endswith("-finetune"):
        with pytest.raises(ValueError, match=f"a run of --preset {preset[:-9]} is no run folder"):
            parse(flags)
        base, _, _ = parse(["--out", "nowhere", "--preset", preset.removesuffix("-finetune")])
        (tmp_path / "config.json").write_text(json.dumps(asdict(base)))
        flags += ["--init", str(tmp_path)]
    config, _, _ = parse(flags)
    config.check()
    assert {name: vars(config)[name] for name in PAPERS[preset]} == PAPERS[preset]
