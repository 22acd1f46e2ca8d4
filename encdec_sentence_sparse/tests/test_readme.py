"""What the pages show can be pasted and works."""

import functools
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from transformers import BartConfig, BartForConditionalGeneration

from ..selection import Selection
from ..text import train_tokenizer

FOLDER = Path(__file__).resolve().parents[1]
NAME = "encdec_sentence_sparse"


def test_the_example_of_use_it_runs(tmp_path):
    """On a local BART with the structure and the min_length of facebook/bart-large-cnn: two of three sentences read."""
    (code,) = re.findall(r"```python\n(.*?)```", (FOLDER / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    document = re.findall(r'"([^"]*\.)"', re.search(r"document = \[(.*)\]", code)[1])
    sizes = dict(vocab_size=400, d_model=32, encoder_ffn_dim=8, decoder_ffn_dim=8, encoder_layers=1, init_std=0.3)
    heads = dict(encoder_attention_heads=4, decoder_attention_heads=4)
    bart = BartForConditionalGeneration(BartConfig(max_position_embeddings=160, **sizes, **heads))
    bart.generation_config.update(min_length=56, max_length=142, num_beams=4)
    bart.save_pretrained(tmp_path)
    train_tokenizer([" ".join(document)] * 4, 400).save_pretrained(tmp_path)
    package = __package__.removesuffix(".tests")  # the folder may have another name
    names: dict = {}
    exec(code.replace("facebook/bart-large-cnn", str(tmp_path)).replace(f"from {NAME}", f"from {package}"), names)
    bart, source = names["bart"], names["source"]
    assert len(document) == 3 and source["sentence_ids"].max() == 3 and names["summary"].shape[1] <= 30
    flags = dict(num_beams=4, min_length=0, max_length=30, output_scores=True, return_dict_in_generate=True)
    selected = bart.generate(**source, selection=Selection("mean_key", r=2), **flags)
    full = bart.generate(**source, **flags)
    assert selected.sequences.tolist() == names["summary"].tolist()
    assert (selected.sequences_scores - full.sequences_scores).abs().max() > 1e-4


def commands(folder: Path) -> list[tuple[str, list[str]]]:
    """Program and flags of every command in README.md, and of every run.sh, run with a `python` that only notes."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [shlex.split(line, comments=True)[1:] for line in re.findall(r"(?m)^python -m .*$", text)]
    stub, log = folder / "python", folder / "log"
    stub.write_text(f"""#!/bin/sh\nprintf '%s\\t' "$@" >> '{log}'; echo >> '{log}'\n""")
    stub.chmod(0o755)
    env = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    for script in sorted(FOLDER.glob("experiments/*/run.sh")):
        subprocess.run(["bash", str(script), "toy"], env=env, cwd=folder, check=True)
    lines += [line.split("\t")[:-1] for line in log.read_text().splitlines()] if log.exists() else []
    return [(module.rpartition(".")[2], flags) for _, module, *flags in lines]


def test_commands_have_flags_that_exist(monkeypatch, tmp_path):
    """Every command is parsed by the program that it names."""
    pytest.importorskip("shared")
    import tyro

    from shared import run, score

    from .. import evaluate, predict
    from ..config import PRESETS, TrainConfig

    programs = {"evaluate": evaluate.Options, "predict": predict.Options, "score": score.Options}
    if (FOLDER / "experiments/demo.py").exists():
        from ..experiments import benchmark, cost, demo, figures, measures

        parsed = {"benchmark": benchmark, "cost": cost, "demo": demo, "figures": figures, "measures": measures}
        programs |= {name: module.main for name, module in parsed.items()}
    monkeypatch.setattr(run, "read_config", lambda *_: TrainConfig())
    found = commands(tmp_path)
    for program, flags in found:
        if program == "train":
            config, out, _ = run.parse(flags, TrainConfig, PRESETS, "")
            assert out.parts[0] == "runs" and config
        elif program in programs:
            stub = functools.wraps(programs[program])(lambda *_, **__: None)  # parses, and does nothing
            tyro.cli(stub, args=flags, config=(tyro.conf.FlagCreatePairsOff,))
    assert {program for program, _ in found} >= {"train", "evaluate", "predict"}
