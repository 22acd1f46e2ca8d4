"""The sentence encoder of the map (Section 4.2), and a cheaper one, as Section 4.5 asks for."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from .selection import Sentences

KINDS = ("gru", "mean")


class SentenceEncoder(nn.Module):
    """One vector per source sentence, computed once per document, by one of KINDS.

    "gru" is the paper's: a bidirectional GRU of two layers over the words of each sentence. Beyond
    the paper, "mean" takes the mean over the words, without parameters.
    """

    def __init__(self, kind: str, width: int, dropout: float = 0.0):
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"sentence encoder is {kind!r}; use one of {', '.join(KINDS)}")
        self.kind = kind
        if kind == "gru":
            self.gru = nn.GRU(
                width, width, num_layers=2, bidirectional=True, batch_first=True, dropout=dropout
            )
            # D3: the paper omits it; released code, part of its 58.8M
            self.projection = nn.Linear(2 * width, width)
        for parameter in self.parameters():  # Xavier-normal weights and zero biases (released code)
            nn.init.xavier_normal_(parameter) if parameter.dim() > 1 else nn.init.zeros_(parameter)

    def forward(self, states: Tensor, sentences: Sentences) -> Tensor:
        """(B, S, D) encoder states -> (B, N, D); 0 for a sentence that does not exist.

        D4: "k_{i,j}" of Eq. (10) are the encoder states, the same for all layers (released code),
        not a layer's keys.
        """
        if self.kind == "mean":
            belongs = sentences.membership.transpose(1, 2)  # (B, N, S)
            return belongs / belongs.sum(-1, keepdim=True).clamp_min(1) @ states
        # The GRU reads all sentences of the batch at once, without padding.
        lengths = sentences.membership.sum(1, dtype=torch.float32)[sentences.exists].long().tolist()
        # sentences are contiguous: one (J_i, D) each
        words = states[sentences.ids >= 0].split(lengths)
        # Eq. (10): of the top layer, the forward state at the last word and the backward state at
        # the first (2 layers * 2 directions, sentences, D)
        _, last = self.gru(pack_sequence(words, enforce_sorted=False))
        encoded = states.new_zeros(*sentences.exists.shape, states.size(-1))
        encoded[sentences.exists] = self.projection(torch.cat([last[-2], last[-1]], -1)).to(
            states.dtype
        )
        return encoded
