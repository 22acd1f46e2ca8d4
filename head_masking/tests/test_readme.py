"""What the README shows can be pasted and works."""

import re
import shlex
from pathlib import Path

import pytest
from transformers import BartConfig, BartForConditionalGeneration

from ..masking import PAPER_DECODING
from ..text import train_tokenizer

FOLDER = Path(__file__).resolve().parents[1]


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    """On a local BART with the decoder of facebook/bart-large-cnn.

    Kept are the words that it names; it prints.
    """
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    (by_words,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    sizes = dict(vocab_size=400, d_model=32, encoder_layers=1, max_position_embeddings=160)
    sizes |= dict(encoder_ffn_dim=8, decoder_ffn_dim=8, init_std=0.3)
    BartForConditionalGeneration(BartConfig(**sizes)).save_pretrained(tmp_path / "bart")
    document = re.search(r'document = "(.*)"', by_words)[1]
    train_tokenizer([document] * 4, 400).save_pretrained(tmp_path / "bart")
    short = dict(num_beams=2, min_length=8, max_length=20)
    monkeypatch.setitem(PAPER_DECODING, "cnn_dailymail", short)
    names: dict = {}
    exec(by_words.replace("facebook/bart-large-cnn", (tmp_path / "bart").as_posix()), names)
    kept = names["tokenizer"].decode(names["inputs"].input_ids[names["keep"]])
    assert re.findall(r"\w+", kept.lower()) == "storm hit norwick schools closed".split()
    assert 8 <= names["summary"].size(1) <= 20 and len(capsys.readouterr().out) > 10


def test_the_commands_are_those_of_today():
    """Each `python -m` line of README.md and PAPER.md is understood."""
    pytest.importorskip("shared")
    from shared import run, score

    from .. import config, predict
    from ..experiments import summarizer, sweep

    pages = [(FOLDER / name).read_text(encoding="utf-8") for name in ("README.md", "PAPER.md")]
    text = "\n".join(pages).replace("\\\n", "")
    text = text.replace("$P", "head_masking").replace("$D", "--data cnn_dailymail")
    lines = re.findall("^python -m (.*)", text, re.M)
    commands = [shlex.split(line, comments=True) for line in lines]
    assert len(commands) > 15
    trainings = {"train": (config.TrainConfig, config.PRESETS)}
    trainings["experiments.summarizer"] = (summarizer.SummarizerConfig, summarizer.PRESETS)
    others = {
        "predict": predict.Options,
        "experiments.sweep": sweep.Options,
        "shared.score": score.Options,
    }
    for module, *flags in commands:
        name = module.removeprefix("head_masking.")
        if name in trainings:
            run.parse(flags, *trainings[name], "")
        elif name in others:
            run.read_flags(others[name], flags)
        else:
            assert name in ("lesson", "experiments.data"), module
