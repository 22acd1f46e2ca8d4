"""The pointer-generator (See et al. 2017) with coverage (Section 2.2).

The paper's own idea is in diminishing.py.

    B documents   S source tokens   T target tokens   H hidden size   V vocabulary
    E unknown words of a document
    W beams of a document, beside each other; rows = B x W, in training W = 1

Symbols: PAPER.md. Sizes and initial values are those of the code that Section 4.2 names,
`pointer_summarizer` ("released code").
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .diminishing import Diminishing, DiminishingState
from .fast_lstm import read
from .text import BOS, EOS, UNK, Batch

EPSILON = 1e-12  # D15: inside the log of the loss (released code); decoding has none
COVERAGE_WEIGHT = 1.0  # lambda (See et al.)


class Source(NamedTuple):
    """What the decoder reads of the documents; a document's beams share it."""

    states: Tensor  # (B, S, 2H)
    features: Tensor  # (B, S, 2H)
    words: Tensor  # (B, S) numbers below V + E
    keep: Tensor  # (B, S) bool, False at padding
    extra: int  # E


class Past(NamedTuple):
    """All that belongs to a hypothesis and follows it in beam search."""

    hidden: Tensor  # (rows, H)
    cell: Tensor  # (rows, H)
    context: Tensor  # (rows, 2H)
    attended: DiminishingState  # (rows, S) coverage and peak

    def reorder(self, rows: Tensor) -> "Past":
        """Rows in another order; `rows` may repeat some and leave out others."""
        hidden, cell, context = (tensor.index_select(0, rows) for tensor in self[:3])
        return Past(hidden, cell, context, self.attended.reorder(rows))


class Step(NamedTuple):
    """What a decoder step leaves for the output; a sequence's are stacked, (B, T, ...)."""

    p_gen: Tensor  # (rows,)
    words: Tensor  # (rows, H), which `output` maps to the logits of the V words
    attention: Tensor  # (rows, S)
    copying: Tensor  # (rows, S) gains, by which source words are copied


def masked_softmax(scores: Tensor, keep: Tensor) -> Tensor:
    """Softmax over the last dimension: exactly 0 where `keep` is False, also in a whole row.

    D5: padding is masked before the softmax; nothing is divided by a sum that can be 0.
    """
    scores = scores.float()
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(-1) * keep


def embed(embedding: nn.Embedding, words: Tensor) -> Tensor:
    """Numbers of words, also V and above, which are read as <unk> -> (..., embedding)."""
    return embedding(words.masked_fill(words >= embedding.num_embeddings, UNK))


class Encoder(nn.Module):
    """A bidirectional LSTM over the document."""

    def __init__(self, embedding: nn.Embedding, hidden: int):
        super().__init__()
        self.embedding = embedding
        self.lstm = nn.LSTM(embedding.embedding_dim, hidden, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * hidden, 2 * hidden, bias=False)  # W_e

    def forward(self, source: Tensor, keep: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(B, S) words -> states (B, S, 2H), and the last hidden state and cell, (B, 2H) each."""
        words = embed(self.embedding, source)  # (B, S, embedding)
        lengths = keep.sum(1).clamp(min=1)  # no word: read as one of padding
        if self.training:  # the same, with a gradient that is eight times as fast on a CPU
            states, last = read(self.lstm, words, lengths)
        else:
            options = {"batch_first": True, "enforce_sorted": False}
            packed = pack_padded_sequence(words, lengths.cpu(), **options)
            states, (hidden, cell) = self.lstm(packed)
            states, _ = pad_packed_sequence(states, True, total_length=source.size(1))
            last = [torch.cat([*hidden], -1), torch.cat([*cell], -1)]  # of both directions
        return states * keep.unsqueeze(-1), last


class Decoder(nn.Module):
    """LSTM with attention; the weights of context and copying are the diminished ones."""

    def __init__(
        self, embedding: nn.Embedding, hidden: int, diminishing: Diminishing, coverage: bool
    ):
        super().__init__()
        vocabulary, width = embedding.weight.shape
        self.embedding, self.diminishing = embedding, diminishing
        self.merge = nn.Linear(2 * hidden + width, width)  # [context; word] -> x, the LSTM's input
        self.lstm = nn.LSTMCell(width, hidden)
        self.query = nn.Linear(2 * hidden, 2 * hidden)  # W_d and b
        self.score = nn.Linear(2 * hidden, 1, bias=False)  # u
        self.coverage_map = nn.Linear(1, 2 * hidden, bias=False) if coverage else None  # W_c
        self.switch = nn.Linear(4 * hidden + width, 1)  # p_gen
        self.inner = nn.Linear(3 * hidden, hidden)
        self.output = nn.Linear(hidden, vocabulary)

    def attend(self, hidden: Tensor, cell: Tensor, coverage: Tensor, source: Source) -> Tensor:
        """Attention of the beams of each document, (rows, S)."""
        B, S = source.keep.shape
        features = source.features.unsqueeze(1)  # W_e e_i, (B, 1, S, 2H)
        query = self.query(torch.cat([hidden, cell], -1))  # W_d d_t + b, (rows, 2H)
        query = query.view(B, -1, 1, query.size(-1))  # (B, W, 1, 2H)
        if self.coverage_map:  # W_c c_i^t, (B, W, S, 2H)
            query = query + self.coverage_map(coverage.view(B, -1, S, 1).to(query.dtype))
        # Eq. (3): b is the bias of `query`
        scores = self.score(torch.tanh(features + query)).squeeze(-1)  # (B, W, S)
        # Eq. (4)
        return masked_softmax(scores, source.keep.unsqueeze(1)).view(-1, S)

    def forward(self, word: Tensor, source: Source, past: Past) -> tuple[Step, Past]:
        """One step of all rows: (rows, embedding) of the words before -> step and next past."""
        x = self.merge(torch.cat([past.context, word], -1))  # (rows, embedding)
        hidden, cell = self.lstm(x, (past.hidden, past.cell))
        # Eq. (2): the state that DimAttn reads holds c^t, too
        attention = self.attend(hidden, cell, past.attended.coverage, source)
        # D1: context and copying have the gains; they sum to less than 1: more is new (Remark 2).
        gain, attended = self.diminishing.step(attention, past.attended)
        B, S = source.keep.shape
        # (rows, 2H)
        context = (gain.view(B, -1, S).to(source.states.dtype) @ source.states).flatten(0, 1)
        p_gen = self.switch(torch.cat([context, hidden, cell, x], -1)).squeeze(-1).float().sigmoid()
        words = self.inner(torch.cat([hidden, context], -1))
        return Step(p_gen, words, attention, gain), Past(hidden, cell, context, attended)


class PointerGenerator(nn.Module):
    """Encoder, reducer and decoder; the two embeddings are one.

    Weights start as torch's do.

    Args:
        vocabulary: words, special tokens included.
        coverage: the baseline's coverage vector in the attention, and its loss.
    """

    bos, eos = BOS, EOS

    def __init__(
        self,
        vocabulary: int,
        embedding: int,
        hidden: int,
        diminishing: Diminishing,
        coverage: bool = False,
    ):
        super().__init__()
        self.vocabulary, self.coverage_weight = vocabulary, COVERAGE_WEIGHT if coverage else 0.0
        words = nn.Embedding(vocabulary, embedding)
        self.encoder = Encoder(words, hidden)
        # Both directions' last states -> the decoder's first ones.
        self.reduce = nn.ModuleDict(
            {name: nn.Linear(2 * hidden, hidden) for name in ("hidden", "cell")}
        )
        self.decoder = Decoder(words, hidden, diminishing, coverage)

    @torch.no_grad()
    def initialise(self) -> None:
        """Released code's values; what is not named here keeps those of torch."""
        for name, parameter in self.named_parameters():
            if "lstm.weight" in name:
                nn.init.uniform_(parameter, -0.02, 0.02)
            elif "lstm.bias" in name:  # D14: torch has two biases; both have 1 for the forget gate
                quarter = len(parameter) // 4
                parameter.zero_()[quarter : 2 * quarter] = 1
            elif "embedding" in name or "reduce" in name or "output" in name:
                nn.init.normal_(parameter, std=1e-4)

    def start(self, batch: Batch) -> tuple[Source, Past]:
        """Encode; the past before the first token has one row per document, and a context of 0."""
        states, last = self.encoder(batch.source, batch.keep)
        hidden = F.relu(self.reduce["hidden"](last[0]))
        cell = F.relu(self.reduce["cell"](last[1]))
        context = states.new_zeros(len(states), states.size(-1))
        # D6: no attention before the first step; coverage starts at 0 in training and decoding.
        nothing = DiminishingState.start(batch.source.shape, states.device)
        features = self.encoder.project(states)
        source = Source(states, features, batch.source, batch.keep, batch.extra)
        return source, Past(hidden, cell, context, nothing)

    def run(self, batch: Batch) -> Step:
        """All decoder steps with the summary as input; (B, T, ...) each."""
        source, past = self.start(batch)
        steps = []
        # at once, for one gradient
        for word in embed(self.decoder.embedding, batch.target_in).unbind(1):
            step, past = self.decoder(word, source, past)
            steps.append(step)
        return Step(*(torch.stack(tensors, 1) for tensors in zip(*steps, strict=True)))

    def forward(self, batch: Batch) -> Tensor:
        """Loss of each document, (B,)."""
        steps = self.run(batch)
        log_p = self.target_log_p(steps, batch)
        return pointer_loss(log_p, steps.attention, batch.keep_target, self.coverage_weight)

    def target_log_p(self, steps: Step, batch: Batch) -> Tensor:
        """log P(y_t) of all target tokens, (B, T)."""
        p = self.distribution(steps, batch.source, batch.extra)  # (B, T, V + E)
        return (p.gather(-1, batch.target_out.unsqueeze(-1)).squeeze(-1) + EPSILON).log()

    def step(self, tokens: Tensor, source: Source, past: Past) -> tuple[Tensor, Past]:
        """One step of decoding.

        Args:
            tokens: (rows,) numbers of the words before, also V and above.
        Returns:
            (rows, V + E) log-probabilities, which sum to less than 1 under diminishing attention;
            the next past.
        """
        step, past = self.decoder(embed(self.decoder.embedding, tokens), source, past)
        return self.distribution(step, source.words, source.extra).log_(), past

    def distribution(self, step: Step, source: Tensor, extra: int) -> Tensor:
        """P(w), (..., V + E), of a step (rows, ...) or of all (B, T, ...), for sources (B, S)."""
        p_gen = step.p_gen.unsqueeze(-1)  # (..., 1)
        p_vocab = self.decoder.output(step.words).float().softmax(-1)  # (..., V)
        # (..., S)
        words = source.repeat_interleave(p_gen.numel() // len(source), 0).view_as(step.copying)
        # P(w) = p_gen P_vocab(w) + (1 - p_gen) (sum of a_i over the places i of w), equation 9 of
        # See et al.
        p = F.pad(p_gen * p_vocab, (0, extra))
        return p.scatter_add_(-1, words, (1 - p_gen) * step.copying)

    def parts(self) -> list[list[nn.Parameter]]:
        """Parameters that are clipped together: encoder, reducer, decoder (released code)."""
        return [list(part.parameters()) for part in self.children()]


def pointer_loss(log_p: Tensor, attention: Tensor, keep: Tensor, weight: float = 0.0) -> Tensor:
    """Mean over the target tokens of a document, (B,).

    Args:
        log_p: (B, T) log P(y_t).
        attention: (B, T, S).
        keep: (B, T) bool, False at padding.
        weight: lambda of Eq. (5); 0 = no coverage loss.
    """
    # Eq. (2), all steps at once
    coverage = F.pad(attention.cumsum(1)[:, :-1], (0, 0, 1, 0))  # (B, T, S)
    # Eq. (5): a look costs as much as it repeats
    losses = -log_p + weight * torch.minimum(attention, coverage).sum(-1)  # (B, T)
    return (losses * keep).sum(1) / keep.sum(1).clamp(min=1)
