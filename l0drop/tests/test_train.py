"""Training: schedules, resuming, fine-tuning, several processes, and what bad input gets."""

import json
import math
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file  # noqa: E402

from .. import train as training  # noqa: E402
from ..train import TrainConfig, average, l0_weight, learning_rate, load_run, main, parse, train  # noqa: E402

SMALL = TrainConfig(
    data="toy:count=24,seed=5", width=16, feed_forward=16, heads=2, encoder_layers=1, decoder_layers=1, vocabulary=300,
    residual_dropout=0.1, batch_tokens=150, steps=6, save_every=2, average_last=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A finished baseline run."""
    run_dir = tmp_path_factory.mktemp("runs") / "base"
    train(replace(SMALL, l0drop="none"), run_dir)
    return run_dir


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


def test_average_is_the_mean_of_the_last_checkpoints(base):
    """Appendix A: model.safetensors is the mean of the last `average_last` checkpoints, and no older ones are kept."""
    paths = sorted((base / "checkpoints").glob("*.safetensors"))
    assert [path.stem for path in paths] == ["00000004", "00000006"]
    saved, first, second = (load_file(path) for path in [base / "model.safetensors", *paths])
    for name, value in saved.items():
        torch.testing.assert_close(value, (first[name] + second[name]) / 2)
    assert any((first[name] != second[name]).any() for name in first)
    assert average(paths[:1]).keys() == saved.keys()


# A run


def test_the_penalty_closes_gates(tmp_path):
    """With a large lambda training prunes; with lambda = 0 it does not."""
    pruned = {}
    for weight in (0.0, 30.0):
        config = replace(SMALL, l0_weight=weight, steps=60, save_every=60, learning_rate=0.1, warmup=1)
        train(config, tmp_path / str(weight))
        pruned[weight] = json.loads((tmp_path / str(weight) / "log.jsonl").read_text().splitlines()[-1])["sampled_zero"]
    assert pruned[0.0] < 0.7 and pruned[30.0] > 0.9


def test_training_lowers_the_loss(base):
    first, *_, last = (json.loads(line) for line in (base / "log.jsonl").read_text().splitlines()[1:])
    assert last["validation_loss"] < first["validation_loss"]


@pytest.mark.parametrize("moment", ["in the middle of a step", "between a checkpoint's files", "after a checkpoint"])
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, monkeypatch, moment):
    """Kill and --resume gives bitwise the weights of a run that was never killed: dropout, gates, Adam, data order."""
    train(SMALL, tmp_path / "whole")

    class Killed(BaseException):
        pass

    def kill(*_, **__):
        raise Killed

    if moment == "in the middle of a step":
        schedule = training.learning_rate
        steps = iter(range(100))
        monkeypatch.setattr(training, "learning_rate", lambda *a: kill() if next(steps) == 3 else schedule(*a))
    elif moment == "between a checkpoint's files":
        save, saves = torch.save, iter(range(100))
        monkeypatch.setattr(torch, "save", lambda *a: kill() if next(saves) == 1 else save(*a))
    else:
        saves, save_run = iter(range(100)), training.Training.save
        monkeypatch.setattr(
            training.Training, "save", lambda *a: kill() if (save_run(*a), next(saves))[1] == 1 else None
        )
    with pytest.raises(Killed):
        train(SMALL, tmp_path / "killed")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="not finished"):
        load_run(tmp_path / "killed")
    train(SMALL, tmp_path / "killed", resume=True)
    for file in ("model.safetensors", "checkpoints/00000006.safetensors"):
        whole, killed = (load_file(tmp_path / run / file) for run in ("whole", "killed"))
        assert all(torch.equal(whole[name], killed[name]) for name in whole), file
    steps = [json.loads(line).get("step") for line in (tmp_path / "killed" / "log.jsonl").read_text().splitlines()]
    assert steps == [None, 2, 4, 6]


def test_another_seed_is_another_run(tmp_path, base):
    train(replace(SMALL, l0drop="none", seed=1), tmp_path / "other")
    weights = [load_file(run / "model.safetensors")["embedding.weight"] for run in (base, tmp_path / "other")]
    assert not torch.equal(*weights)


def test_fine_tuning_starts_from_the_baseline(tmp_path, base):
    """--init takes weights, tokenizer, sizes and the step count; only the gates are new."""
    run_dir = tmp_path / "tuned"
    train(replace(SMALL, init=str(base), width=32, learning_rate=0.0, steps=2), run_dir)
    tuned, untuned = load_run(run_dir), load_run(base)
    assert tuned.config.width == 16 and tuned.steps == 8
    assert tuned.tokenizer.to_str() == untuned.tokenizer.to_str()
    before, after = untuned.model.state_dict(), tuned.model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert set(after) - set(before) == {"l0drop.0.predictor.weight", "l0drop.0.predictor.bias"}


def test_character_level_and_patterns_train(tmp_path):
    """Section 5's characters and Section 7's patterns go the whole way; a pattern's dropped units are kept on disk."""
    for name, flags in {"char": {"units": "char"}, "freq": {"l0drop": "none", "pattern": "freq"}}.items():
        train(replace(SMALL, steps=2, max_source=700, positions=1000, **flags), tmp_path / name)
    assert load_run(tmp_path / "char").dropped == set() and len(load_run(tmp_path / "freq").dropped) > 0
    vocabulary = load_run(tmp_path / "char").tokenizer.get_vocab()
    assert all(len(unit) == 1 for unit in vocabulary if not unit.startswith("<"))


def test_two_processes_train_like_one_that_accumulates_twice_as_much(tmp_path):
    """Two CPU processes make the update of one process with twice the batch (not of one with half of it)."""
    parents = len(training.__name__.split("."))
    top = Path(training.__file__).parents[parents - 1]
    config = replace(SMALL, l0drop="none", residual_dropout=0.0, steps=4, save_every=4, warmup=40)
    train(replace(config, accumulate=2), tmp_path / "one")
    train(config, tmp_path / "half")
    changed = {name: value for name, value in asdict(config).items() if value != getattr(TrainConfig(), name)}
    flags = [text for name, value in changed.items() for text in ("--" + name.replace("_", "-"), str(value))]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, "-m", training.__name__, "--out", tmp_path / "two", *flags]
    done = subprocess.run(command, cwd=top, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    one, two, half = (load_file(tmp_path / run / "model.safetensors") for run in ("one", "two", "half"))
    for name in one:
        if not name.endswith("key.bias"):  # its gradient is zero (softmax is shift-invariant): Adam scales up rounding
            torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-4)
    assert (one["embedding.weight"] - half["embedding.weight"]).abs().max() > 1e-3


# Bad input


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no-such-flag", "1"], "unrecognized arguments"),
        (["--l0-wei", "1"], "unrecognized arguments"),  # no abbreviations: a typo must not pick another field
        (["--steps", "many"], "'many' is not int"),
        (["--gate-bias", "maybe"], "'maybe' is not true or false"),
        (["--preset", "huge"], "invalid choice"),
    ],
)
def test_unknown_and_mistyped_flags_end_with_a_message(tmp_path, capsys, flags, message):
    with pytest.raises(SystemExit):
        parse(["--out", str(tmp_path / "run"), *flags])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"l0_weight": -0.1}, "must be at least 0"),
        ({"steps": 0}, "must be at least 1"),
        ({"units": "words"}, "use one of bpe, char"),
        ({"pattern": "pos"}, "add --l0drop none"),
        ({"max_source": 2000}, "raise --positions"),
    ],
)
def test_values_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**change)


def test_presets_hold_the_papers_values():
    """Appendix A, and Section 5 for characters."""
    config, _, _ = parse(["--out", "nowhere", "--preset", "paper"])
    assert (config.width, config.feed_forward, config.heads, config.encoder_layers) == (512, 2048, 8, 6)
    assert (config.batch_tokens, config.warmup, config.steps, config.learning_rate) == (25_000, 4000, 300_000, 1.0)
    assert (config.label_smoothing, config.average_last, config.beam, config.length_penalty) == (0.1, 5, 4, 0.6)
    assert parse(["--out", "nowhere", "--preset", "paper-char"])[0].length_penalty == 1.0
    news = parse(["--out", "nowhere", "--preset", "paper-cnndm"])[0]
    assert (news.attention_dropout, news.residual_dropout, news.max_source) == (0.3, 0.5, 400)


def test_a_run_folder_in_use_is_not_overwritten(base):
    before = (base / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="already holds a run"):
        train(SMALL, base)
    assert (base / "model.safetensors").read_bytes() == before
    with pytest.raises(ValueError, match="leave out steps"):
        parse(["--out", str(base), "--resume", "--steps", "99"])


def test_bad_run_folders_are_named(tmp_path, base):
    with pytest.raises(ValueError, match="not a run folder"):
        load_run(tmp_path / "nothing")
    config = json.loads((base / "config.json").read_text())
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    for text, message in (
        (json.dumps(config | {"package": "head_masking"}), "belongs to the package 'head_masking'"),
        (json.dumps(config)[:40], "config.json is cut off"),
        (json.dumps(config | {"train": {"colour": 1}}), "unknown field colour"),
        (json.dumps(config), "not finished"),
    ):
        (run_dir / "config.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            load_run(run_dir)
    (run_dir / "model.safetensors").write_bytes((base / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(ValueError, match="tokenizer.json is missing"):
        load_run(run_dir)
    (run_dir / "tokenizer.json").write_bytes((base / "tokenizer.json").read_bytes())
    with pytest.raises(ValueError, match="model.safetensors is cut off"):
        load_run(run_dir)
    (run_dir / "model.safetensors").write_bytes((base / "model.safetensors").read_bytes())
    (run_dir / "dropped.json").write_text("[1, 2")
    with pytest.raises(ValueError, match="dropped.json is cut off"):
        load_run(run_dir)


def test_bad_data_is_named_and_leaves_no_run(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.jsonl").write_text('{"source": "a b", "target": "c"}\n{"source": "a b"}\n')
    with pytest.raises(SystemExit, match=r"error: .*train\.jsonl.*2.*target"):
        main(["--out", str(tmp_path / "run"), "--data", str(data)])
    assert not (tmp_path / "run").exists()
    (data / "train.jsonl").write_text('{"source": "a b", "target": "c"}\n{"source": "", "target": "c"}\n')
    with pytest.raises(SystemExit, match=r"error: .*train\.jsonl.*2.*source"):
        main(["--out", str(tmp_path / "run"), "--data", str(data)])


def test_long_sources_are_cut_and_counted(tmp_path):
    train(replace(SMALL, max_source=20, steps=2), tmp_path / "run")
    row = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[0])
    assert row["sources_cut"] == row["examples"] == 24
