"""What the tests share: one thread, no network, small random models, finished runs."""

import contextlib
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from torch import Tensor, nn
from transformers import BartConfig, logging

from ..model import SentenceSparseBart, add_approximator, approximator_parameters, bart_config

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
    """Finished runs, of which some begin with another; two-0: two micro-batches an update."""
    from ..train import train
    from .test_train import SMALL, replace

    folder = tmp_path_factory.mktemp("runs")
    base, kl = str(folder / "base-0"), str(folder / "kl-0")
    configs = {
        "base-0": SMALL,
        "sparse-0": replace(SMALL, task="sparse", init=base),
        "kl-0": replace(SMALL, task="kl", init=base, r=2, learning_rate=0.01),
        "integrated-0": replace(SMALL, task="integrated", init=kl, select="mix", patience=9),
        "two-0": replace(SMALL, accumulate=2, batch_size=3),
    }
    with without_report():
        for name, config in configs.items():
            train(config, folder / name)
    return folder


def make_config() -> BartConfig:
    """A BART of 2 + 2 layers, 4 heads, D 16, 32 positions, whose attention is sharp."""
    more = dict(init_std=0.4, attention_dropout=0.1, dropout=0.1)
    return bart_config(31, 16, 24, heads=4, layers=2, positions=32, **more)


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
