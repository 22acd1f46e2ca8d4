"""Training a summariser by the Trainer of transformers: what is learned, that it goes on, that it
loads as any BART.
"""

import re
from dataclasses import replace

import pytest
import torch

pytest.importorskip("shared")

import transformers

from shared.data import load
from shared.run import check, read_config

from ... import predict
from ...config import Training
from ...experiments.summarizer import PRESETS, SummarizerConfig, main, trainer_of
from ...loading import load_model
from ...text import encode_documents
from ..conftest import equal, weights
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
    """The loss is the mean cross-entropy of the summaries' tokens, read as `predict` reads them."""
    main(flags(tmp_path / "run", "--max-source", 40))
    said = capsys.readouterr().out
    assert (
        "its source: train longer" in said
        and "training examples are cut to --max-target 12" in said
    )
    run, losses = load_model(tmp_path / "run"), []
    for example in load(DATA, "validation"):
        [source] = encode_documents(run.tokenizer, [example.source], 40)
        [target] = encode_documents(run.tokenizer, [example.target], 12)
        found = run.model(input_ids=torch.tensor([source.ids]), labels=torch.tensor([target.ids]))
        losses.append(found.loss.item())  # of 12 tokens each
    assert float(re.search(r"validation loss (\S+)", said)[1]) == pytest.approx(
        sum(losses) / len(losses), abs=1e-3
    )
    [hint] = re.findall(r"python -m \S+\.predict (.+)", said)
    predict.main([*hint.split(), "--limit", "1"])
    assert len(capsys.readouterr().out.splitlines()) > 3


def test_a_killed_training_resumes_to_the_same_bits(base, tmp_path, monkeypatch):
    more = ("--accumulate", 2, "--patience", 2, "--max-source", 40)
    main(flags(tmp_path / "whole", *more))
    evaluate, calls = transformers.Trainer.evaluate, []

    def killed(*arguments, **keywords):
        calls.append(1)
        return evaluate(*arguments, **keywords) if len(calls) == 1 else pytest.exit("killed")

    with monkeypatch.context() as patch, pytest.raises(pytest.exit.Exception):
        patch.setattr(transformers.Trainer, "evaluate", killed)
        main(flags(tmp_path / "killed", *more))
    assert not (tmp_path / "killed/model").exists()
    for _ in range(2):  # a finished run is left as it is
        main(flags(tmp_path / "killed", *more, "--resume"))
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    with pytest.raises(SystemExit):
        main(flags(tmp_path / "killed", *more))


def test_a_training_goes_on_from_a_bart(base, tmp_path):
    """With a rate of (nearly) nothing its weights stay; its tokenizer is taken, too."""
    main(
        flags(
            tmp_path / "run",
            "--model",
            base / "model",
            "--learning-rate",
            1e-12,
            "--steps",
            1,
            "--max-source",
            40,
        )
    )
    pairs = zip(weights(base).values(), weights(tmp_path / "run").values(), strict=True)
    assert all(torch.allclose(one, other, atol=1e-9) for one, other in pairs)
    assert (
        load_model(tmp_path / "run").tokenizer.get_vocab() == load_model(base).tokenizer.get_vocab()
    )


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
    # fairseq's batches have 2,048 tokens: 2 documents of CNN/DailyMail and NYT, cut at 1,024, or 4
    # of XSum.
    assert all(
        PRESETS[name]["batch_size"] * PRESETS[name]["accumulate"] == 64
        for name in ("paper", "paper-xsum")
    )
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


def test_each_flag_changes_two_updates(base, tmp_path):
    """But those that say when to save and end, and `model`, which has a test above."""
    fields = SummarizerConfig.__dataclass_fields__.keys()
    assert (
        Training.__dataclass_fields__.keys()
        < fields
        == CHANGED.keys() | {"model", "save_every", "patience"}
    )
    config = replace(read_config(base, SummarizerConfig), max_source=40, steps=2, save_every=9)

    def trained(name: str, **change) -> dict:
        trainer = trainer_of(replace(config, **change), tmp_path / name)
        trainer.args.eval_strategy = trainer.args.save_strategy = "no"
        trainer.train()
        return {**trainer.model.state_dict()}

    plain = trained("plain")
    assert equal(trained("again"), plain)
    assert [
        name for name, value in CHANGED.items() if equal(plain, trained(name, **{name: value}))
    ] == []
