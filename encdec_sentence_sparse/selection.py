"""Which source sentences a decoder step attends to, and how that is learned: Sections 3 and 4, in the paper's order.

Eq. (1) is in experiments/cost.py, Eq. (2), (3), (8) and (9) in attention.py, Eq. (10) in approximator.py, all others
here.

Shapes: B documents, S source tokens, N sentences of the longest document, H heads, K head width, T target steps. The
queries Q of a document are its T target steps in training, and its W beams while decoding. `membership` is (B, S, N),
1.0 where a token belongs to a sentence; `exists` is (B, N), False where a document has fewer sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

MODES = ("full", "ideal", "random", "approx", "mean_key", "model_free")
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


class SentenceAttention(NamedTuple):
    """What one decoder layer attended to, before the selection and after it."""

    exact: Tensor  # (B, H, Q, N) saliency, Eq. (4)
    approximate: Tensor | None  # (B, H, Q, N) Eq. (7), of a model with an approximator
    keep: Tensor  # (B, Q, N) bool, the selected sentences


# Section 3.2: how much attention sentences get, and training for less of it


def saliency(word_attention: Tensor, membership: Tensor) -> Tensor:
    """Attention that each sentence receives: (B, H, Q, S) softmax over all words, (B, S, N) -> (B, H, Q, N)."""
    # Eq. (4): alpha^s_{m,i} = 1/Z_m sum_j exp(q_m . k_{i,j})
    return word_attention @ membership.unsqueeze(1)


def logarithm(attention: Tensor) -> Tensor:
    """log(attention + EPSILON), of half precision in float32, where EPSILON would be 0."""
    return (attention.to(torch.promote_types(attention.dtype, torch.float32)) + EPSILON).log()


def entropy(attention: Tensor) -> Tensor:
    """Entropy of sentence-level attention in nats: (..., N) -> (...)."""
    # Eq. (5): H(alpha^s_m) = -sum_i alpha^s_{m,i} log alpha^s_{m,i}
    return -(attention * logarithm(attention)).sum(-1)


def mean_over_steps(values: Tensor, is_step: Tensor) -> Tensor:
    """1/M sum_m over the real target steps of all documents: (B, T) twice -> ()."""
    return (values * is_step).sum() / is_step.sum()


def sparsity_loss(record: Sequence[SentenceAttention], is_step: Tensor) -> Tensor:
    """L_sparse of Eq. (5): entropy of saliency, mean over heads (A.4), layers and (B, T) target steps."""
    per_layer = [entropy(layer.exact.float()).mean(1) for layer in record]  # (B, T) each
    # Eq. (5): L_sparse = 1/M sum_m H(alpha^s_m)
    return mean_over_steps(torch.stack(per_layer).mean(0), is_step)


# Section 3.3: the r most salient sentences


def top_r(scores: Tensor, exists: Tensor, r: int) -> Tensor:
    """The r sentences with the highest scores: (B, Q, N), heads already averaged, (B, N) -> (B, Q, N) bool.

    A document with fewer sentences keeps all.
    """
    exists = exists.unsqueeze(1)
    best = scores.masked_fill(~exists, float("-inf")).topk(min(r, scores.size(-1)), -1).indices
    # Eq. (6): I^r_m = {(i, j) such that i in top-r(alpha^s_{m,i})}
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True) & exists


def random_scores(sentence_ids: Tensor, sentences: int, layer: int, steps: range, seed: int) -> Tensor:
    """Scores whose top-r is a uniformly random subset, fresh in each layer and step.

    D11: a function of the seed, the document (known by the lengths of its sentences), the layer and the step. So
    decoding with and without a cache, alone and in a batch, draws the same; the beams of a source share a draw.

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
    """(B, H, Q, K) f1(q_m) times K ** -0.5 and (B, H, N, K) f2(k_{i,1}, ..., k_{i,J_i}) -> (B, H, Q, N)."""
    # Eq. (7): alpha~^s_{m,i} = softmax_i(f1(q_m) . f2(k_{i,1}, ..., k_{i,J_i}))
    return sentence_softmax(queries @ sentence_keys.transpose(-1, -2), exists)


# Section 4.3: training the approximation


def sharpen(attention: Tensor, exists: Tensor, temperature: float = 0.5) -> Tensor:
    """A.5, the target of training: saliency at a temperature below 1, which is sparser: (B, H, Q, N) twice."""
    # Eq. (15): alpha^s_m <- softmax(log(alpha^s_m) / T)
    return sentence_softmax(logarithm(attention) / temperature, exists)


def kl_divergence(exact: Tensor, approximate: Tensor) -> Tensor:
    """KL(exact || approximate) in nats: (..., N) twice -> (...)."""
    # Eq. (11), summand: sum_i alpha^s_{m,i} log(alpha^s_{m,i} / alpha~^s_{m,i})
    return (exact * (logarithm(exact) - logarithm(approximate))).sum(-1)


def kl_loss(
    record: Sequence[SentenceAttention],
    is_step: Tensor,
    exists: Tensor,
    temperature: float = 0.5,  # A.5
    scale: str = "paper",
) -> Tensor:
    """L_KL of Eq. (11): from the sharpened saliency to its approximation, mean over heads (A.4), layers and steps.

    Nothing is detached: in integrated training the loss reaches the decoder through both of its arguments.

    Args:
        is_step: (B, T) bool; exists: (B, N) bool.
        scale: "paper", or D5: "released", divided by the number of sentences and summed over layers.
    """
    targets = [sharpen(layer.exact.float(), exists, temperature) for layer in record]  # (B, H, T, N) each
    pairs = zip(targets, record, strict=True)
    divergence = torch.stack([kl_divergence(target, layer.approximate.float()).mean(1) for target, layer in pairs])
    if scale == "released":
        return mean_over_steps(divergence.sum(0) / exists.sum(1, keepdim=True), is_step)
    # Eq. (11): L_KL = 1/M sum_m KL(alpha^s_m || alpha~^s_m)
    return mean_over_steps(divergence.mean(0), is_step)


def objective(
    phase: str,
    cross_entropy: Tensor,
    record: Sequence[SentenceAttention],
    is_step: Tensor,
    exists: Tensor,
    gamma: float = 0.1,  # of Eq. (5)
    kl_weight: float = 0.2,  # lambda of Eq. (12), A.5
    temperature: float = 0.5,
    kl_scale: str = "paper",
) -> dict[str, Tensor]:
    """The loss of a training phase, one of PHASES, and its parts, in nats per target step.

    Args:
        cross_entropy: L_xent, mean over the target steps.
        record, is_step, exists, temperature, kl_scale: as in `kl_loss`; "base" reads none of them.
    """
    match phase:
        case "base":
            return {"loss": cross_entropy}
        case "sparse":
            sparse = sparsity_loss(record, is_step)
            # Eq. (5): L_A = L_xent + gamma L_sparse
            return {"loss": cross_entropy + gamma * sparse, "xent": cross_entropy, "entropy": sparse}
        case "kl":
            return {"loss": kl_loss(record, is_step, exists, temperature, kl_scale)}
        case "integrated":
            divergence = kl_loss(record, is_step, exists, temperature, kl_scale)
            # Eq. (12): L_I = L_xent + lambda L_KL
            loss = cross_entropy + kl_weight * divergence
            # D23: one backward pass gives both gradients, and one step of Adam takes both (the paper: in turns).
            # Eq. (13): the decoder's gradient is that of L_xent + lambda L_KL.
            # Eq. (14): theta~'s gradient is that of lambda L_KL: the top-r choice passes none of L_xent on.
            return {"loss": loss, "xent": cross_entropy, "kl": divergence}
    raise ValueError(f"phase is {phase!r}; use one of {', '.join(PHASES)}")


def ideal_probability(step: int, mix_steps: int) -> float:
    """Section 4.3: how likely Int-Mix takes the exact saliency at update `step`; from 1 down to 0 in `mix_steps`."""
    return max(0.0, 1 - step / mix_steps)


# Appendix D: saliency without training


def feature_sums(keys: Tensor, membership: Tensor, phi: str) -> Tensor:
    """sum_j phi(k_{i,j}), the part of Eq. (19) that a document needs once: (B, H, S, K) -> (B, H, N, K)."""
    return membership.transpose(1, 2).unsqueeze(1) @ PHI[phi](keys)


def model_free_scores(queries: Tensor, sums: Tensor, phi: str) -> Tensor:
    """(B, H, Q, K) queries times K ** -0.5 (released code) and (B, H, N, K) sums -> (B, H, Q, N).

    Without Z_m, which does not change the order.
    """
    # Eq. (16): alpha^s_{m,i} = 1/Z_m sum_j prod_d exp(q_{m,d} k_{i,j,d})
    # Eq. (17): the sum over d in place of the product: ~ sum_j sum_d exp(q_{m,d} k_{i,j,d})
    # Eq. (18): a kernel in place of exp: ~ sum_j sum_d phi(q_{m,d}) phi(k_{i,j,d})
    # Eq. (19): the sum over words moves inside: = phi(q_m) . sum_j phi(k_{i,j})
    return PHI[phi](queries) @ sums.transpose(-1, -2)


# Beyond the paper: the mean key of each sentence, without training


def sentence_means(vectors: Tensor, membership: Tensor) -> Tensor:
    """Mean over the words of each sentence: (B, S, D) and (B, S, N) -> (B, N, D), 0 for one that does not exist."""
    belongs = membership.transpose(1, 2)
    return belongs / belongs.sum(-1, keepdim=True).clamp_min(1) @ vectors


def mean_key_attention(queries: Tensor, means: Tensor, membership: Tensor, exists: Tensor) -> Tensor:
    """Saliency as if all words of a sentence had its mean key: (B, H, Q, K) and (B, H, N, K) -> (B, H, Q, N).

    By Jensen's inequality sum_j exp(q . k_j) >= J exp(q . mean_j k_j), with equality where all q . k_j are equal.
    """
    log_words = membership.sum(1).clamp_min(1).log()[:, None, None]  # (B, 1, 1, N)
    return sentence_softmax(queries @ means.transpose(-1, -2) + log_words, exists)
