"""LoBART: BART for long inputs, by local self-attention in the encoder and a longer table of positions (A.1).

The paper takes LoBART from Manakul and Gales (2021), Long-Span Summarization: a token sees the tokens at most half a
window away (512 on either side of it at paper size), and positions 1024 ... 4095 start as copies of 0 ... 1023.
"""

import torch
from torch import Tensor, nn
from transformers.models.bart.modeling_bart import BartPreTrainedModel


def local_mask(attention_mask: Tensor, window: int) -> Tensor:
    """(B, S) 1 = token -> (B, 1, S, S) bool, True = attend.

    Token i sees token j if |i - j| <= window / 2 and j is no padding. It always sees itself: a row without any token
    to see would give NaN.
    """
    positions = torch.arange(attention_mask.size(1), device=attention_mask.device)
    distance = (positions - positions.unsqueeze(1)).abs()  # (S, S)
    return (distance <= window // 2) & attention_mask[:, None, None].bool() | (distance == 0)


def make_local(model: BartPreTrainedModel, window: int) -> None:
    """Local attention in every layer of the encoder: `window` is even, in tokens; config.attention_window says so."""

    def restrict(encoder: nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        attention_mask = keywords.get("attention_mask")
        if attention_mask is None:
            attention_mask = torch.ones_like(keywords["input_ids"])
        keep = local_mask(attention_mask, window)
        logits = torch.zeros(keep.shape, dtype=encoder.dtype, device=keep.device)
        return arguments, keywords | {"attention_mask": logits.masked_fill(~keep, float("-inf"))}

    model.get_encoder().register_forward_pre_hook(restrict, with_kwargs=True)
    model.config.attention_window = window


def extend_positions(model: BartPreTrainedModel, positions: int) -> None:
    """A longer table of positions, filled with copies of the model's own, again and again.

    D16: the decoder's table too, because a config of transformers has one length for both.

    Raises:
        ValueError: fewer positions than the model has.
    """
    known = model.config.max_position_embeddings
    if positions < known:
        raise ValueError(f"positions is {positions}, the model has {known} already: leave it out")
    for coder in (model.get_encoder(), model.get_decoder()):
        table = coder.embed_positions
        # The first rows of BART's table stand for no position.
        rows = [*range(table.offset), *(table.offset + position % known for position in range(positions))]
        table.weight = nn.Parameter(table.weight.detach()[rows].clone(), requires_grad=table.weight.requires_grad)
        table.num_embeddings = len(rows)
    model.get_encoder().max_source_positions = model.get_decoder().max_target_positions = positions
    model.config.max_position_embeddings = positions
