"""Cao & Wang (2021), Attention Head Masking for Inference Time Content Selection in Abstractive Summarization, NAACL.

At inference, chosen cross-attention heads of a trained summariser see only the source tokens that a content selector
holds to be salient: -inf is added to their logits elsewhere. No weight of the summariser changes.
"""

# ruff: noqa: E402
import signal
import sys

is_command = sys.argv[0] == "-m" and any(word.startswith(f"{__name__}.") for word in sys.orig_argv)
if is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # `python -m` still imports: Ctrl-C ends it without a traceback

from .masking import PAPER_DECODING, PAPER_HEADS, PAPER_THRESHOLDS, head_mask, keep_at_least, mask_heads, uniform_heads
from .oracle import oracle_labels, token_labels, word_spans
from .tagger import Tagger, best_threshold, tagging_loss
from .text import encode_document, transfer_scores

__all__ = [
    "PAPER_DECODING",
    "PAPER_HEADS",
    "PAPER_THRESHOLDS",
    "Tagger",
    "best_threshold",
    "encode_document",
    "head_mask",
    "keep_at_least",
    "mask_heads",
    "oracle_labels",
    "tagging_loss",
    "token_labels",
    "transfer_scores",
    "uniform_heads",
    "word_spans",
]
