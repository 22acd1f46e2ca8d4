"""Each run.sh from start to end, with one fold and one seed in its tables, and a stand-in for Python that writes
down its command lines, which must be read."""

import functools
import importlib
import os
import re
import subprocess
from pathlib import Path

import pytest
import tyro

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from shared import score
from shared.run import parse, read_flags

from ...config import PRESETS, TrainConfig
from ...predict import Options

ROOT = Path(__file__).parents[3]
PACKAGE = __package__.removesuffix(".tests.experiments")
# Writes its arguments to $LOG, one call a line, and makes what later lines of the scripts want: figures.
STAND_IN = """#!/bin/bash
printf '%s\\t' "$@" >> "$LOG"; echo >> "$LOG"
case "$*" in
  *experiments.figures*) mkdir -p "$3"; touch "$3"/{figure_4,figure_5,claims,low_resource_toy,low_resource_gum}.png ;;
  *.controls*predict*)
    while [ "$1" != --out ]; do shift; done
    [ -d "${2%/*}" ] || mkdir -p "${2%/*}"
    echo '{"seed": 3}' > "$2" ;;
  *.tables*|*.salience*|*shared.score*|*.train*|*.controls*|*.folds*|*.standardize*|*.parse*) ;;
  -c*) echo encoder ;;
esac
"""


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """{name of a run.sh: its different command lines, numbers apart}."""
    here, found = tmp_path_factory.mktemp("here"), {}
    (here / "bin").mkdir()
    (here / "bin/python").write_text(STAND_IN)
    (here / "bin/python").chmod(0o755)
    (here / "corpus").mkdir()
    for name in ("train", "dev", "test"):
        (here / f"corpus/{name}.jsonl").write_text('{"id": 1}\n')
    # Under the name that the scripts use, whatever this folder is called; what they write goes into a copy.
    scripts = here / "discourse_tree_attention/experiments"
    for path in (ROOT / Path(*PACKAGE.split("."), "experiments")).rglob("*.sh"):
        own = scripts / path.relative_to(ROOT / Path(*PACKAGE.split("."), "experiments"))
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(path.read_text())
    for script in sorted(scripts.glob("*/run.sh")):
        log = here / f"{script.parent.name}.log"
        environment = os.environ | {
            "PATH": f"{here}/bin:{os.environ['PATH']}",
            "LOG": str(log),
            "FOLDS": "0",
            "SEEDS": "0",
        }
        subprocess.run(["bash", script, "corpus"], cwd=here, env=environment, check=True, capture_output=True)
        lines = {re.sub(r"\d+", "1", line): line for line in log.read_text().splitlines()}
        found[script.parent.name] = [line.rstrip("\t").split("\t") for line in lines.values()]
    return found


def module(name):
    return importlib.import_module(name.replace("discourse_tree_attention", PACKAGE, 1))


def read_command(name, flags):
    """Parse a command line as its command does; SystemExit or ValueError: it is stale."""
    match name.removeprefix("discourse_tree_attention."):
        case "train":
            return parse(flags, TrainConfig, PRESETS, "")
        case "experiments.controls" if flags[0] == "train":
            assert flags[1] in module(name).CONTROLS
            return parse(flags[2:], TrainConfig, PRESETS, "")
        case "experiments.controls":
            return read_flags(Options, flags[1:])
        case "shared.score":
            return read_flags(score.Options, flags)
        case "experiments.parse":
            return flags.index("--out")
    main = module(name).main
    return tyro.cli(functools.wraps(main)(lambda *arguments, **values: values), args=flags)


def test_each_script_runs_to_its_end_and_its_commands_are_todays(calls):
    assert set(calls) == {"aclsum", "gum", "scitldr", "toy"}
    for script, lines in calls.items():
        commands = [(line[1], line[2:]) for line in lines if line[0] == "-m"]
        for name, flags in commands:
            read_command(name, flags)
        assert {"discourse_tree_attention.train", "shared.score"} <= {name for name, _ in commands}, script


def test_tables_have_all_systems_their_controls_and_both_baselines(calls):
    for script in ("scitldr", "aclsum", "gum", "toy"):
        text = "\n".join(" ".join(line) for line in calls[script])
        for part in (
            "--attention dot --heads 1",
            "--attention dense",
            "--attention learned_random",
            "--attention none",
        ):
            assert part in re.sub(r"\d+", "1", text), (script, part)
        for part in ("train previous", "train shuffled", "--take lead", "--take oracle", "--attention c_tree "):
            assert part in text, (script, part)


def test_a_stale_flag_would_be_noticed():
    with pytest.raises(SystemExit):
        read_command("discourse_tree_attention.train", ["--out", "x", "--folds", "5"])
    with pytest.raises(SystemExit):
        read_command("discourse_tree_attention.experiments.tables", ["statistics", "--fold", "5"])
