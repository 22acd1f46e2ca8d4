"""What the tests share: one thread, no network, and small random models that do something worth testing."""

import huggingface_hub.constants
import pytest
import torch
from torch import Tensor, nn
from transformers import BartConfig, logging

from ..model import SentenceSparseBart

torch.set_num_threads(1)
huggingface_hub.constants.HF_HUB_OFFLINE = (
    True  # the package has imported it by now: too late for an environment variable
)
logging.set_verbosity_error()
logging.disable_progress_bar()

SIZES = dict(
    vocab_size=31, d_model=16, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=24, decoder_ffn_dim=24,
    encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=32, init_std=0.4,
)  # fmt: skip


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def roughen(model: nn.Module) -> nn.Module:
    """Eval mode, and biases that are not zero."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


@pytest.fixture
def config() -> BartConfig:
    """A BART of 2 + 2 layers, 2 heads, D 16, 32 positions, without dropout, whose attention is sharp."""
    return BartConfig(dropout=0.0, **SIZES)


@pytest.fixture
def model(config) -> SentenceSparseBart:
    """That BART with our attention, no approximator."""
    torch.manual_seed(1)
    return roughen(SentenceSparseBart(config))


@pytest.fixture
def ragged() -> dict[str, Tensor]:
    """Three documents of 14, 9 and 11 tokens in 5, 2 and 4 sentences, `</s>` a sentence of its own in the first two."""
    torch.manual_seed(2)
    sentence_ids = torch.tensor(
        [
            [0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4],
            [0, 0, 0, 0, 0, 0, 0, 0, 1, -1, -1, -1, -1, -1],
            [0, 0, 1, 2, 2, 2, 2, 3, 3, 3, 3, -1, -1, -1],
        ]
    )
    attention_mask = (sentence_ids >= 0).long()
    input_ids = torch.randint(4, 31, sentence_ids.shape).where(sentence_ids >= 0, 1)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "sentence_ids": sentence_ids}
