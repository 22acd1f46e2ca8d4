"""A small BERT of random weights."""

import pytest
import torch
from transformers import BertConfig, BertModel

from ...bertsum.bert_text import make_tokenizer


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> str:
    """Its folder."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = make_tokenizer(["the cat sat on a mat . !", "a dog ran far away"], 70, 32)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, num_hidden_layers=6, num_attention_heads=2, intermediate_size=16)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, initializer_range=0.5, **sizes)
    BertModel(config).save_pretrained(folder)
    return str(folder)
