"""Which source words the heads look at while a summary is written (Section 4.3; Figures 4, 8, 9 and 10)."""

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from shared.run import in_windows

from ..loading import Summarizer
from ..oracle import Span, overlaps, word_spans
from ..predict import decode
from ..text import Document, length, pad, padded

CONTENT_TAGS = ("NN", "VB", "JJ", "RB")  # begins of the Penn tags of nouns, verbs, adjectives and adverbs
CATEGORIES = ("copy_salient", "non_copy_salient", "copy_content", "non_copy_content", "first", "last")
Tags = Sequence[tuple[int, int, str]]  # (first character, end, Penn tag) of the words of a text


class Reading(NamedTuple):
    """A document, what the model made of it, and what it should have made."""

    source: str
    ids: Sequence[int]  # (S,) its tokens, special ones included
    offsets: Sequence[Span]  # (S,) first character and end of each token; (0, 0) for special tokens
    summary: Sequence[int]  # (T + 1,) the generated tokens, from the decoder's start token on
    reference: str
    tags: Tags | None = None  # None = unknown


def attention_focus(model: nn.Module, tokenizer, readings: Sequence[Reading], batch_size: int = 8) -> dict:
    """Section 4.3: percentages of the kinds of attendees, the words with the highest attention weight, of every head.

    An attendee x is SALIENT if it is a word of the reference, CONTENT by its part of speech, FIRST or LAST in the
    document; the former two are COPY if x is the word y that is being generated, else NON-COPY. Words are compared in
    lower case. D9: where a word has several pieces, each generated piece counts, with the word that it belongs to.

    Returns:
        category -> (L, H) percentages of the generated pieces; the CONTENT ones only if all readings have tags; and
        "special", attendees that are no word, such as `<s>`.
    """
    counts, pieces = {}, 0
    for reading, attended in zip(readings, attendees(model, readings, batch_size), strict=True):
        of_reading, steps = tally(attended, reading, generated_words(tokenizer, reading.summary))
        counts = {category: counts.get(category, 0) + count for category, count in of_reading.items()}
        pieces += steps
    has_tags = all(reading.tags is not None for reading in readings)
    known = [category for category in (*CATEGORIES, "special") if has_tags or "content" not in category]
    return {category: 100 * counts[category] / max(pieces, 1) for category in known}


@torch.inference_mode()
def attendees(model: nn.Module, readings: Sequence[Reading], batch_size: int = 8) -> list[np.ndarray]:
    """(L, H, T) for every reading: the source position to which the step that emits summary[t + 1] attends most."""

    def attend(batch: Sequence[Reading]) -> list[np.ndarray]:
        padding, device = model.config.pad_token_id, model.device
        ids, keep = padded([reading.ids for reading in batch], padding, device)
        # The query that reads token t emits token t + 1.
        inputs = pad([reading.summary[:-1] for reading in batch], padding).to(device)
        settings = dict(output_attentions=True, use_cache=False)
        output = model(input_ids=ids, attention_mask=keep.long(), decoder_input_ids=inputs, **settings)
        most = torch.stack([layer.argmax(-1) for layer in output.cross_attentions], 1).cpu().numpy()  # (B, L, H, T)
        return [own[..., : len(reading.summary) - 1] for own, reading in zip(most, batch, strict=True)]

    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")  # sdpa has no weights to return, and does not say so
    try:
        return [own for _, own in in_windows(readings, list, length, attend, batch_size)]
    finally:
        model.set_attn_implementation(implementation)


def generated_words(tokenizer, summary: Sequence[int]) -> list[str | None]:
    """(T,) for each generated token, the start token left out, the word that it is a piece of; None if of none."""
    tokens = summary[1:]
    texts = [tokenizer.decode(tokens[:count], skip_special_tokens=True) for count in range(len(tokens) + 1)]
    ends = [len(text) for text in texts]
    spans = word_spans(texts[-1])
    words = overlaps(spans, list(zip(ends, ends[1:], strict=False)))
    return [texts[-1][slice(*spans[of_token[0]])].lower() if of_token else None for of_token in words]


def tally(attended: np.ndarray, reading: Reading, generated: Sequence[str | None]) -> tuple[dict[str, np.ndarray], int]:
    """How often each head's attendee is of each category.

    Args:
        attended: (L, H, T) source positions.
        generated: (T,) words, None = not counted.
    Returns:
        category -> (L, H) counts, and how many steps were counted.
    """
    spans = word_spans(reading.source)
    words = [reading.source[start:end].lower() for start, end in spans]
    in_reference = {reading.reference[start:end].lower() for start, end in word_spans(reading.reference)}
    # One entry more, for tokens that are of no word: no category has it.
    is_salient = np.array([word in in_reference for word in words] + [False])
    is_content = np.array(content_words(spans, reading.tags or ()) + [False])
    names = np.array([*words, None], dtype=object)
    word_of_token = np.array([found[0] if found else len(words) for found in overlaps(spans, reading.offsets)])
    seen = word_of_token[word_of_token < len(words)]  # a document that was cut ends before its last word

    counted = [t for t, word in enumerate(generated) if word is not None]
    word = word_of_token[attended[..., counted]]  # (L, H, steps)
    is_copy = names[word] == np.array([generated[t] for t in counted], dtype=object)
    kinds = {
        "copy_salient": is_salient[word] & is_copy,
        "non_copy_salient": is_salient[word] & ~is_copy,
        "copy_content": is_content[word] & is_copy,
        "non_copy_content": is_content[word] & ~is_copy,
        "first": word == seen.min(),
        "last": word == seen.max(),
        "special": word == len(words),
    }
    return {kind: found.sum(-1) for kind, found in kinds.items()}, len(counted)


# Parts of speech


def content_words(spans: Sequence[Span], tags: Tags) -> list[bool]:
    """For each word whether it overlaps a tag of a noun, verb, adjective or adverb."""
    return [any(tags[tag][2].startswith(CONTENT_TAGS) for tag in found) for found in overlaps(tags, spans)]


def place_tags(source: str, tags: Sequence[str]) -> Tags:
    """The tags of a text whose words are parted by blanks, with their places."""
    return [(*match.span(), tag) for match, tag in zip(re.finditer(r"\S+", source), tags, strict=True)]


def focus_rows(run: Summarizer, examples: Sequence, documents: Sequence[Document]) -> list[dict]:
    """Figures 4, 8, 9 and 10: a row per head; there is no CONTENT category unless all examples have `pos`."""
    decoded = in_windows(documents, list, length, partial(decode, run.model), 32)
    readings = [
        Reading(e.source, d.ids, d.offsets, summary, e.target, e.pos and place_tags(e.source, sum(e.pos, [])))
        for e, (d, summary) in zip(examples, decoded, strict=True)
    ]
    shares = attention_focus(run.model, run.tokenizer, readings)
    heads = np.ndindex(shares["special"].shape)
    return [{"layer": i + 1, "head": h} | {kind: float(s[i, h]) for kind, s in shares.items()} for i, h in heads]
