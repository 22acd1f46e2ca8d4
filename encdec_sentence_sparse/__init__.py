"""Manakul & Gales (2021), Sparsity and Sentence Structure in Encoder-Decoder Attention of Summarization Systems, EMNLP.

At every decoding step, each decoder layer attends to the words of a few source sentences only. Which ones is decided by
sentence-level attention: exact, or approximated from one vector per sentence, so that the other words are never read.
"""

from .approximator import SentenceEncoder
from .attention import SentenceSparseAttention, SourceCache
from .lobart import extend_positions, make_local
from .model import SentenceSparseBart, add_approximator, approximator_parameters, freeze, load_model
from .selection import Selection, SentenceAttention, Sentences, entropy, kl_divergence, saliency, sharpen, top_r
from .sentences import Splitter
from .text import Item, encode

__all__ = [
    "Item",
    "Selection",
    "SentenceAttention",
    "SentenceEncoder",
    "SentenceSparseAttention",
    "SentenceSparseBart",
    "Sentences",
    "SourceCache",
    "Splitter",
    "add_approximator",
    "approximator_parameters",
    "encode",
    "entropy",
    "extend_positions",
    "freeze",
    "kl_divergence",
    "load_model",
    "make_local",
    "saliency",
    "sharpen",
    "top_r",
]
