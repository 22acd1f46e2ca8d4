"""one.py is the package's mathematics in a BART, and shows the effect."""

import random
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from .. import masking, one, oracle


@pytest.fixture
def pair():
    """one.py's BART and transformers' with the same weights, which are spread; float64, as Adam
    enlarges rounding.
    """
    torch.manual_seed(0)
    small = one.Bart().double()
    for weight in small.parameters():
        torch.nn.init.normal_(weight, mean=weight.mean().item(), std=0.3)
    sizes = dict(
        vocab_size=one.V, d_model=one.D, max_position_embeddings=one.POSITIONS, dropout=0.0
    )
    for side in ("encoder", "decoder"):
        sizes |= {
            f"{side}_layers": one.LAYERS,
            f"{side}_attention_heads": one.H,
            f"{side}_ffn_dim": one.FEED_FORWARD,
        }
    special = dict(
        pad_token_id=one.PAD,
        bos_token_id=one.START,
        eos_token_id=one.END,
        decoder_start_token_id=one.START,
    )
    large = BartForConditionalGeneration(BartConfig(**sizes, **special)).double()
    missing, unexpected = large.model.load_state_dict(small.state_dict(), strict=False)
    assert not unexpected and {name.rpartition(".")[0] for name in missing} == {
        "encoder.embed_tokens",
        "decoder.embed_tokens",
    }
    return small, large


def ragged_batch(count: int = 8):
    """Documents of two to four facts, padded, their summaries, and what may be seen."""
    source, target = one.documents(count)
    source = source.masked_fill(
        torch.arange(9) >= torch.arange(count).unsqueeze(-1) % 5 + 5, one.PAD
    )
    keep = torch.rand(source.shape) < 0.5
    keep[:, 0] = True
    return source, target, keep


def inputs_of(target):
    return torch.cat([torch.full((len(target), 1), one.START), target[:, :-1]], 1)


def logits_of(large, source, target):
    mask = (source != one.PAD).long()
    return large(
        source, attention_mask=mask, decoder_input_ids=inputs_of(target), use_cache=False
    ).logits


def test_the_functions_of_the_idea_are_equal():
    keep, is_chosen = torch.rand(3, 7) < 0.5, torch.tensor([True, False, True, False])
    assert torch.equal(
        one.head_mask(keep, is_chosen), masking.head_mask(keep, is_chosen.unsqueeze(-1))
    )
    rng = random.Random(0)
    for _ in range(50):
        source, summary = ([rng.choice("abcdef") for _ in range(length)] for length in (20, 9))
        marked = one.longest_common_runs(source, summary)
        assert marked == oracle.longest_common_runs(source, summary) and any(marked)


def test_three_updates_are_equal(pair):
    """Loss, gradients and outputs, before and after each."""
    small, large = pair
    optimizers = [torch.optim.Adam(model.parameters(), 1e-3) for model in pair]
    for _ in range(4):
        source, target, _ = ragged_batch()
        losses = (
            one.loss_of(small, source, target),
            large(source, (source != one.PAD).long(), labels=target).loss,
        )
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        own = {name: weight.grad for name, weight in small.named_parameters()}
        others = {name: large.model.get_parameter(name).grad for name in own}
        torch.testing.assert_close(own, others, rtol=1e-5, atol=1e-5)


def test_masked_and_uniform_heads_are_the_packages(pair):
    small, large = (model.eval() for model in pair)
    source, target, keep = ragged_batch()
    inputs = inputs_of(target)
    chosen, heads = one.NONE.clone(), {1: [2], 2: [0, 3]}
    for layer, own in heads.items():
        chosen[layer - 1, own] = True
    plain = small(source, inputs)
    torch.testing.assert_close(plain, logits_of(large, source, target), rtol=1e-5, atol=1e-5)
    with masking.mask_heads(large, heads, keep):
        masked = logits_of(large, source, target)
    torch.testing.assert_close(
        small(source, inputs, keep, masked=chosen), masked, rtol=1e-5, atol=1e-5
    )
    with masking.uniform_heads(large, heads):
        uniform = logits_of(large, source, target)
    torch.testing.assert_close(small(source, inputs, uniform=chosen), uniform, rtol=1e-5, atol=1e-5)
    assert (masked - plain).abs().max() > 0.1 and (uniform - plain).abs().max() > 0.1


def test_a_document_that_loses_all_its_words_is_refused_as_in_the_package(pair):
    small, large = pair
    source, target, keep = ragged_batch(3)
    keep[1] = source[1] == one.PAD  # which is hidden whatever `keep` says
    with pytest.raises(ValueError, match="keep hides all"):
        small(source, target, keep)
    with (
        pytest.raises(ValueError, match="keep hides all"),
        masking.mask_heads(large, {1: [0]}, keep),
    ):
        logits_of(large, source, target)


def test_section_4_1_the_effect_is_oracle_minus_uniform_of_the_same_heads():
    def score(keep=None, masked=one.NONE, uniform=one.NONE):
        assert keep == ("oracle" if masked.any() else None)
        return 7 * masked.sum() + 2 * uniform.sum()

    assert one.heads(2, 0, 3).tolist() == [[False] * 4, [True, False, False, True]]
    assert one.effect(score, "oracle", one.heads(2, 0, 3)) == 10


@pytest.mark.parametrize("seed", range(6))
def test_section_5_heads_are_chosen_as_in_the_package(seed):
    """By random effects and scores; one head at a time."""
    pytest.importorskip("shared")
    from ..experiments.sweep import select_heads

    effects = torch.rand(one.LAYERS, one.H, generator=torch.Generator().manual_seed(seed)).tolist()

    def score(keep, masked):
        assert keep == "oracle"
        return random.Random(f"{seed}{masked}").random()

    def measure(kind, layer, heads):
        return {"rouge1+2": np.array(score("oracle", one.heads(layer, *heads)))}

    places = product((1, 2), range(one.H))
    of_heads = {
        (layer, head): {"rouge1": np.array(effects[layer - 1][head])} for layer, head in places
    }
    [(layer, own)] = select_heads(measure, of_heads, group=1)[0].items()
    assert torch.equal(one.select_heads(score, "oracle", effects), one.heads(layer, *own))


def test_it_runs_alone_and_shows_the_effect(tmp_path):
    """Margins: half of the mean difference over ten seeds, which is 48, 39, 48 and 50."""
    shutil.copy(Path(one.__file__), tmp_path / "paper.py")
    command = [sys.executable, "paper.py"]
    lines = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    none, bottom, top, chosen, wrong = (float(line[24:].split()[0]) for line in lines[-6:-1])
    assert none < 60 and top > none + 22 and top > bottom + 19
    assert chosen > none + 22 and wrong < none - 22
