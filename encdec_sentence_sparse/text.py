"""Text -> token ids and the sentence of each token -> batches."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

# ids 0-3, as in BART
SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Byte-level byte-pair encoding in BART's manner: `<s> text </s>`, a word's leading blank
    belongs to it.

    It learns from words of up to 1,000 characters: the time of merging grows with the square of
    their length.
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
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


class Item(NamedTuple):
    """A document, and its summary in training, as token ids."""

    ids: array  # (S,) special tokens included
    sentence_ids: array  # (S,) 0, 1, ... without gaps
    was_cut: bool
    target: array = array("i")  # (T,)
    target_was_cut: bool = False


class Batch(NamedTuple):
    """Items side by side, padded."""

    ids: Tensor  # (B, S)
    attention_mask: Tensor  # (B, S) 1 = token
    sentence_ids: Tensor  # (B, S) -1 at padding
    # (B, T). D6: -100 at padding, which no loss counts (released code: 0, which they count). D19:
    # the
    labels: Tensor
    # decoder reads </s> and then these, as in generation (released code: without </s>)

    def source(self) -> dict[str, Tensor]:
        """Arguments of `forward` and `generate`."""
        return {
            "input_ids": self.ids,
            "attention_mask": self.attention_mask,
            "sentence_ids": self.sentence_ids,
        }


def encode(tokenizer: PreTrainedTokenizerBase, document: Sequence[str], max_length: int) -> Item:
    """Tokens of a document, given in sentences, with their sentences, cut to at most `max_length`
    tokens (D9).
    """
    return encode_all(tokenizer, [document], max_length)[0]


def encode_all(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[Sequence[str]],
    max_length: int,
    summaries: Sequence[str] | None = None,
    max_summary: int = 0,
) -> list[Item]:
    """`encode` of many documents, with their summaries in at most `max_summary` tokens; a thousand
    at a time.

    ValueError: a document of one string, or one in which the tokenizer finds no token; a tokenizer
    that adds no end.
    """
    if any(isinstance(document, str) for document in documents):
        raise ValueError("the document is one string: give a list of its sentences")
    items = []
    for start in tqdm(range(0, len(documents), 1000), desc="tokenising", disable=None, leave=False):
        part = documents[start : start + 1000]
        sources = tokenize(tokenizer, [" ".join(document) for document in part], max_length)
        for document, (ids, offsets, is_special, was_cut) in zip(part, sources, strict=True):
            if all(is_special):
                raise ValueError(
                    f"no token in the document {' '.join(document)[:40]!r}: leave it out"
                )
            starts = list(accumulate((len(sentence) + 1 for sentence in document[:-1]), initial=0))
            sentence_ids = token_sentence_ids(offsets, starts, is_special)
            items.append(Item(array("i", ids), array("i", sentence_ids), was_cut))
    if not summaries:
        return items
    targets = tokenize(tokenizer, summaries, max_summary)
    pairs = zip(items, targets, strict=True)
    return [
        item._replace(target=array("i", ids), target_was_cut=was_cut)
        for item, (ids, *_, was_cut) in pairs
    ]


def tokenize(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int
) -> Iterator[tuple]:
    """Texts as tokens, cut to their first `max_length - 1` and `</s>`; a "</s>" in a text is text.

    Yields:
        for each: ids, offsets and is_special as `token_sentence_ids` takes them, and whether it was
            cut.
    """
    options = dict(
        return_offsets_mapping=True, return_special_tokens_mask=True, split_special_tokens=True
    )
    encoded = tokenizer(list(texts), verbose=False, **options)
    if not all(row[-1:] == [1] for row in encoded["special_tokens_mask"]):
        raise ValueError(
            "the tokenizer adds no </s> to a text: give it a post-processor that does, and save it"
        )
    columns = (encoded[name] for name in ("input_ids", "offset_mapping", "special_tokens_mask"))
    for column in zip(*columns, strict=True):
        was_cut = len(column[0]) > max_length
        yield *([*row[: max_length - 1], row[-1]] if was_cut else row for row in column), was_cut


def token_sentence_ids(
    offsets: Sequence[tuple[int, int]], starts: Sequence[int], is_special: Sequence[int]
) -> list[int]:
    """The sentence of each token: 0, 1, ... without gaps; sentences without a token are not
    counted.

    A token belongs to the sentence of its last character, and what stands between two sentences to
    the one before. `<s>` belongs to the first.

    Args:
        offsets: (S,) first character of each token and the one behind its last; starts: first one
            of each sentence.
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


def collate(items: Sequence[Item], padding: int, device: torch.device | str = "cpu") -> Batch:
    """Items as one batch; `padding` is the id of <pad>."""

    def pad(rows: Iterable[Sequence[int]], value: int) -> Tensor:
        tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=value).to(device)

    ids = pad((item.ids for item in items), padding)
    attention_mask = pad(([1] * len(item.ids) for item in items), 0)
    sentence_ids = pad((item.sentence_ids for item in items), -1)
    return Batch(ids, attention_mask, sentence_ids, pad((item.target for item in items), -100))
