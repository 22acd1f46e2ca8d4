"""The demo: its corpus, what it prints at the end, and that it fails where the effect does not show."""

import json

import pytest

pytest.importorskip("shared")

from shared.data import load

from ...experiments import demo, facts


def test_stories_of_facts_have_two_that_belong_into_the_summary(tmp_path):
    """Word for word or reworded; with signal 1 the verbs tell which, with signal 0 as often the others."""
    for name, flags in (("plain", []), ("verbatim", ["--verbatim"])):
        facts.main([str(tmp_path / name), "--signal", "0", "1", "--count", "40", *flags])
    agree = {}
    for signal in ("0", "1"):
        plain, verbatim = (load(tmp_path / name / signal, "train") for name in ("plain", "verbatim"))
        said = []
        for story, same in zip(plain, verbatim, strict=True):
            assert len(story.document) == 4 and len(same.summary) == 2 and story.document == same.document
            told = [text for text in story.document if any(fact.removesuffix(" .") in text for fact in same.summary)]
            assert len(told) == 2 and len(story.pos[0]) == len(story.document[0].split())
            said += [any(verb in text.split() for verb in facts.CERTAIN) for text in told]
        agree[signal] = sum(said) / len(said)
    assert agree["1"] == 1 and agree["0"] < 0.8
    reworded = json.loads((tmp_path / "plain/1/test.jsonl").read_text().splitlines()[0])["summary"]
    assert all(text.startswith("in ") and " were " in text for text in reworded)


def test_the_demo_says_what_was_seen_and_fails_without_the_effect(runs, capsys):
    with pytest.raises(SystemExit) as stop:
        demo.main([str(runs / "base"), str(runs / "tagger"), "--limit", "3"])
    shown = capsys.readouterr()
    assert stop.value.code == 2 and "the effect does not show" in shown.err
    *lines, last = shown.out.splitlines()[-6:]
    assert [line.split(":")[0] for line in lines] == ["story", "may see", "no masks", "masked", "reference"]
    assert last.startswith("ROUGE-1 without masks") and last.endswith("0 with the tagger's")


def test_the_demo_shows_a_story_that_is_right_because_of_the_masks(runs, capsys, monkeypatch):
    """Of stories told right with masks the first that is wrong without them."""
    told = {"plain": "x", "plain+oracle": "r", "plain+tagger": "r"}

    def collect(decoded, settings, examples):
        assert list(settings) == list(told)
        texts = {name: [e.target if text == "r" else "some words" for e in examples] for name, text in told.items()}
        texts["plain"][0] = examples[0].target  # right without masks, too
        return texts

    monkeypatch.setattr(demo, "collect", collect)
    demo.main([str(runs / "base"), str(runs / "tagger"), "--limit", "12"])
    *_, plain, masked, reference, last = capsys.readouterr().out.splitlines()
    assert plain == "no masks:  some words" and masked.split(":  ")[-1].strip() == reference.split(": ")[-1].strip()
    assert "1 of 12 summaries exact without masks, 12 with the tagger's" in last
