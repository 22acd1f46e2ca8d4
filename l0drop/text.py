"""Text -> token ids -> batches."""

import json
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from .model import BOS, EOS, IGNORED, PAD

CHUNK = 1000  # examples that are tokenised at a time


def train_tokenizer(texts: Iterable[str], units: str, vocabulary: int) -> Tokenizer:
    """Joint byte-pair encoding of words with their leading blank; "char": without any merge.

    A word ends after 1,000 characters: the time of merging grows with the square of its length.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(r"▁?(?:\w{1,1000}|[^\w▁])"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), words])
    tokenizer.decoder = decoders.Metaspace()
    size = vocabulary if units == "bpe" else 0  # the alphabet is kept whatever the size
    special = ["<pad>", "<s>", "</s>", "<unk>"]  # the ids of model.py
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    # A "<pad>" or "</s>" that stands in a text is text: only <unk> is looked for there.
    state = json.loads(tokenizer.to_str())
    added = state["added_tokens"]
    state["added_tokens"] = [token for token in added if token["content"] == "<unk>"]
    return Tokenizer.from_str(json.dumps(state))


class Item(NamedTuple):
    """One example as token ids, EOS included."""

    source: array  # of "i", as the target
    target: array
    was_cut: bool  # the source


def encode_examples(
    examples: Sequence, tokenizer: Tokenizer, max_source: int, max_target: int, eos: int = EOS
) -> list[Item]:
    """Token ids of `shared.data.Example`s, cut to size; `eos`, which counts, ends every text."""
    items = []
    for start in tqdm(range(0, len(examples), CHUNK), desc="tokenising", leave=False, disable=None):
        chunk = examples[start : start + CHUNK]
        sources = tokenizer.encode_batch([example.source for example in chunk])
        targets = tokenizer.encode_batch([example.target for example in chunk])
        for source, target in zip(sources, targets, strict=True):
            source_ids = array("i", [*source.ids[: max_source - 1], eos])
            target_ids = array("i", [*target.ids[: max_target - 1], eos])
            items.append(Item(source_ids, target_ids, len(source.ids) >= max_source))
    return items


class Batch(NamedTuple):
    """Items side by side."""

    source: Tensor  # (B, S)
    target_input: Tensor  # (B, T), BOS first
    target: Tensor  # (B, T), EOS last, then IGNORED


def collate(
    items: Sequence[Item], device: torch.device | str = "cpu", pad: int = PAD, bos: int = BOS
) -> Batch:
    """A batch, padded with `pad`; `bos` begins every target input."""

    def stack(rows: Iterable[Sequence[int]], value: int = pad) -> Tensor:
        tensors = [torch.tensor(row) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=value).long().to(device)

    return Batch(
        stack(item.source for item in items),
        stack([bos, *item.target[:-1]] for item in items),
        stack((item.target for item in items), IGNORED),
    )
