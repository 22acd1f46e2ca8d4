"""Diminishing attention: Han, Lin & Joty (2020), Resurrecting Submodularity in Neural Abstractive Summarization.

What a source token gives to a decoding step is what its submodular coverage gains by the step's attention: a token
that has been attended to gives less and less. Without parameters; in a pointer-generator, and in the last decoder layer
of BERTSum.
"""

# ruff: noqa: E402
import signal
import sys

is_command = sys.argv[0] == "-m" and any(word.startswith(f"{__name__}.") for word in sys.orig_argv)
if is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # `python -m` still imports: Ctrl-C ends it without a traceback

from .bertsum.bertsum import BertSumConfig, BertSumExt, BertSumExtAbs
from .diminishing import Diminishing, DiminishingState, coverage_value, effective_coverage
from .model import PointerGenerator, PointerGeneratorConfig
from .search import beam_search

__all__ = [
    "BertSumConfig",
    "BertSumExt",
    "BertSumExtAbs",
    "Diminishing",
    "DiminishingState",
    "PointerGenerator",
    "PointerGeneratorConfig",
    "beam_search",
    "coverage_value",
    "effective_coverage",
]
