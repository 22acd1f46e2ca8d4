"""Beam search in which the source's keys and values belong to the source, not to the beam.

An ordinary decoder repeats the encoder's output once per beam and re-orders the copies at every
step, although all beams of a source read the same memory. Here `memory` has one row per source, the
beams' queries attend to it together (`DecoderLayer.forward`), and only the decoder's own past
follows the beams.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .model import BOS, EOS, PAD, POSITIONS, Encoding, Projected, Transformer


class Hypotheses(NamedTuple):
    """The best output of each source."""

    tokens: Tensor  # (B, T) with EOS, padded with PAD
    scores: Tensor  # (B,) length-normalised log p


def length_norm(length: Tensor | int, alpha: float) -> Tensor | float:
    """((5 + length) / 6)^alpha (Wu et al. 2016); length counts EOS."""
    return ((5 + length) / 6) ** alpha


@torch.inference_mode()
def beam_search(
    model: Transformer,
    memory: list[Projected],
    limits: Tensor,
    beam: int = 4,
    length_penalty: float = 0.6,
    min_length: int = 0,
) -> Hypotheses:
    """Best hypothesis of each source by log p / ((5 + length) / 6)^length_penalty.

    D7: an end closes a hypothesis only where it is among the 2W best continuations of its source,
    and is never the first token (released code). The search stops when no open hypothesis can beat
    the best finished one, so going on would not change the result, and the result of a source does
    not depend on what else is in the batch.

    Args:
        model: in eval mode.
        memory: `model.project(model.pruned(encoding))`: one row per source.
        limits: (B,) longest output of each source, at least 2, EOS included, which at this length
            closes at any rank.
        beam: W >= 1 open hypotheses per source.
        length_penalty: alpha >= 0 (Appendix A: 0.6; Section 5: 1.0 for characters).
        min_length: least tokens of an output, EOS included (benchmarks fix the length with it).
    """
    least = int(limits.min())
    if min_length > least:
        raise ValueError(
            f"min_length is {min_length}, the longest output of a source {least}: lower it"
        )
    longest = int(limits.max())
    sources = limits.size(0)
    device = limits.device
    source_index = torch.arange(sources, device=device)
    tokens = torch.full((sources, beam, 1), BOS, device=device)  # (B, W, t)
    scores = torch.full((sources, beam), -torch.inf, device=device)  # (B, W) sums of log p
    scores[:, 0] = 0  # the W empty hypotheses are the same one: it counts once
    best_tokens = torch.full((sources, longest), PAD, device=device)
    best_scores = torch.full((sources,), -torch.inf, device=device)
    past = None
    for length in range(1, longest + 1):
        logits, past = model.decode(tokens[..., -1:].flatten(0, 1), memory, past)
        totals = next_token(logits, length < max(min_length, 2)).view(sources, beam, -1)
        totals += scores.unsqueeze(-1)  # (B, W, V)
        best, choice = totals.flatten(1).topk(2 * beam)  # (B, 2W)
        origin = choice // logits.size(-1)  # the beam that is continued
        token = choice % logits.size(-1)  # by what

        # Close: an end that is among the 2W best, or that the limit forces, ends a hypothesis. The
        # best one replaces the best finished one if it scores higher.
        ends = totals[..., EOS]  # (B, W)
        counts = (ends >= best[:, -1:]) | (length == limits).unsqueeze(-1)  # D7
        normed = ends.masked_fill(~counts, -torch.inf) / length_norm(length, length_penalty)
        closed, row = normed.max(-1)  # (B,)
        better = (closed > best_scores) & (length <= limits)
        best_scores = torch.where(better, closed, best_scores)
        best_tokens[better, : length - 1] = tokens[source_index, row, 1:][better]
        best_tokens[better, length - 1] = EOS

        # Go on with the W best continuations that do not end, unless none can win any more:
        # log-probabilities only fall and the norm only grows, so score / norm(limit) bounds all
        # that a hypothesis can become.
        scores, rank = best.masked_fill(token == EOS, -torch.inf).topk(beam)  # (B, W)
        bound = scores[:, 0] / length_norm(limits, length_penalty)
        if not ((bound > best_scores) & (length < limits)).any():
            break
        origin, token = origin.gather(1, rank), token.gather(1, rank)  # (B, W)
        tokens = torch.cat([tokens[source_index.unsqueeze(-1), origin], token.unsqueeze(-1)], -1)
        # The origin among all rows of the batch: (B*W,).
        rows = (source_index.unsqueeze(-1) * beam + origin).flatten()
        past = [(keys.index_select(0, rows), values.index_select(0, rows)) for keys, values in past]
    return Hypotheses(best_tokens[:, :length], best_scores)


def next_token(logits: Tensor, forbid_end: bool) -> Tensor:
    """(B*W, 1, V) logits -> (B*W, V) float32 log-probabilities; PAD and BOS are never generated."""
    log_probabilities = logits[:, -1].float().log_softmax(-1)
    log_probabilities[:, [PAD, BOS]] = -torch.inf
    if forbid_end:
        log_probabilities[:, EOS] = -torch.inf
    return log_probabilities


class Generation(NamedTuple):
    """What `generate` returns."""

    hypotheses: Hypotheses
    encoding: Encoding
    memory_length: int  # R, rows of the memory that the decoder attended to


@torch.inference_mode()
def generate(
    model: Transformer,
    source: Tensor,
    prune: bool = True,
    extra_length: int = 50,
    max_length: int = POSITIONS,
    **search,
) -> Generation:
    """Encode (B, S) token ids, prune, search as in `beam_search`.

    Args:
        prune: False keeps the pruned encodings as zeros in the memory, which changes no output.
        extra_length: an output may be this much longer than its source (released code: 50).
        max_length: longest output in tokens, EOS included, where that is less.
    """
    if model.training:
        raise ValueError(
            "the model is in training mode, where gates are sampled: call model.eval() first"
        )
    encoding = model.encode(source)
    memory = model.pruned(encoding) if prune else model.dense(encoding)
    limits = (encoding.keep.sum(-1) + extra_length).clamp(max=min(max_length, POSITIONS))
    hypotheses = beam_search(model, model.project(memory), limits, **search)
    return Generation(hypotheses, encoding, memory.states.size(1))
