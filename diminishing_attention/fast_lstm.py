"""A bidirectional LSTM over sources of several lengths, as on a packed sequence of torch.

On a CPU the gradient of every packed word is a tensor for all words, so the encoder took eight
times as long. Here each direction runs in pieces, each up to the end of a document.
"""

import torch
from torch import Tensor, nn


def read(lstm: nn.LSTM, words: Tensor, lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Words (B, S, embedding), lengths (B,) -> states (B, S, 2H); last state and cell, (B, 2H).

    States at padding are any.
    """
    place, last = torch.arange(words.size(1), device=words.device), lengths.unsqueeze(-1) - 1
    # from the last word to the first
    mirror = torch.where(place <= last, last - place, place).unsqueeze(-1)
    forwards, *ends = one_way(lstm.all_weights[0], words, lengths)
    backwards, *starts = one_way(lstm.all_weights[1], words.take_along_dim(mirror, 1), lengths)
    states = torch.cat([forwards, backwards.take_along_dim(mirror, 1)], -1)
    return states, [torch.cat(both, -1) for both in zip(ends, starts, strict=True)]


def one_way(weights: list[Tensor], words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """States of all words, (B, S, H); the hidden state and cell after each last word, (B, H)."""
    ends, states = sorted({*lengths.tolist(), words.size(1)}), []
    hidden = cell = words.new_zeros(len(words), weights[1].size(1))
    past = hidden.unsqueeze(0), hidden.unsqueeze(0)
    for start, end in zip([0, *ends], ends, strict=False):
        # What nn.LSTM calls: with biases, one layer, no dropout, training, one way, batch first.
        how = (True, 1, 0.0, True, False, True)
        piece, *past = torch.lstm(words[:, start:end], past, weights, *how)
        states.append(piece)
        stops = (lengths == end).unsqueeze(-1)  # the documents that end here
        hidden, cell = (
            torch.where(stops, new[0], old) for new, old in zip(past, (hidden, cell), strict=True)
        )
    return torch.cat(states, 1), hidden, cell
