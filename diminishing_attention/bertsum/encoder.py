"""The BERT under both BERTSum models: any of transformers, or a new one."""

import torch
from torch import Tensor, nn

from .bert_text import Batch, load_pretrained


def load_encoder(name: str, positions: int) -> nn.Module:
    """A pretrained BERT with at least so many positions: the last one is repeated (released PreSumm).

    ValueError: it is no BERT, lacks weights, which transformers would draw at random, or has NaN.
    """
    encoder, report = load_pretrained("AutoModel", name, dtype=torch.float32, output_loading_info=True)
    weights, table = encoder.state_dict(), "embeddings.position_embeddings.weight"
    missing = [key for key in report["missing_keys"] if "pooler" not in key]  # the pooler is never used
    if bad := missing + [key for key, tensor in weights.items() if not tensor.isfinite().all()]:
        raise ValueError(f"{name}: {bad[0]} is missing or not finite: take another encoder")
    if table not in weights:
        raise ValueError(f"{name} has no {table}: take a BERT")
    if (more := positions - len(weights[table])) > 0:
        encoder.config.max_position_embeddings = positions
        encoder = new_bert(encoder.config)
        encoder.load_state_dict(weights | {table: torch.cat([weights[table], weights[table][-1:].expand(more, -1)])})
    return encoder


def new_bert(config) -> nn.Module:
    """A BERT of a configuration of transformers, with new weights."""
    from transformers import AutoModel

    return AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)


def new_encoder(vocabulary: int, positions: int, config) -> nn.Module:
    """A BERT with new weights, of the sizes of a TrainConfig."""
    from transformers import BertConfig, BertModel

    sizes = BertConfig(
        vocab_size=vocabulary, hidden_size=config.width, num_hidden_layers=config.layers,
        num_attention_heads=config.heads, intermediate_size=config.feed_forward,
        max_position_embeddings=positions, hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.dropout,
    )  # fmt: skip
    return BertModel(sizes)


class Encoding(nn.Module):
    """A BERT over the document, which both models of bertsum.py share."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder, self.width = encoder, encoder.config.hidden_size
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler.requires_grad_(False)  # BERT's, never used; it counts in the paper's number of parameters

    def encode(self, batch: Batch) -> Tensor:
        """(B, S, D)."""
        keep = batch.keep.long()
        return self.encoder(batch.source, attention_mask=keep, token_type_ids=batch.segments).last_hidden_state

    def parts(self) -> list[list[nn.Parameter]]:
        """Parameters that share a learning rate: the encoder's, Eq. (7), and the others', Eq. (8)."""
        encoder = list(self.encoder.parameters())
        known = set(map(id, encoder))
        return [encoder, [parameter for parameter in self.parameters() if id(parameter) not in known]]
