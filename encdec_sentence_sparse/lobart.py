"""LoBART, the paper's BART for long inputs (A.1): local self-attention in the encoder and a longer table of positions.

From Manakul and Gales (2021), Long-Span Summarization: a token sees the tokens at most half a window away (512 on
either side of it at paper size), and positions 1024 ... 4095 start as copies of 0 ... 1023.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BartPreTrainedModel


class LocalAttention(nn.Module):
    """Self-attention of an encoder layer within a window; takes the place of BART's, whose projections it takes over.

    Token i sees token j if |i - j| <= window / 2 and j is no padding. It always sees itself: a row without any token
    to see would give NaN. Tokens are read half a window at a time, so that time and memory grow with S, not S^2.
    """

    def __init__(self, attention: nn.Module, window: int):
        super().__init__()
        self.q_proj, self.k_proj = attention.q_proj, attention.k_proj
        self.v_proj, self.out_proj = attention.v_proj, attention.out_proj
        self.heads, self.dropout, self.reach = attention.num_heads, attention.dropout, window // 2
        self.train(attention.training)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor, **unused) -> tuple[Tensor, None]:
        """(B, S, D) -> (B, S, D); attention_mask (B, 1, 1, S) bool, True = token."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        queries, keys, values = (f(hidden_states).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in projections)
        positions = torch.arange(hidden_states.size(1), device=hidden_states.device)
        contexts = []
        for start in range(0, hidden_states.size(1), self.reach):
            rows = slice(start, start + self.reach)
            seen = slice(max(start - self.reach, 0), rows.stop + self.reach)
            distance = (positions[rows].unsqueeze(1) - positions[seen]).abs()
            keep = (distance <= self.reach) & attention_mask[..., seen] | (distance == 0)  # (B, 1, rows, seen)
            parts = queries[:, :, rows], keys[:, :, seen], values[:, :, seen]
            contexts.append(F.scaled_dot_product_attention(*parts, keep, self.dropout if self.training else 0.0))
        return self.out_proj(torch.cat(contexts, 2).transpose(1, 2).flatten(2)), None


def make_local(model: BartPreTrainedModel, window: int) -> None:
    """Local attention in every layer of the encoder, `window` tokens wide; config.attention_window says so."""

    def keep_tokens(encoder: nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        attention_mask = keywords.get("attention_mask")
        if attention_mask is None:
            attention_mask = torch.ones_like(keywords["input_ids"])
        # With four dimensions BART hands it to the layers as it is.
        return arguments, keywords | {"attention_mask": attention_mask[:, None, None].bool()}

    encoder = model.get_encoder()
    encoder.register_forward_pre_hook(keep_tokens, with_kwargs=True)
    for layer in encoder.layers:
        layer.self_attn = LocalAttention(layer.self_attn, window)
    model.config.attention_window = window


def extend_positions(model: BartPreTrainedModel, positions: int) -> None:
    """A longer table of positions, filled with copies of the model's own, again and again.

    D16: the decoder's table too, because a config of transformers has one length for both.
    """
    known = model.config.max_position_embeddings
    for coder in (model.get_encoder(), model.get_decoder()):
        table = coder.embed_positions
        # The first rows of BART's table stand for no position.
        rows = [*range(table.offset), *(table.offset + position % known for position in range(positions))]
        table.weight = nn.Parameter(table.weight.detach()[rows].clone(), requires_grad=table.weight.requires_grad)
        table.num_embeddings = len(rows)
    model.get_encoder().max_source_positions = model.get_decoder().max_target_positions = positions
    model.config.max_position_embeddings = positions
