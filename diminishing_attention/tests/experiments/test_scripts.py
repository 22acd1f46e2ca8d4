"""Each run.sh runs through, and every command of it has flags that exist and values that are allowed."""

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("shared")

from shared import score
from shared.run import parse, read_flags

from ... import evaluate
from ...config import PRESETS, TrainConfig
from ...experiments import figures, measures

SCRIPTS = sorted((Path(__file__).parents[2] / "experiments").glob("*/run.sh"))
OPTIONS = {
    "evaluate": evaluate.Options,
    "experiments.measures": measures.Options,
    "experiments.figures": figures.Options,
    "shared.score": score.Options,
}
# Stands for python: writes its arguments down, and makes the folder of --out, as training would.
PYTHON = """#!/bin/bash
[ "$1" = - ] && exit 0
printf '%q ' "$@" >> "$LOG"; echo >> "$LOG"
while [ $# -gt 0 ]; do [ "$1" = --out ] && mkdir -p "$2" && touch "$2/figure_2.csv"; shift; done
exit 0
"""


@pytest.mark.skipif(not shutil.which("bash"), reason="the scripts are bash's")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
def test_every_command_of_a_script_can_be_read(script, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text(PYTHON)
    (tmp_path / "bin/python").chmod(0o755)
    (tmp_path / "diminishing_attention/experiments" / script.parent.name).mkdir(parents=True)
    (tmp_path / "data").mkdir()
    for name in ("train", "validation", "test"):
        (tmp_path / f"data/{name}.jsonl").write_text("{}\n")
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}
    done = subprocess.run(
        ["bash", script, "data", "data"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    monkeypatch.chdir(tmp_path)
    csvs = set()
    for line in (tmp_path / "log").read_text().splitlines():
        dash_m, module, *arguments = shlex.split(line)
        module = module.removeprefix("diminishing_attention.")
        if module == "train":
            config, out, _ = parse(arguments, TrainConfig, PRESETS, "")
            config.check()
            (out / "config.json").write_text(json.dumps({"config": asdict(config)}))
            continue
        options = read_flags(OPTIONS[module], arguments)
        assert all((run / "config.json").exists() for run in getattr(options, "runs", ()))
        csvs |= {Path(options.csv).name} if getattr(options, "csv", None) else set()
    tables = {path.name for path in script.parent.glob("*.csv")}
    assert csvs <= tables and tables - csvs <= {
        "intervals.csv",
        "settings.csv",
        "figure_1.csv",
        "figure_2.csv",
        "figure_3.csv",
        "attention_map.csv",
    }
