"""Every command of every run.sh is understood: the scripts run with a `python` that only writes down its arguments."""

import importlib.util
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("shared")

from shared import run as shared_run
from shared import score

from ... import config, predict
from ...experiments import summarizer, sweep
from ...experiments.bbc import choose, sentences

PACKAGE = __package__.split(".")[0]
FOLDER = Path(__file__).resolve().parents[2] / "experiments"
ARGUMENTS = {
    "toy": [],
    "samsum": ["samsum", "base", "encoder", "stronger"],
    "dialogsum": ["dialogsum", "encoder", "samsum"],
    "scitldr": ["scitldr", "encoder"],
    "bbc": ["bbc", "encoder", "start"],
}
PYTHON = r"""#!/usr/bin/env bash
printf '%q ' "$@" >> "$COMMANDS"; echo >> "$COMMANDS"
module=$2 out=""; shift 2
case $module in
  *.data) mkdir -p "$1" "$2";;
  *.choose) echo masks > "$4";;
  *.sentences) echo '{"system": "bart"}';;
esac
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=$2; mkdir -p "$(dirname "$2")"; case $2 in *.jsonl) : > "$2";; *) mkdir -p "$2";; esac;;
    --csv) mkdir -p "$(dirname "$2")"; printf 'system,metric\nminilm-bart,rouge1,\n' > "$2";;
  esac
  shift
done
case $module in
  *.sweep) for name in copies-{0,1,2} {half,half800}-{0,1,2} adapted-{100,300,1000,4000}-{0,1,2} \
      {copier,summarizer}-{0,1,2} turns summarizer sentences; do echo 2:0-3 > "$out/$name.heads"; done
    touch "$out"/{effects,synergy,focus}.csv;;
esac
"""


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Of a corpus: the command lines that its run.sh gives, in order."""

    def run(corpus: str) -> list[list[str]]:
        script = tmp_path / PACKAGE / "experiments" / corpus / "run.sh"
        script.parent.mkdir(parents=True)
        text = (FOLDER / corpus / "run.sh").read_text(encoding="utf-8")
        script.write_text(text.replace("head_masking", PACKAGE))
        for path, body in (("bin/python", PYTHON), ("written", ""), ("encoder/config.json", "{}")):
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_text(body)
        (tmp_path / "bin/python").chmod(0o755)
        env = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "COMMANDS": str(tmp_path / "written")}
        ended = subprocess.run(
            ["bash", script, *ARGUMENTS[corpus]], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return [shlex.split(line) for line in (tmp_path / "written").read_text().splitlines()]

    return run


def test_each_corpus_has_its_script_here():
    assert {path.parent.name for path in FOLDER.glob("*/run.sh")} == ARGUMENTS.keys()


@pytest.mark.skipif(not shutil.which("bash"), reason="the scripts are for bash")
@pytest.mark.parametrize("corpus", ARGUMENTS)
def test_every_command_of_a_script_is_understood(corpus, commands, monkeypatch):
    monkeypatch.setattr(shared_run, "read_config", lambda folder, kind: kind())  # of --init
    lines = commands(corpus)
    assert len(lines) > 9
    for dash, module, *flags in lines:
        assert dash == "-m" and importlib.util.find_spec(module), module
        match module.removeprefix(f"{PACKAGE}."):
            case "train":
                shared_run.parse(flags, config.TrainConfig, config.PRESETS, "")
            case "experiments.summarizer":
                shared_run.parse(flags, summarizer.SummarizerConfig, summarizer.PRESETS, "")
            case "predict":
                shared_run.read_flags(predict.Options, flags)
            case "experiments.sweep":
                shared_run.read_flags(sweep.Options, flags)
            case "shared.score":
                shared_run.read_flags(score.Options, flags)
            case "experiments.bbc.choose":
                choose.parser().parse_args(flags)
            case "experiments.bbc.sentences":
                sentences.parser().parse_args(flags)
            case other:
                assert other.removeprefix("experiments.") in OTHERS, other


OTHERS = {
    "facts",
    "flips",
    "seeds",
    "lead",
    "novelty",
    "figures",
    "samsum.data",
    "scitldr.data",
    "bbc.data",
    "bbc.linear",
}  # have no flags, or two
