"""Beam search over all sources of a batch together, for both models.

A model has `bos`, `eos` (numbers of tokens), `vocabulary` (how many there are), `start(batch) -> source, past` with
one row of the past per source, and `step(tokens, source, past) -> log-probabilities (rows, V), past`, where rows are
the beams of a source beside each other; `past.reorder(rows)` moves everything that belongs to a hypothesis, the
coverage included. What belongs to a source is never copied.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Hypotheses(NamedTuple):
    """Best output of each source."""

    tokens: list[list[int]]  # without begin and end
    scores: Tensor  # (B,) what the search maximises; -inf and no tokens where nothing could end


def length_norm(length: int, length_penalty: float, average: bool, released: bool = False) -> float:
    """What a sum of log-probabilities is divided by; `length` counts the end.

    ((5 + length) / 6)^length_penalty (Wu et al. 2016), or with `average` the length (See et al.), released + 1 (D21).
    """
    return float(length + released) if average else ((5 + length) / 6) ** length_penalty


@torch.inference_mode()
def beam_search(
    model: nn.Module, batch: NamedTuple, beam: int = 4, length_penalty: float = 0.0, average: bool = False,
    trigram_blocking: bool = False, min_length: int = 0, max_length: int = 100, never: Sequence[int] = (),
    released: bool = False,
) -> Hypotheses:  # fmt: skip
    """Best output of each source by log p / length_norm.

    D16: the end is a candidate for every open hypothesis at every step, beside the W continuations, and the search
    goes on until none can win. `released`, as pointer_summarizer: only an end above the W-th continuation counts, and
    a source is done with W of them. The result of a source does not depend on the rest of the batch.

    Args:
        model: in eval mode.
        beam: open hypotheses per source (Section 4.2: 6; See et al.: 4).
        length_penalty, average: see `length_norm` (Section 4.2: 1.5).
        trigram_blocking: no three tokens twice in an output (Paulus et al. 2018).
        min_length, max_length: of an output, its end included; the last token can only be the end.
        released: search as the released code does.
        never: tokens that are never written, besides `model.bos`: padding, and <unk> where words can be copied.
    Raises:
        ValueError: the model is in training mode, or an argument out of range.
    """
    check(model, beam, length_penalty, min_length, max_length)
    source, past = model.start(batch)
    sources = len(batch.source)
    first = torch.arange(sources, device=batch.source.device)  # (B,)
    past = past.reorder(first.repeat_interleave(beam))
    tokens = first.new_full((sources, beam, 1), model.bos)  # (B, W, t)
    scores = torch.full((sources, beam), -torch.inf, device=first.device)  # (B, W) sums of log-probabilities
    scores[:, 0] = 0  # the W empty hypotheses are the same one: it counts once
    best_tokens: list[list[int]] = [[] for _ in range(sources)]
    best_scores = torch.full((sources,), -torch.inf, device=first.device)
    finished, enough = torch.zeros_like(first), beam if released else beam * max_length  # (B,) ends that counted
    forbidden = [model.bos, *never]
    for length in range(1, max_length + 1):
        log_p, past = model.step(tokens[..., -1].flatten(), source, past)
        log_p[:, forbidden] = -torch.inf
        ends = log_p[:, model.eos].view(sources, beam) + scores  # (B, W)
        log_p[:, model.eos] = -torch.inf
        if trigram_blocking:
            block_trigrams(log_p, tokens.flatten(0, 1))

        scores, origin, token = best_continuations(log_p.view(sources, beam, -1), scores)
        if released and length < max_length:  # what is still open at the last length ends there
            ends = ends.masked_fill(ends <= scores[:, -1:], -torch.inf)

        # Close: the best hypothesis that ends here replaces the best finished one if it scores higher.
        closed, beams = (ends / length_norm(length, length_penalty, average, released)).max(-1)  # (B,)
        is_open = (finished < enough) & (length >= min_length)
        better = (closed > best_scores) & is_open
        finished += (ends > -torch.inf).sum(-1) * is_open
        best_scores = torch.where(better, closed, best_scores)
        for row in better.nonzero().flatten().tolist():
            best_tokens[row] = tokens[row, beams[row], 1:].tolist()

        # Go on with the W best continuations, unless none can win any more: log-probabilities only fall and the norm
        # only grows, so score / norm(max_length) bounds all that a hypothesis can become.
        bound = scores[:, 0] / length_norm(max_length, length_penalty, average, released)
        if not ((bound > best_scores) & (finished < enough)).any():
            break
        tokens = torch.cat([tokens[first.unsqueeze(-1), origin], token.unsqueeze(-1)], -1)
        past = past.reorder((first.unsqueeze(-1) * beam + origin).flatten())  # (B*W,) rows of the whole batch
    return Hypotheses(best_tokens, best_scores)


def check(model: nn.Module, beam: int, length_penalty: float, min_length: int, max_length: int) -> None:
    """Refuse what the search cannot do; raises ValueError."""
    if model.training:
        raise ValueError("the model is in training mode: call model.eval() first")
    if not 1 <= beam <= model.vocabulary:
        raise ValueError(f"beam is {beam}; it must be from 1 to the vocabulary's {model.vocabulary} tokens")
    if not length_penalty >= 0:  # the bound that ends the search needs a norm that grows
        raise ValueError(f"length_penalty is {length_penalty}; it must be at least 0")
    if max_length < max(min_length, 1):
        raise ValueError(f"max_length is {max_length}; it must be at least 1 and min_length = {min_length}")


def best_continuations(log_p: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of log_p (B, W, V) and scores (B, W) the W best continuations: scores, beams they continue, tokens; (B, W)."""
    beam = scores.size(1)
    # The W best of each beam hold the W best of all: small sums instead of one over B x W x V.
    log_p, token = log_p.topk(beam)  # (B, W, W)
    scores, choice = (log_p + scores.unsqueeze(-1)).flatten(1).topk(beam)  # (B, W)
    return scores, choice // beam, token.flatten(1).gather(1, choice)


def block_trigrams(log_p: Tensor, tokens: Tensor) -> None:
    """Forbid in log_p (rows, V), in place, what would make a trigram of tokens (rows, t) a second time.

    D10: trigrams of tokens, which are word pieces in BERTSum; released PreSumm joins the pieces to words first.
    """
    if tokens.size(1) < 3:
        return
    pair_seen = (tokens[:, :-2] == tokens[:, -2:-1]) & (tokens[:, 1:-1] == tokens[:, -1:])  # (rows, t - 2)
    penalty = torch.zeros(pair_seen.shape, device=log_p.device).masked_fill(pair_seen, -torch.inf)
    log_p.scatter_add_(1, tokens[:, 2:], penalty)
