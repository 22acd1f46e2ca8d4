"""The example of README.md can be pasted and works; flags of the pages' commands exist."""

import re
import shlex
from pathlib import Path

import pytest
from transformers import BartConfig, BartForConditionalGeneration

from ..selection import Selection
from ..text import train_tokenizer

FOLDER = Path(__file__).resolve().parents[1]
NAME = "encdec_sentence_sparse"


def test_the_example_of_use_it_runs(tmp_path):
    """On a local BART with the structure and the min_length of facebook/bart-large-cnn: two of
    three sentences read.
    """
    (code,) = re.findall(
        r"```python\n(.*?)```", (FOLDER / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    document = re.findall(r'"([^"]*\.)"', re.search(r"document = \[(.*)\]", code)[1])
    sizes = dict(
        vocab_size=400,
        d_model=32,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        encoder_layers=1,
        init_std=0.3,
    )
    heads = dict(encoder_attention_heads=4, decoder_attention_heads=4, decoder_layers=2)
    bart = BartForConditionalGeneration(BartConfig(max_position_embeddings=160, **sizes, **heads))
    bart.generation_config.update(min_length=56, max_length=142, num_beams=4)
    bart.save_pretrained(tmp_path)
    train_tokenizer([" ".join(document)] * 4, 400).save_pretrained(tmp_path)
    package = __package__.removesuffix(".tests")  # the folder may have another name
    names: dict = {}
    exec(
        code.replace("facebook/bart-large-cnn", str(tmp_path)).replace(
            f"from {NAME}", f"from {package}"
        ),
        names,
    )
    bart, source = names["bart"], names["source"]
    assert (
        len(document) == 3 and source["sentence_ids"].max() == 3 and names["summary"].shape[1] <= 30
    )
    flags = dict(
        num_beams=4, min_length=0, max_length=30, output_scores=True, return_dict_in_generate=True
    )
    selected = bart.generate(**source, selection=Selection("ideal", r=2), **flags)
    full = bart.generate(**source, **flags)
    assert selected.sequences.tolist() == names["summary"].tolist()
    assert (selected.sequences_scores - full.sequences_scores).abs().max() > 1e-4


def test_the_commands_of_the_pages_have_flags_that_exist(monkeypatch):
    run = pytest.importorskip("shared.run")
    from .. import predict
    from ..config import PRESETS, TrainConfig

    monkeypatch.setattr(run, "read_config", lambda *_: TrainConfig())
    text = "".join(
        (FOLDER / name).read_text(encoding="utf-8")
        for name in ("README.md", "PAPER.md", "train.py")
    )
    commands = re.findall(r"(?m)^python -m \w+\.(train|predict) (.*)$", text.replace("\\\n", ""))
    for program, flags in commands:
        words = shlex.split(flags, comments=True)
        if program == "train":
            assert run.parse(words, TrainConfig, PRESETS, "")[1].parts[0] == "runs"
        else:
            assert run.read_flags(predict.Options, words).run
    assert len(commands) > 9
