"""Attention head masking at inference, Eq. (1): hide source positions from chosen cross-attention heads.

    with mask_heads(bart, {12: range(16)}, keep):      # layers count from 1 = bottom, heads from 0
        bart.generate(input_ids, attention_mask=attention_mask, num_beams=4)

Works on any encoder-decoder of transformers whose decoder layers have an `encoder_attn` (BART, mBART, Pegasus, ...), in
eager and sdpa attention. No weight is touched; on leaving the `with` the model is as it was.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

Heads = Mapping[int, Iterable[int]]  # layer, from 1 = bottom -> heads, from 0

# Appendix B: the heads that the paper masks in BART-large.
PAPER_HEADS = {
    "cnn_dailymail": {1: tuple(range(16))},
    "nyt": {3: (3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)},
    "xsum": {3: (1, 2, 3, 4, 6, 7, 8, 9, 11, 13, 14, 15)},
}
# Appendix A. D5: no trigram twice, as in the released scripts; in `generate` the lengths count special tokens too.
PAPER_DECODING = {
    "cnn_dailymail": dict(num_beams=5, length_penalty=2.0, min_length=55, max_length=140, no_repeat_ngram_size=3),
    "nyt": dict(num_beams=5, length_penalty=1.5, min_length=0, max_length=140, no_repeat_ngram_size=3),
    "xsum": dict(num_beams=6, length_penalty=1.0, min_length=10, max_length=60, no_repeat_ngram_size=3),
}
PAPER_THRESHOLDS = {"cnn_dailymail": 0.20, "nyt": 0.24, "xsum": 0.18}  # Section 5


@contextmanager
def mask_heads(model: nn.Module, heads: Heads, keep: Tensor | Mapping[int, Tensor]) -> Iterator[None]:
    """Inside the `with`, the chosen heads attend to the kept positions alone. May be nested.

    Args:
        keep: (B, S) bool, True = attendable: one row per document, S positions with special tokens and padding; or
            (B, H, S), a mask for each of a layer's heads, those not chosen ignored; or layer -> such a tensor.
            Padding is hidden whatever `keep` says.
    Raises:
        ValueError: no such layer or head, a model without cross-attention or with another than eager or sdpa
            attention, a `keep` that does not fit the documents, a document that loses all positions.
    """
    attentions = cross_attentions(model, heads)
    keeps = keep if isinstance(keep, Mapping) else dict.fromkeys(attentions, keep)
    if wrong := [each for each in keeps.values() if not isinstance(each, Tensor)]:
        raise ValueError(f"keep must be a bool tensor (B, S) or (B, H, S), got {type(wrong[0]).__name__}")
    if missing := set(attentions) - set(keeps):
        raise ValueError(f"heads are chosen in layer {min(missing)}, for which keep has no tensor")
    attendable = {layer: per_head(keeps[layer], *attentions[layer], layer) for layer in attentions}
    if len(shapes := {(len(each), each.size(-1)) for each in attendable.values()}) > 1:
        raise ValueError(f"the layers' keep must be for the same documents, got (B, S) of {sorted(shapes)}")
    with ExitStack() as undo:
        made: list[dict] = []  # what the layers' hooks keep from the first step on
        for layer, (attention, _) in attentions.items():
            made.append({})
            hook = masking_hook(attendable[layer], layer, made[-1])
            undo.callback(attention.register_forward_pre_hook(hook, with_kwargs=True).remove)
        for documents, positions in shapes:
            hook = shape_hook(documents, positions, made)
            undo.callback(model.get_encoder().register_forward_hook(hook).remove)
        yield


def masking_hook(attendable: Tensor, layer: int, per_beam: dict[tuple, Tensor]) -> Callable:
    """A pre-hook that puts `attendable` (B, H, S) into the mask of one layer's cross-attention.

    Args:
        per_beam: empty; the mask made at the first step, which all later steps find there.
    """

    def hide(attention: nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        memory = keywords["key_value_states"]  # (B*beams, S, D): `generate` repeats each document for its beams
        mask = keywords.get("attention_mask")  # (B*beams, 1, T, S): bool in sdpa, additive in eager; None = no padding
        shape = memory.shape[:2]
        if is_first := (shape, memory.device) not in per_beam:
            per_beam[shape, memory.device] = repeat_for_beams(attendable.to(memory.device), *shape)
        keep = per_beam[shape, memory.device]  # (B*beams, H, 1, S)
        if mask is None:
            is_eager = attention.config._attn_implementation == "eager"
            mask = memory.new_zeros(()) if is_eager else torch.ones((), dtype=torch.bool, device=memory.device)
        # Eq. (1): softmax(q K^T / sqrt(d_k) + m + m-tilde) V, where m-tilde is 0 if kept and -inf if not.
        mask = mask & keep if mask.dtype == torch.bool else torch.where(keep, mask, float("-inf"))
        if is_first:  # now that the padding is known
            is_open = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
            first_beams = slice(None, None, shape[0] // len(attendable))  # a document's beams have the same mask
            refuse_empty(is_open.any(-2)[first_beams], layer)
        return arguments, keywords | {"attention_mask": mask}

    return hide


def shape_hook(documents: int, positions: int, made: list[dict]) -> Callable:
    """A hook that compares `keep` with the documents when they are encoded, before beams hide how many there are.

    New documents may have other padding: what was made for the ones before is forgotten.
    """

    def check(encoder: nn.Module, arguments: tuple, output) -> None:
        for masks in made:
            masks.clear()
        if output[0].shape[:2] != (documents, positions):
            raise ValueError(misfit(documents, positions, *output[0].shape[:2]))

    return check


def misfit(documents: int, positions: int, encoded: int, length: int) -> str:
    return (
        f"keep is for {documents} documents of {positions} positions, the model reads {encoded} of {length}: "
        "give one label per token, <s>, </s> and padding included"
    )


def repeat_for_beams(attendable: Tensor, rows: int, positions: int) -> Tensor:
    """(B, H, S) -> (B*beams, H, 1, S), the beams of a document side by side as in `generate`."""
    if rows % len(attendable) or positions != attendable.size(-1):
        raise ValueError(misfit(len(attendable), attendable.size(-1), rows, positions))
    return attendable.repeat_interleave(rows // len(attendable), 0).unsqueeze(-2)


def refuse_empty(is_open: Tensor, layer: int) -> None:
    """Raise ValueError where (B, H, S) leaves a head of a document without a position: its softmax would be NaN."""
    for document, head in (~is_open.any(-1)).nonzero().tolist()[:1]:
        raise ValueError(
            f"keep hides all positions of document {document} from head {head} of layer {layer}: "
            "make keep by keep_at_least(scores, threshold)"
        )


def per_head(keep: Tensor, attention: nn.Module, chosen: list[int], layer: int) -> Tensor:
    """`keep` as (B, H, S), True throughout for heads that are not chosen; every chosen head has a position left."""
    heads = attention.num_heads
    if keep.dtype != torch.bool or keep.dim() not in (2, 3) or (keep.dim() == 3 and keep.size(1) != heads):
        shape = f"{keep.dtype} {tuple(keep.shape)}"
        raise ValueError(f"keep must be bool (B, S) or (B, {heads}, S), True = attendable, got {shape}")
    is_free = torch.ones(heads, 1, dtype=torch.bool, device=keep.device)
    is_free[chosen] = False
    attendable = is_free | (keep.unsqueeze(1) if keep.dim() == 2 else keep)
    refuse_empty(attendable, layer)
    return attendable


def cross_attentions(model: nn.Module, heads: Heads) -> dict[int, tuple[nn.Module, list[int]]]:
    """layer -> its cross-attention and the heads chosen there; raises ValueError for what the model does not have."""
    layers = getattr(model.get_decoder(), "layers", []) if model.config.is_encoder_decoder else []
    if not layers or not hasattr(layers[0], "encoder_attn"):
        raise ValueError(f"{type(model).__name__} has no cross-attention `decoder.layers[i].encoder_attn`: use BART")
    if (implementation := model.config._attn_implementation) not in ("eager", "sdpa"):
        raise ValueError(f"{implementation} takes no mask per head: call model.set_attn_implementation('sdpa')")
    found = {}
    for layer, chosen in heads.items():
        if not isinstance(layer, int) or not isinstance(chosen, Iterable):
            raise ValueError(
                f"heads must map layers to lists of heads, as {{1: [0, 3]}}, got {{{layer!r}: {chosen!r}}}"
            )
        if not 1 <= layer <= len(layers):
            raise ValueError(f"layer {layer} does not exist: layers are 1 (bottom) to {len(layers)}")
        attention, found_heads = layers[layer - 1].encoder_attn, sorted(set(chosen))
        if wrong := [head for head in found_heads if not 0 <= head < attention.num_heads]:
            raise ValueError(f"layer {layer} has no head {wrong[0]}: heads are 0 to {attention.num_heads - 1}")
        found[layer] = attention, found_heads
    return found


@contextmanager
def uniform_heads(model: nn.Module, heads: Heads) -> Iterator[None]:
    """Inside the `with`, the chosen heads attend to all positions but padding alike: the baseline of Section 4.1."""
    with ExitStack() as undo:
        for attention, chosen in cross_attentions(model, heads).values():
            undo.callback(attention.q_proj.register_forward_hook(blanking_hook(attention, chosen)).remove)
        yield


def blanking_hook(attention: nn.Module, chosen: list[int]) -> Callable:
    """A hook that makes the chosen heads' queries zero: they have the same logit everywhere."""
    device = attention.q_proj.weight.device
    is_blank = torch.zeros(attention.num_heads, attention.head_dim, dtype=torch.bool, device=device)
    is_blank[chosen] = True

    def blank(_: nn.Module, arguments: tuple, queries: Tensor) -> Tensor:
        return queries.masked_fill(is_blank.flatten(), 0.0)  # (B*beams, T, H*K)

    return blank


def keep_at_least(
    scores: Tensor,
    threshold: float,
    is_padding: Tensor | None = None,
    min_keep: int = 5,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Scores -> keep, so that no document loses all positions. D2: the paper does not say how; released code.

    Kept is what scores above the threshold; where that is fewer than `min_keep` positions, the `min_keep` highest
    scores above 0; where no score is above 0, `min_keep` random positions, `<s>` and `</s>` possibly among them.

    Args:
        scores: (B, S) in [0, 1], or labels as 0 and 1; D1: 0 at `<s>` and `</s>`.
        threshold: in [0, 1); see PAPER_THRESHOLDS.
        is_padding: (B, S) bool, True = never kept; None = no padding.
        min_keep: 0 = no fallback.
        generator: for the random positions; None = torch's own.
    Returns:
        (B, S) bool.
    Raises:
        ValueError: scores or threshold out of range, shapes that differ, a document that is all padding.
    """
    is_padding = torch.zeros_like(scores, dtype=torch.bool) if is_padding is None else is_padding
    if scores.dim() != 2 or is_padding.shape != scores.shape or is_padding.dtype != torch.bool:
        raise ValueError(
            f"need scores (B, S) and bool is_padding of that shape, got {scores.shape}, {is_padding.shape}"
        )
    if not 0 <= threshold < 1 or min_keep < 0:
        raise ValueError(f"threshold must be in [0, 1) and min_keep at least 0, got {threshold} and {min_keep}")
    if not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError("scores must be in [0, 1]: give probabilities, after the sigmoid")
    if is_padding.all(-1).any():
        raise ValueError(f"document {is_padding.all(-1).nonzero()[0].item()} is all padding: leave it out")
    scores = scores.float().masked_fill(is_padding, 0)
    keep = scores > threshold
    keep |= (keep.sum(-1, keepdim=True) < min_keep) & highest(scores, min_keep) & (scores > 0)
    if (is_blank := (scores == 0).all(-1, keepdim=True)).any():
        device = scores.device if generator is None else generator.device
        order = torch.rand(scores.shape, generator=generator, device=device).to(scores.device)
        keep |= is_blank & highest(order.masked_fill(is_padding, -1), min_keep) & ~is_padding
    return keep


def highest(values: Tensor, count: int) -> Tensor:
    """True at the `count` highest values of each row, of equal ones the first."""
    order = values.argsort(dim=-1, descending=True, stable=True)[:, :count]
    return torch.zeros_like(values, dtype=torch.bool).scatter(-1, order, True)
