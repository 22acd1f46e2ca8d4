"""Training all tasks: the losses, the schedule, what learns and what stays, the last lines."""

import functools
import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from accelerate import debug_launcher
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from shared.data import load
from shared.run import Batches, checkpoints

from .. import train as training
from ..config import PRESETS, TrainConfig, choose_selection, learning_rate
from ..loading import begin, load_run
from ..model import add_approximator, approximator_parameters, freeze
from ..selection import FULL, Selection, ideal_probability
from ..text import Batch, collate
from ..train import batch_losses, train

DATA = "toy:count=8,seed=5"
SMALL = TrainConfig(
    data=DATA,
    width=16,
    feed_forward=16,
    vocabulary=400,
    dropout=0.1,
    batch_size=8,
    steps=4,
    save_every=2,
    warmup=2,
    max_source=120,
)
TINY = replace(SMALL, dropout=0.0, steps=2)


def log(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


def weights(run_dir: Path) -> dict:
    """What a finished run has learned."""
    return load_file(run_dir / "model" / "model.safetensors")


def changed(before: dict, after: dict) -> set[str]:
    """Names of the weights of both that differ in their shape or any bit."""
    return {name for name in before if name in after and not torch.equal(before[name], after[name])}


def prepared(task: str, **changes):
    """Config, a small model in eval mode, its map unlike the attention, and 3 ragged documents."""
    config = replace(SMALL, max_source=400, task=task, init="x", **changes)
    run = begin(replace(config, task="base", init=""), load(DATA))
    if task in ("kl", "integrated"):
        add_approximator(run.model, "gru")
        with torch.no_grad():
            for parameter in approximator_parameters(run.model):
                parameter += 0.2 * torch.randn_like(parameter)
    freeze(run.model, task)
    items = sorted(run.encode(load(DATA)), key=lambda item: len(item.target))
    return config, run.model.eval(), collate([*items[:2], items[-1]], run.tokenizer.pad_token_id)


def read(model, batch: Batch, **more):
    """A forward pass of a batch."""
    return model(**batch.source(), **({"labels": batch.labels} | more))


def mean_over_steps(model, batch: Batch, value) -> float:
    """The mean of value(layer), (H, T), over heads, layers, and steps of documents without padding."""
    total = 0.0
    for row in range(len(batch.ids)):
        length = int(batch.attention_mask[row].sum())
        steps = int((batch.labels[row] != -100).sum())
        source = (part[row : row + 1, :length] for part in batch[:3])
        record = []
        read(model, Batch(*source, batch.labels[row : row + 1, :steps]), record=record)
        total += sum(value(layer).mean(0).sum() for layer in record) / len(record)
    return total / (batch.labels != -100).sum().item()


# Losses


def test_eq5_a_loss_of_cross_entropy_and_entropy():
    """H(alpha^s) in NumPy; L_xent is transformers'; gamma weighs."""
    config, model, batch = prepared("sparse", gamma=0.7)
    losses = batch_losses(model, batch, config, FULL)

    def entropies(layer) -> np.ndarray:
        alpha = layer.exact[0].detach().double().numpy()
        return -(alpha * np.log(alpha)).sum(-1)

    expected = mean_over_steps(model, batch, entropies)
    assert losses["entropy"].item() == pytest.approx(expected, rel=1e-4)
    assert losses["xent"].item() == pytest.approx(read(model, batch).loss.item(), rel=1e-5)
    assert losses["loss"].item() == pytest.approx((losses["xent"] + 0.7 * losses["entropy"]).item())


def test_d6_d19_the_decoder_reads_the_end_token_first_and_padding_counts_for_nothing():
    """L_xent by hand: the decoder reads </s> and the labels; more padding changes nothing."""
    config, model, batch = prepared("base")
    start = torch.full_like(batch.labels[:, :1], model.config.eos_token_id)
    inputs = torch.cat([start, batch.labels[:, :-1].clamp_min(0)], 1)
    logits = read(model, batch, labels=None, decoder_input_ids=inputs).logits
    labels = batch.labels.clamp_min(0).unsqueeze(2)
    nats = -logits.log_softmax(-1).gather(2, labels).squeeze(2)
    expected = nats[batch.labels != -100].mean().item()
    longer = batch._replace(labels=torch.nn.functional.pad(batch.labels, (0, 3), value=-100))
    for padded in (batch, longer):
        loss = batch_losses(model, padded, config, FULL)["loss"].item()
        assert loss == pytest.approx(expected, rel=1e-4)


def test_eq11_d5_kl_loss_is_a_mean_over_heads_layers_and_steps():
    """In NumPy, of squares (T = 0.5); D5: neither divided by N nor summed over layers."""
    config, model, batch = prepared("kl")

    def divergences(layer) -> np.ndarray:
        target = layer.exact[0].detach().double().numpy() ** 2
        target /= target.sum(-1, keepdims=True)
        return (target * np.log(target / layer.approximate[0].detach().double().numpy())).sum(-1)

    expected = mean_over_steps(model, batch, divergences)
    loss = batch_losses(model, batch, config, FULL)["loss"].item()
    assert loss == pytest.approx(expected, rel=1e-4) and expected > 1e-3


def test_eq12_eq13_eq14_d23_gradients_of_one_backward_pass():
    """theta~ learns by lambda L_KL, the decoder by both losses, the encoder not at all."""
    config, model, batch = prepared("integrated", kl_weight=0.3)
    grads = {}
    for name in ("loss", "xent", "kl"):
        model.zero_grad()
        batch_losses(model, batch, config, Selection("approx", r=1))[name].backward()
        learning = [(key, p.grad) for key, p in model.named_parameters() if p.grad is not None]
        grads[name] = {key: gradient.clone() for key, gradient in learning}
    theta = {name for name, _ in model.named_parameters() if "sentence_" in name}
    decoder = {name for name, _ in model.named_parameters() if "decoder.layers" in name} - theta
    assert theta and grads["loss"].keys() == theta | decoder and grads["xent"].keys() == decoder
    zero = torch.zeros(())
    for name, of_loss in grads["loss"].items():
        expected = grads["xent"].get(name, zero) + 0.3 * grads["kl"].get(name, zero)
        torch.testing.assert_close(of_loss, expected, atol=1e-4, rtol=1e-4)
    # Through the exact attention and through the query of the last layer:
    assert grads["kl"]["model.decoder.layers.1.encoder_attn.k_proj.weight"].abs().sum() > 0
    assert grads["kl"]["model.decoder.layers.0.fc1.weight"].abs().sum() > 0


# The schedule and the choice of the mode


def test_d15_the_rate_and_the_validations_of_a3_count_documents():
    """0.002 * min(n^-0.5, n * 20000^-1.5) after n documents, two to an update."""
    for preset in ("paper", "paper-xsum", "paper-sparse"):
        config = TrainConfig(**PRESETS[preset])
        documents = config.batch_size * config.accumulate
        assert documents == 2 and config.patience == 3
        for n in (2, 6, 19_998, 20_000, 20_002, 200_000):
            expected = 0.002 * min(n**-0.5, n * 20_000**-1.5)
            assert learning_rate(n // documents - 1, config) == pytest.approx(expected, rel=1e-9)
        assert config.save_every * documents == (25_000 if preset == "paper-sparse" else 20_000)


def test_d17_mix_is_drawn_once_an_update():
    """Ideal with probability max(0, 1 - step / epoch): always at first, never after it."""
    assert [ideal_probability(step, 10) for step in (0, 5, 10, 25)] == [1, 0.5, 0, 0]
    config = TrainConfig(task="integrated", init="x", select="mix", r=3, seed=4, steps=4000)
    drawn = [choose_selection(config, step) for step in range(4001)]
    is_ideal = np.array([selection == Selection("ideal", r=3) for selection in drawn])
    assert is_ideal[0] and drawn[4000] == Selection("approx", r=3)
    for first in (0, 1000, 2000, 3000):  # the sum of Bernoullis, 5 standard deviations
        expected = [1 - step / 4000 for step in range(first, first + 1000)]
        assert abs(is_ideal[first : first + 1000].sum() - sum(expected)) < 5 * 1000**0.5 / 2
    assert [choose_selection(replace(config, seed=5), step) for step in range(4001)] != drawn
    assert choose_selection(replace(config, select="ideal"), 9) == Selection("ideal", r=3)
    assert choose_selection(replace(config, task="kl"), 0) == FULL


@pytest.mark.usefixtures("unreported")
def test_an_update_uses_its_rate_and_selection_and_validation_that_of_inference(
    runs, tmp_path, monkeypatch
):
    """Whatever the micro-batches; D14: in training dropout is on in the frozen encoder, too."""
    config = replace(SMALL, task="integrated", init=str(runs / "kl-0"), select="mix")
    config = replace(config, steps=3, accumulate=2, save_every=3)
    seen, asked, losses_of, rate = [], [], training.batch_losses, training.learning_rate

    def losses(model, batch, config, selection):
        assert model.training == model.get_encoder().training
        seen.append((model.training, selection.mode))
        return losses_of(model, batch, config, selection)

    def asking(step, config):
        asked.append(step)
        return rate(step, config)

    monkeypatch.setattr(training, "batch_losses", losses)
    monkeypatch.setattr(training, "learning_rate", asking)
    train(config, tmp_path / "run")
    expected = [(True, choose_selection(config, step).mode) for step in (0, 0, 1, 1, 2, 2)]
    assert seen[:6] == expected and expected[0] != expected[5]
    assert set(seen[6:]) == {(False, "approx")} and asked == [0, 1, 2]


BOTH = {"init": "kl-0", "task": "integrated", "r": 1}
CHANGES = {  # flag -> another value, and what else must hold
    "task": ("sparse", {"init": "base-0"}),
    "data": ("toy:count=8,seed=6", {}),
    "init": ("base-0", {}),
    "max_source": (60, {}),
    "max_target": (10, {}),
    "vocabulary": (300, {}),
    "width": (8, {}),
    "feed_forward": (8, {}),
    "dropout": (0.5, {}),
    "gamma": (1.0, {"init": "base-0", "task": "sparse"}),
    "sentence_encoder": ("mean", {"init": "base-0", "task": "kl"}),
    "kl_weight": (0.0, BOTH),
    "select": ("ideal", BOTH),
    "r": (2, BOTH),
    "steps": (3, {}),
    "batch_size": (4, {}),
    "accumulate": (2, {}),
    "learning_rate": (1e-3, {}),
    "warmup": (9, {}),
    "clip": (0.01, {}),
    "mixed_precision": ("bf16", {}),
    "seed": (1, {"learning_rate": 0.0}),  # no learning: it is more than the order of the data
}
ELSEWHERE = {  # flags that do not change two updates, or cannot here, and what tests them
    "model": "test_any_bart_from_a_folder_is_trained_on_and_read",  # wants a BART
    "save_every": "test_early_stopping_takes_the_best_weights",
    "log_with": "test_a_tracker_gets_what_the_log_gets",
    "patience": "test_early_stopping_takes_the_best_weights",
}


@pytest.fixture(scope="module")
def updated(runs, tmp_path_factory):
    """The weights after two updates with other values than SMALL's, each training once."""

    @functools.cache
    def after(**changes) -> dict:
        AcceleratorState._reset_state(True)  # of a training with another precision
        changes |= {"init": str(runs / changes["init"])} if "init" in changes else {}
        run = tmp_path_factory.mktemp("updated") / "run"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training, "report", lambda *_: None)  # half of the time
            patch.setattr(training, "validate", lambda *_: {"validation_loss": 0.0})
            train(replace(SMALL, **{"steps": 2} | changes), run)
        return weights(run)

    yield after
    AcceleratorState._reset_state(True)


@pytest.mark.parametrize("flag", CHANGES)
def test_with_another_value_two_updates_differ(updated, flag):
    assert CHANGES.keys() | ELSEWHERE.keys() == {field.name for field in fields(TrainConfig)}
    value, more = CHANGES[flag]
    one, two = updated(**more), updated(**more | {flag: value})
    assert one.keys() != two.keys() or changed(one, two)


def test_a_map_that_has_learned_goes_on(runs):
    """--task kl from a run of --task kl keeps its map."""
    config = load_run(runs / "kl-0").config
    model = begin(replace(config, init=str(runs / "kl-0")), []).model
    assert not changed(weights(runs / "kl-0"), model.state_dict())


# What learns and what stays


@pytest.mark.parametrize(
    ("task", "start"), [("sparse", "base-0"), ("kl", "base-0"), ("integrated", "kl-0")]
)
def test_d26_frozen_parts_stay_bit_for_bit_the_same(runs, task, start):
    """sparse: all learn; kl: the map alone; integrated: it and the decoder's layers."""
    after, before = weights(runs / f"{task}-0"), weights(runs / start)
    if task == "kl":  # what the map was at first, a fresh one says
        model = begin(load_run(runs / "kl-0").config, []).model
        before = {name: value for name, value in model.state_dict().items() if name in after}
    theta = {name for name in after if "sentence_" in name}
    expected = {
        "sparse": {name for name in after if "final_logits_bias" not in name},
        "kl": theta,
        "integrated": theta | {name for name in after if "decoder.layers" in name},
    }[task]
    assert len(expected) == {"sparse": 91, "kl": 18 + 8, "integrated": 18 + 2 * (26 + 4)}[task]
    # The gradient of a key's bias is zero but for rounding, since softmax does not see a shift.
    still = {name for name in expected if name.endswith(("k_proj.bias", "sentence_k.bias"))}
    assert expected - still <= changed(before, after) <= expected


def test_d14_every_dropout_site_has_the_models_rate():
    """Of the GRU (released: 0.1 on bart-large-cnn), and of cross-attention, in training only."""
    _, model, batch = prepared("kl")
    assert model.sentence_encoder.gru.dropout == model.config.dropout == 0.1
    attention = model.attentions[0]
    assert attention.dropout == model.config.attention_dropout == 0.1
    states = model.get_encoder()(input_ids=batch.ids, attention_mask=batch.attention_mask)[0]
    sentences = model.find_sentences(states, batch.sentence_ids, batch.attention_mask, FULL)
    for is_training in (False, True):
        attention.train(is_training)
        one, two = (attention(states, states, sentences)[0] for _ in range(2))
        assert torch.equal(one, two) != is_training


@pytest.mark.usefixtures("unreported")
@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_a3_d18_an_update_is_that_of_the_mean_gradient_of_its_micro_batches(
    tmp_path, monkeypatch, clip
):
    """However many tokens each has; clipped is the norm of all gradients; 0 never clips."""
    monkeypatch.setattr(training, "learning_rate", lambda *_: 0.5)
    made, settings = [], dict(betas=(0.9, 0.999), eps=1e-8)  # A.3 names Adam; released code

    def sgd(parameters, lr, **given):
        made.append(given)
        return torch.optim.SGD(parameters, lr=lr)

    monkeypatch.setattr(torch.optim, "Adam", sgd)
    changes = dict(steps=1, clip=clip, accumulate=2, save_every=1, batch_size=3)
    train(replace(TINY, **changes), tmp_path / "two")
    after = weights(tmp_path / "two")
    start = begin(TINY, load(DATA))
    items = start.encode(load(DATA))
    first_two = Batches([len(item.ids) for item in items], 0, 3).epoch(0)[:2]
    for indices in first_two:
        batch = collate([items[i] for i in indices], 1)
        (batch_losses(start.model, batch, TINY, FULL)["loss"] / 2).backward()
    norm = torch.stack([p.grad.norm() for p in start.model.parameters()]).norm()
    assert made == [settings] and norm > 0.6
    for name, parameter in start.model.named_parameters():
        expected = parameter.detach() - 0.5 * parameter.grad * (clip / norm if clip else 1)
        torch.testing.assert_close(after[name], expected, atol=1e-6, rtol=1e-4)


@pytest.mark.usefixtures("unreported")
def test_early_stopping_takes_the_best_weights(tmp_path, monkeypatch):
    """A.3: stop after two validations without improvement since the best, which is written."""
    losses = [3.0, 4.0, 2.0, 3.0, 2.5, 0.1]
    values = iter(losses)
    monkeypatch.setattr(training, "validate", lambda *_: {"validation_loss": next(values, 0.0)})
    train(replace(TINY, steps=60, save_every=1, patience=2), tmp_path / "run")
    assert [row["validation_loss"] for row in log(tmp_path / "run")] == losses[:5]
    train(replace(TINY, steps=3), tmp_path / "best")
    assert not changed(weights(tmp_path / "best"), weights(tmp_path / "run"))
    # Finished, it resumes to the same; a longer one has no better validation and keeps them.
    monkeypatch.setattr(training, "validate", lambda *_: {"validation_loss": 9.0})
    config = replace(TINY, steps=60, save_every=1, patience=2)
    train(config, tmp_path / "run", resume=True)
    assert len(log(tmp_path / "run")) == 5
    train(replace(config, patience=3), tmp_path / "run", resume=True)
    assert len(log(tmp_path / "run")) == 6
    assert not changed(weights(tmp_path / "best"), weights(tmp_path / "run"))


def two_processes(config, out):
    """A training in which each process notes the batches that it reads."""
    from accelerate.state import PartialState

    collate = training.Run.collate

    def noted(run, items):
        with Path(f"{out}-{PartialState().process_index}").open("a") as file:
            print([list(item.ids) for item in items], file=file)
        return collate(run, items)

    training.Run.collate = noted
    assert PartialState(cpu=True).num_processes == 2
    train(config, out)


@pytest.mark.usefixtures("unreported")
def test_two_processes_train_one_model(tmp_path, updated):
    """They read different batches, and their gradients are averaged: the weights are one's."""
    AcceleratorState._reset_state(True)  # of other trainings of this process
    out = tmp_path / "run"
    config = replace(SMALL, steps=2, batch_size=4)
    debug_launcher(two_processes, (config, out), num_processes=2)
    first, second = (Path(f"{out}-{number}").read_text().splitlines()[:2] for number in (0, 1))
    assert not set(first) & set(second)
    assert len([*checkpoints(out)[-1].glob("random_states_*")]) == 2
    assert changed(weights(out), updated(batch_size=4))
    with pytest.raises(ValueError, match="is of 2 processes, here are 1"):
        train(replace(config, steps=4), out, resume=True)


# What a training says


def test_d9_cut_documents_are_counted(tmp_path, capsys):
    """And few documents from scratch are said, with the flag to add."""
    texts = ("It rained. " * 9, "We left.")
    lines = [json.dumps({"document": [text], "summary": "It rained."}) for text in texts]
    for split in ("train", "validation"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    config = replace(TINY, data=str(tmp_path), steps=1, max_source=9, max_target=4)
    train(config, tmp_path / "run")
    said = capsys.readouterr().out
    assert "1 of 2 documents are cut to --max-source 9" in said
    assert "2 of 2 summaries are cut to --max-target 4" in said
    assert "2 documents are few to learn from scratch: begin with --model facebook/bart" in said


def test_a_training_ends_with_its_loss_and_that_with_the_documents_exchanged(runs, capsys):
    """Each summary beside the document of the next one."""
    run = load_run(runs / "two-0")
    items = run.encode(load(DATA, "validation"))
    row = log(runs / "two-0")[-1]
    training.report(run, items, row, Path("OUT"))
    nats = 0.0
    for number, item in enumerate(items):
        other = items[(number + 1) % len(items)]
        batch = run.collate([other._replace(target=item.target)])
        nats += read(run.model, batch).loss.item() * len(item.target)
    expected = nats / sum(len(item.target) for item in items)
    assert f"{expected:.3f}" != f"{row['validation_loss']:.3f}"
    assert capsys.readouterr().out.splitlines()[0] == (
        f"OUT: 4 updates, validation loss {row['validation_loss']:.3f}, "
        f"with the documents exchanged {expected:.3f} (should be higher)"
    )


def test_a_map_is_compared_with_the_best_sentences(runs, capsys):
    """How much attention r sentences hold: those with the most, and those of the map."""
    run = load_run(runs / "kl-0")
    items = run.encode(load(DATA, "validation"))[:5]
    held = np.zeros(2)
    for item in items:
        record = []
        read(run.model, run.collate([item]), record=record)
        for layer in record:
            exact, approximate = (part[0].mean(0).detach().numpy() for part in layer)  # (T, N)
            for step, shares in enumerate(exact):
                chosen = np.argsort(-approximate[step])[:2]
                held += np.sort(shares)[-2:].sum(), shares[chosen].sum()
    best, learned = held / len(record) / sum(len(item.target) for item in items)
    training.report(run, items, log(runs / "kl-0")[-1], Path("OUT"))
    first, line, _ = capsys.readouterr().out.splitlines()
    assert "exchanged" not in first
    hold = f"the best 2 sentences hold {best:.3f} of the attention"
    assert line == f"{hold}, those that the map picks {learned:.3f}"
    assert best > learned + 0.01
