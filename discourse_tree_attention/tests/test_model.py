"""Attention types, encoder and summariser: against loops, in the limits; parameter counts."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from ..matrices import MATRICES
from ..model import ATTENTIONS, TREES, ModelConfig, Summarizer, count_parameters, extraction_loss
from . import reference
from .conftest import SIZES

# Section 5.1: d_v = d_k = d_q = 512 and d_inner = 512
BALANCED = {"head_width": 512, "feed_forward": 512}
SEVERAL_HEADS = [("dot", 4), ("dense", 2), ("learned_random", 3)]
KINDS = [(attention, 1) for attention in ATTENTIONS] + SEVERAL_HEADS
FIXED = [(198_272, 9_726_281, "0.2M", "9.7M"), (1_575_424, 3_233_993, "1.6M", "3.2M")]
# Tables 2 and 3: (attention, heads) -> attention and total parameters, default then balanced;
# printed beside
PRINTED = {
    ("dot", 8): [
        (3_150_336, 12_678_345, "3.2M", "12.7M"),
        (25_191_936, 26_850_505, "25.2M", "27M"),
    ],
    ("dot", 1): [(395_136, 9_923_145, "0.4M", "9.9M"), (3_150_336, 4_808_905, "3.2M", "4.8M")],
    ("dense", 1): [
        (1_511_040, 11_039_049, "1.5M", "11.0M"),
        (2_888_192, 4_546_761, "2.9M", "4.5M"),
    ],
    ("learned_random", 1): [
        (722_560, 10_250_569, "0.7M", "10.3M"),
        (2_099_712, 3_758_281, "2.1M", "3.8M"),
    ],
    **{(kind, 1): FIXED for kind in ("fixed_random", "none", *TREES)},
}


@pytest.mark.parametrize("kind", PRINTED, ids=str)
@pytest.mark.parametrize("size", [0, 1], ids=["default", "balanced"])
def test_params_of_tables_2_and_3(kind, size):
    """Section 5.2: every count of Tables 2 and 3, exactly, and as it is printed there."""
    attention, heads = kind
    config = ModelConfig(attention=attention, heads=heads, **BALANCED if size else {})
    with torch.device("meta"):
        model = Summarizer(config)
    attention, whole, printed_attention, printed_whole = PRINTED[kind][size]
    assert count_parameters(model) == (attention, whole)
    for count, printed in ((attention, printed_attention), (whole, printed_whole)):
        digits = len(printed.rstrip("M").partition(".")[2])
        assert f"{count / 1e6:.{digits}f}M" == printed


def test_d3_params_of_dense_as_released():
    """D3: with Dense's inner width 64 the counts are the released code's, not the table's."""
    with torch.device("meta"):
        model = Summarizer(ModelConfig(attention="dense", dense_inner=64))
    assert count_parameters(model) == (363_264, 9_891_273)


@pytest.mark.parametrize(("attention", "heads"), KINDS)
def test_scores_against_loops(make_model, ragged, attention, heads):
    """Section 3 and 4: each document of a padded batch gets what loops over its own units compute.

    D4: with a ReLU. D18: logits divided by sqrt(d_k). D19: sinusoids added.
    """
    units, keep, matrix = ragged
    model = make_model(attention, heads=heads)
    scores = model(units, keep, matrix)
    for row, size in enumerate(keep.sum(1).tolist()):
        own_units, own_matrix = units[row, :size], matrix[row, :size, :size]
        own = reference.scores(model, reference.array(own_units), reference.array(own_matrix))
        found = reference.array(scores[row, :size])
        np.testing.assert_allclose(found, own, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", [a for a in ATTENTIONS if a != "none"])
def test_padding_gets_no_weight_and_rows_sum_to_one(make_model, ragged, attention):
    """Section 3: sum_j A_ij = 1 over the real units; padding gets 0, even in a dirty matrix."""
    units, keep, matrix = ragged
    attend = make_model(attention).layers[0].attention.attend
    weights = attend(units, keep, matrix + ~keep[:, None] * 0.5)
    weights = weights.expand(3, *weights.shape[1:])
    for row, size in enumerate(keep.sum(1).tolist()):
        assert (weights[row, :, :, size:] == 0).all()
        sums = weights[row, :, :size].sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_what_stands_at_padding_does_not_matter_and_half_precision_runs(
    make_model, ragged, attention
):
    """Not even NaN; the matrices are float32."""
    units, keep, matrix = ragged
    model, dirty = make_model(attention), units.masked_fill(~keep[..., None], torch.nan)
    torch.testing.assert_close(model(dirty, keep, matrix)[keep], model(units, keep, matrix)[keep])
    assert model.bfloat16()(units.bfloat16(), keep, matrix).dtype == torch.bfloat16


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_forward_and_backward_run_on_another_device(attention):
    """The meta device refuses to mix devices: no tensor is made on the CPU in between."""
    with torch.device("meta"):
        model = Summarizer(ModelConfig(attention=attention, **SIZES))
        units, matrix = torch.zeros(2, 5, 16), torch.zeros(2, 5, 5)
        keep = torch.ones(2, 5, dtype=torch.bool)
    scores = model(units, keep, matrix)
    scores.sum().backward()
    assert scores.device.type == "meta" and scores.shape == (2, 5)


def test_limit_tree_of_single_units_is_no_attention(make_model, ragged):
    """A = I as a tree's matrix gives what the model without attention gives (Section 5.1)."""
    units, keep, _ = ragged
    tree, none = make_model("d_tree"), make_model("none")
    none.load_state_dict(tree.state_dict())
    itself = tree(units, keep, torch.eye(7).repeat(3, 1, 1))
    torch.testing.assert_close(itself[keep], none(units, keep)[keep])


def test_d19_weights_begin_as_in_the_released_code(make_model):
    """D19: spread sqrt(2 / (D + K)) of value, query, key; two layers; R ~ N(0, 1)."""
    model = Summarizer(ModelConfig(attention="dot", width=96, head_width=32, feed_forward=8))
    assert len(model.layers) == 2
    for layer in model.layers:
        maps = layer.attention.value, layer.attention.attend.query, layer.attention.attend.key
        for linear in maps:
            assert linear.weight.std().item() == pytest.approx(0.125, rel=0.1)  # sqrt(2 / 128)
    for attention in ("learned_random", "fixed_random"):
        logits = make_model(attention).layers[0].attention.attend.logits
        assert abs(logits.mean()) < 6 / 512 and abs(logits.std() - 1) < 6 / math.sqrt(2 * 512 * 512)


def test_random_is_the_same_for_all_documents_and_fixed_is_not_trained(make_model, ragged):
    """Section 3: all data points share R; Learned Random trains it, Fixed Random does not."""
    units, keep, matrix = ragged
    for attention, trained in (("learned_random", True), ("fixed_random", False)):
        model = make_model(attention)
        one, other = (layer.attention.attend for layer in model.layers)
        torch.testing.assert_close(one(units, keep, None), one(units * 2, keep, None))
        assert (one.logits - other.logits).abs().max() > 0.1
        assert one.logits.requires_grad == other.logits.requires_grad == trained
        # a fixed R is saved with the run
        assert "layers.0.attention.attend.logits" in model.state_dict()


def test_d5_dropout_falls_on_fixed_weights_in_training_only(make_model, ragged):
    """D5: in training entries of A vanish, the others grow by 1 / (1 - p); in eval A stays."""
    units, keep, matrix = ragged
    layer = make_model("c_tree", dropout=0.5).layers[0].attention
    exact = layer(units, keep, matrix)
    torch.testing.assert_close(layer(units, keep, matrix), exact, atol=0, rtol=0)
    layer.train()
    assert (layer(units, keep, matrix) - exact)[0].abs().max() > 1e-3
    # The mean over many draws is the exact value: nothing else is random, and rows are not
    # renormalised.
    with torch.no_grad():
        draws = torch.stack([layer(units, keep, matrix) for _ in range(2000)])
    error = (draws.mean(0) - exact).abs() / (draws.std(0) / math.sqrt(2000) + 1e-6)
    assert error.max() < 6.5  # two-sided 1e-10 for each of 336 numbers
    # Section 5.1: of A = I nothing is dropped, for the released code has no weights there.
    layer = make_model("none", dropout=0.9).layers[0].attention
    exact = layer(units, keep)
    torch.testing.assert_close(layer.train()(units, keep), exact, atol=0, rtol=0)


def test_d27_dropout_falls_on_each_blocks_output_before_the_mlp_and_in_it(make_model, ragged):
    """D27, released code: on each block's output, on the encoder's, in the MLP; nowhere else."""
    units, keep, matrix = ragged
    model, seen = make_model("c_tree", dropout=0.5, layers=1).train(), []
    (layer,) = model.layers
    for dropout in (layer.dropout, model.dropout, model.classifier[2]):
        dropout.register_forward_hook(lambda _, given, dropped: seen.append((given[0], dropped)))
    model(units, keep, matrix)
    assert [given.size(-1) for given, _ in seen] == [16, 16, 16, 100]
    for given, dropped in seen:
        kept = (dropped != 0) | (given == 0)
        assert 0.2 < kept.float().mean() < 0.8 and torch.allclose(dropped[kept], 2 * given[kept])
    # what the MLP reads is what was dropped
    torch.testing.assert_close(seen[3][0], model.classifier[:2](seen[2][1]))
    sites = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Dropout)]
    assert sites == ["layers.0.attention.dropout", "layers.0.dropout", "dropout", "classifier.2"]


def test_extraction_loss_is_summed_weighted_and_ignores_padding():
    """Section 3: the MLP's sigmoid is in the loss; released: BCE summed, positives weighted."""
    scores, labels = torch.tensor([[0.5, -1.0, 9.0]]), torch.tensor([[True, False, True]])
    keep = torch.tensor([[True, True, False]])
    expected = 3.0 * math.log(1 + math.exp(-0.5)) + math.log(1 + math.exp(-1.0))
    assert extraction_loss(scores, labels, keep, 3.0).item() == pytest.approx(expected, rel=1e-6)


# Bad input


def test_a_document_longer_than_the_tables_is_refused(make_model):
    longest = {
        "dense": 512,
        "learned_random": 512,
        "fixed_random": 512,
        "dot": 1000,
        "c_tree": 1000,
    }
    for attention, most in longest.items():
        units, keep = torch.zeros(1, most + 1, 16), torch.ones(1, most + 1, dtype=torch.bool)
        said = f"a document of {most + 1} units is longer than the {most} of the model: cut it"
        with pytest.raises(ValueError, match=said):
            make_model(attention)(units, keep)


def test_another_attention_is_refused():
    with pytest.raises(ValueError, match="attention is 'tree'; use one of dot, dense"):
        ModelConfig(attention="tree")
    assert TREES == tuple(MATRICES) and set(TREES) < set(ATTENTIONS)


def test_the_readmes_example_runs():
    readme = Path(__file__).resolve().parents[1] / "README.md"
    (block,) = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    here = __package__.removesuffix(".tests")
    block = block.replace("from discourse_tree_attention.", f"from {here}.")
    names: dict = {}
    exec(block.replace('"discourse_tree_attention/', f'"{readme.parent.as_posix()}/'), names)
    # EDU 2 of storm.dis is a Nucleus in a Nucleus: 1 + 2 + 2 constituents with itself, 1 + 2 with
    # EDU 1.
    torch.testing.assert_close(names["matrix"][0, 1], torch.tensor([3.0, 5, 1, 1, 1, 1]) / 12)
    assert names["scores"].shape == (1, 6) and names["scores"].isfinite().all()
