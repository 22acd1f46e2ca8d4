"""The words that a tagger selects, and how many are right."""

import json

import pytest

pytest.importorskip("shared")

from shared.data import load

from ...experiments.words import main, selected_words, tagging_counts
from ...labels import Tagged
from ...loading import load_run
from ..conftest import DATA


def test_token_f1_by_hand():
    """Oracle: "red cats" of five words; the tagger says cats, dogs and run. Special tokens do not count."""
    places = [(0, 0), (0, 3), (4, 8), (9, 12), (13, 17), (18, 21), (0, 0)]
    tagged = Tagged([0.9, 0.2, 0.6, 0.5, 0.7, 0.8, 0.9], places, 0.5)
    counts = dict(token_f1=[2, 5], precision=[1, 3], recall=[1, 2], selected=[3, 5])
    assert tagging_counts(tagged, "red cats and dogs run", "Red cats") == counts
    assert selected_words("red cats and dogs run", tagged) == "cats dogs run"


def test_rows_have_the_taggers_words_and_counts_under_its_own_labels(runs, capsys):
    main([str(runs / "weak-1"), DATA])
    rows, run = [json.loads(line) for line in capsys.readouterr().out.splitlines()], load_run(runs / "weak-1")
    stories = load(DATA, "test")
    assert [row["id"] for row in rows] == [story.id for story in stories]
    assert {(row["system"], row["seed"]) for row in rows} == {("weak", 1)}
    for row, story, tagged in zip(rows, stories, run.tag([story.source for story in stories]), strict=True):
        assert row["prediction"] == selected_words(story.source, tagged)
        assert row["recall"] == tagging_counts(tagged, story.source, story.target, min_run=2)["recall"]
