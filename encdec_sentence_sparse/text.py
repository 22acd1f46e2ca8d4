"""Text -> token ids and the sentence of each token -> batches."""

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .sentences import RULES, given_spans, punkt_spans, token_sentence_ids

SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}  # ids 0-3, as in BART


# Same as head_masking/text.py:train_tokenizer
def train_tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Byte-level byte-pair encoding in BART's manner: `<s> text </s>`, a word's leading blank belongs to it.

    It learns from words of up to 1,000 characters: the time of merging grows with the square of their length.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((re.sub(r"\S{1000}", r"\g<0> ", text) for text in texts), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


class Item(NamedTuple):
    """A document, and its summary in training, as token ids."""

    ids: list[int]  # (S,) special tokens included
    sentence_ids: list[int]  # (S,) 0, 1, ... without gaps
    was_cut: bool
    target: list[int] = []  # (T,)


class Batch(NamedTuple):
    """Items side by side, padded."""

    ids: Tensor  # (B, S)
    attention_mask: Tensor  # (B, S) 1 = token
    sentence_ids: Tensor  # (B, S) -1 at padding
    labels: Tensor  # (B, T). D6: -100 at padding, which no loss counts (released code: 0, which they count). D19: the
    # decoder reads </s> and then these, as in generation (released code: without </s>)

    @property
    def exists(self) -> Tensor:
        """(B, N) bool, the sentences of each document."""
        last = self.sentence_ids.amax(1, keepdim=True)
        return torch.arange(int(last.max()) + 1, device=last.device) <= last

    def source(self) -> dict[str, Tensor]:
        """Arguments of `forward` and `generate`."""
        return {"input_ids": self.ids, "attention_mask": self.attention_mask, "sentence_ids": self.sentence_ids}

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(tensor.to(device) for tensor in self))


def encode(
    tokenizer: PreTrainedTokenizerBase, document: str | Sequence[str], max_length: int, rule: str = "given"
) -> Item:
    """Tokens of a document (its sentences, or a text) with their sentences, cut to at most `max_length` tokens (D9).

    Raises:
        ValueError: unknown rule; a text and the rule "given"; a tokenizer without offsets, or one that finds no token.
        ImportError: the rule "nltk" without NLTK.
    """
    if rule not in RULES:
        raise ValueError(f"sentences is {rule!r}; use one of {', '.join(RULES)}")
    if isinstance(document, str):
        if rule == "given":
            raise ValueError("the document is one string: give a list of its sentences, or the rule 'nltk'")
        document = [document]
    text = " ".join(document)
    encoded, was_cut = tokenize(tokenizer, text, max_length)
    ids, is_special = encoded["input_ids"], encoded["special_tokens_mask"]
    if all(is_special):
        raise ValueError(f"no token in the document {text[:40]!r}: leave it out")
    spans = given_spans(document) if rule == "given" else punkt_spans(text)
    return Item(ids, token_sentence_ids(encoded["offset_mapping"], spans, is_special), was_cut)


def tokenize(tokenizer: PreTrainedTokenizerBase, text: str, max_length: int) -> tuple[dict, bool]:
    """Ids, offsets and marks of special tokens of a text, and whether it was cut; a "</s>" in the text is text."""
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} gives no offsets: load the model's fast tokenizer")
    options = dict(return_offsets_mapping=True, return_special_tokens_mask=True, split_special_tokens=True)
    encoded = tokenizer(text, verbose=False, **options)
    was_cut = len(encoded["input_ids"]) > max_length
    if was_cut:
        encoded = tokenizer(text, truncation=True, max_length=max_length, **options)
    return encoded, was_cut


class Batches:
    """Endless lists of item indices, of documents of like length: the batch sampler of a `DataLoader`."""

    def __init__(self, items: Sequence[Item], batch_size: int, seed: int):
        self.batch_size, self.seed = batch_size, seed
        self.lengths = np.array([len(item.ids) for item in items])
        self.per_epoch = -(-len(items) // batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        for epoch in count():
            rng = np.random.default_rng((self.seed, epoch))
            by_length = np.argsort(self.lengths * rng.uniform(0.8, 1.2, len(self.lengths)), kind="stable").tolist()
            batches = [by_length[i : i + self.batch_size] for i in range(0, len(by_length), self.batch_size)]
            yield from (batches[i] for i in rng.permutation(len(batches)))


def collate(items: Sequence[Item], padding: int) -> Batch:
    """Items as one batch; `padding` is the id of <pad>."""
    return Batch(
        pad([item.ids for item in items], padding),
        pad([[1] * len(item.ids) for item in items], 0),
        pad([item.sentence_ids for item in items], -1),
        pad([item.target for item in items], -100),
    )


def pad(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """(B, longest), padded on the right."""
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=value)
