"""The tagger, its windows, loss and threshold.

Tokenizer and offsets, and one tokenizer's scores for another.
"""

import math
import random

import pytest
import torch

from ..tagger import THRESHOLDS, Tagger, best_threshold, tagging_loss, windows
from ..text import encode_documents, train_tokenizer, transfer_scores
from . import reference

TEXTS = [
    "the storm hit Norwick on Monday .",
    "Norwick was hit by the storm .",
    "nobody was hurt on Monday .",
] * 4


@pytest.fixture
def tagger(encoder) -> Tagger:
    return Tagger(encoder, hidden=8).eval()


def tokens(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded ids and keep of documents of these lengths."""
    keep = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(-1)
    return torch.randint(3, 50, keep.shape).where(keep, 0), keep


# The perceptron


@torch.no_grad()
@pytest.mark.parametrize(
    ("activation", "function"), [("tanh", math.tanh), ("relu", lambda x: max(x, 0.0))]
)
def test_section_5_perceptron_of_both_activations(encoder, activation, function):
    """Two layers with tanh between; D6: the released code has ReLU."""
    tagger = Tagger(encoder, hidden=8, activation=activation).eval()
    ids, keep = tokens(6)
    states = encoder(ids, keep.long()).last_hidden_state[0]
    first, second = tagger.perceptron[1], tagger.perceptron[3]
    for place, logit in enumerate(tagger(ids, keep)[0]):
        expected = float(second.bias)
        for n in range(8):
            hidden = function(float(first.weight[n] @ states[place] + first.bias[n]))
            expected += float(second.weight[0, n]) * hidden
        assert logit.item() == pytest.approx(expected, abs=1e-5)


def test_default_sizes_are_the_released_ones(encoder):
    layers = Tagger(encoder).perceptron
    sizes = [(layers[i].in_features, layers[i].out_features) for i in (1, 3)]
    assert sizes == [(16, 512), (512, 1)]
    assert layers[0].p == 0.1 and isinstance(layers[2], torch.nn.Tanh)


def test_only_the_perceptron_is_trained_and_the_encoder_stays_in_eval_mode(encoder):
    tagger = Tagger(encoder.train(), hidden=8).train()
    assert not any(module.training for module in encoder.modules()) and tagger.perceptron.training
    ids, keep = tokens(7, 4)
    tagging_loss(tagger(ids, keep), keep, keep).backward()
    with_gradient = [parameter for parameter in tagger.parameters() if parameter.grad is not None]
    assert {*with_gradient} == {*tagger.perceptron.parameters()}
    tagger.perceptron.eval()
    assert torch.equal(tagger(ids, keep), tagger(ids, keep))  # the encoder's dropout of 0.1 is off


def test_a_document_alone_is_a_row_of_a_padded_batch(tagger):
    """Also where the padded batch has more windows than the document."""
    ids, keep = tokens(1100, 300, 600)
    together = tagger(ids, keep)
    for row, length in enumerate((1100, 300, 600)):
        alone = tagger(ids[row : row + 1, :length], keep[row : row + 1, :length])[0]
        torch.testing.assert_close(together[row, :length], alone, atol=1e-4, rtol=1e-4)
    assert together.isfinite().all()


# Windows


def test_d7_windows_of_512_overlap_by_256():
    """Released: [0:512], [256:768], [512:1024]; all of the first, the last half of the others."""
    assert windows(1024) == [(0, 512, 0), (256, 768, 512), (512, 1024, 768)]
    assert windows(512) == [(0, 512, 0)] and windows(3) == [(0, 3, 0)]
    assert windows(513) == [(0, 512, 0), (256, 513, 512)]
    assert windows(768) == [(0, 512, 0), (256, 768, 512)]
    for length in range(1, 2000, 37):
        taken = [place for start, end, first in windows(length) for place in range(first, end)]
        assert taken == list(range(length))


def test_d7_logits_of_a_long_document_are_those_of_its_windows(tagger, encoder):
    ids, keep = tokens(900)
    logits = tagger(ids, keep)[0]

    def encode(start, end):
        return tagger.perceptron(encoder(ids[:, start:end]).last_hidden_state[0]).squeeze(-1)

    torch.testing.assert_close(logits[:512], encode(0, 512))
    torch.testing.assert_close(logits[512:768], encode(256, 768)[256:])
    torch.testing.assert_close(logits[768:], encode(512, 900)[256:])


# Loss, threshold, words


def test_tagging_loss_is_the_mean_cross_entropy_of_real_tokens():
    """Appendix A; padding, whatever its logit, has no part, and its gradient is zero."""
    logits = torch.tensor([[0.5, -2.0, 3.0], [1.0, 40.0, float("nan")]], requires_grad=True)
    labels = torch.tensor([[True, False, False], [True, True, False]])
    keep = torch.tensor([[True, True, True], [True, False, False]])
    loss = tagging_loss(logits, labels, keep)
    terms = [math.log1p(math.exp(x)) for x in (-0.5, -2, 3, -1)]
    assert loss.item() == pytest.approx(sum(terms) / 4)
    loss.backward()
    assert logits.grad[0, 0].item() == pytest.approx((1 / (1 + math.exp(-0.5)) - 1) / 4)
    assert (logits.grad[1, 1:] == 0).all()


def test_section_5_best_threshold_is_found_by_trying_all():
    rng = random.Random(1)
    for _ in range(20):
        labels = [rng.random() < 0.3 for _ in range(60)]
        scores = [min(1.0, rng.random() * (0.6 if label else 0.35)) for label in labels]
        given = torch.tensor(scores, dtype=torch.float64)
        threshold, f1 = best_threshold(given, torch.tensor(labels))
        tried = {t: reference.f1(scores, labels, t) for t in THRESHOLDS}
        assert f1 == pytest.approx(max(tried.values())) and tried[threshold] == pytest.approx(f1)
        assert all(tried[t] < f1 for t in THRESHOLDS if t < threshold)
    assert (THRESHOLDS[0], THRESHOLDS[-1], len(THRESHOLDS)) == (0.1, 0.4, 31)  # Section 5


def test_d8_scores_go_from_one_tokenizer_to_the_other_through_words():
    """Of "unhurt man", pieces un|hurt|man there and unh|urt| man here, special tokens at the ends."""
    spans = [(0, 6), (7, 10)]
    ours = transfer_scores(
        [0.9, 0.6, 0.3, 0.1, 0.9],
        [(0, 0), (0, 2), (2, 6), (7, 10), (0, 0)],
        spans,
        [(0, 0), (0, 3), (3, 6), (6, 10), (10, 11), (0, 0)],
    )
    assert ours == [0.0, 0.6, 0.6, 0.1, 0.0, 0.0]


# Text


def encode_document(tokenizer, text, longest):
    return encode_documents(tokenizer, [text], longest)[0]


def test_trained_tokenizer_is_like_barts():
    """`<s> text </s>` with BART's ids, offsets without the blank."""
    tokenizer, text = train_tokenizer(TEXTS, 400), "Norwick, naïve  storm."
    names = ("bos", "pad", "eos", "unk")
    special = [getattr(tokenizer, f"{name}_token_id") for name in names]
    ids, offsets, was_cut, _ = encode_document(tokenizer, text, 50)
    assert special == [0, 1, 2, 3] and (ids[0], ids[-1], was_cut) == (0, 2, False)
    assert offsets[0] == offsets[-1] == (0, 0) and text[slice(*offsets[1])] == "Norwick"
    assert not any(text[start:end].startswith(" ") for start, end in offsets)
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == text
    # each word one token
    assert len(encode_document(tokenizer, "Norwick was hit by the storm .", 50).ids) == 9


def test_special_tokens_in_a_text_are_text():
    """A "</s>" in a document does not become the end of it, whether it is cut or not."""
    tokenizer = train_tokenizer(TEXTS, 400)
    for longest in (50, 12):
        ids, _, was_cut, _ = encode_document(tokenizer, "storm </s> hit <pad> Norwick", longest)
        assert [ids.count(special) for special in (0, 1, 2)] == [1, 0, 1] and was_cut == (
            longest == 12
        )


def test_a_long_document_is_cut_and_says_so():
    tokenizer = train_tokenizer(TEXTS, 400)
    whole, cut = (encode_document(tokenizer, TEXTS[0], n) for n in (9, 8))
    assert not whole.was_cut and cut.was_cut
    assert cut.ids == whole.ids[:7] + [2] and cut.offsets == whole.offsets[:7] + [(0, 0)]
    # in four parts, whole, in two: together as each alone
    texts = [TEXTS[0] * 4, TEXTS[1][:20], TEXTS[0]]
    assert encode_documents(tokenizer, texts, 8) == [
        encode_document(tokenizer, text, 8) for text in texts
    ]
