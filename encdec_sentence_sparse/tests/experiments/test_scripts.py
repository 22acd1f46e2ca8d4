"""Every command in README.md and the run.sh files has flags that exist."""

import functools
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

import tyro

from shared import run, score

from ... import evaluate, experiments, predict
from ...config import PRESETS, TrainConfig
from ...experiments import benchmark, cost, demo, figures, measures  # noqa: F401, as attributes of experiments

FOLDER = Path(__file__).resolve().parents[2]


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
    programs = {"evaluate": evaluate.Options, "predict": predict.Options, "score": score.Options}
    programs |= {name: vars(experiments)[name].main for name in ("benchmark", "cost", "demo", "figures", "measures")}
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
