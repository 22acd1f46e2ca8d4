"""Training a summariser: what is learned, what defines a run, and that it loads as any BART."""

import re
from dataclasses import replace

import pytest
import torch

pytest.importorskip("shared")

from transformers import AutoModelForSeq2SeqLM

from shared.data import load
from shared.run import check, exchanged, read_config

from ... import predict
from ...config import TrainConfig
from ...experiments import summarizer
from ...experiments.summarizer import PRESETS, SummarizerConfig, begin, load_run, main, objective, validate
from ...loading import load_model
from ...text import encode_documents
from ..conftest import equal, log, weights
from ..test_commands import Killed, kill_at
from .conftest import DATA, flags


def test_the_loss_is_the_mean_cross_entropy_of_the_summary(base):
    """Validation loss of the log = transformers' own loss over the real tokens of all summaries."""
    run, total, tokens = load_run(base), 0.0, 0
    for example in load(DATA, "validation"):
        source, target = (
            torch.tensor([encode_documents(run.tokenizer, [text], longest)[0].ids])
            for text, longest in ((example.source, 1024), (example.target, 12))
        )
        total += run.model(input_ids=source, labels=target).loss.item() * target.size(1)
        tokens += target.size(1)
    one_by_one = run._replace(config=replace(run.config, batch_size=1))  # tokens count, not batches
    items = run.encode(load(DATA, "validation"))
    assert validate(one_by_one, items)["validation_loss"] == pytest.approx(total / tokens, abs=2e-4)
    losses = [row["validation_loss"] for row in log(base)[1:]]
    assert losses[-1] == pytest.approx(total / tokens, abs=2e-4) and losses[-1] < losses[0]


def test_a_run_is_a_folder_of_transformers(base):
    """model/ has the settings of generation; a run and that folder are the same model."""
    run = load_model(base)
    for other in (AutoModelForSeq2SeqLM.from_pretrained(base / "model"), load_model(base / "model").model):
        assert equal(run.model.state_dict(), other.state_dict())
        assert (other.generation_config.num_beams, other.generation_config.max_length) == (5, 12)
    assert not run.model.training and len(run.tokenizer) == run.model.config.vocab_size
    assert run[2:] == (1024, 12, DATA, 0)  # max_source, max_target, data, seed


def test_a_run_goes_on_from_a_bart_or_another_run(base, tmp_path):
    """--model and --init: weights and tokenizer; with a rate of (nearly) nothing they stay what they were."""
    for name, start in (("model", ["--model", base / "model"]), ("init", ["--init", base])):
        main(flags(tmp_path / name, *start, "--learning-rate", 1e-12, "--steps", 1, "--max-source", 40))
        pairs = zip(weights(base).values(), weights(tmp_path / name).values(), strict=True)
        assert all(torch.allclose(one, other, atol=1e-9) for one, other in pairs)
    config = read_config(base, SummarizerConfig)
    assert begin(replace(config, init=str(base), max_source=20), []).config.max_source == 20
    for change in ({"width": 32}, {"model": "facebook/bart-large"}):
        with pytest.raises(ValueError, match=f"--{next(iter(change))}: .*leave it out"):
            begin(replace(config, init=str(base), **change), [])
    with pytest.raises(ValueError, match="reads 1024 tokens: lower --max-source or --max-target"):
        begin(replace(config, init=str(base), max_source=1025), [])
    with pytest.raises(ValueError, match="reads 1024 tokens, not 2000"):
        begin(SummarizerConfig(model=str(base / "model"), max_source=2000), [])


def test_a_killed_training_resumes_to_the_same_bits_and_bytes(base, tmp_path, monkeypatch):
    given = ("--accumulate", 2, "--patience", 2, "--max-source", 40)
    main(flags(tmp_path / "whole", *given))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(3, patch, summarizer)
        main(flags(tmp_path / "killed", *given))
    main(flags(tmp_path / "killed", *given, "--resume"))
    files = [tmp_path / name / "model/model.safetensors" for name in ("whole", "killed")]
    assert files[0].read_bytes() == files[1].read_bytes() and log(tmp_path / "whole") == log(tmp_path / "killed")


def test_label_smoothing_is_in_training_alone(base, monkeypatch):
    run = load_run(base)
    items = run.encode(load(DATA, "validation", 3))
    batch = run.collate(items)
    logits = run.model(**batch._asdict()).logits[batch.labels != -100].log_softmax(-1)
    chosen = logits.gather(-1, batch.labels[batch.labels != -100, None]).mean()
    config = replace(run.config, label_smoothing=0.1)
    smooth = -(0.9 * chosen + 0.1 * logits.mean()).item()
    assert objective(run.model, batch, config.label_smoothing).item() == pytest.approx(smooth)
    assert validate(run._replace(config=config), items)["validation_loss"] == pytest.approx(-chosen.item(), abs=1e-4)


def test_with_the_sources_of_other_documents_the_loss_is_theirs(base, capsys):
    """One by one: the loss of each summary with another document's source; the end of a training says it."""
    run, total, tokens = load_run(base), 0.0, 0
    items = run.encode(load(DATA, "validation", 2))
    for other, item in zip(items[::-1], items, strict=True):
        source, target = (torch.tensor([list(ids)]) for ids in (other.ids, item.labels))
        total += run.model(input_ids=source, labels=target).loss.item() * target.size(1)
        tokens += target.size(1)
    swapped = exchanged(items, lambda item: item.ids, lambda item, other: item._replace(ids=other.ids))
    assert validate(run, swapped)["validation_loss"] == pytest.approx(total / tokens, abs=1e-3)

    summarizer.report(run, items, log(base)[-1], base)
    assert "its source: train longer" in capsys.readouterr().out
    summarizer.report(run, items[:1], log(base)[-1], base)  # of one document nothing can be exchanged
    assert "source" not in capsys.readouterr().out


def test_the_printed_hint_works(tmp_path, capsys):
    main(flags(tmp_path / "run", "--steps", 1))
    [hint] = re.findall(r"python -m \S+\.predict (.+)", capsys.readouterr().out)
    predict.main([*hint.split(), "--limit", "2"])
    assert "rouge1" in capsys.readouterr().out


def test_few_documents_from_scratch_are_said_first(capsys):
    begin(SummarizerConfig(data="somewhere", vocabulary=500), load(DATA))
    assert capsys.readouterr().out.startswith("24 documents are few to learn from scratch")


def test_presets_hold_the_papers_values():
    """Every value of every preset, with its source."""
    bart = dict(
        data="cnn_dailymail", save_every=0, patience=2,  # Appendix A: 2 epochs without improvement
        # Appendix A: fairseq's instructions for BART
        schedule="polynomial", warmup=500, weight_decay=0.01, clip=0.1, mixed_precision="fp16",
        model="facebook/bart-large", max_source=1024, max_target=1024, label_smoothing=0.1, learning_rate=3e-5,
        steps=20_000, batch_size=2, accumulate=32,
    )  # fmt: skip
    assert PRESETS == {
        "tiny": {},
        "finetune": dict(steps=600, batch_size=8, learning_rate=5e-5, warmup=60, save_every=100, patience=3),
        "paper": bart,
        "paper-nyt": bart | {"data": "nyt", "steps": 30_000},
        "paper-xsum": bart | {"data": "xsum", "steps": 15_000, "batch_size": 4, "accumulate": 16},
    }
    # fairseq's batches have 2,048 tokens: 2 documents of CNN/DailyMail and NYT, cut at 1,024, or 4 of XSum.
    assert all(PRESETS[name]["batch_size"] * PRESETS[name]["accumulate"] == 64 for name in ("paper", "paper-xsum"))
    for preset in PRESETS.values():
        check(SummarizerConfig(**preset))


def test_values_that_contradict_each_other_are_refused():
    for values, message in ((dict(max_source=2000), "--positions, which is 1024"), (dict(width=30), "multiple of 4")):
        with pytest.raises(ValueError, match=message):
            check(SummarizerConfig(**values))


OWN = dict(
    max_source=20, max_target=9, label_smoothing=0.3,
    vocabulary=300, width=8, feed_forward=8, positions=1500, dropout=0.5,
)  # fmt: skip


def test_each_flag_of_its_own_changes_the_gradient(base):
    """The others are flags of train.py, too, but for `model`, which has a test above."""
    others = TrainConfig.__dataclass_fields__.keys() | {"init", "model"}
    assert SummarizerConfig.__dataclass_fields__.keys() - others | {"max_source"} == OWN.keys()
    config, examples = read_config(base, SummarizerConfig), load(DATA)

    def gradient(**change) -> list:
        torch.manual_seed(0)
        run = begin(replace(config, **{"max_source": 40} | change), examples)
        objective(run.model.train(), run.collate(run.encode(examples[:4])), run.config.label_smoothing).backward()
        return [parameter.grad for parameter in run.model.parameters()]

    plain = gradient()
    for name, value in OWN.items():
        pairs = zip(plain, gradient(**{name: value}), strict=True)
        assert not all(one.shape == two.shape and torch.equal(one, two) for one, two in pairs), name
