"""The same attention while decoding, faster: a source is kept once, and unread words not fetched.

`generate` of transformers copies keys and values for every beam, and moves them when beams change
places. Here the beams of a source are queries to one memory. How much faster that makes a summary,
and what reading the selected sentences alone adds, says experiments/RESULTS.md.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import BartConfig, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from .attention import LayerMemory, SentenceSparseAttention
from .selection import FULL, Selection, SentenceAttention, Sentences

# Settings of `generate` that are not supported, each with its neutral value.
NOT_SUPPORTED = {
    "inputs": None,
    "inputs_embeds": None,
    "past_key_values": None,
    "cache_implementation": None,
    "assistant_model": None,
    "prompt_lookup_num_tokens": None,
    "output_attentions": False,
    "guidance_scale": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
}


def check_settings(settings: dict) -> None:
    """ValueError for a setting of `generate` that is not supported."""
    for name, neutral in NOT_SUPPORTED.items():
        value = settings.get(name)
        is_neutral = value is None or not isinstance(value, Tensor) and value == neutral
        if not is_neutral:
            raise ValueError(
                f"generate does not support {name} here: the source is in a cache of its own"
            )


class SourceCache(EncoderDecoderCache):
    """A cache for `generate` that keeps each source once, however many beams it has.

    `generate` moves the cache's rows when beams change places. All beams of a source read the same
    source, so only the self-attention part has to move.
    """

    def __init__(
        self,
        config: BartConfig,
        memories: list[LayerMemory],
        sentences: Sentences,
        selection: Selection,
    ):
        super().__init__(DynamicCache(config=config), DynamicCache(config=config))
        self.memories, self.sentences, self.selection = memories, sentences, selection
        self.lengths = (sentences.ids >= 0).sum(1).tolist()  # (B,) tokens
        has_padding = min(self.lengths) < sentences.ids.size(1)
        self.keep_words = sentences.is_word if has_padding else None  # (B, 1, 1, S)
        self.gathered = torch.empty_like(memories[0].pairs[0])  # (S, 2, D), for every gather

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.self_attention_cache.reorder_cache(beam_idx)

    def stand_in(self, states: Tensor) -> dict:
        """Inputs for `generate`, which repeats them for every beam: one position of (B, S, D)."""
        return {
            "encoder_outputs": BaseModelOutput(states[:, :1]),
            "attention_mask": self.sentences.ids[:, :1] + 1,
            "past_key_values": self,
        }


class FastAttention(SentenceSparseAttention):
    """`SentenceSparseAttention` that also decodes from a SourceCache, one step at a time."""

    def forward(
        self,
        hidden_states: Tensor,
        key_value_states: Tensor,
        sentences: Sentences | None = None,
        selection: Selection = FULL,
        record: list[SentenceAttention] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **unused,
    ) -> tuple[Tensor, None]:
        """As BART calls it.

        With a SourceCache of B sources, hidden_states are (B * W, 1, D), of W beams each.
        """
        if isinstance(past_key_values, SourceCache):
            return self.decode_step(hidden_states, past_key_values), None
        return super().forward(
            hidden_states, key_value_states, sentences, selection, record, past_key_values
        )

    def decode_step(self, hidden_states: Tensor, cache: SourceCache) -> Tensor:
        """(B * W, 1, D) -> (B * W, 1, D)."""
        memory = cache.memories[self.layer]
        end = cache.self_attention_cache.get_seq_length(self.layer)
        steps = range(end - hidden_states.size(1), end)
        # Beams of a source stand side by side: they become queries to one memory.
        hidden = hidden_states.reshape(len(cache.lengths), -1, hidden_states.size(-1))  # (B, W, D)
        queries = self.scaled_queries(hidden)  # (B, H, W, K)
        keep = self.select(hidden, queries, memory, cache.sentences, cache.selection, steps)
        if keep is None:
            source = memory.keys, memory.values, cache.keep_words
            context = F.scaled_dot_product_attention(queries, *source, scale=1.0)
        else:
            context = self.attend_gathered(queries, memory.pairs, keep, cache)
        return self.join(context).reshape(hidden_states.shape)

    def attend_gathered(
        self, queries: Tensor, pairs: Tensor, keep: Tensor, cache: SourceCache
    ) -> Tensor:
        """Fetch the words that any beam of a source selected; each beam sees its own selection.

        One gather of what all beams need reads less than a gather per beam: beams mostly agree. It
        goes into a buffer that is used again and again; fresh memory would cost as much as the
        copy.
        """
        contexts = []
        for source, length in enumerate(cache.lengths):
            ids, kept = cache.sentences.ids[source, :length], keep[source]  # (S,), (W, N)
            positions = kept.any(0)[ids].nonzero().squeeze(1)  # (words,)
            words = cache.gathered[: len(positions)]
            torch.index_select(pairs[source], 0, positions, out=words)  # (words, 2, D)
            # Eq. (3): K^ and V^ are what was gathered: (1, H, words, K).
            keys, values = (self.split(part.unsqueeze(0)) for part in words.unbind(1))
            keep_words = None if len(kept) == 1 else kept[:, ids[positions]]  # (W, words)
            query = queries[source : source + 1]
            read = keys, values, keep_words
            contexts.append(F.scaled_dot_product_attention(query, *read, scale=1.0))
        return torch.cat(contexts)  # (B, H, W, K)
