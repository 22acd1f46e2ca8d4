"""What the README shows can be pasted and works."""

import re
import shlex
from pathlib import Path

import pytest
import torch

from ..diminishing import Diminishing

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_example_of_copy_it_runs_and_its_steps_are_the_whole():
    torch.manual_seed(0)
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    package = __package__.removesuffix(".tests")  # the folder may have another name
    names: dict = {}
    exec(code.replace("from diminishing_attention.", f"from {package}."), names)
    assert torch.equal(names["weights"], Diminishing("dydim").sequence(names["attention"]))
    torch.testing.assert_close(names["state"].coverage, names["attention"].sum(1))
    torch.testing.assert_close(names["state"].peak, names["attention"].amax(1))


def test_the_commands_parse():
    """Every train and evaluate command of the README has flags that exist, with values that are allowed."""
    pytest.importorskip("shared")
    from ..evaluate import parse as parse_evaluate
    from ..train import parse as parse_train

    commands = re.findall(r"^python -m diminishing_attention\.(train|evaluate) (.*?)(?:  +#.*)?$", README, re.MULTILINE)
    assert len(commands) > 8
    for module, arguments in commands:
        (parse_train if module == "train" else parse_evaluate)(shlex.split(arguments))


def test_the_two_lines_of_ones_own_data_load(tmp_path):
    pytest.importorskip("shared")
    from shared.data import load

    lines = re.findall(r'^\{"(?:source|id)".*\}$', README, re.MULTILINE)
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    examples = load(tmp_path / "own.jsonl")
    assert [example.target for example in examples] == ["A storm hit Norwick.", "Floods closed two bridges ."]
