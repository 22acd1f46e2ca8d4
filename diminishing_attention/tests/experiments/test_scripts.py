"""Each run.sh runs through; every command of it has flags and values that are allowed; every table has its command."""

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("shared")

from shared import score
from shared.run import parse, read_flags

from ... import predict
from ...config import PRESETS, TrainConfig
from ...experiments import baselines, figures, measures, parameters
from ...experiments.samsum.join import join
from ...experiments.titles.data import titled

SCRIPTS = sorted((Path(__file__).parents[2] / "experiments").glob("*/run.sh"))
OPTIONS = {"predict": predict.Options, "shared.score": score.Options, "experiments.baselines": baselines.Options}
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
    tables, trained = set(), set()
    for line in (tmp_path / "log").read_text().splitlines():
        dash_m, module, *arguments = shlex.split(line)
        module = module.removeprefix("diminishing_attention.")
        if module == "experiments.controls":
            control, module, *arguments = arguments
            assert {"plain_copy": "dim-plain", "renormalised": "_renormalised"}[control] in " ".join(arguments)
        else:
            assert not re.search("(predict|train).*(dim-plain|_renormalised)", line)
        if module in ("experiments.samsum.join", "experiments.titles.data"):  # have no flags
            assert len(arguments) == 2 * ("titles" in module)
            continue
        if module == "train":
            config, out, _ = parse(arguments, TrainConfig, PRESETS, "")
            out.mkdir(parents=True)
            (out / "config.json").write_text(json.dumps({"config": asdict(config)}))
            trained.add(out)
            continue
        options = read_flags(OPTIONS[module], arguments)
        assert module != "predict" or options.run in trained
        if module == "experiments.figures" and not (options.claims or options.table):
            tables |= {"figure_1.csv"}
        tables |= {options.csv.name} if getattr(options, "csv", None) else set()
    assert {path.name for path in script.parent.glob("*.csv")} == tables


def test_joined_dialogues_follow_each_other_and_a_rest_is_left_out():
    rows = [{"id": str(i), "document": [f"a{i}", f"b{i}"], "summary": [f"s{i}"]} for i in range(5)]
    joined = {"id": "0+1", "document": ["a0", "b0", "a1", "b1"], "summary": ["s0", "s1"]}
    assert [row["id"] for row in join(rows, 2)] == ["0+1", "2+3"] and join(rows, 2)[0] == joined
    assert [row["id"] for row in join(rows)] == ["0+1+2"]


def test_titles_take_the_place_of_summaries(tmp_path):
    row = {"id": "a", "source": ["We test .", "It works ."], "target": ["A test ."], "title": "On Testing"}
    (tmp_path / "train.jsonl").write_text(json.dumps(row))
    assert titled(str(tmp_path), "train") == [{"id": "a", "document": row["source"], "summary": ["On Testing"]}]
    with pytest.raises(ValueError, match="has no field 'title'"):
        titled("toy:count=2", "train")


def test_baselines_are_the_first_sentences_and_the_reference(tmp_path):
    baselines.main(["--data", "toy:count=4,seed=5", "--lead", "2", "--out", str(tmp_path)])
    lead, reference = (
        [json.loads(line) for line in (tmp_path / f"{name}.jsonl").open()] for name in ("lead-2", "reference")
    )
    assert [row["system"] for row in lead] == ["lead-2"] * 4 and lead[0]["prediction"].count("\n") == 1
    assert all(row["novel1"] == 0 and row["lead_rouge1"] == pytest.approx(100) for row in lead)
    assert all(row["prediction"].split("\n") == row["references"][0] for row in reference)


def test_params_of_table_1_are_printed(capsys):
    parameters.main()
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines()[1:])
    assert lines["PG"].split()[1:] == ["27,903,825", "27.9M"] and lines["BSEA"].split()[0] == "180,222,522"
    assert lines["6-layer Transformer"].split()[0] == "128,251,962" and "27,904,337" in lines["PG + Cov."]
    assert lines["PG + DimAttn"] == lines["PG + DyDimAttn"].lstrip() or "27,903,825" in lines["PG + DyDimAttn"]
