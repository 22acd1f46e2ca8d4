"""Which source sentences a decoder step attends to, and how that is learned: Sections 3 and 4.

Eq. (1) is in experiments/cost.py, Eq. (2), (3), (8) and (9) in attention.py, Eq. (10) in
approximator.py, all others here. PAPER.md has the glossary. The queries Q of a document are its T
target steps in training, and its W beams while decoding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

MODES = ("full", "ideal", "random", "approx", "model_free")
PHASES = ("base", "sparse", "kl", "integrated")
PHI = {"elu": lambda x: F.elu(x) + 1, "exp": torch.exp, "relu": torch.relu}  # Appendix D
EPSILON = 1e-8  # D10: inside every logarithm of an attention weight; released code: 1e-8 and 1e-12


@dataclass(frozen=True)
class Selection:
    """How the sentences that a query attends to are chosen, in every decoder layer and step anew.

    Raises:
        ValueError: unknown mode or phi, r < 1.
    """

    mode: str = "full"  # one of MODES; "ideal" is Eq. (6), "approx" Eq. (7), "model_free" Eq. (19)
    r: int = 5  # sentences; more than a document has means all of them
    phi: str = "elu"  # of model_free: "elu" (elu + 1), "exp" or "relu"
    seed: int = 0  # of random

    def __post_init__(self):
        if self.mode not in MODES:
            raise ValueError(f"mode is {self.mode!r}; use one of {', '.join(MODES)}")
        if self.phi not in PHI:
            raise ValueError(f"phi is {self.phi!r}; use one of {', '.join(PHI)}")
        if self.r < 1:
            raise ValueError(f"r is {self.r}; at least 1 sentence must be attended to")


FULL = Selection()


class SentenceAttention(NamedTuple):
    """What the queries of one decoder layer attend to, before any selection."""

    exact: Tensor  # (B, H, Q, N) saliency, Eq. (4)
    approximate: Tensor | None  # (B, H, Q, N) Eq. (7), of a model with an approximator


# Section 3.2: how much attention sentences get, and training that concentrates it


def saliency(word_attention: Tensor, membership: Tensor) -> Tensor:
    """Attention that each sentence receives.

    Args:
        word_attention: (B, H, Q, S) softmax over all words; membership: (B, S, N).
    Returns:
        (B, H, Q, N)
    """
    # Eq. (4): the softmax over words has divided by Z_m already; the product sums over each
    # sentence's words.
    return word_attention @ membership.unsqueeze(1)


def logarithm(attention: Tensor) -> Tensor:
    """log(attention + EPSILON), of half precision in float32, where EPSILON would be 0."""
    return (attention.to(torch.promote_types(attention.dtype, torch.float32)) + EPSILON).log()


def entropy(attention: Tensor) -> Tensor:
    """Entropy of sentence-level attention in nats: (..., N) -> (...)."""
    # Eq. (5), the entropy H
    return -(attention * logarithm(attention)).sum(-1)


def mean_over_steps(values: Tensor, is_step: Tensor) -> Tensor:
    """Mean over the real target steps of all documents; values, is_step: (B, T)."""
    return (values * is_step).sum() / is_step.sum()


def sparsity_loss(record: Sequence[SentenceAttention], is_step: Tensor) -> Tensor:
    """L_sparse of Eq. (5): entropy of saliency, mean over heads (A.4), layers and target steps."""
    per_layer = [entropy(layer.exact.float()).mean(1) for layer in record]  # (B, T) each
    # Eq. (5), L_sparse
    return mean_over_steps(torch.stack(per_layer).mean(0), is_step)


# Section 3.2: the r most salient sentences


def top_r(scores: Tensor, exists: Tensor, r: int) -> Tensor:
    """The r sentences with the highest scores.

    Args:
        scores: (B, Q, N), heads already averaged; exists: (B, N).
    Returns:
        (B, Q, N) bool.

    A document with fewer sentences keeps all. No gradient passes through the choice: that is why
    Section 4.3 needs two losses.
    """
    exists = exists.unsqueeze(1)
    best = scores.masked_fill(~exists, float("-inf")).topk(min(r, scores.size(-1)), -1).indices
    # Eq. (6): sentences; `attention.words_of` takes them to their words (i, j)
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True) & exists


def attention_held(layer: SentenceAttention, exists: Tensor, r: int) -> Tensor:
    """Saliency that the best r sentences get together, and the map's r: (B, T, 2), mean over heads.

    The map's cannot get more; how much less says what the map has yet to learn.
    """
    exact = layer.exact.mean(1)  # (B, T, N)
    best = top_r(exact, exists, r)
    learned = top_r(layer.approximate.mean(1), exists, r)
    return torch.stack([(exact * best).sum(-1), (exact * learned).sum(-1)], -1)


def random_scores(
    sentence_ids: Tensor, sentences: int, layer: int, steps: range, seed: int
) -> Tensor:
    """Scores whose top-r is a uniformly random subset, fresh in each layer and step.

    D11: a function of the seed, the document (known by the lengths of its sentences), the layer and
    the step. So decoding with and without a cache, alone and in a batch, draws the same; the beams
    of a source share a draw.

    Returns:
        (B, len(steps), N) in [0, 1).
    """
    scores = torch.zeros(len(sentence_ids), len(steps), sentences)
    for document, ids in enumerate(sentence_ids.cpu().numpy()):
        lengths = np.bincount(ids[ids >= 0])
        for row, step in enumerate(steps):
            rng = np.random.default_rng([seed, layer, step, *lengths])
            scores[document, row, : len(lengths)] = torch.from_numpy(rng.random(len(lengths)))
    return scores.to(sentence_ids.device)


# Section 4: saliency from one vector per sentence


def sentence_softmax(logits: Tensor, exists: Tensor) -> Tensor:
    """Softmax over the sentences of each document: (B, H, Q, N) and (B, N) -> (B, H, Q, N)."""
    return logits.masked_fill(~exists[:, None, None], float("-inf")).softmax(-1)


def approximate_attention(queries: Tensor, sentence_keys: Tensor, exists: Tensor) -> Tensor:
    """Attention to sentences.

    Args:
        queries: (B, H, Q, K) f1(q_m), times K ** -0.5.
        sentence_keys: (B, H, N, K) f2(k_{i,1}, ..., k_{i,J_i}).
    Returns:
        (B, H, Q, N)
    """
    # Eq. (7): one product a sentence, where Eq. (4) needs one a word
    return sentence_softmax(queries @ sentence_keys.transpose(-1, -2), exists)


# Section 4.3: training the approximation


def sharpen(attention: Tensor, exists: Tensor, temperature: float = 0.5) -> Tensor:
    """A.5, the target of training: saliency at a temperature below 1: (B, H, Q, N) twice."""
    # Eq. (15): T = 0.5 squares each share
    return sentence_softmax(logarithm(attention) / temperature, exists)


def kl_divergence(exact: Tensor, approximate: Tensor) -> Tensor:
    """KL(exact || approximate) in nats: (..., N) twice -> (...)."""
    # Eq. (11), the divergence of one step
    return (exact * (logarithm(exact) - logarithm(approximate))).sum(-1)


def kl_loss(record: Sequence[SentenceAttention], is_step: Tensor, exists: Tensor) -> Tensor:
    """L_KL of Eq. (11): from the sharpened saliency to its approximation.

    It is a mean over heads (A.4), layers and steps. Nothing is detached: in integrated training the
    loss reaches the decoder through both of its arguments.

    Args:
        is_step: (B, T) bool; exists: (B, N) bool.
    """
    targets = [sharpen(layer.exact.float(), exists) for layer in record]  # (B, H, T, N) each
    pairs = zip(targets, record, strict=True)
    per_layer = [kl_divergence(a, layer.approximate.float()).mean(1) for a, layer in pairs]
    # Eq. (11): the mean over the M steps
    # D5: and over layers, of which the paper says nothing (released code: their sum, divided by the
    # sentences)
    return mean_over_steps(torch.stack(per_layer).mean(0), is_step)


def objective(
    phase: str,
    cross_entropy: Tensor,
    record: Sequence[SentenceAttention],
    is_step: Tensor,
    exists: Tensor,
    gamma: float = 0.1,  # of Eq. (5)
    kl_weight: float = 0.2,  # lambda of Eq. (12), A.5
) -> dict[str, Tensor]:
    """The loss of a training phase, one of PHASES, and its parts, in nats per target step.

    Args:
        cross_entropy: L_xent, mean over the target steps.
        record, is_step, exists: as in `kl_loss`; "base" reads none of them.
    """
    match phase:
        case "base":
            return {"loss": cross_entropy}
        case "sparse":
            sparse = sparsity_loss(record, is_step)
            # Eq. (5), L_A
            loss = cross_entropy + gamma * sparse
            return {"loss": loss, "xent": cross_entropy, "entropy": sparse}
        case "kl":
            return {"loss": kl_loss(record, is_step, exists)}
        case "integrated":
            divergence = kl_loss(record, is_step, exists)
            # Eq. (12)
            loss = cross_entropy + kl_weight * divergence
            # Eq. (13): the decoder learns by both: by L_xent under the selection, and by L_KL
            # through its queries. Eq. (14): theta~ learns by L_KL alone, because the top-r choice
            # passes no gradient of L_xent on.
            # D23: one backward pass gives both gradients, and one step of Adam takes both (the
            # paper: in turns).
            return {"loss": loss, "xent": cross_entropy, "kl": divergence}
    raise ValueError(f"phase is {phase!r}; use one of {', '.join(PHASES)}")


def ideal_probability(step: int, steps: int) -> float:
    """Section 4.3: how likely Int-Mix takes the exact saliency: from 1 down to 0 in `steps`."""
    return max(0.0, 1 - step / steps)


# Appendix D: saliency without training


def feature_sums(keys: Tensor, membership: Tensor, phi: str) -> Tensor:
    """sum_j phi(k_{i,j}) of Eq. (19), once a document: (B, H, S, K) -> (B, H, N, K)."""
    return membership.transpose(1, 2).unsqueeze(1) @ PHI[phi](keys)


def model_free_scores(queries: Tensor, sums: Tensor, phi: str) -> Tensor:
    """(B, H, Q, K) queries times K ** -0.5 (released code) and (B, H, N, K) sums -> (B, H, Q, N).

    Without Z_m, which does not change the order. Why it works badly (Appendix D): (i) a sum ranks
    as the product does only where all factors are in a similar range; (ii) phi(q) phi(k) is far
    from exp(q k) for values below zero.
    """
    # Eq. (16): the exponential of a dot product is a product over the dimensions d.
    # Eq. (17): a sum over d takes its place: reason (i).
    # Eq. (18): phi(q) phi(k) takes the place of exp(q k): reason (ii).
    # Eq. (19): now the sum over a sentence's words does not depend on the query, and is made once.
    return PHI[phi](queries) @ sums.transpose(-1, -2)


# The sentences of a batch, as tensors


class Sentences(NamedTuple):
    """The sentences of a batch of documents."""

    ids: Tensor  # (B, S) sentence of each token, from 0; -1 = padding
    membership: Tensor  # (B, S, N) 1.0 where the token belongs to the sentence
    exists: Tensor  # (B, N) bool; False = padding of a document with fewer sentences
    encoded: Tensor | None = None  # (B, N, D) from the sentence encoder, Eq. (10)

    @property
    def is_word(self) -> Tensor:
        """(B, 1, 1, S) bool; False = padding."""
        return (self.ids >= 0)[:, None, None]


def sentences_of(
    sentence_ids: Tensor, attention_mask: Tensor, dtype: torch.dtype = torch.float32
) -> Sentences:
    """Sentence ids in the forms that attention needs; ValueError where they do not cover the input.

    Args:
        sentence_ids: (B, S) int64: 0, 1, ... in reading order without gaps, and -1 at padding.
        attention_mask: (B, S) 1 = token, 0 = padding, which is on the right.
    """
    check_ids(sentence_ids, attention_mask)
    last = sentence_ids.amax(1, keepdim=True)  # (B, 1)
    numbers = torch.arange(int(last.max()) + 1, device=sentence_ids.device)  # (N,)
    membership = (sentence_ids.unsqueeze(-1) == numbers).to(dtype)  # (B, S, N)
    return Sentences(sentence_ids, membership, numbers <= last)


def check_ids(sentence_ids: Tensor, attention_mask: Tensor) -> None:
    """ValueError that names document and position where sentence ids do not cover the input."""
    if sentence_ids.shape != attention_mask.shape:
        raise ValueError(
            f"sentence_ids {tuple(sentence_ids.shape)} must be as input_ids "
            f"{tuple(attention_mask.shape)}"
        )
    is_token = attention_mask.bool()
    follows = F.pad(is_token, (1, 0), value=True)[:, :-1]  # a token or nothing stands before it
    jump = sentence_ids - F.pad(sentence_ids, (1, 0), value=-1)[:, :-1]
    is_next = follows & (sentence_ids >= 0) & (jump >= 0) & (jump <= 1)
    is_right = is_next.where(is_token, sentence_ids == -1)
    is_right[:, 0] &= is_token[:, 0]
    for document, position in (~is_right).nonzero()[:1].tolist():
        raise ValueError(
            f"position {position} of document {document} has sentence id "
            f"{sentence_ids[document, position]}; ids are 0, 1, 2, ... in reading order without "
            f"gaps, and -1 at padding, which is on the right"
        )
