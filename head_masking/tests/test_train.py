"""Training both tasks: what is learned, resuming, loading, presets, and what bad input gets."""

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, BertConfig
from transformers import BertModel as Bert

from shared.data import load, write_jsonl

from .. import train as training
from ..config import PRESETS, TrainConfig, learning_rate
from ..loading import load_run, load_summarizer
from ..oracle import oracle_labels, token_labels
from ..run import parse as parse_flags
from ..tagger import best_threshold
from ..text import LengthBatches, encode_document, train_tokenizer
from ..train import main, objective, train

DATA = "toy:count=24,seed=5"
SMALL = TrainConfig(
    data=DATA, width=16, feed_forward=16, heads=4, layers=2, vocabulary=500, dropout=0.1, batch_size=8, steps=6,
    save_every=2, warmup=2, max_target=24,
)  # fmt: skip
TAGGER = TrainConfig(
    task="tagger", data=DATA, hidden=8, batch_size=8, steps=12, save_every=3, warmup=1, learning_rate=0.01
)


def parse(flags: list[str]):
    return parse_flags(flags, TrainConfig, PRESETS, training.__doc__)


@pytest.fixture
def base(runs) -> Path:
    """A finished summarizer."""
    return runs / "base"


@pytest.fixture
def tagger_config(base) -> TrainConfig:
    return replace(TAGGER, encoder=str(base))


@pytest.fixture
def tagger_run(runs) -> Path:
    """A finished tagger."""
    return runs / "tagger"


def log(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def weights(out: Path) -> dict:
    """What a finished run has learned."""
    path = out / "model/model.safetensors"
    return load_file(path if path.exists() else out / "model.safetensors")


def equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


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
    """Endlessly, in another order each epoch and with another seed."""
    items = [{"input_ids": [0] * length} for length in range(1, 42)]
    first, second, other = ([*islice(LengthBatches(items, 8, seed), 12)] for seed in (0, 0, 1))
    for batches in (first[:6], first[6:]):
        assert sorted(sum(batches, [])) == list(range(41))
        assert max(max(batch) - min(batch) for batch in batches) < 30
    assert first[:6] != first[6:] and first == second != other


# What is learned


def test_the_loss_is_the_mean_cross_entropy_of_the_summary(base):
    """Validation loss of the log = transformers' own loss over the real tokens of all summaries."""
    run, total, tokens = load_run(base), 0.0, 0
    for example in load(DATA, "validation"):
        source = torch.tensor([encode_document(run.tokenizer, example.source, 1024).ids])
        target = torch.tensor([encode_document(run.tokenizer, example.target, 24).ids])
        total += run.model(input_ids=source, labels=target).loss.item() * target.size(1)
        tokens += target.size(1)
    losses = [row["validation_loss"] for row in log(base)[1:]]
    assert losses[-1] == pytest.approx(total / tokens, abs=2e-4) and losses[-1] < losses[0]


def test_a_summarizer_loads_as_any_model_of_transformers(base):
    """model/ is a folder of transformers with the settings of generation; a run and that folder are the same model."""
    run = load_summarizer(base)
    plain = AutoModelForSeq2SeqLM.from_pretrained(base / "model")
    for other in (plain, load_summarizer(base / "model").model):
        assert equal(run.model.state_dict(), other.state_dict())
        assert (other.generation_config.num_beams, other.generation_config.max_length) == (5, 24)
    assert not run.model.training and len(run.tokenizer) == run.model.config.vocab_size and run.trained_on == 24


def test_a_summarizer_is_fine_tuned_from_a_folder(base, tmp_path):
    """--model: its weights and tokenizer; with a rate of (nearly) nothing it stays what it was."""
    train(replace(SMALL, model=str(base / "model"), steps=1, learning_rate=1e-12), tmp_path / "run")
    before, after = weights(base), weights(tmp_path / "run")
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], atol=1e-9) for name in before)
    with pytest.raises(ValueError, match="needs 2000 positions, the model has 1024"):
        train(replace(SMALL, model=str(base / "model"), max_source=2000), tmp_path / "long")
    assert not (tmp_path / "long").exists()


def test_tagger_learns_oracle_labels_and_finds_its_threshold(tagger_run):
    """The boundary with the best F1 on the validation data, computed here again from the loaded tagger."""
    run, scores, labels = load_run(tagger_run), [], []
    for example in load(DATA, "validation"):
        ids, offsets, *_ = encode_document(run.tokenizer, example.source, 1024)
        scores.append(run.model(torch.tensor([ids]), torch.ones(1, len(ids)).bool())[0].sigmoid())
        labels += token_labels(oracle_labels(example.source, example.target), offsets)
    scores, labels = torch.cat(scores).detach(), torch.tensor(labels)
    loss = torch.nn.functional.binary_cross_entropy(scores, labels.float())
    row, (best, f1) = log(tagger_run)[-1], best_threshold(scores, labels)
    assert row["validation_loss"] == pytest.approx(loss.item(), abs=2e-4)
    assert row["threshold"] == best and run.model.threshold.item() == pytest.approx(best)
    assert row["token_f1"] == pytest.approx(100 * f1, abs=1e-2)


def test_a_tagger_needs_its_encoders_run_no_more(base, tagger_config, tmp_path, monkeypatch):
    """The run holds the encoder, as it was and not trained; named relatively, read from another folder."""
    shutil.copytree(base, tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    train(replace(tagger_config, encoder="base", steps=1), "tagger")
    shutil.rmtree("base")
    monkeypatch.chdir("/")
    tagger, encoder = load_run(tmp_path / "tagger").model, load_summarizer(base).model.get_encoder()
    assert equal(tagger.encoder.state_dict(), encoder.state_dict())


def test_d12_the_encoder_is_trained_if_asked(tagger_config, tagger_run, tmp_path):
    """D12: --train-encoder; without it the encoder's weights stay."""
    train(replace(tagger_config, train_encoder=True), tmp_path / "run")
    name = "encoder.layers.0.fc1.weight"
    before = weights(Path(tagger_config.encoder))[f"model.{name}"]
    assert torch.equal(weights(tagger_run)[name], before)
    assert (weights(tmp_path / "run")[name] - before).abs().max() > 1e-3
    assert log(tmp_path / "run")[-1]["validation_loss"] < log(tagger_run)[-1]["validation_loss"]


def test_any_encoder_of_transformers(tmp_path):
    """A BERT folder as the tagger's encoder, with a tokenizer of its own and no pooler."""
    folder = tmp_path / "bert"
    tokenizer = train_tokenizer([example.source for example in load(DATA)], 400)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    Bert(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=99, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with pytest.raises(ValueError, match="needs 512 positions, the model has 99: lower it"):
        train(replace(TAGGER, encoder=str(folder)), tmp_path / "run")
    Bert(BertConfig(vocab_size=len(tokenizer), **sizes), add_pooling_layer=False).save_pretrained(folder)
    flags = ["--encoder", str(folder), "--data", DATA, "--steps", "2"]
    main(["--preset", "tagger", "--out", str(tmp_path / "run"), *flags])
    run = load_run(tmp_path / "run", "tagger")
    assert type(run.model.encoder) is Bert and 0.1 <= run.model.threshold <= 0.41
    assert run.config.hidden == 512  # the preset's


def test_early_stopping_takes_the_best_weights(tagger_config, tmp_path, monkeypatch):
    """Appendix A: stop after 2 validations without improvement; what is written is the best, not the last."""
    losses = iter([3.0, 1.0, 2.0, 1.5, 0.1])
    validate = training.validate
    monkeypatch.setattr(training, "validate", lambda *a: validate(*a) | {"validation_loss": next(losses)})
    config = replace(tagger_config, steps=60)
    train(replace(config, patience=2), tmp_path / "run")
    assert [row["validation_loss"] for row in log(tmp_path / "run")[1:]] == [3.0, 1.0, 2.0, 1.5]
    monkeypatch.undo()
    train(replace(config, steps=6), tmp_path / "best")
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "best"))
    train(replace(config, patience=2), tmp_path / "run", resume=True)  # a finished run is left as it is
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "best"))


def test_an_epoch_between_checkpoints_and_fewer_examples(tagger_config, tmp_path):
    """save_every 0 validates after each epoch; --examples limits the training data (Figure 5)."""
    train(replace(tagger_config, save_every=0, examples=17, steps=7, max_source=20), tmp_path / "run")
    first, *rows = log(tmp_path / "run")
    assert first == {"step": 0, "examples": 17, "sources_cut": 17}
    assert [row["step"] for row in rows] == [3, 6, 7]
    train(replace(tagger_config, save_every=0, accumulate=2, steps=4), tmp_path / "accumulated")
    assert [row["step"] for row in log(tmp_path / "accumulated")] == [0, 2, 4]  # 24 documents, 16 an update


def test_d13_an_update_is_the_mean_over_micro_batches_clipped(tagger_config, tmp_path, monkeypatch):
    """D13, and the released optimiser: one update of AdamW by the mean of two micro-batches' gradients."""
    seen, adam, clipped = {}, torch.optim.AdamW, []
    monkeypatch.setattr(torch.optim, "AdamW", lambda p, **options: seen.update(options) or adam(p, **options))
    clip = Accelerator.clip_grad_norm_
    monkeypatch.setattr(Accelerator, "clip_grad_norm_", lambda *a: clipped.append(a[2]) or clip(*a))
    config = replace(tagger_config, tagger_dropout=0.0, steps=2, weight_decay=0.01)
    config = replace(config, batch_size=12)
    train(replace(config, batch_size=24, clip=2.0), tmp_path / "one")
    train(replace(config, accumulate=2, clip=0.0), tmp_path / "two")
    train(replace(config, clip=1e5), tmp_path / "half")
    one, two, half = (weights(tmp_path / name)["perceptron.1.weight"] for name in ("one", "two", "half"))
    assert (one - two).abs().mean() < 0.3 * (one - half).abs().mean()
    assert seen == {"lr": 0.0, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
    assert clipped == [2.0, 2.0, 1e5, 1e5]  # 0 turns it off, once an update


def test_two_processes_train_like_one_that_accumulates_twice_as_much(tmp_path):
    """Two CPU processes make the update of one process with twice the batch."""
    top = Path(training.__file__).parents[len(training.__name__.split(".")) - 1]
    config = replace(SMALL, data="toy:count=12", dropout=0.0, steps=2, batch_size=4, max_source=40)
    train(replace(config, accumulate=2), tmp_path / "one")
    changed = {name: value for name, value in asdict(config).items() if value != getattr(TrainConfig(), name)}
    flags = [text for name, value in changed.items() for text in ("--" + name.replace("_", "-"), str(value))]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, "-m", training.__name__, "--out", tmp_path / "two", *flags]
    done = subprocess.run(command, cwd=top, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    one, two = (weights(tmp_path / run) for run in ("one", "two"))
    for name in one:
        if not name.endswith("k_proj.bias"):  # its gradient is zero (softmax is shift-invariant): Adam scales rounding
            torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-4)


# Resuming


class Killed(BaseException):
    pass


@pytest.mark.parametrize(("task", "step"), [("summarizer", 4), ("tagger", 0), ("init", 4), ("patience", 4)])
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, monkeypatch, base, tagger_config, task, step):
    """Kill and --resume gives bitwise the weights of a run that was never killed, also before its first checkpoint."""
    config = {
        "summarizer": SMALL,
        "tagger": replace(tagger_config, train_encoder=True, steps=6),
        "init": replace(SMALL, init=str(base)),
        "patience": replace(tagger_config, patience=2, save_every=2, learning_rate=0.3),
    }[task]
    train(config, tmp_path / "whole")
    rate = training.learning_rate

    def kill(at, config):
        if at == step:
            raise Killed
        return rate(at, config)

    monkeypatch.setattr(training, "learning_rate", kill)
    with pytest.raises(Killed):
        train(config, tmp_path / "killed")
    monkeypatch.undo()
    load_run(tmp_path / "killed")  # it can be evaluated
    train(config, tmp_path / "killed", resume=True)
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert log(tmp_path / "whole") == log(tmp_path / "killed")


def test_a_run_in_training_is_read_from_its_last_checkpoint(base, tmp_path, capsys):
    shutil.copytree(base, tmp_path / "run")
    (tmp_path / "run/model/model.safetensors").unlink()
    assert equal(load_run(tmp_path / "run").model.state_dict(), load_run(base).model.state_dict())
    assert "is not finished: reading" in capsys.readouterr().err


def test_init_takes_weights_and_values_of_its_run(base, tagger_run, tmp_path):
    """Data, sizes and optimiser come from the base; flags override them; what cannot apply is refused."""
    config, _, _ = parse(["--out", str(tmp_path / "x"), "--init", str(base), "--steps", "1", "--learning-rate", "1e-9"])
    assert config == replace(SMALL, init=str(base), steps=1, learning_rate=1e-9)
    train(config, tmp_path / "run")
    assert all(torch.allclose(x, weights(tmp_path / "run")[name], atol=1e-6) for name, x in weights(base).items())
    for change in ({"width": 32}, {"task": "tagger"}, {"model": "facebook/bart-large"}):
        with pytest.raises(ValueError, match=f"--{next(iter(change))}: .*leave it out"):
            train(replace(config, **change), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    train(replace(load_run(tagger_run).config, init=str(tagger_run), steps=1), tmp_path / "tagger")


# Presets and bad input


def test_presets_hold_the_papers_values():
    """Every value of every preset, with its source."""
    data = dict(data="cnn_dailymail", save_every=0, patience=2)  # Appendix A: 2 epochs without improvement
    fairseq = dict(schedule="polynomial", warmup=500, weight_decay=0.01, clip=0.1, mixed_precision="fp16")
    bart = data | fairseq | dict(  # Appendix A: fairseq's instructions for BART
        model="facebook/bart-large", max_source=1024, max_target=1024, label_smoothing=0.1, learning_rate=3e-5,
        steps=20_000, batch_size=2, accumulate=32,
    )  # fmt: skip
    tagger = data | fairseq | dict(  # these five values are also the released script's for the tagger
        task="tagger",
        encoder="roberta-base",  # Section 5: RoBERTa; released code: the base size
        learning_rate=5e-4,  # Appendix A
        steps=12_000,  # released script
        batch_size=32, accumulate=4,  # Appendix A: 128
    )  # fmt: skip
    assert PRESETS == {
        "tiny": {},
        "tagger": dict(task="tagger", steps=1000, learning_rate=5e-4, schedule="constant", save_every=0, patience=2),
        "paper": bart,
        "paper-nyt": bart | {"data": "nyt", "steps": 30_000},
        "paper-xsum": bart | {"data": "xsum", "steps": 15_000, "accumulate": 16},
        "paper-tagger": tagger,
        "paper-tagger-nyt": tagger | {"data": "nyt"},
        "paper-tagger-xsum": tagger | {"data": "xsum"},
    }
    assert tagger["batch_size"] * tagger["accumulate"] == 128
    config = TrainConfig(**tagger)
    config.check()
    assert (config.hidden, config.tagger_dropout, config.max_source) == (512, 0.1, 1024)  # released code
    assert config.activation == "tanh"  # Section 5; D6: released code has ReLU
    assert not config.train_encoder  # Appendix A: RoBERTa is fixed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "tagger"}, "a tagger needs --encoder"),
        ({"encoder": "x"}, "--encoder has no meaning for --task summarizer"),
        ({"task": "tagger", "encoder": "x", "model": "x"}, "--model has no meaning for --task tagger"),
        ({"learning_rate": float("nan")}, "--learning-rate is nan"),
        ({"dropout": 2.0}, "--dropout is 2"),
        ({"vocabulary": 1}, "--vocabulary is 1"),
        ({"max_source": 2}, "--max-source is 2"),
        ({"max_source": 2000}, "must not exceed --positions, which is 1024"),
        ({"oracle": "other"}, "one of runs, newsroom, lcs"),
        ({"heads": 3}, "--width 128 is not a multiple of --heads 3"),
        ({"width": 0}, "--width is 0"),
        ({"learning_rate": 1e300}, "--learning-rate is 1e"),
        ({"seed": -1}, "--seed is -1"),
        ({"min_run": 0}, "--min-run is 0"),
        ({"steps": 10**12}, "--steps is 1000000000000"),
    ],
)
def test_values_out_of_range_are_refused_and_leave_nothing(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        train(TrainConfig(**change), tmp_path / "run")
    assert not any(tmp_path.iterdir())


def test_a_loss_that_is_not_finite_stops_the_training(tagger_config, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "objective", lambda logits, *_: logits.sum() * float("nan"))
    with pytest.raises(ValueError, match="the loss is nan at step 1; .* keeps its last checkpoint"):
        train(tagger_config, tmp_path / "run")
    assert (tmp_path / "run/checkpoints/00000000").exists()


def test_models_out_of_reach_are_named_with_the_remedy(tmp_path, capsys):
    for load_it in (load_summarizer, lambda name: train(replace(SMALL, model=name), tmp_path / "run")):
        with pytest.raises(ValueError, match="cannot load 'no/such-bart'.*HF_HUB_OFFLINE=0 hf download no/such-bart"):
            load_it("no/such-bart")
    with pytest.raises(SystemExit):
        main(["--preset", "tagger", "--out", str(tmp_path / "run"), "--data", DATA, "--encoder", "no/such-roberta"])
    assert "error: cannot load 'no/such-roberta'" in capsys.readouterr().err and not any(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["other name", "nan"])
def test_weights_that_do_not_fit_are_refused_and_not_filled_at_random(base, tmp_path, damage):
    """In a folder of transformers, as a summarizer and as a tagger's encoder, and in a run."""
    shutil.copytree(base, tmp_path / "run")
    path = tmp_path / "run/model/model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("encoder.layers.0.fc1.weight"))
    if damage == "nan":
        tensors[name][0] = float("nan")
    else:
        tensors["model.encoder.layers.0.fc9.weight"] = tensors.pop(name)
    save_file(tensors, path, metadata={"format": "pt"})
    for load_it in (
        lambda: load_summarizer(tmp_path / "run/model"),
        lambda: load_run(tmp_path / "run"),
        lambda: train(replace(TAGGER, encoder=str(tmp_path / "run/model")), tmp_path / "new"),
    ):
        with pytest.raises(ValueError, match="fc1.weight|NaN"):
            load_it()
    assert not (tmp_path / "new").exists()


def test_other_training_data_are_noticed(base, tmp_path):
    """A run goes on with the documents that it began with, or not at all."""
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "validation"):
        write_jsonl(
            data / f"{split}.jsonl", [{"source": f"a storm hit {n} towns .", "target": "a storm ."} for n in "123"]
        )
    config = replace(SMALL, init=str(base), data=str(data), steps=1)
    train(config, tmp_path / "run")
    (data / "train.jsonl").write_text((data / "train.jsonl").read_text().replace("storm", "flood"))
    with pytest.raises(ValueError, match="training data are no longer those"):
        train(replace(config, steps=2), tmp_path / "run", resume=True)


@pytest.mark.parametrize("where", ["run", "run/model"])
def test_code_in_a_folder_is_never_run_and_nobody_is_asked(base, tmp_path, monkeypatch, where):
    """Not of the model's configuration, nor of the tokenizer's; the answer would be read from the documents."""
    shutil.copytree(base, tmp_path / "run")
    for name in ("model", "tokenizer"):
        folder = tmp_path / "run" / name
        (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Any: pass\n")
        for file in ("config.json", "tokenizer_config.json"):
            if (folder / file).exists():
                values = json.loads((folder / file).read_text())
                kinds = ("AutoConfig", "AutoModelForSeq2SeqLM", "AutoTokenizer")
                values |= {
                    "model_type": "evil",
                    "tokenizer_class": "Evil",
                    "auto_map": dict.fromkeys(kinds, "evil.Any"),
                }
                (folder / file).write_text(json.dumps(values))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    with pytest.raises(ValueError, match="cannot load"):
        load_summarizer(tmp_path / where)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model/config.json", {"d_model": 10**30}, "d_model is larger than that of any model"),
        ("model/config.json", {"decoder_attention_heads": -1}, "cannot be used"),
        ("model/generation_config.json", {"eos_token_id": "abc"}, "cannot be used .*: are its tokenizer"),
        ("model/generation_config.json", {"use_cache": 0}, "use_cache is 0, not true or false"),
        ("model/generation_config.json", None, "cannot load .*generation_config.json"),
        ("tokenizer/tokenizer_config.json", {"pad_token": None}, "cannot be used"),
        ("tokenizer/tokenizer.json", {"Ġstorm": 500}, "the tokenizer has token 500, the model knows 500"),
    ],
)
def test_a_file_that_does_not_fit_its_weights_is_named_before_any_work(base, tmp_path, name, change, message):
    """In a run, and in a folder of transformers beside it, which would be decoded until it breaks or for ever."""
    shutil.copytree(base, tmp_path / "run")
    for path in {tmp_path / "run" / name, tmp_path / "run/model" / Path(name).name}:
        text = path.read_text()
        values = json.loads(text)
        (values["model"]["vocab"] if "vocab" in values.get("model", {}) else values).update(change or {})
        path.write_text(json.dumps(values) if change else text[:30])
    for where in ("run", "run/model"):
        with pytest.raises(ValueError, match=message) as error:
            load_summarizer(tmp_path / where)
        assert len(str(error.value)) < 500


def test_weights_that_the_configuration_has_no_layer_for_are_refused(base, tmp_path):
    shutil.copytree(base / "model", tmp_path / "model")
    shutil.copytree(base / "tokenizer", tmp_path / "model", dirs_exist_ok=True)
    path = tmp_path / "model/config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"encoder_layers": content["encoder_layers"] - 1}))
    with pytest.raises(ValueError, match=r"encoder.layers.\d.[\w.]+ has no layer: get it again"):
        load_summarizer(tmp_path / "model")


def test_a_taggers_files_are_tried_too(tagger_run, tmp_path):
    shutil.copytree(tagger_run, tmp_path / "run")
    path = tmp_path / "run/model/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"encoder_attention_heads": -1}))
    with pytest.raises(ValueError, match="cannot be used"):
        load_run(tmp_path / "run", "tagger")


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "RobertaTokenizer"])
def test_a_tokenizer_without_its_file_is_an_error(base, tmp_path, kind):
    """Of a Roberta transformers makes one up, of five special tokens, to which every word is unknown."""
    shutil.copytree(base, tmp_path / "run")
    for name in ("model", "tokenizer"):
        (tmp_path / "run" / name / "tokenizer.json").unlink()
        (tmp_path / "run" / name / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    for where in ("run", "run/model"):
        with pytest.raises(ValueError, match="tokenizer" if kind[0] == "P" else "its tokenizer has no words"):
            load_summarizer(tmp_path / where)


def test_label_smoothing_is_in_training_alone(base, monkeypatch):
    """The training loss is the smoothed one, validation is not."""
    logits, target = torch.randn(2, 3, 7), torch.tensor([[1, 2, -100], [3, -100, -100]])
    batch, rows = {"labels": target}, logits[target != -100].log_softmax(-1)
    chosen = rows.gather(-1, target[target != -100, None]).mean()
    assert objective(logits, batch, "summarizer").item() == pytest.approx(-chosen.item())
    smooth = objective(logits, batch, "summarizer", 0.1).item()
    assert smooth == pytest.approx(-(0.9 * chosen + 0.1 * rows.mean()).item())
    seen = []
    monkeypatch.setattr(training, "objective", lambda *a: seen.append(a[3:]) or objective(*a))
    train(replace(SMALL, init=str(base), steps=1, label_smoothing=0.3), base.parent / "smooth")
    assert [smoothing for smoothing in seen if smoothing] == [(0.3,)] and () in seen
