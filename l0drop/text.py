"""Text -> token ids -> batches: tokenizer, part-of-speech tags, patterns, and the stream of training batches."""

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from tqdm import tqdm

from . import patterns
from .model import BOS, EOS, PAD

Span = tuple[int, int, str]  # first character, end (exclusive), Penn tag of a token
CHUNK = 1000  # examples that are tokenised at a time


def train_tokenizer(texts: Iterable[str], units: str, vocabulary: int) -> Tokenizer:
    """Joint byte-pair encoding of words with their leading blank; "char" is the same without any merge.

    A word ends after 1,000 characters: the time of merging grows with the square of its length.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(Regex(r"▁?(?:\w{1,1000}|[^\w▁])"), "isolated")]
    )
    tokenizer.decoder = decoders.Metaspace()
    size = vocabulary if units == "bpe" else 0  # the alphabet is kept whatever the size
    special = ["<pad>", "<s>", "</s>", "<unk>"]  # the ids of model.py
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    # A "<pad>" or "</s>" that stands in a text is text: of the special tokens, only <unk> is looked for there.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] == "<unk>"]
    return Tokenizer.from_str(json.dumps(state))


class Item(NamedTuple):
    """One example as token ids, EOS included."""

    source: list[int]
    target: list[int]
    rule_keep: list[bool]  # False where a pattern drops the encoding
    was_cut: bool


class Rows:
    """Lists of numbers in one flat array: 4 bytes a token, where a list takes 36."""

    def __init__(self, kind: str):
        self.flat, self.ends = array(kind), array("q", [0])

    def append(self, row: Sequence[int]) -> None:
        self.flat.extend(row)
        self.ends.append(len(self.flat))

    def __getitem__(self, index: int) -> list[int]:
        return self.flat[self.ends[index] : self.ends[index + 1]].tolist()


class Items:
    """A list of `Item`, kept in flat arrays, as a corpus of millions of pairs needs."""

    def __init__(self):
        self.columns = Rows("i"), Rows("i"), Rows("b"), array("b")  # as the fields of Item

    def append(self, item: Item) -> None:
        for column, value in zip(self.columns, item, strict=True):
            column.append(value)

    def __len__(self) -> int:
        return len(self.columns[-1])

    def __getitem__(self, index: int) -> Item:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return Item(*(column[index] for column in self.columns))


def unit_starts(tokenizer: Tokenizer, source: str) -> list[int]:
    """Offset of the first character of every source token, its leading blank not counted, EOS not included."""
    offsets = tokenizer.encode(source).offsets
    return [start + source[start:end][:1].isspace() for start, end in offsets]


def label_spans(pieces: Sequence[str], labels: Sequence) -> list[Span]:
    """(start, end, label) of each piece in the text that joining them by blanks gives."""
    spans, end = [], 0
    for piece, label in zip(pieces, labels, strict=True):
        spans.append((end, end + len(piece), label))
        end += len(piece) + 1
    return spans


def source_types(tokenizer: Tokenizer, source: str, spans: list[Span]) -> tuple[list[str], list[str]]:
    """Unit type and tag of every source token, EOS not included (see patterns.py)."""
    words = tokenizer.encode(source).word_ids
    tags = patterns.tags_of_units(unit_starts(tokenizer, source), spans)
    tags = ["" if word is None else tag for word, tag in zip(words, tags, strict=True)]  # "": a pretrained model's <s>
    return patterns.unit_types(words, tags), tags


def tag_sources(examples: Sequence, folder: str = "") -> list[list[Span]]:
    """(start, end, Penn tag) of each source's tokens: from the corpus where it has tags, else from Stanza."""
    if all(example.pos for example in examples):
        return [label_spans(example.source.split(" "), sum(example.pos, [])) for example in examples]
    try:
        import stanza
    except ImportError as error:
        raise ImportError("sources without tags need Stanza: pip install stanza") from error
    options = {"processors": "tokenize,pos", "download_method": None, "verbose": False}
    try:
        nlp = stanza.Pipeline("en", **options, **({"dir": folder} if folder else {}))
    except Exception as error:  # Stanza raises several types of its own
        download, where = "stanza.download('en', processors='tokenize,pos')", folder or "its default folder"
        message = f'no Stanza English models in {where}: run python -c "import stanza; {download}" or --stanza FOLDER'
        raise ValueError(message) from error
    documents = nlp.bulk_process([stanza.Document([], text=example.source) for example in examples])
    return [[(t.start_char, t.end_char, t.words[0].xpos) for s in d.sentences for t in s.tokens] for d in documents]


def encode_examples(
    examples: Sequence,
    tokenizer: Tokenizer,
    max_source: int,
    max_target: int,
    pattern: str = "none",
    dropped: set[int] | tuple = (),
    stanza: str = "",
    end: int = EOS,
) -> Items:
    """Token ids, cut to size, with the pattern's choice of encodings.

    Args:
        examples: `shared.data.Example`s.
        max_source, max_target: longest result, EOS included.
        pattern: one of `patterns.PATTERNS`.
        dropped: set of the token ids that a frequency pattern drops; see `patterns.dropped_by_frequency`.
        stanza: folder of Stanza models, for the "pos" pattern on sources without tags.
        end: the token that ends every text.
    """
    spans = tag_sources(examples, stanza) if pattern == "pos" else [None] * len(examples)
    items, cut = Items(), max_source - 1
    for start in tqdm(range(0, len(examples), CHUNK), desc="tokenising", leave=False, disable=None):
        chunk = examples[start : start + CHUNK]
        sources = tokenizer.encode_batch([example.source for example in chunk])
        targets = tokenizer.encode_batch([example.target for example in chunk])
        for i, example in enumerate(chunk):
            source = sources[i].ids
            keep = [token not in dropped for token in source]
            if pattern == "pos":
                keep = patterns.keep_pos(*source_types(tokenizer, example.source, spans[start + i]))
            elif pattern == "group":
                keep = patterns.keep_group(len(source))
            target = targets[i].ids[: max_target - 1] + [end]
            # D9: EOS is always kept.
            items.append(Item(source[:cut] + [end], target, keep[:cut] + [True], was_cut=len(source) > cut))
    return items


def dropped_units(examples: Sequence, tokenizer: Tokenizer, pattern: str) -> set[int]:
    """Token ids that a frequency pattern drops, counted on the training sources; empty for other patterns."""
    if pattern not in patterns.SHARES:
        return set()
    sources = [encoding.ids for encoding in tokenizer.encode_batch([example.source for example in examples])]
    return patterns.dropped_by_frequency(sources, patterns.SHARES[pattern], rarest=pattern == "inv_freq")


class Batch(NamedTuple):
    source: Tensor  # (B, S)
    target_input: Tensor  # (B, T), BOS first
    target: Tensor  # (B, T), EOS last
    rule_keep: Tensor  # (B, S)


def collate(items: Sequence[Item], device: torch.device | str = "cpu", pad: int = PAD, start: int = BOS) -> Batch:
    """A batch, padded with `pad`; `start` begins every target input."""

    def stack(rows: list[list[int]], value: int, kind: torch.dtype = torch.long) -> Tensor:
        width = max(map(len, rows))
        return torch.tensor([row + [value] * (width - len(row)) for row in rows], dtype=kind, device=device)

    return Batch(
        stack([item.source for item in items], pad),
        stack([[start] + item.target[:-1] for item in items], pad),
        stack([item.target for item in items], pad),
        stack([item.rule_keep for item in items], False, torch.bool),
    )


class TokenBatches:
    """Endless lists of item indices: the batch sampler of a `DataLoader`.

    An epoch sorts the corpus by length, ties in random order, cuts it into batches of at most `batch_tokens` padded
    target tokens, and shuffles the batches. The cuts depend on lengths alone, so every epoch has as many batches.
    """

    def __init__(self, items: Sequence[Item], batch_tokens: int, seed: int):
        self.batch_tokens, self.seed = batch_tokens, seed
        self.lengths = np.array([(len(item.target), len(item.source)) for item in items], dtype=np.int32)

    def __iter__(self) -> Iterator[list[int]]:
        for epoch in count():
            yield from self.epoch(epoch)

    def epoch(self, number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        by_length = np.lexsort((rng.random(len(self.lengths)), self.lengths[:, 1], self.lengths[:, 0])).tolist()
        batches = [[]]
        for index in by_length:
            if batches[-1] and self.lengths[index, 0] * (len(batches[-1]) + 1) > self.batch_tokens:
                batches.append([])
            batches[-1].append(index)
        return [batches[i] for i in rng.permutation(len(batches))]
