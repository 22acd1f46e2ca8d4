"""Text -> token ids and the sentence of each token."""

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .sentences import Splitter, eos_token_sentences, given_spans, split_sentences, token_sentence_ids

SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}  # ids 0-3, as in BART


# Same as head_masking/text.py:train_tokenizer
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
    """A document as tokens."""

    ids: list[int]  # (S,) special tokens included
    sentence_ids: list[int]  # (S,) 0, 1, ... without gaps
    was_cut: bool


def encode(
    tokenizer: PreTrainedTokenizerBase, document: str | Sequence[str], max_length: int, splitter: Splitter
) -> Encoded:
    """Tokens of a document with their sentences, cut to at most `max_length` tokens.

    Args:
        document: a text, or its sentences. By the rule "given" a text is one sentence; the others see no difference.
    Raises:
        ValueError: a tokenizer that knows no offsets, or one that finds no token in the document.
    """
    sentences = [document] if isinstance(document, str) else document
    text = " ".join(sentences)
    found, was_cut = tokenize(tokenizer, text, max_length)
    ids, is_special = found["input_ids"], found["special_tokens_mask"]
    if all(is_special):
        raise ValueError(f"no token in the document {text[:40]!r}: leave it out")
    if splitter.rule == "eos-token":
        return Encoded(ids, eos_token_sentences(ids, splitter.eos_ids), was_cut)
    spans = given_spans(sentences) if splitter.rule == "given" else split_sentences(text, splitter)
    return Encoded(ids, token_sentence_ids(found["offset_mapping"], spans, is_special, splitter.eos), was_cut)


def tokenize(tokenizer: PreTrainedTokenizerBase, text: str, max_length: int) -> tuple[dict, bool]:
    """Ids, offsets and marks of special tokens of a text, and whether it was cut; a "</s>" in the text is text."""
    if not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} gives no offsets: load the model's fast tokenizer")
    wanted = dict(return_offsets_mapping=True, return_special_tokens_mask=True, split_special_tokens=True)
    found = tokenizer(text, verbose=False, **wanted)
    was_cut = len(found["input_ids"]) > max_length
    if was_cut:
        found = tokenizer(text, truncation=True, max_length=max_length, **wanted)
    return found, was_cut


def ending_ids(tokenizer: PreTrainedTokenizerBase, ending: str) -> tuple[int, ...]:
    """The id of the token that ends a sentence by the released rule, from its text: "." or, after a blank, " .".

    Raises:
        ValueError: the tokenizer has no such token.
    """
    found = tokenizer.convert_tokens_to_ids(ending.replace(" ", "Ġ"))
    if found is None or found == tokenizer.unk_token_id:
        raise ValueError(f"the tokenizer has no token {ending!r} for sentence_end: give another, or --sentences nltk")
    return (found,)
