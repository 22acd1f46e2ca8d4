"""Settings of masked heads, and decoding with the encoder run once."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertModel

from ..config import TrainConfig
from ..decode import (
    Setting,
    all_heads,
    collect,
    decode,
    default_heads,
    encode,
    find_heads,
    read_heads,
    write_heads,
)
from ..loading import Run
from ..masking import mask_heads, uniform_heads
from ..text import Document

FLAGS = dict(num_beams=2, max_new_tokens=8)
SETTINGS = [
    Setting("plain"),
    Setting("uniform", "1:0,2:1-3"),
    Setting("oracle", "1:0-3"),
    Setting("system", "1:1,2:0-2"),
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
