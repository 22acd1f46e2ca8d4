"""What the README shows can be pasted and works, without more than torch; PAPER.md's commands are the paper's."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from ..diminishing import Diminishing

FOLDER = Path(__file__).resolve().parents[1]
README = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_and_its_steps_are_the_whole():
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    package = __package__.removesuffix(".tests")  # the folder may have another name
    names: dict = {}
    exec(code.replace("from diminishing_attention.", f"from {package}."), names)
    weights = Diminishing("dim").sequence(names["attention"])
    assert torch.equal(names["weights"], weights) and weights.sum() < names["attention"].sum()
    assert re.findall(r"\d\.\d\d", code.split("print(weights)")[1])[:4] == [f"{w:.2f}" for w in weights.flatten()]
    torch.testing.assert_close(names["step"], weights[1])
    torch.testing.assert_close(names["state"].coverage, names["attention"].sum(0))


def test_the_mechanism_needs_torch_alone():
    """With numpy and all other libraries of the package out of reach."""
    blocked = (
        "numpy",
        "regex",
        "transformers",
        "accelerate",
        "safetensors",
        "tqdm",
        "tyro",
        "annotated_types",
        "shared",
    )
    package = __package__.removesuffix(".tests")
    code = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        f"sys.modules.update(dict.fromkeys({blocked!r}))\n"
        f"from {package}.diminishing import Diminishing; import torch\n"
        "print(Diminishing('dim').sequence(torch.ones(1, 1)).item())"
    )
    top = FOLDER.parents[len(package.split(".")) - 1]
    done = subprocess.run([sys.executable, "-c", code], cwd=top, capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(0.693147)


def commands(page: str, monkeypatch, tmp_path) -> tuple[dict, dict]:
    """Configs of all trainings by run folder, and options of all predictions by --out; every flag is allowed."""
    pytest.importorskip("shared")
    from shared.run import parse, read_flags

    from .. import predict
    from ..config import PRESETS, TrainConfig

    text = (FOLDER / page).read_text(encoding="utf-8").replace("\\\n", "")
    monkeypatch.chdir(tmp_path)
    configs, outputs = {}, {}
    for module, line in re.findall(
        r"python -m diminishing_attention\.(train|predict) (.*?)(?:  +#.*)?$", text, re.MULTILINE
    ):
        if module == "predict":
            options = read_flags(predict.Options, shlex.split(line))
            outputs[str(options.out)] = options
            continue
        config, out, _ = parse(shlex.split(line), TrainConfig, PRESETS, "")
        configs[str(out)] = config
        out.mkdir(parents=True)
        (out / "config.json").write_text(json.dumps({"config": asdict(config)}))  # stands for the run as a base
    return configs, outputs


def test_own_data_trains_dim_attention_and_its_control(tmp_path, monkeypatch):
    configs, outputs = commands("README.md", monkeypatch, tmp_path)
    dim, control = configs["runs/my-dim"], configs["runs/my-more"]
    assert dim == replace(control, diminishing="dim") and control.init == "runs/my"
    assert {option.run.name for option in outputs.values()} >= {"my-dim", "my-more"}


def test_d17_the_second_phases_and_table_4_are_the_papers(tmp_path, monkeypatch):
    """Section 4.2: 600 tokens, beam 6, alpha 1.5, trigram blocking, less than 10k updates; See et al.: 3,000. D17."""
    configs, outputs = commands("PAPER.md", monkeypatch, tmp_path)
    paper, phase = configs["runs/base"], dict(init="runs/base", steps=10_000)
    phase |= dict(beam=6, length_penalty=1.5, trigram_blocking=True)
    assert configs["runs/dim"] == replace(paper, diminishing="dim", max_source=600, **phase)
    assert configs["runs/dim-400"] == replace(configs["runs/dim"], max_source=400)  # Table 4's caption
    assert configs["runs/cov"] == replace(paper, coverage=True, init="runs/base", steps=3000)
    assert configs["runs/abs-dim"].model == "bertsum-abs"
    rows = [outputs[f"t4/{name}.jsonl"] for name in ("only", "norm", "all")]
    settings = [(row.beam, row.length_penalty, row.trigram_blocking) for row in rows]
    assert settings == [(6, 0.0, False), (6, 1.5, False), (6, 1.5, True)]
    assert all(row.run.name == "dim-400" for row in rows) and outputs["t4/cov.jsonl"].beam is None
    assert (paper.beam, paper.length_penalty, paper.trigram_blocking) == (4, 0.0, False)
