"""Each run.sh runs through; every command of it has flags and values that are allowed; every table has its command."""

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
from ...experiments.samsum.join import join

SCRIPTS = sorted((Path(__file__).parents[2] / "experiments").glob("*/run.sh"))
OPTIONS = {"evaluate": evaluate.Options, "shared.score": score.Options}
OPTIONS |= {"experiments.measures": measures.Options, "experiments.figures": figures.Options}
PYTHON = '#!/bin/bash\nprintf "%q " "$@" >> "$LOG"; echo >> "$LOG"\n'  # stands for python: writes its arguments down


@pytest.mark.skipif(not shutil.which("bash"), reason="the scripts are bash's")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
def test_every_command_of_a_script_can_be_read(script, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text(PYTHON)
    (tmp_path / "bin/python").chmod(0o755)
    (tmp_path / "data").mkdir()
    for name in ("train", "validation", "test"):
        (tmp_path / f"data/{name}.jsonl").write_text("{}\n")
    environment = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}
    subprocess.run(["bash", script, "data", "data"], cwd=tmp_path, env=environment, check=True)
    monkeypatch.chdir(tmp_path)
    tables = set()
    for line in (tmp_path / "log").read_text().splitlines():
        dash_m, module, *arguments = shlex.split(line)
        module = module.removeprefix("diminishing_attention.")
        if module == "experiments.samsum.join":  # has no flags
            assert not arguments
            continue
        if module == "train":
            config, out, _ = parse(arguments, TrainConfig, PRESETS, "")
            out.mkdir(parents=True)
            (out / "config.json").write_text(json.dumps({"config": asdict(config)}))
            continue
        options = read_flags(OPTIONS[module], arguments)
        if module == "experiments.figures" and not (options.claims or options.table):
            tables |= {"figure_1.csv"}
        tables |= {options.csv.name} if getattr(options, "csv", None) else set()
    assert {path.name for path in script.parent.glob("*.csv")} == tables


def test_joined_dialogues_follow_each_other_and_a_rest_is_left_out():
    rows = [{"id": str(i), "document": [f"a{i}", f"b{i}"], "summary": [f"s{i}"]} for i in range(5)]
    joined = {"id": "0+1", "document": ["a0", "b0", "a1", "b1"], "summary": ["s0", "s1"]}
    assert [row["id"] for row in join(rows, 2)] == ["0+1", "2+3"] and join(rows, 2)[0] == joined
    assert [row["id"] for row in join(rows)] == ["0+1+2"]
