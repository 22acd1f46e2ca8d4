"""Decoding, and what is measured of it."""

import pytest
import torch

pytest.importorskip("shared")

import sacrebleu  # noqa: E402

from shared.data import Example, load  # noqa: E402
from shared.score import score  # noqa: E402

from .. import text  # noqa: E402
from ..decode import Output, decode_all  # noqa: E402
from ..evaluate import evaluate, sparsity  # noqa: E402
from ..loading import load_run  # noqa: E402

DATA = "toy:count=12,seed=9"


def example(source: str, target: str, **fields) -> Example:
    return Example(id=source, document=[source], summary=[target], references=[[target]], **fields)


def share(outputs) -> float:
    """Sparsity of all outputs, in percent."""
    counts = [sparsity(output, None)["pruned"] for output in outputs]
    return 100 * sum(pruned for pruned, _ in counts) / sum(encodings for _, encodings in counts)


@pytest.fixture
def items(whole):
    """A run with gates drawn at random, so that some of them are closed, and its test items."""
    run = load_run(whole["scratch"])
    torch.manual_seed(0)
    torch.nn.init.normal_(run.model.l0drop[0].predictor.weight)
    return run, run.encode(load(DATA, "test")[:6])


def test_decode_keeps_the_order_whatever_the_batch(items):
    """Outputs stand in the order of the items, though batches are made by length; padding changes no score."""
    run, encoded = items
    together, alone = (decode_all(run, encoded, size, True, extra_length=0) for size in (5, 1))
    for one, other, item in zip(together, alone, encoded, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.pruned == other.pruned and len(one.pruned[-1]) == len(item.source)


def test_algorithm1_decodes_what_the_dense_memory_decodes(items):
    run, encoded = items
    pruned, dense = (decode_all(run, encoded, 32, prune, extra_length=0) for prune in (True, False))
    assert 0 < share(pruned) < 100
    assert [o.score for o in pruned] == pytest.approx([o.score for o in dense], abs=1e-4)


def test_sparsity_counts_every_encoding_with_eos():
    """#(expected gate = 0) / #encodings of the last layer (Section 6), of each layer, and of each type, without EOS."""
    types = ["function", "content", "function"]
    counts = sparsity(Output([], 0.0, [[True, False, False, False], [True, False, True, True]]), types)
    assert counts["pruned"] == [3, 4] and counts["pruned_layer_1"] == [1, 4]
    assert counts["pruned_function"] == [2, 2] and counts["pruned_content"] == [0, 1]
    assert counts["pruned_punctuation"] == [0, 0]


def test_types_follow_the_words(whole):
    """Full stops are punctuation, "in" is a function word; a row for each example, in its own words."""
    run, stories = load_run(whole["scratch"]), load(DATA, "test")[:3]
    rows = {row["id"]: row for row in evaluate(run, stories, "l0-0", tags=text.tag_sources(stories))}
    for story in stories:
        tokens, row = run.tokenizer.encode(story.source).tokens, rows[story.id]
        total = sum(row[f"pruned_{name}"][1] for name in text.patterns.UNIT_TYPES)
        assert total == len(tokens) == row["pruned"][1] - 1
        assert row["pruned_punctuation"][1] >= tokens.count("▁.") > 0
        assert row["references"] == story.references and row["system"] == "l0"


def test_gates_that_are_half_open_are_not_pruned(items):
    """Sparsity counts gates that are exactly 0 (Section 6), not small ones."""
    run, encoded = items
    first = [encoded[i] for i in range(3)]
    with torch.no_grad():
        run.model.l0drop[0].predictor.weight.zero_()
        run.model.l0drop[0].predictor.bias.fill_(-1.5)  # expected gate 0.12
    assert share(decode_all(run, first, 32, True, extra_length=0)) == 0
    with torch.no_grad():
        run.model.l0drop[0].predictor.bias.fill_(-2.5)
    assert share(decode_all(run, first, 32, True, extra_length=0)) == 100


def test_d16_bleu_is_sacrebleus_on_plain_text():
    """D16: the corpus score of shared.score, by which translations are compared, is sacrebleu's 13a."""
    targets = [f"the cat number {i} sat on the mat, it said" for i in range(8)]
    texts = targets[:5] + ["a dog ran off today"] * 3
    rows = [{"id": i, "prediction": texts[i], "references": [[targets[i]]], "system": "a", "seed": 0} for i in range(8)]
    [value] = [row["value"] for row in score(rows, "bleu") if row["metric"] == "bleu"]
    assert value == pytest.approx(sacrebleu.corpus_bleu(texts, [targets]).score)
