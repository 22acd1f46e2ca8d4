"""What is measured of attention for Figures 1 and 5 to 8."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BartForConditionalGeneration

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from shared import pretrained
from shared.data import load

from ...experiments import figures, measures
from ...experiments.measures import attention_map, read_again, retained_attention, retained_curve
from ...loading import Run, load_run
from ...selection import SentenceAttention
from ...train import train
from ..test_train import DATA, SMALL


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    train(replace(SMALL, steps=2, max_source=400), folder / "base")
    train(replace(SMALL, steps=2, max_source=400, init=str(folder / "base"), task="kl"), folder / "kl")
    return folder


@pytest.fixture(scope="module")
def kl(runs) -> Run:
    run = load_run(runs / "kl")
    pretrained.generation(run.model, 9, num_beams=2, max_length=9)
    return run


@pytest.fixture(scope="module")
def examples() -> list:
    return load(DATA, "test", 5)


def test_padding_is_no_step(kl, examples):
    """The steps of a summary are its words and `</s>`; what `generate` pads it with is none."""
    source = kl.collate(kl.encode(examples[:1])).source()
    record, is_step = read_again(kl, source, [2, 0, 9, 2, 1, 1])
    assert is_step.tolist() == [[True] * 3 + [False] * 2]
    assert record[0].exact.shape[:3] == (1, 4, 5) and len(record) == 2


def test_d21_retained_attention_averages_heads_first():
    """D21, A.4: heads that look at different sentences retain less together than each alone; padding steps are out."""
    exact = torch.tensor([[[0.9, 0.1, 0.0], [0.2, 0.2, 0.6]], [[0.1, 0.9, 0.0], [0.2, 0.2, 0.6]]])  # (H, T, N)
    record = [SentenceAttention(exact.unsqueeze(0), None, None)]
    curve = retained_attention(record, torch.tensor([[True, False]]))
    np.testing.assert_allclose(curve, [[0.5, 1.0, 1.0]], atol=1e-6)  # not 0.9
    curve = retained_attention(record, torch.tensor([[True, True]]))
    np.testing.assert_allclose(curve, [[0.55, 0.9, 1.0]], atol=1e-6)  # (0.5 + 0.6) / 2: each step has its own order
    second = SentenceAttention(torch.tensor([[[[1.0, 0, 0], [0, 1.0, 0]]]]), None, None)
    curve = retained_attention([record[0], second], torch.tensor([[True, True]]))
    np.testing.assert_allclose(curve, [[0.775, 0.95, 1.0]], atol=1e-6)


def test_retained_attention_of_a_batch_knows_no_padding(kl, examples):
    """The mean over the curves that documents have alone; beyond its last sentence a document retains everything."""
    together = retained_curve(kl, examples, 3)
    alone = [retained_curve(kl, [example], 1) for example in examples]
    assert [len(curve) for curve in alone] == [item.sentence_ids[-1] + 1 for item in kl.encode(examples)]
    expected = [[*curve, *[1.0] * (len(together) - len(curve))] for curve in alone]
    np.testing.assert_allclose(together, np.mean(expected, 0), atol=1e-5)
    assert together[-1] == pytest.approx(1.0, abs=1e-5) and len({len(curve) for curve in alone}) > 1


def test_d21_maps_of_words_and_sentences_add_up_to_one_and_agree(runs, kl, examples):
    """D21: transformers' cross-attention, mean over heads and layers. A sentence has the sum of its words' weights."""
    found, [item] = attention_map(kl, examples[1]), kl.encode(examples[1:2])
    words, sentences = np.array(found["word"]), np.array(found["exact"])
    assert words.shape == (len(found["target"]), len(found["source"]))
    plain = BartForConditionalGeneration.from_pretrained(runs / "base" / "model", attn_implementation="eager").eval()
    target = torch.tensor([[2, *kl.tokenizer.convert_tokens_to_ids(found["target"])]])
    theirs = plain(torch.tensor([item.ids]), decoder_input_ids=target[:, :-1], output_attentions=True)
    expected = torch.stack(theirs.cross_attentions).mean((0, 2))[0]
    np.testing.assert_allclose(words, expected.detach().numpy(), atol=1e-4)
    for number in range(sentences.shape[1]):
        inside = np.array(found["sentence_ids"]) == number
        np.testing.assert_allclose(words[:, inside].sum(1), sentences[:, number], atol=1e-3)
    np.testing.assert_allclose(sentences.sum(1), 1, atol=1e-3)
    assert found["source"][0] == "<s>" and found["source"][-1] == "</s>"


def test_the_command_writes_what_the_figures_read(runs, tmp_path):
    """A curve for each run, a map of the first one."""
    measures.main((runs / "base", runs / "kl"), tmp_path / "c.csv", tmp_path / "m.json", limit=2, document=1)
    with (tmp_path / "c.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    run = load_run(runs / "base")
    examples = load(DATA, "test", 2)
    curve = retained_curve(run, examples)
    np.testing.assert_allclose([float(row["share"]) for row in rows if row["run"] == "base"], curve, atol=1e-5)
    shown = json.loads((tmp_path / "m.json").read_text())
    assert shown == attention_map(run, examples[1])
    figures.main(tmp_path / "f", curves=tmp_path / "c.csv", map=tmp_path / "m.json")
    assert {path.name for path in (tmp_path / "f").iterdir()} == {"figure_1.png", "attention_map.png"}
