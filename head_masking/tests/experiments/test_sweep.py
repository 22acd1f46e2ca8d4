"""What is computed from scores, the choice of heads, and their attendees.

Against single steps and cases by hand.
"""

import csv
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from shared.data import Example, load

from ...experiments import sweep as sweeps
from ...experiments.sweep import (
    Options,
    attention_focus,
    content_selection_effects,
    main,
    sample,
    select_heads,
    tally,
)
from ...heads import read_heads, write_heads
from ...loading import Summarizer, load_model
from ...masking import mask_heads
from ...oracle import word_spans
from ...predict import decode, read_documents
from ...text import Document, encode_documents, train_tokenizer
from ..conftest import DATA

STORY = "Mara opened halls . Mara slept ."
TEXTS = [STORY, "halls", "Mara slept ."]
TAGS = ["NNP", "VBD", "NNS", ".", "NNP", "VBD", "."]


def test_scores_are_shared_rouge_with_recall():
    """F1 of shared.rouge; recall by hand, of the reference with the best F1."""
    references = [["red cats sleep .", "dogs bark ."], ["red mice .", "run now yes"]]
    example = SimpleNamespace(references=references)
    found = sweeps.score(["dogs bark . red cats sleep .", "red cats"], [example] * 2)
    assert found["rouge1"].tolist() == pytest.approx([100, 100 * 4 / 7])
    assert found["recall"].tolist() == pytest.approx([100, 40])
    assert found["rouge1+2"].tolist() == pytest.approx([100 + 75, 100 * 4 / 7 + 40])
    stems = sweeps.score(["cat"], [SimpleNamespace(references=[["cats"]])])
    assert stems["rouge1"].tolist() == stems["recall"].tolist() == [100]


class Fake:
    """Measures by a table of (kind, heads); keeps what it is asked."""

    def __init__(self, values):
        self.asked, self.values = [], values

    def __call__(self, kind: str, layer: int = 1, heads=()) -> dict[str, np.ndarray]:
        key = kind, write_heads({layer: heads})
        self.asked.append(key)
        found = self.values[key]
        if not isinstance(found, dict):
            found = {"rouge1": found, "rouge1+2": found, "recall": 2 * found}
        return {metric: np.array([value, value + 1]) for metric, value in found.items()}


def layer_values(effects: dict[tuple[int, int], float]) -> dict[tuple[str, str], float]:
    """Of one head each: 50 without masks and with uniform weights, with oracle masks more."""
    return {("plain", ""): 50.0} | {
        (kind, write_heads({layer: [head]})): 50.0 + (effect if kind == "oracle" else 0.0)
        for (layer, head), effect in effects.items()
        for kind in ("oracle", "uniform")
    }


def test_section_4_1_effects_are_oracle_minus_uniform():
    values = layer_values(dict.fromkeys(product((1, 2), range(2)), 0.0))
    values |= {("oracle", "1:1"): 57.5, ("uniform", "1:1"): 53.0, ("uniform", "2:0"): 50.25}
    fake = Fake(values)
    effects = content_selection_effects(fake, {1: [0, 1], 2: [0, 1]})
    means = {place: each["rouge1"].mean() for place, each in effects.items()}
    assert means == {(1, 0): 0.0, (1, 1): 4.5, (2, 0): -0.25, (2, 1): 0.0}
    # D10: the other reading of an improvement
    assert effects[1, 1]["rouge1_plain"].tolist() == [7.5, 7.5]


def test_section_4_2_synergy_adds_the_best_heads_first():
    """Together 1:1 and 1:2 gain more than the sum, all three gain less.

    Heads are named in the order of adding.
    """
    values = layer_values({(1, 0): -1.0, (1, 1): 2.0, (1, 2): 3.0})
    together = {("oracle", "1:1-2"): 58.0, ("uniform", "1:1-2"): 49.0, ("oracle", "1:0-2"): 53.0}
    fake = Fake(values | together | {("uniform", "1:0-2"): 51.0})
    effects = content_selection_effects(fake, {1: [0, 1, 2]})
    steps = sweeps.synergy(fake, effects)[:3]
    assert [(row["layer"], row["count"], row["added"]) for row in steps] == [
        (1, 1, 2), (1, 2, 1), (1, 3, 0)
    ]  # fmt: skip
    assert [row["over_uniform"]["mean"] for row in steps] == [3.0, 9.0, 2.0]
    other_layer = {(2, 0): {metric: values + 9 for metric, values in effects[1, 0].items()}}
    assert sweeps.sum_of_parts(effects | other_layer, 1)["rouge1"].tolist() == [4.0, 4.0]


def test_analysis_set_is_a_random_sample_in_order():
    chosen, again = (sample(range(50), 10) for _ in range(2))
    assert chosen == sorted(set(chosen)) == again
    assert len(chosen) == 10 and chosen != list(range(10))
    assert sample(range(50), 60) == list(range(50))


def test_section_5_heads_are_selected_four_at_a_time():
    """D11: candidates are the 4, 8, 12, 16 best heads of each layer, not "no heads".

    ROUGE-1 + ROUGE-2 decides, here against ROUGE-1.
    """
    effect = {head: head * 7 % 16 for head in range(16)}
    places = product((1, 2), effect)
    effects = {place: {"rouge1": np.array([float(effect[place[1]])])} for place in places}
    order = sorted(effect, key=lambda head: -effect[head])
    texts = [write_heads({layer: order[:count]}) for layer in (1, 2) for count in (4, 8, 12, 16)]
    values = {("system", text): {"rouge1": 40.0, "rouge1+2": 60.0} for text in texts}
    values["system", texts[0]] = {"rouge1": 45.0, "rouge1+2": 55.0}
    values["system", texts[5]] = {"rouge1": 39.0, "rouge1+2": 61.0}
    fake = Fake(values)
    best, scores = select_heads(fake, effects)
    assert best == {2: tuple(order[:8])} and scores["rouge1+2"].tolist() == [61, 62]
    assert texts == [heads for _, heads in fake.asked]


def test_d10_improvements_are_over_uniform_weights_and_over_the_plain_model():
    """D10: both readings of Figure 3 stand in the rows.

    The right side has all heads and the sum of the parts.
    """
    values = {("plain", ""): 50.0}
    for heads, oracle, uniform in (("1:0", 53, 50), ("1:1", 51, 50), ("1:0-1", 60, 45)):
        values |= {("oracle", heads): oracle, ("uniform", heads): uniform}
    fake = Fake(values)
    effects = content_selection_effects(fake, {1: [0, 1]})
    rows = sweeps.synergy(fake, effects)
    gains = [[row[over]["mean"] for over in ("over_uniform", "over_plain")] for row in rows]
    assert gains[:2] == [[3, 3], [15, 10]]
    sides = ["together", "parts", "together minus parts"]
    assert [row["side"] for row in rows[2:]] == [f"right, {side}" for side in sides]
    assert gains[2:] == [[30, 20], [8, 8], [22, 12]]  # recall, which is twice the F1 here


def test_d11_heads_are_chosen_even_where_no_mask_is_better_and_this_is_said(
    runs, tmp_path, monkeypatch, capsys
):
    """D11: "none" is not among the candidates."""

    def measured(texts, examples, words):
        metrics = ("rouge1", "rouge1+2", "recall")
        return {metric: np.full(len(texts), next(values)) for metric in metrics}

    values = iter([60.0] + [30.0] * 999)  # the first that is decoded is the model without masks
    monkeypatch.setattr(sweeps, "score", measured)
    flags = ["--tagger", runs / "tagger", "--documents", "2", "--data", DATA, "--out", tmp_path]
    main([str(flag) for flag in (runs / "base", *flags)])
    assert "base: heads 1:0-3; without masks it did better (D11)" in capsys.readouterr().out
    assert (tmp_path / "base.heads").read_text() == "1:0-3\n"


def test_analysis_by_one_command(runs, base, tmp_path, monkeypatch, capsys):
    """Sweep, choice of heads and focus.

    No setting is decoded twice, but for the plain one, which --focus decodes.
    """
    calls, read = [], set()

    def counted(model, documents, **more):
        calls.append((len(documents), model.generation_config.num_beams))
        read.update(tuple(document.ids) for document in documents)
        return decode(model, documents, **more)

    monkeypatch.setattr(sweeps, "decode", counted)
    flags = f"{base} --tagger {runs}/tagger --documents 2 --out {tmp_path} --effects --focus"
    main(flags.split())
    # single heads, heads together, plain, choice, focus
    settings = 2 * 2 * 4 + 2 * 2 * 3 + 1 + 2 + 1
    assert len(calls) == settings and {*calls} == {(2, 1)}  # Appendix A: beam 1 in all analyses
    # Section 4: random documents, not the first ones
    run, stories = load_model(base), load(DATA, "validation")
    random, first = (read_documents(run, part) for part in (sample(stories, 2), stories[:2]))
    assert read == {tuple(document.ids) for document in random}
    assert read != {tuple(document.ids) for document in first}
    tables = ("effects", "synergy", "focus")
    rows = {name: [*csv.DictReader((tmp_path / f"{name}.csv").open())] for name in tables}
    places = [(f"{layer}", f"{head}") for layer in (1, 2) for head in range(4)]
    assert [(row["layer"], row["head"]) for row in rows["effects"]] == places
    assert len(rows["synergy"]) == 2 * (4 + 3) and "copy_content" in rows["focus"][0]
    assert rows["focus"][0]["system"].endswith("2 validation documents")
    heads = (tmp_path / "base-0.heads").read_text().strip()
    assert read_heads(heads) and f"base-0: heads {heads}" in capsys.readouterr().out


def test_analysis_is_as_in_the_paper():
    """Appendix A's decoding, but with one beam.

    Section 4: 1,000 documents; Section 5: four heads at a time.
    """
    given = Options(run="x", out="x", decoding="cnn_dailymail")
    assert given.generation() == dict(
        num_beams=1, length_penalty=None, min_length=57, max_length=143, no_repeat_ngram_size=3
    )
    assert (Options.documents, Options.group, sweeps.SPLIT) == (1000, 4, "validation")


def test_a_result_that_is_there_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "effects.csv").write_text("precious")
    with pytest.raises(SystemExit):
        main(["no/such/model", "--effects", "--out", str(tmp_path)])
    assert "effects.csv exists: choose another --out" in capsys.readouterr().err
    assert (tmp_path / "effects.csv").read_text() == "precious"


@pytest.fixture(scope="module")
def tokenizer():
    """Few merges: most words have several pieces."""
    return train_tokenizer([STORY], 275)


@pytest.fixture
def documents(tokenizer) -> list[Document]:
    """Three of other lengths; tokens that the small BART does not have become others."""
    read = encode_documents(tokenizer, TEXTS, 30)
    return [document._replace(ids=[i % 31 for i in document.ids]) for document in read]


def story(reference: str, tags=None) -> Example:
    return Example("1", [STORY], [reference], [[reference]], pos=[tags] if tags else None)


def test_attendees_are_those_of_each_step_alone(bart, documents):
    """Step t has only summary[: t + 1] to go on; it emits summary[t + 1]."""
    seen = set()
    cases = [(document, [2, *document.ids[1:6]]) for document in documents]
    attended = [sweeps.attendees(bart, document.ids, summary) for document, summary in cases]
    bart.set_attn_implementation("eager")  # which returns weights
    for (document, summary), found in zip(cases, attended, strict=True):
        assert found.shape == (2, 4, len(summary) - 1)
        for t in range(len(summary) - 1):
            source, written = torch.tensor([document.ids]), torch.tensor([summary[: t + 1]])
            with torch.no_grad():
                output = bart(source, decoder_input_ids=written, output_attentions=True)
            last = [weights[0, :, -1].argmax(-1).tolist() for weights in output.cross_attentions]
            assert found[..., t].tolist() == last
        seen |= {*found.ravel().tolist()}
    assert len(seen) > 3


def test_generated_pieces_have_their_words(tokenizer):
    """Special tokens and the start token have none.

    The pieces of a word have the word, in lower case.
    """
    tokens = tokenizer("Mara opened halls.")["input_ids"]
    words = sweeps.generated_words(tokenizer, [2, *tokens])
    assert len(words) == len(tokens) and words[0] is words[-1] is None
    kept = [word for word in words if word is not None]
    assert list(dict.fromkeys(kept)) == ["mara", "opened", "halls", "."]
    assert len(kept) > 4  # some word has several pieces
    ended_by_its_length = [2, *tokenizer("Mara halls")["input_ids"][:-1]]
    assert sweeps.generated_words(tokenizer, ended_by_its_length)[-1] == "halls"


def test_categories_by_hand():
    """One layer, two heads, three steps, one of them not a word.

    Words are tokens here, between <s> and </s>.
    """
    case = story("Halls , Mara", TAGS)
    document = Document([0] * 9, [(0, 0), *word_spans(STORY), (0, 0)], False)
    # Positions: 1 Mara (first), 2 opened, 3 halls, 4 ".", 5 Mara, 6 slept, 7 "." (last), 0 and 8
    # special.
    attended = np.array([[[5, 2, 3], [1, 7, 8]]])
    found = tally(attended, case, document, ["mara", None, "opened"])
    assert {kind: counts[0].tolist() for kind, counts in found.items()} == {
        "copy_salient": [1, 1],  # Mara while writing mara
        "non_copy_salient": [1, 0],  # halls while writing opened
        "copy_content": [1, 1],
        "non_copy_content": [1, 0],
        "first": [0, 1],  # the second Mara is not the first word
        "last": [0, 0],  # the step that looks there writes no word
        "special": [0, 1],
    }
    # the model reads up to "slept", which is then the last word
    cut = document._replace(offsets=document.offsets[:7])
    assert tally(np.full((1, 1, 1), 6), case, cut, ["mara"])["last"].item() == 1
    found = tally(attended, case, document, ["slept", ".", "halls"])
    assert found["last"].tolist() == [[0, 1]] and found["copy_salient"].tolist() == [[1, 0]]
    assert found["copy_content"].tolist() == [[1, 0]]
    assert found["non_copy_content"].tolist() == [[2, 1]]
    assert found["non_copy_salient"].tolist() == [[1, 1]]
    without_tags = tally(attended, story("Mara"), document, ["mara", "mara", "mara"])
    assert without_tags["copy_content"].sum() == 0


def test_content_words_are_nouns_verbs_adjectives_and_adverbs():
    words, tags = "abcdefghijk", "NN NNPS VBZ JJR RB IN DT CD MD PRP .".split()
    case = Example("1", [" ".join(words)], ["x"], [["x"]], pos=[tags])
    document = Document([0] * 11, [(2 * place, 2 * place + 1) for place in range(11)], False)
    found = tally(np.arange(11).reshape(1, 11, 1), case, document, ["x"])["non_copy_content"]
    assert found.tolist() == [[1] * 5 + [0] * 6]
    with pytest.raises(ValueError, match="zip"):
        tally(np.zeros((1, 1, 1), int), story("x", ["NN"]), document, ["x"])


def test_section_4_3_percentages_of_heads_that_may_see_one_word_alone(bart, tokenizer, documents):
    """Section 4.3.

    With a mask that leaves the first word, a masked head attends to it always: no slip by a step.
    """
    document = documents[0]._replace(ids=documents[0].ids[:4], offsets=documents[0].offsets[:4])
    keep = torch.tensor([[False, True, False, False]])
    with mask_heads(bart, {2: [1, 3]}, keep):
        rows = attention_focus(Summarizer(bart, tokenizer, 30), [story("nothing")], [document])
    assert [(row["layer"], row["head"]) for row in rows] == [*product((1, 2), range(4))]
    assert [rows[place]["first"] for place in (5, 7)] == [100, 100]
    assert not any(row["copy_salient"] for row in rows)
    assert not any("content" in kind for kind in rows[0])


def test_d9_shares_are_over_all_pieces_not_over_documents(bart, tokenizer, documents):
    """D9: each piece of a word counts; the share of all is the mean, weighted by pieces."""
    run = Summarizer(bart, tokenizer, 30)
    cases = [Example("1", [text], ["x"], [["x"]]) for text in TEXTS]

    def special(*places):
        rows = attention_focus(run, [cases[n] for n in places], [documents[n] for n in places])
        return [row["special"] for row in rows]

    written = [sweeps.generated_words(tokenizer, *decode(bart, [one])) for one in documents]
    pieces = [sum(word is not None for word in words) for words in written]
    assert min(pieces) > 1
    mean = np.average([special(n) for n in range(3)], axis=0, weights=pieces)
    np.testing.assert_allclose(special(0, 1, 2), mean)
