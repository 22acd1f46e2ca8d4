"""The BART that is made of a BERT."""

import pytest
import torch
from transformers import BertConfig, BertModel

pytest.importorskip("shared")

from ...experiments.samsum.minilm_bart import bart_of


def test_encoder_has_the_states_of_bert():
    """Also beside padding; and what it writes begins and ends with BERT's own special tokens."""
    torch.manual_seed(0)
    sizes = dict(vocab_size=50, hidden_size=16, intermediate_size=32, max_position_embeddings=12)
    layers = dict(num_hidden_layers=4, num_attention_heads=2, initializer_range=0.3)
    bert = BertModel(BertConfig(**sizes, **layers)).eval()
    for name, weight in bert.named_parameters():
        if "LayerNorm" in name or name.endswith("bias"):
            torch.nn.init.normal_(weight)
    bart, ids = bart_of(bert, begin=1, end=2, layers=2), torch.randint(3, 50, (2, 12))
    keep = torch.arange(12) < torch.tensor([[12], [7]])
    with torch.no_grad():
        theirs = bert(ids, attention_mask=keep.long())[0]
        ours = bart.get_encoder()(ids, attention_mask=keep.long())[0]
    assert (theirs - ours)[keep].abs().max() < 0.01 < theirs.std()
    summary = bart.generate(ids, attention_mask=keep.long(), num_beams=2, max_length=6)
    assert (summary[:, 0] == 2).all() and ((summary == 2).sum(1) == 2).all()
