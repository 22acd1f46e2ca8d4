"""What needs no model: the demo's files, which are the lesson's trips, and the baselines."""

import json

import pytest

pytest.importorskip("shared")

from shared.data import load

from ...experiments import baselines, trips


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
    splits = [(tmp_path / f"{split}.jsonl").read_text().splitlines() for split in trips.SPLITS]
    assert set(splits[0]).isdisjoint(splits[1])  # nothing is scored that was trained on
    with pytest.raises(SystemExit):
        trips.main(["--out", str(tmp_path)])  # the files exist


@pytest.mark.parametrize("lead", [1, 5])
def test_the_lead_has_as_many_sentences_as_its_name_says(tmp_path, lead):
    data = "toy:count=3,seed=5"
    baselines.main(["--data", data, "--out", str(tmp_path), "--lead", str(lead)])
    lines = (tmp_path / f"lead-{lead}.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    documents = [example.document for example in load(data, "test")]
    assert all(len(document) > 5 for document in documents)
    assert [row["prediction"].split("\n") for row in rows] == [d[:lead] for d in documents]
    assert all(row["lead_rouge1"] == [1, 1] for row in rows)
