"""Text -> token ids with their places in the text, and what is known of one tokenizer's tokens for another's."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .model import word_scores
from .oracle import Span, overlaps

SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}  # ids 0-3, as in BART


# Same as encdec_sentence_sparse/text.py:train_tokenizer
def train_tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Byte-level byte-pair encoding in BART's manner: `<s> text </s>`, a word's leading blank belongs to it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


class Encoded(NamedTuple):
    """A text as tokens."""

    ids: list[int]  # (S,) special tokens included
    offsets: list[Span]  # (S,) first character and end of each token; (0, 0) for special tokens
    was_cut: bool


def encode_document(tokenizer: PreTrainedTokenizerBase, text: str, max_length: int) -> Encoded:
    """Token ids and offsets, cut to at most `max_length` tokens; a "</s>" that stands in the text is text.

    Raises:
        ValueError: a tokenizer that knows no offsets, or one that finds no token in the text.
    """
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} gives no offsets: load the model's fast tokenizer")
    ids_and_offsets = tokenizer(text, return_offsets_mapping=True, split_special_tokens=True, verbose=False)
    was_cut = len(ids_and_offsets["input_ids"]) > max_length
    if was_cut:
        ids_and_offsets = tokenizer(
            text, return_offsets_mapping=True, split_special_tokens=True, truncation=True, max_length=max_length
        )
    offsets = [tuple(offset) for offset in ids_and_offsets["offset_mapping"]]
    if not any(start < end for start, end in offsets):
        raise ValueError(f"no token in the document {text[:40]!r}: leave it out")
    return Encoded(ids_and_offsets["input_ids"], offsets, was_cut)


def transfer_scores(
    scores: Sequence[float], offsets: Sequence[Span], spans: Sequence[Span], target_offsets: Sequence[Span]
) -> list[float]:
    """Scores of one tokenizer's tokens -> scores of another's, through the words of the text.

    D8: a word has the highest score of its pieces, as released, and gives it to its pieces in the other tokenizer.
    Special tokens, and tokens that share no character with a scored word, have 0.

    Args:
        scores, offsets: of the tagger's tokens.
        spans: the words, `oracle.word_spans(text)`.
        target_offsets: of the summariser's tokens.
    """
    of_words = word_scores(scores, overlaps(spans, offsets), len(spans))
    return [max((of_words[word] for word in words), default=0.0) for words in overlaps(spans, target_offsets)]


# What is trained on


class Item(NamedTuple):
    """A document to train on."""

    source: list[int]  # (S,) token ids
    target: list[int]  # (T,) token ids of the summary, or (S,) the oracle label of each source token
    was_cut: bool
    states: Tensor | None = None  # (S, D) the frozen encoder's, where they are made once


class Batch(NamedTuple):
    source: Tensor  # (B, S), padded on the right
    keep: Tensor  # (B, S) True at real tokens
    target: Tensor  # (B, T), or (B, S) of labels; -100 at padding
    states: Tensor | None  # (B, S, D), 0 at padding


def collate(items: Sequence[Item], padding: int) -> Batch:
    def pad(rows: list[list[int]], value: int) -> Tensor:
        return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)

    return Batch(
        pad([item.source for item in items], padding),
        pad([[1] * len(item.source) for item in items], 0).bool(),
        pad([item.target for item in items], -100),
        None if items[0].states is None else pad_sequence([item.states for item in items], batch_first=True),
    )


class LengthBatches:
    """Endless lists of item indices, each of documents of like length: the batch sampler of a `DataLoader`."""

    def __init__(self, items: Sequence[Item], batch_size: int, seed: int):
        self.lengths, self.batch_size, self.seed = np.array([len(item.source) for item in items]), batch_size, seed
        self.per_epoch = -(-len(items) // batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        for number in count():
            yield from self.epoch(number)

    def epoch(self, number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        by_length = np.argsort(self.lengths * rng.uniform(0.8, 1.2, len(self.lengths)), kind="stable").tolist()
        batches = [by_length[i : i + self.batch_size] for i in range(0, len(by_length), self.batch_size)]
        return [batches[i] for i in rng.permutation(len(batches))]
