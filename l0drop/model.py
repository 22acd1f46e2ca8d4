"""The idea is in gates.py; this is the Transformer around it (Sections 3 and 4).

B source sentences, W beams of each, S source tokens, R retained rows of the memory, T target
tokens, H heads, D model width, K = D / H head width, V vocabulary; PAPER.md has the symbols. A
source is token ids that end in EOS, padded with PAD.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .gates import L0Drop, Memory, compress, dense_memory, l0_penalty

PAD, BOS, EOS, UNK = 0, 1, 2, 3  # token ids; BOS starts every target
IGNORED = -100  # what stands after the end of a target
POSITIONS = 4096  # longest source or target; sinusoids, so this costs no parameters

# The second part is the range.
Size = Annotated[int, (1, 10**6)]
Share = Annotated[float, (0, 1)]


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of the model; the defaults learn on one core in minutes."""

    # V, joint over source and target (D21; Appendix A: 32K merges).
    vocabulary: Annotated[int, (8, 10**6)] = 1000
    width: Size = 128  # D, the model width (Appendix A: 512).
    feed_forward: Size = 512  # Inner width of the feed-forward layers (Appendix A: 2,048).
    heads: Size = 4  # H, attention heads (Appendix A: 8).
    encoder_layers: Size = 2  # Layers of the encoder (Vaswani et al. 2017, base: 6).
    decoder_layers: Size = 2  # Layers of the decoder (Vaswani et al. 2017, base: 6).
    # Dropout of embeddings and sublayers (Appendix A: 0.1; 0.5 for CNN/Daily Mail).
    residual_dropout: Share = 0.0
    # Dropout of attention weights (Appendix A: 0.1; 0.3 for CNN/Daily Mail).
    attention_dropout: Share = 0.0
    # Gates nowhere (the baseline), on the encoder's output (Eq. 11), or after each of its layers
    # (Section 6).
    l0drop: Literal["none", "output", "every"] = "output"
    # Where the bias of the gates starts; 3 is an open gate (D15).
    gate_start: Annotated[float, (-10, 10)] = 0.0
    # Hide closed states in training, not only zero them (released code, D4).
    mask_closed_in_training: bool = False


class Attention(nn.Module):
    """Multi-head attention, Eq. (1), in two steps, so that keys and values can be kept."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, S, D) -> (B, H, S, K)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, H, S, K) of a memory (B, S, D)."""
        # Eq. (1): K, V = M W_k, M W_v.  Algorithm 1, line 5.
        return self.split_heads(self.key(memory)), self.split_heads(self.value(memory))

    def weights(self, queries: Tensor, keys: Tensor, bias: Tensor | None) -> Tensor:
        """Weights (B, H, T, S) of queries (B, H, T, K); `bias` is added to the logits."""
        # Eq. (1): SM(Q K^T / sqrt(d)).
        logits = queries @ keys.transpose(-1, -2) / keys.size(-1) ** 0.5
        # Algorithm 1, lines 6-8: c exp(e) / sum(c exp(e)) is a softmax of e + log c, and log c is
        # in the bias, which is float32.
        return (logits if bias is None else logits + bias).softmax(-1).to(keys.dtype)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
        """Attend from x (B, T, D) to keys and values (B, H, S, K): (B, T, D)."""
        # Eq. (1): Q = H W_q.  Algorithm 1, line 5: q.
        queries = self.split_heads(self.query(x))  # (B, H, T, K)
        if self.training:
            weights = F.dropout(self.weights(queries, keys, bias), self.dropout)  # (B, H, T, S)
            # Eq. (1): SM(Q K^T / sqrt(d)) V.
            attended = weights @ values  # (B, H, T, K)
        else:
            attended = fused_attention(queries, keys, values, bias)
        return self.output(attended.transpose(1, 2).flatten(2))


def fused_attention(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """`Attention.weights(...) @ values` in one call: half the time to decode 2,048 tokens."""
    bias = None if bias is None else bias.to(queries.dtype)  # D18: in bfloat16 this rounds log c
    return F.scaled_dot_product_attention(queries, keys, values, bias)


# Keys and values (B*W, H, T', K) of the target so far, of one decoder layer.
Past = tuple[Tensor, Tensor]


class Projected(NamedTuple):
    """A memory as one decoder layer sees it, computed once per source."""

    keys: Tensor  # (B, H, R, K)
    values: Tensor  # (B, H, R, K)
    log_counts: Tensor  # (B, 1, 1, R)


class EncoderLayer(nn.Module):
    """One layer of Eq. (2); a residual sum and a layer norm follow each sublayer (footnote 3)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        width, inner = config.width, config.feed_forward
        self.attention = Attention(width, config.heads, config.attention_dropout)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dropout = nn.Dropout(config.residual_dropout)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """x (B, S, D) -> new x; `bias` (B, 1, 1, S) hides padding with -inf."""
        # Eq. (2): FFN(ATT(X^{l-1}, X^{l-1})).
        x = self.norms[0](x + self.dropout(self.attention(x, *self.attention.project(x), bias)))
        return self.norms[1](x + self.dropout(self.feed_forward(x)))


class DecoderLayer(nn.Module):
    """One layer of Eq. (3).

    The rows of y may outnumber the sources: they are the beams, which share their memory.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        width, inner = config.width, config.feed_forward
        self.self_attention = Attention(width, config.heads, config.attention_dropout)
        self.cross_attention = Attention(width, config.heads, config.attention_dropout)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(config.residual_dropout)

    def forward(
        self, y: Tensor, causal: Tensor | None, past: Past | None, memory: Projected
    ) -> tuple[Tensor, Past]:
        """y (B*W, T, D) -> new y, and the past with its keys and values."""
        keys, values = self.self_attention.project(y)  # (B*W, H, T, K)
        if past:
            # (B*W, H, T' + T, K)
            keys, values = torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)
        # Eq. (3): FFN(ATT(ATT(Y^{l-1}, Y^{l-1}), X^L)).
        y = self.norms[0](y + self.dropout(self.self_attention(y, keys, values, causal)))
        # The W beams of a source read its one copy of keys and values together, as W*T queries.
        together = y.reshape(memory.keys.size(0), -1, y.size(-1))  # (B, W*T, D)
        attended = self.cross_attention(together, *memory).view_as(y)
        y = self.norms[1](y + self.dropout(attended))
        return self.norms[2](y + self.dropout(self.feed_forward(y))), (keys, values)


class Encoding(NamedTuple):
    """What `Transformer.encode` returns; the lists have an entry per L0Drop layer, in order."""

    states: Tensor  # (B, S, D), gated
    keep: Tensor  # (B, S)
    gates: list[Tensor]  # (B, S) each
    log_alpha: list[Tensor]  # (B, S) each


class Transformer(nn.Module):
    """Encoder, L0Drop, decoder: Eq. (11).

    `config.l0drop = "none"` is the baseline of Eq. (2)-(3).
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config, self.width = config, config.width
        # tied: source, target, output
        self.embedding = nn.Embedding(config.vocabulary, config.width, padding_idx=PAD)
        self.register_buffer("position_table", sinusoids(POSITIONS, config.width), persistent=False)
        self.dropout = nn.Dropout(config.residual_dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        nn.init.normal_(self.embedding.weight, std=config.width**-0.5)
        # Last, so that a baseline and the model with gates start from the same weights.
        layers = range({"none": 0, "output": 1, "every": config.encoder_layers}[config.l0drop])
        self.l0drop = nn.ModuleList(L0Drop(config.width, start=config.gate_start) for _ in layers)

    def embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Embeddings times sqrt(D) plus positions: (B, T) -> (B, T, D).

        ValueError: more tokens than positions.
        """
        end = start + tokens.size(1)
        if end > POSITIONS:
            raise ValueError(
                f"a sequence of {end} tokens does not fit the position table of {POSITIONS}: "
                f"truncate it"
            )
        scaled = self.embedding(tokens) * self.config.width**0.5
        return self.dropout(scaled + self.position_table[start:end])

    def encode(self, source: Tensor, hold_open: bool = False) -> Encoding:
        """Encode and gate (B, S) token ids; `hold_open` sets all gates to 1 (D19, D20)."""
        keep = source != PAD  # (B, S)
        bias = keep.log()[:, None, None]  # (B, 1, 1, S), 0 or -inf
        states = self.embed(source)  # X^0
        gates, log_alpha = [], []
        # gates after the last layer, or (D10) after each one
        first = len(self.encoder) - len(self.l0drop)
        # Eq. (2): X^L = Encoder(X^0).
        for number, layer in enumerate(self.encoder):
            states = layer(states, bias)
            if number >= first:
                gated, gate, location = self.l0drop[number - first](states)
                states = states if hold_open else gated
                gates.append(torch.ones_like(gate) if hold_open else gate)
                log_alpha.append(location)
        return Encoding(states, keep, gates, log_alpha)

    def dense(self, encoding: Encoding) -> Memory:
        """What the decoder attends to: all states, of which closed ones are zeros."""
        keep = encoding.keep
        if self.training and encoding.gates and self.config.mask_closed_in_training:
            is_open = (encoding.gates[-1] != 0) & keep  # D4
            # all closed: uniform over the zeros
            keep = torch.where(is_open.any(-1, keepdim=True), is_open, keep)
        # Eq. (11): Decoder(Y^0, L0Drop(X^L)).
        return dense_memory(encoding.states, keep)

    def pruned(self, encoding: Encoding) -> Memory:
        """The same at test time in fewer rows; a baseline's states are all kept."""
        if not encoding.gates:
            return dense_memory(encoding.states, encoding.keep)
        # Algorithm 1
        return compress(encoding.states, encoding.gates[-1], encoding.keep)

    def project(self, memory: Memory) -> list[Projected]:
        """Keys and values of every decoder layer, once per source."""
        log_counts = memory.log_counts[:, None, None]  # (B, 1, 1, R)
        pairs = (layer.cross_attention.project(memory.states) for layer in self.decoder)
        # The steps of a search read contiguous tensors faster.
        return [Projected(k.contiguous(), v.contiguous(), log_counts) for k, v in pairs]

    def decode(
        self, target: Tensor, memory: list[Projected], past: list[Past] | None = None
    ) -> tuple[Tensor, list[Past]]:
        """Logits (B*W, T, V) of the next tokens, and the extended past.

        Args:
            target: (B*W, T) token ids that follow those already in `past`.
            memory: from `project`, one row per *source*; the W rows of `target` that belong to one
                source are adjacent.
            past: what the last call returned, one entry per layer.
        """
        start = past[0][0].size(2) if past else 0
        length = target.size(1)
        causal = None
        if length > 1:  # one token at a time sees all its past
            infinite = torch.full((length, start + length), -torch.inf, device=target.device)
            causal = infinite.triu(start + 1)  # (T, T' + T)
        y = self.embed(target, start)  # Y^0
        # Eq. (3): Y^L = Decoder(Y^0, X^L).
        longer = []
        for number, layer in enumerate(self.decoder):
            y, with_own = layer(y, causal, past[number] if past else None, memory[number])
            longer.append(with_own)
        return F.linear(y, self.embedding.weight), longer  # tied

    def forward(
        self, source: Tensor, target_input: Tensor, hold_open: bool = False
    ) -> tuple[Tensor, Encoding]:
        """Teacher forcing: source (B, S), target inputs (B, T), BOS first -> logits (B, T, V)."""
        encoding = self.encode(source, hold_open)
        return self.decode(target_input, self.project(self.dense(encoding)))[0], encoding


def sinusoids(length: int, width: int) -> Tensor:
    """Positions (length, width): the sines, then the cosines, not interleaved (released code)."""
    rates = 10_000 ** -(torch.arange(0, width, 2) / width)  # (D/2,)
    angles = torch.arange(length).unsqueeze(-1) * rates  # (length, D/2)
    return torch.cat([angles.sin(), angles.cos()], -1)


def translation_loss(logits: Tensor, target: Tensor, smoothing: float = 0.1) -> Tensor:
    """L_MLE of each sentence (B,): label-smoothed cross-entropy in nats, mean over its tokens (D2).

    Args:
        logits: (B, T, V), of the target (B, T), which ends in EOS and is padded with IGNORED.
        smoothing: share of the probability spread evenly over the vocabulary (Appendix A: 0.1).
    """
    options = {"ignore_index": IGNORED, "label_smoothing": smoothing, "reduction": "none"}
    losses = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), **options)
    return losses.view_as(target).sum(-1) / (target != IGNORED).sum(-1)


def objective(logits: Tensor, target: Tensor, encoding: Encoding, l0_weight: float) -> Tensor:
    """The bound of Eq. (12) with one gate sample, per sentence (B,).

    Args:
        l0_weight: the paper's lambda.
    """
    mle = translation_loss(logits, target)
    # D10: several layers' L0 terms add up; a baseline has none.
    sparsity = sum(l0_penalty(log_alpha, encoding.keep) for log_alpha in encoding.log_alpha)
    # Eq. (12): the one sample that the forward pass drew stands for the expectation over gates.
    return mle + l0_weight * sparsity
