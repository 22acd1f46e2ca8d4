"""Text -> token ids and the sentence of each token -> batches."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
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
    """Byte-level BPE in BART's manner: `<s> text </s>`, a word's leading blank belongs to it.

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


class Tokens(NamedTuple):
    """A text in the tokens of a tokenizer."""

    ids: list[int]  # (S,)
    offsets: list[tuple[int, int]]  # (S,) first character of each and the one behind its last
    is_special: list[int]  # (S,) 1 for `<s>` and `</s>`
    was_cut: bool


class Batch(NamedTuple):
    """Items side by side, padded."""

    ids: Tensor  # (B, S)
    attention_mask: Tensor  # (B, S) 1 = token
    sentence_ids: Tensor  # (B, S) -1 at padding
    # (B, T). D6: -100 at padding, which no loss counts (released code: 0, which they count).
    # D19: the decoder reads </s> and then these, as in generation (released code: without </s>).
    labels: Tensor

    def source(self) -> dict[str, Tensor]:
        """Arguments of `forward` and `generate`."""
        return {
            "input_ids": self.ids,
            "attention_mask": self.attention_mask,
            "sentence_ids": self.sentence_ids,
        }


def encode(tokenizer: PreTrainedTokenizerBase, document: Sequence[str], max_length: int) -> Item:
    """A document of sentences as at most `max_length` tokens with their sentences (D9)."""
    return encode_all(tokenizer, [document], max_length)[0]


def encode_all(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[Sequence[str]],
    max_length: int,
    summaries: Sequence[str] | None = None,
    max_summary: int = 0,
) -> list[Item]:
    """`encode` of many documents, with their summaries in at most `max_summary` tokens.

    ValueError: a document of one string, or one in which the tokenizer finds no token; a tokenizer
    that adds no end.
    """
    if any(isinstance(document, str) for document in documents):
        raise ValueError("the document is one string: give a list of its sentences")
    items = []
    for start in tqdm(range(0, len(documents), 1000), desc="tokenising", disable=None, leave=False):
        part = documents[start : start + 1000]
        sources = tokenize(tokenizer, [" ".join(document) for document in part], max_length)
        for document, source in zip(part, sources, strict=True):
            if all(source.is_special):
                text = " ".join(document)
                raise ValueError(f"no token in the document {text[:40]!r}: leave it out")
            ids = array("i", source.ids)
            sentence_ids = array("i", token_sentence_ids(source, document))
            items.append(Item(ids, sentence_ids, source.was_cut))
    if not summaries:
        return items
    targets = tokenize(tokenizer, summaries, max_summary)
    return [
        item._replace(target=array("i", target.ids), target_was_cut=target.was_cut)
        for item, target in zip(items, targets, strict=True)
    ]


def tokenize(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int
) -> Iterator[Tokens]:
    """Texts as tokens, cut to the first `max_length - 1` and `</s>`; a "</s>" in a text is text."""
    encoded = tokenizer(
        list(texts),
        verbose=False,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        split_special_tokens=True,
    )
    names = ("input_ids", "offset_mapping", "special_tokens_mask")
    for ids, offsets, is_special in zip(*(encoded[name] for name in names), strict=True):
        if is_special[-1:] != [1]:
            raise ValueError(
                "the tokenizer adds no </s> to a text: give it a post-processor that does, and "
                "save it"
            )
        was_cut = len(ids) > max_length
        if was_cut:
            ids = ids[: max_length - 1] + ids[-1:]
            offsets = offsets[: max_length - 1] + offsets[-1:]
            is_special = is_special[: max_length - 1] + is_special[-1:]
        yield Tokens(ids, offsets, is_special, was_cut)


def token_sentence_ids(tokens: Tokens, document: Sequence[str]) -> list[int]:
    """The sentence of each token: 0, 1, ... without gaps.

    Sentences without a token are not counted. A token belongs to the sentence of its last
    character, and what stands between two sentences to the one before. `<s>` belongs to the first.

    Args:
        tokens: of the document's sentences, joined by blanks.
    """
    starts = [0]  # the first character of each sentence
    for sentence in document[:-1]:
        starts.append(starts[-1] + len(sentence) + 1)
    ids = []
    number = -1  # sentences with a token before this one, minus 1
    current = -1
    for (_, end), is_special in zip(tokens.offsets, tokens.is_special, strict=True):
        place = bisect_right(starts, end - 1) - 1
        if not is_special and place > current:
            current = place
            number += 1
        ids.append(max(number, 0))
    # D7: what the tokenizer adds behind the text, `</s>`, is a sentence of its own, which counts
    # toward r.
    last = max(i for i, is_special in enumerate(tokens.is_special) if not is_special)
    for i in range(last + 1, len(ids)):
        ids[i] = number + 1
    return ids


def collate(items: Sequence[Item], padding: int, device: torch.device | str = "cpu") -> Batch:
    """Items as one batch; `padding` is the id of <pad>."""

    def pad(rows: list[Sequence[int]], value: int) -> Tensor:
        tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=value).to(device)

    return Batch(
        ids=pad([item.ids for item in items], padding),
        attention_mask=pad([[1] * len(item.ids) for item in items], 0),
        sentence_ids=pad([item.sentence_ids for item in items], -1),
        labels=pad([item.target for item in items], -100),
    )
