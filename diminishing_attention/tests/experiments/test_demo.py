"""The demo: its texts, what its end prints, and that it fails where the effect does not show."""

from dataclasses import replace

import pytest

pytest.importorskip("shared")

from shared.data import load

from ...experiments import demo
from ...train import train
from ..conftest import SMALL


def test_the_demo_writes_trips_and_says_what_was_seen(tmp_path, capsys, monkeypatch):
    """A summary tells each trip of its source there and back; without the effect the demo fails."""
    monkeypatch.setattr(demo, "SPLITS", {"train": 20, "validation": 4, "test": 6})
    data, orders = str(tmp_path / "trips"), set()
    demo.main(["--write", data])
    for example in [e for split in ("train", "test") for e in load(data, split)]:
        there = [sentence.split()[:2] for sentence in example.document]
        assert sorted(f"{home} {goal} {home} ." for home, goal in there) == sorted(example.summary)
        assert len({place for trip in there for place in trip}) == 8
        orders.add(tuple(there.index(sentence.split()[:2]) for sentence in example.summary))
    assert len(orders) > 8 and len(load(data, "test")) == 6
    for name, kind in (("more", "none"), ("dim", "dim")):
        train(replace(SMALL, data=data, diminishing=kind, steps=2), tmp_path / name)
    with pytest.raises(SystemExit):
        demo.main([str(tmp_path / "more"), str(tmp_path / "dim")])
    shown = capsys.readouterr()
    line = shown.out.splitlines()[-1]
    assert "% of the 3-grams repeated, without it" in line and line.endswith("of 6 told right")
    assert "the effect does not show" in shown.err
