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
            layers = dict(num_layers=2, bidirectional=True, batch_first=True, dropout=dropout)
            self.gru = nn.GRU(width, width, **layers)
            # D3: the paper omits it; released code, part of its 58.8M
            self.projection = nn.Linear(2 * width, width)
        for parameter in self.parameters():  # released code: Xavier-normal weights, zero biases
            if parameter.dim() > 1:
                nn.init.xavier_normal_(parameter)
            else:
                nn.init.zeros_(parameter)

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
        words = states[sentences.ids >= 0].split(lengths)  # (J_i, D) each: ids are contiguous
        _, last = self.gru(pack_sequence(words, enforce_sorted=False))  # (4, sentences, D)
        # Eq. (10): of the top layer, the forward state at the last word and the backward state at
        # the first.
        vectors = self.projection(torch.cat([last[-2], last[-1]], -1))
        encoded = states.new_zeros(*sentences.exists.shape, states.size(-1))
        encoded[sentences.exists] = vectors.to(states.dtype)
        return encoded
