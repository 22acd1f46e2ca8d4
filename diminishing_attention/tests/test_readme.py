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
    torch.manual_seed(0)
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    package = __package__.removesuffix(".tests")  # the folder may have another name
    names: dict = {}
    exec(code.replace("from diminishing_attention.", f"from {package}."), names)
    assert torch.equal(names["weights"], Diminishing("dydim").sequence(names["attention"]))
    torch.testing.assert_close(names["state"].coverage, names["attention"].sum(1))
    torch.testing.assert_close(names["state"].peak, names["attention"].amax(1))


def test_the_mechanism_needs_torch_alone():
    """With numpy and all other libraries of the package out of reach."""
    blocked = ("numpy", "transformers", "accelerate", "safetensors", "tqdm", "tyro", "annotated_types", "shared")
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


@pytest.mark.parametrize(("name", "least"), [("README", 5), ("PAPER", 5)])
def test_the_commands_parse_and_the_second_phases_are_the_papers(name, least, tmp_path, monkeypatch):
    """Every command has flags that exist, with values that are allowed; a base's config.json stands for its run."""
    pytest.importorskip("shared")
    from shared.run import parse, read_flags

    from .. import evaluate, predict
    from ..config import PRESETS, TrainConfig

    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8").replace("\\\n", "")
    monkeypatch.chdir(tmp_path)
    configs: dict = {}
    commands = re.findall(r"^python -m diminishing_attention\.(\w+) (.*?)(?:  +#.*)?$", page, re.MULTILINE)
    assert len(commands) >= least  # those of the laboratory are tested there
    for module, arguments in commands:
        if module != "train":
            read_flags({"evaluate": evaluate, "predict": predict}[module].Options, shlex.split(arguments))
            continue
        config, out, _ = parse(shlex.split(arguments), TrainConfig, PRESETS, "")
        configs[out] = config
        out.mkdir(parents=True)
        (out / "config.json").write_text(json.dumps({"config": asdict(config)}))
    if name == "PAPER":
        paper, phase = configs[Path("runs/base")], dict(init="runs/base", steps=10_000)
        # Section 4.2: 600 tokens, beam 6, alpha 1.5, trigram blocking, less than 10k iterations; See et al.: 3,000.
        phase |= dict(beam=6, average=False, length_penalty=1.5, trigram_blocking=True)
        assert configs[Path("runs/dim")] == replace(paper, diminishing="dim", max_source=600, **phase)
        assert configs[Path("runs/cov")] == replace(paper, coverage=True, init="runs/base", steps=3000)
        assert configs[Path("runs/abs-dim")].model == "bertsum-abs"
