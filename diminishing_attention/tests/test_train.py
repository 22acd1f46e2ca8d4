"""A training: accumulation, clipping, rates, the two phases, pretrained encoders, bad values."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file

from shared.data import load

from .. import predict
from .. import train as training
from ..config import TrainConfig
from ..loading import begin, load_run
from ..text import Item
from ..train import train
from .conftest import BERT, SMALL, write_bert

DATA = SMALL.data


def weights(run_dir: Path) -> dict:
    return load_file(run_dir / "model.safetensors")


def optimizer_state(run_dir: Path) -> dict:
    return torch.load(next(run_dir.glob("checkpoints/*")) / "optimizer.bin", weights_only=True)


def test_d19_accumulation_is_the_mean_of_the_micro_batches(tmp_path, monkeypatch):
    """D19: two micro-batches of 12 documents are one of 24."""
    monkeypatch.setattr(training, "CLIP", 1e9)
    # Adam does not see a factor common to all gradients
    config = replace(SMALL, steps=2, optimizer="adagrad")
    train(replace(config, batch_size=24), tmp_path / "one")
    train(replace(config, batch_size=12, accumulate=2), tmp_path / "two")
    torch.testing.assert_close(
        weights(tmp_path / "one"), weights(tmp_path / "two"), atol=2e-3, rtol=1e-2
    )


def test_gradients_of_a_pointer_generator_are_clipped_part_by_part(tmp_path, monkeypatch, bert):
    """Released code: encoder, reducer and decoder each, once an update; PreSumm clips nothing."""
    clipped = []
    monkeypatch.setattr(
        torch.nn.utils, "clip_grad_norm_", lambda part, most: clipped.append((len(part), most))
    )
    for config, name in ((replace(SMALL, accumulate=2), "pointer"), (BERT, "bertsum")):
        train(replace(config, steps=2), tmp_path / name)
    parts = [len(part) for part in load_run(tmp_path / "pointer").model.parts()]
    assert clipped == [(length, 2.0) for length in parts] * 2 and len(parts) == 3


@pytest.mark.parametrize("change", [{"diminishing": "dydim"}, {"coverage": True}], ids=str)
def test_the_mechanism_is_switched_on_after_the_base(trained, tmp_path, change):
    """Same weights and words; coverage alone brings a new parameter; training goes on."""
    base = trained(SMALL)
    config = replace(SMALL, init=str(base), steps=1, **change)
    run, before = begin(config, load(DATA)), weights(base)
    now = run.model.state_dict()
    assert all(torch.equal(now[name], before[name]) for name in before)
    # of the embedding, which is used twice, a file has one
    new = {name for name in now if name not in before and "embedding" not in name}
    assert new == ({"decoder.coverage_map.weight"} if "coverage" in change else set())
    assert run.tokenizer.known == load_run(base).tokenizer.known
    train(config, tmp_path / "run")
    assert load_run(tmp_path / "run").model.decoder.diminishing.kind == config.diminishing
    assert any(not torch.equal(weights(tmp_path / "run")[name], before[name]) for name in before)


def test_bertsum_goes_on_with_all_its_weights(trained):
    base = str(trained(BERT))
    run = begin(replace(BERT, init=base, diminishing="dydim"), load(DATA))
    torch.testing.assert_close(dict(run.model.state_dict()), weights(trained(BERT)), rtol=0, atol=0)
    assert [layer.diminishing.kind for layer in run.model.layers] == ["none", "dydim"]
    with pytest.raises(ValueError, match="--max-source is 70: the encoder of .* reads 64 tokens"):
        begin(replace(BERT, init=base, max_source=70), load(DATA))


def test_eq7_eq8_d12_rates_reach_their_groups_and_go_on(trained, tmp_path):
    """The encoder's first, then the others'.

    D12: a second phase goes on with the step, a third one, too.
    """
    base = trained(BERT)  # of 4 updates
    for name, step in (("second", 5), ("third", 6)):
        train(replace(BERT, init=str(base), diminishing="dim", steps=1, warmup=50), tmp_path / name)
        base = tmp_path / name
        rates = [group["lr"] for group in optimizer_state(base)["param_groups"]]
        # warm-ups of 4 and 50
        assert rates == pytest.approx([0.02 * step**-0.5, 0.05 * step * 50**-1.5])


def test_d25_a_second_phase_begins_with_a_new_optimiser(trained, tmp_path):
    """D25: of Adagrad, too: the accumulator of the base is not gone on with."""
    config = replace(SMALL, optimizer="adagrad", learning_rate=1e-9)
    train(replace(config, init=str(trained(config)), steps=1), tmp_path / "run")

    def summed(folder: Path) -> float:
        state = optimizer_state(folder)["state"].values()
        return sum((each["sum"] - 0.1).sum().item() for each in state)

    assert 0 < summed(tmp_path / "run") < 0.5 * summed(trained(config))


def test_d26_the_last_weights_are_taken(trained):
    """D26: not those of the lowest validation loss, nor a mean of several."""
    folder = trained(SMALL)
    last, taken = load_file(folder / "checkpoints/00000004/model.safetensors"), weights(folder)
    common = taken.keys() & last.keys()
    assert all(torch.equal(taken[name], last[name]) for name in common) and len(common) > 20


def test_d24_a_pretrained_encoder_from_a_folder(tmp_path):
    """D24: trained to extract or not, its weights are the start; it reads as long as a source.

    Table 1's Transformer takes its tokenizer alone.
    """
    folder = tmp_path / "bert"
    write_bert(folder, ["storm"], positions=32)
    config = replace(BERT, encoder=str(folder), learning_rate=1e-9, encoder_learning_rate=1e-9)
    before = begin(config, []).model.encoder.state_dict()
    fresh = begin(replace(config, model="transformer", layers=3, width=32), [])
    sizes = fresh.model.encoder.config
    assert (sizes.num_hidden_layers, sizes.hidden_size) == (3, 32)
    assert fresh.tokenizer.get_vocab() == begin(config, []).tokenizer.get_vocab()
    train(replace(config, steps=1), tmp_path / "run")
    now = weights(tmp_path / "run")
    for name, tensor in before.items():
        torch.testing.assert_close(now[f"encoder.{name}"], tensor, atol=1e-6, rtol=0)
    shutil.rmtree(folder)  # the run needs it no more
    assert load_run(tmp_path / "run").model.encoder.config.max_position_embeddings == 60  # extended


def test_validation_takes_200_documents_training_all(monkeypatch):
    asked = []
    monkeypatch.setattr(training, "load", lambda *given: asked.append(given) or [])
    for split in ("train", "validation"):
        training.load_sentences("toy", split)
    assert asked == [("toy", "train", None), ("toy", "validation", 200)]


def test_the_weights_follow_the_seed(tmp_path):
    """Not the order of the data alone."""
    runs = (tmp_path / name for name in "ab")
    for run, seed in zip(runs, (0, 1), strict=True):
        train(replace(SMALL, learning_rate=1e-9, steps=1, seed=seed), run)
    one, other = (weights(tmp_path / name)["decoder.query.weight"] for name in "ab")
    assert (one - other).abs().max() > 0.01


def test_values_that_contradict_are_refused(tmp_path):
    bertsum = {"model": "bertsum-abs", "encoder": "bert"}
    for change, message in (
        ({"vocabulary": 4}, "--vocabulary is 4"),
        ({"coverage": True, "diminishing": "dim"}, "--coverage is a system of its own"),
        (
            bertsum | {"coverage": True},
            "--coverage is a system of its own, of the pointer-generator",
        ),
        (bertsum | {"max_source": 2}, "BERTSum needs --max-source of at least 3"),
        ({"model": "bertsum-abs"}, "--model bertsum-abs or transformer, which need it"),
        ({"encoder": "bert"}, "--encoder, a BERT, goes with --model bertsum-abs"),
    ):
        with pytest.raises(ValueError, match=message):
            train(replace(TrainConfig(), **change), tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("config", [SMALL, BERT], ids=["pointer", "bertsum"])
def test_a_training_ends_with_two_losses_and_commands_that_work(tmp_path, capsys, config, bert):
    """The loss of the validation split, and with each summary beside the document that follows."""
    train(replace(config, steps=1), tmp_path / "run")
    printed = capsys.readouterr().out
    run = load_run(tmp_path / "run")
    examples = training.load_sentences(config.data, "validation")
    pairs = zip(examples, examples[1:] + examples[:1], strict=True)
    others = [replace(example, document=following.document) for example, following in pairs]
    losses = [training.validation_loss(run, run.encode(part)) for part in (examples, others)]
    count = sum(parameter.numel() for parameter in run.model.parameters())
    assert f"{count:,} parameters, 1 updates, validation loss {losses[0]:.3f}" in printed
    assert f"with the documents exchanged {losses[1]:.3f}" in printed and losses[0] != losses[1]
    (tmp_path / "FILE.txt").write_text("in Brenton two halls were built .\n")
    (again,) = re.findall(r"python -m \S+\.train --out ([^\n]+)", printed)
    (hint,) = re.findall(r"python -m \S+\.predict ([^\n]+)", printed)
    training.main(["--out", *again.split()])
    assert load_run(tmp_path / "run-dim").config.diminishing == "dim"
    capsys.readouterr()
    predict.main(hint.replace("FILE.txt", str(tmp_path / "FILE.txt")).split())
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "order"), [({}, [1, 0, 2]), ({"batch_tokens": 60}, [1, 2, 0])], ids=str
)
def test_d28_batches_are_sorted_by_source_or_where_it_is_counted_by_target(change, order):
    sizes = ((2, 9), (1, 3), (3, 4))
    items = [Item([0] * source, [0] * target, [], False) for source, target in sizes]
    keys = training.lengths(items, replace(SMALL, **change))
    assert sorted(range(3), key=lambda place: keys[place]) == order


def test_a_loss_that_is_not_finite_stops_the_training(tmp_path, monkeypatch):
    """The last good checkpoint stays, and says so."""
    monkeypatch.setattr(training, "learning_rate", lambda step, *_: 1e30 if step > 2 else 1e-3)
    said = "loss is (nan|inf) at step [34]; .* keeps its last checkpoint"
    with pytest.raises(ValueError, match=said):
        train(replace(SMALL, save_every=1, steps=20), tmp_path / "run")
    assert list((tmp_path / "run/checkpoints").glob("0000000[23]"))
    assert not (tmp_path / "run/model.safetensors").exists()
