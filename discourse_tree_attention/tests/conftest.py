"""Fixtures: a tiny model of any attention type, ragged documents."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

torch.set_num_threads(1)
SIZES = dict(width=16, head_width=4, feed_forward=12, dense_inner=10)


@pytest.fixture(autouse=True)
def _seed():
    from accelerate.state import AcceleratorState

    torch.manual_seed(0)
    # accelerate keeps one precision per process
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture
def make_model():
    """Function from an attention type and other fields of ModelConfig to a small model."""
    from ..model import ModelConfig, Summarizer

    def make(attention, **changes):
        return Summarizer(ModelConfig(attention=attention, **SIZES | changes)).eval()

    return make


@pytest.fixture
def ragged():
    """Vectors, keep and matrices of documents of 7, 3 and 1 units; garbage at the padding."""
    keep = torch.tensor([[n < size for n in range(7)] for size in (7, 3, 1)])
    matrix = torch.rand(3, 7, 7)
    matrix = matrix * keep[:, None] * keep[:, :, None]
    matrix = matrix / matrix.sum(-1, keepdim=True).clamp_min(1e-9)
    return torch.randn(3, 7, 16), keep, matrix
