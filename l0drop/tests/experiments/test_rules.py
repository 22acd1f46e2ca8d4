"""The rules of Section 7, and the types of source units: by hand, from tags to runs."""

import json
import sys
import types

import pytest

pytest.importorskip("shared")

from shared.data import load  # noqa: E402

from ... import loading  # noqa: E402
from ...experiments import rules  # noqa: E402
from ...model import EOS  # noqa: E402
from ...text import encode_examples, train_tokenizer  # noqa: E402
from ..conftest import example, log, same_weights  # noqa: E402

DATA = "toy:count=12,seed=9"

# Footnote 9


@pytest.mark.parametrize(
    "group, tags",
    [
        ("function", "CC IN RP TO UH DT WP WP$"),
        ("content", "MD JJ JJR JJS NN NNS NNP NNPS RB RBR RBS VB VBD VBG VBN VBP VBZ"),
        ("punctuation", "-LRB- -RRB- HYPH NFP `` '' , . :"),
        ("other", "CD EX FW SYM PRP PRP$ PDT POS WDT WRB LS $ # ADD"),
    ],
)
def test_groups_of_footnote_9(group, tags):
    """The paper's tags and the finer Penn tags that start with them; everything else is "other"."""
    assert {rules.tag_group(tag) for tag in tags.split()} == {group}


def test_types_of_units():
    """A segmented word is BPEH then BPEO whatever its tag; a whole word has its tag's group."""
    words = [0, 1, 1, 1, 2, 3, 3, 4, 5]
    tags = ["DT", "NN", "NN", "NN", "VBZ", ".", ".", "CD", ","]
    expected = ["function", "BPEH", "BPEO", "BPEO", "content", "BPEH", "BPEO", "other", "punctuation"]
    assert rules.unit_types(words, tags) == expected
    assert set(expected) == set(rules.UNIT_TYPES)


def test_pos_pattern():
    """Section 7: drops function words, punctuation, BPEO, and words tagged MD or EX; keeps all else."""
    cases = [  # word, tag, kept
        (0, "DT", False), (1, "NN", True), (1, "NN", False), (2, "MD", False), (3, "EX", False), (4, "VB", True),
        (5, ".", False), (6, "CD", True), (7, "MD", True), (7, "MD", False), (8, "IN", True), (8, "IN", False),
    ]  # fmt: skip
    tags = [tag for _, tag, _ in cases]
    types = rules.unit_types([word for word, _, _ in cases], tags)
    assert rules.keep_pos(types, tags) == [kept for _, _, kept in cases]


def test_tags_come_from_the_token_of_the_first_character():
    """Spans that are longer or shorter than units; a gap is an error that names the place."""
    spans = [(0, 3, "DT"), (4, 9, "NN"), (9, 10, ".")]
    assert rules.tags_of_units([0, 2, 4, 8, 9], spans) == ["DT", "DT", "NN", "NN", "."]
    for gap in (3, 10):
        with pytest.raises(ValueError, match=f"no part-of-speech tag covers character {gap};"):
            rules.tags_of_units([0, gap], spans)


# Frequency


CORPUS = [[7, 7, 7, 7, 8], [7, 7, 8, 8, 9], [10, 9, 11, 12, 8], [7, 13, 7, 8, 9]]  # 7: 8, 8: 5, 9: 3, 10-13: 1 each


@pytest.mark.parametrize("share, dropped", [(0.39, set()), (0.41, {7}), (0.64, {7}), (0.66, {7, 8}), (0.81, {7, 8, 9})])
def test_d5_most_frequent_units_up_to_a_share(share, dropped):
    """D5: from the top, whole units, as long as they cover at most the share of the 20 running units."""
    assert rules.dropped_by_frequency(CORPUS, share) == dropped


@pytest.mark.parametrize("share, count, more", [(0.04, 0, set()), (0.21, 4, {10, 11, 12, 13}), (0.36, 5, {9, 10})])
def test_d5_rarest_units_up_to_a_share(share, count, more):
    """D5: from the bottom; what Inv Freq drops first, Freq drops last."""
    dropped = rules.dropped_by_frequency(CORPUS, share, rarest=True)
    assert len(dropped) == count and more <= dropped and 7 not in dropped


def test_section_7_the_shares_of_freq_and_inv_freq():
    """Section 7: the 100 most frequent words cover 46.3 % of the training source, those beyond rank 452 40.0 %."""
    assert rules.SHARES == {"freq": 0.463, "inv_freq": 0.40}


# Units and tags


def test_units_begin_after_their_blank(words, characters):
    """Offsets count characters of the text as given; a unit that is only the blank begins at the next word."""
    source = "the cat sat, früh."
    for tokenizer in (words, characters):
        starts, tokens = rules.unit_starts(tokenizer.encode(source), source), tokenizer.encode(source).tokens
        for start, token in zip(starts, tokens, strict=True):
            assert source[start:].startswith(token.lstrip("▁")) and not source[start].isspace()
        assert starts == sorted(starts)


def test_tags_of_the_corpus(words):
    """Tags that come with a corpus, sentence by sentence, reach the units; subwords have their word's."""
    assert rules.label_spans(["the", "cat", "."], ["DT", "NN", "."]) == [(0, 3, "DT"), (4, 7, "NN"), (8, 9, ".")]
    corpus = [example("the mother sat on", pos=[["DT", "NN"], ["VBD", "IN"]])]
    types, tags = rules.source_types(words.encode(corpus[0].source), corpus[0].source, rules.tag_sources(corpus)[0])
    pieces = len(words.encode("the mother").ids) - 1
    assert tags == ["DT", *["NN"] * pieces, "VBD", "IN"]
    assert types == ["function", "BPEH", *["BPEO"] * (pieces - 1), "content", "function"]


def test_d9_no_rule_drops_the_end(words):
    """D9: EOS is kept, by Group at an even position and by a frequency rule that names it too."""
    corpus = [example("the cat sat", pos=[["DT", "NN", "VBD"]])]  # EOS is fourth

    def kept(*rule):
        return list(encode_examples(corpus, words, 9, 9, rules.Rule(*rule))[0].rule_keep)

    assert kept("group", set()) == [True, False, True, True]
    assert kept("freq", {EOS, words.token_to_id("▁cat")}) == [True, False, True, True]
    assert kept("pos", set()) == [False, True, True, True]


# Runs with a rule


@pytest.fixture
def freq(whole, tmp_path):
    flags = ["--init", str(whole["base"]), "--steps", "2", "--average-last", "1", "--max-source", "20"]
    rules.main(["train", "--rule", "freq", "--out", str(tmp_path / "freq-0"), *flags])
    return tmp_path / "freq-0"


def test_a_rule_goes_the_whole_way(whole, freq, tmp_path, capsys):
    """Trained from a baseline, whose own set of dropped units is empty; resumed; what it drops is counted."""
    run = rules.load_run(freq)
    assert run.rule.dropped and run.first_step == 6
    rules.main(["train", "--out", str(freq), "--resume", "--steps", "3"])
    assert rules.load_run(freq).rule.dropped == run.rule.dropped
    assert "experiments.rules predict" in capsys.readouterr().out
    stories = load(DATA, "test", 3)
    (tmp_path / "in.txt").write_text("".join(f"{story.source}\n" for story in stories))
    rules.main(["predict", str(freq), str(tmp_path / "in.txt"), "--out", str(tmp_path / "o.jsonl")])
    written = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    rows = list(rules.predict(run, stories))
    assert [row["pruned"] for row in written] == [row["pruned"] for row in rows] and written[0]["system"] == "freq"
    for story, row in zip(stories, rows, strict=True):
        ids = run.tokenizer.encode(story.source).ids[:19]
        assert row["pruned"] == [sum(token in run.rule.dropped for token in ids), 20]
        assert sum(row[f"pruned_{name}"][0] for name in rules.UNIT_TYPES) == row["pruned"][0]
    assert log(freq)[0]["sources_cut"] == 24


def test_what_a_rule_drops_is_hidden_in_training(whole, tmp_path):
    """D8: the same training without the rule ends elsewhere."""
    flags = ["--init", str(whole["base"]), "--steps", "2", "--average-last", "1"]
    for rule in ("none", "group"):
        rules.main(["train", "--rule", rule, "--out", str(tmp_path / rule), *flags])
    assert not same_weights(tmp_path / "none", tmp_path / "group")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["train", "--out", "x", "--rule", "pos"], "--rule pos takes the place of the gates: add --l0drop none"),
        (["evaluate"], "Begin with train or predict"),
        ([], "Begin with train or predict"),
    ],
)
def test_bad_input_is_one_line(capsys, flags, message):
    with pytest.raises(SystemExit) as stop:
        rules.main(flags)
    error = capsys.readouterr().err
    assert stop.value.code == 2 and message in error and error.count("\n") == 1


def test_a_run_with_a_rule_is_none_of_the_core(freq):
    """Its encodings would not be dropped there."""
    with pytest.raises(ValueError, match="is not a run folder of this package"):
        loading.load_run(freq)


def test_types_follow_the_words(whole):
    """Full stops are punctuation, "in" is a function word; a row for each example, in its own words."""
    run, stories = rules.load_run(whole["scratch"]), load(DATA, "test")[:3]
    rows = {row["id"]: row for row in rules.predict(run, stories)}
    for story in stories:
        tokens, row = run.tokenizer.encode(story.source).tokens, rows[story.id]
        total = sum(row[f"pruned_{name}"][1] for name in rules.UNIT_TYPES)
        assert total == len(tokens) == row["pruned"][1] - 1
        assert row["pruned_punctuation"][1] >= tokens.count("▁.") > 0


def test_count_by_type_leaves_out_the_end():
    counts = rules.count_by_type([True, False, True, True], ["function", "content", "function"])
    assert counts["pruned_function"] == [2, 2] and counts["pruned_content"] == [0, 1]
    assert counts["pruned_punctuation"] == [0, 0]


def test_stanza_tags_are_placed_by_character(monkeypatch):
    """Sources without tags go through Stanza, whose tokens carry character offsets; here a stand-in for it."""

    class Pipeline:
        def __init__(self, language, **options):
            if options.get("dir") == "missing":
                raise FileNotFoundError("resources.json")
            assert options["download_method"] is None  # never the network

        def bulk_process(self, documents):
            def token(start, end, tag):
                return types.SimpleNamespace(start_char=start, end_char=end, words=[types.SimpleNamespace(xpos=tag)])

            sentence = types.SimpleNamespace(tokens=[token(0, 3, "DT"), token(4, 8, "NNS"), token(8, 9, ".")])
            return [types.SimpleNamespace(sentences=[sentence]) for _ in documents]

    stanza = types.ModuleType("stanza")
    stanza.Pipeline, stanza.Document = Pipeline, lambda sentences, text: text
    monkeypatch.setitem(sys.modules, "stanza", stanza)
    untagged = [example("The dogs.", "x")]
    tokenizer = train_tokenizer(["The dogs. The dogs."], "bpe", 60)
    spans = rules.tag_sources(untagged)
    assert spans == [[(0, 3, "DT"), (4, 8, "NNS"), (8, 9, ".")]]
    assert rules.source_types(tokenizer.encode("The dogs."), "The dogs.", spans[0]) == (
        ["function", "content", "punctuation"],
        ["DT", "NNS", "."],
    )
    item = encode_examples(untagged, tokenizer, 10, 10, rules.Rule("pos", set()))[0]
    assert list(item.rule_keep) == [False, True, False, True] and item.source[-1] == EOS
    with pytest.raises(ValueError, match="stanza.download"):
        rules.tag_sources(untagged, "missing")
    rules.stanza_pipeline.cache_clear()
    monkeypatch.setitem(sys.modules, "stanza", None)
    with pytest.raises(ImportError, match="pip install stanza"):
        rules.tag_sources(untagged)
