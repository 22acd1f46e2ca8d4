"""The demo's end: a story, its summary, the effect in one line, and an error where it does not show."""

from dataclasses import replace

import pytest

pytest.importorskip("shared")

from ...experiments import demo
from ...train import train
from ..test_train import SMALL


def test_the_demo_says_what_it_found_and_that_it_does_not_show(tmp_path, capsys, monkeypatch):
    train(replace(SMALL, steps=2), tmp_path / "base")
    train(replace(SMALL, steps=2, init=str(tmp_path / "base"), task="kl"), tmp_path / "kl")
    with pytest.raises(ValueError, match="the effect does not show"):
        demo.main(tmp_path / "base", tmp_path / "kl", limit=3)
    story, prediction, reference, line, exact = capsys.readouterr().out.splitlines()[-5:]
    assert story.startswith("story:") and prediction.startswith("prediction:") and reference.startswith("reference:")
    assert line.startswith("2 of ") and "by mean keys" in line and exact == "0 of 3 summaries are exactly right"
    names = ("base.full", "base.ideal", "base.mean_key", "base.random", "learned.approx")
    rows = [
        {"system": n, "metric": "rouge1", "minus": None, "value": v}
        for n, v in zip(names, (90, 89, 70, 40, 88), strict=True)
    ]
    monkeypatch.setattr(demo, "score", lambda _: rows)
    demo.main(tmp_path / "base", tmp_path / "kl", limit=3)
    assert "learned map: ROUGE-1 88.0; all sentences 90.0, ideally chosen 89.0, by" in capsys.readouterr().out
