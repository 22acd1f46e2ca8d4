"""The demo's files are the lesson's trips."""

import json

import pytest

pytest.importorskip("shared")

from ...experiments import trips


def test_files_hold_trips_that_are_told_once_from_either_end(tmp_path, monkeypatch):
    monkeypatch.setattr(trips, "SPLITS", {"train": 3, "test": 2})
    trips.main(["--out", str(tmp_path)])
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert len(rows) == 3 and len((tmp_path / "test.jsonl").read_text().splitlines()) == 2
    for row in rows:
        told = [sentence.split() for sentence in row["summary"]]
        assert len(told) == 4 and all(words[0] == words[2] and words[3] == "." for words in told)
        assert {frozenset(words) for words in told} == {
            frozenset(sentence.split()) for sentence in row["document"]
        }
    with pytest.raises(SystemExit):
        trips.main(["--out", str(tmp_path)])  # the files exist
