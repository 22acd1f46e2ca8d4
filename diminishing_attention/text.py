"""Words of the pointer-generator: a vocabulary, and for each document the words that it lacks.

A word that the vocabulary of V lacks is the number V + i if it is the i-th such word of its
document (counted from 0, a repeated word once): the model can copy it, and reads it as <unk>.
`Item.unknown` lists these words.
"""

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import regex
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNK, BOS, EOS = range(4)
# letters and digits with their combining marks, which scripts such as Devanagari need
LETTERS = r"[\w\p{M}]+"
# Words with inner hyphens, apostrophes and decimal marks; an apostrophe with one or two letters:
# 's, but also 'I where it opens a quotation; any other sign by itself.
WORD = regex.compile(rf"{LETTERS}(?:[-'’]{LETTERS}|(?<=\d)[.,]\d+)*|['’]\w{{1,2}}\b|[^\w\p{{M}}\s]")


def words(text: str) -> list[str]:
    """Lower-cased words and signs of a text, tokenised before or not; never a special token.

    D21: by this expression. What a script writes without blanks is one word: cut Chinese or Thai
    into words before.
    """
    return WORD.findall(text.lower())


def split_words(text: str) -> list[str]:
    """Lower-cased words alone, for counting: signs do not count, nor does the underscore."""
    return regex.findall(LETTERS, text.lower().replace("_", " "))


def ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """All n-grams in order; none when there are fewer than n words."""
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


class Vocabulary:
    """Words and their numbers: SPECIAL first, then the most frequent words."""

    pad_token_id, unk_token_id = PAD, UNK  # as a tokenizer of transformers calls them

    def __init__(self, known: Sequence[str]):
        """All words in the order of their numbers.

        ValueError: SPECIAL is not first, or a word stands twice.
        """
        self.known = list(known)
        self.number = {word: number for number, word in enumerate(self.known)}
        if tuple(self.known[:4]) != SPECIAL or len(self.number) < len(self.known):
            raise ValueError(
                f"a vocabulary begins with {' '.join(SPECIAL)} and names each word once"
            )

    def __len__(self) -> int:
        return len(self.known)

    @classmethod
    def build(cls, texts: Iterable[str], size: int) -> "Vocabulary":
        """The most frequent words, ties by the alphabet; `size` counts the special tokens."""
        counts = Counter(word for text in texts for word in words(text))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([*SPECIAL, *ranked[: size - len(SPECIAL)]])

    def encode(self, text: Sequence[str], unknown: Sequence[str]) -> list[int]:
        """Numbers of a text's words, V + i for the i-th unknown word of its document."""
        place = {word: len(self) + i for i, word in enumerate(unknown)}
        return [self.number.get(word, place.get(word, UNK)) for word in text]


def save(vocabulary: Vocabulary, folder: Path) -> None:
    """Write the folder's tokenizer.json."""
    text = json.dumps({"words": vocabulary.known}, ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")


def load(folder: Path) -> Vocabulary:
    """Read what `save` wrote."""
    return Vocabulary(json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["words"])


class Item(NamedTuple):
    """One document with its summary, as numbers."""

    source: array  # below V + len(unknown)
    target: array  # begin, summary, end; the pointer-generator's lacks the end where it was cut
    unknown: list[str]  # words of the document that the vocabulary lacks
    was_cut: bool  # the document
    target_was_cut: bool = False


def encode_examples(
    examples: Iterable, vocabulary: Vocabulary, max_source: int, max_target: int
) -> list[Item]:
    """Examples cut to so many words; of a summary EOS counts, BOS does not (released code)."""
    items = []
    for example in examples:
        source = words(example.source)
        was_cut, source = len(source) > max_source, source[:max_source]
        unknown = list(dict.fromkeys(word for word in source if word not in vocabulary.number))
        target = [BOS, *vocabulary.encode(words(example.target), unknown), EOS]
        rows = array("i", vocabulary.encode(source, unknown)), array("i", target[: max_target + 1])
        items.append(Item(*rows, unknown, was_cut, len(target) > max_target + 1))
    return items


class Batch(NamedTuple):
    """Items as tensors, padded on the right with PAD.

    Numbers from V on are a document's unknown words.
    """

    source: Tensor  # (B, S)
    keep: Tensor  # (B, S) bool, False at padding
    target_in: Tensor  # (B, T)
    target_out: Tensor  # (B, T)
    keep_target: Tensor  # (B, T) bool
    extra: int  # E, the most unknown words that a document of the batch has


def pad(rows: Iterable[Sequence[int]], device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """(B, L) of rows padded with 0, L at least 1, and (B, L) bool, False at padding."""
    rows = [torch.tensor(row, dtype=torch.long) for row in rows]
    lengths = torch.tensor([[len(row)] for row in rows])  # (B, 1)
    one = torch.zeros(1, dtype=torch.long)
    padded = pad_sequence([*rows, one], batch_first=True)[:-1]  # (B, L)
    return padded.to(device), (torch.arange(padded.size(1)) < lengths).to(device)


def collate(items: Sequence[Item], device: torch.device | str = "cpu") -> Batch:
    """Items -> tensors on the device; a document without words is a row of padding."""
    source, keep = pad((item.source for item in items), device)
    target_in, _ = pad((item.target[:-1] for item in items), device)
    target_out, keep_target = pad((item.target[1:] for item in items), device)
    extra = max(len(item.unknown) for item in items)
    return Batch(source, keep, target_in, target_out, keep_target, extra)


def decode(vocabulary: Vocabulary, item: Item, ids: Iterable[int]) -> str:
    """Numbers of an output -> text, without begin, end and padding."""
    names = [*vocabulary.known, *item.unknown]
    return " ".join(names[number] for number in ids if number not in (PAD, BOS, EOS))
