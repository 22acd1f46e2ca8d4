"""The rules of Section 7, and the types of source units: by hand, from tags to runs."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("shared")

from shared.data import load
from shared.run import check

from ... import loading
from ...experiments import rules
from ...model import EOS, PAD
from ...text import train_tokenizer
from .. import reference
from ..conftest import example, same_weights


def test_groups_of_footnote_9():
    """The paper's tags and the finer Penn tags that start with them; everything else is "other"."""
    groups = {
        "function": "CC IN RP TO UH DT WP WP$",
        "content": "MD JJ JJR JJS NN NNS NNP NNPS RB RBR RBS VB VBD VBG VBN VBP VBZ",
        "punctuation": "-LRB- -RRB- HYPH NFP `` '' , . :",
        "other": "CD EX FW SYM PRP PRP$ PDT POS WDT WRB LS $ # ADD",
    }
    for group, tags in groups.items():
        assert set(rules.unit_types(range(len(tags.split())), tags.split())) == {group}


def test_types_of_units():
    """A segmented word is BPEH then BPEO whatever its tag; a whole word has its tag's group."""
    words = [0, 1, 1, 1, 2, 3, 3, 4, 5]
    tags = ["DT", "NN", "NN", "NN", "VBZ", ".", ".", "CD", ","]
    expected = "function BPEH BPEO BPEO content BPEH BPEO other punctuation".split()
    assert rules.unit_types(words, tags) == expected and set(expected) == set(rules.UNIT_TYPES)


def test_pos_pattern():
    """Section 7: drops function words, punctuation, BPEO, and whole words tagged MD or EX."""
    words = [0, 1, 1, 2, 3, 4, 5, 6, 7, 7, 8, 8]
    tags = "DT NN NN MD EX VB . CD MD MD IN IN".split()
    kept = rules.keep_pos(rules.unit_types(words, tags), tags)
    assert [place for place, is_kept in enumerate(kept) if is_kept] == [1, 5, 7, 8, 10]


# 7: 8, 8: 5, 9: 3, 10-13: 1 each
CORPUS = [[7, 7, 7, 7, 8], [7, 7, 8, 8, 9], [10, 9, 11, 12, 8], [7, 13, 7, 8, 9]]


def dropped(rule: str, share: float = 0) -> frozenset[int]:
    """Which units of CORPUS, and of three others, a rule drops."""
    tokenizer = SimpleNamespace(get_vocab_size=lambda: 3)
    tokenizer.encode_batch = lambda sources: [SimpleNamespace(ids=source) for source in sources]
    config = rules.RuleConfig(rule=rule, share=share)
    return rules.dropped_units(config, list(map(example, CORPUS)), tokenizer)


def test_d5_units_up_to_a_share():
    """D5: whole units from the top, or the bottom, within the share of the 20 running units."""
    # 0: as in Section 7
    for share, units in [(0.39, set()), (0.41, {7}), (0.64, {7}), (0.81, {7, 8, 9}), (0, {7})]:
        assert dropped("freq", share) == units
    rare = {0, 1, 2, 10, 11, 12, 13}
    for share, units in [(0.04, {0, 1, 2}), (0.21, rare), (0.36, rare | {9}), (0, rare | {9})]:
        assert dropped("inv_freq", share) == units
    # Section 7: ranks to 100, and beyond 452
    assert rules.SHARES == {"freq": 0.463, "inv_freq": 0.40}
    assert not dropped("group")


# Units and tags


def test_tags_of_the_corpus(words, characters):
    """Sentence by sentence they reach the units; subwords and blanks have their word's."""
    corpus = [example("the mother sat on", pos=[["DT", "NN"], ["VBD", "IN"]])]
    assert rules.tag_sources(corpus) == [([3, 10, 14, 17], ["DT", "NN", "VBD", "IN"])]
    types, tags = rules.source_types(words.encode(corpus[0].source), *rules.tag_sources(corpus)[0])
    pieces = len(words.encode("the mother").ids) - 1
    assert tags == ["DT", *["NN"] * pieces, "VBD", "IN"]
    assert types == ["function", "BPEH", *["BPEO"] * (pieces - 1), "content", "function"]
    _, tags = rules.source_types(characters.encode("the cat on"), [3, 7], "ab")
    # a blank belongs to the next word; what follows the last tag has none
    assert tags == [*"aaaabbbb", "", "", ""]


def kept(words, corpus, rule: str, dropped=()) -> list[bool]:
    """Which encodings of the first source a rule keeps."""
    model = SimpleNamespace(dropped=dropped)
    run = rules.RuleRun(rules.RuleConfig(rule=rule), model, words)
    return [token < rules.DROPPED for token in run.encode(corpus)[0].source]


def test_d9_no_rule_drops_the_end(words):
    """D9: EOS is kept, by Group at an even position and by a frequency rule that names it too."""
    corpus = [example("the cat sat", pos=[["DT", "NN", "VBD"]])]  # EOS is fourth
    assert kept(words, corpus, "group") == [True, False, True, True]
    named = {EOS, words.token_to_id("▁cat")}
    assert kept(words, corpus, "freq", named) == [True, False, True, True]
    assert kept(words, corpus, "pos") == [False, True, True, True]


# Runs with a rule


@torch.no_grad()
def test_d8_what_a_rule_drops_has_no_influence(make_model, ragged, targets):
    """D8: dropped encodings are not attended to, and no dummy stands for them."""
    base = make_model(l0drop="none")
    model = rules.ruled(base, ())
    dropped = torch.arange(9).expand(4, 9) % 2 == 1
    source = ragged + rules.DROPPED * (dropped & (ragged != PAD))
    encoding = model.encode(source)
    memories = model.dense(encoding), model.pruned(encoding)
    forms = [model.decode(targets, model.project(memory))[0] for memory in memories]
    torch.testing.assert_close(*forms, rtol=0, atol=1e-5)
    kept = memories[1]
    assert kept.states.size(1) == 5 and torch.equal(kept.states[0], encoding.states[0, ::2])
    assert torch.equal((kept.log_counts == 0).sum(1), (~dropped & encoding.keep).sum(1))
    w, tokens = reference.numpy_weights(base), ragged[0].tolist()
    left = reference.encode(w, tokens, 2, 4)[::2]
    expected = reference.decode(w, targets[0].tolist(), left, 2, 4)
    torch.testing.assert_close(forms[0][0].double(), torch.tensor(expected), rtol=0, atol=1e-4)
    assert torch.equal(model(source, targets)[0], forms[0])


def test_a_rule_goes_the_whole_way(whole, tmp_path, capsys):
    """Trained from a baseline, resumed, read; its output says how much was dropped."""
    freq = tmp_path / "freq-0"
    flags = f"--init {whole['base']} --steps 2 --average-last 1 --max-source 20 --out {freq}"
    rules.main(["train", "--rule", "freq", *flags.split()])
    run = rules.load_run(freq)
    assert run.model.dropped and run.first_step == 6
    rules.main(["train", "--out", str(freq), "--resume", "--steps", "3"])
    assert rules.load_run(freq).model.dropped == run.model.dropped
    said = capsys.readouterr().out
    assert "sources are cut to --max-source 20" in said
    hint = re.search(r"next: python -m \S+\.rules (predict \S+) FILE.txt", said)[1].split()
    more = ["--split", "validation", "--limit", "2", "--max-length", "20", "--beam", "2"]
    rules.main([*hint, *more, "--out", str(tmp_path / "freq.jsonl")])
    rows = [json.loads(line) for line in (tmp_path / "freq.jsonl").read_text().splitlines()]
    for row, story in zip(rows, load(run.config.data, "validation", 2), strict=True):
        ids = run.tokenizer.encode(story.source).ids[:19]
        assert row["pruned"] == [sum(token in run.model.dropped for token in ids), 20]
    with pytest.raises(ValueError, match="is no run folder of this package"):
        loading.load_run(freq)  # the core would not drop its encodings


def test_what_a_rule_drops_is_hidden_in_training(whole, tmp_path):
    """D8: the same training without the rule ends elsewhere."""
    flags = ["--init", str(whole["base"]), "--steps", "2", "--average-last", "1"]
    for rule in ("none", "group"):
        rules.main(["train", "--rule", rule, "--out", str(tmp_path / rule), *flags])
    assert not same_weights(tmp_path / "none", tmp_path / "group")


def test_a_rule_takes_the_place_of_the_gates():
    with pytest.raises(ValueError, match="add --l0drop none"):
        check(replace(rules.RuleConfig(), rule="pos"))


def test_stanza_tags_are_placed_by_character(stanza):
    """Sources without tags go through Stanza, or here a stand-in for it."""
    untagged = [example("The dogs.", "x")]
    tokenizer = train_tokenizer(["The dogs. The dogs."], "bpe", 60)
    assert rules.tag_sources(untagged) == [([3, 8, 9], ["DT", "NNS", "."])]
    types, tags = rules.source_types(tokenizer.encode("The dogs."), *rules.tag_sources(untagged)[0])
    assert types == ["function", "content", "punctuation"] and tags == ["DT", "NNS", "."]
    assert kept(tokenizer, untagged, "pos") == [False, True, False, True]
    with pytest.raises(ValueError, match="stanza.download"):
        rules.tag_sources(untagged, "missing")
