"""What the README shows can be pasted and works."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from ..masking import PAPER_DECODING, mask_heads
from ..text import train_tokenizer

FOLDER = Path(__file__).resolve().parents[1]


def test_the_example_runs(tmp_path, capsys):
    """On a local BART with the decoder of facebook/bart-large-cnn: kept are the words that it names; it prints."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    (by_words,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    sizes = dict(vocab_size=400, d_model=32, encoder_ffn_dim=8, decoder_ffn_dim=8, encoder_layers=1, init_std=0.3)
    BartForConditionalGeneration(BartConfig(max_position_embeddings=160, **sizes)).save_pretrained(tmp_path / "bart")
    document = re.search(r'document = "(.*)"', by_words)[1]
    train_tokenizer([document] * 4, 400).save_pretrained(tmp_path / "bart")
    names: dict = {}
    exec(by_words.replace("facebook/bart-large-cnn", (tmp_path / "bart").as_posix()), names)
    assert kept_words(names) == "storm hit norwick schools closed".split() and 57 <= names["summary"].size(1) <= 143
    assert len(capsys.readouterr().out) > 20
    settings = PAPER_DECODING["cnn_dailymail"] | dict(return_dict_in_generate=True, output_scores=True)
    plain = names["bart"].generate(**names["inputs"], **settings)
    with mask_heads(names["bart"], {12: range(16)}, names["keep"]):
        masked = names["bart"].generate(**names["inputs"], **settings)
    assert torch.equal(masked.sequences, names["summary"])
    assert (plain.sequences_scores - masked.sequences_scores).abs().max() > 1e-4


def kept_words(names: dict) -> list[str]:
    kept = names["inputs"].input_ids[names["keep"]]
    return re.sub(r"\W+", " ", names["tokenizer"].decode(kept)).lower().split()


def test_the_commands_are_those_of_today():
    """Each `python -m` line of README.md and PAPER.md is understood."""
    pytest.importorskip("shared")
    from shared import run, score

    from .. import config, predict
    from ..experiments import summarizer, sweep

    text = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in ("README.md", "PAPER.md"))
    text = text.replace("\\\n", "").replace("$P", "head_masking").replace("$D", "--data cnn_dailymail")
    commands = [shlex.split(line, comments=True)[2:] for line in text.splitlines() if line.startswith("python -m ")]
    assert len(commands) > 15
    for module, *flags in commands:
        match module:
            case "head_masking.train":
                run.parse(flags, config.TrainConfig, config.PRESETS, "")
            case "head_masking.experiments.summarizer":
                run.parse(flags, summarizer.SummarizerConfig, summarizer.PRESETS, "")
            case "head_masking.predict":
                run.read_flags(predict.Options, flags)
            case "head_masking.experiments.sweep":
                run.read_flags(sweep.Options, flags)
            case "shared.score":
                run.read_flags(score.Options, flags)
            case _:
                assert module in ("head_masking.experiments.facts", "head_masking.experiments.demo"), module
