"""The example of README.md can be pasted and works; flags of the pages' commands exist."""

import re
import shlex
from pathlib import Path

import pytest
from transformers import BartForConditionalGeneration

from ..model import bart_config
from ..selection import Selection
from ..text import train_tokenizer

FOLDER = Path(__file__).resolve().parents[1]
NAME = "encdec_sentence_sparse"


def test_the_example_of_use_it_runs(tmp_path):
    """On a local BART with the min_length of facebook/bart-large-cnn."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    document = re.findall(r'"([^"]*\.)"', re.search(r"document = \[(.*)\]", code)[1])
    config = bart_config(400, 32, 8, heads=4, layers=2, positions=160, init_std=0.3)
    bart = BartForConditionalGeneration(config)
    bart.generation_config.update(min_length=56, max_length=142, num_beams=4)
    bart.save_pretrained(tmp_path)
    train_tokenizer([" ".join(document)] * 4, 400).save_pretrained(tmp_path)
    package = __package__.removesuffix(".tests")  # the folder may have another name
    code = code.replace("facebook/bart-large-cnn", str(tmp_path))
    names: dict = {}
    exec(code.replace(f"from {NAME}", f"from {package}"), names)
    bart, source = names["bart"], names["source"]
    assert len(document) == 3 and source["sentence_ids"].max() == 3
    assert names["summary"].shape[1] <= 30
    flags = dict(num_beams=4, min_length=0, max_length=30)
    flags |= dict(output_scores=True, return_dict_in_generate=True)
    selected = bart.generate(**source, selection=Selection("ideal", r=2), **flags)
    full = bart.generate(**source, **flags)
    assert selected.sequences.tolist() == names["summary"].tolist()
    assert (selected.sequences_scores - full.sequences_scores).abs().max() > 1e-4


def test_the_commands_of_the_pages_have_flags_that_exist(monkeypatch):
    run = pytest.importorskip("shared.run")
    from .. import predict
    from ..config import PRESETS, TrainConfig

    monkeypatch.setattr(run, "read_config", lambda *_: TrainConfig())
    files = [FOLDER / name for name in ("README.md", "PAPER.md", "train.py")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    commands = re.findall(r"(?m)^python -m \w+\.(train|predict) (.*)$", text.replace("\\\n", ""))
    for program, flags in commands:
        words = shlex.split(flags, comments=True)
        if program == "train":
            assert run.parse(words, TrainConfig, PRESETS, "")[1].parts[0] == "runs"
        else:
            assert run.read_flags(predict.Options, words).run
    assert len(commands) > 9
