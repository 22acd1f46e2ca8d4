"""Beam search over all sources of a batch together, for both models.

A model has `bos`, `eos` (numbers of tokens), `vocabulary` (how many there are), `start(batch) ->
source, past` with one row of the past per source, and `step(tokens, source, past) ->
log-probabilities (rows, V), past`, where rows are the beams of a source beside each other;
`past.reorder(rows)` moves everything that belongs to a hypothesis, the coverage included. What
belongs to a source is never copied.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Hypotheses(NamedTuple):
    """Best output of each source."""

    tokens: list[list[int]]  # without begin and end
    scores: Tensor  # (B,) what the search maximises; -inf and no tokens where nothing could end


def length_norm(length: int, length_penalty: float) -> float:
    """What a sum of log-probabilities is divided by; `length` counts the end.

    ((5 + length) / 6)^length_penalty (Wu et al. 2016); for the penalty 0 the length (See et al.).
    """
    return ((5 + length) / 6) ** length_penalty if length_penalty else float(length)


@torch.inference_mode()
def beam_search(
    model: nn.Module,
    batch: NamedTuple,
    beam: int = 4,
    length_penalty: float = 0.0,
    trigram_blocking: bool = False,
    min_length: int = 0,
    max_length: int = 100,
    never: Sequence[int] = (),
) -> Hypotheses:
    """Best output of each source by log p / length_norm.

    D16: an end closes a hypothesis only where it is among the 2W best continuations of its source,
    and is never the first token. The search stops when no open hypothesis can beat the best closed
    one, so going on would not change the result, and the result of a source does not depend on what
    else is in the batch.

    Args:
        model: in eval mode.
        beam: W, open hypotheses per source (Section 4.2: 6; See et al.: 4).
        length_penalty: see `length_norm` (Section 4.2: 1.5; See et al.: 0).
        trigram_blocking: no three tokens twice in an output (Paulus et al. 2018).
        min_length, max_length: of an output, its end included; the last token can only be the end.
        never: tokens that are never written, besides `model.bos`: padding, and <unk> where words
            can be copied.
    Raises:
        ValueError: the model is in training mode, or an argument out of range.
    """
    if model.training or not 1 <= beam <= model.vocabulary:
        raise ValueError(
            f"beam is {beam}, of {model.vocabulary} tokens at most; the model must be in eval mode"
        )
    # the bound that ends the search needs a norm that grows
    if length_penalty < 0 or max_length < max(min_length, 2):
        raise ValueError(
            "length_penalty must be at least 0, and max_length at least 2 and min_length"
        )
    source, past = model.start(batch)
    first = torch.arange(len(batch.source), device=batch.source.device)  # (B,) the sources
    past = past.reorder(first.repeat_interleave(beam))
    tokens = first.new_full((len(first), beam, 1), model.bos)
    # (B, W) sums of log-probabilities
    scores = torch.full((len(first), beam), -torch.inf, device=first.device)
    scores[:, 0] = 0  # the W empty hypotheses are the same one: it counts once
    best_tokens: list[list[int]] = [[] for _ in first]
    best_scores = torch.full_like(scores[:, 0], -torch.inf)  # (B,)
    for length in range(1, max_length + 1):
        log_p, past = model.step(tokens[..., -1].flatten(), source, past)
        log_p[:, [model.bos, *never]] = -torch.inf
        if length < max(min_length, 2):
            log_p[:, model.eos] = -torch.inf
        if length == max_length:
            log_p[:, : model.eos] = log_p[:, model.eos + 1 :] = -torch.inf
        if trigram_blocking:
            block_trigrams(log_p, tokens.flatten(0, 1))
        best, origin, tokens = best_continuations(log_p, scores, tokens)  # (B, 2W)
        ends = tokens[..., -1] == model.eos

        # Close: the best continuation that ends replaces the best closed hypothesis if it scores
        # higher.
        normed = best / length_norm(length, length_penalty)
        closed, rank = normed.masked_fill(~ends, -torch.inf).max(-1)
        better = closed > best_scores
        best_scores = torch.where(better, closed, best_scores)
        for row in better.nonzero().flatten().tolist():
            best_tokens[row] = tokens[row, rank[row], 1:-1].tolist()

        # Go on with the W best that do not end, unless none can win any more: log-probabilities
        # only fall and the norm only grows, so score / norm(max_length) bounds all that a
        # hypothesis can become.
        scores, rank = best.masked_fill(ends, -torch.inf).topk(beam)  # (B, W)
        if not (scores[:, 0] / length_norm(max_length, length_penalty) > best_scores).any():
            break
        tokens = tokens[first.unsqueeze(-1), rank]
        # rows of the whole batch
        past = past.reorder((first.unsqueeze(-1) * beam + origin.gather(1, rank)).flatten())
    return Hypotheses(best_tokens, best_scores)


def best_continuations(
    log_p: Tensor, scores: Tensor, tokens: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The 2W best continuations of each source, the best one first.

    Args:
        log_p: of the next token, (B*W, V).
        scores, tokens: of the hypotheses, (B, W) and (B, W, t).
    Returns:
        scores (B, 2W), beams they continue (B, 2W), tokens (B, 2W, t + 1).
    """
    sources, beam = scores.shape
    # The 2W best of each beam hold the 2W best of all: small sums instead of one over B x W x V.
    log_p, token = log_p.view(sources, beam, -1).topk(min(2 * beam, log_p.size(-1)))  # (B, W, 2W)
    scores, choice = (log_p + scores.unsqueeze(-1)).flatten(1).topk(2 * beam)
    origin, token = choice // log_p.size(-1), token.flatten(1).gather(1, choice)
    before = tokens.gather(1, origin.unsqueeze(-1).expand(-1, -1, tokens.size(-1)))
    return scores, origin, torch.cat([before, token.unsqueeze(-1)], -1)


def block_trigrams(log_p: Tensor, tokens: Tensor) -> None:
    """Forbid in log_p (rows, V), in place, what would repeat a trigram of tokens (rows, t).

    D10: trigrams of tokens, which are word pieces in BERTSum; released PreSumm joins the pieces to
    words first.
    """
    if tokens.size(1) < 3:
        return
    # where the last two tokens stand before, (rows, t - 2)
    pair_seen = (tokens[:, :-2] == tokens[:, -2:-1]) & (tokens[:, 1:-1] == tokens[:, -1:])
    penalty = torch.zeros(pair_seen.shape, device=log_p.device).masked_fill(pair_seen, -torch.inf)
    log_p.scatter_add_(1, tokens[:, 2:], penalty)
