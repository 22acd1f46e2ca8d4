"""What is measured: attention (Figures 1 and 5 to 8), cross-entropy, lengths."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BartForConditionalGeneration

pytest.importorskip("shared")

from shared import pretrained
from shared.data import Example, load

from ...experiments import cross_entropy
from ...experiments.cross_entropy import cross_entropies, systems
from ...experiments.lengths import lengths
from ...experiments.measures import attention_map, read_again, retained_attention, retained_curve
from ...loading import Run, load_run
from ...selection import Selection
from ..test_train import DATA


@pytest.fixture(scope="module")
def kl(runs) -> Run:
    run = load_run(runs / "kl-0")
    run = run._replace(config=replace(run.config, max_source=256))  # nothing is cut
    pretrained.generation(run.model, 9, num_beams=2, max_length=9)
    return run


@pytest.fixture(scope="module")
def examples() -> list:
    return load(DATA, "test", 5)


def test_d21_retained_attention_averages_heads_first():
    """D21, A.4: heads that look at different sentences retain less together than alone."""
    first = [[[0.9, 0.1, 0.0], [0.2, 0.2, 0.6]], [[0.1, 0.9, 0.0], [0.2, 0.2, 0.6]]]  # (H, T, N)
    layers = torch.tensor([first, [[[1.0, 0, 0], [0, 1.0, 0]]] * 2])
    # Not (0.9 + 0.6) / 2.
    np.testing.assert_allclose(retained_attention(layers[:1]), [0.55, 0.9, 1.0], atol=1e-6)
    np.testing.assert_allclose(retained_attention(layers), [0.775, 0.95, 1.0], atol=1e-6)


def test_beyond_its_last_sentence_a_document_retains_everything(kl, examples):
    items = kl.encode(examples)
    alone, together = [retained_curve(kl, [item]) for item in items], retained_curve(kl, items)
    assert [len(curve) for curve in alone] == [item.sentence_ids[-1] + 1 for item in items]
    expected = [[*curve, *[1.0] * (len(together) - len(curve))] for curve in alone]
    np.testing.assert_allclose(together, np.mean(expected, 0), atol=1e-5)
    assert together[-1] == pytest.approx(1.0, abs=1e-5) and len({len(curve) for curve in alone}) > 1


def test_d21_maps_of_words_and_sentences_add_up_to_one_and_agree(runs, kl, examples):
    """D21: transformers' cross-attention, mean over heads and layers.

    A sentence has the sum of its words' weights.
    """
    [item] = kl.encode(examples[1:2])
    words, written = attention_map(kl, item)
    sentences = read_again(kl, item)[0].mean((0, 1)).numpy()
    assert words.shape == (len(written), len(item.ids))
    name = runs / "kl-0" / "model"
    plain = BartForConditionalGeneration.from_pretrained(name, attn_implementation="eager").eval()
    target = torch.tensor([[2, *kl.tokenizer.convert_tokens_to_ids(written[:-1])]])
    theirs = plain(torch.tensor([item.ids]), decoder_input_ids=target, output_attentions=True)
    expected = torch.stack(theirs.cross_attentions).mean((0, 2))[0]
    np.testing.assert_allclose(words, expected.detach().numpy(), atol=1e-4)
    for number in range(sentences.shape[1]):
        inside = np.array(item.sentence_ids) == number
        np.testing.assert_allclose(words[:, inside].sum(1), sentences[:, number], atol=1e-4)


def test_full_is_the_loss_of_training_and_a_selection_changes_it(runs):
    run, examples = load_run(runs / "base-0"), load(DATA, "validation", 3)
    full = list(cross_entropies(run, examples, Selection()))
    one = list(cross_entropies(run, examples, Selection("ideal", 1)))
    for item, value in zip(run.encode(examples), full, strict=True):  # each alone, without padding
        batch = run.collate([item])
        loss = run.model(**batch.source(), labels=batch.labels).loss.item()
        assert loss == pytest.approx(value, abs=1e-4)
    assert one != pytest.approx(full, abs=1e-6)
    assert [name for name, _ in systems(run, 1)] == ["full", "ideal.r1", "random.r1", "mean_key.r1"]
    assert [name for name, _ in systems(run, 2)] == ["full", "approx.r2"]  # it has a map now


def test_the_split_that_is_asked_for_is_measured(runs, capsys):
    """A row for each choice and document; a run with a map is read under it."""
    path = runs / "kl-0"
    cross_entropy.main(1, "validation", 2, (path,))
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    examples, run = load(DATA, "validation", 2), load_run(path)
    assert examples != load(DATA, "test", 2)
    assert [row["references"] for row in rows] == [e.references for e in examples] * 2
    assert [row["system"] for row in rows] == ["kl.full"] * 2 + ["kl.approx.r1"] * 2
    expected = [*cross_entropies(run, examples, Selection())]
    expected += cross_entropies(run, examples, Selection("approx", 1))
    assert [row["cross_entropy"] for row in rows] == pytest.approx(expected, rel=1e-6)


def test_d28_nothing_is_cut_and_special_tokens_do_not_count(runs):
    """D28: neither `<s>` and `</s>` as tokens, nor `</s>` as a sentence.

    A document of one string is split.
    """
    run = load_run(runs / "base-0")
    target = ["they left ."]
    whole = Example("", ["We left. They stayed."], target, [], is_string=True)
    examples = [Example("", target * 99, target, []), whole]
    texts = [*(example.source for example in examples), "they left ."]
    first, second, m = (len(run.tokenizer(text)["input_ids"]) - 2 for text in texts)
    n = (first + second) / 2
    assert lengths(run, examples) == {"N": n, "N1": (99 + 2) / 2, "M": m, "N/M": n / m}
