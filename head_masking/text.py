"""Text -> token ids with their places in the text, and what is known of one tokenizer's tokens for another's."""

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
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
