"""Manakul & Gales (2021), Sparsity and Sentence Structure in Encoder-Decoder Attention of Summarization Systems, EMNLP.

At every decoding step, each decoder layer attends to the words of a few source sentences only. Which ones is decided by
sentence-level attention: exact, or approximated from one vector per sentence, so that the other words are never read.
"""

from .model import SentenceSparseBart, add_approximator, freeze, load_model
from .selection import Selection, objective, top_r
from .text import encode

__all__ = [
    "Selection",
    "SentenceSparseBart",
    "add_approximator",
    "encode",
    "freeze",
    "load_model",
    "objective",
    "top_r",
]
