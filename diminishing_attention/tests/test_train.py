"""Presets, optimisers, batches, the two phases of training, pretrained encoders, several processes, bad values."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from accelerate import debug_launcher
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from shared.data import load
from shared.run import check

from .. import train as training
from ..bertsum.bert_text import make_tokenizer
from ..bertsum.bertsum import new_encoder
from ..config import PRESETS, TrainConfig, learning_rate
from ..diminishing import Diminishing
from ..loading import begin, load_run
from ..train import make_optimizer, train
from .conftest import BERT, SMALL

DATA = SMALL.data
CONFIGS = {"pointer": SMALL, "bertsum-abs": BERT}


@pytest.fixture
def runs(trained) -> dict[str, Path]:
    """A finished run of each model."""
    return {name: trained(config) for name, config in CONFIGS.items()}


def weights(run_dir: Path) -> dict:
    return load_file(run_dir / "model.safetensors")


def pinned(name: str, **values) -> None:
    """Every value of a preset is one of `values`, and the other way."""
    expected = {k: v for k, v in values.items() if v != getattr(TrainConfig(), k)}
    config = TrainConfig(**PRESETS[name])
    check(config)
    assert {k: v for k, v in asdict(config).items() if v != getattr(TrainConfig(), k)} == expected


def test_the_papers_pointer_generator_is_see_et_als():
    """Section 4.2 and the code that it names; min_length counts the end: 35 words and one."""
    pinned(
        "paper", data="cnn_dailymail", vocabulary=50_000, embedding=128, hidden=256, max_source=400, max_target=100,
        steps=230_000, batch_size=8, optimizer="adagrad", learning_rate=0.15, clip=2.0, beam=4,
        min_length=36, max_length=100, save_every=5000, model="pointer",
    )  # fmt: skip


BERTSUM_PAPER = dict(
    data="cnn_dailymail", encoder="bert-base-uncased", width=768, heads=8, feed_forward=2048, label_smoothing=0.1,
    max_source=512, clip=0.0, beam=5, length_penalty=0.95, trigram_blocking=True, min_length=51, max_length=200,
    max_target=140, save_every=2000,
)  # fmt: skip


def test_the_papers_bertsum_is_presumms():
    """Section 2.3; PreSumm: batches of 140 target tokens, dropout 0.2."""
    pinned(
        "paper-bertsum-abs", **BERTSUM_PAPER, model="bertsum-abs", decoder_layers=6, dropout=0.2, steps=200_000,
        batch_tokens=140, batch_size=6, accumulate=20, learning_rate=0.1, warmup=10_000, encoder_learning_rate=2e-3,
        encoder_warmup=20_000,
    )  # fmt: skip


def test_the_papers_transformer_is_presumms():
    """TransformerAbs: six new layers, BERT's WordPieces, one rate, 8,000 updates of warm-up, 300 target tokens."""
    pinned(
        "paper-transformer", **BERTSUM_PAPER, model="bertsum-abs", pretrained=False, layers=6, decoder_layers=6,
        dropout=0.1, steps=200_000, batch_tokens=300, batch_size=6, accumulate=20, learning_rate=0.05, warmup=8000,
        encoder_learning_rate=0.05, encoder_warmup=8000,
    )  # fmt: skip


def test_the_second_phases_of_the_paper():
    """Section 4.2: 600 and 800 tokens, less than 10,000 updates, beam 6, alpha 1.5, blocking. Coverage: 3,000."""
    base, decoding = "a run of --preset paper", dict(beam=6, length_penalty=1.5, trigram_blocking=True)
    pinned("paper-dim", init=base, steps=10_000, diminishing="dim", max_source=600, **decoding)
    pinned("paper-dydim", init=base, steps=10_000, diminishing="dydim", max_source=800, **decoding)
    pinned("paper-coverage", init=base, steps=3000, coverage=True)


def test_the_small_presets():
    pinned("tiny")
    pinned("repetition", data="toy:repetition=0.8,min_facts=3,max_facts=4,signal=0.5", steps=400)
    pinned(
        "bertsum-abs", model="bertsum-abs", learning_rate=0.03, max_source=512, max_target=60, warmup=200, clip=0.0,
        encoder_learning_rate=0.01, encoder_warmup=200, beam=5, vocabulary=1000, dropout=0.1, label_smoothing=0.1,
        steps=1500,
    )  # fmt: skip
    assert len(PRESETS) == 9  # and no other
    config = TrainConfig()
    assert (config.f, config.f1, config.f2, config.length_penalty) == ("log", "sqrt", "log", 0)
    changed = TrainConfig(diminishing="dydim", f="sqrt", f1="log", f2="sqrt").mechanism()
    assert changed == Diminishing("dydim", f="sqrt", f1="log", f2="sqrt")


def test_d8_optimizers_of_the_presets():
    """D8: tiny has Adam; the paper's preset See et al.'s Adagrad. BERTSum's Adam has PreSumm's eps."""
    adam = make_optimizer(begin(SMALL, load(DATA)).model, SMALL)
    assert type(adam) is torch.optim.Adam
    assert (adam.defaults["betas"], adam.defaults["eps"], adam.defaults["weight_decay"]) == ((0.9, 0.999), 1e-8, 0)
    assert make_optimizer(begin(BERT, load(DATA)).model, BERT).defaults["eps"] == 1e-9
    config = replace(SMALL, optimizer="adagrad")
    adagrad = make_optimizer(begin(config, load(DATA)).model, config)
    assert type(adagrad) is torch.optim.Adagrad
    assert (adagrad.defaults["eps"], adagrad.defaults["lr_decay"], adagrad.defaults["weight_decay"]) == (1e-10, 0, 0)
    assert all((state["sum"] == 0.1).all() for state in adagrad.state.values()) and adagrad.state


def test_eq7_eq8_d9_two_groups_are_two_optimisers(runs):
    """D9: one Adam with two groups makes the updates of two Adams, each with its own rate."""
    run, twin = load_run(runs["bertsum-abs"]), load_run(runs["bertsum-abs"])
    optimizer = make_optimizer(run.model, BERT)
    assert [(group["factor"], group["warmup"]) for group in optimizer.param_groups] == [(0.02, 4), (0.05, 4)]
    two = [torch.optim.Adam([p for p in part if p.requires_grad], eps=1e-9) for part in twin.model.parts()]
    for group, own, rate in zip(optimizer.param_groups, two, (0.01, 0.1), strict=True):
        group["lr"] = own.param_groups[0]["lr"] = rate
    for _ in range(3):
        for one, other in zip(run.model.parameters(), twin.model.parameters(), strict=True):
            if one.requires_grad:
                one.grad = torch.randn(one.shape)
                other.grad = one.grad.clone()
        for each in (optimizer, *two):
            each.step()
    torch.testing.assert_close(run.model.state_dict(), twin.model.state_dict(), rtol=0, atol=0)
    assert {id(p) for p in run.model.encoder.parameters()} == {id(p) for p in optimizer.param_groups[0]["params"]}


def test_d19_accumulation_is_the_mean_of_the_micro_batches(tmp_path):
    """D19: two micro-batches of 12 documents are one of 24; of tokens it would be the mean of two means."""
    # Adagrad, for Adam does not see a factor common to all gradients.
    config = replace(SMALL, steps=2, clip=0.0, optimizer="adagrad")
    train(replace(config, batch_size=24), tmp_path / "one")
    train(replace(config, batch_size=12, accumulate=2), tmp_path / "two")
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for part in one:
        torch.testing.assert_close(one[part], two[part], atol=2e-3, rtol=1e-2)


@pytest.mark.parametrize("change", [{"diminishing": "dydim"}, {"coverage": True}], ids=str)
def test_the_mechanism_is_switched_on_after_the_base(tmp_path, runs, change):
    """Same weights and words, a fresh optimiser; coverage alone brings a new parameter; training goes on."""
    config = replace(SMALL, init=str(runs["pointer"]), steps=2, **change)
    run = begin(config, load(DATA))
    before, now = weights(runs["pointer"]), run.model.state_dict()
    assert all(torch.equal(now[name], before[name]) for name in before)
    new = {name for name in now if name not in before} - {"encoder.embedding.weight", "decoder.embedding.weight"}
    assert new == ({"decoder.coverage_map.weight"} if "coverage" in change else set())
    assert run.tokenizer.known == load_run(runs["pointer"]).tokenizer.known
    train(config, tmp_path / "run")
    assert load_run(tmp_path / "run").model.decoder.diminishing.kind == config.diminishing
    assert any(not torch.equal(weights(tmp_path / "run")[name], before[name]) for name in before)


def test_bertsum_goes_on_with_all_its_weights(runs):
    run = begin(replace(BERT, init=str(runs["bertsum-abs"]), diminishing="dydim", steps=1), load(DATA))
    torch.testing.assert_close(dict(run.model.state_dict()), weights(runs["bertsum-abs"]), rtol=0, atol=0)
    assert run.model.layers[-1].diminishing.kind == "dydim" and run.model.layers[0].diminishing.kind == "none"
    with pytest.raises(ValueError, match="--max-source is 600: the encoder of .* reads 512 tokens"):
        begin(replace(BERT, init=str(runs["bertsum-abs"]), max_source=600), load(DATA))
    with pytest.raises(ValueError, match="--model: .* has 'bertsum-abs', leave it out"):
        begin(replace(SMALL, init=str(runs["bertsum-abs"])), load(DATA))


def test_eq7_eq8_learning_rates():
    """lr~ min(step^-0.5, step warmup^-1.5) with the paper's values: rising to the warm-up's end, then falling."""
    for step in (1, 500, 10_000, 20_000, 150_000):
        assert learning_rate(step, 2e-3, 20_000) == pytest.approx(2e-3 * min(step**-0.5, step * 20_000**-1.5))
    assert learning_rate(10_000, 0.1, 10_000) == pytest.approx(0.1 / 100)
    assert learning_rate(1, 0.15, 0) == learning_rate(9, 0.15, 0) == 0.15


def test_eq7_eq8_d12_rates_reach_their_groups_and_go_on(runs, tmp_path):
    """The encoder's first, then the others'. D12: a second phase goes on with the step, a third one, too."""
    base = str(runs["bertsum-abs"])  # of 4 updates
    for name, step in (("second", 5), ("third", 6)):
        train(replace(BERT, init=base, diminishing="dim", steps=1, warmup=50), tmp_path / name)
        state = torch.load(tmp_path / name / "checkpoints/00000001/optimizer.bin", weights_only=True)
        expected = [0.02 * step**-0.5, 0.05 * step * 50**-1.5]  # warm-ups of 4 and 50
        assert [group["lr"] for group in state["param_groups"]] == pytest.approx(expected)
        base = str(tmp_path / name)


def test_d25_a_second_phase_begins_with_a_new_optimiser(trained, tmp_path):
    """D25: of Adagrad, too: the accumulator of the base is not gone on with."""
    config = replace(SMALL, optimizer="adagrad", learning_rate=1e-9)
    train(replace(config, init=str(trained(replace(config, steps=4))), steps=1), tmp_path / "run")
    sums = []
    for folder in (trained(replace(config, steps=4)), tmp_path / "run"):
        state = torch.load(next(folder.glob("checkpoints/*")) / "optimizer.bin", weights_only=True)["state"]
        sums.append(sum((each["sum"] - 0.1).sum().item() for each in state.values()))
    assert 0 < sums[1] < 0.5 * sums[0]


def test_d26_the_last_weights_are_taken(trained):
    """D26: not those of the lowest validation loss, nor a mean of several."""
    folder = trained(SMALL)
    last, taken = load_file(folder / "checkpoints/00000004/model.safetensors"), weights(folder)
    assert all(torch.equal(taken[name], last[name]) for name in taken.keys() & last.keys()) and len(taken) > 20


def test_gradients_are_clipped_part_by_part(tmp_path, monkeypatch):
    """Released code: encoder, reducer and decoder each to a norm of 2; 0 = not at all. See et al.: 2."""
    seen, clip = [], training.clip

    def watch(accelerator, parts, largest):
        with torch.no_grad():
            for size, part in zip((100, 1, 10), parts, strict=True):
                for parameter in part:
                    parameter.grad.fill_(size)
        clip(accelerator, parts, largest)
        seen.append([torch.stack([p.grad.norm() for p in part]).norm().item() for part in parts])

    monkeypatch.setattr(training, "clip", watch)
    for largest in (2.0, 0.0):
        train(replace(SMALL, steps=1, clip=largest), tmp_path / str(largest))
    # The embedding is in two parts: of the encoder's gradients it is made smaller again with the decoder's.
    assert seen[0][1:] == pytest.approx([2, 2], rel=1e-3) and seen[0][0] <= 2.001
    assert min(seen[1]) > 3 and TrainConfig(**PRESETS["paper"]).clip == 2


def test_d24_a_pretrained_encoder_from_a_folder(tmp_path):
    """D24: trained to extract or not. Its weights are the start, or its tokenizer alone; the run needs it no more."""
    folder, texts = tmp_path / "bert", [example.source for example in load(DATA)]
    tokenizer = make_tokenizer(texts, 200, 64)
    bert = new_encoder(len(tokenizer), 32, BERT)
    bert.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    fresh = begin(replace(BERT, encoder=str(folder), pretrained=False, layers=3, width=32), load(DATA))
    assert len(fresh.model.encoder.encoder.layer) == 3 and fresh.tokenizer.get_vocab() == tokenizer.get_vocab()
    config = replace(BERT, encoder=str(folder), steps=1, learning_rate=1e-9, encoder_learning_rate=1e-9)
    train(config, tmp_path / "run")
    now = weights(tmp_path / "run")
    for name, tensor in bert.state_dict().items():
        torch.testing.assert_close(now[f"encoder.{name}"][: len(tensor)], tensor, atol=1e-6, rtol=0)
    shutil.rmtree(folder)
    assert load_run(tmp_path / "run").model.encoder.config.max_position_embeddings == 512  # extended
    with pytest.raises(ValueError, match="no/such-bert cannot be loaded .*hf download no/such-bert"):
        begin(replace(BERT, encoder="no/such-bert"), load(DATA))


@pytest.mark.parametrize("kind", ["Electra", "Albert", "Roberta"])
def test_another_encoder_than_a_bert_is_refused_in_one_line(tmp_path, kind):
    import transformers

    sizes = dict(vocab_size=300, hidden_size=16, embedding_size=8, num_attention_heads=2, intermediate_size=16)
    config = getattr(transformers, f"{kind}Config")(num_hidden_layers=1, **sizes)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(tmp_path)
    make_tokenizer(["the storm"], 300, 64).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"kind {kind.lower()}; wanted is a BERT"):
        begin(replace(BERT, encoder=str(tmp_path)), load(DATA))


def test_the_weights_follow_the_seed(trained):
    """Not the order of the data alone."""
    one, other = (weights(trained(replace(SMALL, steps=1, learning_rate=0.0, seed=seed))) for seed in (0, 1))
    assert not torch.equal(one["decoder.query.weight"], other["decoder.query.weight"])


def test_values_that_contradict_are_refused(tmp_path):
    bertsum = {"model": "bertsum-abs"}
    for change, message in (
        ({"vocabulary": 4}, "--vocabulary is 4"),
        ({"coverage": True, "diminishing": "dim"}, "two systems of Table 1: switch one of them on"),
        ({"min_length": 90}, "--max-length is 80; it must be at least --min-length 90"),
        (bertsum | {"max_source": 2}, "BERTSum needs --max-source of at least 3"),
        (bertsum | {"coverage": True}, "--coverage is of the pointer-generator: leave it out"),
        (bertsum | {"heads": 3}, "--width 128 is not a multiple of --heads 3"),
    ):
        with pytest.raises(ValueError, match=message):
            train(replace(TrainConfig(), **change), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_loss_that_is_not_finite_stops_the_training(tmp_path, monkeypatch):
    """The last good checkpoint stays, and says so."""
    monkeypatch.setattr(training, "learning_rate", lambda *arguments: 1e30)
    with pytest.raises(ValueError, match="the loss is (nan|inf) at step .* keeps its last checkpoint"):
        train(replace(SMALL, clip=0.0, save_every=1, steps=20), tmp_path / "run")
    assert load_run(tmp_path / "run").config.steps == 20 and not (tmp_path / "run" / "model.safetensors").exists()


def test_two_processes_train_one_model(tmp_path):
    """As torchrun starts them: both write the run together, each reads its own batches."""
    config = replace(SMALL, steps=2)
    AcceleratorState._reset_state(True)  # of other trainings of this process
    debug_launcher(train, (config, tmp_path / "two"))
    train(config, tmp_path / "one")
    assert len([*tmp_path.glob("two/checkpoints/*/random_states_*")]) == 2
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert any(not torch.equal(tensor, two[name]) for name, tensor in one.items())
