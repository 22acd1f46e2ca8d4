"""Settings, decoding with the encoder run once, the file of results, and what is computed from it."""

import json
from contextlib import nullcontext
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertModel

from ..loading import Run
from ..masking import mask_heads, uniform_heads
from ..sweep import (
    Setting,
    Sweep,
    all_heads,
    checksums,
    collect,
    content_selection_effects,
    decode,
    default_heads,
    encode,
    find_heads,
    ranked,
    read_heads,
    sample,
    select_heads,
    sum_of_parts,
    synergy,
    write_heads,
)
from ..text import Document
from ..train import TrainConfig

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
        found.append(Document(ids, [], False, keep))
    return found


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
    run = Run(TrainConfig(data=data), model, None)
    assert find_heads(default_heads(run), model) == heads


# Decoding


class Words:
    """A tokenizer whose texts are the numbers of the tokens."""

    def decode(self, row: list[int], skip_special_tokens: bool) -> str:
        return " ".join(map(str, row[1:]))


def decode_alone(bart, document: Document, setting: Setting) -> list[int]:
    """`generate` from token ids, one document by itself, no memory handed over."""
    ids = torch.tensor([document.ids])
    heads = read_heads(setting.heads) if setting.heads else {}
    contexts = {"plain": nullcontext, "uniform": lambda: uniform_heads(bart, heads)}
    masked = lambda: mask_heads(bart, heads, torch.tensor([document.keep[setting.kind]]))  # noqa: E731
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


def test_documents_are_encoded_once_and_batch_by_batch(bart, documents):
    """All settings of a batch share its states, and no batch is encoded before it is asked for."""
    calls = []
    bart.get_encoder().register_forward_hook(lambda module, inputs, output: calls.append(len(output[0])))
    settings = {setting.kind: setting for setting in SETTINGS}
    decoded = decode(Run(None, bart, Words()), documents, settings, encode(bart, documents, 2), **FLAGS)
    seen = [len(calls) for _ in decoded]
    assert calls == [2, 2, 1] and seen == [1] * 8 + [2] * 8 + [3] * 4


def test_summaries_end_where_they_end(bart, documents, monkeypatch):
    """`generate` pads the rows of a batch; padding inside a summary is not its end."""
    rows = torch.tensor([[2, 5, 1, 6, 2], [2, 7, 2, 1, 1]])
    monkeypatch.setattr(bart, "generate", lambda **keywords: rows)
    found = decode_all(bart, documents[:2], SETTINGS[:1])
    assert sorted(row for row, _ in found.values()) == [[2, 5, 1, 6, 2], [2, 7, 2]]


def test_texts_come_in_the_order_of_the_documents_and_are_written_as_they_come(tmp_path):
    examples = [SimpleNamespace(id=f"n{i}", target=f"t{i}") for i in range(3)]

    def decoded():
        for i in (2, 0, 1):
            assert len((tmp_path / "x.jsonl").read_text().splitlines()) == {2: 0, 0: 1, 1: 2}[i]
            yield "x", i, [i], f"text {i}"

    assert collect(decoded(), ["x"], examples, tmp_path) == {"x": ["text 0", "text 1", "text 2"]}
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert rows[0] == {"id": "n2", "prediction": "text 2", "reference": "t2"}


def test_checksums_tell_apart_whatever_changes_a_result(bart, documents):
    run, examples = Run(None, bart, Words()), [SimpleNamespace(references=[["x"]]) for _ in documents]

    def sums(documents=documents, examples=examples, **generation):
        return checksums(run, examples, documents, generation)

    first = sums(num_beams=1)
    assert first == sums(num_beams=1) and len(set(first.values())) == 3  # plain is as uniform
    other = [d._replace(keep=d.keep | {"oracle": [True] * len(d.ids)}) for d in documents]
    changed = sums(other, num_beams=1)
    assert {kind for kind in first if first[kind] != changed[kind]} == {"oracle"}
    assert first["plain"] != sums(num_beams=2)["plain"] != sums(documents[:-1], num_beams=1)["plain"]
    assert first["plain"] != sums(examples=[SimpleNamespace(references=[["y"]])] * 5, num_beams=1)["plain"]
    with torch.no_grad():
        bart.model.decoder.layers[1].fc2.bias[3] += 1e-3
    assert sums(num_beams=1)["plain"] != first["plain"]


# The file


class Fake:
    """Measures by a table; keeps what it is asked."""

    def __init__(self, values=None):
        self.asked, self.values = [], values or {}

    def measure(self, setting: Setting) -> dict[str, np.ndarray]:
        self.asked.append(setting)
        value = self.values.get(setting, len(self.asked) + 1 / 3)
        found = value if isinstance(value, dict) else {"rouge1": value, "rouge2": 0.0, "rouge1_recall": value}
        return {metric: np.array([value, value + 1]) for metric, value in found.items()}

    def sweep(self, path, depends=None) -> Sweep:
        return Sweep(path, self.measure, depends or {})


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


@pytest.mark.parametrize("cut", [1, 20])
def test_a_killed_sweep_goes_on_after_a_half_written_last_line(tmp_path, cut):
    path, second, third = tmp_path / "sweep.jsonl", Fake(), Fake()
    Fake().sweep(path).run(SETTINGS[:3])
    path.write_bytes(path.read_bytes()[:-cut])  # without its line feed; in the middle
    second.sweep(path).run(SETTINGS)
    assert second.asked == (SETTINGS[3:] if cut == 1 else SETTINGS[2:])
    third.sweep(path).run(SETTINGS)
    assert third.asked == []


def test_results_of_something_else_are_not_taken_and_not_lost(tmp_path):
    """Another model or other labels are decoded again; what does not depend on labels is not."""
    path, fake = tmp_path / "sweep.jsonl", Fake()
    path.write_text('not json\n[1, 2]\n{"kind": "a"}\n')
    kinds = ("plain", "uniform", "oracle", "system")
    for depends, expected in (
        (dict.fromkeys(kinds, 1), SETTINGS),
        (dict.fromkeys(kinds, 2), SETTINGS),
        (dict.fromkeys(kinds, 2) | {"oracle": 3}, [SETTINGS[2]]),
        (dict.fromkeys(kinds, 1), []),
    ):
        fake.asked = []
        fake.sweep(path, depends).run(SETTINGS)
        assert fake.asked == expected
    assert path.read_text().startswith("not json\n")


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
    values |= {("oracle", "1:1"): 57.5, ("uniform", "1:1"): 53.0, ("uniform", "2:0"): 50.25, ("plain", ""): 50.0}
    fake = Fake(values)
    effects = content_selection_effects(fake.sweep(tmp_path / "s"), {1: [0, 1], 2: [0, 1]})
    assert {place: each["rouge1"].mean() for place, each in effects.items()} == {
        (1, 0): 0.0, (1, 1): 4.5, (2, 0): -0.25, (2, 1): 0.0
    }  # fmt: skip
    assert effects[1, 1]["over_plain"].tolist() == [7.5, 7.5]  # D10: the other reading of an improvement
    assert len(fake.asked) == 9 and {setting.kind for setting in fake.asked} == {"plain", "oracle", "uniform"}


def test_heads_are_ranked_by_effect_equal_ones_by_number():
    effects = {(1, head): {"rouge1": np.array([value, value])} for head, value in enumerate([2.0, 5.0, -1.0, 5.0])}
    effects[2, 0] = {"rouge1": np.array([9.0, 9.0])}
    assert ranked(effects) == {1: [1, 3, 0, 2], 2: [0]}


def test_section_4_2_synergy_adds_the_best_heads_first(tmp_path):
    """Together 1:1 and 1:2 gain more than the sum, all three gain less; heads are named in the order of adding."""
    values = layer_values({(1, 0): -1.0, (1, 1): 2.0, (1, 2): 3.0})
    together = {("oracle", "1:1-2"): 58.0, ("uniform", "1:1-2"): 49.0, ("oracle", "1:0-2"): 53.0}
    fake = Fake(values | together | {("uniform", "1:0-2"): 51.0})
    sweep = fake.sweep(tmp_path / "s")
    effects = content_selection_effects(sweep, {1: [0, 1, 2]})
    steps = synergy(sweep, effects)
    assert list(steps) == [(1, (2,)), (1, (2, 1)), (1, (2, 1, 0))]
    assert [gain["rouge1"].mean() for gain in steps.values()] == [3.0, 9.0, 2.0]
    other_layer = {(2, 0): {metric: values + 9 for metric, values in effects[1, 0].items()}}
    assert sum_of_parts(effects | other_layer, 1)["rouge1_recall"].tolist() == [4.0, 4.0]
    assert len(fake.asked) == len(set(fake.asked)) == 1 + 6 + 4


def test_analysis_set_is_a_random_sample_in_order():
    chosen = sample(range(50), 10)
    assert chosen == sorted(set(chosen)) == sample(range(50), 10) and len(chosen) == 10 and chosen != list(range(10))
    assert sample(range(50), 60) == list(range(50))


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
