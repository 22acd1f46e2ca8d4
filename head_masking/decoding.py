"""Documents through a BART: encoded once, then decoded, without masks or with what masked heads may see."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .masking import Heads, mask_heads
from .text import Document, by_length, pad


class Encoded(NamedTuple):
    """A batch as the encoder has read it."""

    numbers: list[int]  # of its documents
    keep: Tensor  # (B, S) True at real tokens
    states: Tensor  # (B, S, D)


@torch.inference_mode()
def encode(model: nn.Module, documents: Sequence[Document], batch_size: int = 32) -> Iterator[Encoded]:
    """Encode documents, those of like length together."""
    rows = [document.ids for document in documents]
    for numbers, ids, keep in by_length(rows, batch_size, model.config.pad_token_id, model.device):
        states = model.get_encoder()(input_ids=ids, attention_mask=keep.long()).last_hidden_state
        yield Encoded(numbers, keep, states)


@torch.inference_mode()
def decode(
    model: nn.Module, encoded: Encoded, documents: Sequence[Document] = (), heads: Heads | None = None
) -> list[list[int]]:
    """The token ids of each summary of a batch, from the decoder's start token on; padding is left out.

    `documents` are all that were encoded, with what masked heads may see; without `heads` nothing is masked.
    """
    from transformers.modeling_outputs import BaseModelOutput

    memory = BaseModelOutput(last_hidden_state=encoded.states)  # a new one, for `generate` repeats it for the beams
    context = nullcontext()
    if heads is not None:
        keep = pad([documents[i].keep for i in encoded.numbers], False)
        context = mask_heads(model, heads, keep)
    with context:
        rows = model.generate(encoder_outputs=memory, attention_mask=encoded.keep.long()).tolist()
    for row in rows:
        while row[-1] == model.config.pad_token_id:
            row.pop()
    return rows
