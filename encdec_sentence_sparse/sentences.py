"""Where sentences begin and end: in tokens, and in the tensors that attention needs."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


def token_sentence_ids(
    offsets: Sequence[tuple[int, int]], starts: Sequence[int], is_special: Sequence[int]
) -> list[int]:
    """The sentence of each token: 0, 1, ... without gaps; sentences without a token are not counted.

    A token belongs to the sentence of its last character, and what stands between two sentences to the one before.
    `<s>` belongs to the first.

    Args:
        offsets: (S,) first character of each token and the one behind its last; starts: first one of each sentence.
        is_special: (S,) true for `<s>` and `</s>`.
    """
    ids, sentence = [], 0
    last_text = max((i for i, special in enumerate(is_special) if not special), default=-1)
    for i, ((_, end), special) in enumerate(zip(offsets, is_special, strict=True)):
        if not special:
            sentence = max(sentence, bisect_right(starts, end - 1) - 1)
        # D7: `</s>` is a sentence of its own, which counts toward r.
        ids.append(len(starts) + i if special and i > last_text >= 0 else sentence)
    numbers = {sentence: number for number, sentence in enumerate(dict.fromkeys(ids))}
    return [numbers[sentence] for sentence in ids]  # [2, 2, 5] -> [0, 0, 1]


class Sentences(NamedTuple):
    """The sentences of a batch of documents."""

    ids: Tensor  # (B, S) sentence of each token, from 0; -1 = padding
    membership: Tensor  # (B, S, N) 1.0 where the token belongs to the sentence
    exists: Tensor  # (B, N) bool; False = padding of a document with fewer sentences
    encoded: Tensor | None = None  # (B, N, D) from the sentence encoder, Eq. (10)

    @property
    def is_word(self) -> Tensor:
        """(B, 1, 1, S) bool; False = padding."""
        return (self.ids >= 0)[:, None, None]


def sentences_of(sentence_ids: Tensor, attention_mask: Tensor, dtype: torch.dtype = torch.float32) -> Sentences:
    """Sentence ids in the forms that attention needs; ValueError where they do not cover the input.

    Args:
        sentence_ids: (B, S) int64: 0, 1, ... in reading order without gaps, and -1 at padding.
        attention_mask: (B, S) 1 = token, 0 = padding, which is on the right.
    """
    check_ids(sentence_ids, attention_mask)
    last = sentence_ids.amax(1, keepdim=True)  # (B, 1)
    numbers = torch.arange(int(last.max()) + 1, device=sentence_ids.device)  # (N,)
    return Sentences(sentence_ids, (sentence_ids.unsqueeze(-1) == numbers).to(dtype), numbers <= last)


def check_ids(sentence_ids: Tensor, attention_mask: Tensor) -> None:
    """ValueError that names the document and the position where sentence ids do not cover the input."""
    if sentence_ids.shape != attention_mask.shape:
        raise ValueError(f"sentence_ids {tuple(sentence_ids.shape)} must be as input_ids {tuple(attention_mask.shape)}")
    is_token = attention_mask.bool()
    follows = F.pad(is_token, (1, 0), value=True)[:, :-1]  # a token or nothing stands before it
    jump = sentence_ids - F.pad(sentence_ids, (1, 0), value=-1)[:, :-1]
    is_right = (follows & (sentence_ids >= 0) & (jump >= 0) & (jump <= 1)).where(is_token, sentence_ids == -1)
    is_right[:, 0] &= is_token[:, 0]
    for document, position in (~is_right).nonzero()[:1].tolist():
        rule = "ids are 0, 1, 2, ... in reading order without gaps, and -1 at padding, which is on the right"
        place = f"position {position} of document {document} has sentence id {sentence_ids[document, position]}"
        raise ValueError(f"{place}; {rule}")
