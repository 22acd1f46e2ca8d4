"""What the README and model.py show can be pasted and works."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from ... import model as model_file
from ...model import load_model
from ...selection import Selection
from ...text import encode, train_tokenizer

FOLDER = Path(__file__).resolve().parents[2]


def test_the_example_of_model_py_runs(tmp_path):
    """On a local BART with the structure and the min_length of facebook/bart-large-cnn: two of three sentences read."""
    code = textwrap.dedent("\n".join(re.findall(r"^    .*$", model_file.__doc__, re.MULTILINE)))
    document = re.findall(r'"([^"]*\.)"', re.search(r"document = \[(.*)\]", code)[1])
    sizes = dict(vocab_size=400, d_model=32, encoder_ffn_dim=8, decoder_ffn_dim=8, encoder_layers=1, init_std=0.3)
    heads = dict(encoder_attention_heads=4, decoder_attention_heads=4)
    bart = BartForConditionalGeneration(BartConfig(max_position_embeddings=160, **sizes, **heads))
    bart.generation_config.update(min_length=56, max_length=142, num_beams=4)
    bart.save_pretrained(tmp_path)
    train_tokenizer([" ".join(document)] * 4, 400).save_pretrained(tmp_path)
    names = dict(name=str(tmp_path), load_model=load_model, encode=encode, torch=torch, Selection=Selection)
    exec(code, names)
    bart, ids, sentence_ids = names["bart"], names["ids"], names["sentence_ids"]
    assert len(document) == 3 and sentence_ids.max() == 3 and names["summary"].shape[1] <= 30
    source, flags = dict(input_ids=ids, sentence_ids=sentence_ids), dict(num_beams=4, min_length=0, max_length=30)
    scored = flags | dict(output_scores=True, return_dict_in_generate=True)
    selected, bart.selection = bart.generate(**source, **scored), Selection("full")
    full = bart.generate(**source, **scored)
    assert selected.sequences.tolist() == names["summary"].tolist()
    assert (selected.sequences_scores - full.sequences_scores).abs().max() > 1e-4


def commands() -> list[tuple[str, list[str]]]:
    """Program and flags of every command in README.md and RESULTS.md that stands on its own."""
    pages = (FOLDER / "README.md", FOLDER / "experiments" / "RESULTS.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages if page.exists()).replace("\\\n", "")
    pattern = r"(?:^|`)python -m encdec_sentence_sparse\.(?:experiments\.)?(\w+) ([^`\n]*)"
    lines = re.findall(pattern, text, re.MULTILINE)
    return [(program, shlex.split(flags)) for program, flags in lines]


def test_commands_have_flags_that_exist(monkeypatch, tmp_path):
    """Every command is parsed by the program that it names, and gets as far as what it reads."""
    pytest.importorskip("shared")
    from ... import evaluate, predict, train
    from ...experiments import benchmark, figures

    class Parsed(BaseException):
        pass

    def stop(*_, **__):
        raise Parsed

    reads = {evaluate: "load_runs", figures: "read_metrics", predict: "load_run_or_bart", benchmark: "check_outputs"}
    for program, name in reads.items():
        monkeypatch.setattr(program, name, stop)
    monkeypatch.setattr(train, "read_config", lambda *_: train.TrainConfig())
    programs = dict(benchmark=benchmark, evaluate=evaluate, figures=figures, predict=predict)
    for program, flags in commands():
        if program == "train":
            config, out, resume = train.parse(flags)
            config.check()
            assert out.parts[0] == "runs" and not resume
        else:
            with pytest.raises(Parsed):
                programs[program].main(flags)
    assert {program for program, _ in commands()} == {"train", *programs}


def test_readme_is_short_and_what_it_links_to_is_there():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 150
    for link in re.findall(r"\]\((?!http)([^)]+)\)", text):
        assert (FOLDER / link).exists(), link
