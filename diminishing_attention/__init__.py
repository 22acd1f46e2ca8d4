"""Diminishing attention: Han, Lin & Joty (2020), Resurrecting Submodularity in Neural Abstractive Summarization.

What a source token gives to a decoding step is what its submodular coverage gains by the step's attention: a token
that has been attended to gives less and less. Without parameters; in a pointer-generator, and in the last decoder layer
of BERTSum.
"""

from .diminishing import Diminishing, DiminishingState, coverage_value, effective_coverage

__all__ = ["Diminishing", "DiminishingState", "coverage_value", "effective_coverage"]
