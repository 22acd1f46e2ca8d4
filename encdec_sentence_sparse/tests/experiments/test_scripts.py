"""Every command of README.md, of docstrings and of the run.sh files has flags that exist; scripts run to their end."""

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
from shared.run import read_flags

from ... import experiments, predict
from ...config import PRESETS, TrainConfig
from ...experiments import benchmark, cost, demo, figures, lengths, lobart, measures  # noqa: F401, of experiments

FOLDER = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(FOLDER.glob("experiments/*/run.sh"))


def noted(folder: Path, script: Path) -> list[list[str]]:
    """Module and flags of every command of a run.sh, run from start to end with a `python` that only notes."""
    stub, log = folder / "python", folder / "log"
    stub.write_text(f"""#!/bin/sh\nprintf '%s\\t' "$@" >> '{log}'; echo >> '{log}'\n""")
    stub.chmod(0o755)
    env = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", str(script), "toy", "MiniLM"], env=env, cwd=folder, check=True)
    lines = [line.split("\t")[:-1] for line in log.read_text().splitlines()]
    return [line[1:] for line in lines if line[:1] == ["-m"]]


def written() -> list[list[str]]:
    """Module and flags of every command on the pages and in the docstrings."""
    paths = [FOLDER / "README.md", *FOLDER.glob("*.py"), *FOLDER.glob("experiments/*.py")]
    texts = [path.read_text(encoding="utf-8").replace("\\\n", "") for path in paths]
    lines = [line for text in texts for line in re.findall(r"(?m)^python -m (.*)$", text) if " r SPLIT" not in line]
    return [shlex.split(line.partition(" > ")[0], comments=True) for line in lines]


def check_flags(module: str, flags: list[str]) -> None:
    """Parse a command line as its program does."""
    program = module.rpartition(".")[2]
    if program == "lobart":
        program, presets, *flags = flags[0], lobart.PRESETS, *flags[1:]
    else:
        presets = PRESETS
    if program == "train":
        assert run.parse(flags, TrainConfig, presets, "")[1].parts[0] == "runs"
    elif program in ("predict", "mean_key"):
        assert read_flags(predict.Options, flags).run
    elif program == "score":
        read_flags(score.Options, flags)
    elif program in vars(experiments) and hasattr(vars(experiments)[program], "main"):
        stub = functools.wraps(vars(experiments)[program].main)(lambda *_, **__: None)  # parses, and does nothing
        tyro.cli(stub, args=flags)
    else:
        assert program in ("lesson", "cross_entropy", "precision", "minilm_bart"), program


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
def test_a_script_runs_to_its_end_with_flags_that_exist(monkeypatch, tmp_path, script):
    monkeypatch.setattr(run, "read_config", lambda *_: TrainConfig())
    commands = noted(tmp_path, script)
    assert len(commands) > 2
    for module, *flags in commands:
        check_flags(module, flags)


def test_commands_of_the_pages_have_flags_that_exist(monkeypatch):
    monkeypatch.setattr(run, "read_config", lambda *_: TrainConfig())
    commands = written()
    for module, *flags in commands:
        check_flags(module, flags)
    assert {module.rpartition(".")[2] for module, *_ in commands} >= {"train", "predict", "demo", "lobart", "figures"}


def test_figures_are_drawn_from_what_the_repository_holds(tmp_path):
    """Figures 1, 2 and 4."""
    held = FOLDER / "experiments"
    figures.main(tmp_path, scores=held / "toy" / "toy.csv", curves=held / "demo" / "figure_1.csv")
    assert {path.stem for path in tmp_path.iterdir()} == {"figure_1", "figure_2", "figure_4"}
