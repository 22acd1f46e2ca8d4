"""Settings of masked heads, and decoding with the encoder run once."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertModel

pytest.importorskip("shared")

from shared.data import Example, load

from ..config import TrainConfig
from ..decode import Setting, all_heads, decode, encode, find_heads, read_documents, read_heads, tag, write_heads
from ..labels import Tagged, kept, selected_words, tagging_counts
from ..loading import Run, load_run
from ..masking import mask_heads, uniform_heads
from ..oracle import longest_common_runs, word_spans
from ..text import Document
from .conftest import DATA

FLAGS = dict(num_beams=2, max_new_tokens=8)
SETTINGS = [
    Setting("plain"),
    Setting("uniform", {1: [0], 2: [1, 2, 3]}),
    Setting("oracle", {1: [0, 1, 2, 3]}),
    Setting("system", {1: [1], 2: [0, 1, 2]}),
]


# Heads as text


@pytest.mark.parametrize(
    ("heads", "text"),
    [
        ({1: range(16)}, "1:0-15"),
        ({3: [13, 3, 4, 1, 14, 15]}, "3:1,3-4,13-15"),
        ({2: [1, 1], 1: (3, 0)}, "1:0,3,2:1"),
        ({2: [0, 1, 3], 1: [0, 1]}, "1:0-1,2:0-1,3"),
    ],
)
def test_heads_are_written_in_one_way_and_read_back(heads, text):
    assert write_heads(heads) == text
    assert read_heads(text) == {layer: sorted(set(chosen)) for layer, chosen in heads.items()}


def test_heads_of_a_model(bart):
    """All, the top layer, a list, the name of a data set in Appendix B; what the model does not have is refused."""
    run = Run(TrainConfig(), bart, None)
    assert all_heads(bart) == {1: [0, 1, 2, 3], 2: [0, 1, 2, 3]}
    assert find_heads("top", run) == {2: [0, 1, 2, 3]} and find_heads("2:1,0", run) == {2: [0, 1]}
    with torch.device("meta"):
        large = Run(TrainConfig(), BartForConditionalGeneration(BartConfig()), None)
    assert write_heads(find_heads("xsum", large)) == "3:1-4,6-9,11,13-15"
    for text in ("xsum", "3:0", "1:4"):
        with pytest.raises(ValueError, match="does not exist|has no head"):
            find_heads(text, run)
    with pytest.raises(ValueError, match="no cross-attention"):
        all_heads(BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=9)))


@pytest.mark.parametrize(
    ("data", "layers", "heads"),
    [
        ("cnn_dailymail", 12, "1:0-15"),
        ("nyt", 12, "3:3-4,6-15"),
        ("xsum", 12, "3:1-4,6-9,11,13-15"),
        ("samsum", 12, "12:0-15"),
        ("", 12, "12:0-15"),
        ("xsum", 6, "6:0-15"),
    ],
)
def test_d14_default_heads_are_those_of_appendix_b(data, layers, heads):
    """D14: of a BART-large by the data that it learned; of other data or another size all heads of the top layer."""
    with torch.device("meta"):
        model = BartForConditionalGeneration(BartConfig(decoder_layers=layers))
    assert write_heads(find_heads("", Run(TrainConfig(data=data), model, None))) == heads


# Decoding


class Words:
    """A tokenizer whose texts are the numbers of the tokens."""

    def decode(self, row: list[int], skip_special_tokens: bool) -> str:
        return " ".join(map(str, row[1:]))


def decode_alone(bart, document: Document, setting: Setting) -> list[int]:
    """`generate` from token ids, one document by itself, no memory handed over."""
    ids = torch.tensor([document.ids])
    contexts = {"plain": nullcontext, "uniform": lambda: uniform_heads(bart, setting.heads)}
    masked = lambda: mask_heads(bart, setting.heads, torch.tensor([document.masks[setting.kind]]))  # noqa: E731
    with contexts.get(setting.kind, masked)():
        return bart.generate(ids, **FLAGS)[0].tolist()


def decode_all(bart, documents, settings: list[Setting], batch_size: int = 2) -> dict:
    """(number of the setting, number of the document) -> token ids and text."""
    named = {str(n): setting for n, setting in enumerate(settings)}
    decoded = decode(Run(None, bart, Words()), documents, named, encode(bart, documents, batch_size), **FLAGS)
    return {(int(name), i): (row, text) for name, i, row, text in decoded}


@pytest.mark.parametrize("batch_size", [2, 5])
def test_settings_decode_what_generate_does_from_the_text(bart, documents, batch_size):
    """Whatever the batch; several settings one after the other, and the first one again."""
    settings = [*SETTINGS, SETTINGS[0]]
    found = decode_all(bart, documents, settings, batch_size)
    for (n, i), (row, text) in found.items():
        assert row == decode_alone(bart, documents[i], settings[n]) and text == " ".join(map(str, row[1:]))
    assert len(found) == len(settings) * len(documents)
    outputs = {json.dumps([found[n, i] for i in range(len(documents))]) for n in range(len(settings))}
    assert len(outputs) == len(SETTINGS)  # each setting changes something


# Labels


def example(source: str, target: str) -> Example:
    return Example(id=source, document=[source], summary=[target], references=[[target]])


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return load(DATA, "test", 6)


def test_a_batch_is_tagged_as_its_documents_alone(runs, examples):
    """In the order of the documents; the scores are the tagger's probabilities."""
    run = load_run(runs / "tagger")
    together, alone = (tag(run, [text.source for text in examples], size) for size in (4, 1))
    for text, one, other in zip(examples, together, alone, strict=True):
        torch.testing.assert_close(torch.tensor(one.scores), torch.tensor(other.scores), atol=1e-5, rtol=0)
        ids = torch.tensor([run.tokenizer(text.source)["input_ids"]])
        expected = run.model(ids, torch.ones_like(ids, dtype=torch.bool)).sigmoid()[0].tolist()
        assert one.scores == pytest.approx(expected, abs=1e-5) and len(one.offsets) == len(one.scores)
        assert one.threshold == pytest.approx(run.model.threshold.item()) and not one.was_cut
    run.model.threshold.fill_(0.27)
    [cut] = tag(run._replace(config=replace(run.config, max_source=9)), [examples[0].source])
    assert cut.threshold == 0.27 and cut.was_cut and len(cut.scores) == 9


def test_oracle_documents_keep_the_words_of_the_longest_runs(runs, examples):
    """What masked heads see, read back from the tokens, are the words that the oracle marks."""
    run = load_run(runs / "base-0")
    for text, document in zip(examples, read_documents(run, examples, oracle=True), strict=True):
        words, target = (text.source.split(), text.target.split())
        spans = word_spans(text.source)
        assert [text.source[a:b] for a, b in spans] == words  # in toy they are the same
        expected = {span for span, mark in zip(spans, longest_common_runs(words, target), strict=True) if mark}
        seen = [place for place, keep in zip(document.offsets, document.masks["oracle"], strict=True) if keep]
        assert all(any(a <= start and end <= b for a, b in expected) for start, end in seen)
        assert sum(end - start for start, end in seen) == sum(b - a for a, b in expected) and not document.was_cut


def test_system_documents_keep_what_scores_over_the_threshold(runs, examples):
    """One word scores high: its tokens alone are kept, or with the fallback at least five; cut where it is cut."""
    run, text = load_run(runs / "base-0"), examples[0]
    spans = word_spans(text.source)
    tagged = {"t": [Tagged([0.1, 0.9, *[0.2] * (len(spans) - 2)], spans, 0.5)]}
    for min_keep in (0, 5):
        [document] = read_documents(run, [text], tagged, min_keep=min_keep)
        [start, end] = spans[1]
        inside = {i for i, (a, b) in enumerate(document.offsets) if start <= a < b <= end}
        seen = {i for i, keep in enumerate(document.masks["t"]) if keep}
        assert inside <= seen and (seen == inside if min_keep == 0 else len(seen) >= 5)
        assert 0 not in seen and len(document.ids) - 1 not in seen and document.masks.keys() == {"t"}
    short = run._replace(config=replace(run.config, max_source=50))
    [document] = read_documents(short, [text], tagged)
    assert document.was_cut and len(document.ids) == len(document.masks["t"]) == 50


def test_labels_that_select_nothing_fall_back_on_the_same_positions_each_time():
    """An oracle without any match: five positions at random, by the document's number, so that a sweep can resume."""
    first = kept([0.0] * 40, 0.0, 5, seed=3)
    assert sum(first) == 5 and kept([0.0] * 40, 0.0, 5, seed=3) == first != kept([0.0] * 40, 0.0, 5, seed=4)
    assert kept([0.0, 0.3, 0.31], 0.3, 0, seed=0) == [False, False, True]


def test_token_f1_by_hand():
    """Oracle: "red cats" of five words; the tagger says cats, dogs and run. Special tokens do not count."""
    places = [(0, 0), (0, 3), (4, 8), (9, 12), (13, 17), (18, 21), (0, 0)]
    tagged = Tagged([0.9, 0.2, 0.6, 0.5, 0.7, 0.8, 0.9], places, 0.5)
    assert tagging_counts(tagged, "red cats and dogs run", "Red cats") == {
        "token_f1": [2, 5],
        "precision": [1, 3],
        "recall": [1, 2],
        "selected": [3, 5],
        "f1_of_all": [4, 7],
    }
    assert selected_words("red cats and dogs run", tagged) == "cats dogs run"
