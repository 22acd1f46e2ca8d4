"""What the tests share.

One thread, no network, and small random models that do something worth testing.
"""

import json
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertModel, logging

from ..config import TrainConfig
from ..text import train_tokenizer

torch.set_num_threads(1)
# the package has imported it: too late for an environment variable
huggingface_hub.constants.HF_HUB_OFFLINE = True
logging.set_verbosity_error()
logging.disable_progress_bar()

DATA = "toy:count=24,seed=5"
TAGGER = TrainConfig(data=DATA, batch_size=8, steps=12, save_every=3, warmup=1, learning_rate=0.01)
SHORT = replace(TAGGER, max_source=40)  # where it does not matter what is learned
SIZES = dict(
    vocab_size=31,
    d_model=16,
    encoder_layers=1,
    decoder_layers=2,
    encoder_ffn_dim=24,
    decoder_ffn_dim=24,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    max_position_embeddings=32,
    init_std=0.4,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def roughen(model: torch.nn.Module) -> torch.nn.Module:
    """Eval mode, and biases that are not zero."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


@pytest.fixture(params=["eager", "sdpa"])
def bart(request) -> BartForConditionalGeneration:
    """A small BART whose attention is sharp: 2 decoder layers, 4 heads."""
    torch.manual_seed(1)
    model = roughen(BartForConditionalGeneration(BartConfig(**SIZES)))
    model.set_attn_implementation(request.param)
    return model


@pytest.fixture
def ragged() -> dict[str, Tensor]:
    """Three documents of 9, 6 and 7 tokens."""
    torch.manual_seed(2)
    attention_mask = (torch.arange(9) < torch.tensor([9, 6, 7]).unsqueeze(-1)).long()
    return {
        "input_ids": torch.randint(4, 31, (3, 9)).where(attention_mask.bool(), 1),
        "attention_mask": attention_mask,
    }


@pytest.fixture
def keep() -> Tensor:
    """(3, 9) what the masked heads may attend to in `ragged`, its padding hidden and not hidden."""
    rows = ([0, 1, 1, 0, 0, 1, 0, 1, 0], [0, 0, 1, 0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 1, 1])
    return torch.tensor(rows).bool()


@pytest.fixture
def encoder() -> BertModel:
    """A small BERT with 512 positions."""
    torch.manual_seed(3)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)
    sizes |= dict(vocab_size=50, max_position_embeddings=512, initializer_range=0.4)
    return roughen(BertModel(BertConfig(**sizes), add_pooling_layer=False))


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Two taggers, tagger and weak, hardly trained.

    Base, a BART that is not, but to which it matters what it reads.
    """
    pytest.importorskip("shared")
    from shared.data import load

    from ..train import train

    folder = tmp_path_factory.mktemp("runs")
    train(TAGGER, folder / "tagger")
    weak = replace(TAGGER, examples=12, steps=6, max_source=40, min_run=2, seed=1)
    train(weak, folder / "weak-1")
    tokenizer = train_tokenizer([text for e in load(DATA) for text in (e.source, e.target)], 500)
    torch.manual_seed(1)
    sizes = SIZES | dict(vocab_size=len(tokenizer), max_position_embeddings=400)
    sizes |= dict(forced_bos_token_id=0)
    model = roughen(BartForConditionalGeneration(BartConfig(**sizes)))
    model.generation_config.update(max_length=12, num_beams=2)
    for part in (model, tokenizer):
        part.save_pretrained(folder / "base")
    return folder


def log(out: Path) -> list[dict]:
    """The rows of a run's log."""
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def weights(out: Path) -> dict[str, Tensor]:
    """What a run has learned."""
    path = out / "model/model.safetensors"
    return load_file(path if path.exists() else out / "model.safetensors")


def equal(one: dict, other: dict) -> bool:
    """Bit by bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def killed_at(step: int, module, config, out: Path, resume: bool = False) -> None:
    """A training in a process of its own, killed by signal 9 before update `step`, from 0 on."""
    learning_rate = module.learning_rate

    def rate(at, config):
        if at == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return learning_rate(at, config)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "learning_rate", rate)
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=module.train, args=(config, out, resume))
        process.start()
        process.join()
    assert process.exitcode == -signal.SIGKILL
