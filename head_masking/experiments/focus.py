"""Which source words the heads look at while a summary is written (Section 4.3; Figures 4, 8, 9 and 10)."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from shared.run import in_windows

from ..loading import Summarizer
from ..oracle import WORD, overlaps, word_spans
from ..predict import decode
from ..text import Document, length

CONTENT_TAGS = ("NN", "VB", "JJ", "RB")  # begins of the Penn tags of nouns, verbs, adjectives and adverbs


def attention_focus(run: Summarizer, examples: Sequence, documents: Sequence[Document]) -> list[dict]:
    """Section 4.3: percentages of the kinds of attendees, the words with the highest attention weight, of every head.

    D9: where a word has several pieces, each generated piece counts, with the word that it belongs to.
    A row for each head: layer, head, the categories of `tally`; no CONTENT unless all examples have `pos`.
    """
    pieces, counts = 0, Counter()
    decoded = in_windows(documents, list, length, partial(decode, run.model), 32)
    for example, (document, summary) in zip(examples, decoded, strict=True):
        written = generated_words(run.tokenizer, summary)
        counts.update(tally(attendees(run.model, document.ids, summary), example, document, written))
        pieces += sum(word is not None for word in written)
    has_tags = all(example.pos for example in examples)
    shares = {kind: 100 * count / max(pieces, 1) for kind, count in counts.items() if has_tags or "content" not in kind}
    heads = np.ndindex(shares["special"].shape)
    return [{"layer": i + 1, "head": h} | {kind: float(s[i, h]) for kind, s in shares.items()} for i, h in heads]


@torch.inference_mode()
def attendees(model: torch.nn.Module, ids: Sequence[int], summary: Sequence[int]) -> np.ndarray:
    """(L, H, T) the source position to which the step that emits summary[t + 1] attends most."""
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")  # sdpa has no weights to return, and does not say so
    source, inputs = (torch.tensor([row], device=model.device) for row in (ids, summary[:-1]))
    # The query that reads token t emits token t + 1.
    weights = model(source, decoder_input_ids=inputs, output_attentions=True).cross_attentions
    model.set_attn_implementation(implementation)
    return torch.stack([layer[0].argmax(-1) for layer in weights]).cpu().numpy()


def generated_words(tokenizer, summary: Sequence[int]) -> list[str | None]:
    """(T,) for each generated token, the start token left out, the word that it is a piece of; None if of none."""
    tokens = summary[1:]
    texts = [tokenizer.decode(tokens[:count], skip_special_tokens=True) for count in range(len(tokens) + 1)]
    ends, spans = [len(text) for text in texts], word_spans(texts[-1])
    words = overlaps(spans, list(zip(ends, ends[1:], strict=False)))
    return [texts[-1][slice(*spans[of_token[0]])].lower() if of_token else None for of_token in words]


def tally(attended: np.ndarray, example, document: Document, written: Sequence[str | None]) -> dict[str, np.ndarray]:
    """(L, H) how often each head's attendee x, of (L, H, T), is of each category while the word y is written.

    SALIENT: x is a word of the reference; CONTENT: by its part of speech; COPY: x is y; FIRST, LAST of the document;
    "special": no word, such as `<s>`. Words are compared in lower case; a y that is None is not counted.
    """
    spans, reference = word_spans(example.source), {*WORD.findall(example.target.lower())}
    # One entry more, for tokens that are of no word: no category has it.
    names = np.array([*WORD.findall(example.source.lower()), None], dtype=object)
    is_salient = np.array([name in reference for name in names])
    pairs = zip(re.finditer(r"\S+", example.source), sum(example.pos or [], []), strict=bool(example.pos))
    tags = [(*match.span(), tag) for match, tag in pairs]
    tags_of_word = [[tags[n][2] for n in own] for own in overlaps(tags, spans)]
    is_content = np.array([any(tag.startswith(CONTENT_TAGS) for tag in own) for own in [*tags_of_word, []]])
    word_of_token = np.array([own[0] if own else len(spans) for own in overlaps(spans, document.offsets)])
    seen = word_of_token[word_of_token < len(spans)]  # a document that was cut ends before its last word

    counted = [t for t, word in enumerate(written) if word is not None]
    word = word_of_token[attended[..., counted]]  # (L, H, steps)
    is_copy = names[word] == np.array([written[t] for t in counted], dtype=object)
    kinds = {"copy_salient": is_salient[word] & is_copy, "non_copy_salient": is_salient[word] & ~is_copy}
    kinds |= {"copy_content": is_content[word] & is_copy, "non_copy_content": is_content[word] & ~is_copy}
    kinds |= {"first": word == seen.min(), "last": word == seen.max(), "special": word == len(spans)}
    return {kind: found.sum(-1) for kind, found in kinds.items()}
