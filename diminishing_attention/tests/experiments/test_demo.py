"""The demo: its texts, what its end prints, and that it fails where the effect does not show."""

from dataclasses import replace

import pytest

pytest.importorskip("shared")

from shared.data import load

from ...experiments import demo
from ...train import train
from ..conftest import SMALL


@pytest.fixture
def data(tmp_path, monkeypatch) -> str:
    """The demo's files, of a few texts."""
    monkeypatch.setattr(demo, "SPLITS", {"train": 20, "validation": 4, "test": 6})
    demo.main(["--write", str(tmp_path / "trips")])
    return str(tmp_path / "trips")


def test_a_summary_tells_each_trip_of_its_source_there_and_back(data):
    orders = set()
    for example in [e for split in ("train", "test") for e in load(data, split)]:
        there = [sentence.split()[:2] for sentence in example.document]
        assert sorted(f"{home} {goal} {home} ." for home, goal in there) == sorted(example.summary)
        assert len({place for trip in there for place in trip}) == 8
        orders.add(tuple(there.index(sentence.split()[:2]) for sentence in example.summary))
    assert len(orders) > 8 and len(load(data, "test")) == 6


def test_a_folder_of_other_texts_is_left_alone(data, tmp_path, capsys):
    demo.main(["--write", data])  # its own it writes again
    (tmp_path / "trips/test.jsonl").write_text('{"source": "mine", "target": "mine"}\n')
    with pytest.raises(SystemExit):
        demo.main(["--write", data])
    assert "test.jsonl holds other texts" in capsys.readouterr().err
    assert "mine" in (tmp_path / "trips/test.jsonl").read_text()


def test_the_demo_says_what_was_seen_and_fails_without_the_effect(data, tmp_path, capsys):
    for name, kind in (("more", "none"), ("dim", "dim")):
        train(replace(SMALL, data=data, diminishing=kind, steps=2), tmp_path / name)
    for runs, message in ((["more", "dim"], "the effect does not show"), (["more"], "give two runs")):
        with pytest.raises(SystemExit) as stop:
            demo.main([str(tmp_path / run) for run in runs])
        shown = capsys.readouterr()
        assert stop.value.code == 2 and message in shown.err
        if len(runs) == 2:
            source, prediction, reference, line = shown.out.splitlines()[-4:]
            assert source.startswith("source:") and prediction.startswith("prediction:")
            assert reference.startswith("reference:") and line.startswith("DimAttn: ")
            assert "% of the 3-grams repeated, without it" in line and line.endswith("of 6 told right")
