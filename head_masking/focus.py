"""Which source words the heads look at while a summary is written (Section 4.3; Figures 4, 8, 9 and 10)."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from .oracle import Span, overlaps, word_spans

CONTENT_TAGS = ("NN", "VB", "JJ", "RB")  # begins of the Penn tags of nouns, verbs, adjectives and adverbs
CATEGORIES = ("copy_salient", "non_copy_salient", "copy_content", "non_copy_content", "first", "last")


class Reading(NamedTuple):
    """A document, what the model made of it, and what it should have made."""

    source: str
    ids: Sequence[int]  # (S,) its tokens, special ones included
    offsets: Sequence[Span]  # (S,) first character and end of each token; (0, 0) for special tokens
    summary: Sequence[int]  # (T + 1,) the generated tokens, from the decoder's start token on
    reference: str
    tags: Sequence[tuple[int, int, str]] | None = None  # (first character, end, Penn tag) of words; None = unknown


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
        found, steps = tally(attended, reading, generated_words(tokenizer, reading.summary))
        for category, count in found.items():
            counts[category] = counts.get(category, 0) + count
        pieces += steps
    has_tags = all(reading.tags is not None for reading in readings)
    known = [category for category in (*CATEGORIES, "special") if has_tags or "content" not in category]
    return {category: 100 * counts[category] / max(pieces, 1) for category in known}


@torch.inference_mode()
def attendees(model: nn.Module, readings: Sequence[Reading], batch_size: int = 8) -> Iterator[np.ndarray]:
    """(L, H, T) for every reading: the source position to which the step that emits summary[t + 1] attends most."""
    with eager(model):
        for start in range(0, len(readings), batch_size):
            batch = readings[start : start + batch_size]
            inputs = [reading.summary[:-1] for reading in batch]  # the query that reads token t emits token t + 1
            output = model(
                input_ids=pad([reading.ids for reading in batch], model.config.pad_token_id, model.device),
                attention_mask=pad([[1] * len(reading.ids) for reading in batch], 0, model.device),
                decoder_input_ids=pad(inputs, model.config.pad_token_id, model.device),
                output_attentions=True,
                use_cache=False,
            )
            most = torch.stack([layer.argmax(-1) for layer in output.cross_attentions], 1)  # (B, L, H, T)
            for row, read in zip(most.cpu().numpy(), inputs, strict=True):
                yield row[..., : len(read)]


@contextmanager
def eager(model: nn.Module) -> Iterator[None]:
    """Inside the `with` the model returns attention weights: sdpa has none to return, and does not say so."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def pad(rows: Sequence[Sequence[int]], value: int, device: torch.device) -> torch.Tensor:
    """(B, longest), padded on the right."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows], device=device)


def generated_words(tokenizer, summary: Sequence[int]) -> list[str | None]:
    """(T,) for each generated token, the start token left out, the word that it is a piece of; None if of none."""
    tokens = summary[1:]
    texts = [tokenizer.decode(tokens[:count], skip_special_tokens=True) for count in range(len(tokens) + 1)]
    ends = [len(text) for text in texts]
    spans = word_spans(texts[-1])
    words = overlaps(spans, list(zip(ends, ends[1:], strict=False)))
    return [texts[-1][slice(*spans[found[0]])].lower() if found else None for found in words]


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


def content_words(spans: Sequence[Span], tags: Sequence[tuple[int, int, str]]) -> list[bool]:
    """For each word whether it overlaps a tag of a noun, verb, adjective or adverb."""
    return [any(tags[tag][2].startswith(CONTENT_TAGS) for tag in found) for found in overlaps(tags, spans)]


def place_tags(source: str, tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """(first character, end, tag) of the words of a text that blanks part."""
    return [(*match.span(), tag) for match, tag in zip(re.finditer(r"\S+", source), tags, strict=True)]


def stanza_tags(sources: Sequence[str], folder: str = "") -> list[list[tuple[int, int, str]]]:
    """(first character, end, Penn tag) of every text's words, by Stanza.

    Args:
        folder: of Stanza's models; empty = its default.
    Raises:
        ImportError, ValueError: Stanza or its English models are not there.
    """
    try:
        import stanza
    except ImportError as error:
        raise ImportError("--stanza needs the package: pip install stanza") from error
    where = {"dir": folder} if folder else {}
    try:
        nlp = stanza.Pipeline("en", processors="tokenize,pos", download_method=None, verbose=False, **where)
    except Exception as error:  # Stanza raises several types of its own
        raise ValueError(
            f'no Stanza English models in {folder or "its default folder"}: run python -c "import stanza; '
            "stanza.download('en', processors='tokenize,pos')\" or give --stanza FOLDER"
        ) from error
    documents = nlp.bulk_process([stanza.Document([], text=source) for source in sources])
    return [[(t.start_char, t.end_char, t.words[0].xpos) for s in d.sentences for t in s.tokens] for d in documents]
