"""The demo's files are the lesson's trips, and its first run has torch's initial values."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("shared")

from shared.data import in_sentences, load

from ...experiments import trips
from ...loading import begin, load_run


def test_files_hold_trips_that_are_told_once_from_either_end(tmp_path, monkeypatch):
    monkeypatch.setattr(trips, "SPLITS", {"train": 3, "test": 2})
    flags = ["--out", str(tmp_path), "--start", str(tmp_path / "start"), "--seed", "3"]
    trips.main(flags)
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert len(rows) == 3 and len((tmp_path / "test.jsonl").read_text().splitlines()) == 2
    for row in rows:
        told = [sentence.split() for sentence in row["summary"]]
        assert len(told) == 4 and all(words[0] == words[2] and words[3] == "." for words in told)
        assert {frozenset(words) for words in told} == {frozenset(sentence.split()) for sentence in row["document"]}
    run = load_run(tmp_path / "start")
    assert run.model.encoder.embedding.weight.std() > 0.5 and run.model.decoder.lstm.weight_hh.abs().max() > 0.1
    assert begin(replace(run.config, init=str(tmp_path / "start")), []).config.seed == 3
    (item,) = run.encode(in_sentences(load(str(tmp_path), "train", 1)))
    assert not item.unknown  # the vocabulary has all words
    with pytest.raises(SystemExit):
        trips.main(flags)  # the files exist
