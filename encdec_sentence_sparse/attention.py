"""Encoder-decoder attention over the selected sentences, and the cache that keeps every source once.

There are two paths, tested equal. `forward` (training, `use_cache=False`) computes the selection as a mask over all
words: easy to read and to train through, and no faster than full attention. `decode_step` keeps keys and values once
per source, makes those of a sentence when a beam first selects it, and fetches only the words of selected sentences.
"""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.models.bart.configuration_bart import BartConfig

from .selection import (
    Selection,
    SentenceAttention,
    Sentences,
    approximate_attention,
    feature_sums,
    mean_key_attention,
    model_free_scores,
    random_scores,
    saliency,
    sentence_means,
    top_r,
)

FULL = Selection()


class LayerMemory(NamedTuple):
    """What one decoder layer keeps of the documents."""

    keys_values: Tensor  # (B, S, 2, D): key and value of a word side by side, so that one gather fetches both
    sentence_keys: Tensor | None  # (B, H, N, K), of the modes that compare a query with one vector per sentence
    made: Tensor | None = None  # (B, N) bool: sentences whose keys and values are there; None = all


class SourceCache(EncoderDecoderCache):
    """A cache for `generate` that keeps each source once, however many beams it has.

    `generate` moves the cache's rows when beams change places. All beams of a source read the same source, so only the
    self-attention part has to move.
    """

    def __init__(self, config: BartConfig, memories: list[LayerMemory], sentences: Sentences, states: Tensor):
        super().__init__(DynamicCache(config=config), DynamicCache(config=config))
        self.memories, self.sentences, self.states = memories, sentences, states  # states: (B, S, D)
        self.lengths = (sentences.ids >= 0).sum(1).tolist()  # (B,) tokens
        has_padding = min(self.lengths) < sentences.ids.size(1)
        self.keep_words = (sentences.ids >= 0)[:, None, None] if has_padding else None  # (B, 1, 1, S)
        self.gathered = torch.empty_like(memories[0].keys_values[0])  # (S, 2, D), overwritten by every gather
        longest = sentences.membership.float().sum(1).sort(descending=True).values  # (B, N)
        self.most_words = longest.cumsum(1).amax(0).long().tolist()  # (N,) that 1, 2, ..., N sentences can have

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.self_attention_cache.reorder_cache(beam_idx)


class SentenceSparseAttention(nn.Module):
    """Encoder-decoder attention of one decoder layer; takes the place of BART's, whose projections it takes over.

    Args:
        attention: BART's cross-attention. D2: its biases come along (the released code loses them).
        layer: number of the decoder layer, from 0.
    """

    def __init__(self, attention: nn.Module, layer: int):
        super().__init__()
        self.q_proj, self.k_proj = attention.q_proj, attention.k_proj
        self.v_proj, self.out_proj = attention.v_proj, attention.out_proj
        self.heads, self.head_width, self.dropout = attention.num_heads, attention.head_dim, attention.dropout
        self.layer = layer
        self.sentence_q: nn.Linear | None = None  # W^Q of Eq. (8)
        self.sentence_k: nn.Linear | None = None  # W^K of Eq. (9)

    def add_sentence_maps(self) -> None:
        """A.1: W^Q and W^K start as the word-level maps. D2: with their biases."""
        self.sentence_q, self.sentence_k = copy.deepcopy(self.q_proj), copy.deepcopy(self.k_proj)

    def split(self, vectors: Tensor) -> Tensor:
        """(B, L, D) -> (B, H, L, K). D1: also for sentence keys, whose heads the released code mixes up."""
        return vectors.view(*vectors.shape[:2], self.heads, self.head_width).transpose(1, 2)

    def forward(
        self,
        hidden_states: Tensor,
        past_key_values: SourceCache | None = None,
        key_value_states: Tensor | None = None,
        sentences: Sentences | None = None,
        selection: Selection = FULL,
        record: list[SentenceAttention] | None = None,
        **unused,
    ) -> tuple[Tensor, None]:
        """As BART calls it.

        Args:
            hidden_states: (B, T, D), or (B * W, T, D) with a cache of B sources.
            past_key_values: while decoding; the source is read from it, not from the arguments that follow.
            key_value_states: (B, S, D) encoder states.
            record: gets this layer's SentenceAttention.
        Returns:
            As hidden_states, and None in the place of attention weights.
        """
        if isinstance(past_key_values, SourceCache):
            return self.decode_step(hidden_states, past_key_values, selection), None
        memory = self.project(key_value_states, sentences, selection)
        queries = self.split(self.q_proj(hidden_states))  # (B, H, T, K)
        keep = self.select(hidden_states, queries, memory, sentences, selection, range(hidden_states.size(1)))
        if record is not None:
            record.append(self.recorded(hidden_states, queries, memory, keep, sentences))
        context = self.attend_masked(queries, memory, keep, sentences.ids, (sentences.ids >= 0)[:, None, None])
        return self.out_proj(context.transpose(1, 2).reshape(hidden_states.shape)), None

    def project(self, states: Tensor, sentences: Sentences, selection: Selection, is_lazy: bool = False) -> LayerMemory:
        """What does not depend on the query, from the encoder states (B, S, D).

        Args:
            is_lazy: leave keys and values to `fill`, in the modes that can choose sentences without them.
        """
        is_lazy = is_lazy and selection.mode in ("random", "approx", "mean_key")
        made = torch.zeros_like(sentences.exists) if is_lazy else None
        shape = *states.shape[:2], 2, states.size(2)
        keys_values = states.new_empty(shape) if is_lazy else self.keys_values(states)
        match selection.mode:
            case "approx":
                sentence_keys = self.sentence_keys(sentences.encoded)
            case "mean_key":  # W is linear: it maps the mean state to the mean key
                sentence_keys = self.split(self.k_proj(sentence_means(states, sentences.membership)))
            case "model_free":
                sentence_keys = feature_sums(self.split(keys_values[:, :, 0]), sentences.membership, selection.phi)
            case _:
                sentence_keys = None
        return LayerMemory(keys_values, sentence_keys, made)

    def keys_values(self, states: Tensor) -> Tensor:
        """(..., D) encoder states -> (..., 2, D)."""
        return torch.stack([self.k_proj(states), self.v_proj(states)], -2)

    def fill(self, memory: LayerMemory, cache: SourceCache, source: int, chosen: Tensor) -> None:
        """Keys and values of the sentences of one source that were not chosen, (N,) bool, in an earlier step."""
        is_new = chosen & ~memory.made[source]
        positions = is_new[cache.sentences.ids[source, : cache.lengths[source]]].nonzero().squeeze(1)
        if len(positions):
            memory.keys_values[source, positions] = self.keys_values(cache.states[source, positions])
            memory.made[source] |= chosen

    def sentence_keys(self, encoded: Tensor) -> Tensor:
        """The approximator's keys: (B, N, D) -> (B, H, N, K)."""
        # Eq. (9): f2(k_{i,1}, ..., k_{i,J_i}) = y_i W^K
        return self.split(self.sentence_k(encoded))

    def approximate(self, hidden: Tensor, sentence_keys: Tensor, exists: Tensor) -> Tensor:
        """(B, H, Q, N) sentence-level attention by the model-based approximator."""
        # Eq. (8): f1(q_m) = q_m W^Q. D4: q_m is the decoder's state here, not its projection.
        queries = self.split(self.sentence_q(hidden)) * self.head_width**-0.5
        return approximate_attention(queries, sentence_keys, exists)

    def word_attention(self, queries: Tensor, memory: LayerMemory, sentences: Sentences) -> Tensor:
        """(B, H, Q, S) attention to all words, the softmax of Eq. (2)."""
        keys = self.split(memory.keys_values[:, :, 0])
        logits = queries * self.head_width**-0.5 @ keys.transpose(-1, -2)
        return logits.masked_fill((sentences.ids < 0)[:, None, None], float("-inf")).softmax(-1)

    def select(
        self,
        hidden: Tensor,
        queries: Tensor,
        memory: LayerMemory,
        sentences: Sentences,
        selection: Selection,
        steps: range,
    ) -> Tensor | None:
        """(B, Q, N) bool: the sentences that each query of target steps `steps` attends to; None = all."""
        if selection.mode == "full" or selection.r >= sentences.exists.size(1):
            return None
        membership, exists, scaled = sentences.membership, sentences.exists, queries * self.head_width**-0.5
        match selection.mode:
            case "ideal":
                scores = saliency(self.word_attention(queries, memory, sentences), membership)
            case "random":
                scores = random_scores(sentences.ids, exists.size(1), self.layer, steps, selection.seed)  # (B, T, N)
                scores = scores.repeat(1, hidden.size(1) // len(steps), 1).unsqueeze(1)  # beams and heads share a draw
            case "approx":
                scores = self.approximate(hidden, memory.sentence_keys, exists)
            case "mean_key":
                scores = mean_key_attention(scaled, memory.sentence_keys, membership, exists)
            case "model_free":
                scores = model_free_scores(scaled, memory.sentence_keys, selection.phi)
        scores = scores.mean(1)  # A.4: heads are averaged before the top-r, so that all of a layer share one subset
        if selection.share_beams:  # D13
            by_beam = scores.unflatten(1, (-1, len(steps)))  # (B, W, T, N)
            scores = by_beam.mean(1, keepdim=True).expand_as(by_beam).flatten(1, 2)
        return top_r(scores, exists, selection.r)

    def attend_masked(
        self, queries: Tensor, memory: LayerMemory, keep: Tensor | None, sentence_ids: Tensor, keep_words: Tensor | None
    ) -> Tensor:
        """The teaching path: attention to all words with the others masked: (B, H, Q, K).

        Args:
            keep: (B, Q, N); None = all sentences.
            keep_words: (B, 1, 1, S) bool, False = padding; None = there is none.
        """
        keys, values = (self.split(part) for part in memory.keys_values.unbind(2))
        dropout = self.dropout if self.training else 0.0
        if keep is not None:
            word_sentence = sentence_ids.clamp_min(0).unsqueeze(1).expand(-1, keep.size(1), -1)  # (B, Q, S)
            keep_words = keep_words & keep.gather(2, word_sentence).unsqueeze(1)  # (B, 1, Q, S)
        # Eq. (2): softmax(Q K^T) V, and with a selection Eq. (3); D12: the softmax is over the kept words alone.
        return F.scaled_dot_product_attention(queries, keys, values, keep_words, dropout)

    def recorded(
        self, hidden: Tensor, queries: Tensor, memory: LayerMemory, keep: Tensor | None, sentences: Sentences
    ) -> SentenceAttention:
        """What `record` gets; the approximation too, whatever the mode: training compares it with the exact one.

        It holds sums over sentences alone: the attention to all words, (B, H, T, S), is gone before the next layer's.
        """
        exact = saliency(self.word_attention(queries, memory, sentences), sentences.membership)
        approximate = None
        if sentences.encoded is not None:
            approximate = self.approximate(hidden, self.sentence_keys(sentences.encoded), sentences.exists)
        if keep is None:
            keep = sentences.exists.unsqueeze(1).expand(-1, hidden.size(1), -1)
        return SentenceAttention(exact, approximate, keep)

    def decode_step(self, hidden_states: Tensor, cache: SourceCache, selection: Selection) -> Tensor:
        """The fast path, one step of `generate`: (B * W, 1, D) -> (B * W, 1, D)."""
        memory, sentences = cache.memories[self.layer], cache.sentences
        end = cache.self_attention_cache.get_seq_length(self.layer)
        steps = range(end - hidden_states.size(1), end)
        # Beams of a source stand side by side: they become queries to one memory.
        hidden = hidden_states.reshape(len(sentences.ids), -1, hidden_states.size(-1))  # (B, W, D)
        queries = self.split(self.q_proj(hidden))  # (B, H, W, K)
        keep = self.select(hidden, queries, memory, sentences, selection, steps)
        if keep is None:
            context = self.attend_masked(queries, memory, None, sentences.ids, cache.keep_words)
        elif keep.device.type == "cpu":
            context = self.attend_gathered(queries, memory, keep, cache)
        else:
            words = cache.most_words[min(selection.r * keep.size(1), keep.size(2)) - 1]
            context = self.attend_gathered_at_once(queries, memory, keep, sentences.ids, words)
        return self.out_proj(context.transpose(1, 2).reshape(hidden_states.shape))

    def attend_gathered(self, queries: Tensor, memory: LayerMemory, keep: Tensor, cache: SourceCache) -> Tensor:
        """Per source, fetch the words that any beam selected, and let each beam see those that it selected itself.

        One gather of what all beams need reads less than a gather per beam: beams mostly agree. It goes into a buffer
        that is used again and again; fresh memory would cost as much as the copy.
        """
        contexts = []
        for source, length in enumerate(cache.lengths):
            ids, kept = cache.sentences.ids[source, :length], keep[source]  # (S,), (Q, N)
            chosen = kept.any(0)  # (N,)
            if memory.made is not None:
                self.fill(memory, cache, source, chosen)
            positions = chosen[ids].nonzero().squeeze(1)  # (words,)
            words = cache.gathered[: len(positions)]
            torch.index_select(memory.keys_values[source], 0, positions, out=words)  # (words, 2, D)
            keys, values = (self.split(part.unsqueeze(0)) for part in words.unbind(1))  # (1, H, words, K)
            keep_words = None if len(kept) == 1 else kept[:, ids[positions]]  # (Q, words)
            # Eq. (3): softmax(Q K^^T) V^ over the words of the selected sentences
            contexts.append(F.scaled_dot_product_attention(queries[source : source + 1], keys, values, keep_words))
        return torch.cat(contexts)  # (B, H, Q, K)

    def attend_gathered_at_once(
        self, queries: Tensor, memory: LayerMemory, keep: Tensor, sentence_ids: Tensor, words: int
    ) -> Tensor:
        """The same for all sources together, without a number that a GPU would have to wait for.

        Args:
            words: how many to fetch of each source; no source may need more.
        """
        is_read = keep.any(1).gather(1, sentence_ids.clamp_min(0)) & (sentence_ids >= 0)  # (B, S)
        positions = is_read.byte().topk(words, 1).indices  # (B, words): what is read, and then what is not
        documents = torch.arange(len(sentence_ids), device=keep.device).unsqueeze(1)
        keys, values = (self.split(part) for part in memory.keys_values[documents, positions].unbind(2))
        sentences = sentence_ids.gather(1, positions).clamp_min(0).unsqueeze(1).expand(-1, keep.size(1), -1)
        keep_words = keep.gather(2, sentences) & is_read.gather(1, positions).unsqueeze(1)  # (B, Q, words)
        return F.scaled_dot_product_attention(queries, keys, values, keep_words.unsqueeze(1))
