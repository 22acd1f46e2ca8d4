"""LoBART: local attention against BART with a band as its mask, padding, memory, and the longer table of positions."""

import copy

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import BartForConditionalGeneration

from ..lobart import LocalSelfAttention, extend_positions, local_mask, make_local, windows
from ..model import SentenceSparseBart, load_model
from .conftest import roughen


@pytest.fixture(params=["eager", "sdpa"])
def bart(request, config) -> BartForConditionalGeneration:
    """A plain BART; the local encoder must not depend on what attention it had."""
    torch.manual_seed(1)
    model = roughen(BartForConditionalGeneration(config))
    model.set_attn_implementation(request.param)
    return model


def local(bart: BartForConditionalGeneration, window: int) -> BartForConditionalGeneration:
    """A copy of it with local attention."""
    model = copy.deepcopy(bart)
    make_local(model, window)
    return model


def band(attention_mask: torch.Tensor, half: int, implementation: str) -> torch.Tensor:
    """(B, 1, S, S) mask, from the definition: i sees j if |i - j| <= half and j is no padding."""
    batch, length = attention_mask.shape
    keep = torch.zeros(batch, 1, length, length).bool()
    for document in range(batch):
        for i in range(length):
            for j in range(length):
                keep[document, 0, i, j] = (abs(i - j) <= half and bool(attention_mask[document, j])) or i == j
    return keep if implementation == "sdpa" else torch.zeros(keep.shape).masked_fill(~keep, float("-inf"))


def states(model: torch.nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None):
    return model.get_encoder()(input_ids=input_ids, attention_mask=attention_mask)[0]


# The same as BART


@pytest.mark.parametrize("window", [2, 4, 6, 10, 26, 100])
def test_local_attention_is_barts_with_a_band_as_mask(bart, ragged, window):
    """Outputs at all real tokens, and gradients of all parameters; 14 tokens, so whole and ragged blocks."""
    model, keep = local(bart, window), ragged["attention_mask"]
    mask = band(keep, window // 2, bart.config._attn_implementation)
    expected, found = states(bart, ragged["input_ids"], mask), states(model, ragged["input_ids"], keep)
    torch.testing.assert_close(found[keep.bool()], expected[keep.bool()], atol=2e-5, rtol=1e-4)
    weight = torch.randn_like(found) * keep.unsqueeze(-1)
    (expected * weight).sum().backward()
    (found * weight).sum().backward()
    ours = dict(model.get_encoder().named_parameters())
    for name, parameter in bart.get_encoder().named_parameters():
        torch.testing.assert_close(ours[name].grad, parameter.grad, atol=2e-3, rtol=1e-3)


def test_limit_a_window_that_covers_the_document_is_full_attention(bart, ragged):
    """13 tokens to either side are all of 14, 12 are not."""
    keep = ragged["attention_mask"]
    expected = states(bart, ragged["input_ids"], keep)[keep.bool()]
    for window, is_full in ((26, True), (1024, True), (24, False)):
        found = states(local(bart, window), ragged["input_ids"], keep)[keep.bool()]
        assert torch.allclose(found, expected, atol=2e-5) == is_full


def test_a_token_has_influence_within_the_window_and_none_beyond(config):
    """One layer: |i - j| <= 3 exactly, in both directions."""
    attention = LocalSelfAttention(BartForConditionalGeneration(config).get_encoder().layers[0].self_attn, 6)
    vectors = torch.randn(1, 17, 16, requires_grad=True)
    for i in range(17):
        (gradient,) = torch.autograd.grad(attention(vectors)[0][0, i].sum(), vectors)
        is_seen = (gradient[0] != 0).any(-1)
        assert is_seen.nonzero().flatten().tolist() == [j for j in range(17) if abs(i - j) <= 3]


def test_windows_and_mask_by_hand():
    """Five tokens, the last padding, in blocks of two, each with its neighbours."""
    blocks = windows(torch.arange(1.0, 6).view(1, 5, 1), 2, 2)[0, :, :, 0]
    assert blocks.tolist() == [[0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 5, 0], [3, 4, 5, 0, 0, 0]]
    keep = local_mask(torch.tensor([[False] * 4 + [True]]), 2, 2)[0]
    assert keep[0].int().tolist() == [[0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1]]
    assert keep[1].int().tolist() == [[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 0, 0]]
    assert keep[2].int().tolist() == [[1, 1, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0]]  # padding sees itself


def test_attention_weights_are_dropped_in_training_alone(config):
    config.attention_dropout = 0.5
    model = local(BartForConditionalGeneration(config), 4)
    attention, vectors = model.get_encoder().layers[0].self_attn, torch.randn(1, 9, 16)
    for is_training in (True, False):
        attention.train(is_training)
        assert torch.equal(attention(vectors)[0], attention(vectors)[0]) != is_training


# Padding


def test_padding_changes_nothing(bart, ragged):
    """A document alone without padding = its row in the batch, whatever the padding holds."""
    model, keep = local(bart, 4), ragged["attention_mask"]
    found = states(model, ragged["input_ids"], keep)
    other = states(model, ragged["input_ids"].where(keep.bool(), 9), keep)
    for row, length in enumerate(keep.sum(1).tolist()):
        alone = states(model, ragged["input_ids"][row : row + 1, :length])[0]
        torch.testing.assert_close(found[row, :length], alone, atol=2e-5, rtol=1e-4)
        assert torch.equal(other[row, :length], found[row, :length])
    visible = states(model, ragged["input_ids"])
    assert not torch.allclose(visible[1, :9], found[1, :9], atol=1e-3)


def test_rows_of_padding_alone_give_no_nan(bart, ragged):
    keep = torch.zeros_like(ragged["attention_mask"])
    keep[0, :2] = 1
    model = local(bart, 4)
    found = states(model, ragged["input_ids"], keep)
    found.sum().backward()
    assert found.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.get_encoder().parameters())


def test_bad_input_is_named(bart, ragged):
    for window in (3, 0, -2):
        with pytest.raises(ValueError, match=f"attention_window is {window}; it must be even and at least 2"):
            local(bart, window)
    mask = torch.ones(3, 1, 14, 14)
    with pytest.raises(ValueError, match=r"has the shape \(3, 1, 14, 14\); local attention needs \(B, S\)"):
        states(local(bart, 4), ragged["input_ids"], mask)
    with pytest.raises(ValueError, match="positions is 31, the model has 32 already: leave it out"):
        extend_positions(bart, 31)


# Memory


def largest_tensor(model: torch.nn.Module, length: int) -> int:
    """Elements of the largest tensor that any operation reads in one pass over encoder and decoder."""
    ids = torch.randint(4, 31, (1, length))
    keep = torch.ones_like(ids)
    keep[0, -5:] = 0
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        model(input_ids=ids, attention_mask=keep, decoder_input_ids=ids[:, :3])
    shapes = [shape for event in profiled.events() for shape in event.input_shapes or [] if isinstance(shape, list)]
    return max(torch.Size(shape).numel() for shape in shapes if all(isinstance(size, int) for size in shape))


def test_memory_is_linear_in_the_input_length(bart):
    """Four times the length: four times the largest tensor, in BART (eager, its mask in sdpa) sixteen times."""
    extend_positions(bart, 2048)
    model = local(bart, 16)
    assert largest_tensor(model, 2048) <= 4.1 * largest_tensor(model, 512)
    assert largest_tensor(bart, 2048) >= 15 * largest_tensor(bart, 512)


# In the package's model


def test_a_local_model_is_saved_and_loaded(config, ragged, tmp_path):
    """attention_window and the positions are in its config: loading needs neither; new ones on loading, too."""
    torch.manual_seed(1)
    plain = roughen(BartForConditionalGeneration(config))
    plain.save_pretrained(tmp_path / "bart")
    made = load_model(str(tmp_path / "bart"), attention_window=4, positions=80)
    made.save_pretrained(tmp_path / "lobart")
    loaded = load_model(str(tmp_path / "lobart"))
    assert (loaded.config.attention_window, loaded.config.max_position_embeddings) == (4, 80)
    keep = ragged["attention_mask"]
    expected = states(local(plain, 4), ragged["input_ids"], keep)
    for model in (made, loaded):
        assert type(model) is SentenceSparseBart
        torch.testing.assert_close(states(model, ragged["input_ids"], keep), expected)
    long = torch.randint(4, 31, (1, 80))
    assert torch.equal(states(made, long), states(loaded, long))


def test_limit_a_covering_window_generates_what_bart_generates(config, ragged):
    torch.manual_seed(1)
    plain = roughen(BartForConditionalGeneration(config))
    source = dict(input_ids=ragged["input_ids"], attention_mask=ragged["attention_mask"])
    decoding = dict(num_beams=3, max_new_tokens=6, output_scores=True, return_dict_in_generate=True)
    expected = plain.generate(**source, **decoding)
    found = local(plain, 64).generate(**source, **decoding)
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(found.sequences_scores, expected.sequences_scores, atol=1e-5, rtol=1e-5)


# Positions


def test_d16_both_tables_of_positions_are_copied_again_and_again(bart):
    """32 positions become 75: 32 + 32 + 11; BART's two rows that stand for no position stay in front, once."""
    tables = [coder.embed_positions for coder in (bart.get_encoder(), bart.get_decoder())]
    before = [table.weight.detach().clone() for table in tables]
    extend_positions(bart, 75)
    for table, old in zip(tables, before, strict=True):
        assert torch.equal(table.weight, torch.cat([old[:2], old[2:], old[2:], old[2:13]]))
        assert table.num_embeddings == 77 and table.weight.requires_grad
    assert bart.config.max_position_embeddings == 75


def test_longer_positions_change_nothing_for_short_documents(bart, ragged):
    """The 33rd position is the first: a document of one repeated token has the same embedding there."""
    source = dict(input_ids=ragged["input_ids"], attention_mask=ragged["attention_mask"])
    before = bart(**source, decoder_input_ids=ragged["input_ids"]).logits
    with pytest.raises(IndexError):
        states(bart, torch.full((1, 40), 5))
    extend_positions(bart, 64)
    assert torch.equal(bart(**source, decoder_input_ids=ragged["input_ids"]).logits, before)
    positions = bart.get_encoder().embed_positions(torch.full((1, 64), 5)).expand(1, -1, -1)[0]
    assert torch.equal(positions[32:], positions[:32]) and not torch.equal(positions[1], positions[0])
