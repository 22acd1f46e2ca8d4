"""The corpora of the scripts."""

import json

import pytest

pytest.importorskip("shared")

from shared.data import Example, load

from ...experiments import data


def ids(folder, split):
    return [example.id for example in load(str(folder), split)]


def write_dialogues(folder, **sizes):
    folder.mkdir()
    for split, count in sizes.items():
        lines = []
        for i in range(count):
            text = {"document": ["hi .", f"we meet {i}", "ok"], "summary": f"at {i}"}
            lines.append(json.dumps({"id": f"{split}-{i}"} | text))
        (folder / f"{split}.jsonl").write_text("\n".join(lines))


def test_dialogues_are_divided_as_the_text_says(tmp_path):
    """By the sizes of SAMSum and of DialogSum's sample.

    400 and 418 of 818 dialogues, 240 and 60 of 300.
    """
    write_dialogues(tmp_path / "sam", train=5, validation=818, test=2)
    write_dialogues(tmp_path / "other", train=300, validation=4)
    data.samsum(tmp_path / "out", str(tmp_path / "sam"), dialogsum=str(tmp_path / "other"))
    names, out = [f"validation-{i}" for i in range(818)], tmp_path / "out"
    assert ids(out / "sam", "train") == [f"train-{i}" for i in range(5)]
    assert (ids(out / "sam", "test"), ids(out / "sam", "validation")) == (names[:400], names[400:])
    assert ids(out / "sam-test", "test") == ["test-0", "test-1"]
    turns = load(str(out / "turns-data"), "train")
    assert [turn.id for turn in turns] == [f"train-{i}-{n}" for i in range(5) for n in range(4)]
    said = {sentence for turn in turns for sentence in turn.summary}
    assert said == {f"we meet {i}" for i in range(5)}  # the one turn of three words
    assert ids(out / "turns-data", "validation") == [f"{name}-0" for name in names[400:]]
    assert ids(out / "dialogues", "train") == [f"train-{i}" for i in range(240)]
    assert ids(out / "dialogues", "validation") == [f"train-{i}" for i in range(240, 300)]
    assert ids(out / "dialogues", "test") == names[:4]


def test_the_summary_is_the_first_three_salient_sentences_of_the_first_250_words():
    # the sixth would end beyond the 250th word
    document = ["a b .", "c .", "d .", "e .", "f .", "word " * 241, "g ."]
    for salient, summary in (
        ([False, True, True, False, True, True, True], ["c .", "d .", "f ."]),
        ([False, True, True, False, False, True, True], None),  # two are left
        ([True] * 7, document[:3]),
    ):
        rows = data.short([Example("a", document, document[:1], [document[:1]], salient=salient)])
        found = [(row.id, row.document, row.references) for row in rows]
        assert found == ([("a", document[:5], [summary])] if summary else [])


def test_stories_of_facts_have_two_that_belong_into_the_summary(tmp_path, monkeypatch):
    """Word for word or reworded.

    With signal 1 the verbs tell which, with signal 0 as often the others.
    """
    for split in data.SPLITS:
        monkeypatch.setitem(data.SPLITS, split, 40)
    for name in ("plain", "verbatim"):
        data.toy(tmp_path / name, signal=(0, 1), verbatim=name == "verbatim")
    agree = {}
    for signal in ("0", "1"):
        ways = ("plain", "verbatim")
        plain, verbatim = (load(tmp_path / way / signal, "train") for way in ways)
        said = []
        for story, same in zip(plain, verbatim, strict=True):
            assert len(story.document) == 4 and story.document == same.document
            facts = [fact.removesuffix(" .") for fact in same.summary]
            told = [text for text in story.document if any(fact in text for fact in facts)]
            assert len(facts) == len(told) == 2 and len(story.pos[0]) == len(
                story.document[0].split()
            )
            said += [any(verb in text.split() for verb in data.CERTAIN) for text in told]
        agree[signal] = sum(said) / len(said)
    assert agree["1"] == 1 and agree["0"] < 0.8
