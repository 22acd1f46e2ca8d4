"""What the tests share: one thread, no network, small random models that do something worth
testing, finished runs.
"""

import contextlib
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from torch import Tensor, nn
from transformers import BartConfig, logging

from ..model import SentenceSparseBart, add_approximator, approximator_parameters

torch.set_num_threads(1)
# it was imported by now: too late for an environment variable
huggingface_hub.constants.HF_HUB_OFFLINE = True
logging.set_verbosity_error()
logging.disable_progress_bar()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@contextlib.contextmanager
def without_report():
    """Trainings end without their last lines, which take a third of the time."""
    from .. import train as training

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "report", lambda *_: None)
        yield


@pytest.fixture
def unreported():
    with without_report():
        yield


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """Finished runs, each from the one before where it needs one; two-0 has two micro-batches an
    update.
    """
    from ..train import train
    from .test_train import SMALL, replace

    folder = tmp_path_factory.mktemp("runs")
    base, kl = {"init": str(folder / "base-0")}, {"init": str(folder / "kl-0")}
    for name, values in {
        "base": {},
        "sparse": base | {"task": "sparse"},
        "kl": base | {"task": "kl", "r": 2, "learning_rate": 0.01},
        "integrated": kl
        | {"task": "integrated", "select": "mix", "learning_rate": 3e-3, "patience": 9},
        "two": {"accumulate": 2, "batch_size": 3},
    }.items():
        with without_report():
            train(replace(SMALL, **values), folder / f"{name}-0")
    return folder


def make_config() -> BartConfig:
    """A BART of 2 + 2 layers, 4 heads, D 16, 32 positions, whose attention is sharp."""
    return BartConfig(
        vocab_size=31,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        max_position_embeddings=32,
        init_std=0.4,
        attention_dropout=0.1,
        dropout=0.1,
    )


def roughen(model: nn.Module) -> nn.Module:
    """Eval mode, and biases that are not zero."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


def rough_model(kind: str | None = None) -> SentenceSparseBart:
    """Ours of that config, with biases, and maps unlike the word-level ones."""
    model = roughen(SentenceSparseBart(make_config()))
    if kind:
        add_approximator(model, kind)
        with torch.no_grad():
            for parameter in approximator_parameters(model):
                parameter += 0.5 * torch.randn_like(parameter)
    return model.eval()


@pytest.fixture
def documents() -> dict[str, Tensor]:
    """Three documents of 5, 3 and 4 sentences; 12, 7 and 9 tokens."""
    rows = [
        [0, 0, 0, 1, 2, 2, 2, 2, 3, 3, 4, 4],
        [0, 0, 1, 1, 1, 2, 2],
        [0, 1, 1, 1, 2, 2, 3, 3, 3],
    ]
    ids = torch.tensor([row + [-1] * (12 - len(row)) for row in rows])
    tokens = torch.randint(4, 31, ids.shape).where(ids >= 0, 1)
    return {"input_ids": tokens, "attention_mask": (ids >= 0).long(), "sentence_ids": ids}
