"""Diminishing attention: Han, Lin & Joty (2020), Resurrecting Submodularity in Neural Abstractive
Summarization.

A source token's new weight is how much this step adds to its coverage. Coverage is concave, so a
token seen before adds less. Without parameters; in a pointer-generator, and in the last decoder
layer of BERTSum.
"""

from .diminishing import Diminishing, DiminishingState, coverage_value, effective_coverage

__all__ = ["Diminishing", "DiminishingState", "coverage_value", "effective_coverage"]
