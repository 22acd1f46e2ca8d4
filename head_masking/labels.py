"""What masked heads may attend to: labels from the reference, or from a trained tagger (Sections 4.1 and 5)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np
import torch

from .loading import Run
from .masking import keep_at_least
from .model import token_f1
from .oracle import Span, oracle_labels, token_labels, word_spans
from .text import Document, by_length, encode_document, transfer_scores


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
    """What a tagger says of a document."""

    scores: list[float]  # of the tagger's own tokens, in [0, 1]
    offsets: list[Span]  # of these tokens
    threshold: float  # the decision boundary


@torch.inference_mode()
def tag(run: Run, texts: Sequence[str], batch_size: int = 16) -> list[Tagged]:
    """What a tagger says of all texts; what stands beyond its `max_source` tokens has no score."""
    documents = [encode_document(run.tokenizer, text, run.config.max_source) for text in texts]
    threshold = run.model.threshold
    tagged: list = [None] * len(texts)
    rows, padding = [document.ids for document in documents], run.tokenizer.pad_token_id
    for numbers, ids, keep in by_length(rows, batch_size, padding, threshold.device):
        for i, scores in zip(numbers, run.model(ids, keep).sigmoid().tolist(), strict=True):
            tagged[i] = Tagged(scores[: len(rows[i])], documents[i].offsets, round(threshold.item(), 4))
    return tagged


def selected_words(text: str, tagged: Tagged) -> str:
    """The words that a tagger selects, as a text: Section 5 gives its ROUGE-1."""
    spans = word_spans(text)
    scores = transfer_scores(tagged.scores, tagged.offsets, spans, spans)
    return " ".join(text[a:b] for (a, b), score in zip(spans, scores, strict=True) if score > tagged.threshold)


def tagging_quality(tagged: Sequence[Tagged], examples: Sequence, labels: Labels) -> dict[str, float]:
    """Percentages of the tokens that have text, against the oracle labels; "token_f1_of_all": of tagging them all."""
    pairs = []  # score and label of each token
    for example, (scores, offsets, _) in zip(examples, tagged, strict=True):
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


def read_documents(
    run: Run, examples: Iterable, labels: Labels, tagged: Mapping[str, Sequence[Tagged]] = {}, oracle: bool = True
) -> list[Document]:
    """Documents as a summariser reads them, with masks by the reference and by taggers.

    Args:
        examples: with `source` and `target`.
        tagged: name of a tagger -> what `tag` returned; its masks are called system:NAME.
        oracle: make the masks by the reference, too.
    """
    documents = []
    for i, example in enumerate(examples):
        document, keep = encode_document(run.tokenizer, example.source, run.config.max_source), {}
        seed = crc32(example.source.encode())  # not the number: batches of one or of many documents give the same
        spans = oracle_labels(example.source, example.target, labels.method, labels.min_run) if oracle else []
        for kind, share in labels.oracles().items() if oracle else ():
            is_flipped = np.random.default_rng(seed).random(len(spans)) < share
            flipped = [(a, b, label != flip) for (a, b, label), flip in zip(spans, is_flipped, strict=True)]
            scores = [float(label) for label in token_labels(flipped, document.offsets)]
            keep[kind] = kept(scores, 0.0, labels.min_keep, seed)
        for name, of_all in tagged.items():
            scores, offsets, threshold = of_all[i]
            scores = transfer_scores(scores, offsets, word_spans(example.source), document.offsets)
            keep[f"system:{name}"] = kept(scores, threshold, labels.min_keep, seed)
        documents.append(document._replace(keep=keep))
    return documents


def kept(scores: Sequence[float], threshold: float, min_keep: int, seed: int) -> list[bool]:
    """`keep_at_least` of one document; what it draws at random depends on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    return keep_at_least(torch.tensor([scores]), threshold, min_keep=min_keep, generator=generator)[0].tolist()
