"""Every command in every run.sh, from its first line to its last: it is today's, and what it reads was written."""

import importlib
import json
import os
import shlex
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("shared")
pytest.importorskip("transformers")

from shared import score  # noqa: E402
from shared.run import parse, read_config, read_flags  # noqa: E402

from ...config import PRESETS, TrainConfig  # noqa: E402
from ...experiments import bart, benchmark, figures, rules  # noqa: E402

EXPERIMENTS = Path(figures.__file__).parent
SHIM = """#!/bin/sh
# Stands for python: writes down the command line, and makes the files that the command would make.
for word in "$@"; do printf '%s ' "$(printf '%s' "$word" | sed "s/'/'\\\\\\\\''/g; s/.*/'&'/")" >> "$LOG"; done
echo >> "$LOG"
last=
for word in "$@"; do
  case "$last $word" in
    --out\\ *.jsonl|--csv\\ *.csv) mkdir -p "$(dirname "$word")"; touch "$word";;
    --out\\ *) mkdir -p "$word"; touch "$word/figure_6.csv";;
  esac
  last=$word
done
"""
SCRIPTS = {
    "multi30k/run.sh": ["data", "stanza"], "samsum/run.sh": ["data", "stanza", "bart", "stronger"], "speed/run.sh": [],
    "toy/run.sh": [],
}  # fmt: skip
CONFIGS = {"train": TrainConfig, "experiments.rules": rules.RuleConfig, "experiments.bart": bart.GatedBartConfig}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A place where `python` only writes down what it was asked."""
    shim = tmp_path / "bin" / "python"
    shim.parent.mkdir()
    shim.write_text(SHIM)
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "log"


def check_command(module: str, arguments: list[str]) -> None:
    """Read a command line as its program does; what a training would leave is left, what others read must be there."""
    config_type = CONFIGS.get(module)
    if module != "train" and config_type:
        name, *arguments = arguments
        config_type = config_type if name == "train" else None
    if config_type:
        config, out, resume = parse(arguments, config_type, PRESETS, "")
        assert resume  # what is done stays done, and what is trained twice is the same run
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text(json.dumps({"config": asdict(config)}))
    elif module in CONFIGS:
        options = read_flags(rules.Options, arguments)
        read_config(options.run, CONFIGS[module])
        assert options.data and options.out
    else:
        options = read_flags(
            {"score": score, "experiments.benchmark": benchmark}.get(module, figures).Options, arguments
        )
        runs = getattr(options, "run", None) or getattr(options, "runs", ())
        for run in runs:
            read_config(run, TrainConfig)
        assert all(file.exists() for file in getattr(options, "files", ()))


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_command_of_a_script_is_one_of_todays(log, script):
    done = subprocess.run(["bash", EXPERIMENTS / script, *SCRIPTS[script]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    commands = [shlex.split(line) for line in log.read_text().splitlines()]
    assert len(commands) > 1 and all(command[0] == "-m" for command in commands)
    for _, module, *arguments in commands:
        name = module.partition(".")[2]
        package = "shared" if module.startswith("shared.") else __package__.rpartition(".tests")[0]
        assert importlib.import_module(f"{package}.{name}").main
        check_command(name, arguments)


def test_every_script_is_tested():
    assert {str(path.relative_to(EXPERIMENTS)) for path in EXPERIMENTS.glob("*/*.sh")} == set(SCRIPTS)
