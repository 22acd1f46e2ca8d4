"""What masked heads may attend to: labels from the reference, or from a trained tagger (Sections 4.1 and 5)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from .masking import keep_at_least
from .oracle import Span, oracle_labels, token_labels, word_spans
from .tagger import token_f1
from .text import transfer_scores


class Labels(NamedTuple):
    """How oracle labels and masks are made."""

    method: str = "runs"  # of oracle.METHODS
    min_run: int = 1  # words
    min_keep: int = 5  # released code: what a masked head sees at least
    flips: tuple[float, ...] = ()  # also oracle labels of which these shares of words are flipped at random

    def oracles(self) -> dict[str, float]:
        """Kind of oracle labels -> share of the words whose label is flipped."""
        return {"oracle": 0.0} | {f"oracle-{share:g}": share for share in self.flips}


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


def tagging_quality(tagged: Sequence[Tagged], examples: Sequence, labels: Labels) -> dict[str, float]:
    """Percentages of the tokens that have text, against the oracle labels; "token_f1_of_all": of tagging them all."""
    pairs = []  # score and label of each token
    for example, (scores, offsets, *_) in zip(examples, tagged, strict=True):
        spans = oracle_labels(example.source, example.target, labels.method, labels.min_run)
        tokens = zip(scores, token_labels(spans, offsets), offsets, strict=True)
        pairs += [(score, label) for score, label, (start, end) in tokens if start < end]
    scores, truth = (torch.tensor(column) for column in zip(*pairs, strict=True))
    threshold = tagged[0].threshold
    predicted, share = scores > threshold, truth.float().mean().item()
    hits = (predicted & truth).sum().item()
    return {
        "threshold": threshold,
        "token_f1": 100 * token_f1(scores, truth, threshold),
        "token_f1_of_all": 100 * 2 * share / (1 + share),
        "precision": 100 * hits / max(predicted.sum().item(), 1),
        "recall": 100 * hits / max(truth.sum().item(), 1),
        "positive_share": 100 * share,
        "predicted_share": 100 * predicted.float().mean().item(),
        "tokens": len(scores),
    }


def kept(scores: Sequence[float], threshold: float, min_keep: int, seed: int) -> list[bool]:
    """`keep_at_least` of one document; what it draws at random depends on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    return keep_at_least(torch.tensor([scores]), threshold, min_keep=min_keep, generator=generator)[0].tolist()
