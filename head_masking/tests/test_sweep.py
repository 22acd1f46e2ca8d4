"""Settings, decoding with the encoder run once, the file of results, and what is computed from it."""

import json
from itertools import product

import numpy as np
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertModel

from ..masking import mask_heads, uniform_heads
from ..sweep import (
    Document,
    Setting,
    Sweep,
    all_heads,
    content_selection_effects,
    decode,
    encode,
    find_heads,
    ranked,
    read_heads,
    select_heads,
    sum_of_parts,
    synergy,
    write_heads,
)

LENGTHS = (9, 4, 7, 6, 9)
FLAGS = dict(num_beams=2, max_new_tokens=8)
SETTINGS = [
    Setting("plain"),
    Setting("uniform", "1:0,2:1-3"),
    Setting("oracle", "1:0-3"),
    Setting("system", "1:1,2:0-2"),
]


@pytest.fixture
def documents() -> list[Document]:
    """Documents of other lengths than one another, in an order that is not theirs by length."""
    generator = torch.Generator().manual_seed(4)
    found = []
    for length in LENGTHS:
        ids = torch.randint(4, 31, (length,), generator=generator).tolist()
        keep = {kind: (torch.rand(length, generator=generator) < 0.4).tolist() for kind in ("oracle", "system")}
        for labels in keep.values():
            labels[2] = True
        found.append(Document(ids, keep))
    return found


# Heads as text


@pytest.mark.parametrize(
    ("heads", "text"),
    [
        ({1: range(16)}, "1:0-15"),
        ({3: [13, 3, 4, 1, 14, 15]}, "3:1,3-4,13-15"),
        ({2: [1, 1], 1: (3, 0)}, "1:0,3,2:1"),
    ],
)
def test_heads_are_written_in_one_way_and_read_back(heads, text):
    assert write_heads(heads) == text
    assert read_heads(text) == {layer: sorted(set(chosen)) for layer, chosen in heads.items()}


def test_heads_may_be_read_in_any_order():
    assert read_heads("2:3,1,1:0-1,2:0") == {2: [0, 1, 3], 1: [0, 1]}


@pytest.mark.parametrize("text", ["", "3", "1:", "1:3-1", "1:a", ":2", "1:0,,2"])
def test_other_texts_are_no_heads(text):
    with pytest.raises(ValueError, match="write LAYER:HEADS"):
        read_heads(text)


def test_heads_of_a_model(bart):
    """All, the top layer, a list, the name of a data set in Appendix B; what the model does not have is refused."""
    assert all_heads(bart) == {1: [0, 1, 2, 3], 2: [0, 1, 2, 3]}
    assert find_heads("top", bart) == "2:0-3" and find_heads("2:1,0", bart) == "2:0-1"
    with torch.device("meta"):
        assert find_heads("xsum", BartForConditionalGeneration(BartConfig())) == "3:1-4,6-9,11,13-15"
    for text in ("xsum", "3:0", "1:4"):
        with pytest.raises(ValueError, match="does not exist|has no head"):
            find_heads(text, bart)
    with pytest.raises(ValueError, match="no cross-attention"):
        all_heads(BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=9)))


# Decoding


def decode_alone(bart, document: Document, setting: Setting) -> list[int]:
    """`generate` from token ids, one document by itself, no memory handed over."""
    ids = torch.tensor([document.ids])
    heads = read_heads(setting.heads) if setting.heads else {}
    if setting.kind == "plain":
        return bart.generate(ids, **FLAGS)[0].tolist()
    if setting.kind == "uniform":
        with uniform_heads(bart, heads):
            return bart.generate(ids, **FLAGS)[0].tolist()
    with mask_heads(bart, heads, torch.tensor([document.keep[setting.kind]])):
        return bart.generate(ids, **FLAGS)[0].tolist()


def decode_all(bart, documents, setting: Setting, batch_size: int = 2) -> list[list[int]]:
    summaries = {}
    for batch in encode(bart, documents, batch_size):
        summaries |= dict(zip(batch.numbers, decode(bart, documents, batch, setting, **FLAGS), strict=True))
    return [summaries[i] for i in range(len(documents))]


@pytest.mark.parametrize("batch_size", [2, 5])
def test_settings_decode_what_generate_does_from_the_text(bart, documents, batch_size):
    """Whatever the batch; several settings one after the other, and the first one again."""
    outputs = [decode_all(bart, documents, setting, batch_size) for setting in [*SETTINGS, SETTINGS[0]]]
    for setting, output in zip([*SETTINGS, SETTINGS[0]], outputs, strict=True):
        assert output == [decode_alone(bart, document, setting) for document in documents]
    assert len({json.dumps(output) for output in outputs}) == len(SETTINGS)  # each setting changes something


def test_documents_are_encoded_once_and_batch_by_batch(bart, documents):
    """All settings of a batch share its states, and no batch is encoded before it is asked for."""
    calls = []
    bart.get_encoder().register_forward_hook(lambda module, inputs, output: calls.append(len(output[0])))
    for number, batch in enumerate(encode(bart, documents, 2), start=1):
        for setting in SETTINGS:
            decode(bart, documents, batch, setting, **FLAGS)
        assert len(calls) == number
    assert calls == [2, 2, 1]


def test_summaries_end_where_they_end(bart, documents, monkeypatch):
    """`generate` pads the rows of a batch; padding inside a summary is not its end."""
    rows = torch.tensor([[2, 5, 1, 6, 2], [2, 7, 2, 1, 1]])
    monkeypatch.setattr(bart, "generate", lambda **keywords: rows)
    [batch] = encode(bart, documents[:2])
    assert decode(bart, documents, batch, Setting("plain")) == [[2, 5, 1, 6, 2], [2, 7, 2]]


# The file


class Fake:
    """Decodes to the setting itself and scores by a table; counts what it is asked."""

    def __init__(self, values=None):
        self.asked, self.values = [], values or {}

    def decode(self, setting: Setting) -> list[str]:
        self.asked.append(setting)
        return [f"{setting.kind} {setting.heads}"]

    def score(self, texts: list[str]) -> dict[str, np.ndarray]:
        kind, _, heads = texts[0].partition(" ")
        value = self.values.get((kind, heads), len(self.asked) + 1 / 3)
        found = value if isinstance(value, dict) else {"rouge1": value, "rouge2": 0.0, "rouge1_recall": value}
        return {metric: np.array([value, value + 1]) for metric, value in found.items()}

    def sweep(self, path, depends=None) -> Sweep:
        return Sweep(path, self.decode, self.score, depends or {})


def means(scores) -> list[float]:
    return [each["rouge1"].mean() for each in scores]


def test_a_setting_is_decoded_once_also_by_another_process(tmp_path):
    path, first, second = tmp_path / "new" / "sweep.jsonl", Fake(), Fake()
    sweep = first.sweep(path)
    scores = sweep.run([SETTINGS[1], SETTINGS[0], SETTINGS[1]])
    assert first.asked == [SETTINGS[1], SETTINGS[0]]
    again = second.sweep(path).run([SETTINGS[0], SETTINGS[1], SETTINGS[2]])
    assert second.asked == [SETTINGS[2]]
    # Bit for bit the same numbers, or a resumed sweep could rank heads otherwise than one that was not stopped.
    assert means(again[:2]) == means([scores[1], scores[0]]) == means(sweep.run([SETTINGS[0], SETTINGS[1]]))


def test_a_killed_sweep_goes_on_and_a_half_written_last_line_is_dropped(tmp_path):
    path, first, second, third = tmp_path / "sweep.jsonl", Fake(), Fake(), Fake()
    sweep = first.sweep(path)
    sweep.score = lambda texts: first.score(texts) if len(first.asked) < 4 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        sweep.run(SETTINGS)
    for cut in (0, 1, 20):  # whole; without its line feed; in the middle
        path.write_bytes(path.read_bytes()[: -cut or None])
        second.asked = []
        second.sweep(path).run(SETTINGS[:3])
        assert second.asked == (SETTINGS[2:3] if cut else [])
        third.sweep(path).run(SETTINGS[:3])
        assert third.asked == [] and path.read_bytes().count(b"\n") == 3


def test_results_of_something_else_are_not_taken(tmp_path):
    """Another model or other labels are decoded again; what does not depend on labels is not."""
    path, fake = tmp_path / "sweep.jsonl", Fake()
    kinds = ("plain", "uniform", "oracle", "system")
    for depends, expected in (
        (dict.fromkeys(kinds, 1), SETTINGS),
        (dict.fromkeys(kinds, 2), SETTINGS),
        (dict.fromkeys(kinds, 2) | {"oracle": 3}, [SETTINGS[2]]),
        (dict.fromkeys(kinds, 2), []),
    ):
        fake.asked = []
        fake.sweep(path, depends).run(SETTINGS)
        assert fake.asked == expected


@pytest.mark.parametrize("line", ["not json", "[1, 2]", '{"kind": "a"}', '{"depends": 0, "kind": "a", "scores": [1]}'])
def test_a_broken_line_is_named(tmp_path, line):
    path = tmp_path / "sweep.jsonl"
    Fake().sweep(path).run(SETTINGS[:1])
    path.write_text(path.read_text() + line + "\n" + path.read_text())
    with pytest.raises(ValueError, match=r"sweep\.jsonl:2 is not a line of a sweep: remove"):
        Fake().sweep(path)


# What the paper makes of it


def layer_values(effects: dict[tuple[int, int], float]) -> dict[tuple[str, str], float]:
    """Scores of settings with one head each: 50 with uniform weights, the effect more with oracle masks."""
    return {
        (kind, write_heads({layer: [head]})): 50.0 + (effect if kind == "oracle" else 0.0)
        for (layer, head), effect in effects.items()
        for kind in ("oracle", "uniform")
    }


def test_section_4_1_effects_are_oracle_minus_uniform(tmp_path):
    values = layer_values(dict.fromkeys(product((1, 2), range(2)), 0.0))
    values |= {("oracle", "1:1"): 57.5, ("uniform", "1:1"): 53.0, ("uniform", "2:0"): 50.25}
    fake = Fake(values)
    effects = content_selection_effects(fake.sweep(tmp_path / "s"), {1: [0, 1], 2: [0, 1]})
    assert {place: each["rouge1"].mean() for place, each in effects.items()} == {
        (1, 0): 0.0, (1, 1): 4.5, (2, 0): -0.25, (2, 1): 0.0
    }  # fmt: skip
    assert len(fake.asked) == 8 and {setting.kind for setting in fake.asked} == {"oracle", "uniform"}


def test_heads_are_ranked_by_effect_equal_ones_by_number():
    effects = {(1, head): {"rouge1": np.array([value, value])} for head, value in enumerate([2.0, 5.0, -1.0, 5.0])}
    effects[2, 0] = {"rouge1": np.array([9.0, 9.0])}
    assert ranked(effects, 1) == [1, 3, 0, 2] and ranked(effects, 2) == [0]


def test_section_4_2_synergy_adds_the_best_heads_first(tmp_path):
    """Together 1:1 and 1:2 gain more than the sum, all three gain less; heads are named in the order of adding."""
    values = layer_values({(1, 0): -1.0, (1, 1): 2.0, (1, 2): 3.0})
    together = {("oracle", "1:1-2"): 58.0, ("uniform", "1:1-2"): 49.0, ("oracle", "1:0-2"): 53.0}
    fake = Fake(values | together | {("uniform", "1:0-2"): 51.0})
    sweep = fake.sweep(tmp_path / "s")
    effects = content_selection_effects(sweep, {1: [0, 1, 2]})
    steps = synergy(sweep, effects)
    assert [step.heads for step in steps] == [(2,), (2, 1), (2, 1, 0)]
    assert [step.gain["rouge1"].mean() for step in steps] == [3.0, 9.0, 2.0]
    assert [step.last_gain for step in steps] == [3.0, 2.0, -1.0]
    other_layer = {(2, 0): {metric: values + 9 for metric, values in effects[1, 0].items()}}
    assert sum_of_parts(effects | other_layer, 1)["rouge1_recall"].tolist() == [4.0, 4.0]
    assert len(fake.asked) == len(set(fake.asked)) == 6 + 4


def test_section_5_heads_are_selected_four_at_a_time(tmp_path):
    """D11: candidates are the 4, 8, 12, 16 best heads of each layer, not "no heads".

    ROUGE-1 + ROUGE-2 decides, here against ROUGE-1.
    """
    heads = range(16)
    effects = {(layer, head): {"rouge1": np.array([(head * 7) % 16 + 0.0])} for layer in (1, 2) for head in heads}
    order = sorted(heads, key=lambda head: -((head * 7) % 16))
    texts = [write_heads({layer: order[:count]}) for layer in (1, 2) for count in (4, 8, 12, 16)]
    values = {("system", text): {"rouge1": 40.0, "rouge2": 20.0} for text in texts}
    values["system", texts[0]] = {"rouge1": 45.0, "rouge2": 10.0}
    values["system", texts[5]] = {"rouge1": 39.0, "rouge2": 22.0}
    fake = Fake(values)
    best, tried = select_heads(fake.sweep(tmp_path / "s"), effects)
    assert best == write_heads({2: order[:8]})
    assert list(tried) == texts == [setting.heads for setting in fake.asked]


def test_selection_of_other_groups_and_of_equal_sets(tmp_path):
    """The last group may be smaller; of equal sets the first, with the fewest heads, is taken."""
    effects = {(1, head): {"rouge1": np.array([-head + 0.0])} for head in range(6)}
    fake = Fake({("t", text): 40.0 for text in ("1:0-3", "1:0-5")})
    best, tried = select_heads(fake.sweep(tmp_path / "s"), effects, labels="t")
    assert list(tried) == ["1:0-3", "1:0-5"] and best == "1:0-3"
    assert len(select_heads(fake.sweep(tmp_path / "s"), effects, labels="t", group=2)[1]) == 3
