"""What masked heads may attend to: labels from the reference, or from a trained tagger (Sections 4.1 and 5)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from .masking import keep_at_least
from .oracle import Span, oracle_labels, token_labels, word_spans
from .text import transfer_scores


class Tagged(NamedTuple):
    """What a tagger, or a person, says of a document."""

    scores: Sequence[float]  # of the tagger's own tokens, in [0, 1]
    offsets: Sequence[Span]  # of these tokens
    threshold: float  # the decision boundary
    was_cut: bool = False  # the tagger read only its begin


def selected_words(text: str, tagged: Tagged) -> str:
    """The words that a tagger selects, as a text: Section 5 gives its ROUGE-1."""
    spans = word_spans(text)
    scores = transfer_scores(tagged.scores, tagged.offsets, spans, spans)
    return " ".join(text[a:b] for (a, b), score in zip(spans, scores, strict=True) if score > tagged.threshold)


def tagging_counts(tagged: Tagged, source: str, target: str, min_run: int = 1) -> dict[str, list[int]]:
    """Pairs [part, whole] of one document against its oracle labels, in tokens that have text.

    The sum of the parts over that of the wholes is the measure of a corpus; "f1_of_all" is that of tagging all tokens.
    """
    spans = oracle_labels(source, target, min_run)
    tokens = zip(tagged.scores, token_labels(spans, tagged.offsets), tagged.offsets, strict=True)
    pairs = [(score > tagged.threshold, label) for score, label, (start, end) in tokens if start < end]
    predicted, true = (sum(column) for column in zip(*pairs, strict=True))
    hits = sum(is_predicted and label for is_predicted, label in pairs)
    return {
        "token_f1": [2 * hits, predicted + true],
        "precision": [hits, predicted],
        "recall": [hits, true],
        "selected": [predicted, len(pairs)],
        "f1_of_all": [2 * true, len(pairs) + true],
    }


def kept(scores: Sequence[float], threshold: float, min_keep: int, seed: int) -> list[bool]:
    """`keep_at_least` of one document; what it draws at random depends on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    return keep_at_least(torch.tensor([scores]), threshold, min_keep=min_keep, generator=generator)[0].tolist()
