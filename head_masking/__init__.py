"""Cao & Wang (2021), Attention Head Masking for Inference Time Content Selection in Abstractive
Summarization, NAACL.

At inference, chosen cross-attention heads of a trained summariser see only the source tokens that a
content selector holds to be salient: -inf is added to their logits elsewhere. No weight changes.
"""

from .masking import (
    PAPER_DECODING,
    PAPER_HEADS,
    head_mask,
    keep_at_least,
    mask_heads,
    uniform_heads,
)
from .oracle import oracle_labels, token_labels, word_spans
from .tagger import PAPER_THRESHOLDS, Tagger, best_threshold, tagging_loss

__all__ = [
    "PAPER_DECODING",
    "PAPER_HEADS",
    "PAPER_THRESHOLDS",
    "Tagger",
    "best_threshold",
    "head_mask",
    "keep_at_least",
    "mask_heads",
    "oracle_labels",
    "tagging_loss",
    "token_labels",
    "uniform_heads",
    "word_spans",
]
