"""A small BERT of random weights."""

import pytest

from ..conftest import write_bert


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> str:
    """Its folder."""
    folder = tmp_path_factory.mktemp("encoder")
    words = "the cat sat on a mat . ! a dog ran far away".split()
    write_bert(folder, words, 32, num_hidden_layers=6, num_attention_heads=2, initializer_range=0.8)
    return str(folder)
