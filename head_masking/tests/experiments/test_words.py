"""The words that a tagger selects."""

import json

import pytest

pytest.importorskip("shared")

from shared.data import load

from ...experiments.words import main, selected_words
from ...loading import load_run
from ...tagger import Tagged
from ..conftest import DATA


def test_selected_are_the_words_above_the_boundary(runs, capsys):
    places = [(0, 0), (0, 3), (4, 8), (9, 12), (13, 17), (18, 21), (0, 0)]
    tagged = Tagged([0.9, 0.2, 0.6, 0.5, 0.7, 0.8, 0.9], places, 0.5)
    assert selected_words("red cats and dogs run", tagged) == "cats dogs run"
    main([str(runs / "weak-1"), DATA])
    rows, run = [json.loads(line) for line in capsys.readouterr().out.splitlines()], load_run(runs / "weak-1")
    stories = load(DATA, "test")
    assert [row["id"] for row in rows] == [story.id for story in stories]
    assert {(row["system"], row["seed"]) for row in rows} == {("weak", 1)}
    tagged = run.tag([story.source for story in stories])
    assert [row["prediction"] for row in rows] == [
        selected_words(story.source, one) for story, one in zip(stories, tagged, strict=True)
    ]
