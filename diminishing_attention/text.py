"""Words of the pointer-generator: a fixed vocabulary, and for each document the words that it lacks.

A word that the vocabulary of V lacks is <unk> as input. As output it is the number V + i if it is the i-th such word of
its document (counted from 0, a repeated word once): the model can copy it. `Item.unknown` lists these words.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

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


class Vocabulary:
    """Words and their numbers: SPECIAL first, then the most frequent words."""

    def __init__(self, known: Sequence[str]):
        """`known`: all words in the order of their numbers.

        Raises:
            ValueError: it does not begin with SPECIAL, or a word stands there twice.
        """
        self.known = list(known)
        self.number = {word: number for number, word in enumerate(self.known)}
        if tuple(self.known[:4]) != SPECIAL or len(self.number) < len(self.known):
            raise ValueError(f"a vocabulary begins with {' '.join(SPECIAL)} and names each word once")

    def __len__(self) -> int:
        return len(self.known)

    @classmethod
    def build(cls, texts: Iterable[str], size: int = 50_000) -> "Vocabulary":
        """The most frequent words of the texts; `size` counts the special tokens. Ties go by the alphabet.

        Raises:
            ValueError: size leaves no word.
        """
        if size <= len(SPECIAL):
            raise ValueError(f"size is {size}; the {len(SPECIAL)} special tokens alone fill it: make it larger")
        counts = Counter(word for text in texts for word in words(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([*SPECIAL, *ranked[: size - len(SPECIAL)]])

    def encode_source(self, source: Sequence[str]) -> tuple[list[int], list[int], list[str]]:
        """Numbers of a document's words, the same with V + i for unknown ones, and the unknown words in order."""
        unknown = list(dict.fromkeys(word for word in source if word not in self.number))
        return *self.encode_target(source, unknown), unknown

    def encode_target(self, target: Sequence[str], unknown: Sequence[str]) -> tuple[list[int], list[int]]:
        """Numbers of a summary's words, and the same with V + i for the unknown words of the document."""
        place = {word: len(self) + i for i, word in enumerate(unknown)}
        ids = [self.number.get(word, UNK) for word in target]
        return ids, [place.get(word, number) for word, number in zip(target, ids, strict=True)]


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
    """Documents and summaries of `shared.data.Example`s as numbers, cut to so many words.

    Of a summary EOS counts, BOS does not (released code).
    """
    items = []
    for example in examples:
        source = words(example.source)
        ids, extended, unknown = vocabulary.encode_source(source[:max_source])
        target, extended_target = vocabulary.encode_target(words(example.target), unknown)
        target_in, target_out = [BOS, *target], [*extended_target, EOS]
        was_cut = len(source) > max_source
        items.append(Item(ids, extended, unknown, target_in[:max_target], target_out[:max_target], was_cut))
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


def collate(items: Sequence[Item], device: torch.device | str = "cpu") -> Batch:
    """Items -> tensors on the device; a document without words is a row of padding."""

    def pad(rows: list[list[int]]) -> Tensor:
        rows = [torch.tensor(row, dtype=torch.long) for row in rows]
        padded = pad_sequence(rows, batch_first=True, padding_value=PAD)
        return (padded if padded.size(1) else padded.new_full((len(rows), 1), PAD)).to(device)

    return Batch(
        source=pad([item.source for item in items]),
        extended_source=pad([item.extended_source for item in items]),
        keep=pad([[1] * len(item.source) for item in items]).bool(),
        target_in=pad([item.target_in for item in items]),
        target_out=pad([item.target_out for item in items]),
        keep_target=pad([[1] * len(item.target_out) for item in items]).bool(),
        extra=max(len(item.unknown) for item in items),
    )


def never(vocabulary: Vocabulary) -> tuple[int, ...]:
    """Tokens that decoding does not write: what is unknown can be copied."""
    return (PAD, UNK)


def pieces(vocabulary: Vocabulary, item: Item, ids: Iterable[int]) -> list[str]:
    """A text for each number of a document or its summary.

    Raises:
        ValueError: a number beyond the document's unknown words.
    """
    names = [*vocabulary.known, *item.unknown]
    try:
        return [names[number] for number in ids]
    except IndexError:
        known = f"{len(vocabulary)} known and {len(item.unknown)} unknown words"
        raise ValueError(f"no word {max(ids)}: {known}") from None


def decode(vocabulary: Vocabulary, item: Item, ids: Iterable[int]) -> str:
    """Numbers of an output -> text; begin, end and padding are left out, copied unknown words come out as words."""
    return " ".join(pieces(vocabulary, item, [number for number in ids if number not in (PAD, BOS, EOS)]))
