"""Manakul & Gales (2021), Sparsity and Sentence Structure in Encoder-Decoder Attention of Summarization Systems, EMNLP.

At every decoding step, each decoder layer attends to the words of a few source sentences only. Which ones is decided by
sentence-level attention: exact, or approximated from one vector per sentence, so that the other words are never read.
"""

# ruff: noqa: E402
import signal
import sys

is_command = sys.argv[0] == "-m" and any(word.startswith(f"{__name__}.") for word in sys.orig_argv)
if is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # `python -m` still imports: Ctrl-C ends it without a traceback

from .model import SentenceSparseBart, add_approximator, freeze, load_model
from .selection import Selection, objective, top_r
from .sentences import sentences_of
from .text import encode

__all__ = [
    "Selection",
    "SentenceSparseBart",
    "add_approximator",
    "encode",
    "freeze",
    "load_model",
    "objective",
    "sentences_of",
    "top_r",
]
