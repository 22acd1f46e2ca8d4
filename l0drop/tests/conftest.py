"""What the tests share: one thread, no network, small models that do something worth testing."""

import contextlib
import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from safetensors.torch import load_file

from ..config import TrainConfig
from ..model import EOS, PAD, ModelConfig, Transformer
from ..text import train_tokenizer

SMALL = TrainConfig(
    vocabulary=300,
    width=16,
    feed_forward=16,
    heads=2,
    encoder_layers=1,
    decoder_layers=1,
    residual_dropout=0.1,
    data="toy:count=24,seed=5",
    batch_tokens=150,
    steps=6,
    save_every=2,
    average_last=2,
)

TEXTS = [
    "the cat sat on the mat .",
    "the dog's house, don't you see?",
    "a cat and a dog sat, sat and sat on mats.",
    "Die Katze saß auf der Matte; München schläft früh.",
] * 4

torch.set_num_threads(1)


def example(source: str, target: str = "x", pos=None) -> SimpleNamespace:
    return SimpleNamespace(source=source, target=target, pos=pos)


@pytest.fixture(scope="session")
def words():
    """A tokenizer that knows the frequent words of TEXTS whole and cuts the others."""
    return train_tokenizer(TEXTS, "bpe", 60)


@pytest.fixture(scope="session")
def characters():
    return train_tokenizer(TEXTS, "char", 60)


class Killed(BaseException):
    """Ends a training as a kill would."""


@contextlib.contextmanager
def killed_before(training, number: int):
    """What trains inside, by the module `training`, ends before its update `number`, from 0."""
    rate = training.learning_rate
    updates = itertools.count()

    def kill(*arguments):
        if next(updates) == number:
            raise Killed
        return rate(*arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(training, "learning_rate", kill)
        yield


def log(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def same_weights(one: Path, other: Path) -> bool:
    a, b = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> dict[str, Path]:
    """Finished runs: a baseline, one with gates from scratch, one that fine-tunes the baseline."""
    from ..train import train

    folder = tmp_path_factory.mktemp("runs")
    two = replace(SMALL, accumulate=2)
    train(replace(SMALL, l0drop="none"), folder / "base")
    train(two, folder / "scratch")
    train(replace(two, init=str(folder / "base"), l0_weight=0.3), folder / "init")
    return {name: folder / name for name in ("base", "scratch", "init")}


@pytest.fixture
def base(whole) -> Path:
    return whole["base"]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def make_model():
    """A maker of small eval-mode models with weights far from their initial values.

    Untrained models copy their input through the tied embeddings, or stop at once, whatever they
    attend to. These have sharp attention, biases that are not zero, and gates of which some are
    closed, some open, some in between.
    """

    def make(seed: int = 0, **config) -> Transformer:
        sizes = dict(
            vocabulary=23, width=16, feed_forward=24, heads=4, encoder_layers=2, decoder_layers=2,
            residual_dropout=0.0, attention_dropout=0.0,
        )  # fmt: skip
        torch.manual_seed(seed)
        model = Transformer(ModelConfig(**sizes | config)).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1:
                    parameter += 0.1 * torch.randn_like(parameter)
                elif any(part in name for part in ("embedding", "query", "key")):
                    parameter *= 2.5
            probe = torch.randint(4, model.config.vocabulary, (16, 8))
            for index, layer in enumerate(model.l0drop):
                layer.predictor.weight *= 3 / model.encode(probe).log_alpha[index].std()
                layer.predictor.bias -= model.encode(probe).log_alpha[index].mean()
            model.embedding.weight[EOS] *= 0.1
            # Signs at random: what comes next has nothing to do with what came last, unlike in an
            # untrained model.
            last = model.decoder[-1].norms[-1]
            last.weight.copy_(torch.randn_like(last.weight))
            outputs = []
            hook = last.register_forward_hook(lambda module, inputs, output: outputs.append(output))
            logits, _ = model(probe, probe)
            hook.remove()
            last.weight /= logits.std() / 2
            last.bias -= outputs[0].mean((0, 1))
        return model

    return make


@pytest.fixture
def model(make_model):
    return make_model()


@pytest.fixture
def ragged():
    """A batch of sources of 9, 5, 1 and 7 tokens."""
    source = torch.full((4, 9), PAD)
    for row, length in enumerate((9, 5, 1, 7)):
        source[row, : length - 1] = torch.randint(
            4, 23, (length - 1,), generator=torch.Generator().manual_seed(row)
        )
        source[row, length - 1] = EOS
    return source


@pytest.fixture
def targets():
    """Target inputs, 6 tokens each, for the rows of `ragged`."""
    tokens = torch.randint(4, 23, (4, 6), generator=torch.Generator().manual_seed(9))
    tokens[:, 0] = 1
    return tokens
