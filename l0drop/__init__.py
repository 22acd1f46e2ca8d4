"""Zhang, Titov & Sennrich (2021), On Sparsifying Encoder Outputs in Sequence-to-Sequence Models.

A layer of stochastic gates between encoder and decoder learns, under an L0 penalty, which encoder
outputs the decoder can do without; at test time the closed ones are removed and a softmax with
counts makes up for them exactly.
"""

# ruff: noqa: F401

from .gates import (
    L0Drop,
    Memory,
    compress,
    dense_memory,
    expected_gates,
    l0_penalty,
    open_probability,
    sample_gates,
)
from .model import ModelConfig, Transformer, objective
from .search import beam_search, generate
