"""Eq. (1) and the baseline in a real BART, and the fallback, against slow restatements."""

import random

import pytest
import torch
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from .. import masking
from ..masking import PAPER_DECODING, keep_at_least, mask_heads, uniform_heads
from . import reference
from .conftest import SIZES, roughen

ALL = {1: range(4), 2: range(4)}
BEAMS = dict(
    num_beams=4,
    do_sample=False,
    min_new_tokens=5,
    max_new_tokens=8,
    return_dict_in_generate=True,
    output_scores=True,
)


def hidden_positions(ragged, keep: Tensor, heads) -> Tensor:
    """(B, H, S) True where padding or the mask hides."""
    hidden = (ragged["attention_mask"] == 0).unsqueeze(1).repeat(1, 4, 1)
    for head in heads:
        hidden[:, head] |= ~keep
    return hidden


@torch.no_grad()
def forward(bart, ragged, steps: int = 5, **keywords):
    """Teacher-forced outputs for random targets that are always the same."""
    targets = torch.randint(
        4, 31, (len(ragged["attention_mask"]), steps), generator=torch.Generator().manual_seed(7)
    )
    return bart(**ragged, decoder_input_ids=targets, **keywords)


# Eq. (1)


@torch.no_grad()
@pytest.mark.parametrize("padded", [True, False])
def test_eq1_masked_attention_is_the_printed_formula(bart, ragged, keep, padded):
    """For all heads of a layer of which two are masked; eager and sdpa."""
    if not padded:
        ragged = {
            "input_ids": ragged["input_ids"].clamp(min=4),
            "attention_mask": torch.ones(3, 9).long(),
        }
    seen = {}

    def look(module, arguments, keywords, output):
        seen.update(states=arguments[0], memory=keywords["key_value_states"], output=output[0])

    attention = bart.get_decoder().layers[1].encoder_attn
    handle = attention.register_forward_hook(look, with_kwargs=True)
    with mask_heads(bart, {2: [0, 3]}, keep):
        forward(bart, ragged)
    handle.remove()
    hidden = hidden_positions(ragged, keep, [0, 3])
    expected, _ = reference.attention(attention, seen["states"], seen["memory"], hidden)
    torch.testing.assert_close(
        seen["output"].double(), torch.from_numpy(expected), atol=1e-5, rtol=1e-4
    )
    unmasked, _ = reference.attention(
        attention, seen["states"], seen["memory"], hidden_positions(ragged, keep, [])
    )
    assert abs(expected - unmasked).max() > 0.1


def test_eq1_masked_positions_have_influence_exactly_zero(bart, ragged, keep):
    """All heads of all layers masked.

    Whatever stands at a hidden position, the output has the same bits.
    """
    states = bart.get_encoder()(**ragged).last_hidden_state.detach()
    changed = {name: states.clone() for name in ("hidden", "kept")}
    changed["hidden"][~keep] = 100 * torch.randn(int((~keep).sum()), 16)
    changed["kept"][0, 2] += 1

    def logits(encoded, masked=True):
        mask = ragged["attention_mask"]
        inputs = {"encoder_outputs": BaseModelOutput(encoded), "attention_mask": mask}
        if not masked:
            return forward(bart, inputs).logits
        with mask_heads(bart, ALL, keep):
            return forward(bart, inputs).logits

    assert torch.equal(logits(states), logits(changed["hidden"]))
    assert (logits(states) - logits(changed["kept"]))[0].abs().max() > 1e-3
    unmasked = [logits(encoded, masked=False) for encoded in (states, changed["hidden"])]
    assert (unmasked[0] - unmasked[1]).abs().max() > 1e-3


# Through generate


@torch.no_grad()
def rescore(bart, ragged, keep, heads, sequences: Tensor) -> Tensor:
    """Mean log-probability of each sequence by teacher forcing, alone, without a cache."""
    scores = []
    for row, sequence in enumerate(sequences):
        length = int(ragged["attention_mask"][row].sum())
        ends = (sequence[1:] == 2).nonzero().flatten().tolist()
        tokens = sequence[: ends[0] + 2] if ends else sequence
        with mask_heads(bart, heads, keep[row : row + 1, :length]):
            ids = ragged["input_ids"][row : row + 1, :length]
            output = bart(input_ids=ids, decoder_input_ids=tokens[None, :-1], use_cache=False)
        logits = output.logits[0]
        scores.append(logits.log_softmax(-1).gather(-1, tokens[1:, None]).sum() / (len(tokens) - 1))
    return torch.stack(scores)


@pytest.mark.parametrize("heads", [ALL, {1: [0, 2]}, {2: [1]}])
def test_eq1_beam_search_masks_every_beam_at_every_step(bart, ragged, keep, heads):
    """Scores of beam 4 in a ragged batch = those of teacher forcing, alone, unpadded, no cache."""
    bart.generation_config.forced_eos_token_id = None
    settings = BEAMS | dict(min_new_tokens=8)
    with mask_heads(bart, heads, keep):
        output = bart.generate(**ragged, **settings)
    torch.testing.assert_close(
        output.sequences_scores,
        rescore(bart, ragged, keep, heads, output.sequences),
        atol=2e-5,
        rtol=1e-4,
    )
    plain = bart.generate(**ragged, **settings)
    assert (plain.sequences_scores - output.sequences_scores).abs().max() > 1e-2


# Undone, nested, several layers, a mask per head


def hooks(model) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_on_leaving_the_model_is_bit_for_bit_what_it_was(bart, ragged, keep):
    weights = {name: value.clone() for name, value in bart.state_dict().items()}
    before = bart.generate(**ragged, **BEAMS)
    with mask_heads(bart, ALL, keep), uniform_heads(bart, {1: [1]}):
        masked = bart.generate(**ragged, **BEAMS)
        assert hooks(bart) == 5
    after = bart.generate(**ragged, **BEAMS)
    assert torch.equal(before.sequences, after.sequences) and hooks(bart) == 0
    assert torch.equal(before.sequences_scores, after.sequences_scores)
    assert all(torch.equal(value, weights[name]) for name, value in bart.state_dict().items())
    assert (masked.sequences_scores - before.sequences_scores).abs().max() > 1e-2


def test_a_compiled_model_is_masked_and_is_plain_again(ragged, keep):
    """A graph compiled before knows no hooks; one compiled under them would keep them.

    One layer, for it takes long.
    """
    bart = roughen(BartForConditionalGeneration(BartConfig(**SIZES)))
    plain, layer = forward(bart, ragged).logits, bart.get_decoder().layers[1]
    with mask_heads(bart, {2: range(4)}, keep), uniform_heads(bart, {2: [0]}):
        masked = forward(bart, ragged).logits
    layer.forward = torch.compile(layer.forward, backend="eager")
    torch.testing.assert_close(forward(bart, ragged).logits, plain)
    with mask_heads(bart, {2: range(4)}, keep), uniform_heads(bart, {2: [0]}):
        torch.testing.assert_close(forward(bart, ragged).logits, masked)
    torch.testing.assert_close(forward(bart, ragged).logits, plain)
    assert (masked - plain).abs().max() > 1e-2


def test_nested_masks_compose(bart, ragged, keep):
    """Nested masks of one head hide what either hides.

    Of several heads and layers they are one with all of them.
    """
    first, second = keep.clone(), keep | (torch.arange(9) == 3)
    first[:, 4] = True
    with mask_heads(bart, {1: [0]}, first), mask_heads(bart, {1: [0, 1], 2: [3]}, second):
        nested = forward(bart, ragged).logits
    with mask_heads(bart, {1: [0]}, first & second), mask_heads(bart, {1: [1], 2: [3]}, second):
        torch.testing.assert_close(forward(bart, ragged).logits, nested, atol=0, rtol=0)
    with mask_heads(bart, {1: [0, 1], 2: [3]}, second):
        assert (forward(bart, ragged).logits - nested).abs().max() > 1e-3


def test_limit_everything_kept_is_the_plain_model(bart, ragged):
    with mask_heads(bart, ALL, torch.ones(3, 9, dtype=torch.bool)):
        everything = forward(bart, ragged).logits
    torch.testing.assert_close(everything, forward(bart, ragged).logits, atol=1e-5, rtol=1e-5)
    with mask_heads(bart, {}, torch.ones(3, 9, dtype=torch.bool)):
        assert torch.equal(forward(bart, ragged).logits, forward(bart, ragged).logits)


def test_forward_and_backward_run_on_the_device_of_the_inputs():
    """On the device "meta", which refuses to be mixed with the mask's CPU, as a GPU does."""
    keep = torch.ones(2, 5, dtype=torch.bool)
    is_chosen = torch.tensor([[True], [False], [False], [True]])
    with torch.device("meta"):
        model = BartForConditionalGeneration(BartConfig(**SIZES))
        attention = model.get_decoder().layers[0].encoder_attn
        # two beams
        states, memory = torch.zeros(4, 3, 16), torch.zeros(4, 5, 16, requires_grad=True)
    attention.register_forward_pre_hook(masking.masking_hook(keep, is_chosen), with_kwargs=True)
    attention.q_proj.register_forward_hook(masking.blanking_hook(is_chosen))
    attention(states, key_value_states=memory)[0].sum().backward()
    assert memory.grad.device.type == attention.q_proj.weight.grad.device.type == "meta"


# The uniform baseline


def test_section_4_1_uniform_heads_attend_alike_to_all_but_padding(bart, ragged):
    """Section 4.1: 1 / n at each of the n tokens, `</s>` included.

    Other heads of the layer are untouched.
    """
    bart.set_attn_implementation("eager")
    plain = forward(bart, ragged, output_attentions=True).cross_attentions[0]
    with uniform_heads(bart, {1: [1, 3], 2: [0]}):  # the second of several layers, too
        weights, above = forward(bart, ragged, output_attentions=True).cross_attentions
    expected = ragged["attention_mask"] / ragged["attention_mask"].sum(-1, keepdim=True)
    for uniform in (weights[:, 1], weights[:, 3], above[:, 0]):
        torch.testing.assert_close(uniform, expected[:, None].expand(-1, 5, -1))
    assert torch.equal(weights[:, [0, 2]], plain[:, [0, 2]]) and not torch.equal(weights, plain)


# Bad input


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
@pytest.mark.parametrize(
    ("heads", "change", "message"),
    [
        ({0: [0]}, lambda keep: keep, r"layer 0 does not exist: layers are 1 \(bottom\) to 2"),
        ({3: [0]}, lambda keep: keep, "layer 3 does not exist"),
        ({2: [4]}, lambda keep: keep, "layer 2 has no head 4: heads are 0 to 3"),
        ({2: [-1]}, lambda keep: keep, "layer 2 has no head -1"),
        ({1: [0]}, lambda keep: keep.float(), r"must be bool \(B, S\)"),
        ({1: [0]}, lambda keep: keep[0], r"must be bool.*got torch.bool \(9,\)"),
        (
            {1: [0]},
            lambda keep: keep & (torch.arange(3) != 1)[:, None],
            "all positions of document 1: make keep by",
        ),
    ],
)
def test_bad_heads_and_keep_are_refused_at_once(bart, keep, heads, change, message):
    with pytest.raises(ValueError, match=message), mask_heads(bart, heads, change(keep)):
        pytest.fail("it must be refused on entering")
    assert hooks(bart) == 0


@pytest.mark.parametrize("bart", ["sdpa"], indirect=True)
def test_keep_that_does_not_fit_the_documents_is_refused(bart, ragged):
    """Of another length or number; 1 row for 3 looks like beams, but not in the encoder."""
    for size in ((3, 8), (2, 9), (1, 9)):
        keep = torch.ones(size, dtype=torch.bool)
        with pytest.raises(ValueError, match="the model reads 3 of 9: give one label per token"):
            with mask_heads(bart, {1: [0]}, keep):
                forward(bart, ragged)
    assert hooks(bart) == 0


# What the paper lists


def test_d5_decoding_presets_hold_appendix_a_and_no_repeated_trigram():
    """Appendix A: beam, length penalty, least and greatest length.

    D5, released scripts: no trigram twice.
    """
    names = ("num_beams", "length_penalty", "min_length", "max_length", "no_repeat_ngram_size")
    values = {
        "cnn_dailymail": (5, 2.0, 57, 143, 3),
        "nyt": (5, 1.5, 0, 143, 3),
        "xsum": (6, 1.0, 12, 63, 3),
    }
    assert PAPER_DECODING == {
        data: dict(zip(names, of_data, strict=True)) for data, of_data in values.items()
    }


# The fallback


def test_d2_fallback_is_the_released_rule():
    """Random scores, thresholds and paddings against the loop."""
    rng = random.Random(0)
    for _ in range(200):
        size, min_keep = rng.randint(1, 9), rng.randint(0, 6)
        threshold = rng.choice([0.0, 0.2, 0.9])
        scores = [round(rng.random(), 6) if rng.random() < 0.6 else 0.0 for _ in range(size)]
        padding = [place >= 1 and rng.random() < 0.3 for place in range(size)]
        if not any(score and not pad for score, pad in zip(scores, padding, strict=True)):
            continue
        kept = keep_at_least(torch.tensor([scores]), threshold, torch.tensor([padding]), min_keep)
        assert kept.tolist() == [reference.keep_at_least(scores, threshold, padding, min_keep)]
    scores = torch.tensor([[0.9, 0.2, 0.1, 0.0, 0.2, 0.15, 0.05, 0.01]])
    # 0.2 is not above 0.2
    assert keep_at_least(scores, 0.2, min_keep=0)[0].nonzero().flatten().tolist() == [0]
    assert keep_at_least(scores, 0.2)[0].nonzero().flatten().tolist() == [0, 1, 2, 4, 5]
    assert not keep_at_least(torch.zeros(1, 8), 0.2, min_keep=0).any()
    labels = torch.tensor([[0, 1, 1, 0, 0, 0, 0, 0]])  # only positive labels are filled up with
    assert keep_at_least(labels, 0.5)[0].tolist() == labels[0].bool().tolist()


def test_d2_scores_of_zero_give_random_positions_but_no_padding():
    """min_keep of them, each as often as any other; the same ones for the same generator."""
    is_padding = torch.arange(12).expand(400, -1) >= 8
    generators = [torch.Generator().manual_seed(seed) for seed in (0, 0, 1)]
    draws = [keep_at_least(torch.zeros(400, 12), 0.2, is_padding, generator=g) for g in generators]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert (draws[0].sum(-1) == 5).all() and not draws[0][is_padding].any()
    # each of 8 positions in 5 of 8 draws; 6 standard deviations
    assert (draws[0].sum(0)[:8] - 250).abs().max() < 60
    short = keep_at_least(torch.zeros(1, 12), 0.2, torch.arange(12)[None] >= 3)
    assert short[0].tolist() == [True] * 3 + [False] * 9  # fewer than 5 tokens: all of them
    mixed = keep_at_least(torch.tensor([[0.0] * 6, [0.9] * 6]), 0.2)
    assert mixed.sum(-1).tolist() == [5, 6]


@pytest.mark.parametrize(
    ("scores", "threshold", "message"),
    [
        (torch.rand(2, 5), 1.0, r"threshold must be in \[0, 1\)"),
        (torch.full((2, 5), torch.nan), 0.2, "after the sigmoid"),
        (torch.rand(5), 0.2, r"need scores \(B, S\)"),
    ],
)
def test_bad_scores_are_refused(scores, threshold, message):
    with pytest.raises(ValueError, match=message):
        keep_at_least(scores, threshold)
