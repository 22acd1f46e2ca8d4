"""What masking refuses: models and heads that cannot be masked, and a `keep` that does not fit."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn


def check_model(model: nn.Module) -> None:
    """ValueError for a model whose cross-attention takes no mask per head."""
    layers = getattr(model.get_decoder(), "layers", []) if model.config.is_encoder_decoder else []
    if not layers or not hasattr(layers[0], "encoder_attn"):
        raise ValueError(
            f"{type(model).__name__} has no cross-attention `decoder.layers[i].encoder_attn`: use "
            f"BART"
        )
    if model.config.model_type in ("led", "mvp", "fsmt"):
        raise ValueError(
            f"the cross-attention of {type(model).__name__} takes no mask per head: use BART"
        )
    implementation = model.config._attn_implementation
    if implementation not in ("eager", "sdpa"):
        raise ValueError(
            f"{implementation} takes no mask per head: call model.set_attn_implementation('sdpa')"
        )


def check_heads(model: nn.Module, heads: Mapping[int, set[int]]) -> None:
    """ValueError for a layer or head that the model has not."""
    check_model(model)
    layers = model.get_decoder().layers
    for layer, chosen in heads.items():
        if not 1 <= layer <= len(layers):
            raise ValueError(
                f"layer {layer} does not exist: layers are 1 (bottom) to {len(layers)}"
            )
        every = range(layers[layer - 1].encoder_attn.num_heads)
        if wrong := sorted(chosen - {*every}):
            raise ValueError(f"layer {layer} has no head {wrong[0]}: heads are 0 to {every[-1]}")


def fitting_hooks(keep: Tensor) -> tuple[Callable, Callable]:
    """Hooks that check `keep` against the encoder's input and the decoder's memory."""

    def when_encoded(encoder: nn.Module, arguments: tuple, output) -> None:
        check_keep(keep, output[0], beams=False)

    def when_decoded(decoder: nn.Module, arguments: tuple, keywords: dict) -> None:
        check_keep(keep, keywords["encoder_hidden_states"], keywords.get("encoder_attention_mask"))

    return when_encoded, when_decoded


def check_keep(
    keep: Tensor, memory: Tensor | None = None, is_real: Tensor | None = None, beams: bool = True
) -> None:
    """ValueError if `keep` does not fit the documents, or leaves one without a position.

    Args:
        memory: (documents, S, D); is_real: (documents, S), 0 at padding; None: not known yet.
        beams: documents may be repeated for their beams.
    """
    if keep.dtype != torch.bool or keep.dim() != 2:
        raise ValueError(
            f"keep must be bool (B, S), True = attendable, got {keep.dtype} {tuple(keep.shape)}"
        )
    rows, length = keep.shape
    documents, positions = keep.shape if memory is None else memory.shape[:2]
    if positions != length or documents % rows or (documents != rows and not beams):
        raise ValueError(
            f"keep is for {rows} documents of {length} positions, the model reads {documents} of "
            f"{positions}: give one label per token, <s>, </s> and padding included"
        )
    if is_real is not None:
        keep = keep & is_real[:: documents // rows].bool().to(keep.device)
    if not keep.any(-1).all():  # the softmax over nothing is NaN
        document = (~keep.any(-1)).nonzero()[0].item()
        raise ValueError(
            f"keep hides all positions of document {document}: make keep by keep_at_least with "
            f"min_keep above 0"
        )


def check_scores(scores: Tensor, threshold: float, is_padding: Tensor, min_keep: int) -> None:
    """ValueError for what `keep_at_least` cannot take."""
    if scores.dim() != 2 or is_padding.shape != scores.shape or is_padding.dtype != torch.bool:
        shapes = f"{tuple(scores.shape)}, {tuple(is_padding.shape)}"
        raise ValueError(f"need scores (B, S) and bool is_padding of that shape, got {shapes}")
    if not 0 <= threshold < 1 or min_keep < 0:
        raise ValueError(
            f"threshold must be in [0, 1) and min_keep at least 0, got {threshold} and {min_keep}"
        )
    if not ((scores >= 0) & (scores <= 1)).all():
        raise ValueError("scores must be in [0, 1]: give probabilities, after the sigmoid")
    if is_padding.all(-1).any():
        raise ValueError(
            f"document {is_padding.all(-1).nonzero()[0].item()} is all padding: leave it out"
        )
