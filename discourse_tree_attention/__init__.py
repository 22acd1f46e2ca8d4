"""Xiao, Huber & Carenini (2020), Do We Really Need That Many Parameters in Transformer for Extractive Summarization?
Discourse Can Help!, CODI 2020.

The self-attention of a document encoder is replaced by a fixed matrix read off the document's discourse tree: no
parameters for queries and keys, and summaries about as good as those of learned single-head attention.
"""

# ruff: noqa: E402
import signal
import sys

is_command = sys.argv[0] == "-m" and any(word.startswith(f"{__name__}.") for word in sys.orig_argv)
if is_command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # `python -m` still imports: Ctrl-C ends it without a traceback

from .formats import read_dis, read_tree
from .matrices import build_matrix, c_tree, c_tree_nuclearity, d_tree, sentence_matrix
from .trees import Node

try:
    from .model import ModelConfig, Summarizer, count_parameters, extraction_loss
except ModuleNotFoundError as error:
    if error.name != "torch":  # a parser's environment, where only experiments/parse.py runs, has none
        raise

__all__ = [
    "ModelConfig",
    "Node",
    "Summarizer",
    "build_matrix",
    "c_tree",
    "c_tree_nuclearity",
    "count_parameters",
    "d_tree",
    "extraction_loss",
    "read_dis",
    "read_tree",
    "sentence_matrix",
]
