"""Settings, decoding with the encoder run once, the file of results, and what is computed from it."""

import json
from itertools import product

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from ..masking import mask_heads, uniform_heads
from ..sweep import (
    Decoder,
    Document,
    Setting,
    Sweep,
    all_heads,
    content_selection_effects,
    digest,
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


def test_all_heads_of_a_model(bart):
    assert all_heads(bart) == {1: [0, 1, 2, 3], 2: [0, 1, 2, 3]}
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


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_settings_decode_what_generate_does_from_the_text(bart, documents, batch_size):
    """In their order, whatever the batch; several settings one after the other, and the first one again."""
    decoder = Decoder(bart, documents, batch_size, **FLAGS)
    outputs = [decoder.decode(setting) for setting in [*SETTINGS, SETTINGS[0]]]
    for setting, output in zip([*SETTINGS, SETTINGS[0]], outputs, strict=True):
        assert output == [decode_alone(bart, document, setting) for document in documents]
    assert len({json.dumps(output) for output in outputs}) == len(SETTINGS)  # each setting changes something


def test_documents_are_encoded_once_whatever_the_number_of_settings(bart, documents):
    calls = []
    bart.get_encoder().register_forward_hook(lambda module, inputs, output: calls.append(len(output[0])))
    decoder = Decoder(bart, documents, 2, **FLAGS)
    for setting in SETTINGS:
        decoder.decode(setting)
    assert calls == [2, 2, 1]


def test_summaries_end_where_they_end(bart, documents, monkeypatch):
    """`generate` pads the rows of a batch; padding inside a summary is not its end."""
    rows = torch.tensor([[2, 5, 1, 6, 2], [2, 7, 2, 1, 1]])
    monkeypatch.setattr(bart, "generate", lambda **keywords: rows)
    assert Decoder(bart, [documents[1], documents[0]]).decode(Setting("plain")) == [[2, 5, 1, 6, 2], [2, 7, 2]]


def test_decoding_leaves_the_model_as_it_was(bart, documents):
    def hooks() -> int:
        return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in bart.modules())

    before, count = digest(bart), hooks()
    decoder = Decoder(bart, documents, 2, **FLAGS)
    for setting in SETTINGS:
        decoder.decode(setting)
    with pytest.raises(ValueError, match="layer 3 does not exist"):
        decoder.decode(Setting("oracle", "3:0"))
    assert digest(bart) == before and hooks() == count


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
        return {metric: np.array([each, each + 1]) for metric, each in found.items()}

    def sweep(self, path, what="a", labels=None) -> Sweep:
        return Sweep(path, self.decode, self.score, {"model": what}, labels)


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


def test_a_half_written_last_line_is_dropped(tmp_path):
    path, first, second, third = tmp_path / "sweep.jsonl", Fake(), Fake(), Fake()
    first.sweep(path).run(SETTINGS)
    whole = path.read_bytes()
    for cut in (1, 20):  # without its line feed; in the middle
        path.write_bytes(whole[:-cut])
        second.asked = []
        second.sweep(path).run(SETTINGS)
        assert second.asked == SETTINGS[-1:]
        third.sweep(path).run(SETTINGS)
        assert third.asked == [] and path.read_bytes().count(b"\n") == len(SETTINGS)


def test_what_was_done_before_a_failure_is_kept(tmp_path):
    """As a killed process: the third setting fails, the first two are in the file."""
    path, first, second = tmp_path / "sweep.jsonl", Fake(), Fake()
    sweep = first.sweep(path)
    sweep.score = lambda texts: first.score(texts) if len(first.asked) < 3 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        sweep.run(SETTINGS)
    second.sweep(path).run(SETTINGS)
    assert second.asked == SETTINGS[2:]


def test_results_of_something_else_are_not_taken(tmp_path):
    """Another model or other labels are decoded again; what does not depend on labels is not."""
    path, fake = tmp_path / "sweep.jsonl", Fake()
    fake.sweep(path, "a", {"oracle": 1, "system": 1}).run(SETTINGS)
    for what, labels, expected in (
        ("b", {"oracle": 1, "system": 1}, SETTINGS),
        ("a", {"oracle": 2, "system": 1}, [SETTINGS[2]]),
        ("a", {"oracle": 1, "system": 1}, []),
    ):
        fake.asked = []
        fake.sweep(path, what, labels).run(SETTINGS)
        assert fake.asked == expected


@pytest.mark.parametrize("line", ["not json", "[1, 2]", '{"key": "a"}', '{"key": "a", "scores": [1]}'])
def test_a_broken_line_is_named(tmp_path, line):
    path = tmp_path / "sweep.jsonl"
    Fake().sweep(path).run(SETTINGS[:1])
    path.write_text(path.read_text() + line + "\n" + path.read_text())
    with pytest.raises(ValueError, match=r"sweep\.jsonl:2 is not a line of a sweep: remove"):
        Fake().sweep(path)


def test_digests_tell_weights_and_tokens_apart(bart):
    before = digest(bart, [1, 2])
    assert digest(bart, [1, 2]) == before != digest(bart, [1, 3])
    with torch.no_grad():
        bart.model.decoder.layers[1].fc2.bias[3] += 1e-6
    assert digest(bart, [1, 2]) != before


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
    assert best == {2: sorted(order[:8])}
    assert [text for text, _ in tried] == texts == [setting.heads for setting in fake.asked]


def test_selection_of_other_groups_and_of_equal_sets(tmp_path):
    """The last group may be smaller; of equal sets the first, with the fewest heads, is taken."""
    effects = {(1, head): {"rouge1": np.array([-head + 0.0])} for head in range(6)}
    fake = Fake({("t", text): 40.0 for text in ("1:0-3", "1:0-5")})
    best, tried = select_heads(fake.sweep(tmp_path / "s"), effects, labels="t")
    assert [text for text, _ in tried] == ["1:0-3", "1:0-5"] and best == {1: [0, 1, 2, 3]}
    assert len(select_heads(fake.sweep(tmp_path / "s"), effects, labels="t", group=2)[1]) == 3
