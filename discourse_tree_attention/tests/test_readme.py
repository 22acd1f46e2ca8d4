"""What the README shows can be pasted and works."""

import re
from pathlib import Path

import torch

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_example_of_copy_it_runs():
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = {}
    exec(block.replace("from discourse_tree_attention ", f"from {__package__.removesuffix('.tests')} "), names)
    torch.testing.assert_close(names["matrix"][0], torch.tensor([[3 / 4, 1 / 4], [1 / 3, 2 / 3]]))
    assert names["scores"].shape == (1, 2) and names["scores"].isfinite().all()
