"""Training a tagger: what is learned, what defines a run, loading, presets, and what is refused."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from transformers import BertConfig, BertModel, RobertaModel

from shared.data import load
from shared.run import check

from .. import loading, predict
from .. import train as training
from ..config import PRESETS, TrainConfig, learning_rate
from ..loading import begin, load_run
from ..oracle import oracle_labels, token_labels
from ..tagger import PAPER_THRESHOLDS, Tagger, best_threshold, token_f1
from ..text import encode_documents, train_tokenizer
from ..train import main, train, updates_per_epoch
from .conftest import DATA, SHORT, TAGGER, equal, log, weights


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    """A folder of transformers: a small BERT with its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "bert"
    tokenizer = train_tokenizer([example.source for example in load(DATA)], 400)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    BertModel(
        BertConfig(vocab_size=len(tokenizer), **sizes), add_pooling_layer=False
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_learning_rates():
    """Linear warm-up, then the inverse root, or linear to 0 at the end (released), or constant."""
    config = TrainConfig(learning_rate=0.1, warmup=100, steps=1100)
    assert [learning_rate(step, config) for step in (0, 49, 99)] == pytest.approx(
        [0.001, 0.05, 0.1]
    )
    assert learning_rate(399, config) == pytest.approx(0.05)
    polynomial = replace(config, schedule="polynomial", warmup=101)
    assert [learning_rate(step, polynomial) for step in (100, 600, 1099, 1100)] == pytest.approx(
        [0.1, 0.05, 1e-4, 0]
    )
    assert learning_rate(900, replace(config, schedule="constant")) == 0.1


# What is learned


def test_a_tagger_learns_oracle_labels_and_finds_its_threshold(runs):
    """Loss and the boundary with the best F1, computed here again from the loaded tagger."""
    run, rows, scores, labels = load_run(runs / "tagger"), log(runs / "tagger"), [], []
    for example in load(DATA, "validation"):
        [(ids, offsets, *_)] = encode_documents(run.tokenizer, [example.source], 1024)
        scores.append(run.model(torch.tensor([ids]), torch.ones(1, len(ids)).bool())[0].sigmoid())
        labels += token_labels(oracle_labels(example.source, example.target), offsets)
    scores, labels = torch.cat(scores).detach(), torch.tensor(labels)
    loss = torch.nn.functional.binary_cross_entropy(scores, labels.float())
    row, (best, f1) = rows[-1], best_threshold(scores, labels)
    assert row["validation_loss"] == pytest.approx(loss.item(), abs=2e-4)
    assert row["validation_loss"] < rows[0]["validation_loss"]
    assert row["threshold"] == best and run.model.threshold.item() == pytest.approx(best)
    assert row["token_f1"] == pytest.approx(100 * f1, abs=1e-2)
    assert row["f1_of_all"] == pytest.approx(100 * token_f1(torch.ones(len(labels)), labels, 0))


def test_d12_the_encoder_is_fixed_unless_it_is_trained_too(bert, tmp_path):
    """D12: Appendix A fixes it, as the presets do; by default it is trained.

    It has a tokenizer of its own.
    """
    flags = f"--preset pretrained --encoder {bert} --data {DATA} --steps 1 --max-source 40".split()
    for trained in ("True", "False"):
        main([*flags, "--out", str(tmp_path / trained), "--train-encoder", trained])
    name, before = "embeddings.word_embeddings.weight", load_file(bert / "model.safetensors")
    assert torch.equal(weights(tmp_path / "False")[f"encoder.{name}"], before[name])
    assert not torch.equal(weights(tmp_path / "True")[f"encoder.{name}"], before[name])
    assert type(load_run(tmp_path / "True").model.encoder) is BertModel
    assert type(begin(TrainConfig(), load(DATA)).model.encoder) is RobertaModel  # a small new one


def test_the_encoder_of_a_bart_is_an_encoder_too(runs, tmp_path):
    """What is trained is what is read again."""
    config = replace(TAGGER, encoder=str(runs / "base"), max_source=40, steps=3)
    train(config, tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert type(run.model.encoder).__name__ == "BartEncoder"
    row = training.validate(run, run.encode(load(DATA, "validation")))
    assert row["validation_loss"] == pytest.approx(
        log(tmp_path / "run")[-1]["validation_loss"], abs=1e-4
    )


def test_early_stopping_takes_the_best_weights(tmp_path, capsys, monkeypatch):
    """Appendix A: stop after 2 validations without improvement.

    What is written is the best, not the last.
    """
    losses, validate = iter([3.0, 1.0, 2.0, 1.5, 0.1, 0.1]), training.validate
    spy = lambda *a: validate(*a) | {"validation_loss": next(losses)}  # noqa: E731
    monkeypatch.setattr(training, "validate", spy)
    train(replace(SHORT, steps=60, patience=2), tmp_path / "run")
    assert [row["validation_loss"] for row in log(tmp_path / "run")] == [3.0, 1.0, 2.0, 1.5]
    assert "run: 6 updates, validation loss 1.000" in capsys.readouterr().out  # of what is kept
    monkeypatch.undo()
    train(replace(SHORT, steps=6), tmp_path / "best")
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "best"))
    # a finished run is left as it is
    train(replace(SHORT, steps=60, patience=2), tmp_path / "run", resume=True)
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "best"))


def test_d13_an_update_is_the_mean_over_micro_batches_clipped(bert, tmp_path, monkeypatch):
    """D13, and the released optimiser, in whose place plain steps show the gradient.

    The mean of two micro-batches'.
    """
    seen, clipped = {}, []

    def plain_steps(parameters, **options):
        seen.update(options)
        return torch.optim.SGD(parameters, lr=0.0)

    clip = Accelerator.clip_grad_norm_
    monkeypatch.setattr(torch.optim, "AdamW", plain_steps)
    monkeypatch.setattr(Accelerator, "clip_grad_norm_", lambda *a: clipped.append(a[2]) or clip(*a))
    monkeypatch.setattr(loading, "Tagger", partial(Tagger, dropout=0.0))
    config = replace(SHORT, steps=2, weight_decay=0.01, batch_size=12)
    config = replace(config, encoder=str(bert), train_encoder=False)
    train(replace(config, batch_size=24, clip=1e4), tmp_path / "one")
    train(replace(config, accumulate=2, clip=1e3), tmp_path / "two")
    train(replace(config, clip=0.0), tmp_path / "unclipped")
    train(replace(config, clip=1e5), tmp_path / "half")
    names = ("one", "two", "half")
    one, two, half = (weights(tmp_path / name)["perceptron.1.weight"] for name in names)
    assert (one - two).abs().mean() < 0.6 * (one - half).abs().mean()
    assert seen == {"lr": 0.0, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
    assert clipped == [1e4, 1e4, 1e3, 1e3, 1e5, 1e5]  # once an update; 0 turns it off


def test_the_end_of_a_training_says_what_selecting_all_would_have_and_a_hint_that_works(
    runs, tmp_path, capsys
):
    """With a BART and a file in the place of its words."""
    train(replace(SHORT, steps=1), tmp_path / "run")
    said, [row] = capsys.readouterr().out, log(tmp_path / "run")
    assert f"token F1 {row['token_f1']:.1f} (threshold {row['threshold']:.2f})" in said
    assert f"selecting every token gives {row['f1_of_all']:.1f}" in said
    [hint] = re.findall(r"python -m \S+\.predict (.+)", said)
    (tmp_path / "text.txt").write_text("a storm hit the town .\n")
    assert hint.split()[:2] == ["BART", "FILE.txt"]
    predict.main([str(runs / "base"), str(tmp_path / "text.txt"), *hint.split()[2:]])
    assert "masked: " in capsys.readouterr().out


def test_an_epoch_is_counted_in_updates_and_the_log_has_their_rates(tmp_path):
    """--save-every 0 beside --accumulate.

    The 16 documents are two updates of two micro-batches of four.
    """
    config = replace(SHORT, examples=16, batch_size=4, accumulate=2, save_every=0, steps=4)
    assert updates_per_epoch(17, config) == 3
    assert updates_per_epoch(16, config, processes=2) == 1
    train(config, tmp_path / "run")
    rates = {row["step"]: row["lr"] for row in log(tmp_path / "run")}
    assert rates == {step: learning_rate(step - 1, config) for step in (2, 4)}


# What defines a run

CHANGED = dict(
    examples=8,
    max_source=20,
    min_run=3,
    train_encoder=False,
    steps=3,
    batch_size=4,
    accumulate=2,
    learning_rate=0.1,
    schedule="constant",
    warmup=2,
    weight_decay=0.5,
    clip=0.01,
    mixed_precision="bf16",
    seed=1,
    data="toy:count=24,seed=6",
    encoder="",
)
# What is saved, when it ends, who is told: tests of their own.
SAME = {"save_every", "patience", "log_with"}


def test_each_flag_changes_two_updates(bert, tmp_path, monkeypatch):
    assert CHANGED.keys() | SAME == TrainConfig.__dataclass_fields__.keys()
    monkeypatch.setattr(training, "save_checkpoint", lambda *_: None)
    row = {"validation_loss": 1.0, "threshold": 0.2, "token_f1": 1.0, "f1_of_all": 1.0}
    monkeypatch.setattr(training, "validate", lambda *_: row)
    plain = dict(SHORT.__dict__, steps=2, encoder=str(bert))

    def trained(name: str, **change) -> dict:
        AcceleratorState._reset_state(True)
        train(TrainConfig(**plain | change), tmp_path / name)
        return weights(tmp_path / name)

    base = trained("plain")
    assert equal(trained("again"), base)
    for name, value in CHANGED.items():
        assert not equal(base, trained(name, **{name: value})), name
    AcceleratorState._reset_state(True)


def test_seeds_begin_with_other_weights(tmp_path):
    """At a rate of nothing the weights stay as they began."""
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        train(replace(SHORT, seed=seed, steps=1, learning_rate=0.0), tmp_path / name)
    one, same, other = (weights(tmp_path / name) for name in ("one", "same", "other"))
    assert equal(one, same) and not equal(one, other)


def test_presets_hold_the_papers_values():
    """Every value of every preset, with its source."""
    paper = dict(
        data="cnn_dailymail",
        encoder="roberta-base",  # Section 5: RoBERTa; released code: the base size
        train_encoder=False,
        learning_rate=5e-4,  # Appendix A
        batch_size=32,
        accumulate=4,  # Appendix A: 128
        save_every=0,
        patience=2,  # Appendix A: 2 epochs without improvement
        steps=12_000,
        schedule="polynomial",
        warmup=500,
        weight_decay=0.01,
        clip=0.1,
        mixed_precision="fp16",
    )
    pretrained = dict(
        train_encoder=False,
        steps=1000,
        batch_size=32,
        learning_rate=5e-4,
        schedule="constant",
        warmup=100,
        save_every=0,
        patience=2,
    )
    papers = {
        "paper": paper,
        "paper-nyt": paper | {"data": "nyt"},
        "paper-xsum": paper | {"data": "xsum"},
    }
    assert PRESETS == {"tiny": {}, "pretrained": pretrained} | papers
    for preset in PRESETS.values():
        check(TrainConfig(**{"encoder": "x"} | preset))
    assert TrainConfig(**paper).max_source == 1024  # released code
    # Section 5: the boundaries that the paper found
    assert PAPER_THRESHOLDS == {"cnn_dailymail": 0.20, "nyt": 0.24, "xsum": 0.18}
