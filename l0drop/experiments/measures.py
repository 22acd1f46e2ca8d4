"""What attention and gates do over a corpus: the measures behind the paper's figures.

A "source word" is what one gate prunes: a subword, a character, or the final </s> (D12). T target and S source words
of one sentence, both with </s>; B sentences, H heads.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor

from ..model import EOS, Attention, Transformer
from ..text import Item, collate

PLACES = 5  # equal parts of a word in Figure 6


@contextmanager
def recorded(attentions: Sequence[Attention]) -> Iterator[list[Tensor]]:
    """A list that collects the weights (B, H, T, S) of attention layers for as long as this lasts."""
    collected: list[Tensor] = []

    def record(attention: Attention, inputs: tuple) -> None:
        x, keys, _, bias = inputs
        collected.append(attention.weights(attention.split_heads(attention.query(x)), keys, bias))

    with ExitStack() as hooks:
        for attention in attentions:
            hooks.callback(attention.register_forward_pre_hook(record).remove)
        yield collected


@torch.inference_mode()
def attention_maps(
    model: Transformer, items: Sequence[Item], outputs: Sequence[Sequence[int]], size: int = 16
) -> Iterator[Tensor]:
    """Cross-attention (T, S) of each item, mean over heads and layers, while the decoder reads its own output, which
    is given without </s> (caption of Figure 1).

    A pruned word has its share of what Algorithm 1 gives to the dummy, so every row of a map sums to 1.
    """
    items = [items[i]._replace(target=[*output, EOS]) for i, output in enumerate(outputs)]
    for start in range(0, len(items), size):
        batch = collate(items[start : start + size], model.embedding.weight.device)
        with recorded([layer.cross_attention for layer in model.decoder]) as weights:
            model(batch.source, batch.target_input)
        maps = torch.stack([layer.mean(1) for layer in weights]).mean(0).cpu()  # (B, T, S)
        for row, item in enumerate(items[start : start + size]):
            yield maps[row, : len(item.target), : len(item.source)]


def summed_attention(maps: Iterable[Tensor], pruned: Iterable[Sequence[bool]]) -> tuple[np.ndarray, float]:
    """Attention per retained source word of the corpus, summed over target words (Figures 1 and 7), from maps (T, S)
    and pruned (S,), each a sentence's; and the share of all attention that the pruned receive."""
    sums = np.concatenate([weights.sum(0).numpy() for weights in maps])
    is_pruned = np.concatenate([np.asarray(row, dtype=bool) for row in pruned])
    # D12: Figure 7's mean, 1.80, is nearly the baseline's 1.03 over the 53 % that are retained.
    return sums[~is_pruned], float(sums[is_pruned].sum() / sums.sum())


@torch.inference_mode()
def encode_all(model: Transformer, items: Sequence[Item], size: int = 16) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Of every source word, an (S,) array per item: is its gate closed (never, in a baseline), and the entropy in nats
    of its self-attention in the last layer, mean over heads (Section 6, Figure 8)."""
    attention, pruned, entropies = model.encoder[-1].attention, [], []
    for start in range(0, len(items), size):
        batch = collate(items[start : start + size], model.embedding.weight.device)
        with recorded([attention]) as weights:
            encoding = model.encode(batch.source)
        nats = torch.special.entr(weights[0].mean(1)).sum(-1).cpu().numpy()  # (B, S)
        closed = (encoding.gates[-1] == 0 if encoding.gates else ~encoding.keep).cpu().numpy()
        for row, item in enumerate(items[start : start + size]):
            pruned.append(closed[row, : len(item.source)])
            entropies.append(nats[row, : len(item.source)])
    return pruned, entropies


def mean_entropies(entropies: Sequence[np.ndarray], pruned: Sequence[np.ndarray]) -> tuple[float, float]:
    """Mean over all retained, and over all pruned source words of a corpus; NaN where there are none (Figure 8)."""
    values, closed = np.concatenate(entropies), np.concatenate(pruned)
    return tuple(float(part.mean()) if len(part) else float("nan") for part in (values[~closed], values[closed]))


def places_in_words(characters: Sequence[str], words: Sequence[int]) -> list[str]:
    """Which fifth of its word every character stands in, its first character at 0 and its last at 1 (Figure 6).

    "0.0-0.2" to "0.8-1.0"; "space" of the symbol "▁"; "alone" of a word's only character, which is first and last.
    """
    lengths = Counter(word for character, word in zip(characters, words, strict=True) if character != "▁")
    places, seen = [], Counter()
    for character, word in zip(characters, words, strict=True):
        if character == "▁" or lengths[word] == 1:
            places.append("space" if character == "▁" else "alone")
            continue
        fifth = min(PLACES * seen[word] // (lengths[word] - 1), PLACES - 1)
        places.append(f"{fifth / PLACES}-{(fifth + 1) / PLACES}")
        seen[word] += 1
    return places
