"""BERTSum (Liu & Lapata 2019) with diminishing attention in the last decoder layer's cross-attention (Section 4.2).

    B documents   S source tokens   N sentences   T target tokens   H heads   D width   K = D / H   V vocabulary
    sources = B in decoding; rows = sources x beams, the beams of a source beside each other

`BertSumExt` says which sentences to take, Eq. (6); `BertSumExtAbs` writes a summary with a 6-layer Transformer decoder
on the same encoder, which is any BERT of transformers. In decoding, keys and values of a source belong to the source:
its beams are the query axis of one attention. The decoder's own past, and the coverage, belong to the rows.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from .diminishing import Diminishing, DiminishingState

TARGET_TOKENS = ("[unused0]", "[unused1]", "[unused2]")  # begin, end, between sentences (released PreSumm)


@dataclass(frozen=True)
class BertSumConfig:
    """What there is beside the encoder. Sizes default to the paper's decoder."""

    layers: int = 6  # of the decoder; 2 sentence-level layers in the extractive model
    heads: int = 8
    feed_forward: int = 2048
    dropout: float = 0.2
    positions: int = 512  # beyond the encoder's own, its last position is repeated (released PreSumm)
    diminishing: Diminishing = Diminishing()
    renormalise: bool = False  # D1: the diminished weights need not sum to 1


# Text -> batches


class TargetIds(NamedTuple):
    """Special tokens of summaries."""

    begin: int
    end: int
    between: int
    padding: int


def target_ids(tokenizer) -> TargetIds:
    """The ids of TARGET_TOKENS and of padding.

    Raises:
        ValueError: the tokenizer does not know them.
    """
    ids = [tokenizer.convert_tokens_to_ids(token) for token in TARGET_TOKENS]
    if tokenizer.pad_token_id is None or any(i in (None, tokenizer.unk_token_id) for i in ids):
        raise ValueError(f"the tokenizer lacks {', '.join(TARGET_TOKENS)} or padding: take a BERT's")
    return TargetIds(*ids, tokenizer.pad_token_id)


class Item(NamedTuple):
    """One document with its summary as token ids."""

    source: list[int]  # [CLS] sentence [SEP] [CLS] sentence [SEP] ...
    segments: list[int]  # 0 for the first sentence, 1 for the second, 0 for the third, ...
    starts: list[int]  # (N,) where the [CLS] of each sentence stands
    labels: list[bool]  # (N,) True = an extractive summary takes the sentence
    target: list[int]  # begin, words, end
    was_cut: bool


def encode_examples(
    rows: Sequence[tuple[Sequence[str], Sequence[str], Sequence[bool] | None]],
    tokenizer,
    max_source: int,
    max_target: int,
) -> list[Item]:
    """Documents and summaries as token ids, cut to size.

    Args:
        rows: sentences of the document, sentences of the summary, and which sentences are salient (None = greedy
            choice by the summary). A document of one string is split into sentences.
        max_source: tokens, at least 3; a cut document still ends in [SEP].
        max_target: tokens of the summary, begin and end included.
    """
    special, items = target_ids(tokenizer), []
    for document, summary, salient in rows:
        sentences = re.split(r"(?<=[.!?])\s+", document[0].strip()) if len(document) == 1 else list(document)
        known = salient if salient is not None and len(salient) == len(sentences) else None
        labels = list(known) if known is not None else greedy_labels(sentences, " ".join(summary))
        pieces = tokenizer(sentences, add_special_tokens=False, verbose=False)["input_ids"]
        source, segments, starts = [], [], []
        for number, ids in enumerate(pieces):
            if len(source) + 3 > max_source:
                break
            starts.append(len(source))
            source += [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]
            segments += [number % 2] * (len(source) - len(segments))
        was_cut = len(source) > max_source or len(starts) < len(sentences)
        if len(source) > max_source:
            source = [*source[: max_source - 1], tokenizer.sep_token_id]
        target = []
        for ids in tokenizer(list(summary), add_special_tokens=False, verbose=False)["input_ids"]:
            target += [special.between] * bool(target) + ids
        target = [special.begin, *target[: max_target - 2], special.end]
        items.append(Item(source, segments[: len(source)], starts, labels[: len(starts)], target, was_cut))
    return items


def greedy_labels(sentences: Sequence[str], summary: str, most: int = 3) -> list[bool]:
    """Which sentences to take: one after the other, whichever raises ROUGE-1 + ROUGE-2 F1 most (released PreSumm)."""

    def count(text: str) -> list[Counter]:
        words = re.findall(r"[^\W_]+", text.lower())
        return [Counter(words), Counter(zip(words, words[1:], strict=False))]

    def f1(taken: list[Counter]) -> float:
        sizes = [(sum((a & b).values()), sum(a.values()) + sum(b.values())) for a, b in zip(taken, wanted, strict=True)]
        return sum(2 * hits / total for hits, total in sizes if total)

    wanted, counts = count(summary), [count(sentence) for sentence in sentences]
    chosen, taken, best = [], [Counter(), Counter()], 0.0
    for _ in range(min(most, len(sentences))):
        rest = [i for i in range(len(sentences)) if i not in chosen]
        gains = {i: f1([a + b for a, b in zip(taken, counts[i], strict=True)]) for i in rest}
        pick = max(gains, key=gains.get)
        if gains[pick] <= best:
            break
        chosen, best = [*chosen, pick], gains[pick]
        taken = [a + b for a, b in zip(taken, counts[pick], strict=True)]
    return [i in chosen for i in range(len(sentences))]


class Batch(NamedTuple):
    """Items as tensors, padded on the right."""

    source: Tensor  # (B, S)
    segments: Tensor  # (B, S)
    keep: Tensor  # (B, S) bool, False at padding
    starts: Tensor  # (B, N)
    keep_sentences: Tensor  # (B, N) bool
    labels: Tensor  # (B, N) bool
    target_in: Tensor  # (B, T) begin, words
    target_out: Tensor  # (B, T) words, end
    keep_target: Tensor  # (B, T) bool


def collate(items: Sequence[Item], padding: int, device: torch.device | str = "cpu") -> Batch:
    """Items -> tensors on the device."""

    def pad(rows: list[list[int]], value: int = 0) -> Tensor:
        return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value).to(device)

    return Batch(
        source=pad([item.source for item in items], padding),
        segments=pad([item.segments for item in items]),
        keep=pad([[1] * len(item.source) for item in items]).bool(),
        starts=pad([item.starts for item in items]),
        keep_sentences=pad([[1] * len(item.starts) for item in items]).bool(),
        labels=pad([item.labels for item in items]).bool(),
        target_in=pad([item.target[:-1] for item in items], padding),
        target_out=pad([item.target[1:] for item in items], padding),
        keep_target=pad([[1] * (len(item.target) - 1) for item in items]).bool(),
    )


def read_output(tokenizer, ids: Sequence[int]) -> str:
    """Token ids of an output -> text, its sentences parted by line breaks."""
    special, sentences = target_ids(tokenizer), [[]]
    for token in ids:
        if token == special.between:
            sentences.append([])
        elif token not in special:
            sentences[-1].append(token)
    return "\n".join(tokenizer.decode(sentence) for sentence in sentences if sentence)


# Parts


def sinusoids(first: int, length: int, like: Tensor) -> Tensor:
    """(length, D) positions first, first + 1, ...: sines and cosines in turn (Vaswani et al. 2017).

    Args:
        like: (..., D), for width, type and device.
    """
    width = like.size(-1)
    position = torch.arange(first, first + length, device=like.device).unsqueeze(-1)
    frequency = torch.exp(torch.arange(0, width, 2, device=like.device) * (-math.log(10_000) / width))
    angles = position * frequency  # (length, D / 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width].to(like.dtype)


def masked_softmax(logits: Tensor, keep: Tensor) -> Tensor:
    """Softmax over the last dimension; exactly 0 where `keep` is False, and a row of 0 where nothing is kept.

    D5: nothing is divided by a sum of weights, which could be 0.
    """
    return logits.masked_fill(~keep, torch.finfo(logits.dtype).min).softmax(-1) * keep


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

    def memory(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) -> keys and values, (B, H, S, K)."""
        return self.split(self.key(states)), self.split(self.value(states))

    def weights(self, states: Tensor, keys: Tensor, keep: Tensor) -> Tensor:
        """Attention weights.

        Args:
            states: (B, T, D) that attend.
            keys: (B, H, S, K).
            keep: bool, broadcast to (B, H, T, S).
        Returns:
            (B, H, T, S).
        """
        query = self.split(self.query(states)) / math.sqrt(keys.size(-1))
        return masked_softmax(query @ keys.mT, keep)

    def read(self, weights: Tensor, values: Tensor) -> Tensor:
        """(B, H, T, S) weights and (B, H, S, K) values -> (B, T, D)."""
        return self.output((self.dropout(weights) @ values).transpose(1, 2).flatten(2))


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


class SentenceLayer(nn.Module):
    """A Transformer layer over the sentences of a document."""

    def __init__(self, width: int, config: BertSumConfig):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.attention = Attention(width, config.heads, config.dropout)
        self.feed_forward = FeedForward(width, config.feed_forward, config.dropout)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states: Tensor, keep: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D); keep: (B, 1, 1, N)."""
        normed = self.norm(states)
        keys, values = self.attention.memory(normed)
        attended = self.attention.read(self.attention.weights(normed, keys, keep), values)
        return self.feed_forward(states + self.dropout(attended))


def initialise(module: nn.Module) -> None:
    """Linear maps N(0, 0.02) with bias 0, as BERT's (released PreSumm)."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.02)
            nn.init.zeros_(part.bias)


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


# The extractive model


class BertSumExt(Encoding):
    """The probability of each sentence to be in the summary."""

    def __init__(self, encoder: nn.Module, config: BertSumConfig):
        super().__init__(encoder, config.positions)
        self.layers = nn.ModuleList(SentenceLayer(self.width, config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(self.width, eps=1e-6)
        self.score = nn.Linear(self.width, 1)
        initialise(self.layers)
        initialise(self.score)

    def forward(self, batch: Batch) -> Tensor:
        """(B, N) logits of the sentences; those of padding mean nothing."""
        states = self.encode(batch)
        states = states.gather(1, batch.starts.unsqueeze(-1).expand(-1, -1, self.width))  # (B, N, D)
        states = states + sinusoids(0, states.size(1), states)
        for layer in self.layers:
            states = layer(states, batch.keep_sentences[:, None, None])
        return self.score(self.norm(states)).squeeze(-1)

    def probabilities(self, batch: Batch) -> Tensor:
        """(B, N) in [0, 1], 0 at padding."""
        # Eq. (6): y_i = sigmoid(W_o h_i + b_o)
        return self(batch).sigmoid() * batch.keep_sentences


def extractive_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Sum of the binary cross-entropies of all sentences, (B, N) -> scalar."""
    losses = F.binary_cross_entropy_with_logits(logits.float(), batch.labels.float(), reduction="none")
    return (losses * batch.keep_sentences).sum()


# The abstractive model


class Source(NamedTuple):
    """What decoding reads of the sources, stored once for each."""

    memory: list[tuple[Tensor, Tensor]]  # per layer keys and values, (sources, H, S, K)
    keep: Tensor  # (sources, S) bool


class DecoderState(NamedTuple):
    """What belongs to a row and follows it: the decoder's past and the coverage of the last layer."""

    past: tuple[tuple[Tensor, Tensor], ...]  # per layer keys and values, (rows, H, t, K)
    seen: DiminishingState  # (rows, H, S) coverage and peak, of the last layer

    def reorder(self, rows: Tensor) -> "DecoderState":
        """Rows in another order; `rows` may repeat some and leave out others."""
        past = tuple((keys.index_select(0, rows), values.index_select(0, rows)) for keys, values in self.past)
        return DecoderState(past, self.seen.reorder(rows))


class DecoderLayer(nn.Module):
    """Pre-normalised self-attention, cross-attention, feed-forward."""

    def __init__(self, width: int, config: BertSumConfig, diminishing: Diminishing):
        super().__init__()
        self.diminishing, self.renormalise = diminishing, config.renormalise
        self.self_norm, self.cross_norm = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.self_attention = Attention(width, config.heads, config.dropout)
        self.cross_attention = Attention(width, config.heads, config.dropout)
        self.feed_forward = FeedForward(width, config.feed_forward, config.dropout)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states: Tensor, memory: tuple[Tensor, Tensor], keep: Tensor, causal: Tensor) -> Tensor:
        """All steps at once: (B, T, D) -> (B, T, D).

        Args:
            memory: keys and values, (B, H, S, K).
            keep: (B, 1, 1, S) bool.
            causal: (T, T) bool, True = attend.
        """
        normed = self.self_norm(states)
        keys, values = self.self_attention.memory(normed)
        attended = self.self_attention.read(self.self_attention.weights(normed, keys, causal), values)
        states = states + self.dropout(attended)
        weights = self.cross_attention.weights(self.cross_norm(states), memory[0], keep)  # (B, H, T, S)
        # D7: each head has its own coverage, and dropout (in `read`) comes after the diminishing.
        weights = self.scale(self.diminishing.sequence(weights))
        return self.feed_forward(states + self.dropout(self.cross_attention.read(weights, memory[1])))

    def step(
        self,
        states: Tensor,
        memory: tuple[Tensor, Tensor],
        keep: Tensor,
        past: tuple[Tensor, Tensor],
        seen: DiminishingState,
    ) -> tuple[Tensor, tuple[Tensor, Tensor], DiminishingState]:
        """One step of all rows: (rows, 1, D) -> (rows, 1, D), the longer past, and what has been attended to."""
        normed = self.self_norm(states)
        new = self.self_attention.memory(normed)
        past = tuple(torch.cat(pair, 2) for pair in zip(past, new, strict=True))
        everything = torch.ones((), dtype=torch.bool, device=states.device)
        states = states + self.self_attention.read(self.self_attention.weights(normed, past[0], everything), past[1])
        beside = self.cross_norm(states).view(len(keep), -1, states.size(-1))  # (sources, beams, D)
        weights = self.cross_attention.weights(beside, memory[0], keep).transpose(1, 2)  # (sources, beams, H, S)
        gain, seen = self.diminishing.step(weights.flatten(0, 1), seen)  # (rows, H, S)
        weights = self.scale(gain).view_as(weights).transpose(1, 2)  # (sources, H, beams, S)
        read = self.cross_attention.read(weights, memory[1]).view_as(states)
        return self.feed_forward(states + read), past, seen

    def scale(self, weights: Tensor) -> Tensor:
        """With `renormalise`, weights that sum to 1, or to 0 where there is nothing."""
        if not self.renormalise:
            return weights
        total = weights.sum(-1, keepdim=True)
        return weights / total.masked_fill(total == 0, 1.0)


class BertSumExtAbs(Encoding):
    """An encoder (of a trained BertSumExt, or a BERT as it is) and a Transformer decoder."""

    def __init__(self, encoder: nn.Module, config: BertSumConfig, special: TargetIds):
        super().__init__(encoder, config.positions)
        self.special, self.heads = special, config.heads
        self.begin, self.end, self.vocabulary = special.begin, special.end, encoder.config.vocab_size
        # Section 4.2: the mechanism is in the last layer only.
        kinds = [Diminishing()] * (config.layers - 1) + [config.diminishing]
        self.layers = nn.ModuleList(DecoderLayer(self.width, config, kind) for kind in kinds)
        self.norm = nn.LayerNorm(self.width, eps=1e-6)
        initialise(self.layers)
        words = encoder.embeddings.word_embeddings.weight
        self.embedding = nn.Embedding.from_pretrained(words.detach().clone(), freeze=False)  # its own, and the output's
        self.output_bias = nn.Parameter(torch.zeros_like(words[:, 0]))
        self.dropout = nn.Dropout(config.dropout)

    def take_encoder(self, encoder: nn.Module) -> None:
        """Start from the encoder of a trained extractive model."""
        self.encoder.load_state_dict(encoder.state_dict())
        self.embedding.weight.data.copy_(encoder.embeddings.word_embeddings.weight)

    def embed(self, tokens: Tensor, first: int = 0) -> Tensor:
        """(B, T) ids at the positions first, first + 1, ... -> (B, T, D)."""
        states = self.embedding(tokens) * math.sqrt(self.width)
        return self.dropout(states + sinusoids(first, tokens.size(1), states))

    def logits(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., V); the output map is the embedding."""
        return F.linear(self.norm(states), self.embedding.weight, self.output_bias)

    def decode(self, batch: Batch) -> Tensor:
        """Teacher-forced logits, (B, T, V)."""
        memory, keep = self.encode(batch), batch.keep[:, None, None]  # (B, S, D), (B, 1, 1, S)
        length = batch.target_in.size(1)
        causal = torch.ones(length, length, dtype=torch.bool, device=memory.device).tril()
        states = self.embed(batch.target_in)
        for layer in self.layers:
            states = layer(states, layer.cross_attention.memory(memory), keep, causal)
        return self.logits(states)

    def forward(self, batch: Batch, smoothing: float = 0.0) -> Tensor:
        """Sum of the cross-entropies of all target tokens, a scalar."""
        target = batch.target_out.masked_fill(~batch.keep_target, -100)
        logits = self.decode(batch).float().flatten(0, 1)  # (B*T, V)
        return F.cross_entropy(logits, target.flatten(), reduction="sum", label_smoothing=smoothing)

    def start(self, batch: Batch) -> tuple[Source, DecoderState]:
        """Encode; the state before the first token has one row per source."""
        states = self.encode(batch)
        memory = [layer.cross_attention.memory(states) for layer in self.layers]
        sources, length = batch.source.shape
        nothing = states.new_zeros(sources, self.heads, 0, self.width // self.heads)
        seen = DiminishingState.start((sources, self.heads, length), states.device)
        return Source(memory, batch.keep), DecoderState(((nothing, nothing),) * len(self.layers), seen)

    def step(self, tokens: Tensor, source: Source, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """One step: (rows,) ids of the tokens before -> (rows, V) log-probabilities, and the next state."""
        states = self.embed(tokens.unsqueeze(-1), state.past[0][0].size(2))  # (rows, 1, D)
        keep, past = source.keep[:, None, None], []
        for layer, memory, layer_past in zip(self.layers, source.memory, state.past, strict=True):
            states, longer, seen = layer.step(states, memory, keep, layer_past, state.seen)
            past.append(longer)
        log_probabilities = self.logits(states[:, 0]).float().log_softmax(-1)
        return log_probabilities, DecoderState(tuple(past), seen)  # the last layer's
