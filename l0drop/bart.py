"""L0Drop and Algorithm 1 on a BART of `transformers`, through its public `generate`.

The gate may have been trained anywhere. BART's own code stays as it is: the compressed memory goes in as
`encoder_outputs`, and the counts enter the cross-attention of every decoder layer through a hook.

    output = generate_pruned(bart.eval(), l0drop.eval(), input_ids, attention_mask, num_beams=4, max_new_tokens=60)
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import BartForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from .gates import Memory, compress


@contextmanager
def counted_attention(bart: BartForConditionalGeneration, log_counts: Tensor) -> Iterator[None]:
    """Inside the `with`, add log_counts to the logits of every cross-attention; on leaving, BART is as before.

    Args:
        log_counts: (B, R) of the memory that is attended to; -inf hides padding.
    """

    def add_log_counts(_: nn.Module, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        memory = keywords["key_value_states"]  # (B*W, R, D): `generate` repeats each source for its W beams
        per_beam = log_counts.repeat_interleave(memory.size(0) // log_counts.size(0), 0)  # (B*W, R)
        # Algorithm 1, lines 6-8: c exp(e) / sum(c exp(e)) is a softmax of e + log c.  BART adds its mask to e.
        return arguments, keywords | {"attention_mask": per_beam[:, None, None].to(memory.dtype)}  # (B*W, 1, 1, R)

    layers = bart.get_decoder().layers
    hooks = [layer.encoder_attn.register_forward_pre_hook(add_log_counts, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def prune(bart: BartForConditionalGeneration, l0drop: nn.Module, input_ids: Tensor, attention_mask: Tensor) -> Memory:
    """Encode, gate and compress: Algorithm 1, lines 1-4.

    Args:
        bart: in eval mode.
        l0drop: a `gates.L0Drop` of BART's width in eval mode.
        input_ids, attention_mask: (B, S) as the tokenizer returns them; 0 in the mask = padding.
    Raises:
        ValueError: bart or l0drop is in training mode.
    """
    if bart.training or l0drop.training:
        raise ValueError("bart or l0drop is in training mode, where gates are sampled: call .eval() on both")
    states = bart.get_encoder()(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    gated, gates, _ = l0drop(states)
    return compress(gated, gates, attention_mask.bool())


def generate_pruned(
    bart: BartForConditionalGeneration, l0drop: nn.Module, input_ids: Tensor, attention_mask: Tensor, **generation
):
    """`bart.generate(**generation)` over the compressed memory; arguments as in `prune`."""
    memory = prune(bart, l0drop, input_ids, attention_mask)
    attend = memory.log_counts.isfinite().long()  # (B, R)
    with counted_attention(bart, memory.log_counts):
        return bart.generate(encoder_outputs=BaseModelOutput(memory.states), attention_mask=attend, **generation)
