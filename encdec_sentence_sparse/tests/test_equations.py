"""Every equation against the loops of reference.py or a closed form."""

import math

import numpy as np
import pytest
import torch
from transformers import BartForConditionalGeneration

from ..approximator import KINDS, SentenceEncoder
from ..attention import SentenceSparseAttention
from ..model import add_approximator
from ..selection import (
    PHI,
    Selection,
    entropy,
    feature_sums,
    kl_divergence,
    model_free_scores,
    random_scores,
    saliency,
    sentences_of,
    sharpen,
    top_r,
)
from . import reference
from .conftest import make_config, rough_model

IDS = [[0, 0, 0, 1, 2, 2, 2, 2, 3, 3, 4, 4], [0, 0, 1, 1, 1, 2, 2, -1, -1, -1, -1, -1]]
NUMPY_PHI = {
    "elu": lambda x: x + 1 if x > 0 else math.exp(x),
    "exp": math.exp,
    "relu": lambda x: max(x, 0.0),
}


@pytest.fixture
def sentences():
    ids = torch.tensor(IDS)
    return sentences_of(ids, (ids >= 0).long(), torch.float64)


def random_attention(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64).softmax(-1)


@pytest.fixture
def attention() -> SentenceSparseAttention:
    """A cross-attention with biases and 4 heads of width 4, in float64."""
    return rough_model("gru").attentions[1].double().eval()


@pytest.fixture
def layer_input() -> tuple[torch.Tensor, torch.Tensor]:
    """States (2, 12, 16) and queries (2, 7, 16)."""
    return tuple(torch.randn(2, length, 16, dtype=torch.float64) for length in (12, 7))


@pytest.mark.parametrize("mode", ["full", "ideal", "approx", "model_free"])
def test_eq2_eq3_eq4_eq6_attention_of_a_layer(attention, sentences, layer_input, mode):
    """Eq. 2 and 3, Eq. 4 and the choice of each mode, for every query of a ragged batch.

    A.4: heads are averaged before the choice. D12: weights sum to 1 over the kept words.
    """
    (states, asking), w = layer_input, reference.weights(attention)
    sentences = sentences._replace(encoded=torch.randn(2, 5, 16).double())
    output, _ = attention(asking, states, sentences, Selection(mode, r=2))
    for document, length in enumerate((12, 7)):
        ids = IDS[document][:length]
        source = states[document, :length].numpy(), ids, w, attention.heads, 2, mode
        maps = sentences.encoded[document, : max(ids) + 1].numpy(), NUMPY_PHI["elu"]
        for step in range(7):
            expected = reference.layer(asking[document, step].numpy(), *source, *maps)
            found = output[document, step].detach().numpy()
            np.testing.assert_allclose(found, expected, atol=1e-10)


def test_eq2_full_attention_is_barts_with_its_gradients():
    model = rough_model()
    bart = BartForConditionalGeneration(make_config()).eval()
    bart.load_state_dict(model.state_dict())
    source, target = torch.randint(4, 31, (2, 12)), torch.randint(4, 31, (2, 5))
    keep = (torch.tensor(IDS) >= 0).long()
    logits = []
    for each in (bart, model):
        output = each(input_ids=source, attention_mask=keep, labels=target)
        output.loss.backward()
        logits.append(output.logits)
    torch.testing.assert_close(*logits)
    theirs, ours = dict(bart.named_parameters()), dict(model.named_parameters())
    assert theirs.keys() == ours.keys()
    for name in theirs:
        torch.testing.assert_close(ours[name].grad, theirs[name].grad)


def test_eq5_entropy():
    attention = random_attention(2, 3, 4, 5)
    expected = [reference.entropy(row) for row in attention.view(-1, 5).numpy()]
    np.testing.assert_allclose(entropy(attention).flatten().numpy(), expected, atol=1e-6)
    one_hot = torch.tensor([0.0, 1.0, 0.0], requires_grad=True)
    entropy(one_hot).backward()
    assert one_hot.grad.isfinite().all()  # D10: what is inside the logarithm is never 0
    for dtype in (torch.float16, torch.bfloat16):
        half = one_hot.detach().to(dtype)
        assert entropy(half) == pytest.approx(0, abs=1e-6)
        assert kl_divergence(half, half) == pytest.approx(0, abs=1e-6)


def test_eq6_top_r_sentences_that_exist():
    scores = torch.randn(2, 6, 5)
    exists = torch.arange(5) < torch.tensor([[5], [3]])
    for r in range(1, 8):
        keep = top_r(scores, exists, r)
        for document, count in enumerate((5, 3)):
            for step in range(6):
                expected = reference.top(scores[document, step, :count].tolist(), r)
                assert set(keep[document, step].nonzero().flatten().tolist()) == expected


def test_eq7_eq8_eq9_d1_approximate_attention(attention, sentences, layer_input):
    """D1: the heads of a sentence's key are chunks of its vector, as those of a word are."""
    (states, asking), record = layer_input, []
    sentences = sentences._replace(encoded=torch.randn(2, 5, 16).double())
    attention(asking, states, sentences, record=record)
    found, w = record[0].approximate, reference.weights(attention)
    for document, count in enumerate((5, 3)):
        encoded = sentences.encoded[document, :count].numpy()
        for step in range(7):
            query = asking[document, step].numpy()
            expected = reference.approximate(query, encoded, w, attention.heads)
            own = found[document, :, step, :count].detach().numpy()
            np.testing.assert_allclose(own, expected, atol=1e-12)
    assert (found[1, :, :, 3:] == 0).all()
    # Eq. 7: they sum to 1
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found.sum(-1)))


@pytest.mark.parametrize("kind", KINDS)
def test_eq10_sentence_encoders(sentences, kind):
    """D4: all read encoder states; D3: the GRU's two ends go through a projection."""
    encoder = SentenceEncoder(kind, 6).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.7)  # biases too
    states, w = torch.randn(2, 12, 6, dtype=torch.float64), reference.weights(encoder)
    found = encoder(states, sentences).detach().numpy()
    compute = {"gru": reference.gru_sentence, "mean": lambda x, _: x.mean(0)}
    for document, count in enumerate((5, 3)):
        for n in range(count):
            words = states[document, [j for j, i in enumerate(IDS[document]) if i == n]].numpy()
            np.testing.assert_allclose(found[document, n], compute[kind](words, w), atol=1e-12)
    assert (found[1, 3:] == 0).all()


def test_eq15_sharpened_target(sentences):
    exact = random_attention(2, 3, 4, 5) * sentences.exists[:, None, None]
    exact = exact / exact.sum(-1, keepdim=True)
    squares = exact**2 / (exact**2).sum(-1, keepdim=True)
    torch.testing.assert_close(sharpen(exact, sentences.exists, 0.5), squares, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(sharpen(exact, sentences.exists, 1.0), exact, atol=1e-6, rtol=1e-4)
    assert (sharpen(exact, sentences.exists)[1, :, :, 3:] == 0).all()


@pytest.mark.parametrize("width", [1, 4])
def test_eq16_eq17_what_the_model_free_scores_stand_for(sentences, width):
    """Eq. 16, normalised, is the saliency; Eq. 17 is for one dimension; the scores are neither."""
    rng, ids = np.random.default_rng(0), IDS[0]
    query, keys = rng.normal(size=width), rng.normal(size=(12, width))
    products, sums = np.zeros(5), np.zeros(5)
    for key, n in zip(keys, ids, strict=True):
        products[n] += np.prod([math.exp(q * k) for q, k in zip(query, key, strict=True)])  # Eq. 16
        sums[n] += sum(math.exp(q * k) for q, k in zip(query, key, strict=True))  # Eq. 17
    logits = torch.from_numpy(keys @ query)[None, None, None]  # (1, 1, 1, S)
    exact = saliency(logits.softmax(-1), sentences.membership[:1])[0, 0, 0].numpy()
    np.testing.assert_allclose(exact, products / products.sum())
    assert np.allclose(sums, products) == (width == 1)
    kernel = feature_sums(torch.from_numpy(keys)[None, None], sentences.membership[:1], "elu")
    scores = model_free_scores(torch.from_numpy(query)[None, None, None], kernel, "elu")
    scores = scores[0, 0, 0].numpy()
    # An approximation, whatever the width.
    assert not np.allclose(scores / scores.sum(), exact, atol=0.01)


@pytest.mark.parametrize("phi", PHI)
def test_eq18_eq19_model_free_scores(sentences, phi):
    queries, keys = torch.randn(2, 3, 4, 5).double(), torch.randn(2, 3, 12, 5).double()
    found = model_free_scores(queries, feature_sums(keys, sentences.membership, phi), phi).numpy()
    for document, head, step in np.ndindex(2, 3, 4):
        ids = [n for n in IDS[document] if n >= 0]
        query, words = queries[document, head, step], keys[document, head, : len(ids)]
        expected = reference.model_free(query.numpy(), words.numpy(), ids, NUMPY_PHI[phi])
        own, others = np.split(found[document, head, step], [len(expected)])
        np.testing.assert_allclose(own, expected)
        assert not others.any()


def test_the_sentence_encoder_begins_with_xavier_normal_weights():
    """Released code: normal, so 8.3 % lie beyond the ends of Xavier's uniform distribution."""
    for parameter in SentenceEncoder("gru", 64).parameters():
        if parameter.dim() == 1:
            assert not parameter.any()
            continue
        std = (2 / sum(parameter.shape)) ** 0.5
        error = 5 * (2 * parameter.numel()) ** -0.5  # 5 deviations of a std
        assert parameter.std().item() / std == pytest.approx(1, abs=error)
        assert (parameter.abs() > 3**0.5 * std).float().mean() > 0.05


def test_d2_biases_come_along():
    model = rough_model()
    add_approximator(model, "gru")
    for attention in model.attentions:
        ours = attention.state_dict()
        for part in ("weight", "bias"):
            assert ours[f"q_proj.{part}"].any()
            assert torch.equal(ours[f"sentence_q.{part}"], ours[f"q_proj.{part}"])
            assert torch.equal(ours[f"sentence_k.{part}"], ours[f"k_proj.{part}"])
        assert attention.sentence_q.weight is not attention.q_proj.weight


def test_d11_random_choice_is_fresh_and_uniform():
    """Another subset in another layer, step, document or seed; each sentence equally often."""
    ids = torch.tensor(IDS)
    scores = random_scores(ids, 5, 3, range(200), 0)
    assert torch.equal(scores[:, 50:60], random_scores(ids, 5, 3, range(50, 60), 0))
    assert torch.equal(scores[1:, :, :3], random_scores(ids[1:, :7], 3, 3, range(200), 0))
    for other in (random_scores(ids, 5, 2, range(200), 0), random_scores(ids, 5, 3, range(200), 1)):
        assert (scores[0].argmax(-1) != other[0].argmax(-1)).sum() > 100
    assert (scores[0, 1:].argmax(-1) != scores[0, :-1].argmax(-1)).sum() > 100
    # 2/3 of 200 if independent.
    assert (scores[0, :, :3].argmax(-1) != scores[1, :, :3].argmax(-1)).sum() > 60
    # 200 draws with probability 1/5: within 5 standard deviations (p < 1e-6)
    counts = torch.bincount(scores[0].argmax(-1), minlength=5)
    assert ((counts - 40).abs() < 5 * (200 * 0.2 * 0.8) ** 0.5).all()
    # A document is known by the lengths of its sentences alone.
    assert torch.equal(*random_scores(ids[:1].repeat(2, 1), 5, 0, range(3), 0))
