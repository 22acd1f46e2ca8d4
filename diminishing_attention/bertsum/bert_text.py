"""Text of BERTSum: documents and summaries as word pieces."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from ..text import Item, Items, pad

TARGET_TOKENS = ("[unused0]", "[unused1]", "[unused2]")  # begin, end, between sentences (released PreSumm)


class TargetIds(NamedTuple):
    """Special tokens of summaries."""

    bos: int
    eos: int
    between: int
    pad: int


def target_ids(tokenizer) -> TargetIds:
    """The ids of TARGET_TOKENS and of padding; ValueError: the tokenizer does not know them, or BERT's own."""
    ids = [tokenizer.convert_tokens_to_ids(token) for token in TARGET_TOKENS]
    own = (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id)
    if None in own or any(i in (None, tokenizer.unk_token_id) for i in ids):
        raise ValueError(f"the tokenizer lacks {', '.join(TARGET_TOKENS)}, padding or [CLS]: take a BERT's")
    return TargetIds(*ids, tokenizer.pad_token_id)


def make_tokenizer(texts: Iterable[str], size: int, longest: int):
    """A lower-casing WordPiece tokenizer in BERT's manner, for a new encoder: characters and the most frequent words.

    The trainer of `tokenizers` is not used: it breaks ties at random, so that no run could be repeated.
    """
    from transformers import BertTokenizer

    bert = BertTokenizer(vocab={"[UNK]": 0}).backend_tokenizer
    split = (bert.pre_tokenizer.pre_tokenize_str(bert.normalizer.normalize_str(text)) for text in texts)
    counts = Counter(word for row in split for word, _ in row)
    letters = sorted({letter for word in counts for letter in word})
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TARGET_TOKENS)
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters)]
    rest = [word for word in sorted(counts, key=lambda word: (-counts[word], word)) if word not in set(pieces)]
    known = [*pieces, *rest[: max(size - len(pieces), 0)]]
    return BertTokenizer(vocab={piece: i for i, piece in enumerate(known)}, model_max_length=longest)


def save(tokenizer, folder: Path) -> None:
    """Write the folder's tokenizer/."""
    tokenizer.save_pretrained(folder / "tokenizer")


def load(folder: Path):
    """Read what `save` wrote; ValueError where it is not there or cut off."""
    return load_pretrained("AutoTokenizer", str(Path(folder, "tokenizer")))


def load_pretrained(kind: str, name: str, **keywords):
    """`transformers.KIND.from_pretrained(name)`; no code of a model folder ever runs. ValueError: it does not load."""
    import transformers

    transformers.logging.set_verbosity_error()  # what an encoder lacks is checked in encoder.py
    transformers.logging.disable_progress_bar()
    try:
        return getattr(transformers, kind).from_pretrained(name, trust_remote_code=False, **keywords)
    except Exception as error:  # transformers and the hub raise a dozen unrelated types
        remedy = "make it again" if Path(name).exists() else f"give a folder, or: HF_HUB_OFFLINE=0 hf download {name}"
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"cannot load {name!r} ({reason[0]}): {remedy}") from error


def encode_examples(examples: Sequence, tokenizer, max_source: int, max_target: int) -> Items:
    """`shared.data.Example`s, their documents in sentences, as token ids: [CLS] sentence [SEP] [CLS] sentence [SEP] ...

    Args:
        max_source: tokens, at least 3; a cut document still ends in [SEP].
        max_target: tokens of the summary, begin and end included.
    """
    special, cls, sep = target_ids(tokenizer), tokenizer.cls_token_id, tokenizer.sep_token_id

    def encode(example) -> Item:
        # D22: short sentences stay, for a turn of a dialogue is one; PreSumm drops those of up to five words.
        source = [token for ids in pieces_of(tokenizer, example.document) for token in (cls, *ids, sep)]
        was_cut = len(source) > max_source
        if was_cut:
            source = source[: max_source - 1]
            while source[-1] in (cls, sep):  # a sentence has a word at least
                source.pop()
            source.append(sep)
        target = [token for ids in pieces_of(tokenizer, example.summary) for token in (special.between, *ids)]
        return Item(source, [special.bos, *target[1 : max_target - 1], special.eos], [], was_cut)

    return Items(map(encode, tqdm(examples, "encoding", leave=False, disable=None)))


def pieces_of(tokenizer, sentences: Sequence[str]) -> list[list[int]]:
    """Token ids of each sentence, without special ones."""
    return tokenizer(list(sentences), add_special_tokens=False, verbose=False)["input_ids"]


class Batch(NamedTuple):
    """Items as tensors, padded on the right with 0, which nothing reads."""

    source: Tensor  # (B, S)
    segments: Tensor  # (B, S) 0 in the first sentence, 1 in the second, 0 in the third, ...
    keep: Tensor  # (B, S) bool, False at padding
    starts: Tensor  # (B, N) where the [CLS] of each sentence stands
    keep_sentences: Tensor  # (B, N) bool
    target_in: Tensor  # (B, T) begin, words
    target_out: Tensor  # (B, T) words, end
    keep_target: Tensor  # (B, T) bool


def collate(items: Sequence[Item], device: torch.device | str = "cpu") -> Batch:
    """Items -> tensors on the device."""
    source, keep = pad((item.source for item in items), device)
    is_start = (source == source[:, :1]) & keep  # a document begins with [CLS]
    starts, keep_sentences = pad((row.nonzero().flatten().tolist() for row in is_start), device)
    target_in, _ = pad((item.target[:-1] for item in items), device)
    target_out, keep_target = pad((item.target[1:] for item in items), device)
    segments = (is_start.cumsum(1) - 1) % 2 * keep
    return Batch(source, segments, keep, starts, keep_sentences, target_in, target_out, keep_target)


def never(tokenizer) -> tuple[int, ...]:
    """Tokens that decoding does not write."""
    return (tokenizer.pad_token_id, tokenizer.unk_token_id)


def decode(tokenizer, item: Item, ids: Sequence[int]) -> str:
    """Token ids of an output -> text, its sentences parted by line breaks."""
    special, sentences = target_ids(tokenizer), [[]]
    for token in ids:
        if token == special.between:
            sentences.append([])
        elif token not in special:
            sentences[-1].append(token)
    return "\n".join(tokenizer.decode(sentence) for sentence in sentences if sentence)
