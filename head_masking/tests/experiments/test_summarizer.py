"""Training a summariser: what is learned, that it goes on, that it loads as any BART."""

import re
from dataclasses import replace

import pytest
import torch

pytest.importorskip("shared")

import transformers
from accelerate.state import AcceleratorState

from shared.data import Example, load
from shared.run import check, read_config

from ... import predict
from ...config import learning_rate
from ...experiments import summarizer
from ...experiments.summarizer import PRESETS, SummarizerConfig, encode, main, train
from ...loading import load_model
from ...text import encode_documents, pad, train_tokenizer
from ..conftest import equal, killed_at, log, weights
from .conftest import DATA, flags


def test_a_run_is_a_folder_of_transformers(base):
    """model/ has the settings of generation; a run and that folder are the same model."""
    run = load_model(base)
    for other in (
        transformers.AutoModelForSeq2SeqLM.from_pretrained(base / "model"),
        load_model(base / "model").model,
    ):
        assert equal(run.model.state_dict(), other.state_dict())
        assert (other.generation_config.num_beams, other.generation_config.max_length) == (5, 12)
    assert len(run.tokenizer) == run.model.config.vocab_size
    assert run[2:] == (1024, 12, DATA, 0)  # max_source, max_target, data, seed


def test_a_training_says_what_it_learned_and_its_hint_works(tmp_path, capsys):
    """The loss is the mean cross-entropy of the summaries' tokens, read as `predict` reads them.

    Then it is that of each summary beside the document that follows.
    """
    main(flags(tmp_path / "run", "--max-source", 40))
    said = capsys.readouterr().out
    assert "summaries are cut to --max-target 12" in said
    run, examples = load_model(tmp_path / "run"), load(DATA, "validation")

    def mean_loss(documents) -> float:
        losses = []
        for example, other in zip(examples, documents, strict=True):
            [source] = encode_documents(run.tokenizer, [other.source], 40)
            [target] = encode_documents(run.tokenizer, [example.target], 12)
            ids, labels = torch.tensor([source.ids]), torch.tensor([target.ids])
            losses.append(run.model(input_ids=ids, labels=labels).loss.item())  # of 12 tokens each
        return sum(losses) / len(losses)

    found = re.search(r"validation loss (\S+), with the documents exchanged (\S+)", said).groups()
    wanted = [mean_loss(examples), mean_loss(examples[1:] + examples[:1])]
    assert list(map(float, found)) == pytest.approx(wanted, abs=1e-3)
    [hint] = re.findall(r"python -m \S+\.predict (.+)", said)
    predict.main([*hint.split(), "--limit", "1"])
    assert len(capsys.readouterr().out.splitlines()) > 3


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    """A run that nothing has stopped."""
    config = replace(read_config(base, SummarizerConfig), accumulate=2, max_source=40)
    out = tmp_path_factory.mktemp("whole") / "run"
    train(config, out)
    return out


@pytest.mark.parametrize("patience", [0, 2])
def test_a_training_killed_by_signal_9_resumes_to_the_same_bits(whole, tmp_path, patience):
    """With patience it keeps the best; a finished run is left as it is."""
    config, killed = read_config(whole, SummarizerConfig), tmp_path / "killed"
    if patience:
        config = replace(config, patience=patience, learning_rate=0.3, steps=8)
        whole = tmp_path / "whole"
        train(config, whole)
        losses = [row["validation_loss"] for row in log(whole)]
        assert losses.index(min(losses)) < len(losses) - 1  # the best is not the last
    killed_at(3, summarizer, config, killed)
    assert not (killed / "model").exists()
    for _ in range(2):
        train(config, killed, resume=True)
        assert equal(weights(whole), weights(killed)) and log(whole) == log(killed)


def test_the_best_weights_stay_with_patience(whole, tmp_path, monkeypatch):
    """They are those of the validation with the lowest loss."""
    losses = iter([3.0, 1.0, 2.0, 1.5, 9.0])
    monkeypatch.setattr(summarizer, "validate", lambda *_: next(losses))
    config = replace(read_config(whole, SummarizerConfig), steps=20)
    train(replace(config, patience=2), tmp_path / "run")
    monkeypatch.undo()
    train(replace(config, steps=4), tmp_path / "best")
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "best"))
    assert [row["step"] for row in log(tmp_path / "run")] == [2, 4, 6, 8]


def test_variables_of_the_shell_change_nothing(whole, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    AcceleratorState._reset_state(True)
    train(read_config(whole, SummarizerConfig), tmp_path / "run")
    assert equal(weights(whole), weights(tmp_path / "run"))


def test_a_text_of_exactly_the_limit_is_not_cut(capsys):
    """Two words and the two ends are four tokens."""
    tokenizer = train_tokenizer(["storm hit town"] * 9, 300)
    config = SummarizerConfig(max_source=4, max_target=4)
    examples = [Example("1", ["storm hit"], ["hit storm"], [["hit storm"]])]
    examples.append(Example("2", ["storm hit town"], ["hit"], [["hit"]]))
    pairs = encode(examples, tokenizer, config)
    assert [len(pair.source) for pair in pairs] == [4, 4]
    assert [pair.source_was_cut for pair in pairs] == [False, True]
    assert [pair.target_was_cut for pair in pairs] == [False, False]
    summarizer.say_what_is_cut(pairs, config)
    assert capsys.readouterr().out == "1 of 2 documents are cut to --max-source 4\n"


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_update_is_adam_on_the_mean_loss_of_its_micro_batches(base, tmp_path, accumulate):
    """By hand, without dropout, from a BART that is there: warm-up, clipping, label smoothing."""
    config = replace(
        SummarizerConfig(data=DATA, model=str(base / "model"), max_source=40, max_target=12),
        steps=1, batch_size=8, accumulate=accumulate, warmup=2, learning_rate=0.02, clip=0.5,
        weight_decay=0.1, label_smoothing=0.2,
    )  # fmt: skip
    model = tmp_path / "bart"
    run = load_model(base)
    run.model.config.update({"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0})
    run.model.save_pretrained(model)
    run.tokenizer.save_pretrained(model)
    train(replace(config, model=str(model)), tmp_path / "run")

    bart = transformers.AutoModelForSeq2SeqLM.from_pretrained(model).train()
    rate = learning_rate(0, config)
    assert rate == 0.01
    optimizer = torch.optim.AdamW(
        bart.parameters(), lr=rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1
    )
    pairs = encode(load(DATA), run.tokenizer, config)
    lengths = [(len(pair.source), len(pair.target)) for pair in pairs]
    for indices in summarizer.Batches(lengths, 0, size=8).epoch(0)[:accumulate]:
        batch = [pairs[index] for index in indices]
        source = pad([pair.source for pair in batch], 1).long()
        keep = pad([[1] * len(pair.source) for pair in batch], 0)
        target = pad([pair.target for pair in batch], 1).long()
        inputs = torch.cat([torch.full((len(batch), 1), 2), target[:, :-1]], 1)
        log_p = bart(source, attention_mask=keep, decoder_input_ids=inputs).logits.log_softmax(-1)
        right = log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        loss = -(0.8 * right + 0.2 * log_p.mean(-1))[target != 1].mean()
        (loss / accumulate).backward()
    assert torch.nn.utils.clip_grad_norm_(bart.parameters(), 0.5) > 0.5
    optimizer.step()
    trained = load_model(tmp_path / "run").model.state_dict()
    for name, value in bart.state_dict().items():
        # its gradient is zero but for rounding, which Adam scales up
        if not name.endswith("k_proj.bias"):
            torch.testing.assert_close(trained[name], value, rtol=1e-3, atol=1e-4)


def test_a_training_goes_on_from_a_bart(base, tmp_path):
    """With a rate of (nearly) nothing its weights stay; its tokenizer is taken, too."""
    more = ["--model", base / "model", "--learning-rate", 1e-12, "--steps", 1, "--max-source", 40]
    main(flags(tmp_path / "run", *more))
    pairs = zip(weights(base).values(), weights(tmp_path / "run").values(), strict=True)
    assert all(torch.allclose(one, other, atol=1e-9) for one, other in pairs)
    one, other = (load_model(folder).tokenizer for folder in (base, tmp_path / "run"))
    assert one.get_vocab() == other.get_vocab()


def test_presets_hold_the_papers_values():
    """Every value of every preset, with its source."""
    bart = dict(
        data="cnn_dailymail",
        save_every=0,
        patience=2,  # Appendix A: 2 epochs without improvement
        # Appendix A: fairseq's instructions for BART
        schedule="polynomial",
        warmup=500,
        weight_decay=0.01,
        clip=0.1,
        mixed_precision="fp16",
        model="facebook/bart-large",
        max_source=1024,
        max_target=1024,
        label_smoothing=0.1,
        learning_rate=3e-5,
        steps=20_000,
        batch_size=2,
        accumulate=32,
    )
    assert PRESETS == {
        "tiny": {},
        "finetune": dict(
            steps=600, batch_size=8, learning_rate=5e-5, warmup=60, save_every=100, patience=3
        ),
        "paper": bart,
        "paper-nyt": bart | {"data": "nyt", "steps": 30_000},
        "paper-xsum": bart | {"data": "xsum", "steps": 15_000, "batch_size": 4, "accumulate": 16},
    }
    for preset in PRESETS.values():
        check(SummarizerConfig(**preset))


CHANGED = dict(
    data="toy:count=24,seed=6",
    examples=8,
    max_source=20,
    max_target=9,
    steps=3,
    batch_size=4,
    accumulate=2,
    learning_rate=0.1,
    schedule="constant",
    warmup=3,
    weight_decay=0.5,
    clip=0.01,
    mixed_precision="bf16",
    seed=1,
    vocabulary=300,
    width=8,
    feed_forward=8,
    dropout=0.5,
    label_smoothing=0.3,
)


def test_each_flag_changes_two_updates(base, tmp_path, monkeypatch):
    """But those that say when to save and end, and `model`, which has a test above."""
    fields = SummarizerConfig.__dataclass_fields__.keys()
    assert fields == CHANGED.keys() | {"model", "save_every", "patience", "log_with"}
    config = read_config(base, SummarizerConfig)
    config = replace(config, max_source=40, steps=2, save_every=9, warmup=1)
    monkeypatch.setattr(summarizer, "save_checkpoint", lambda *_: None)

    def trained(name: str, **change) -> dict:
        AcceleratorState._reset_state(True)
        train(replace(config, **change), tmp_path / name)
        return weights(tmp_path / name)

    plain = trained("plain")
    assert equal(trained("again"), plain)
    for name, value in CHANGED.items():
        assert not equal(plain, trained(name, **{name: value})), name
    AcceleratorState._reset_state(True)
