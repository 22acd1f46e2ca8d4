"""Manakul & Gales (2021), Sparsity and Sentence Structure in Encoder-Decoder Attention of Summarization Systems, EMNLP.

At every decoding step, each decoder layer attends to the words of a few source sentences only. Which ones is decided by
sentence-level attention: exact, or approximated from one vector per sentence, so that the other words are never read.
"""

from .approximator import SentenceEncoder
from .model import SentenceSparseBart, add_approximator, freeze, load_model
from .selection import Selection, objective, saliency, top_r
from .sentences import Splitter
from .text import encode

__all__ = [
    "Selection",
    "SentenceEncoder",
    "SentenceSparseBart",
    "Splitter",
    "add_approximator",
    "encode",
    "freeze",
    "load_model",
    "objective",
    "saliency",
    "top_r",
]
