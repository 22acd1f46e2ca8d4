"""BERTSum (Liu & Lapata 2019); its last cross-attention diminishes (Section 4.2).

The paper's own idea is in ../diminishing.py, the text in bert_text.py.

    B documents   S source tokens   T target tokens   H heads   D width   K = D / H   V vocabulary
    W beams of a document, beside each other; rows = B x W

`BertSumExtAbs` writes with a Transformer decoder on any BERT. A document's beams are the query axis
of one attention.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..diminishing import Diminishing, DiminishingState
from ..model import masked_softmax
from .bert_text import Batch, TargetIds

HEADS = 8  # PreSumm
KeysValues = tuple[Tensor, Tensor]  # of one layer


def sinusoids(states: Tensor, first: int = 0) -> Tensor:
    """Positions first, first + 1, ... of (B, T, D): sines and cosines in turn, (T, D).

    Vaswani et al. (2017).
    """
    _, length, width = states.shape
    position = torch.arange(first, first + length, device=states.device).unsqueeze(-1)
    rates = 10_000 ** (-torch.arange(0, width, 2, device=states.device) / width)
    angles = position * rates  # (T, D / 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).to(states.dtype)


class Attention(nn.Module):
    """Multi-head attention in parts, so that the weights can be diminished in between."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of heads = {heads}")
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def split(self, states: Tensor) -> Tensor:
        """(B, L, D) -> (B, H, L, K)."""
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(self, states: Tensor) -> KeysValues:
        """(B, S, D) -> keys and values, (B, H, S, K), once per source."""
        return self.split(self.key(states)), self.split(self.value(states))

    def weights(self, states: Tensor, keys: Tensor, keep: Tensor) -> Tensor:
        """Attention (B, H, T, S) of states (B, T, D) to keys (B, H, S, K).

        keep: bool, broadcast to (B, H, T, S).
        """
        query = self.split(self.query(states)) / math.sqrt(keys.size(-1))
        return masked_softmax(query @ keys.mT, keep)

    def read(self, weights: Tensor, values: Tensor) -> Tensor:
        """(B, H, T, S) weights and (B, H, S, K) values -> (B, T, D)."""
        heads = self.dropout(weights).to(values.dtype) @ values  # (B, H, T, K)
        return self.output(heads.transpose(1, 2).flatten(2))

    def forward(self, states: Tensor, keep: Tensor) -> Tensor:
        """Self-attention, (B, T, D) -> (B, T, D); keep: bool, broadcast to (B, H, T, T)."""
        keys, values = self.project(states)
        return self.read(self.weights(states, keys, keep), values)


class FeedForward(nn.Module):
    """Pre-normalised residual block: x + W2 gelu(W1 norm(x))."""

    def __init__(self, width: int, inner: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor) -> Tensor:
        inner = self.dropout(F.gelu(self.inner(self.norm(states)), approximate="tanh"))
        return states + self.dropout(self.outer(inner))


def initialise(module: nn.Module, width: int) -> None:
    """Normally distributed linear maps with bias 0.

    D18: at BERT's width of 768 the deviation is 0.02 (released PreSumm); a smaller model keeps its
    scale with in_features^-0.5, and learns nothing but the template with 0.02.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.02 if width == 768 else part.in_features**-0.5)
            nn.init.zeros_(part.bias)


def probability_to_extract(states: Tensor, score: nn.Linear) -> Tensor:
    """Probability to take each sentence, (B, N), from states (B, N, D), one of each [CLS].

    Two more layers make these states. D24: so was the paper's encoder trained, before the stage
    that is here.
    """
    # Eq. (6)
    return score(states).squeeze(-1).sigmoid()


class Source(NamedTuple):
    """What decoding reads of the documents, stored once for each."""

    projected: list[KeysValues]  # per layer, (B, H, S, K)
    keep: Tensor  # (B, S) bool


class Past(NamedTuple):
    """What belongs to a row and follows it: keys and values, and the last layer's coverage."""

    cache: tuple[KeysValues, ...]  # per layer, (rows, H, t, K)
    attended: DiminishingState  # (rows, H, S) coverage and peak, of the last layer

    def reorder(self, rows: Tensor) -> "Past":
        """Rows in another order; `rows` may repeat some and leave out others."""
        cache = tuple(
            (keys.index_select(0, rows), values.index_select(0, rows))
            for keys, values in self.cache
        )
        return Past(cache, self.attended.reorder(rows))


class DecoderLayer(nn.Module):
    """Pre-normalised self-attention, cross-attention, feed-forward."""

    def __init__(
        self, width: int, heads: int, feed_forward: int, dropout: float, diminishing: Diminishing
    ):
        super().__init__()
        self.diminishing = diminishing
        self.self_norm, self.cross_norm = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.self_attention = Attention(width, heads, dropout)
        self.cross_attention = Attention(width, heads, dropout)
        self.feed_forward = FeedForward(width, feed_forward, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, states: Tensor, projected: KeysValues, keep: Tensor, causal: Tensor
    ) -> Tensor:
        """All steps at once: (B, T, D) -> (B, T, D).

        Args:
            projected: keys and values of the source, (B, H, S, K).
            keep: (B, 1, 1, S) bool.
            causal: (T, T) bool, True = attend.
        """
        keys, values = projected
        states = states + self.dropout(self.self_attention(self.self_norm(states), causal))
        # (B, H, T, S)
        weights = self.cross_attention.weights(self.cross_norm(states), keys, keep)
        # D7: each head has its own coverage, and dropout (in `read`) comes after the diminishing.
        weights = self.diminishing.sequence(weights)
        read = self.cross_attention.read(weights, values)
        return self.feed_forward(states + self.dropout(read))

    def step(
        self,
        states: Tensor,
        projected: KeysValues,
        keep: Tensor,
        cache: KeysValues,
        attended: DiminishingState,
    ) -> tuple[Tensor, KeysValues, DiminishingState]:
        """One step of all rows: (rows, 1, D) -> (rows, 1, D), the longer cache, what is attended.

        Only the last layer's mechanism reads `attended`.
        """
        normed = self.self_norm(states)
        key, value = self.self_attention.project(normed)
        cache = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
        everything = torch.ones((), dtype=torch.bool, device=states.device)
        weights = self.self_attention.weights(normed, cache[0], everything)
        states = states + self.self_attention.read(weights, cache[1])
        keys, values = projected
        beside = self.cross_norm(states).view(len(keep), -1, states.size(-1))  # (B, W, D)
        # (B, W, H, S)
        weights = self.cross_attention.weights(beside, keys, keep).transpose(1, 2)
        gain, attended = self.diminishing.step(weights.flatten(0, 1), attended)  # (rows, H, S)
        weights = gain.view_as(weights).transpose(1, 2)  # (B, H, W, S)
        read = self.cross_attention.read(weights, values).view_as(states)
        return self.feed_forward(states + read), cache, attended


class BertSumExtAbs(nn.Module):
    """A BERT of transformers and a Transformer decoder, by default the paper's.

    `label_smoothing` is of the training loss (PreSumm).
    """

    def __init__(
        self,
        encoder: nn.Module,
        special: TargetIds,
        diminishing: Diminishing,
        layers: int = 6,
        feed_forward: int = 2048,
        dropout: float = 0.2,
        heads: int = HEADS,
        label_smoothing: float = 0.1,
    ):
        super().__init__()
        self.encoder = encoder
        self.width = encoder.config.hidden_size
        self.vocabulary = encoder.config.vocab_size
        if getattr(encoder, "pooler", None) is not None:
            # BERT's, never used; it counts in the paper's number of parameters
            encoder.pooler.requires_grad_(False)
        self.bos, self.eos = special.bos, special.eos
        self.heads, self.label_smoothing = heads, label_smoothing
        sizes = self.width, heads, feed_forward, dropout
        # Section 4.2: the mechanism is in the last layer only.
        kinds = [Diminishing()] * (layers - 1) + [diminishing]
        self.layers = nn.ModuleList(DecoderLayer(*sizes, kind) for kind in kinds)
        self.norm = nn.LayerNorm(self.width, eps=1e-6)
        initialise(self.layers, self.width)
        words = encoder.embeddings.word_embeddings.weight
        # its own, and the output's
        self.embedding = nn.Embedding.from_pretrained(words.detach().clone(), freeze=False)
        self.output_bias = nn.Parameter(torch.zeros_like(words[:, 0]))
        self.dropout = nn.Dropout(dropout)

    def parts(self) -> list[list[nn.Parameter]]:
        """Parameters that share a rate: the encoder's, Eq. (7), and the others', Eq. (8)."""
        encoder = list(self.encoder.parameters())
        known = set(map(id, encoder))
        others = [parameter for parameter in self.parameters() if id(parameter) not in known]
        return [encoder, others]

    def encode(self, batch: Batch) -> Tensor:
        """(B, S, D)."""
        inputs = {"attention_mask": batch.keep.long(), "token_type_ids": batch.segments}
        return self.encoder(batch.source, **inputs).last_hidden_state

    def embed(self, tokens: Tensor, first: int = 0) -> Tensor:
        """(B, T) ids at the positions first, first + 1, ... -> (B, T, D)."""
        states = self.embedding(tokens) * math.sqrt(self.width)
        return self.dropout(states + sinusoids(states, first))

    def logits(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., V); the output map is the embedding."""
        return F.linear(self.norm(states), self.embedding.weight, self.output_bias)

    def decode(self, states: Tensor, keep: Tensor, target_in: Tensor) -> Tensor:
        """Teacher-forced logits, (B, T, V), from states (B, S, D) of any encoder; keep: (B, S)."""
        length = target_in.size(1)
        causal = torch.ones(length, length, dtype=torch.bool, device=states.device).tril()
        hidden = self.embed(target_in)
        for layer in self.layers:
            projected = layer.cross_attention.project(states)
            hidden = layer(hidden, projected, keep[:, None, None], causal)
        return self.logits(hidden)

    def forward(self, batch: Batch) -> Tensor:
        """Cross-entropy of each target token of the batch, (tokens,)."""
        logits = self.decode(self.encode(batch), batch.keep, batch.target_in)  # (B, T, V)
        logits = logits[batch.keep_target].float()  # (tokens, V)
        wanted = batch.target_out[batch.keep_target]  # (tokens,)
        smoothing = self.label_smoothing if self.training else 0.0  # D20: torch's
        return F.cross_entropy(logits, wanted, reduction="none", label_smoothing=smoothing)

    def start(self, batch: Batch) -> tuple[Source, Past]:
        """Encode; the past before the first token has one row per document."""
        states = self.encode(batch)
        B, S = batch.source.shape
        nothing = states.new_zeros(B, self.heads, 0, self.width // self.heads)
        attended = DiminishingState.start((B, self.heads, S), states.device)
        projected = [layer.cross_attention.project(states) for layer in self.layers]
        cache = ((nothing, nothing),) * len(self.layers)
        return Source(projected, batch.keep), Past(cache, attended)

    def step(self, tokens: Tensor, source: Source, past: Past) -> tuple[Tensor, Past]:
        """One step: (rows,) ids of the tokens before -> (rows, V) log p, and the next past."""
        position = past.cache[0][0].size(2)
        states = self.embed(tokens.unsqueeze(-1), position)  # (rows, 1, D)
        keep, cache = source.keep[:, None, None], []
        layers = zip(self.layers, source.projected, past.cache, strict=True)
        for layer, projected, before in layers:
            states, longer, attended = layer.step(states, projected, keep, before, past.attended)
            cache.append(longer)
        log_p = self.logits(states[:, 0]).float().log_softmax(-1)
        return log_p, Past(tuple(cache), attended)  # what the last layer has attended to


def new_encoder(vocabulary: int, positions: int, sizes) -> nn.Module:
    """A BERT with new weights, for Table 1's Transformer.

    `sizes` has a width, layers, feed_forward and dropout.
    """
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=HEADS,
        intermediate_size=sizes.feed_forward,
        max_position_embeddings=positions,
        hidden_dropout_prob=sizes.dropout,
        attention_probs_dropout_prob=sizes.dropout,
    )
    return BertModel(config)


def with_positions(encoder: nn.Module, positions: int) -> nn.Module:
    """The BERT with at least so many positions: the last one is repeated (released PreSumm)."""
    name = "embeddings.position_embeddings.weight"
    weights = dict(encoder.state_dict())
    table = weights[name]  # (positions of the BERT, D)
    more = positions - len(table)
    if more <= 0:
        return encoder
    weights[name] = torch.cat([table, table[-1:].expand(more, -1)])
    encoder.config.max_position_embeddings = positions
    longer = type(encoder)(encoder.config)
    longer.load_state_dict(weights)
    return longer
