"""Training both tasks: what is learned, resuming, run folders, loading, and what bad input gets."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, BartConfig, BartForConditionalGeneration, BertConfig
from transformers import BertModel as Bert

from shared.data import load

from .. import train as training
from ..masking import PAPER_HEADS, mask_heads
from ..model import best_threshold
from ..oracle import oracle_labels, token_labels
from ..text import encode_document, train_tokenizer
from ..train import (
    Batches,
    Pair,
    TrainConfig,
    learning_rate,
    load_summarizer,
    load_tagger,
    main,
    parse,
    read_config,
    train,
)

DATA = "toy:count=24,seed=5"
SMALL = TrainConfig(
    data=DATA, width=16, feed_forward=16, heads=2, layers=1, vocabulary=500, dropout=0.1, batch_size=8, steps=6,
    save_every=2, warmup=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A finished summarizer."""
    run_dir = tmp_path_factory.mktemp("runs") / "base"
    train(SMALL, run_dir)
    return run_dir


@pytest.fixture(scope="module")
def tagger_config(base) -> TrainConfig:
    return TrainConfig(
        task="tagger", data=DATA, encoder=str(base / "model"), hidden=8, batch_size=8, steps=12, save_every=3, warmup=1,
        learning_rate=0.01,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tagger_run(tagger_config, tmp_path_factory) -> Path:
    """A finished tagger."""
    run_dir = tmp_path_factory.mktemp("runs") / "tagger"
    train(tagger_config, run_dir)
    return run_dir


def log(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


def weights(run_dir: Path) -> dict:
    """What a finished run has learned."""
    summarizer = run_dir / "model" / "model.safetensors"
    return load_file(summarizer if summarizer.exists() else run_dir / "tagger.safetensors")


# Schedules and batches


def test_learning_rates():
    """Linear warm-up, then the inverse root, or linear to 0 at the end (released), or constant."""
    config = TrainConfig(learning_rate=0.1, warmup=100, steps=1100)
    assert [learning_rate(step, config) for step in (0, 49, 99)] == pytest.approx([0.001, 0.05, 0.1])
    assert learning_rate(399, config) == pytest.approx(0.05)
    polynomial = replace(config, schedule="polynomial", warmup=101)
    assert [learning_rate(step, polynomial) for step in (100, 600, 1099, 1100)] == pytest.approx([0.1, 0.05, 1e-4, 0])
    assert learning_rate(900, replace(config, schedule="constant")) == 0.1


def test_batches_hold_every_item_once_an_epoch_and_are_of_like_length():
    items = [Pair([0] * length, [0], False) for length in range(1, 42)]
    batches = Batches(items, 8, seed=0)
    for epoch in (0, 1):
        lengths = [[len(pair.source) for pair in batches[6 * epoch + number]] for number in range(6)]
        assert sorted(sum(lengths, [])) == list(range(1, 42))
        assert max(max(batch) - min(batch) for batch in lengths) < 30
    other = Batches(items, 8, seed=0)
    assert other[7] == batches[7] and other[7] != other[1] and Batches(items, 8, seed=1)[7] != other[7]


# What is learned


def test_training_lowers_the_loss_of_both_tasks(base, tagger_run):
    for run_dir in (base, tagger_run):
        losses = [row["validation_loss"] for row in log(run_dir)[1:]]
        assert losses[-1] < losses[0]


def test_the_loss_is_the_mean_cross_entropy_of_the_summary(base):
    """Validation loss of the log = transformers' own loss over the real tokens of all summaries."""
    model, tokenizer = load_summarizer(base)
    total, tokens = 0.0, 0
    for example in load(DATA, "validation"):
        source = torch.tensor([encode_document(tokenizer, example.source, 1024).ids])
        target = torch.tensor([encode_document(tokenizer, example.target, 256).ids])
        total += model(input_ids=source, labels=target).loss.item() * target.size(1)
        tokens += target.size(1)
    assert log(base)[-1]["validation_loss"] == pytest.approx(total / tokens, abs=2e-4)


def test_a_summarizer_loads_as_any_model_of_transformers(base, bart):
    """model/ is a folder of transformers; a run, that folder and a name are one and the same to load_summarizer."""
    model, tokenizer = load_summarizer(base)
    plain = AutoModelForSeq2SeqLM.from_pretrained(base / "model")
    for other in (plain, load_summarizer(base / "model")[0]):
        assert all(
            torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True)
        )
    assert not model.training and len(tokenizer) == model.config.vocab_size
    ids = torch.tensor([encode_document(tokenizer, "the storm hit Norwick .", 99).ids])
    keep = torch.ones_like(ids).bool()
    with mask_heads(model, {1: [0]}, keep):
        assert model.generate(ids, num_beams=2, max_new_tokens=3).size(0) == 1


def test_bart_large_cnn_of_that_structure_from_a_folder(tmp_path):
    """12 layers of 16 heads, saved and loaded by name of folder: the heads of Appendix B can be masked."""
    config = BartConfig(vocab_size=300, d_model=32, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=64)
    BartForConditionalGeneration(config).save_pretrained(tmp_path)
    train_tokenizer(["a storm hit the town ."], 300).save_pretrained(tmp_path)
    model, tokenizer = load_summarizer(tmp_path)
    model.set_attn_implementation("eager")
    inputs = tokenizer(["a storm hit the town .", "a storm ."], return_tensors="pt", padding=True)
    keep = torch.zeros_like(inputs.input_ids).bool()
    keep[:, 2] = True
    for heads in PAPER_HEADS.values():
        (layer, chosen) = next(iter(heads.items()))
        with mask_heads(model, heads, keep):
            output = model(**inputs, decoder_input_ids=inputs.input_ids[:, :1], output_attentions=True)
        weight = output.cross_attentions[layer - 1][:, :, 0, 2]
        assert sorted(set((weight == 1).all(0).nonzero().flatten().tolist())) == sorted(chosen)


def test_a_summarizer_is_fine_tuned_from_a_folder(base, tmp_path):
    """--model: its weights and tokenizer; with a rate of (nearly) nothing it stays what it was."""
    train(replace(SMALL, model=str(base / "model"), steps=1, learning_rate=1e-12), tmp_path / "run")
    before, after = weights(base), weights(tmp_path / "run")
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], atol=1e-9) for name in before)
    with pytest.raises(ValueError, match="max_source is 2000, the model has 1024 positions"):
        train(replace(SMALL, model=str(base / "model"), max_source=2000), tmp_path / "long")
    assert not (tmp_path / "long").exists()


def test_tagger_learns_oracle_labels_and_finds_its_threshold(tagger_run, tagger_config):
    """tagger.json holds the best F1 on the validation data, computed here again from the loaded tagger."""
    tagger, tokenizer, threshold = load_tagger(tagger_run)
    scores, labels = [], []
    for example in load(DATA, "validation"):
        ids, offsets, _ = encode_document(tokenizer, example.source, 1024)
        keep = torch.ones(1, len(ids)).bool()
        scores.append(tagger(torch.tensor([ids]), keep)[0].sigmoid())
        labels += token_labels(oracle_labels(example.source, example.target), offsets)
    scores, labels = torch.cat(scores).detach(), torch.tensor(labels)
    loss = torch.nn.functional.binary_cross_entropy(scores, labels.float())
    assert log(tagger_run)[-1]["validation_loss"] == pytest.approx(loss.item(), abs=2e-4)
    best, f1 = best_threshold(scores, labels)
    saved = json.loads((tagger_run / "tagger.json").read_text())
    assert (saved["threshold"], threshold) == (best, best)
    assert saved["token_f1"] == pytest.approx(f1, abs=1e-4)
    assert saved["positive_share"] == pytest.approx(labels.float().mean().item(), abs=1e-4)


def test_the_taggers_encoder_is_not_trained(base, tagger_run):
    tagger, _, _ = load_tagger(tagger_run)
    encoder = load_summarizer(base)[0].get_encoder()
    pairs = zip(tagger.encoder.state_dict().values(), encoder.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert set(weights(tagger_run)) == {"1.weight", "1.bias", "3.weight", "3.bias"}


def test_states_kept_in_memory_change_nothing(tagger_config, tagger_run, tmp_path):
    """Encoding once or at every update: the same training but for rounding."""
    train(replace(tagger_config, keep_states=False), tmp_path / "run")
    one, other = weights(tagger_run), weights(tmp_path / "run")
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-4, rtol=1e-3)


def test_any_encoder_of_transformers(tmp_path):
    """A BERT folder as the tagger's encoder, with a tokenizer of its own."""
    folder = tmp_path / "bert"
    tokenizer = train_tokenizer([example.source for example in load(DATA)], 400)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    Bert(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    main(["--task", "tagger", "--out", str(tmp_path / "run"), "--encoder", str(folder), "--data", DATA, "--steps", "2"])
    tagger, _, threshold = load_tagger(tmp_path / "run")
    assert type(tagger.encoder) is Bert and 0.1 <= threshold <= 0.4
    assert read_config(tmp_path / "run").hidden == 512  # the preset's


def test_early_stopping_takes_the_best_weights(tagger_config, tmp_path, monkeypatch):
    """Appendix A: stop after 2 validations without improvement; what is written is the best, not the last."""
    losses = iter([3.0, 1.0, 2.0, 1.5, 0.1])
    monkeypatch.setattr(training.Training, "validation_loss", lambda self: next(losses))
    config = replace(tagger_config, steps=60)
    train(replace(config, patience=2), tmp_path / "run")
    assert [row["validation_loss"] for row in log(tmp_path / "run")[1:]] == [3.0, 1.0, 2.0, 1.5]
    monkeypatch.undo()
    train(replace(config, steps=6), tmp_path / "best")
    best, run = weights(tmp_path / "best"), weights(tmp_path / "run")
    assert all(torch.equal(run[name], best[name]) for name in run)


def test_an_epoch_between_checkpoints_and_fewer_examples(tagger_config, tmp_path):
    """save_every 0 validates after each epoch; --examples limits the training data (Figure 5), not the validation."""
    train(replace(tagger_config, save_every=0, examples=17, steps=7), tmp_path / "run")
    first, *rows = log(tmp_path / "run")
    assert first == {"examples": 17, "validation_examples": 24, "sources_cut": 0}
    assert [row["step"] for row in rows] == [3, 6, 7]


def test_accumulation_is_a_larger_batch(tagger_config, tmp_path):
    """Two micro-batches of 12 are one of 24: the mean is over the tokens of the update, not over micro-batches."""
    config = replace(tagger_config, tagger_dropout=0.0, steps=3, patience=0)
    train(replace(config, batch_size=24), tmp_path / "one")
    train(replace(config, batch_size=12, accumulate=2), tmp_path / "two")
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-4, rtol=1e-3)


def test_what_is_clipped_is_the_gradient_of_the_mean(tagger_config, tmp_path):
    """Clipping at 2 does nothing here, at 0.01 something; a sum over tokens would be cut at 2, too."""
    for clip in (1e9, 2.0, 0.01):
        train(replace(tagger_config, clip=clip), tmp_path / str(clip))
    free, mild, hard = (weights(tmp_path / str(clip)) for clip in (1e9, 2.0, 0.01))
    assert all(torch.equal(free[name], mild[name]) for name in free)
    assert not torch.equal(free["1.weight"], hard["1.weight"])


def test_two_processes_train_like_one_that_accumulates_twice_as_much(tmp_path):
    """Two CPU processes make the update of one process with twice the batch (not of one with half of it)."""
    top = Path(training.__file__).parents[len(training.__name__.split(".")) - 1]
    config = replace(SMALL, data="toy:count=12", dropout=0.0, steps=2, batch_size=4, max_source=40)
    train(replace(config, accumulate=2), tmp_path / "one")
    train(config, tmp_path / "half")
    changed = {name: value for name, value in asdict(config).items() if value != getattr(TrainConfig(), name)}
    flags = [text for name, value in changed.items() for text in ("--" + name.replace("_", "-"), str(value))]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, "-m", training.__name__, "--out", tmp_path / "two", *flags]
    done = subprocess.run(command, cwd=top, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    one, two, half = (weights(tmp_path / run) for run in ("one", "two", "half"))
    for name in one:
        if not name.endswith("k_proj.bias"):  # its gradient is zero (softmax is shift-invariant): Adam scales rounding
            torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-4)
    assert (one["model.shared.weight"] - half["model.shared.weight"]).abs().max() > 1e-3


# Resuming


class Killed(BaseException):
    pass


@pytest.mark.parametrize("task", ["summarizer", "tagger"])
@pytest.mark.parametrize("moment", ["in a step", "while a checkpoint is written", "after a checkpoint"])
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, monkeypatch, base, tagger_run, tagger_config, task, moment):
    """Kill and --resume gives bitwise the weights of a run that was never killed: dropout, Adam, data order."""
    whole, config = (base, SMALL) if task == "summarizer" else (tagger_run, tagger_config)

    def kill(*_, **__):
        raise Killed

    calls = iter(range(100))
    if moment == "in a step":
        schedule = training.learning_rate
        monkeypatch.setattr(training, "learning_rate", lambda *a: kill() if next(calls) == 4 else schedule(*a))
    elif moment == "while a checkpoint is written":
        save = torch.save
        monkeypatch.setattr(torch, "save", lambda *a: kill() if next(calls) == 1 else save(*a))
    else:
        save = training.Training.save
        monkeypatch.setattr(training.Training, "save", lambda *a: kill() if (save(*a), next(calls))[1] == 1 else None)
    with pytest.raises(Killed):
        train(config, tmp_path / "killed")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="does not exist.*--resume"):
        (load_summarizer if task == "summarizer" else load_tagger)(tmp_path / "killed")
    train(config, tmp_path / "killed", resume=True)
    expected, got = weights(whole), weights(tmp_path / "killed")
    assert expected.keys() == got.keys() and all(torch.equal(expected[name], got[name]) for name in expected)
    assert log(whole) == log(tmp_path / "killed")


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path, monkeypatch, base):
    monkeypatch.setattr(training.Training, "update", lambda *a: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        train(SMALL, tmp_path / "run")
    monkeypatch.undo()
    train(SMALL, tmp_path / "run", resume=True)
    assert all(torch.equal(value, weights(base)[name]) for name, value in weights(tmp_path / "run").items())
    assert log(base) == log(tmp_path / "run")


def test_another_seed_is_another_run(tmp_path, base):
    train(replace(SMALL, seed=1), tmp_path / "other")
    name = "model.shared.weight"
    assert not torch.equal(weights(base)[name], weights(tmp_path / "other")[name])


# Bad input


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no-such-flag", "1"], "unrecognized arguments"),
        (["--max-sour", "1"], "unrecognized arguments"),  # no abbreviations: a typo must not pick another field
        (["--steps", "many"], "'many' is not int"),
        (["--keep-states", "maybe"], "'maybe' is not true or false"),
        (["--preset", "huge"], "invalid choice"),
        (["--task", "translator"], "invalid choice"),
    ],
)
def test_unknown_and_mistyped_flags_end_with_a_message(tmp_path, capsys, flags, message):
    with pytest.raises(SystemExit):
        parse(["--out", str(tmp_path / "run"), *flags])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "tagger"}, "a tagger needs --encoder"),
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"examples": -1}, "examples is -1; it must be at least 0"),
        ({"oracle": "lcs"}, "use one of runs, newsroom"),
        ({"activation": "gelu"}, "use one of tanh, relu"),
        ({"schedule": "cosine"}, "use one of inverse_sqrt, polynomial, constant"),
        ({"heads": 3}, "width 128 is not a multiple of heads = 3"),
    ],
)
def test_values_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**change)


def test_presets_hold_the_papers_values():
    """Appendix A and the released scripts."""
    tagger, _, _ = parse(["--out", "nowhere", "--task", "tagger", "--preset", "paper"])
    assert (tagger.encoder, tagger.learning_rate, tagger.batch_size * tagger.accumulate) == ("roberta-base", 5e-4, 128)
    assert (tagger.patience, tagger.save_every, tagger.activation, tagger.hidden) == (2, 0, "tanh", 512)
    assert (tagger.steps, tagger.warmup, tagger.weight_decay, tagger.clip) == (12_000, 500, 0.01, 0.1)
    assert (tagger.tagger_dropout, tagger.schedule) == (0.1, "polynomial")
    bart, _, _ = parse(["--out", "nowhere", "--preset", "paper"])
    assert (bart.model, bart.data, bart.learning_rate) == ("facebook/bart-large", "cnn_dailymail", 3e-5)
    assert parse(["--out", "nowhere", "--preset", "paper-nyt", "--data", "x"])[0].steps == 30_000
    tiny = parse(["--out", "nowhere", "--task", "tagger", "--encoder", "x", "--steps", "5"])[0]
    assert (tiny.patience, tiny.save_every, tiny.steps) == (2, 0, 5)


def test_models_out_of_reach_are_named_with_the_remedy(tmp_path, base):
    for load_it in (load_summarizer, lambda name: train(replace(SMALL, model=name), tmp_path / "run")):
        with pytest.raises(ValueError, match="cannot load 'no/such-bart'.*HF_HUB_OFFLINE=0 hf download no/such-bart"):
            load_it("no/such-bart")
    with pytest.raises(SystemExit, match="error: cannot load 'no/such-roberta'.*give a folder"):
        main(["--task", "tagger", "--out", str(tmp_path / "run"), "--data", DATA, "--encoder", "no/such-roberta"])
    assert not (tmp_path / "run").exists()


def test_a_run_folder_in_use_is_not_overwritten(base):
    before = (base / "model" / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="already holds a run"):
        train(SMALL, base)
    with pytest.raises(ValueError, match="leave out steps"):
        parse(["--out", str(base), "--resume", "--steps", "99"])
    assert parse(["--out", str(base), "--resume", "--steps", "6"])[0] == SMALL
    assert (base / "model" / "model.safetensors").read_bytes() == before


def test_bad_run_folders_are_named(tmp_path, base, tagger_run):
    with pytest.raises(ValueError, match="not a run folder"):
        load_tagger(tmp_path / "nothing")
    with pytest.raises(ValueError, match="holds a summarizer; give the run of a tagger"):
        load_tagger(base)
    with pytest.raises(ValueError, match="holds a tagger; give the run of a summarizer"):
        load_summarizer(tagger_run)
    config = json.loads((tagger_run / "config.json").read_text())
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    for text, message in (
        (json.dumps(config | {"package": "l0drop"}), "belongs to the package 'l0drop'"),
        (json.dumps(config)[:40], "config.json is cut off"),
        (json.dumps(config | {"train": {"colour": 1}}), "unknown field colour"),
        (json.dumps(config), "tagger.json does not exist: go on with"),
    ):
        (run_dir / "config.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            load_tagger(run_dir)
    (run_dir / "tagger.json").write_bytes((tagger_run / "tagger.json").read_bytes())
    with pytest.raises(ValueError, match="tagger.safetensors is missing"):
        load_tagger(run_dir)
    (run_dir / "tagger.safetensors").write_bytes((tagger_run / "tagger.safetensors").read_bytes()[:50])
    with pytest.raises(ValueError, match="tagger.safetensors is missing, cut off"):
        load_tagger(run_dir)


def test_a_tagger_whose_encoder_is_gone_is_named(tmp_path, tagger_run):
    config = json.loads((tagger_run / "config.json").read_text())
    config["train"]["encoder"] = str(tmp_path / "gone")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tagger.json").write_text('{"threshold": 0.2}')
    with pytest.raises(ValueError, match="cannot load '.*gone'"):
        load_tagger(tmp_path)


def test_bad_data_is_named_and_leaves_no_run(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.jsonl").write_text('{"source": "a b", "target": "c"}\n{"source": "a b"}\n')
    with pytest.raises(SystemExit, match=r"error: .*train\.jsonl.*2.*target"):
        main(["--out", str(tmp_path / "run"), "--data", str(data)])
    assert not (tmp_path / "run").exists()


def test_long_documents_are_cut_and_counted(tmp_path):
    train(replace(SMALL, max_source=20, steps=1), tmp_path / "run")
    row = log(tmp_path / "run")[0]
    assert row["sources_cut"] == row["examples"] == 24


def test_mixed_precision_trains_like_float32(tmp_path, base):
    """bfloat16 autocast: other numbers, nearly the same losses."""
    AcceleratorState._reset_state(True)  # accelerate keeps one precision per process
    try:
        train(replace(SMALL, mixed_precision="bf16"), tmp_path / "run")
    finally:
        AcceleratorState._reset_state(True)
    losses = [[row["loss"] for row in log(run_dir)[1:]] for run_dir in (base, tmp_path / "run")]
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], rel=0.02)


def test_label_smoothing_is_in_training_alone(tmp_path):
    """Before the first update has any effect, the training loss is the smoothed one and validation is not."""
    config = replace(SMALL, data="toy:count=8", dropout=0.0, learning_rate=1e-12, steps=1, save_every=1)
    rows = {}
    for smoothing in (0.0, 0.9):
        train(replace(config, label_smoothing=smoothing), tmp_path / str(smoothing))
        rows[smoothing] = log(tmp_path / str(smoothing))[-1]
    assert rows[0.0]["validation_loss"] == rows[0.9]["validation_loss"]
    assert abs(rows[0.0]["loss"] - rows[0.9]["loss"]) > 1e-3
