"""The pointer-generator (See et al. 2017) with coverage (Section 2.2) or diminishing attention (Section 3).

    B documents   S source tokens   T target tokens   H hidden size   V vocabulary   E unknown words of a document
    sources = B in decoding; rows = sources x W beams, the beams of a source beside each other

    code        paper   meaning
    states      e_i     (B, S, 2H) encoder states
    features    2 W_e e (B, S, 2H) their projection, once per document, doubled for tanh(x) = 2 sigmoid(2x) - 1
    query       W_d d+b (rows, 2H) projection of the decoder state d_t = [hidden; cell]
    coverage    c_i^t   (rows, S) sum of the attention of the steps before
    attention   a_i^t   (rows, S) softmax weights
    gain                (rows, S) the weights that context and copying use: attention, DimAttn or DyDimAttn

The decoder reads its last context, so a loop over target tokens remains; everything that does not have to be in it is
done for all steps at once (`PointerGenerator.forward`). Sizes and initial values are those of the code that Section 4.2
names.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .diminishing import Diminishing, DiminishingState
from .text import BEGIN, END, UNK, Batch


@dataclass(frozen=True)
class PointerGeneratorConfig:
    """Sizes and systems of Table 1.

    Raises:
        ValueError: a size below 1, or a vocabulary without room for the special tokens.
    """

    vocabulary: int = 50_000  # V, special tokens included
    embedding: int = 128
    hidden: int = 256  # H
    coverage: bool = False  # coverage vector in the attention, and coverage loss
    coverage_weight: float = 1.0  # lambda (See et al.)
    diminishing: Diminishing = Diminishing()
    renormalise: bool = False  # make the gains sum to 1 again
    epsilon: float = 1e-12  # inside the log of the loss (released code); decoding has none

    def __post_init__(self):
        for name, least in (("vocabulary", END + 1), ("embedding", 1), ("hidden", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")


PART = 2**20  # numbers of the attention's inner layer that decoding computes together


class Source(NamedTuple):
    """What the decoder reads of the documents; a document's beams share it."""

    states: Tensor  # (B, S, 2H)
    features: Tensor  # (B, S, 2H)
    extended: Tensor  # (B, S) numbers below V + E
    same: Tensor  # (B, S) one place of the word that stands here; equal words have equal places
    keep: Tensor  # (B, S) bool, False at padding
    extra: int  # E


class DecoderState(NamedTuple):
    """All that belongs to a hypothesis and follows it in beam search."""

    hidden: Tensor  # (rows, H)
    cell: Tensor  # (rows, H)
    context: Tensor  # (rows, 2H)
    seen: DiminishingState  # (rows, S) coverage and peak

    def reorder(self, rows: Tensor) -> "DecoderState":
        """Rows in another order; `rows` may repeat some and leave out others."""
        hidden, cell, context = (tensor.index_select(0, rows) for tensor in self[:3])
        return DecoderState(hidden, cell, context, self.seen.reorder(rows))


class Step(NamedTuple):
    """What a decoder step leaves for the output; a sequence's are stacked, (B, T, ...)."""

    inputs: Tensor  # (rows, embedding) x of the LSTM
    hidden: Tensor  # (rows, H)
    cell: Tensor  # (rows, H)
    context: Tensor  # (rows, 2H)
    attention: Tensor  # (rows, S)
    gain: Tensor  # (rows, S)


class Loss(NamedTuple):
    """Scalars: the mean over documents of a document's mean over its target tokens."""

    total: Tensor  # likelihood + coverage_weight * coverage
    likelihood: Tensor
    coverage: Tensor  # 0 without the coverage mechanism


def masked_softmax(scores: Tensor, keep: Tensor) -> Tensor:
    """Softmax over the last dimension: exactly 0 where `keep` is False, a row of 0 where nothing is kept.

    D5: padding is masked before the softmax; nothing is divided by a sum that can be 0.
    """
    scores = scores.float()
    return scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(-1) * keep


class TargetLogSoftmax(torch.autograd.Function):
    """log softmax(states weight^T + bias) at the targets: of all (N, V) numbers, only the probabilities are ever kept.

    Plain autograd holds logits, their exponentials and their gradients at once, 4 N V bytes each.
    """

    @staticmethod
    def forward(context, states: Tensor, weight: Tensor, bias: Tensor, target: Tensor) -> Tensor:
        """(N, H), (V, H), (V,), (N,) -> (N,)."""
        logits = torch.addmm(bias, states, weight.t())  # (N, V)
        logits -= logits.amax(-1, keepdim=True)
        chosen = logits.gather(1, target.unsqueeze(1))  # (N, 1)
        total = logits.exp_().sum(-1, keepdim=True)
        context.save_for_backward(states, weight, target, logits.div_(total))
        return (chosen - total.log()).squeeze(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """d log p_y / d logits = [y] - p, some rows at a time."""
        states, weight, target, probabilities = context.saved_tensors
        of_states, of_weight, of_bias = (
            torch.empty_like(states),
            torch.zeros_like(weight),
            weight.new_zeros(len(weight)),
        )
        for first in range(0, len(states), 256):
            part = slice(first, first + 256)
            scale = gradient[part].unsqueeze(1)
            of_logits = (probabilities[part] * -scale).scatter_add_(1, target[part].unsqueeze(1), scale)
            of_states[part] = of_logits @ weight
            of_weight.addmm_(of_logits.t(), states[part])
            of_bias += of_logits.sum(0)
        return of_states, of_weight, of_bias, None


class Encoder(nn.Module):
    """Bidirectional LSTM over the document."""

    def __init__(self, embedding: nn.Embedding, hidden: int):
        super().__init__()
        self.embedding = embedding
        self.lstm = nn.LSTM(embedding.embedding_dim, hidden, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * hidden, 2 * hidden, bias=False)  # W_e

    def forward(self, source: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """(B, S) numbers -> states and features (B, S, 2H), and the last hidden state and cell, (B, 2H) each."""
        lengths = keep.sum(-1).clamp(min=1).cpu()  # a row of padding alone: one state, which nobody attends to
        packed = pack_padded_sequence(self.embedding(source), lengths, batch_first=True, enforce_sorted=False)
        states, last = self.lstm(packed)
        states = pad_packed_sequence(states, batch_first=True, total_length=source.size(1))[0].contiguous()
        hidden, cell = (tensor.transpose(0, 1).flatten(1) for tensor in last)  # (2, B, H) -> (B, 2H)
        return states, self.project(states), (hidden, cell)


class ReduceState(nn.Module):
    """Both directions' last states -> the decoder's first."""

    def __init__(self, hidden: int):
        super().__init__()
        self.hidden, self.cell = nn.Linear(2 * hidden, hidden), nn.Linear(2 * hidden, hidden)

    def forward(self, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 2H) each -> (B, H) each."""
        return F.relu(self.hidden(hidden)), F.relu(self.cell(cell))


class Decoder(nn.Module):
    """LSTM with attention, switch and output layers."""

    def __init__(self, embedding: nn.Embedding, config: PointerGeneratorConfig):
        super().__init__()
        hidden, width = config.hidden, embedding.embedding_dim
        self.diminishing, self.renormalise = config.diminishing, config.renormalise
        self.embedding = embedding
        self.merge = nn.Linear(2 * hidden + width, width)  # [context; word] -> x
        self.lstm = nn.LSTMCell(width, hidden)
        self.query = nn.Linear(2 * hidden, 2 * hidden)  # W_d and b
        self.score = nn.Linear(2 * hidden, 1, bias=False)  # u
        self.coverage = nn.Linear(1, 2 * hidden, bias=False) if config.coverage else None  # W_c
        self.switch = nn.Linear(4 * hidden + width, 1)  # p_gen
        self.inner = nn.Linear(3 * hidden, hidden)
        self.output = nn.Linear(hidden, config.vocabulary)

    def embed(self, tokens: Tensor) -> Tensor:
        """Numbers (...) -> the words' part of x, (..., embedding). Copied unknown words come in as UNK."""
        tokens = tokens.masked_fill(tokens >= self.embedding.num_embeddings, UNK)
        return F.linear(self.embedding(tokens), self.merge.weight[:, -self.embedding.embedding_dim :], self.merge.bias)

    def attend(self, hidden: Tensor, cell: Tensor, coverage: Tensor, source: Source) -> Tensor:
        """Attention of the beams of each source, (rows, S)."""
        sources, length = source.keep.shape
        query = self.query(torch.cat([hidden, cell], -1)).view(sources, -1, 1, hidden.size(-1) * 2)  # (B, W, 1, 2H)
        parts = source.features.unsqueeze(1), query, coverage.view(sources, -1, length, 1)
        if torch.is_grad_enabled() or hidden.is_cuda:
            scores = self.scores(*parts)
        else:  # on a CPU, a few sources at a time stay in its cache
            few = max(PART // (source.features[0].numel() * query.size(1)), 1)
            scores = torch.cat([self.scores(*part) for part in zip(*(x.split(few) for x in parts), strict=True)])
        # Eq. (4): a^t = softmax
        return masked_softmax(scores, source.keep.unsqueeze(1)).view(-1, length)

    def scores(self, features: Tensor, query: Tensor, coverage: Tensor) -> Tensor:
        """Scores before the softmax but for the same number at all tokens: (B, 1, S, 2H), ... -> (B, W, S).

        Eq. (3): u^T tanh(W_e e_i + W_d d_t + W_c c_i + b).
        """
        doubled = features + 2 * query  # (B, W, S, 2H)
        if self.coverage is not None:
            doubled.addcmul_(coverage, 2 * self.coverage.weight[:, 0])
        if doubled.dtype.itemsize == 2:  # half precision has no digits to spare for small x near sigmoid(0) = 1/2
            return (0.5 * doubled).tanh() @ self.score.weight[0].to(doubled.dtype)
        # tanh(x) = 2 sigmoid(2x) - 1, and the softmax does not see u^T (-1): a tenth of tanh's time on a CPU. In place:
        # of all tensors in training, these take most of the memory.
        return doubled.sigmoid_() @ (2 * self.score.weight[0])

    def advance(self, embedded: Tensor, source: Source, state: DecoderState) -> tuple[Step, DecoderState]:
        """One step of all rows, without the output layers.

        Args:
            embedded: (rows, embedding), from `embed`.
        """
        context_map = self.merge.weight[:, : state.context.size(-1)]
        inputs = embedded + F.linear(state.context, context_map)
        hidden, cell = self.lstm(inputs, (state.hidden, state.cell))
        attention = self.attend(hidden, cell, state.seen.coverage, source)
        gain, seen = self.diminishing.step(attention, state.seen)
        # D1: context and copying both use the gains, which need not sum to 1.
        gain = rescale(gain) if self.renormalise else gain
        sources, length = source.keep.shape
        context = (gain.view(sources, -1, length).to(source.states.dtype) @ source.states).flatten(0, 1)  # (rows, 2H)
        return Step(inputs, hidden, cell, context, attention, gain), DecoderState(hidden, cell, context, seen)

    def switch_logits(self, step: Step) -> Tensor:
        """Logits of p_gen, the probability to generate rather than copy, (...)."""
        return self.switch(torch.cat([step.context, step.hidden, step.cell, step.inputs], -1)).squeeze(-1).float()

    def word_states(self, step: Step) -> Tensor:
        """(..., H), which `output` maps to the logits of the V words."""
        return self.inner(torch.cat([step.hidden, step.context], -1))


def rescale(weights: Tensor) -> Tensor:
    """Weights that sum to 1, or to 0 where there is nothing."""
    total = weights.sum(-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)


class PointerGenerator(nn.Module):
    """Encoder, reducer and decoder; the two embeddings are one."""

    begin, end = BEGIN, END

    def __init__(self, config: PointerGeneratorConfig):
        super().__init__()
        self.config, self.vocabulary = config, config.vocabulary
        embedding = nn.Embedding(config.vocabulary, config.embedding)
        self.encoder = Encoder(embedding, config.hidden)
        self.reduce = ReduceState(config.hidden)
        self.decoder = Decoder(embedding, config)
        self.initialise()

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

    def start(self, batch: Batch) -> tuple[Source, DecoderState]:
        """Encode; the state before the first token has one row per source, and a context of 0."""
        states, features, last = self.encoder(batch.source, batch.keep)
        hidden, cell = self.reduce(*last)
        # D6: no attention before the first step; the coverage starts at 0 in training and in decoding.
        seen = DiminishingState.start(batch.source.shape, states.device)
        state = DecoderState(hidden, cell, states.new_zeros(len(states), states.size(-1)), seen)
        words = batch.extended_source
        same = (words.unsqueeze(1) == words.unsqueeze(2)).byte().argmax(-1)
        return Source(states, 2 * features, words, same, batch.keep, batch.extra), state

    def run(self, batch: Batch) -> Step:
        """All decoder steps with the summary as input; (B, T, ...) each."""
        source, state = self.start(batch)
        steps = []
        for embedded in self.decoder.embed(batch.target_in).unbind(1):
            step, state = self.decoder.advance(embedded, source, state)
            steps.append(step)
        return Step(*(torch.stack(tensors, 1) for tensors in zip(*steps, strict=True)))

    def forward(self, batch: Batch) -> Loss:
        """Training loss; no distribution over V + E words is made."""
        steps = self.run(batch)
        log_p = self.target_log_probabilities(steps, batch)  # (B, T)
        # Eq. (2): c^t is the sum of the attention before t.
        coverage = F.pad(steps.attention.cumsum(1)[:, :-1], (0, 0, 1, 0))
        # Eq. (5): loss_t = -log P(y_t) + lambda sum_i min(a_i^t, c_i^t)
        overlap = torch.minimum(steps.attention, coverage).sum(-1) * self.config.coverage
        parts = [(-log_p * batch.keep_target).sum(1), (overlap * batch.keep_target).sum(1)]
        likelihood, covered = (part.div(batch.keep_target.sum(1).clamp(min=1)).mean() for part in parts)
        total = likelihood + self.config.coverage_weight * covered
        return Loss(total, likelihood.detach(), covered.detach())

    def target_log_probabilities(self, steps: Step, batch: Batch) -> Tensor:
        """log P(y_t) of all target tokens, (B, T)."""
        known = batch.target_out < self.vocabulary
        target = batch.target_out.masked_fill(~known, UNK)
        words = self.decoder.word_states(steps)
        with torch.autocast(words.device.type, enabled=False):  # the sum over V words needs full precision
            output = self.decoder.output
            word = TargetLogSoftmax.apply(
                words.flatten(0, 1).to(output.weight.dtype), output.weight, output.bias, target.flatten()
            ).view_as(target)
        switch = self.decoder.switch_logits(steps)
        same = batch.extended_source.unsqueeze(1) == batch.target_out.unsqueeze(-1)  # (B, T, S)
        copied = (steps.gain * same).sum(-1)
        generated = torch.where(known, word, -torch.inf).exp()
        probability = switch.sigmoid() * generated + (-switch).sigmoid() * copied
        return (probability + self.config.epsilon).log()  # D15: in the loss, not in decoding

    def step(self, tokens: Tensor, source: Source, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """One step of decoding.

        Args:
            tokens: (rows,) numbers of the words before, also V and above.
        Returns:
            (rows, V + E) log-probabilities, which sum to less than 1 under diminishing attention; the next state.
        """
        step, state = self.decoder.advance(self.decoder.embed(tokens), source, state)
        return self.mix(step, source), state

    def mix(self, step: Step, source: Source) -> Tensor:
        """log of p_gen P_vocab + (1 - p_gen) sum of the gains of a word's places, (rows, V + E); not for training."""
        beams = len(step.gain) // len(source.keep)
        switch = self.decoder.switch_logits(step).unsqueeze(-1)  # (rows, 1)
        words = self.decoder.output(self.decoder.word_states(step)).float().log_softmax(-1) + F.logsigmoid(switch)
        log_p = F.pad(words, (0, source.extra), value=-torch.inf)
        # Only words of the document change. A repeated word has all its gains at each of its places.
        extended, same = (numbers.repeat_interleave(beams, 0) for numbers in (source.extended, source.same))
        copied = torch.zeros_like(step.gain).scatter_add(1, same, step.gain).gather(1, same)  # (rows, S)
        mixed = torch.logaddexp(log_p.gather(1, extended), copied.log() + F.logsigmoid(-switch))
        return log_p.scatter(1, extended, mixed)
