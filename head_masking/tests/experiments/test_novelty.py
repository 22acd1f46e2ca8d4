"""Gains by quartile of the references' novelty."""

import pytest

pytest.importorskip("shared")

from ...experiments.novelty import novelty, quartiles, table


def test_novelty_is_the_share_of_new_pairs():
    assert novelty("The cat sat. A dog ran", "the CAT ran away") == pytest.approx(2 / 3)
    assert novelty("a b", "b") == 0


def test_each_quartile_has_its_own_gain():
    shares = {str(i): i / 8 for i in range(8)}
    assert quartiles(shares)[0] == ("0-12", {"0", "1"})
    texts = {"": "a b c", "1:0": "x y z"}
    rows = [
        {"id": i, "prediction": text, "references": ["a b c" if i < "4" else "x y z"], "system": f"s{heads}", "seed": 0}
        | {"heads": heads}
        for heads, text in texts.items()
        for i in shares
    ]
    gains = [r["value"] for r in table(rows, shares) if r["metric"] == "rouge1" and r["minus"] == "s"]
    assert gains == [-100, -100, 100, 100]
