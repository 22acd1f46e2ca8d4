"""Beam search that ends as the code under the paper's models does (D16): pointer_summarizer's and PreSumm's rules."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from .search import Hypotheses, begin, best_continuations, block_trigrams, check, length_norm


@torch.inference_mode()
def released_search(
    model: nn.Module, batch: NamedTuple, presumm: bool, beam: int = 4, length_penalty: float = 0.0,
    average: bool = False, trigram_blocking: bool = False, min_length: int = 0, max_length: int = 100,
    never: Sequence[int] = (),
) -> Hypotheses:  # fmt: skip
    """Best output of each source among the results that the released search had when it ended.

    pointer_summarizer: an end is a result if fewer than W of the others rank above it, and W results end the search.
    The W best others go on; at the longest length the best of them is the output where there is no result.
    PreSumm: the W best go on, ends included, and the search ends when the best one is an end. Each end is a result,
    and at the longest length the best hypothesis, ended or not.

    Args: see `search.beam_search`, but the last token can be a word, and with `min_length` below 2 the first one the
        end.
        presumm: PreSumm's rule, not pointer_summarizer's.
    """
    check(model, beam, length_penalty, min_length, max_length)
    source, past, tokens, scores = begin(model, batch, beam)
    first = torch.arange(len(scores), device=scores.device)  # (B,)
    best_tokens: list[list[int]] = [[] for _ in first]
    best_scores = torch.full_like(scores[:, 0], -torch.inf)  # (B,)
    results, done = torch.zeros_like(first), torch.zeros_like(first, dtype=torch.bool)  # (B,)
    for length in range(1, max_length + 1):
        log_p, past = model.step(tokens[..., -1].flatten(), source, past)
        log_p[:, [model.bos, *never] + [model.eos] * (length < min_length)] = -torch.inf
        if trigram_blocking:
            block_trigrams(log_p, tokens.flatten(0, 1))
        best, origin, tokens = best_continuations(log_p, scores, tokens)  # (B, 2W)
        ends = (tokens[..., -1] == model.eos) & (best > -torch.inf)
        goes_on = first.new_ones(2 * beam).cumsum(0) <= beam if presumm else ~ends
        closes = ends & (goes_on if presumm else (~ends).cumsum(-1) < beam)
        results += closes.sum(-1)
        if length == max_length:
            closes |= goes_on & (presumm | (results == 0).unsqueeze(-1))

        # D21: pointer_summarizer's mean counts the begin, too.
        norm = length_norm(length + (average and not presumm), length_penalty, average)
        closed, rank = (best.masked_fill(~closes, -torch.inf) / norm).max(-1)  # (B,)
        better = (closed > best_scores) & ~done
        best_scores = torch.where(better, closed, best_scores)
        for row in better.nonzero().flatten().tolist():
            best_tokens[row] = [token for token in tokens[row, rank[row], 1:].tolist() if token != model.eos]

        done |= ends[:, 0] if presumm else results >= beam
        if done.all():
            break
        scores, rank = best.masked_fill(~goes_on, -torch.inf).topk(beam)  # (B, W)
        tokens = tokens[first.unsqueeze(-1), rank]
        past = past.reorder((first.unsqueeze(-1) * beam + origin.gather(1, rank)).flatten())
    return Hypotheses(best_tokens, best_scores)
