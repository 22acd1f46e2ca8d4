"""Words of the pointer-generator: a fixed vocabulary, and for each document the words that it lacks.

A word that the vocabulary of V lacks is <unk> as input. As output it is the number V + i if it is the i-th such word of
its document (counted from 0, a repeated word once): the model can copy it. `Item.unknown` lists these words.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNK, BOS, EOS = range(4)
# Words with inner hyphens, apostrophes and decimal marks; a clitic like 's; any other sign by itself.
WORD = re.compile(r"\w+(?:[-'’]\w+|(?<=\d)[.,]\d+)*|['’]\w{1,2}\b|[^\w\s]")


def words(text: str) -> list[str]:
    """Lower-cased words and signs of a text, tokenised before or not. No special token can come out."""
    return WORD.findall(text.lower())


def split_words(text: str) -> list[str]:
    """Lower-cased words alone, for counting: runs of letters and digits; other signs do not count."""
    return re.findall(r"[^\W_]+", text.lower())


def ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """All n-grams in order; none when there are fewer than n words."""
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


class Vocabulary:
    """Words and their numbers: SPECIAL first, then the most frequent words."""

    def __init__(self, known: Sequence[str]):
        """`known`: all words in the order of their numbers; ValueError where SPECIAL is not first, or a word twice."""
        self.known = list(known)
        self.number = {word: number for number, word in enumerate(self.known)}
        if tuple(self.known[:4]) != SPECIAL or len(self.number) < len(self.known):
            raise ValueError(f"a vocabulary begins with {' '.join(SPECIAL)} and names each word once")

    def __len__(self) -> int:
        return len(self.known)

    @classmethod
    def build(cls, texts: Iterable[str], size: int) -> "Vocabulary":
        """The most frequent words of the texts; `size` counts the special tokens. Ties go by the alphabet."""
        counts = Counter(word for text in texts for word in words(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([*SPECIAL, *ranked[: size - len(SPECIAL)]])

    def encode(self, text: Sequence[str], unknown: Sequence[str]) -> tuple[list[int], list[int]]:
        """Numbers of a text's words, and the same with V + i for the unknown words of its document."""
        place = {word: len(self) + i for i, word in enumerate(unknown)}
        ids = [self.number.get(word, UNK) for word in text]
        return ids, [place.get(word, number) for word, number in zip(text, ids, strict=True)]


def save(vocabulary: Vocabulary, folder: Path) -> None:
    """Write the folder's tokenizer.json."""
    text = json.dumps({"words": vocabulary.known}, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")


def load(folder: Path) -> Vocabulary:
    """Read what `save` wrote; ValueError where it is not there, cut off, or something else."""
    path = Path(folder, "tokenizer.json")
    try:
        return Vocabulary(json.loads(path.read_text(encoding="utf-8"))["words"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no vocabulary ({error}): train again") from None


class Item(NamedTuple):
    """One document with its summary, as numbers."""

    source: list[int]  # below V
    extended_source: list[int]  # below V + len(unknown)
    unknown: list[str]  # words of the document that the vocabulary lacks
    target_in: list[int]  # BOS, then the summary; below V
    target_out: list[int]  # extended numbers of the summary, then EOS; EOS is missing where the summary was cut
    was_cut: bool  # the document


def encode_examples(examples: Iterable, vocabulary: Vocabulary, max_source: int, max_target: int) -> list[Item]:
    """`shared.data.Example`s, cut to so many words; of a summary EOS counts, BOS does not (released code)."""
    items = []
    for example in examples:
        source = words(example.source)
        was_cut, source = len(source) > max_source, source[:max_source]
        unknown = list(dict.fromkeys(word for word in source if word not in vocabulary.number))
        target, extended = vocabulary.encode(words(example.target), unknown)
        target_in, target_out = [BOS, *target][:max_target], [*extended, EOS][:max_target]
        items.append(Item(*vocabulary.encode(source, unknown), unknown, target_in, target_out, was_cut))
    return items


class Batch(NamedTuple):
    """Items as tensors, padded on the right with PAD."""

    source: Tensor  # (B, S)
    extended_source: Tensor  # (B, S)
    keep: Tensor  # (B, S) bool, False at padding
    target_in: Tensor  # (B, T)
    target_out: Tensor  # (B, T)
    keep_target: Tensor  # (B, T) bool
    extra: int  # E, the most unknown words that a document of the batch has


def pad(rows: Iterable[Sequence[int]], device: torch.device | str = "cpu") -> Tensor:
    """(B, L) of rows of several lengths, padded with 0; L is at least 1."""
    padded = pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], batch_first=True)
    return (padded if padded.size(1) else padded.new_zeros(len(padded), 1)).to(device)


def collate(items: Sequence[Item], device: torch.device | str = "cpu") -> Batch:
    """Items -> tensors on the device; a document without words is a row of padding."""
    return Batch(
        source=pad((item.source for item in items), device),
        extended_source=pad((item.extended_source for item in items), device),
        keep=pad(([1] * len(item.source) for item in items), device).bool(),
        target_in=pad((item.target_in for item in items), device),
        target_out=pad((item.target_out for item in items), device),
        keep_target=pad(([1] * len(item.target_out) for item in items), device).bool(),
        extra=max(len(item.unknown) for item in items),
    )


class LengthBatches:
    """Endless lists of item indices: the batch sampler of a `DataLoader`.

    An epoch sorts by source length, with some noise, cuts into batches of at most `size` items and, where it is not 0,
    at most `tokens` padded tokens of the field `counted`, and shuffles the batches.
    """

    def __init__(self, items: Sequence, size: int, tokens: int, counted: str, seed: int):
        self.size, self.tokens, self.seed = size, tokens, seed
        self.lengths = [len(getattr(item, counted)) for item in items]
        self.sources = np.array([len(item.source) for item in items])

    def __iter__(self) -> Iterator[list[int]]:
        for number in count():
            yield from self.epoch(number)

    def epoch(self, number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        by_length = np.argsort(self.sources * rng.uniform(0.8, 1.2, len(self.sources)), kind="stable")
        batches, longest = [[]], 0
        for i in by_length.tolist():
            longest, count_then = max(longest, self.lengths[i]), len(batches[-1]) + 1
            if count_then > self.size or (count_then > 1 and 0 < self.tokens < longest * count_then):
                batches.append([])
                longest = self.lengths[i]
            batches[-1].append(i)
        return [batches[i] for i in rng.permutation(len(batches))]


def never(vocabulary: Vocabulary) -> tuple[int, ...]:
    """Tokens that decoding does not write: what is unknown can be copied."""
    return (PAD, UNK)


def decode(vocabulary: Vocabulary, item: Item, ids: Iterable[int]) -> str:
    """Numbers of an output -> text; begin, end and padding are left out, copied unknown words come out as words."""
    names = [*vocabulary.known, *item.unknown]
    return " ".join(names[number] for number in ids if number not in (PAD, BOS, EOS))
