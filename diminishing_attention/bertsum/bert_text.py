"""Text of BERTSum: documents and summaries as word pieces."""

import re
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..text import Item, pad


class TargetIds(NamedTuple):
    """Special tokens of summaries."""

    bos: int
    eos: int
    between: int
    pad: int


@lru_cache(maxsize=8)
def target_ids(tokenizer) -> TargetIds:
    """The ids of the first three tokens [unusedN], as in released PreSumm, and of padding.

    Cased and multilingual BERTs begin with [unused1]. ValueError: the tokenizer has no three of
    them.
    """
    unused = []
    for name, i in tokenizer.get_vocab().items():
        if number := re.fullmatch(r"\[unused(\d+)\]", name):
            unused.append((int(number[1]), i))
    if len(unused) < 3:
        raise ValueError(
            "the tokenizer has no three tokens like [unused1], which part summaries: take a BERT's"
        )
    return TargetIds(*(i for _, i in sorted(unused)[:3]), tokenizer.pad_token_id)


def save(tokenizer, folder: Path) -> None:
    """Write the folder's tokenizer/."""
    tokenizer.save_pretrained(folder / "tokenizer")


def load(folder: Path):
    """Read what `save` wrote."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        folder / "tokenizer", local_files_only=True, trust_remote_code=False
    )


def encode_examples(examples: Iterable, tokenizer, max_source: int, max_target: int) -> list[Item]:
    """Examples, their documents in sentences, as token ids: [CLS] sentence [SEP] [CLS] ...

    Args:
        max_source: tokens, at least 3; a cut document still ends in [SEP].
        max_target: tokens of the summary, begin and end included.
    """
    special, cls, sep = target_ids(tokenizer), tokenizer.cls_token_id, tokenizer.sep_token_id
    items = []
    for example in examples:
        # D22: short sentences stay, for a turn of a dialogue is one; PreSumm drops those of up to
        # five words.
        source = []
        for ids in pieces_of(tokenizer, example.document):
            source += [cls, *ids, sep] if ids else []
        was_cut = len(source) > max_source
        if was_cut:
            source = source[: max_source - 1]
            while source[-1] in (cls, sep):  # a sentence has a word at least
                source.pop()
            source.append(sep)
        target = []
        for ids in pieces_of(tokenizer, example.summary):
            target += [special.between, *ids]
        cut = array("i", [special.bos, *target[1 : max_target - 1], special.eos])
        items.append(Item(array("i", source), cut, [], was_cut, len(target) > max_target - 1))
    return items


def pieces_of(tokenizer, sentences: Sequence[str]) -> list[list[int]]:
    """Token ids of each sentence; a [SEP] that stands in a text is text."""
    options = dict(add_special_tokens=False, split_special_tokens=True, verbose=False)
    return tokenizer(list(sentences), **options)["input_ids"] if sentences else []


class Batch(NamedTuple):
    """Items as tensors, padded on the right with 0, which nothing reads."""

    source: Tensor  # (B, S)
    segments: Tensor  # (B, S) 0 in the first sentence, 1 in the second, 0 in the third, ...
    keep: Tensor  # (B, S) bool, False at padding
    target_in: Tensor  # (B, T) begin, words
    target_out: Tensor  # (B, T) words, end
    keep_target: Tensor  # (B, T) bool


def collate(items: Sequence[Item], device: torch.device | str = "cpu") -> Batch:
    """Items -> tensors on the device."""
    source, keep = pad((item.source for item in items), device)
    is_start = (source == source[:, :1]) & keep  # a document begins with [CLS]
    target_in, _ = pad((item.target[:-1] for item in items), device)
    target_out, keep_target = pad((item.target[1:] for item in items), device)
    segments = (is_start.cumsum(1) - 1) % 2 * keep
    return Batch(source, segments, keep, target_in, target_out, keep_target)


def decode(tokenizer, item: Item, ids: Sequence[int]) -> str:
    """Token ids of an output -> text, its sentences parted by line breaks."""
    special, sentences = target_ids(tokenizer), [[]]
    for token in ids:
        if token == special.between:
            sentences.append([])
        elif token not in special:
            sentences[-1].append(token)
    texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in sentences if ids]
    return "\n".join(texts)
