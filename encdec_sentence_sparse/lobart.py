"""LoBART: BART for long inputs, by local self-attention in the encoder and a longer table of positions (A.1).

The paper takes LoBART from Manakul and Gales (2021), Long-Span Summarization: a token sees the tokens at most half a
window away (512 on either side of it at paper size), and positions 1024 ... 4095 start as copies of 0 ... 1023.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.bart.modeling_bart import BartPreTrainedModel


class LocalSelfAttention(nn.Module):
    """Self-attention within a window: token i sees token j if |i - j| <= window / 2.

    Queries are taken in blocks of half a window. A block sees itself and both its neighbours, of which a band is
    masked, so time and memory grow linearly with the number of tokens.

    Args:
        attention: the encoder's BartAttention; its projections are taken over, also their names.
        window: even, at least 2.
    Raises:
        ValueError: an odd or too small window.
    """

    def __init__(self, attention: nn.Module, window: int):
        super().__init__()
        if window < 2 or window % 2:
            raise ValueError(f"attention_window is {window}; it must be even and at least 2")
        self.q_proj, self.k_proj = attention.q_proj, attention.k_proj
        self.v_proj, self.out_proj = attention.v_proj, attention.out_proj
        self.heads, self.dropout, self.half = attention.num_heads, attention.dropout, window // 2

    def forward(
        self, hidden_states: Tensor, attention_mask: None = None, is_padding: Tensor | None = None, **unused
    ) -> tuple[Tensor, None]:
        """As BART calls it.

        Args:
            hidden_states: (B, S, D).
            is_padding: (B, S) bool, True = hidden from all others; None = no padding.
        Returns:
            (B, S, D), and None in the place of attention weights.
        """
        batch, length, width = hidden_states.shape
        size = min(self.half, length)
        if is_padding is None:
            is_padding = hidden_states.new_zeros(batch, length, dtype=torch.bool)
        queries = windows(self.q_proj(hidden_states), size, 0)  # (B, C, size, D), C blocks
        keys, values = (windows(proj(hidden_states), size, size) for proj in (self.k_proj, self.v_proj))
        queries, keys, values = (self.split(part) for part in (queries, keys, values))  # (B * C, H, size or 3 size, K)
        keep = local_mask(is_padding, size, self.half).flatten(0, 1).unsqueeze(1)  # (B * C, 1, size, 3 size)
        dropout = self.dropout if self.training else 0.0
        context = F.scaled_dot_product_attention(queries, keys, values, keep, dropout)
        context = context.transpose(1, 2).reshape(batch, -1, width)[:, :length]  # (B, S, D)
        return self.out_proj(context), None

    def split(self, blocks: Tensor) -> Tensor:
        """(B, C, L, D) -> (B * C, H, L, K)."""
        return blocks.flatten(0, 1).unflatten(-1, (self.heads, -1)).transpose(1, 2)


def windows(vectors: Tensor, size: int, margin: int, fill: float = 0) -> Tensor:
    """Blocks of `size` positions, each with `margin` positions more on either side: (B, S, D) -> (B, C, L, D).

    Args:
        fill: what stands beyond the ends.
    Returns:
        L = size + 2 margin, C = ceil(S / size).
    """
    missing = -vectors.size(1) % size
    padded = F.pad(vectors, (0, 0, margin, margin + missing), value=fill)
    return padded.unfold(1, size + 2 * margin, size).transpose(2, 3)


def local_mask(is_padding: Tensor, size: int, half: int) -> Tensor:
    """(B, S) -> (B, C, size, 3 size) bool, True = attend.

    A token always sees itself, so that a row of padding alone gives no NaN.
    """
    is_hidden = windows(is_padding.float().unsqueeze(-1), size, size, fill=1).squeeze(-1) > 0  # (B, C, 3 size)
    positions = torch.arange(3 * size, device=is_padding.device)
    distance = (positions - positions[size : 2 * size].unsqueeze(-1)).abs()  # (size, 3 size)
    return (distance <= half) & ~is_hidden.unsqueeze(2) | (distance == 0)


def hand_over_padding(encoder: nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
    """A forward pre-hook: the layers get (B, S) `is_padding`, and transformers makes no (S, S) mask."""
    attention_mask = keywords.get("attention_mask")
    if attention_mask is not None and attention_mask.dim() != 2:
        raise ValueError(f"attention_mask has the shape {tuple(attention_mask.shape)}; local attention needs (B, S)")
    is_padding = None if attention_mask is None else attention_mask == 0
    return arguments, keywords | {"attention_mask": None, "is_padding": is_padding}


def make_local(model: BartPreTrainedModel, window: int) -> None:
    """Put LocalSelfAttention in every layer of the encoder; config.attention_window says so."""
    encoder = model.get_encoder()
    for layer in encoder.layers:
        layer.self_attn = LocalSelfAttention(layer.self_attn, window)
    encoder.register_forward_pre_hook(hand_over_padding, with_kwargs=True)
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
