"""Training all tasks: the losses, what learns and what stays, resuming, run folders, and what bad input gets."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, BartConfig, BartForConditionalGeneration, BertConfig, BertModel

from shared.data import load, write_jsonl

from .. import train as training
from ..model import approximator_parameters, freeze, load_model
from ..selection import Selection
from ..text import encode, train_tokenizer
from ..train import (
    PRESETS,
    Batches,
    Item,
    Task,
    TrainConfig,
    choose_selection,
    ideal_probability,
    kl_loss,
    learning_rate,
    load_run,
    main,
    parse,
    read_config,
    sparsity_loss,
    train,
)

DATA = "toy:count=16,seed=5"
SMALL = TrainConfig(
    data=DATA, width=16, feed_forward=16, heads=2, layers=2, vocabulary=400, dropout=0.1, batch_size=8, steps=6,
    save_every=2, warmup=2, max_source=120,
)  # fmt: skip
TINY = replace(SMALL, dropout=0.0, steps=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A finished run of each task, each from the one before where it needs one."""
    folder = tmp_path_factory.mktemp("runs")
    base = replace(SMALL, sentences="nltk", eos="last")
    train(base, folder / "base")
    train(replace(SMALL, task="sparse", init=str(folder / "base")), folder / "sparse")
    train(replace(SMALL, task="kl", init=str(folder / "base"), learning_rate=0.01), folder / "kl")
    train(replace(SMALL, task="integrated", init=str(folder / "kl"), select="mix", r=2, mix_steps=6), folder / "int")
    return {"base": folder / "base", "sparse": folder / "sparse", "kl": folder / "kl", "integrated": folder / "int"}


def log(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


def weights(run_dir: Path) -> dict:
    """What a finished run has learned."""
    return load_file(run_dir / "model" / "model.safetensors")


def changed(before: dict, after: dict) -> set[str]:
    """Names of the weights of both that differ in any bit."""
    return {name for name in before if name in after and not torch.equal(before[name], after[name])}


def prepared(run_dir: Path, items: int = 3, **changes) -> tuple[Task, training.Batch]:
    """A task that starts from a run, in eval mode, and a ragged batch."""
    config = replace(read_config(run_dir), init=str(run_dir), model="", max_source=400, **changes)
    task = Task(config, run_dir, examples := load(DATA, "train"))
    task.module.eval()
    chosen = sorted(task.prepare(examples), key=lambda item: len(item.target))
    return task, task.batch([*chosen[: items - 1], chosen[-1]], torch.device("cpu"))


def of_each(task: Task, batch: training.Batch):
    """Per document of a batch, alone and without padding: its number of sentences and per layer (H, T, N) attention."""
    for row in range(len(batch.source)):
        length, steps = int(batch.is_real[row].sum()), int((batch.labels[row] != -100).sum())
        one = [part[row : row + 1, :length] for part in batch[:3]]
        record = []
        task.module(one[0], one[1], sentence_ids=one[2], labels=batch.labels[row : row + 1, :steps], record=record)
        layers = [
            (each.exact[0].double(), each.approximate[0].double() if each.approximate is not None else None)
            for each in record
        ]
        yield int(one[2].max()) + 1, layers


# Losses


def test_eq5_a_loss_of_cross_entropy_and_entropy(runs):
    """H(alpha^s) in NumPy, per document, mean over heads and layers; L_xent is transformers'; gamma weighs."""
    task, batch = prepared(runs["base"], task="sparse", gamma=0.7)
    losses = task.losses(task.module, batch)
    total, steps = 0.0, 0
    for _, layers in of_each(task, batch):
        for exact, _ in layers:
            alpha = exact.detach().numpy()
            total += -(alpha * np.log(alpha)).sum(-1).mean(0).sum() / len(layers)
        steps += layers[0][0].size(1)
    assert losses["entropy"].item() == pytest.approx(total, rel=1e-4)
    plain = task.module(batch.source, batch.is_real, sentence_ids=batch.sentence_ids, labels=batch.labels).loss
    assert losses["xent"].item() == pytest.approx(plain.item() * steps, rel=1e-5)
    assert losses["loss"].item() == pytest.approx((losses["xent"] + 0.7 * losses["entropy"]).item())


def test_d6_d19_the_decoder_reads_the_end_token_first_and_padding_counts_for_nothing(runs):
    """L_xent by hand: inputs are </s> and the labels one step earlier; more padding changes nothing."""
    task, batch = prepared(runs["base"], task="base")
    start = torch.full_like(batch.labels[:, :1], task.tokenizer.eos_token_id)
    inputs = torch.cat([start, batch.labels[:, :-1].clamp_min(0)], 1)
    logits = task.module(batch.source, batch.is_real, sentence_ids=batch.sentence_ids, decoder_input_ids=inputs).logits
    is_step = batch.labels != -100
    expected = -logits.log_softmax(-1).gather(2, batch.labels.clamp_min(0).unsqueeze(2)).squeeze(2)[is_step].sum()
    longer = batch._replace(labels=torch.nn.functional.pad(batch.labels, (0, 3), value=-100))
    for each in (batch, longer):
        assert task.losses(task.module, each)["loss"].item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("temperature", [0.5, 0.8])
def test_eq11_d5_kl_loss_in_the_papers_and_the_released_scale(runs, temperature):
    """KL(sharpened exact || approximate) in NumPy; D5: released = divided by N and summed over layers."""
    task, batch = prepared(runs["kl"], temperature=temperature)
    found = {}
    for scale in ("paper", "released"):
        task.config = replace(task.config, kl_scale=scale)
        found[scale] = task.losses(task.module, batch)["loss"].item()
    paper = released = 0.0
    for sentences, layers in of_each(task, batch):
        for exact, approximate in layers:
            target, other = exact.detach().numpy() ** (1 / temperature), approximate.detach().numpy()
            target /= target.sum(-1, keepdims=True)
            divergence = (target * np.log(target / other)).sum(-1).mean(0).sum()
            paper += divergence / len(layers)
            released += divergence / sentences
    assert found == pytest.approx({"paper": paper, "released": released}, rel=1e-4)
    assert paper > 0.01


def test_eq12_integrated_loss(runs):
    """L_xent under the selection + lambda L_KL; the KL is that of the states under the selection."""
    task, batch = prepared(runs["kl"], task="integrated", kl_weight=0.3, r=1)
    found = {}
    for mode in ("full", "approx", "ideal"):
        task.module.selection = Selection(mode, r=1)
        losses, record = task.losses(task.module, batch), []
        output = task.module(
            batch.source, batch.is_real, sentence_ids=batch.sentence_ids, labels=batch.labels, record=record
        )
        is_step = batch.labels != -100
        assert losses["xent"].item() == pytest.approx(output.loss.item() * is_step.sum().item(), rel=1e-5)
        assert losses["kl"].item() == pytest.approx(kl_loss(record, is_step, batch.exists).item(), rel=1e-5)
        assert losses["loss"].item() == pytest.approx((losses["xent"] + 0.3 * losses["kl"]).item())
        found[mode] = losses["xent"].item()
    assert len(set(found.values())) == 3


def test_eq13_eq14_gradients_of_one_backward_pass(runs):
    """theta~'s gradient is lambda times that of L_KL; the decoder's is that of both; the encoder has none."""
    task, batch = prepared(runs["kl"], task="integrated", kl_weight=0.3, r=1)
    task.module.selection = Selection("approx", r=1)
    found = {}
    for name in ("loss", "xent", "kl"):
        task.module.zero_grad()
        task.losses(task.module, batch)[name].backward()
        found[name] = {key: p.grad.clone() for key, p in task.module.named_parameters() if p.grad is not None}
    theta = {id(parameter) for parameter in approximator_parameters(task.module)}
    names = {name for name, parameter in task.module.named_parameters() if id(parameter) in theta}
    decoder = set(found["loss"]) - names
    assert names <= set(found["loss"]) and not names & set(found["xent"])
    assert decoder and all("decoder.layers" in name for name in decoder)
    for name in names:
        torch.testing.assert_close(found["loss"][name], 0.3 * found["kl"][name], atol=1e-5, rtol=1e-4)
    zero = torch.zeros(())
    for name in decoder:
        of_kl = found["kl"].get(name, zero)
        torch.testing.assert_close(found["loss"][name], found["xent"][name] + 0.3 * of_kl, atol=1e-4, rtol=1e-4)
    # Through the exact attention and through the query of the last layer:
    assert found["kl"]["model.decoder.layers.1.encoder_attn.k_proj.weight"].abs().sum() > 0
    assert found["kl"]["model.decoder.layers.0.fc1.weight"].abs().sum() > 0


def test_d6_padding_is_in_no_loss(runs):
    """A batch's losses are the sums of its documents' losses, each alone; labels are padded by -100."""
    for name in ("base", "sparse", "kl", "integrated"):
        task, batch = prepared(runs[name])
        assert (batch.labels == -100).any() and (batch.sentence_ids == -1).any()
        together = task.losses(task.module, batch)
        alone = {}
        for row in range(len(batch.source)):
            length, steps = int(batch.is_real[row].sum()), int((batch.labels[row] != -100).sum())
            one = training.Batch(
                *(part[row : row + 1, :length] for part in batch[:3]), batch.labels[row : row + 1, :steps]
            )
            training.add_up(alone, task.losses(task.module, one))
        assert {key: loss.item() for key, loss in together.items()} == pytest.approx(alone, rel=1e-4)


def test_losses_are_means_over_heads_and_layers_of_given_attention():
    """Closed forms: uniform attention over 2 of 4 sentences; D10's constant is too small to see."""

    class Layer:
        exact = torch.tensor([[[[0.5, 0.5, 0.0, 0.0]], [[1.0, 0.0, 0.0, 0.0]]]])  # (1, 2, 1, 4)
        approximate = torch.full((1, 2, 1, 4), 0.25)

    is_step, exists = torch.ones(1, 1).bool(), torch.ones(1, 4).bool()
    assert sparsity_loss([Layer] * 3, is_step).item() == pytest.approx(np.log(2) / 2, abs=1e-5)
    expected = (np.log(2) + np.log(4)) / 2
    assert kl_loss([Layer] * 3, is_step, exists, 1.0).item() == pytest.approx(expected, abs=1e-5)
    assert kl_loss([Layer] * 3, is_step, exists, 1.0, "released").item() == pytest.approx(3 * expected / 4, abs=1e-5)
    assert kl_loss([Layer] * 3, ~is_step, exists).item() == 0


# The schedule and the choice of the mode


def test_d15_the_rate_of_a3_counts_updates():
    """0.002 * min(n^-0.5, n * 20000^-1.5) at update n, whatever the number of documents in it; and a constant rate."""
    config, _, _ = parse(["--out", "nowhere", "--task", "kl", "--preset", "paper"])
    assert config.accumulate == 2
    for n in (1, 5, 19_999, 20_000, 20_001, 100_000):
        expected = 0.002 * min(n**-0.5, n * 20_000**-1.5)
        assert learning_rate(n - 1, config) == pytest.approx(expected, rel=1e-9)
    constant = replace(config, schedule="constant", warmup=10, learning_rate=0.1)
    assert [learning_rate(step, constant) for step in (4, 9, 500)] == pytest.approx([0.05, 0.1, 0.1])


def test_d17_mix_is_drawn_once_an_update():
    """Ideal with probability max(0, 1 - step / epoch): always at the beginning, never after, half in the middle."""
    assert [ideal_probability(step, 10) for step in (0, 5, 10, 25)] == [1, 0.5, 0, 0]
    config = TrainConfig(task="integrated", init="x", select="mix", r=3, seed=4)
    drawn = [choose_selection(config, step, 4000) for step in range(5000)]
    is_ideal = np.array([selection.mode == "ideal" for selection in drawn])
    assert {selection.r for selection in drawn} == {3} and set(is_ideal[4000:]) == {False} and is_ideal[0]
    for first in (0, 1000, 2000, 3000):  # the sum of Bernoullis, 5 standard deviations
        expected = [1 - step / 4000 for step in range(first, first + 1000)]
        assert abs(is_ideal[first : first + 1000].sum() - sum(expected)) < 5 * 1000**0.5 / 2
    assert drawn[1500:1600] == [choose_selection(config, step, 4000) for step in range(1500, 1600)]
    other = [choose_selection(replace(config, seed=5), step, 4000) for step in range(4000)]
    assert other != drawn[:4000]


def test_selection_of_each_task():
    """Only integrated training selects."""
    for task in ("base", "sparse", "kl"):
        assert choose_selection(TrainConfig(task=task, model="x"), 0, 1).mode == "full"
    for select in ("ideal", "approx"):
        config = TrainConfig(task="integrated", init="x", select=select, r=2)
        assert {choose_selection(config, step, 10) for step in range(20)} == {Selection(select, r=2)}


def test_an_update_uses_its_selection_and_validation_that_of_inference(runs, tmp_path, monkeypatch):
    seen, losses_of = [], Task.losses

    def losses(self, module, batch):
        seen.append((module.training, module.selection.mode))
        return losses_of(self, module, batch)

    monkeypatch.setattr(Task, "losses", losses)
    config = replace(TINY, task="integrated", init=str(runs["kl"]), select="mix", mix_steps=1, steps=3, save_every=3)
    train(replace(config, accumulate=2), tmp_path / "run")
    assert seen[:6] == [(True, "ideal")] * 2 + [(True, "approx")] * 4
    assert set(seen[6:]) == {(False, "approx")}


# What learns and what stays


@pytest.mark.parametrize(("task", "start"), [("sparse", "base"), ("kl", "base"), ("integrated", "kl")])
def test_frozen_parts_stay_bit_for_bit_the_same(runs, task, start):
    """sparse: all learn; kl: the approximator alone; integrated: it and the decoder's layers."""
    after = weights(runs[task])
    if task == "kl":  # the approximator was not there before: what it was, a fresh take-over says
        model = load_model(str(runs["base"] / "model"), sentence_encoder="gru")
        before = {name: value for name, value in model.state_dict().items() if name in after}
    else:
        before = weights(runs[start])
    assert set(before) <= set(after)
    mine = {name for name in after if name.startswith("sentence_encoder") or ".sentence_" in name}
    expected = {
        "sparse": {name for name in after if "final_logits_bias" not in name},
        "kl": mine,
        "integrated": mine | {name for name in after if "decoder.layers" in name},
    }[task]
    assert len(expected) == {"sparse": 91, "kl": 18 + 8, "integrated": 18 + 2 * (26 + 4)}[task]
    # The gradient of a key's bias is zero but for rounding, since softmax does not see a shift.
    still = {name for name in expected if name.endswith("k_proj.bias") or name.endswith("sentence_k.bias")}
    assert expected - still <= changed(before, after) <= expected


def test_d14_dropout_is_on_in_frozen_parts(runs, tmp_path, monkeypatch):
    """Released code: all of the model is in training mode, so a frozen encoder gives other states each time."""
    task, batch = prepared(runs["kl"])
    states = lambda: task.module.get_encoder()(input_ids=batch.source, attention_mask=batch.is_real)[0]  # noqa: E731
    assert torch.equal(states(), states())
    task.module.train()
    assert not any(p.requires_grad for p in task.module.get_encoder().parameters())
    assert not torch.equal(states(), states())
    modes, losses_of = [], Task.losses

    def losses(self, module, batch):
        modes.append(module.get_encoder().training)
        return losses_of(self, module, batch)

    monkeypatch.setattr(Task, "losses", losses)
    train(replace(SMALL, task="kl", init=str(runs["base"]), steps=1, save_every=1), tmp_path / "run")
    assert modes[0] and not any(modes[1:])


def test_training_lowers_the_losses(runs):
    """The validation loss of each task, and the parts that it wants low."""
    for task, part in (("base", "loss"), ("sparse", "loss"), ("kl", "loss"), ("integrated", "xent")):
        rows = log(runs[task])[1:]
        assert rows[-1][f"validation_{part}"] < rows[0][f"validation_{part}"], task


def test_entropy_falls_with_gamma(runs, tmp_path):
    """A large gamma makes attention sparser than none."""
    config = replace(TINY, task="sparse", init=str(runs["base"]), steps=8, save_every=8, learning_rate=0.01)
    found = {}
    for gamma in (0.0, 50.0):
        train(replace(config, gamma=gamma), tmp_path / str(gamma))
        found[gamma] = log(tmp_path / str(gamma))[-1]["validation_entropy"]
    assert found[50.0] < found[0.0] - 0.01


def test_the_loss_of_the_base_task_is_the_mean_cross_entropy_of_the_summary(runs):
    """Validation loss of the log = transformers' own loss of the plain BART that model/ is."""
    model, tokenizer, _, _ = load_run(runs["base"])
    plain = AutoModelForSeq2SeqLM.from_pretrained(runs["base"] / "model")
    assert type(plain) is BartForConditionalGeneration
    total, tokens = 0.0, 0
    for example in load(DATA, "validation"):
        source = torch.tensor([tokenizer(example.source, truncation=True, max_length=120)["input_ids"]])
        target = torch.tensor([tokenizer(example.target)["input_ids"]])
        total += plain(input_ids=source, labels=target).loss.item() * target.size(1)
        tokens += target.size(1)
    assert log(runs["base"])[-1]["validation_loss"] == pytest.approx(total / tokens, abs=2e-4)


def test_d18_an_update_is_the_mean_over_its_target_tokens(tmp_path):
    """Two micro-batches of 8 are one of 16, though their summaries differ in length."""
    train(replace(TINY, batch_size=16), tmp_path / "one")
    train(replace(TINY, accumulate=2), tmp_path / "two")
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in one:
        if not name.endswith("k_proj.bias"):  # Adam scales the rounding of a gradient that is zero
            torch.testing.assert_close(one[name], two[name], atol=1e-4, rtol=1e-3)


def test_clipping_can_be_switched_off(tmp_path):
    """The paper does not clip: 0 is as a very high limit, and a low limit makes another update."""
    for clip in (0.0, 1e9, 1e-9):
        train(replace(TINY, clip=clip), tmp_path / str(clip))
    free, high, low = (weights(tmp_path / str(clip)) for clip in (0.0, 1e9, 1e-9))
    assert not changed(free, high) and changed(free, low)


def test_early_stopping_takes_the_best_weights(tmp_path, monkeypatch):
    """A.3: stop after so many validations without improvement; what is written is the best, not the last."""
    losses = iter([3.0, 1.0, 2.0, 1.5, 0.1])
    monkeypatch.setattr(training.Training, "validation_losses", lambda self: {"loss": next(losses)})
    train(replace(TINY, steps=60, save_every=2, patience=2), tmp_path / "run")
    assert [row["validation_loss"] for row in log(tmp_path / "run")[1:]] == [3.0, 1.0, 2.0, 1.5]
    monkeypatch.undo()
    train(replace(TINY, steps=4), tmp_path / "best")
    assert not changed(weights(tmp_path / "best"), weights(tmp_path / "run"))


def test_an_epoch_between_checkpoints_and_cut_documents_in_the_log(tmp_path):
    """save_every 0 validates after each epoch; --examples limits the training data; cut documents are counted (D9)."""
    train(replace(TINY, save_every=0, examples=11, steps=3, batch_size=8, max_source=150), tmp_path / "run")
    first, *rows = log(tmp_path / "run")
    _, tokenizer, _, _ = load_run(tmp_path / "run")
    cut = sum(len(tokenizer(example.source)["input_ids"]) > 150 for example in load(DATA, "train")[:11])
    assert first == {"examples": 11, "validation_examples": 16, "sources_cut": cut} and 0 < cut
    assert [row["step"] for row in rows] == [2, 3]


def test_batches_hold_every_item_once_an_epoch_and_are_of_like_length():
    items = [Item([0] * length, [0], [0], False) for length in range(1, 42)]
    batches = Batches(items, 8, seed=0)
    for epoch in (0, 1):
        lengths = [[len(item.source) for item in batches[6 * epoch + number]] for number in range(6)]
        assert sorted(sum(lengths, [])) == list(range(1, 42))
        assert max(max(batch) - min(batch) for batch in lengths) < 30
    other = Batches(items, 8, seed=0)
    assert other[7] == batches[7] and other[7] != other[1] and Batches(items, 8, seed=1)[7] != other[7]


def test_two_processes_train_like_one_that_accumulates_twice_as_much(runs, tmp_path):
    """Integrated training on two CPU processes makes the updates of one with twice the batch (not with half of it)."""
    model, tokenizer, _, _ = load_run(runs["kl"])
    model.config.dropout = model.config.attention_dropout = 0.0
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "start")
    top = Path(training.__file__).parents[len(training.__name__.split(".")) - 1]
    config = TrainConfig(
        task="integrated", model=str(tmp_path / "start"), select="mix", mix_steps=2, data="toy:count=8", batch_size=4,
        max_source=60, steps=2, warmup=1, learning_rate=0.01, r=1,
    )  # fmt: skip
    train(replace(config, accumulate=2), tmp_path / "one")
    train(config, tmp_path / "half")
    values = {name: value for name, value in asdict(config).items() if value != getattr(TrainConfig(), name)}
    flags = [text for name, value in values.items() for text in ("--" + name.replace("_", "-"), str(value))]
    # Without the two dashes, torchrun takes our --r for the beginning of a flag of its own.
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    command = [*launch, training.__name__, "--out", tmp_path / "two", *flags]
    done = subprocess.run(command, cwd=top, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    one, two, half = (weights(tmp_path / run) for run in ("one", "two", "half"))
    learned = [name for name in changed(one, half) if not name.endswith(("k_proj.bias", "sentence_k.bias"))]
    far = [name for name in learned if (one[name] - half[name]).abs().max() > 1e-3]
    assert len(far) > 50 and all((one[name] - two[name]).abs().max() < 5e-4 for name in far)


# Starting points


def test_a_run_hands_on_its_tokenizer_and_its_sentence_rule(runs):
    """nltk and eos come from --init where no flag says otherwise, with the same punkt model."""
    for name in ("sparse", "kl", "integrated"):
        config = read_config(runs[name])
        assert (config.sentences, config.eos, config.sentence_end) == ("nltk", "last", " .")
        assert (runs[name] / "punkt.json").read_bytes() == (runs["base"] / "punkt.json").read_bytes()
    model, tokenizer, config, splitter = load_run(runs["integrated"])
    assert (model.config.sentence_encoder, splitter.rule, splitter.eos, config.r) == ("gru", "nltk", "last", 2)
    found = encode(tokenizer, "the storm hit . the town slept .", 99, splitter)
    assert found.sentence_ids[-1] == found.sentence_ids[-2] and not model.training


def test_all_sentence_rules_train_and_are_kept(runs, tmp_path):
    for rule in ("given", "eos-token"):
        config = replace(TINY, task="kl", init=str(runs["base"]), sentences=rule, steps=1, sentence_encoder="mean")
        train(config, tmp_path / rule)
        splitter = load_run(tmp_path / rule)[3]
        assert splitter.rule == rule and not (tmp_path / rule / "punkt.json").exists()
    assert len(splitter.eos_ids) == 1


def test_any_bart_from_a_folder(tmp_path):
    """A BART saved by transformers, 3 decoder layers, is tuned by --model and evaluated as it is by load_run."""
    tokenizer = train_tokenizer([example.source for example in load(DATA)], 400)
    sizes = dict(d_model=16, encoder_layers=1, decoder_layers=3, encoder_ffn_dim=8, decoder_ffn_dim=8)
    heads = dict(encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=256)
    bart = BartForConditionalGeneration(BartConfig(vocab_size=len(tokenizer), **sizes, **heads))
    bart.save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    model, _, _, splitter = load_run(tmp_path / "bart")
    assert splitter.rule == "given"
    ids = torch.randint(4, 300, (1, 9))
    torch.testing.assert_close(model(ids, decoder_input_ids=ids).logits, bart.eval()(ids, decoder_input_ids=ids).logits)
    flags = ["--model", str(tmp_path / "bart"), "--data", DATA, "--steps", "1", "--batch-size", "4"]
    main(
        [
            "--task",
            "kl",
            "--out",
            str(tmp_path / "kl"),
            *flags,
            "--max-source",
            "100",
            "--sentence-encoder",
            "attention",
        ]
    )
    after = weights(tmp_path / "kl")
    assert all(torch.equal(after[name], value) for name, value in bart.state_dict().items() if name in after)
    assert len(load_run(tmp_path / "kl")[0].attentions) == 3
    with pytest.raises(SystemExit, match="error: max_source is 1024, the model has 256 positions: lower it"):
        main(["--out", str(tmp_path / "no"), *flags])


def test_lobart_is_trained_on_and_kept(runs, tmp_path):
    """Base with a window and more positions; what starts from it has both without a flag."""
    config = replace(TINY, init=str(runs["base"]), attention_window=16, extend_positions=1500, max_source=1100, steps=1)
    train(replace(config, data="toy:count=4"), tmp_path / "base")
    train(replace(TINY, task="kl", init=str(tmp_path / "base"), steps=1, data="toy:count=4"), tmp_path / "kl")
    model = load_run(tmp_path / "kl")[0]
    assert (model.config.attention_window, model.config.max_position_embeddings) == (16, 1500)
    fresh = Task(replace(TINY, attention_window=16), tmp_path / "none", load(DATA, "train")).module
    assert type(fresh.get_encoder().layers[0].self_attn).__name__ == "LocalSelfAttention"


# Resuming


class Killed(BaseException):
    pass


@pytest.mark.parametrize("task", ["base", "integrated"])
@pytest.mark.parametrize("moment", ["in a step", "while a checkpoint is written", "after a checkpoint"])
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, monkeypatch, runs, task, moment):
    """Kill and --resume gives bitwise the weights of a run that was never killed: dropout, Adam, mode, data order."""
    config, run_dir = read_config(runs[task]), tmp_path / "killed"

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
        train(config, run_dir)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="the run is not finished, go on with --out .*killed --resume"):
        load_run(run_dir)
    train(config, run_dir, resume=True)
    assert weights(run_dir).keys() == weights(runs[task]).keys()
    assert not changed(weights(run_dir), weights(runs[task])) and log(run_dir) == log(runs[task])


def test_a_run_killed_while_its_model_is_written_finishes(tmp_path, monkeypatch, runs):
    config = read_config(runs["base"])
    monkeypatch.setattr(training.os, "replace", rename_all_but("model.tmp"))
    with pytest.raises(Killed):
        train(config, tmp_path / "run")
    monkeypatch.undo()
    (tmp_path / "run" / "model.tmp" / "left.over").write_text("half")
    train(config, tmp_path / "run", resume=True)
    assert not changed(weights(tmp_path / "run"), weights(runs["base"]))
    assert not (tmp_path / "run" / "model" / "left.over").exists()


def rename_all_but(name: str):
    """os.replace that dies at one file."""
    rename = training.os.replace

    def replace_or_die(source, target):
        if Path(source).name == name:
            raise Killed
        rename(source, target)

    return replace_or_die


def test_another_seed_is_another_run(tmp_path, runs):
    train(replace(read_config(runs["base"]), seed=1), tmp_path / "other")
    assert "model.shared.weight" in changed(weights(tmp_path / "other"), weights(runs["base"]))


# Bad input


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no-such-flag", "1"], "unrecognized arguments"),
        (["--max-sour", "1"], "unrecognized arguments"),  # no abbreviations: a typo must not pick another field
        (["--steps", "many"], "'many' is not int"),
        (["--gamma", "high"], "'high' is not float"),
        (["--preset", "huge"], "invalid choice"),
        (["--task", "tagger"], "invalid choice"),
    ],
)
def test_unknown_and_mistyped_flags_end_with_a_message(tmp_path, capsys, flags, message):
    with pytest.raises(SystemExit):
        parse(["--out", str(tmp_path / "run"), *flags])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "kl"}, "task 'kl' starts from a trained model: give --init RUN or --model NAME"),
        ({"init": "a", "model": "b"}, "give --init .* or --model .*, not both"),
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"r": 0}, "r is 0; it must be at least 1"),
        ({"max_source": 2}, "max_source is 2; it must be at least 3"),
        ({"gamma": -0.1}, "gamma is -0.1; it must be at least 0"),
        ({"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ({"sentences": "stanza"}, "sentences is 'stanza'; use one of given, nltk, eos-token"),
        ({"sentence_encoder": "cnn"}, "use one of gru, mean, attention"),
        ({"select": "random"}, "use one of ideal, approx, mix"),
        ({"kl_scale": "big"}, "use one of paper, released"),
        ({"schedule": "cosine"}, "use one of inverse_sqrt, constant"),
        ({"heads": 3}, "width 128 is not a multiple of heads = 3"),
    ],
)
def test_values_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**change)


def test_presets_hold_the_papers_values():
    """A.3, A.5, and r* of Section 4.4; every preset of every task makes a config."""
    config, _, _ = parse(["--out", "x", "--task", "kl", "--preset", "paper"])
    assert (config.model, config.sentences, config.sentence_encoder) == ("facebook/bart-large-cnn", "nltk", "gru")
    assert (config.batch_size, config.accumulate, config.warmup, config.patience) == (1, 2, 20_000, 3)
    assert (config.save_every, config.temperature, config.clip, config.mixed_precision) == (20_000, 0.5, 0, "no")
    config, _, _ = parse(["--out", "x", "--task", "integrated", "--preset", "paper", "--init", "run"])
    assert (config.kl_weight, config.r, config.init, config.model) == (0.2, 5, "run", "")
    config, _, _ = parse(["--out", "x", "--task", "sparse", "--preset", "paper", "--init", "run", "--gamma", "1"])
    assert (config.gamma, config.save_every, config.model) == (1.0, 25_000, "")
    config, _, _ = parse(["--out", "x", "--preset", "paper-arxiv"])
    assert (config.attention_window, config.extend_positions, config.max_source) == (1024, 4096, 4096)
    assert (config.max_target, config.r, config.model) == (400, 30, "facebook/bart-large-cnn")
    with pytest.raises(ValueError, match="task 'kl' starts from a trained model"):
        parse(["--out", "x", "--task", "kl", "--preset", "paper-arxiv"])
    for task, presets in PRESETS.items():
        for preset in presets:
            flags = [] if task == "base" else ["--init", "run"]
            assert parse(["--out", "x", "--task", task, "--preset", preset, *flags])[0].task == task


def test_models_out_of_reach_are_named_with_the_remedy(tmp_path, runs):
    for load_it in (load_run, lambda name: train(replace(SMALL, model=name), tmp_path / "run")):
        with pytest.raises(ValueError, match="cannot load 'no/such-bart'.*HF_HUB_OFFLINE=0 hf download no/such-bart"):
            load_it("no/such-bart")
    flags = ["--out", str(tmp_path / "run"), "--data", DATA, "--task", "integrated"]
    with pytest.raises(SystemExit, match="error: task 'integrated' needs an approximator: give --init a run of --task"):
        main([*flags, "--init", str(runs["base"])])
    with pytest.raises(SystemExit, match="error: .*nothing/config.json does not exist: .* is not a run folder"):
        main([*flags, "--init", str(tmp_path / "nothing")])
    assert not (tmp_path / "run").exists()


def test_another_model_than_a_bart_is_refused(tmp_path):
    BertModel(BertConfig(vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(
        tmp_path
    )
    train_tokenizer(["a storm"], 300).save_pretrained(tmp_path)
    for load_it in (load_run, lambda name: train(replace(SMALL, model=str(name)), tmp_path / "run")):
        with pytest.raises(ValueError, match="is a bert model: give the name or folder of a BART"):
            load_it(tmp_path)


def test_data_without_sentences_needs_a_rule_that_splits(tmp_path):
    """One whole string per document: refused with "given", which would make one sentence of it; nltk is the default."""
    rows = [{"document": example.source, "summary": example.target} for example in load(DATA)]
    for split in ("train", "validation"):
        write_jsonl(tmp_path / f"{split}.jsonl", rows)
    config = replace(TINY, data=str(tmp_path), steps=1)
    with pytest.raises(ValueError, match="are not split into sentences: use --sentences nltk"):
        train(replace(config, sentences="given"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train(replace(config, sentences=""), tmp_path / "run")
    _, tokenizer, _, splitter = load_run(tmp_path / "run")
    assert splitter.rule == "nltk"
    assert max(encode(tokenizer, rows[0]["document"], 999, splitter).sentence_ids) > 2


def test_a_run_folder_in_use_is_not_overwritten(runs):
    before = (runs["base"] / "model" / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="already holds a run"):
        train(SMALL, runs["base"])
    with pytest.raises(ValueError, match="leave out steps"):
        parse(["--out", str(runs["base"]), "--resume", "--steps", "99"])
    assert parse(["--out", str(runs["base"]), "--resume", "--steps", "6"])[0] == read_config(runs["base"])
    assert (runs["base"] / "model" / "model.safetensors").read_bytes() == before


def test_bad_run_folders_are_named(tmp_path, runs):
    config = json.loads((runs["base"] / "config.json").read_text())
    for text, message in (
        (json.dumps(config | {"package": "l0drop"}), "belongs to the package 'l0drop'"),
        (json.dumps(config)[:40], "config.json is cut off"),
        (json.dumps(config | {"train": {"colour": 1}}), "unknown field colour"),
        (json.dumps(config), "model does not exist: the run is not finished"),
    ):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=message):
            load_run(tmp_path)
    whole = (runs["base"] / "checkpoint.pt").read_bytes()
    (tmp_path / "checkpoint.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="checkpoint.pt is cut off .*delete it, and the run starts again"):
        train(read_config(tmp_path), tmp_path, resume=True)


def test_freeze_names_the_phases(runs):
    assert training.TASKS == ("base", "sparse", "kl", "integrated")
    with pytest.raises(ValueError, match="phase is 'tagger'"):
        freeze(load_run(runs["kl"])[0], "tagger")
