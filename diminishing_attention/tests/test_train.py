"""Training: what is learned, the two phases, the schedules, resuming, run folders, and what bad input gets."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("shared")

from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from shared.data import load, write_jsonl

from .. import train as training
from ..text import PAD, UNK
from ..train import (
    BERTSUM,
    PRESETS,
    Batches,
    TrainConfig,
    learning_rates,
    load_run,
    load_task,
    main,
    make_optimizer,
    make_wordpieces,
    parse,
    read_config,
    start,
    train,
)

DATA = "toy:count=24,seed=5"
SMALL = TrainConfig(
    data=DATA, vocabulary=120, embedding=8, hidden=8, batch_size=8, steps=6, save_every=2, max_target=30, max_source=60,
)  # fmt: skip
BERT = replace(
    SMALL, model="bertsum-abs", width=16, layers=1, heads=2, feed_forward=16, decoder_layers=2, dropout=0.1,
    vocabulary=200, positions=64, learning_rate=0.05, warmup=4, encoder_learning_rate=0.02, encoder_warmup=4, clip=0.0,
)  # fmt: skip
EXT = replace(BERT, model="bertsum-ext", decoder_layers=1, learning_rate=0.01, encoder_learning_rate=0.01)
CONFIGS = {"pointer": SMALL, "bertsum-abs": BERT, "bertsum-ext": EXT}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A finished run of each model."""
    folders = {name: tmp_path_factory.mktemp("runs") / name for name in CONFIGS}
    for name, config in CONFIGS.items():
        train(config, folders[name])
    return folders


def log(run_dir: Path) -> list[dict]:
    return [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]


def weights(run_dir: Path) -> dict:
    return load_file(run_dir / "model.safetensors")


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# Schedules, optimisers and batches


def test_eq7_eq8_learning_rates():
    """lr~ min(step^-0.5, step warmup^-1.5) with the paper's values: rising to the warm-up's end, then falling."""
    config = TrainConfig(**PRESETS["bertsum-abs"]["paper"], model="bertsum-abs")
    for step in (1, 500, 10_000, 20_000, 150_000):
        encoder, decoder = learning_rates(step - 1, config)
        assert encoder == pytest.approx(2e-3 * min(step**-0.5, step * 20_000**-1.5))
        assert decoder == pytest.approx(0.1 * min(step**-0.5, step * 10_000**-1.5))
    assert learning_rates(9_999, config)[1] == pytest.approx(0.1 / 100)
    constant = TrainConfig(learning_rate=0.15)
    assert learning_rates(0, constant)[1] == learning_rates(9, constant)[1] == 0.15


def test_eq7_eq8_d9_two_groups_are_two_optimisers(runs):
    """D9: one Adam with two groups makes the updates of two Adams, each with its own rate."""
    run = load_run(runs["bertsum-abs"])
    twin = load_run(runs["bertsum-abs"])
    optimizer = make_optimizer(run)
    parts = [[p for p in group["params"] if p.requires_grad] for group in twin.groups()]
    two = [torch.optim.Adam(part) for part in parts]
    generator = torch.Generator().manual_seed(0)
    for step in range(3):
        rates = (0.01 / (1 + step), 0.1 / (1 + step))
        for group, own in zip(optimizer.param_groups, two, strict=True):
            group["lr"] = own.param_groups[0]["lr"] = rates[group["part"]]
        for one, other in zip(run.module.parameters(), twin.module.parameters(), strict=True):
            if one.requires_grad:
                one.grad = torch.randn(one.shape, generator=generator)
                other.grad = one.grad.clone()
        optimizer.step()
        for own in two:
            own.step()
    assert same(run.module.state_dict(), twin.module.state_dict())
    encoder = {id(parameter) for parameter in run.module.encoder.parameters()}
    assert encoder == {id(p) for p in optimizer.param_groups[0]["params"]}
    assert len(encoder) + len(optimizer.param_groups[1]["params"]) == len(list(run.module.parameters()))


def test_eq7_eq8_rates_reach_their_groups(runs):
    """The last update's rates stand in the checkpoint: the encoder's first, then the others'."""
    state = torch.load(runs["bertsum-abs"] / "checkpoint.pt", weights_only=True)
    found = [group["lr"] for group in state["optimizer"]["param_groups"]]
    assert found == list(learning_rates(BERT.steps - 1, BERT)) and found[0] != found[1]


def test_d8_optimizers_of_the_presets():
    """D8: tiny has Adam; the paper's preset See et al.'s Adagrad, 0.15 and initial accumulator 0.1."""
    assert TrainConfig().optimizer == "adam"
    paper = TrainConfig(**PRESETS["pointer"]["paper"])
    assert (paper.optimizer, paper.learning_rate, paper.accumulator, paper.clip) == ("adagrad", 0.15, 0.1, 2.0)
    run, _ = start(replace(SMALL, optimizer="adagrad"), load(DATA))
    optimizer = make_optimizer(run)
    assert type(optimizer) is torch.optim.Adagrad
    assert all((state["sum"] == 0.1).all() for state in optimizer.state.values()) and optimizer.state


def test_batches_hold_every_item_once_an_epoch_and_are_of_like_length(runs):
    items = load_run(runs["pointer"]).prepare(load("toy:count=41,seed=1"))
    batches = Batches(items, 8, seed=0)
    for epoch in (0, 1):
        found = [batches[6 * epoch + number] for number in range(6)]
        assert sorted(id(item) for batch in found for item in batch) == sorted(map(id, items))
    other = Batches(items, 8, seed=0)
    assert other[7] == batches[7] and other[7] != other[1] and Batches(items, 8, seed=1)[7] != other[7]


# What is learned


@pytest.mark.parametrize("name", CONFIGS)
def test_training_lowers_the_loss(tmp_path, name):
    train(replace(CONFIGS[name], steps=40, save_every=20, dropout=0.0), tmp_path / "run")
    first, *rows = log(tmp_path / "run")
    assert first == {"examples": 24, "validation_examples": 24, "sources_cut": 24}
    assert rows[-1]["validation_loss"] < rows[0]["validation_loss"]


@pytest.mark.parametrize("name", CONFIGS)
def test_validation_loss_is_the_mean_over_all_it_counts(runs, name):
    """Of documents (pointer), target tokens or sentences: the same one by one."""
    run = load_run(runs[name])
    items = run.prepare(load_task(run.config, "validation"))
    with torch.no_grad():
        pairs = [run.loss(run.module, [item], torch.device("cpu")) for item in items]
    expected = sum(loss.item() for loss, _ in pairs) / sum(count for _, count in pairs)
    assert log(runs[name])[-1]["validation_loss"] == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("name", ["pointer", "bertsum-abs"])
def test_accumulation_is_a_larger_batch(tmp_path, name):
    """Two micro-batches of 12 are one of 24: the mean is over the update, not over micro-batches."""
    # Adagrad, for Adam does not see a factor common to all gradients.
    config = replace(CONFIGS[name], dropout=0.0, steps=2, clip=0.0, optimizer="adagrad")
    train(replace(config, batch_size=24), tmp_path / "one")
    train(replace(config, batch_size=12, accumulate=2), tmp_path / "two")
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    for part in one:
        if "key.bias" not in part and "pooler" not in part:  # zero gradient (softmax): Adam scales rounding
            torch.testing.assert_close(one[part], two[part], atol=2e-3, rtol=1e-2)


def test_each_part_is_clipped_by_itself(tmp_path, monkeypatch):
    """Encoder, reducer and decoder have a gradient of norm `clip` each, where they were larger (released code)."""
    norms = {}
    plain = training.Training.clip

    def clip(self):
        plain(self)
        for name, part in self.module.named_children():
            grads = {id(p): p.grad for p in part.parameters() if p.grad is not None}
            norms[name] = sum(float(grad.square().sum()) for grad in grads.values()) ** 0.5

    monkeypatch.setattr(training.Training, "clip", clip)
    train(replace(SMALL, clip=1e-3, steps=1), tmp_path / "run")
    assert norms["decoder"] == pytest.approx(1e-3, rel=1e-3) and norms["encoder"] <= 1.001e-3
    assert set(norms) == {"encoder", "reduce", "decoder"}


# Two phases


@pytest.mark.parametrize(
    "change", [{"diminishing": "dim"}, {"diminishing": "dydim"}, {"coverage": True}, {}], ids=lambda c: str(c)
)
def test_the_mechanism_is_switched_on_after_the_base(tmp_path, runs, change):
    """Same weights and words, a fresh optimiser; coverage alone brings a new parameter; training goes on."""
    config = replace(SMALL, init=str(runs["pointer"]), embedding=99, hidden=99, steps=2, **change)
    run, base = start(config, load(DATA))
    before, now = weights(runs["pointer"]), run.module.state_dict()
    assert all(torch.equal(now[name], before[name]) for name in before)
    assert {name for name in now if name not in before} == (
        {"decoder.coverage.weight"} if "coverage" in change else set()
    )
    assert (run.config.embedding, run.config.hidden, run.config.diminishing) == (8, 8, config.diminishing)
    assert run.vocabulary.known == load_run(runs["pointer"]).vocabulary.known
    assert base["train"] == read_config(runs["pointer"])["train"] and base["base"] is None
    train(config, tmp_path / "run")
    assert read_config(tmp_path / "run")["base"] == base
    finished = load_run(tmp_path / "run")
    assert finished.module.decoder.diminishing.kind == config.diminishing
    assert any(not torch.equal(weights(tmp_path / "run")[name], before[name]) for name in before)


def test_the_mechanism_changes_what_the_same_weights_do(runs):
    """The loss of the base's weights under each mechanism: all different, so that none is left out."""
    losses = []
    for change in ({}, {"diminishing": "dim"}, {"diminishing": "dydim"}, {"diminishing": "dim", "renormalise": True}):
        run, _ = start(replace(SMALL, init=str(runs["pointer"]), **change), load(DATA))
        items = run.prepare(load(DATA, "validation"))
        losses.append(run.loss(run.module.eval(), items, torch.device("cpu"))[0].item())
    assert len({round(loss, 4) for loss in losses}) == 4


def test_bertsum_is_trained_in_two_stages(runs, tmp_path):
    """bertsum-abs takes the encoder of bertsum-ext, and goes on from a bertsum-abs with all weights."""
    run, _ = start(replace(BERT, init=str(runs["bertsum-ext"]), width=99, heads=4), load(DATA))
    extractive, now = weights(runs["bertsum-ext"]), run.module.state_dict()
    taken = [name for name in extractive if name.startswith("encoder.")]
    assert taken and all(torch.equal(extractive[name], now[name]) for name in taken)
    assert torch.equal(now["embedding.weight"], now["encoder.embeddings.word_embeddings.weight"])
    assert (run.config.width, run.config.heads) == (16, 4)  # the encoder's size is kept, the decoder is new
    config = replace(BERT, init=str(runs["bertsum-abs"]), diminishing="dydim", steps=1)
    run, _ = start(config, load(DATA))
    assert same(run.module.state_dict(), weights(runs["bertsum-abs"]))
    assert run.module.layers[-1].diminishing.kind == "dydim" and run.module.layers[0].diminishing.kind == "none"
    train(config, tmp_path / "run")
    assert load_run(tmp_path / "run").config.diminishing == "dydim"


def test_d12_the_second_phase_starts_the_schedule_anew(runs, tmp_path):
    """D12: the first rate logged is that of a first step, not of one after the base's."""
    config = replace(BERT, init=str(runs["bertsum-abs"]), diminishing="dim", steps=1, warmup=50)
    train(config, tmp_path / "run")
    assert log(tmp_path / "run")[1]["lr"] == learning_rates(0, config)[1] == pytest.approx(0.05 * 50**-1.5)


def test_a_pretrained_encoder_from_a_folder(tmp_path):
    """Its weights are the start; the run folder needs the encoder's folder no more."""
    folder = tmp_path / "bert"
    tokenizer = make_wordpieces([example.source for example in load(DATA)], 200, 64)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    torch.manual_seed(7)
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = replace(BERT, encoder=str(folder), steps=1, learning_rate=1e-9, encoder_learning_rate=1e-9)
    train(config, tmp_path / "run")
    now, before = weights(tmp_path / "run"), load_file(folder / "model.safetensors")
    assert all(torch.allclose(now[f"encoder.{name}"][: len(before[name])], before[name], atol=1e-6) for name in before)
    assert len(now["encoder.embeddings.position_embeddings.weight"]) == 64  # extended
    for file in folder.iterdir():
        file.unlink()
    assert load_run(tmp_path / "run").module.encoder.config.max_position_embeddings == 64


# Data


def test_wordpieces_are_the_most_frequent_words_and_all_letters():
    texts = ["The storm hit .", "the storm", "a hit"]
    tokenizer = make_wordpieces(
        texts, 8 + 2 * 10 + 2, 64
    )  # 8 special tokens; ". a e h i m o r s t" with and without ##
    words = {word for word in tokenizer.get_vocab() if len(word.strip("#")) > 1 and word[0] != "["}
    assert words == {"hit", "storm"}  # of three words with two occurrences the first two of the alphabet
    assert tokenizer.tokenize("storms zoo") == ["storm", "##s", "[UNK]"]
    assert make_wordpieces(texts, 30, 64).get_vocab() == tokenizer.get_vocab()


def test_titles_of_json_lines(tmp_path):
    rows = [
        {"paper_id": "a", "source": ["We test .", "It works ."], "target": ["A test ."], "title": "On Testing"},
        {"paper_id": "b", "source": ["We do not ."], "target": ["No test ."], "title": "Untested"},
    ]
    write_jsonl(tmp_path / "train.jsonl", rows)
    examples = load_task(replace(SMALL, data=str(tmp_path), task="title"), "train")
    assert [example.references for example in examples] == [[["On Testing"]], [["Untested"]]]
    assert examples[0].document == ["We test .", "It works ."] and examples[0].target == "On Testing"
    assert load_task(replace(SMALL, data=str(tmp_path)), "train")[0].target == "A test ."
    write_jsonl(tmp_path / "train.jsonl", [rows[0], {name: rows[1][name] for name in ("paper_id", "source", "target")}])
    with pytest.raises(ValueError, match="'b' has no field 'title' beside its id: use --task summary"):
        load_task(replace(SMALL, data=str(tmp_path), task="title"), "train")
    with pytest.raises(SystemExit, match="error: toy.*: .*has no field 'title'"):
        main(["--out", str(tmp_path / "run"), "--data", DATA, "--task", "title"])


def test_titles_of_aclsum():
    """The abstract alone is the document."""
    aclsum = pytest.importorskip("aclsum")
    paper = aclsum.ACLSum("val")[0]
    example = load_task(replace(SMALL, data="aclsum", task="title"), "validation", 1)[0]
    assert example.target == paper.title
    assert [s.split() for s in example.document] == [s.split() for s in paper.sentences["abstract"]]


def test_decoding_never_writes_what_is_unknown(runs):
    assert load_run(runs["pointer"]).never == (PAD, UNK)
    run = load_run(runs["bertsum-abs"])
    assert run.never == (run.tokenizer.pad_token_id, run.tokenizer.unk_token_id)


# Resuming


class Killed(BaseException):
    pass


@pytest.mark.parametrize("name", ["pointer", "bertsum-abs"])
@pytest.mark.parametrize(
    "moment", ["before the first step", "in a step", "while a checkpoint is written", "after a checkpoint"]
)
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, monkeypatch, runs, name, moment):
    """Kill and --resume gives bitwise the weights of a run that was never killed: dropout, Adam, data order."""

    def kill(*_, **__):
        raise Killed

    calls = iter(range(100))
    if moment in ("before the first step", "in a step"):
        schedule, fatal = training.learning_rates, 4 if moment == "in a step" else 0
        monkeypatch.setattr(training, "learning_rates", lambda *a: kill() if next(calls) == fatal else schedule(*a))
    elif moment == "while a checkpoint is written":
        save = torch.save
        monkeypatch.setattr(torch, "save", lambda *a: kill() if next(calls) == 1 else save(*a))
    else:
        save = training.Training.save
        monkeypatch.setattr(training.Training, "save", lambda *a: kill() if (save(*a), next(calls))[1] == 1 else None)
    with pytest.raises(Killed):
        train(CONFIGS[name], tmp_path / "killed")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="does not exist.*--resume"):
        load_run(tmp_path / "killed")
    train(CONFIGS[name], tmp_path / "killed", resume=True)
    assert same(weights(runs[name]), weights(tmp_path / "killed"))
    assert log(runs[name]) == log(tmp_path / "killed")


def test_a_second_phase_killed_before_its_first_checkpoint_starts_again(tmp_path, monkeypatch, runs):
    config = replace(SMALL, init=str(runs["pointer"]), diminishing="dim", steps=2)
    train(config, tmp_path / "whole")
    monkeypatch.setattr(training.Training, "update", lambda *a: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        train(config, tmp_path / "run")
    monkeypatch.undo()
    train(parse(["--out", str(tmp_path / "run"), "--resume"])[0], tmp_path / "run", resume=True)
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    assert not same(weights(tmp_path / "run"), weights(runs["pointer"]))


def test_another_seed_is_another_run(tmp_path, runs):
    train(replace(SMALL, seed=1), tmp_path / "other")
    assert not same(weights(runs["pointer"]), weights(tmp_path / "other"))


# Bad input


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no-such-flag", "1"], "unrecognized arguments"),
        (["--max-sour", "1"], "unrecognized arguments"),  # no abbreviations: a typo must not pick another field
        (["--steps", "many"], "'many' is not int"),
        (["--coverage", "maybe"], "'maybe' is not true or false"),
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
        ({"model": "bart"}, "model is 'bart'; use one of pointer, bertsum-ext, bertsum-abs"),
        ({"task": "headline"}, "task is 'headline'; use one of summary, title"),
        ({"diminishing": "dyn"}, "diminishing is 'dyn'; use one of none, dim, dydim"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; use one of adam, adagrad"),
        ({"f": "cube"}, "f is 'cube'; use one of log, sqrt, power"),
        ({"exponent": 1.5}, "exponent is 1.5; a power is concave and increasing between 0 and 1"),
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"examples": -1}, "examples is -1; it must be at least 0"),
        ({"length_penalty": 1.5}, "length_penalty is 1.5 and average is true: add --average false"),
        ({"coverage": True, "diminishing": "dim"}, "two systems of Table 1: switch one of them on"),
        ({"min_length": 90}, "max_length is 80; it must be at least min_length = 90"),
        ({"model": "bertsum-ext", "max_source": 2}, "BERTSum needs max_source of at least 3"),
        ({"coverage": True, "model": "bertsum-abs"}, "coverage is of the pointer-generator: leave --coverage out"),
        ({"model": "bertsum-ext", "diminishing": "dim"}, "bertsum-ext has no decoder whose attention could diminish"),
        ({"model": "bertsum-abs", "max_source": 600}, "max_source is 600, positions 512: raise --positions"),
    ],
)
def test_values_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**change)


def test_presets_hold_the_papers_values():
    """Section 4.2, Section 2.3, and the code that Section 4.2 names."""
    pointer = {name: TrainConfig(**values) for name, values in PRESETS["pointer"].items()}
    paper = pointer["paper"]
    assert (paper.hidden, paper.embedding, paper.vocabulary, paper.batch_size) == (256, 128, 50_000, 8)
    assert (paper.max_source, paper.max_target, paper.steps) == (400, 100, 230_000)
    assert (paper.beam, paper.average, paper.min_length, paper.max_length) == (4, True, 35, 100)
    for name, length in (("paper-dim", 600), ("paper-dydim", 800)):
        config = pointer[name]
        assert (config.max_source, config.diminishing) == (length, name.removeprefix("paper-"))
        assert (config.beam, config.length_penalty, config.trigram_blocking, config.average) == (6, 1.5, True, False)
        assert config.steps == 10_000 and not config.coverage
    assert pointer["paper-coverage"].coverage and pointer["paper-coverage"].max_source == 400
    abstractive = {n: TrainConfig(**v, model="bertsum-abs") for n, v in PRESETS["bertsum-abs"].items()}
    bert = abstractive["paper"]
    assert (bert.decoder_layers, bert.heads, bert.feed_forward, bert.dropout) == (6, 8, 2048, 0.2)
    assert (bert.beam, bert.min_length, bert.max_length, bert.trigram_blocking) == (5, 50, 200, True)
    transformer = abstractive["paper-transformer"]
    assert (transformer.encoder, transformer.layers, transformer.width, transformer.vocabulary) == ("", 6, 768, 30_522)
    assert TrainConfig(**BERTSUM, model="bertsum-ext").model == "bertsum-ext"
    with pytest.raises(ValueError, match="bertsum-ext has no preset 'paper-dim'; it has tiny, paper"):
        parse(["--out", "nowhere", "--model", "bertsum-ext", "--preset", "paper-dim"])
    with pytest.raises(ValueError, match="model is 'bart'; use one of"):
        parse(["--out", "nowhere", "--model", "bart"])


def test_encoders_out_of_reach_are_named_with_the_remedy(tmp_path):
    with pytest.raises(
        SystemExit, match="error: cannot load 'no/such-bert'.*HF_HUB_OFFLINE=0 hf download no/such-bert"
    ):
        main(["--out", str(tmp_path / "run"), "--model", "bertsum-abs", "--encoder", "no/such-bert", "--data", DATA])
    assert not (tmp_path / "run").exists()


def test_a_run_that_another_model_cannot_go_on_from(runs):
    for config, name in ((SMALL, "bertsum-abs"), (EXT, "bertsum-abs"), (BERT, "pointer")):
        with pytest.raises(ValueError, match=f"holds a {name}; a {config.model} cannot go on from it"):
            start(replace(config, init=str(runs[name])), load(DATA))


def test_a_run_folder_in_use_is_not_overwritten(runs):
    before = (runs["pointer"] / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="already holds a run: add --resume"):
        train(SMALL, runs["pointer"])
    with pytest.raises(ValueError, match="leave out steps"):
        parse(["--out", str(runs["pointer"]), "--resume", "--steps", "99"])
    assert parse(["--out", str(runs["pointer"]), "--resume", "--steps", "6"])[0] == SMALL
    assert (runs["pointer"] / "model.safetensors").read_bytes() == before


def test_bad_run_folders_are_named(tmp_path, runs):
    with pytest.raises(ValueError, match="not a run folder of diminishing_attention.train"):
        load_run(tmp_path / "nothing")
    config = json.loads((runs["pointer"] / "config.json").read_text())
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    for content, message in (
        (json.dumps(config | {"package": "l0drop"}), "belongs to the package 'l0drop'"),
        (json.dumps(config)[:40], "config.json is cut off"),
        (json.dumps(config | {"train": {"colour": 1}}), "unknown field colour"),
        (json.dumps(config), "model.safetensors does not exist: the run is not finished"),
    ):
        (run_dir / "config.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            load_run(run_dir)
    (run_dir / "tokenizer.json").write_bytes((runs["pointer"] / "tokenizer.json").read_bytes())
    (run_dir / "model.safetensors").write_bytes((runs["pointer"] / "model.safetensors").read_bytes()[:50])
    with pytest.raises(ValueError, match="model.safetensors is cut off"):
        load_run(run_dir)


def test_bad_data_is_named_and_leaves_no_run(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.jsonl").write_text('{"source": "a b", "target": "c"}\n{"source": "a b"}\n')
    with pytest.raises(SystemExit, match=r"error: .*train\.jsonl.*2.*target"):
        main(["--out", str(tmp_path / "run"), "--data", str(data)])
    assert not (tmp_path / "run").exists()
