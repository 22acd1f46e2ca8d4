"""The tagger that finds the salient source tokens (Section 5).

The paper's idea, masking by it, is in masking.py.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


class Tagger(nn.Module):
    """Section 5: Linear(D, 512), tanh, Linear(512, 1) on an encoder; its sigmoid is a probability.

    Only the perceptron is trained, with the encoder in eval mode (Appendix A: its parameters are
    fixed).

    Args:
        encoder: any one of transformers: input_ids, attention_mask -> last_hidden_state (B, S, D).
        hidden: 512, released code.
        activation: "tanh" (Section 5), or "relu" as released (D6).
        dropout: on the encoder's states, in training (released code).
        train_encoder: D12: train the encoder, too.
    """

    def __init__(
        self, encoder: nn.Module, hidden=512, activation="tanh", dropout=0.1, train_encoder=False
    ):
        super().__init__()
        self.train_encoder = train_encoder
        self.encoder = encoder.requires_grad_(train_encoder).eval()
        width = encoder.config.hidden_size
        self.perceptron = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(width, hidden),
            ACTIVATIONS[activation](),
            nn.Linear(hidden, 1),
        )
        # the decision boundary; `best_threshold` finds it
        self.register_buffer("threshold", torch.tensor(0.5))

    def train(self, mode: bool = True) -> "Tagger":
        super().train(mode)
        self.encoder.train(mode and self.train_encoder)
        return self

    def forward(self, input_ids: Tensor, keep: Tensor) -> Tensor:
        """Logits (B, S) of the tokens, from overlapping windows; those of padding mean nothing.

        Args:
            input_ids: (B, S), padded on the right; S may be more than the encoder has positions.
            keep: (B, S) bool, True at real tokens.
        """
        width = self.encoder.config.hidden_size
        shape = *input_ids.shape, width
        states = torch.zeros(shape, device=input_ids.device, dtype=self.encoder.dtype)
        for start, end, first in windows(input_ids.size(1)):
            rows = keep[:, first:end].any(-1)  # a short document has no part in the later windows
            ids = input_ids[rows, start:end]
            real = keep[rows, start:end].long()
            output = self.encoder(input_ids=ids, attention_mask=real).last_hidden_state
            states[rows, first:end] = output[:, first - start :].to(states.dtype)
        return self.perceptron(states).squeeze(-1)  # (B, S)


class Tagged(NamedTuple):
    """What a tagger says of a document."""

    scores: Sequence[float]  # of the tagger's own tokens, in [0, 1]
    offsets: Sequence[tuple[int, int]]  # of these tokens
    threshold: float  # the decision boundary
    was_cut: bool = False  # the tagger read only its begin


WINDOW = 512  # tokens


def windows(length: int) -> list[tuple[int, int, int]]:
    """D7: (start, end, first position taken) of each window on a document, as released.

    Windows begin every 256 tokens. All of the first is taken and the second half of the others, so
    that each token past the first window has seen 256 tokens before it.
    """
    half = WINDOW // 2
    later = range(half, length - half, half)
    first = (0, min(WINDOW, length), 0)
    return [first] + [(start, min(start + WINDOW, length), start + half) for start in later]


def tagging_loss(logits: Tensor, labels: Tensor, keep: Tensor) -> Tensor:
    """Appendix A: binary cross-entropy, mean over the real tokens; special ones as released."""
    return F.binary_cross_entropy_with_logits(logits[keep], labels[keep].to(logits.dtype))


THRESHOLDS = [step / 100 for step in range(10, 41)]  # Section 5: 0.1 to 0.4, step 0.01
# Section 5: the decision boundaries that the paper found, which `predict --threshold` takes.
PAPER_THRESHOLDS = {"cnn_dailymail": 0.20, "nyt": 0.24, "xsum": 0.18}


def token_f1(scores: Tensor, labels: Tensor, threshold: float) -> float:
    """F1 in [0, 1] of "score > threshold" against the labels; 0 without a hit."""
    predicted = scores > threshold
    hits = (predicted & labels).sum().item()
    return 2 * hits / (predicted.sum().item() + labels.sum().item()) if hits else 0.0


def best_threshold(scores: Tensor, labels: Tensor) -> tuple[float, float]:
    """Section 5: the decision boundary with the highest F1 (on ties, the lowest), and that F1."""
    tried = [(threshold, token_f1(scores, labels, threshold)) for threshold in THRESHOLDS]
    return max(tried, key=lambda pair: pair[1])
