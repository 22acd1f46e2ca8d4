"""The BERT under both BERTSum models: any of transformers, or a new one."""

from pathlib import Path

import torch
from torch import Tensor, nn

from .bert_text import Batch


def load_pretrained(kind: str, name: str, **keywords):
    """`transformers.KIND.from_pretrained(name)`; ValueError with the remedy when it is not there or does not fit."""
    import transformers

    try:
        return getattr(transformers, kind).from_pretrained(name, **keywords)
    except Exception as error:  # transformers and the hub raise a dozen unrelated types
        remedy = "make it again" if Path(name).exists() else f"give a folder, or: HF_HUB_OFFLINE=0 hf download {name}"
        raise ValueError(f"cannot load {name!r} ({str(error).strip().splitlines()[0]}): {remedy}") from error


def load_encoder(name: str) -> nn.Module:
    """A pretrained BERT; ValueError where it lacks weights, which transformers would draw at random, or has NaN."""
    encoder, report = load_pretrained("AutoModel", name, dtype=torch.float32, output_loading_info=True)
    missing = [key for key in report["missing_keys"] if "pooler" not in key]  # the pooler is never used
    bad = [key for key, tensor in encoder.state_dict().items() if not tensor.isfinite().all()]
    if missing or bad:
        raise ValueError(f"{name}: {[*missing, *bad][0]} is missing or not finite: take another encoder")
    return encoder


def new_encoder(vocabulary: int, config) -> nn.Module:
    """A BERT with new weights, of the sizes of a TrainConfig."""
    from transformers import BertConfig, BertModel

    sizes = BertConfig(
        vocab_size=vocabulary, hidden_size=config.width, num_hidden_layers=config.layers,
        num_attention_heads=config.heads, intermediate_size=config.feed_forward,
        max_position_embeddings=config.positions, hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.dropout,
    )  # fmt: skip
    return BertModel(sizes)


def extend_positions(encoder: nn.Module, positions: int) -> None:
    """Give a BERT more positions: those beyond its own start as copies of the last (released PreSumm).

    Raises:
        ValueError: an encoder without a table of positions.
    """
    table = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    if table is None:
        raise ValueError(f"{type(encoder).__name__} has no embeddings.position_embeddings: take a BERT")
    if (missing := positions - table.num_embeddings) <= 0:
        return
    longer = torch.cat([table.weight.detach(), table.weight.detach()[-1:].expand(missing, -1)])
    encoder.embeddings.position_embeddings = nn.Embedding.from_pretrained(longer, freeze=False)
    numbers = torch.arange(positions, device=longer.device).unsqueeze(0)
    encoder.embeddings.register_buffer("position_ids", numbers, persistent=False)
    encoder.embeddings.register_buffer("token_type_ids", torch.zeros_like(numbers), persistent=False)
    encoder.config.max_position_embeddings = positions


class Encoding(nn.Module):
    """What both models share: a BERT over the document."""

    def __init__(self, encoder: nn.Module, positions: int):
        super().__init__()
        extend_positions(encoder, positions)
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
