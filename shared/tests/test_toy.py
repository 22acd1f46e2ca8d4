"""The toy corpus is what it says: rules written here read the stories, and find its truth."""

import itertools
import math
import re
from types import SimpleNamespace

import pytest

from shared.data import load
from shared.toy import CERTAIN, SPLITS, UNCERTAIN, VERBS

PENN = set("CC CD DT IN JJ NN NNS NNP PRP RB VBD VBN . ,".split())
SUMMARY_VERB = {told: verbs.split("/")[2] for verbs in VERBS for told in verbs.split("/")[:2]}
FIRST_MENTION = re.compile(r"\w+ (\w+) that ([A-Z]\w+ [A-Z]\w+) (\w+) (\w+) (\w+) in ([A-Z]\w+) ")


def stories(split, count, **knobs):
    values = [f"{name}={value}" for name, value in ({"count": count} | knobs).items()]
    return load(f"toy:{','.join(values)}", split)


def facts_of(story):
    """Each fact at its first mention: who, is its source certain, is it main, its summary."""
    facts = []
    for sentence, is_main in zip(story.document, story.salient, strict=True):
        if fact := FIRST_MENTION.match(sentence):
            cue, who, verb, number, things, place = fact.groups()
            summary = f"in {place} {number} {things} were {SUMMARY_VERB[verb]} by {who} ."
            certain = cue in CERTAIN
            facts.append(SimpleNamespace(who=who, certain=certain, main=is_main, summary=summary))
    return facts


def exact_share(stories):
    """Share of the stories whose summary has just the facts with a certain source."""
    right = 0
    for story in stories:
        right += story.summary == [fact.summary for fact in facts_of(story) if fact.certain]
    return right / len(stories)


def repeats(story):
    """The sentences that tell a fact again."""
    told = [text for text in story.document if {*CERTAIN, *UNCERTAIN} & set(text.split())]
    return [text for text in told if not FIRST_MENTION.match(text)]


def chance_score(stories, mark):
    """By how many standard deviations more marks of facts than by chance fall on main ones."""
    surplus = variance = 0.0
    for story in stories:
        facts = facts_of(story)
        marks, main = [mark(story, fact) for fact in facts], [fact.main for fact in facts]
        n, k, m = len(facts), sum(marks), sum(main)
        surplus += sum(a and b for a, b in zip(marks, main, strict=True)) - k * m / n
        variance += k * m / n * (1 - m / n) * (n - k) / (n - 1)  # hypergeometric
    return surplus / math.sqrt(variance)


def test_a_story_depends_on_seed_split_and_number_alone():
    assert stories("test", 3) == stories("test", 9)[:3] == load("toy", "test", limit=3)
    told = []
    for split, seed in itertools.product(SPLITS, (0, 1)):
        told.append([story.document for story in stories(split, 3, seed=seed)])
    assert all(one != other for one, other in itertools.combinations(told, 2))


def test_a_fact_is_told_before_it_is_told_again():
    for story in stories("train", 100, repetition=1, max_sentences=30):
        assert repeats(story)
        for fact in facts_of(story):
            telling = [text for text in story.document if fact.who in text]
            assert [bool(FIRST_MENTION.match(text)) for text in telling].index(True) == 0


@pytest.mark.parametrize(
    "knobs",
    [
        {"repetition": 0.6, "signal": 0.5},
        {
            "min_sentences": 40,
            "max_sentences": 40,
            "min_facts": 4,
            "max_facts": 4,
            "repetition": 1.0,
        },
        {"max_sentences": 8, "min_facts": 4, "max_facts": 4, "other_facts": 6, "names": 10},
    ],
)
def test_tags_and_salient_sentences(knobs):
    for story in stories("train", 40, **knobs):
        assert len(story.summary) == sum(fact.main for fact in facts_of(story))
        rows = zip(story.document, story.salient, story.pos, strict=True)
        for sentence, is_salient, tags in rows:
            words = sentence.split()
            assert " ".join(words) == sentence and type(sentence) is str
            wanted = [set(text.split()) - {"in", "were", "by", "."} for text in story.summary]
            # two names, number, object, place
            assert is_salient == any(len(set(words) & own) == 5 for own in wanted)
            for before, word, tag in zip(["", *words], words, tags, strict=False):
                assert tag in PENN and (tag == "NNP") == word[0].isupper()
                assert tag != "VBD" or before not in ("had", "were")


@pytest.mark.parametrize("knobs", [{}, {"max_sentences": 40, "max_facts": 4, "repetition": 0.5}])
def test_summary_is_a_function_of_the_text_at_full_signal(knobs):
    told = stories("test", 100, **knobs)
    assert exact_share(told) == 1.0
    assert {len(story.summary) for story in told} <= {2, 3, 4}
    # there is something to choose: facts of the same form that the rule must leave
    for story in told:
        facts = facts_of(story)
        assert 0 < sum(fact.certain for fact in facts) < len(facts)
        assert all(fact.certain == fact.main for fact in facts)


def test_not_without_signal_does_the_text_tell():
    """Neither the sources' verbs, nor the place, nor the repetition."""
    told = stories("train", 250, signal=0.0)
    assert exact_share(told) < 0.3 < exact_share(stories("train", 250, signal=0.6)) < 0.8
    for mark in (
        lambda story, fact: fact.certain,
        lambda story, fact: fact.who in story.document[0],
        lambda story, fact: any(fact.who in text for text in repeats(story)),
    ):
        assert abs(chance_score(told, mark)) < 5
    for facts in map(facts_of, told):  # shuffled, not lost
        assert sum(fact.certain for fact in facts) == sum(fact.main for fact in facts)


@pytest.mark.parametrize(
    "knobs, says",
    [
        (
            "max_facts=2.5",
            r"invalid literal .*knobs, as in toy:seed=1,count=9: min_sentences \(int\)",
        ),
        ("names=9", "names is 9; it must be from 10 to 96"),
        ("colour=red", "toy: 'colour'; .*knobs"),
        ("min_facts=4", "toy: min_facts 4 is above max_facts 3"),
        ("min_sentences=20", "toy: min_sentences 20 is above max_sentences 12"),
        ("count=-1", "count is -1; it must be from 0 to"),
        ("", "toy: no split 'dev2'; splits: train, validation, test"),
    ],
)
def test_bad_knobs_are_refused(knobs, says):
    with pytest.raises(ValueError, match=says):
        load(f"toy:{knobs}", "dev2" if not knobs else "test")
