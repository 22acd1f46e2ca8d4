"""Attention head masking at inference, Eq. (1): hide source positions from chosen heads.

    with mask_heads(bart, {12: range(16)}, keep):  # layers count from 1 = bottom, heads from 0
        bart.generate(input_ids, attention_mask=attention_mask, num_beams=4)

Works on any encoder-decoder of transformers whose decoder layers have an `encoder_attn` (BART,
mBART, Pegasus, ..., but not LED, MVP, FSMT), in eager and sdpa attention, compiled or not. No
weight is touched; on leaving the `with` the model is as it was. The names are explained in
PAPER.md.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from .checks import check_heads, check_keep, check_scores, fitting_hooks

Heads = Mapping[int, Iterable[int]]  # layer, from 1 = bottom -> heads, from 0


def masking_hook(keep: Tensor, is_chosen: Tensor) -> Callable:
    """A hook that adds m-tilde inside the softmax, to the heads `is_chosen` (H, 1)."""

    def hide(attention: nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        memory = keywords["key_value_states"]  # (B*beams, S, D)
        # the documents' rows, repeated for their beams: (B*beams, S)
        salient = keep.to(memory.device).repeat_interleave(len(memory) // len(keep), dim=0)
        # the model's own: 0, or -inf at padding
        m = additive(keywords.get("attention_mask"), memory)
        m_tilde = head_mask(salient, is_chosen.to(memory.device)).to(m.dtype)
        # Eq. (1): the attention adds what it is given here to its logits, before the softmax
        return arguments, keywords | {"attention_mask": m + m_tilde}  # (B*beams, H, T, S)

    return hide


def head_mask(keep: Tensor, is_chosen: Tensor) -> Tensor:
    """m-tilde of Eq. (1), (B, H, 1, S): 0 where a head may look, -inf where a chosen head must not.

    Args:
        keep: (B, S) bool, True = salient.
        is_chosen: (H, 1) bool, True at the heads to be masked.
    """
    hidden = ~keep[:, None, None] & is_chosen.unsqueeze(-1)  # (B, H, 1, S)
    return torch.zeros(hidden.shape, device=keep.device).masked_fill(hidden, float("-inf"))


def additive(mask: Tensor | None, memory: Tensor) -> Tensor:
    """The model's own m as numbers to add.

    Eager attention passes it so, sdpa passes booleans (True = attend), and there may be none.
    """
    zero = memory.new_zeros(())
    if mask is None:
        return zero
    return torch.where(mask, zero, float("-inf")) if mask.dtype == torch.bool else mask


@contextmanager
def mask_heads(model: nn.Module, heads: Heads, keep: Tensor) -> Iterator[None]:
    """Inside the `with`, the chosen heads attend to the kept positions alone.

    May be nested: masks add up.

    Args:
        keep: (B, S) bool, True = attendable: one row per document, S positions with special tokens
            and padding. Padding is hidden whatever `keep` says. Nested ones together must leave
            each document a position.
    Raises:
        ValueError: no such layer or head, a model without cross-attention or with another than
            eager or sdpa attention, a `keep` that does not fit the documents, a document that loses
            all positions.
    """
    attentions = cross_attentions(model, heads)
    check_keep(keep)
    with hooks() as stack:
        if attentions:
            when_encoded, when_decoded = fitting_hooks(keep)
            stack.callback(model.get_encoder().register_forward_hook(when_encoded).remove)
            stack.callback(
                model.get_decoder().register_forward_pre_hook(when_decoded, with_kwargs=True).remove
            )
        for attention, is_chosen in attentions:
            hook = attention.register_forward_pre_hook(
                masking_hook(keep, is_chosen), with_kwargs=True
            )
            stack.callback(hook.remove)
        yield


@contextmanager
def uniform_heads(model: nn.Module, heads: Heads) -> Iterator[None]:
    """Section 4.1's baseline: inside the `with`, chosen heads attend to all but padding alike.

    D10: r_uni is uniform on the same heads alone, the other heads are as they were.
    """
    with hooks() as stack:
        for attention, is_chosen in cross_attentions(model, heads):
            stack.callback(attention.q_proj.register_forward_hook(blanking_hook(is_chosen)).remove)
        yield


def blanking_hook(is_chosen: Tensor) -> Callable:
    """A hook that makes the chosen heads' queries zero: q K^T is the same everywhere."""

    def blank(projection: nn.Module, arguments: tuple, queries: Tensor) -> Tensor:
        by_head = queries.unflatten(-1, (len(is_chosen), -1))  # (B*beams, T, H, K)
        return by_head.masked_fill(is_chosen.to(queries.device), 0.0).flatten(-2)

    return blank


def cross_attentions(model: nn.Module, heads: Heads) -> list[tuple[nn.Module, Tensor]]:
    """Of each layer its cross-attention, and (H, 1) True at the heads chosen.

    ValueError: a layer or head is not there.
    """
    heads = {layer: {*chosen} for layer, chosen in heads.items()}
    check_heads(model, heads)
    attentions = []
    for layer, chosen in heads.items():
        attention = model.get_decoder().layers[layer - 1].encoder_attn
        is_chosen = [[head in chosen] for head in range(attention.num_heads)]
        attentions.append((attention, torch.tensor(is_chosen)))
    return attentions


@contextmanager
def hooks() -> Iterator[ExitStack]:
    """A stack that removes its hooks at its end; what torch.compile has compiled is forgotten.

    A compiled graph does not notice a hook that comes or goes: it would mask nothing, or for ever.
    """
    forget = torch.compiler.reset if "torch._dynamo" in sys.modules else lambda: None
    with ExitStack() as stack:
        stack.callback(forget)
        forget()
        yield stack


def keep_at_least(
    scores: Tensor,
    threshold: float,
    is_padding: Tensor | None = None,
    min_keep: int = 5,
    generator=None,
) -> Tensor:
    """Scores -> keep, so that no document loses all positions.

    D2: the paper does not say how; released code.

    Kept is what scores above the threshold; where that is fewer than `min_keep` positions, the
    `min_keep` highest scores above 0; where no score is above 0, `min_keep` random positions, `<s>`
    and `</s>` possibly among them.

    Args:
        scores: (B, S) in [0, 1], or labels as 0 and 1; D1: 0 at `<s>` and `</s>`.
        threshold: in [0, 1); a tagger's own is found by `best_threshold`.
        is_padding: (B, S) bool, True = never kept; None = no padding.
        min_keep: 0 = no fallback.
        generator: of torch, for the random positions.
    Returns:
        (B, S) bool.
    """
    is_padding = torch.zeros_like(scores, dtype=torch.bool) if is_padding is None else is_padding
    check_scores(scores, threshold, is_padding, min_keep)
    scores = scores.float().masked_fill(is_padding, 0)
    keep = scores > threshold
    keep |= (keep.sum(-1, keepdim=True) < min_keep) & highest(scores, min_keep) & (scores > 0)
    is_blank = (scores == 0).all(-1, keepdim=True)
    if is_blank.any():
        device = scores.device if generator is None else generator.device
        order = torch.rand(scores.shape, generator=generator, device=device).to(scores.device)
        keep |= is_blank & highest(order.masked_fill(is_padding, -1), min_keep) & ~is_padding
    return keep


def highest(values: Tensor, count: int) -> Tensor:
    """True at the `count` highest values of each row, of equal ones the first."""
    order = values.argsort(dim=-1, descending=True, stable=True)[:, :count]
    return torch.zeros_like(values, dtype=torch.bool).scatter(-1, order, True)


# Appendix B: the heads that the paper masks in BART-large, searched for its taggers' masks.
PAPER_HEADS = {
    "cnn_dailymail": {1: tuple(range(16))},
    "nyt": {3: (3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)},
    "xsum": {3: (1, 2, 3, 4, 6, 7, 8, 9, 11, 13, 14, 15)},
}
# Appendix A: 55 to 140, 0 to 140, 10 to 60 tokens. `generate` counts its start token and <s>, at
# most also </s>.
# D5: no trigram twice, as in the released scripts.
PAPER_DECODING = {
    "cnn_dailymail": dict(
        num_beams=5, length_penalty=2.0, min_length=57, max_length=143, no_repeat_ngram_size=3
    ),
    "nyt": dict(
        num_beams=5, length_penalty=1.5, min_length=0, max_length=143, no_repeat_ngram_size=3
    ),
    "xsum": dict(
        num_beams=6, length_penalty=1.0, min_length=12, max_length=63, no_repeat_ngram_size=3
    ),
}
