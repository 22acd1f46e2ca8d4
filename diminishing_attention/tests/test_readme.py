"""What the README shows can be pasted and works; PAPER.md's commands are the paper's."""

import ast
import json
import re
import shlex
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from ..diminishing import Diminishing

FOLDER = Path(__file__).resolve().parents[1]


def test_the_example_runs_and_its_steps_are_the_whole():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    package = __package__.removesuffix(".tests")  # the folder may have another name
    names: dict = {}
    exec(code.replace("from diminishing_attention.", f"from {package}."), names)
    weights = Diminishing("dim").sequence(names["attention"])
    assert torch.equal(names["weights"], weights) and weights.sum() < names["attention"].sum()
    said = re.findall(r"\d\.\d\d", code.split("print(weights)")[1])[:4]
    assert said == [f"{weight:.2f}" for weight in weights.flatten()]
    torch.testing.assert_close(names["step"], weights[1])
    torch.testing.assert_close(names["state"].coverage, names["attention"].sum(0))


def test_the_mechanism_needs_torch_alone():
    nodes = ast.walk(ast.parse((FOLDER / "diminishing.py").read_text(encoding="utf-8")))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {getattr(node, "module", None) or node.names[0].name for node in imports}
    assert modules == {"collections.abc", "dataclasses", "typing", "torch", "torch.nn"}


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """commands(page): configs of its trainings by run folder, options of predictions by --out."""
    pytest.importorskip("shared")
    from shared.run import parse, read_flags

    from .. import predict
    from ..config import PRESETS, TrainConfig

    def stand_in(out: Path, config: TrainConfig) -> None:
        """A folder that a run can have as its base."""
        out.mkdir(parents=True)
        (out / "config.json").write_text(json.dumps(asdict(config)))

    def read(page: str) -> tuple[dict, dict]:
        text = (FOLDER / page).read_text(encoding="utf-8").replace("\\\n", "")
        monkeypatch.chdir(tmp_path)
        configs, outputs = {}, {}
        line = r"^python -m diminishing_attention\.(train|predict) (.*?)(?:  +#.*)?$"
        for module, flags in re.findall(line, text, re.M):
            if module == "predict":
                options = read_flags(predict.Options, shlex.split(flags))
                outputs[str(options.out)] = options
                continue
            config, out, _ = parse(shlex.split(flags), TrainConfig, PRESETS, "")
            configs[str(out)] = config
            stand_in(out, config)
        return configs, outputs

    return read


def test_own_data_trains_dim_attention_and_its_control(commands):
    configs, outputs = commands("README.md")
    dim, control = configs["runs/my-dim"], configs["runs/my-more"]
    assert dim == replace(control, diminishing="dim") and control.init == "runs/my"
    assert {option.run.name for option in outputs.values()} >= {"my-dim", "my-more"}


def test_d17_the_second_phases_and_table_4_are_the_papers(commands):
    """Section 4.2: 600 tokens, less than 10k updates, its search; See et al.: 3,000. D17."""
    configs, outputs = commands("PAPER.md")
    paper, phase = configs["runs/base"], dict(init="runs/base", steps=10_000)
    assert configs["runs/dim"] == replace(paper, diminishing="dim", max_source=600, **phase)
    # Table 4's caption
    assert configs["runs/dim-400"] == replace(configs["runs/dim"], max_source=400)
    assert configs["runs/cov"] == replace(paper, coverage=True, init="runs/base", steps=3000)
    assert configs["runs/abs-dim"].model == "bertsum-abs"
    searches = {
        "t4/cov": ("cov", 4, 0.0, False, 36, 100),
        "t4/only": ("dim-400", 6, 0.0, False, 36, 100),
        "t4/norm": ("dim-400", 6, 1.5, False, 36, 100),
        "t4/all": ("dim-400", 6, 1.5, True, 36, 100),
        "t1/abs": ("abs-dim", 5, 0.95, True, 51, 200),  # PreSumm's command
    }
    for name, wanted in searches.items():
        options = outputs[f"runs/{name}.jsonl"]
        assert (options.run.name, *options.search().values()) == wanted
