"""Encoder-decoder attention over the selected sentences, as a mask: the form to read and train.

All words are read, and those of the sentences that were not selected get the weight 0. This is no
faster than full attention; fast_attention.py decodes to the same numbers from the words of the
selected sentences alone.
"""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import EncoderDecoderCache

from .selection import (
    FULL,
    Selection,
    SentenceAttention,
    Sentences,
    approximate_attention,
    feature_sums,
    model_free_scores,
    random_scores,
    saliency,
    top_r,
)


def word_attention(queries: Tensor, keys: Tensor, keep: Tensor) -> Tensor:
    """Attention to the words that are kept: the softmax of Eq. (2) and Eq. (3).

    Args:
        queries: (B, H, Q, K), times K ** -0.5; keys: (B, H, S, K).
        keep: (B, 1, 1 or Q, S) bool, True = attend.
    Returns:
        (B, H, Q, S), rows sum to 1 over the kept words alone (D12).
    """
    return (queries @ keys.transpose(-1, -2)).masked_fill(~keep, float("-inf")).softmax(-1)


def words_of(keep: Tensor, sentence_ids: Tensor) -> Tensor:
    """Selected sentences -> their words: (B, Q, N) bool and (B, S) -> (B, 1, Q, S) bool."""
    sentences = sentence_ids.clamp_min(0).unsqueeze(1).expand(-1, keep.size(1), -1)  # (B, Q, S)
    return (keep.gather(2, sentences) & (sentence_ids >= 0).unsqueeze(1)).unsqueeze(1)


class LayerMemory(NamedTuple):
    """What a layer compares queries with: made once a document, whatever is written."""

    pairs: Tensor  # (B, S, 2, D): key and value of a word side by side, fetched by one gather
    keys: Tensor  # (B, H, S, K): the same numbers by head
    values: Tensor  # (B, H, S, K)
    sentence_keys: Tensor | None  # (B, H, N, K) of the approximator, Eq. (9)
    sums: Tensor | None  # (B, H, N, K) of mode "model_free", Eq. (19)


class SentenceSparseAttention(nn.Module):
    """Encoder-decoder attention of one decoder layer, in the place of BART's, with its projections.

    Args:
        attention: BART's cross-attention. D2: its biases come along (the released code loses them).
        layer: number of the decoder layer, from 0.
    """

    def __init__(self, attention: nn.Module, layer: int):
        super().__init__()
        self.q_proj, self.k_proj = attention.q_proj, attention.k_proj
        self.v_proj, self.out_proj = attention.v_proj, attention.out_proj
        self.heads, self.head_width = attention.num_heads, attention.head_dim
        self.dropout = attention.dropout
        self.layer = layer
        self.sentence_q: nn.Linear | None = None  # W^Q of Eq. (8)
        self.sentence_k: nn.Linear | None = None  # W^K of Eq. (9)

    def add_sentence_maps(self) -> None:
        """A.1: W^Q and W^K start as the word-level maps. D2: with their biases."""
        self.sentence_q, self.sentence_k = copy.deepcopy(self.q_proj), copy.deepcopy(self.k_proj)

    def split(self, vectors: Tensor) -> Tensor:
        """(B, L, D) -> (B, H, L, K).

        D1: also for sentence keys, whose heads the released code mixes up.
        """
        return vectors.view(*vectors.shape[:2], self.heads, self.head_width).transpose(1, 2)

    def join(self, contexts: Tensor) -> Tensor:
        """(B, H, Q, K) -> (B, Q, D), through the output projection."""
        return self.out_proj(contexts.transpose(1, 2).flatten(2))

    def scaled_queries(self, hidden: Tensor) -> Tensor:
        """(B, Q, D) decoder states -> (B, H, Q, K) q_m, times K ** -0.5."""
        return self.split(self.q_proj(hidden)) * self.head_width**-0.5

    def forward(
        self,
        hidden_states: Tensor,
        key_value_states: Tensor,
        sentences: Sentences,
        selection: Selection = FULL,
        record: list[SentenceAttention] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **unused,
    ) -> tuple[Tensor, None]:
        """As BART calls it.

        Args:
            hidden_states: (B, T, D); key_value_states: (B, S, D) encoder states.
            record: gets this layer's SentenceAttention.
            past_key_values: BART's cache; only the place of these T steps is read from it.
        Returns:
            As hidden_states, and None in the place of attention weights.
        """
        queries = self.scaled_queries(hidden_states)  # (B, H, T, K)
        memory = self.project(key_value_states, sentences, selection)
        end = queries.size(2)
        if past_key_values is not None:
            end = past_key_values.get_seq_length(self.layer)
        steps = range(end - queries.size(2), end)
        keep = self.select(hidden_states, queries, memory, sentences, selection, steps)  # (B, T, N)
        # Eq. (2): all words
        weights = word_attention(queries, memory.keys, sentences.is_word)  # (B, H, T, S)
        if record is not None:
            keys = memory.sentence_keys  # of a model with an approximator, whatever the mode
            approximate = None if keys is None else self.approximate(hidden_states, keys, sentences)
            record.append(SentenceAttention(saliency(weights, sentences.membership), approximate))
        if keep is not None:
            # Eq. (3): the words of I^r_m alone; weight 0 for the others is as leaving them out.
            weights = word_attention(queries, memory.keys, words_of(keep, sentences.ids))
        context = F.dropout(weights, self.dropout, self.training) @ memory.values  # (B, H, T, K)
        return self.join(context), None

    def project(self, states: Tensor, sentences: Sentences, selection: Selection) -> LayerMemory:
        """Keys, values and sentence keys of states (B, S, D): all that is made once a source."""
        pairs = torch.stack([self.k_proj(states), self.v_proj(states)], 2)
        keys, values = (self.split(part) for part in pairs.unbind(2))
        sentence_keys = None if sentences.encoded is None else self.sentence_keys(sentences.encoded)
        is_model_free = selection.mode == "model_free"
        sums = feature_sums(keys, sentences.membership, selection.phi) if is_model_free else None
        return LayerMemory(pairs, keys, values, sentence_keys, sums)

    def sentence_keys(self, encoded: Tensor) -> Tensor:
        """The approximator's keys: (B, N, D) -> (B, H, N, K)."""
        # Eq. (9)
        return self.split(self.sentence_k(encoded))

    def approximate(self, hidden: Tensor, sentence_keys: Tensor, sentences: Sentences) -> Tensor:
        """(B, H, Q, N) sentence-level attention by the model-based approximator."""
        # Eq. (8), D4: q_m is the decoder's state here, not its projection.
        queries = self.split(self.sentence_q(hidden)) * self.head_width**-0.5
        return approximate_attention(queries, sentence_keys, sentences.exists)

    def select(
        self,
        hidden: Tensor,
        queries: Tensor,
        memory: LayerMemory,
        sentences: Sentences,
        selection: Selection,
        steps: range,
    ) -> Tensor | None:
        """The sentences that each query of `steps` attends to; D13: each beam chooses for itself.

        Args:
            hidden: (B, Q, D), of which `queries` (B, H, Q, K) were made.
        Returns:
            (B, Q, N) bool; None = all.
        """
        if selection.mode == "full" or selection.r >= sentences.exists.size(1):
            return None
        match selection.mode:
            case "ideal":
                weights = word_attention(queries, memory.keys, sentences.is_word)
                scores = saliency(weights, sentences.membership)
            case "random":
                count = sentences.exists.size(1)
                scores = random_scores(sentences.ids, count, self.layer, steps, selection.seed)
                # Beams and heads share a draw.
                scores = scores.repeat(1, hidden.size(1) // len(steps), 1).unsqueeze(1)
            case "approx":
                scores = self.approximate(hidden, memory.sentence_keys, sentences)
            case "model_free":
                scores = model_free_scores(queries, memory.sums, selection.phi)
        # A.4: heads are averaged before the top-r, so that all of a layer share one subset.
        scores = scores.mean(1)
        return top_r(scores, sentences.exists, selection.r)
