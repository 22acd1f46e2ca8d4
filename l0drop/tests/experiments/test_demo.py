"""The demo's end: what it prints, and that it fails where the effect does not show."""

from dataclasses import replace

import pytest

pytest.importorskip("shared")

from ...experiments.demo import main
from ...train import train
from ..test_train import SMALL


def test_the_demo_says_what_was_seen_and_fails_without_the_effect(tmp_path, capsys):
    for name, place in (("base", "none"), ("l0", "output")):
        train(replace(SMALL, l0drop=place, steps=2, average_last=1), tmp_path / name)
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path / "base"), str(tmp_path / "l0"), "--limit", "3"])
    shown = capsys.readouterr()
    assert stop.value.code == 2 and "the effect does not show" in shown.err
    story, prediction, reference, line = shown.out.splitlines()[-4:]
    assert story.startswith("story:") and prediction.startswith("prediction:") and reference.startswith("reference:")
    assert "% of the encodings pruned: ROUGE-1" in line and line.endswith("0 of 3 summaries exact")
