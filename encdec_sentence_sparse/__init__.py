"""Manakul & Gales (2021), Sparsity and Sentence Structure in Encoder-Decoder Attention, EMNLP.

At every decoding step, each decoder layer attends to the words of a few source sentences only.
Which ones is decided by sentence-level attention: exact, or approximated from one vector per
sentence, so that the other words are never read.
"""

from .selection import Selection, objective, top_r

__all__ = ["Selection", "objective", "top_r"]
