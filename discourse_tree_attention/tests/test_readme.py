"""What the README shows can be pasted and works."""

import re
from pathlib import Path

import torch

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_example_of_use_it_runs():
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict = {}
    block = block.replace("from discourse_tree_attention.", f"from {__package__.removesuffix('.tests')}.")
    exec(block.replace('"discourse_tree_attention/', f'"{README.parent.as_posix()}/'), names)
    # EDU 2 of storm.dis is a Nucleus in a Nucleus: 1 + 2 + 2 constituents with itself, 1 + 2 with EDU 1.
    torch.testing.assert_close(names["matrix"][0, 1], torch.tensor([3.0, 5, 1, 1, 1, 1]) / 12)
    assert names["scores"].shape == (1, 6) and names["scores"].isfinite().all()
