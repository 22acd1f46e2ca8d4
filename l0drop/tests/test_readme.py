"""What the README shows can be pasted and works."""

import re
from pathlib import Path

import torch


def test_the_example_of_copy_it_runs_and_equals_dense_attention():
    """Its attention over the compressed memory equals attention over all gated states."""
    torch.manual_seed(0)
    text = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    package = __package__.removesuffix(".tests")
    names: dict = {}
    # the folder may have another name
    exec(code.replace("from l0drop import", f"from {package} import"), names)
    assert (names["gates"] == 0).any()
    dense = (names["queries"] @ names["gated"].mT / 512**0.5).softmax(-1) @ names["gated"]
    torch.testing.assert_close(names["attended"], dense, atol=1e-5, rtol=1e-4)
    assert names["loss"].requires_grad
