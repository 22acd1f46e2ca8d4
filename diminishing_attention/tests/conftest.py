"""What the tests share: one thread, no network, small random models that do something."""

import os
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch

from ..config import TrainConfig
from ..diminishing import Diminishing
from ..model import PointerGenerator
from ..text import Item, Vocabulary, collate, encode_examples

torch.set_num_threads(1)


def encode(pairs, vocabulary: Vocabulary, max_source: int, max_target: int) -> list[Item]:
    """Pairs of a document and a summary as items."""
    examples = [SimpleNamespace(source=document, target=summary) for document, summary in pairs]
    return encode_examples(examples, vocabulary, max_source, max_target)


WORDS = "the a cat dog sat ran on under mat tree red blue big small .".split()
PAIRS = [
    ("zorn the cat sat on zorn the mat quux . the dog ran", "zorn sat on the quux mat"),
    ("blick blick blick", "the blick ran"),  # every token is unknown, all the same word
    ("a dog ran under the tree .", "a dog ran wug"),  # a summary with a word that no document has
    ("red tree zorn , blue tree quux flim", "quux zorn"),
]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def vocabulary() -> Vocabulary:
    """The four special tokens and 15 words."""
    return Vocabulary(["<pad>", "<unk>", "<s>", "</s>", *WORDS])


@pytest.fixture
def items(vocabulary) -> list[Item]:
    """Documents of 13, 3, 7 and 8 words with 2, 1, 0 and 4 unknown ones."""
    return encode(PAIRS, vocabulary, 20, 10)


@pytest.fixture
def batch(items):
    return collate(items)


@pytest.fixture
def make_pointer():
    """A maker of small pointer-generators in eval mode, far from their initial values.

    A new one attends to everything alike, and its switch stands in the middle. In these, attention
    is sharp, and context, coverage and switch matter.
    """

    def make(kind: str = "none", seed: int = 0, **config) -> PointerGenerator:
        config = dict(vocabulary=19, embedding=6, hidden=5, diminishing=Diminishing(kind)) | config
        model = PointerGenerator(**config).eval()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                scale = 0.7
                if "score" in name or "output" in name:
                    scale = 2.0
                elif "switch" in name:
                    scale = 0.2
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
        return model

    return make


# Runs of the smallest sizes, for the tests that train.
SMALL = TrainConfig(
    data="toy:count=24,seed=5",
    vocabulary=120,
    hidden=8,
    batch_size=8,
    steps=4,
    save_every=2,
    max_target=30,
    max_source=60,
)
BERT = replace(
    SMALL,
    model="bertsum-abs",
    encoder=tempfile.mkdtemp(),
    layers=2,
    feed_forward=16,
    dropout=0.1,
    learning_rate=0.05,
    warmup=4,
    encoder_learning_rate=0.02,
    encoder_warmup=4,
)


@pytest.fixture(scope="session")
def bert():
    """BERT's encoder: its folder, with random weights and some words."""
    words = "the a town storm hit opened closed rained in on . was for and"
    write_bert(BERT.encoder, words.split())
    yield BERT.encoder
    shutil.rmtree(BERT.encoder)


def write_bert(folder: str | Path, words: list[str], positions: int = 64, **changes) -> None:
    """A BERT of transformers with its tokenizer: letters and these words."""
    from transformers import BertConfig, BertModel, BertTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]", "[unused2]"]
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words])
    vocab = {piece: i for i, piece in enumerate(pieces)}
    BertTokenizer(vocab=vocab, model_max_length=positions).save_pretrained(folder)
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=8, intermediate_size=16)
    sizes |= dict(vocab_size=len(pieces), max_position_embeddings=positions)
    torch.manual_seed(0)
    BertModel(BertConfig(**sizes | changes)).save_pretrained(folder)


@pytest.fixture(scope="session")
def trained(tmp_path_factory, bert):
    """trained(config): the folder of a finished run; each config is trained once."""

    @cache
    def train_once(config: TrainConfig) -> Path:
        from accelerate.state import AcceleratorState

        from ..train import train

        folder = tmp_path_factory.mktemp("runs") / "run"
        AcceleratorState._reset_state(True)  # it holds the precision of a process
        train(config, folder)
        AcceleratorState._reset_state(True)
        return folder

    return train_once
