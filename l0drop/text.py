"""Text -> token ids -> batches: tokenizer and the stream of training batches."""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from .model import BOS, EOS, IGNORED, PAD

CHUNK = 1000  # examples that are tokenised at a time


def train_tokenizer(texts: Iterable[str], units: str, vocabulary: int) -> Tokenizer:
    """Joint byte-pair encoding of words with their leading blank; "char" is the same without any merge.

    A word ends after 1,000 characters: the time of merging grows with the square of its length.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(Regex(r"▁?(?:\w{1,1000}|[^\w▁])"), "isolated")]
    )
    tokenizer.decoder = decoders.Metaspace()
    size = vocabulary if units == "bpe" else 0  # the alphabet is kept whatever the size
    special = ["<pad>", "<s>", "</s>", "<unk>"]  # the ids of model.py
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    # A "<pad>" or "</s>" that stands in a text is text: of the special tokens, only <unk> is looked for there.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] == "<unk>"]
    return Tokenizer.from_str(json.dumps(state))


class Item(NamedTuple):
    """One example as token ids, EOS included."""

    source: array  # of "i", as all below
    target: array
    was_cut: bool
    rule_keep: array | None = None  # 0 where a rule of Section 7 drops the encoding


def encode_examples(
    examples: Sequence, tokenizer: Tokenizer, max_source: int, max_target: int, rule: Callable | None = None, end=EOS
) -> list[Item]:
    """Token ids of `shared.data.Example`s, cut to size; the token `end`, which is counted, ends every text.

    `rule(examples, their encodings)` says for each token of each source whether its encoding is kept.
    """
    items, cut = [], max_source - 1
    for start in tqdm(range(0, len(examples), CHUNK), desc="tokenising", leave=False, disable=None):
        chunk = examples[start : start + CHUNK]
        sources = tokenizer.encode_batch([example.source for example in chunk])
        targets = tokenizer.encode_batch([example.target for example in chunk])
        keeps = rule(chunk, sources) if rule else [None] * len(chunk)
        for source, target, keep in zip(sources, targets, keeps, strict=True):
            ids, answer = array("i", [*source.ids[:cut], end]), array("i", [*target.ids[: max_target - 1], end])
            keep = None if keep is None else array("i", [*keep[:cut], True])  # D9: EOS is always kept.
            items.append(Item(ids, answer, len(source.ids) > cut, keep))
    return items


class Batch(NamedTuple):
    """Items side by side."""

    source: Tensor  # (B, S)
    target_input: Tensor  # (B, T), BOS first
    target: Tensor  # (B, T), EOS last, then IGNORED
    rule_keep: Tensor | None  # (B, S)


def collate(items: Sequence[Item], device: torch.device | str = "cpu", pad: int = PAD, start: int = BOS) -> Batch:
    """A batch, padded with `pad`; `start` begins every target input."""

    def stack(rows: Iterable[Sequence[int]], value: int = pad) -> Tensor:
        tensors = [torch.tensor(row) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=value).long().to(device)

    return Batch(
        stack(item.source for item in items),
        stack([start, *item.target[:-1]] for item in items),
        stack((item.target for item in items), IGNORED),
        None if items[0].rule_keep is None else stack((item.rule_keep for item in items), False).bool(),
    )


class TokenBatches:
    """Endless lists of item indices: the batch sampler of a `DataLoader`.

    An epoch sorts the corpus by length, ties in random order, cuts it into batches of at most `batch_tokens` padded
    target tokens, and shuffles the batches. The cuts depend on lengths alone, so every epoch has as many batches.
    """

    def __init__(self, items: Sequence[Item], batch_tokens: int, seed: int):
        self.batch_tokens, self.seed = batch_tokens, seed
        self.lengths = np.array([(len(item.target), len(item.source)) for item in items], dtype=np.int32)

    def __iter__(self) -> Iterator[list[int]]:
        for epoch in count():
            yield from self.epoch(epoch)

    def epoch(self, number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        by_length = np.lexsort((rng.random(len(self.lengths)), self.lengths[:, 1], self.lengths[:, 0])).tolist()
        batches = [[]]
        for index in by_length:
            if batches[-1] and self.lengths[index, 0] * (len(batches[-1]) + 1) > self.batch_tokens:
                batches.append([])
            batches[-1].append(index)
        return [batches[i] for i in rng.permutation(len(batches))]
