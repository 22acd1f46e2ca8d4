"""The Synthesizer document encoder with the paper's attention types, and the summariser on it.

The paper's own idea, the matrix of a discourse tree, is in matrices.py; this is the Transformer
around it. PAPER.md has the glossary. Only what `attend` gives, the (B, H, N, N) attention A,
differs between the attention types; value, output, feed-forward and layer norms are the same in
all.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Those that read a document's matrix (matrices.py).
TREES = ("d_tree", "c_tree", "c_tree_nuclearity")
ATTENTIONS = ("dot", "dense", "learned_random", "fixed_random", "none", *TREES)
POSITIONS = 1000  # D19: length of the position table (released code)
PLACES = 512  # longest document that Dense and Random have weights for (released code)
CLASSIFIER = 100  # D19: hidden width of the MLP that scores a unit (released code)


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the document encoder; the defaults are the paper's default model."""

    attention: str = "c_tree"  # one of ATTENTIONS
    width: int = 768  # D, that of the unit encoder (bert-base)
    layers: int = 2  # D19: released code
    heads: int = 1  # Tables 2 and 3: 8 for one of the dot products, else 1
    head_width: int = 64  # d_v = d_k = d_q (Section 5.1)
    feed_forward: int = 3072  # d_inner of the feed-forward block (Section 5.1)
    dense_inner: int = 512  # D3: inner width of Dense (footnote 2)
    dropout: float = 0.1  # released code

    def __post_init__(self):
        if self.attention not in ATTENTIONS:
            raise ValueError(f"attention is {self.attention!r}; use one of {', '.join(ATTENTIONS)}")
        if self.attention in (*TREES, "none") and self.heads > 1:
            raise ValueError(
                f"{self.attention} has the same weights in every head: use heads = 1 (Section 5.2)"
            )

    @property
    def longest(self) -> int:
        """Most units that it reads: positions end there, and the weights of Dense and Random."""
        has_places = self.attention in ("dense", "learned_random", "fixed_random")
        return PLACES if has_places else POSITIONS


# Section 3: attention weights. Each type makes them of (states, keep, matrix).


class DotProduct(nn.Module):
    """Dot Product of Section 3: the attention of the original Transformer, one A per head."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.heads = config.heads
        self.query = projection(config)
        self.key = projection(config)

    def forward(self, states: Tensor, keep: Tensor, matrix: Tensor | None) -> Tensor:
        query = self.query(states).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, N, K)
        key = self.key(states).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, N, K)
        # Section 3. D18: divided by sqrt(d_k), as usual and as released.
        return masked_softmax(query @ key.mT / math.sqrt(query.size(-1)), keep)  # (B, H, N, N)


class Dense(nn.Module):
    """Dense of Section 3: each unit by itself, without keys, says at which places it looks."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        D, inner = config.width, config.dense_inner
        # D4: the formula has a sigma, the released code and the Synthesizer a ReLU.
        self.maps = nn.ModuleList(
            nn.Sequential(nn.Linear(D, inner), nn.ReLU(), nn.Linear(inner, PLACES))
            for _ in range(config.heads)
        )

    def forward(self, states: Tensor, keep: Tensor, matrix: Tensor | None) -> Tensor:
        # Section 3: of as many places as Dense has, those of the document's units.
        logits = torch.stack([dense(states) for dense in self.maps], dim=1)  # (B, H, N, PLACES)
        return masked_softmax(logits[..., : states.size(1)], keep)  # (B, H, N, N)


class Random(nn.Module):
    """Random of Section 3: the same R for all documents; learned with the model, or fixed."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        learned = config.attention == "learned_random"
        self.logits = nn.Parameter(torch.randn(config.heads, PLACES, PLACES), requires_grad=learned)

    def forward(self, states: Tensor, keep: Tensor, matrix: Tensor | None) -> Tensor:
        count = keep.size(1)
        # Section 3: the upper left corner of R, as large as the document.
        return masked_softmax(self.logits[None, :, :count, :count], keep)  # (B, H, N, N)


class Tree(nn.Module):
    """Section 4: A comes from the document's discourse tree and has no parameters."""

    def forward(self, states: Tensor, keep: Tensor, matrix: Tensor | None) -> Tensor:
        if matrix is None:
            raise ValueError(
                "tree attention needs the matrices of the documents' trees: pass matrix (B, N, N)"
            )
        # Section 4: A of the document's tree, no softmax: (B, 1, N, N), columns of padding zero.
        return matrix[:, None].to(states.dtype) * keep[:, None, None]


def masked_softmax(logits: Tensor, keep: Tensor) -> Tensor:
    """Softmax of (B or 1, H, N, N) logits over the real units; padding gets exactly 0."""
    return logits.masked_fill(~keep[:, None, None], -math.inf).softmax(-1)


def projection(config: ModelConfig) -> nn.Linear:
    """D -> H K, initialised as released (D19): standard deviation sqrt(2 / (D + K))."""
    linear = nn.Linear(config.width, config.heads * config.head_width)
    nn.init.normal_(linear.weight, std=math.sqrt(2 / (config.width + config.head_width)))
    return linear


# The encoder


class Attention(nn.Module):
    """X_out = A G(X) (Section 3), with the heads' outputs put together by a linear map."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.heads = config.heads
        match config.attention:
            case "dot":
                self.attend = DotProduct(config)
            case "dense":
                self.attend = Dense(config)
            case "learned_random" | "fixed_random":
                self.attend = Random(config)
            case "none":
                self.attend = None
            case _:
                self.attend = Tree()
        self.value = projection(config)
        self.output = nn.Linear(config.heads * config.head_width, config.width)
        nn.init.xavier_normal_(self.output.weight)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states: Tensor, keep: Tensor, matrix: Tensor | None = None) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        # Section 3: G is the value map.
        value = self.value(states).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, N, K)
        # Section 5.1: no attention is A = I, each unit sees itself alone, and A G(X) is G(X).
        if self.attend is not None:
            # D5: dropout falls on A, a fixed one too: its rows do not sum to 1 then (released).
            value = self.dropout(self.attend(states, keep, matrix)) @ value  # (B, H, N, K)
        return self.output(value.transpose(1, 2).flatten(-2))


class EncoderLayer(nn.Module):
    """Transformer encoder layer with layer norm after each block."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.width)
        self.inner = nn.Linear(config.width, config.feed_forward)
        self.outer = nn.Linear(config.feed_forward, config.width)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, states: Tensor, keep: Tensor, matrix: Tensor | None = None) -> Tensor:
        """(B, N, D) -> (B, N, D), padding zero."""
        real = keep[..., None]  # (B, N, 1)
        seen = self.attention(states, keep, matrix)
        states = self.attention_norm(states + self.dropout(seen)) * real
        fed = self.outer(F.relu(self.inner(states)))  # (B, N, D)
        return self.feed_forward_norm(states + self.dropout(fed)) * real


class Summarizer(nn.Module):
    """Unit vectors -> scores (Figure 2): positions, encoder, MLP; the loss has the sigmoid."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.register_buffer("position_table", sinusoids(POSITIONS, config.width), persistent=False)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)
        hidden, last = nn.Linear(config.width, CLASSIFIER), nn.Linear(CLASSIFIER, 1)
        self.classifier = nn.Sequential(hidden, nn.ReLU(), nn.Dropout(config.dropout), last)

    def forward(self, units: Tensor, keep: Tensor, matrix: Tensor | None = None) -> Tensor:
        """Score every unit of every document.

        Args:
            units: (B, N, D) vectors of the unit encoder, anything at padding.
            keep: (B, N) bool, True at real units; at least one in each row, padding on the right.
            matrix: (B, N, N) attention from the documents' trees, for tree attention.
        Returns:
            (B, N) scores, log-odds that the summary takes the unit; meaningless at padding.
        Raises:
            ValueError: more units than the position table or the attention has places for.
        """
        count, longest = units.size(1), self.config.longest
        if count > longest:
            raise ValueError(
                f"a document of {count} units is longer than the {longest} of the model: cut it"
            )
        # D19: positions are added without scaling the vectors and without dropout (released code).
        states = (units + self.position_table[:count]).masked_fill(~keep[..., None], 0)  # (B, N, D)
        for layer in self.layers:
            states = layer(states, keep, matrix)
        # D27: dropout between the encoder and the MLP (released code).
        return self.classifier(self.dropout(states)).squeeze(-1)


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width) table of Vaswani et al. (2017): sines at even, cosines at odd places."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
    angles = torch.arange(positions)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def extraction_loss(
    scores: Tensor, labels: Tensor, keep: Tensor, positive_weight: float = 1.0
) -> Tensor:
    """Binary cross-entropy of the scores, summed over the real units of the batch (released code).

    All are (B, N), labels in {0, 1}; `positive_weight` is that of the units that the summary takes
    (D12).
    """
    labels, weight = labels.to(scores.dtype), scores.new_tensor(positive_weight)
    # Section 3: the MLP's sigmoid is in here.
    return F.binary_cross_entropy_with_logits(
        scores[keep], labels[keep], pos_weight=weight, reduction="sum"
    )


def count_parameters(model: Summarizer) -> tuple[int, int]:
    """Section 5.2, "# Params" of Tables 2 and 3: those of the attention, and all.

    The value and output maps are counted with the attention.
    """
    trained = [named for named in model.named_parameters() if named[1].requires_grad]
    attention = sum(weight.numel() for name, weight in trained if ".attention." in name)
    return attention, sum(weight.numel() for _, weight in trained)
