"""Training both tasks: what is learned, loading, presets, and what is refused."""

import json
import shutil
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from accelerate import Accelerator, debug_launcher
from accelerate.state import AcceleratorState
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, BertConfig, DataCollatorForSeq2Seq
from transformers import BertModel as Bert

from shared.data import Example, load
from shared.run import check
from shared.run import parse as parse_flags

from .. import loading
from .. import train as training
from ..config import PRESETS, TrainConfig, learning_rate
from ..loading import load_run, load_summarizer
from ..oracle import oracle_labels, token_labels
from ..tagger import Tagger, best_threshold
from ..text import Items, LengthBatches, encode_document, train_tokenizer
from ..train import main, objective, train, validate, what_it_learned
from .conftest import DATA, SMALL, TAGGER, equal, log, weights


def parse(flags: list[str]):
    return parse_flags(flags, TrainConfig, PRESETS, training.__doc__)


@pytest.fixture
def base(runs) -> Path:
    """A finished summarizer."""
    return runs / "base-0"


@pytest.fixture
def tagger_config(base) -> TrainConfig:
    return replace(TAGGER, encoder=str(base))


@pytest.fixture
def tagger_run(runs) -> Path:
    """A finished tagger."""
    return runs / "tagger"


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
    items = Items()
    for length in range(1, 42):
        items.append([7] * length, [length])
    assert len(items) == 41 and items[40] == {"input_ids": [7] * 41, "labels": [41]}
    assert items.labels.flat.itemsize == 4 and items.labels.ends.itemsize == 8  # 152 bytes a pair of 34 tokens
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
    assert not run.model.training and len(run.tokenizer) == run.model.config.vocab_size


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


def test_labels_are_of_runs_that_are_long_enough(runs):
    """--min-run 2: a word of the summary that stands alone in the document has no label."""
    story = Example("1", ["a storm hit the town"], ["hit the storm"], [["hit the storm"]])
    for name, words in (("tagger", "storm hit the"), ("weak", "hit the")):
        run = load_run(runs / name)
        [item] = run.encode([story])[0]
        ids = [token for token, label in zip(*item.values(), strict=True) if label]
        assert run.tokenizer.decode(ids).strip() == words


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


def test_early_stopping_takes_the_best_weights(tagger_config, tmp_path, monkeypatch):
    """Appendix A: stop after 2 validations without improvement; what is written is the best, not the last."""
    losses = iter([3.0, 1.0, 2.0, 1.5, 0.1, 0.1])
    validate = training.validate
    monkeypatch.setattr(training, "validate", lambda *a, **k: validate(*a) | {"validation_loss": next(losses)})
    config = replace(tagger_config, steps=60)
    train(replace(config, patience=2), tmp_path / "run")
    assert [row["validation_loss"] for row in log(tmp_path / "run")[1:]] == [3.0, 1.0, 2.0, 1.5]
    monkeypatch.undo()
    train(replace(config, steps=6), tmp_path / "best")
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "best"))
    train(replace(config, patience=2), tmp_path / "run", resume=True)  # a finished run is left as it is
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "best"))


def test_d13_an_update_is_the_mean_over_micro_batches_clipped(tagger_config, tmp_path, monkeypatch):
    """D13, and the released optimiser, in whose place plain steps show the gradient: the mean of two micro-batches'."""
    seen, clipped = {}, []
    plain = torch.optim.SGD
    monkeypatch.setattr(torch.optim, "AdamW", lambda p, **options: seen.update(options) or plain(p, lr=0.0))
    clip = Accelerator.clip_grad_norm_
    monkeypatch.setattr(Accelerator, "clip_grad_norm_", lambda *a: clipped.append(a[2]) or clip(*a))
    monkeypatch.setattr(loading, "Tagger", partial(Tagger, dropout=0.0))
    config = replace(tagger_config, steps=2, weight_decay=0.01)
    config = replace(config, batch_size=12)
    train(replace(config, batch_size=24, clip=1e4), tmp_path / "one")
    train(replace(config, accumulate=2, clip=0.0), tmp_path / "two")
    train(replace(config, clip=1e5), tmp_path / "half")
    one, two, half = (weights(tmp_path / name)["perceptron.1.weight"] for name in ("one", "two", "half"))
    assert (one - two).abs().mean() < 0.6 * (one - half).abs().mean()
    assert seen == {"lr": 0.0, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
    assert clipped == [1e4, 1e4, 1e5, 1e5]  # 0 turns it off, once an update


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
        "tagger": dict(
            task="tagger", steps=1000, batch_size=32, learning_rate=5e-4, schedule="constant", warmup=100, save_every=0,
            patience=2,
        ),
        "paper": bart,
        "paper-nyt": bart | {"data": "nyt", "steps": 30_000},
        "paper-xsum": bart | {"data": "xsum", "steps": 15_000, "batch_size": 4, "accumulate": 16},
        "paper-tagger": tagger,
        "paper-tagger-nyt": tagger | {"data": "nyt"},
        "paper-tagger-xsum": tagger | {"data": "xsum"},
    }  # fmt: skip
    # fairseq's batches have 2,048 tokens: 2 documents of CNN/DailyMail and NYT, cut at 1,024, or 4 of XSum.
    assert all(PRESETS[name]["batch_size"] * PRESETS[name]["accumulate"] == 64 for name in ("paper", "paper-xsum"))
    assert tagger["batch_size"] * tagger["accumulate"] == 128
    for preset in PRESETS.values():
        check(TrainConfig(encoder="x", **preset) if preset == PRESETS["tagger"] else TrainConfig(**preset))
    config = TrainConfig(**tagger)
    assert config.max_source == 1024  # released code
    assert config.activation == "tanh"  # Section 5; D6: released code has ReLU
    assert not config.train_encoder  # Appendix A: RoBERTa is fixed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "tagger"}, "a tagger needs --encoder"),
        ({"encoder": "x"}, "--encoder has no meaning for --task summarizer"),
        ({"task": "tagger", "encoder": "x", "model": "x"}, "--model has no meaning for --task tagger"),
        ({"max_source": 2000}, "must not exceed --positions, which is 1024"),
        ({"width": 30}, "--width 30 is not a multiple of 4"),
    ],
)
def test_values_out_of_range_are_refused_and_leave_nothing(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        train(TrainConfig(**change), tmp_path / "run")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["other name", "nan"])
def test_weights_that_do_not_fit_are_refused_and_not_filled_at_random(base, tmp_path, damage):
    shutil.copytree(base / "model", folder := tmp_path / "bart")
    tensors = load_file(folder / "model.safetensors")
    if damage == "nan":
        tensors["model.encoder.layers.0.fc1.weight"][0] = float("nan")
    else:
        tensors["model.encoder.layers.0.fc9.weight"] = tensors.pop("model.encoder.layers.0.fc1.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="fc1.weight is missing, NaN or infinite: get it again"):
        load_summarizer(folder)


def test_code_in_a_folder_is_never_run_and_nobody_is_asked(base, tmp_path, monkeypatch):
    """Not of the model's configuration, nor of the tokenizer's; the answer would be read from the documents."""
    shutil.copytree(base / "model", folder := tmp_path / "bart")
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Any: pass\n")
    for file in ("config.json", "tokenizer_config.json"):
        values = json.loads((folder / file).read_text()) | {"model_type": "evil", "tokenizer_class": "Evil"}
        kinds = ("AutoConfig", "AutoModelForSeq2SeqLM", "AutoTokenizer")
        (folder / file).write_text(json.dumps(values | {"auto_map": dict.fromkeys(kinds, "evil.Any")}))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    with pytest.raises(ValueError, match="cannot load"):
        load_summarizer(folder)
    assert not (tmp_path / "ran").exists()


def test_a_tokenizer_without_its_file_is_an_error(base, tmp_path):
    """Of a Roberta transformers makes one up, of five special tokens, to which every word is unknown."""
    shutil.copytree(base / "model", folder := tmp_path / "bart")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"}))
    with pytest.raises(ValueError, match="its tokenizer has no words"):
        load_summarizer(folder)


def test_label_smoothing_is_in_training_alone(base, tmp_path, monkeypatch):
    """The training loss is the smoothed one, validation is not."""
    logits, target = torch.randn(2, 3, 7), torch.tensor([[1, 2, -100], [3, -100, -100]])
    batch, rows = {"labels": target}, logits[target != -100].log_softmax(-1)
    chosen = rows.gather(-1, target[target != -100, None]).mean()
    assert objective(logits, batch, "summarizer").item() == pytest.approx(-chosen.item())
    smooth = objective(logits, batch, "summarizer", 0.1).item()
    assert smooth == pytest.approx(-(0.9 * chosen + 0.1 * rows.mean()).item())
    seen = []
    monkeypatch.setattr(training, "objective", lambda *a: seen.append(a[3:]) or objective(*a))
    train(replace(SMALL, init=str(base), steps=1, label_smoothing=0.3), tmp_path / "run")
    assert [smoothing for smoothing in seen if smoothing] == [(0.3,)] and () in seen


def test_the_end_of_a_training_says_what_was_learned(base):
    """A summariser by its loss with the sources of other documents; a tagger by what it selects."""
    run = load_run(base)
    items, _ = run.encode(load(DATA, "validation", 3))
    losses = []
    for i in range(3):
        source, target = (torch.tensor([items[n][k]]) for n, k in (((i - 1) % 3, "input_ids"), (i, "labels")))
        losses += [run.model(input_ids=source, labels=target).loss.item()] * target.size(1)
    collate = DataCollatorForSeq2Seq(run.tokenizer)
    exchanged = validate(run.model, items, "summarizer", 8, collate, exchange=True)["validation_loss"]
    assert exchanged == pytest.approx(sum(losses) / len(losses), abs=1e-3)
    assert "does not read its source" in what_it_learned({"validation_loss": 2.0}, 2.01)
    assert "does not read its source" not in what_it_learned({"validation_loss": 2.0}, 2.5)
    for share, useless in ((1.0, True), (0.0, True), (0.2, False)):
        assert ("masks tell nothing" in what_it_learned({"selected": share, "token_f1": 9.0}, 0.0)) == useless


def test_two_processes_train_one_model(tmp_path):
    """As torchrun starts them: both write the run together, each reads its own batches; with early stopping, too."""
    tagger = replace(TAGGER, encoder=str(tmp_path / "two"), steps=4, save_every=2, patience=1)
    for config, name in (replace(SMALL, steps=2), "two"), (tagger, "tagger"):
        AcceleratorState._reset_state(True)  # of other trainings of this process
        debug_launcher(train, (config, tmp_path / name))
        assert len([*tmp_path.glob(f"{name}/checkpoints/*/random_states_*")]) == 2
        load_run(tmp_path / name)
    train(replace(SMALL, steps=2), tmp_path / "one")
    assert not equal(weights(tmp_path / "one"), weights(tmp_path / "two"))
