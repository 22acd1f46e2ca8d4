"""Text -> token ids with their places, one tokenizer's scores for another's, and batches."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .oracle import Span, overlaps

# ids 0-3, as in BART
SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


# Same as encdec_sentence_sparse/text.py:train_tokenizer
def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Byte-level byte-pair encoding in BART's manner: `<s> text </s>`, blanks lead their words.

    Words are cut at 1,000 characters: merging takes time with the square of their length.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    settings = dict(
        special_tokens=list(SPECIAL.values()), initial_alphabet=letters, show_progress=False
    )
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, **settings)
    tokenizer.train_from_iterator((re.sub(r"\S{1000}", r"\g<0> ", text) for text in texts), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


class Document(NamedTuple):
    """A text as a model reads it."""

    ids: list[int]  # (S,) special tokens included
    offsets: list[Span]  # (S,) first character and end of each token; (0, 0) for special tokens
    was_cut: bool
    # (S,) True = masked heads may attend to this token; empty: nothing is masked
    keep: Sequence[bool] = ()


def encode_documents(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int
) -> list[Document]:
    """Token ids and offsets, cut to at most `max_length` tokens; "</s>" in a text is text.

    ValueError: a tokenizer that finds no token in a text.
    """
    parts = tokenizer(
        list(texts), max_length=max_length, truncation=True, return_overflowing_tokens=True,
        return_offsets_mapping=True, split_special_tokens=True,
    )  # fmt: skip
    # what was cut off follows as parts of its own
    counts = Counter(parts["overflow_to_sample_mapping"])
    first, documents = 0, []
    for number, text in enumerate(texts):
        offsets = [tuple(offset) for offset in parts["offset_mapping"][first]]
        if not any(start < end for start, end in offsets):
            raise ValueError(f"no token in the document {text[:40]!r}: leave it out")
        documents.append(Document(parts["input_ids"][first], offsets, was_cut=counts[number] > 1))
        first += counts[number]
    return documents


def transfer_scores(
    scores: Sequence[float],
    offsets: Sequence[Span],
    spans: Sequence[Span],
    target_offsets: Sequence[Span],
) -> list[float]:
    """Scores of one tokenizer's tokens -> scores of another's, through the words of the text.

    D8: a word has the highest score of its pieces, as released, and gives it to its pieces in the
    other tokenizer. Special tokens, and tokens that share no character with a scored word, have 0.
    `spans` are the words' places.
    """
    highest = [0.0] * len(spans)
    for score, words in zip(scores, overlaps(spans, offsets), strict=True):
        for word in words:
            highest[word] = max(highest[word], score)
    touched = overlaps(spans, target_offsets)
    return [max((highest[word] for word in words), default=0.0) for words in touched]


def pad(rows: Iterable[Sequence[int]], value: int) -> Tensor:
    """(B, longest), padded on the right."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


def padded(
    rows: Sequence[Sequence[int]], value: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Token ids (B, S), and keep (B, S), True at real tokens."""
    keep = pad([[True] * len(row) for row in rows], False)
    return pad(rows, value).long().to(device), keep.to(device)


class Item(NamedTuple):
    """A document to learn from."""

    ids: array  # of "i", special tokens included
    labels: array  # 1 at the tokens that the summary takes
    was_cut: bool


class Batch(NamedTuple):
    """Items padded to one length."""

    ids: Tensor  # (B, S)
    labels: Tensor  # (B, S) bool
    keep: Tensor  # (B, S) True at real tokens
