"""What masked heads may attend to: labels from the reference, or from a trained tagger (Sections 4.1 and 5)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from .masking import keep_at_least
from .model import Tagger, token_f1
from .oracle import Span, oracle_labels, token_labels, word_spans
from .sweep import Document
from .text import encode_document, transfer_scores


class Labels(NamedTuple):
    """How oracle labels and masks are made."""

    method: str = "runs"  # of oracle.METHODS
    min_run: int = 1  # words
    min_keep: int = 5  # released code: what a masked head sees at least


class Tagged(NamedTuple):
    """What a tagger says of a document."""

    scores: list[float]  # of the tagger's own tokens, in [0, 1]
    offsets: list[Span]  # of these tokens


@torch.inference_mode()
def tag(
    tagger: Tagger, tokenizer: PreTrainedTokenizerBase, max_source: int, texts: Sequence[str], batch_size: int = 16
) -> list[Tagged]:
    """Scores of all texts, in batches of like length; what stands beyond `max_source` tokens has none."""
    from tqdm import tqdm

    documents = [encode_document(tokenizer, text, max_source) for text in texts]
    by_length = sorted(range(len(texts)), key=lambda i: len(documents[i].ids))
    tagged: list[Tagged | None] = [None] * len(texts)
    device, padding = next(tagger.parameters()).device, tokenizer.pad_token_id
    starts = range(0, len(texts), batch_size)
    for start in tqdm(starts, "tagging", unit="batch", leave=False, disable=len(starts) < 2):
        numbers = by_length[start : start + batch_size]
        lengths = torch.tensor([len(documents[i].ids) for i in numbers], device=device)
        keep = torch.arange(int(lengths.max()), device=device) < lengths.unsqueeze(-1)  # (B, S)
        ids = [documents[i].ids + [padding] * (keep.size(1) - len(documents[i].ids)) for i in numbers]
        scores = tagger(torch.tensor(ids, device=device), keep).sigmoid().tolist()
        for i, row in zip(numbers, scores, strict=True):
            tagged[i] = Tagged(row[: len(documents[i].ids)], documents[i].offsets)
    return tagged


def selected_words(text: str, tagged: Tagged, threshold: float) -> str:
    """The words that a tagger selects, as a text: Section 5 gives its ROUGE-1."""
    spans = word_spans(text)
    scores = transfer_scores(*tagged, spans, spans)
    return " ".join(text[a:b] for (a, b), score in zip(spans, scores, strict=True) if score > threshold)


def tagging_quality(tagged: Sequence[Tagged], threshold: float, examples: Sequence, labels: Labels) -> dict[str, float]:
    """Percentages against the oracle labels: F1, precision and recall of tokens, those without text left out.

    "token_f1_of_all" is the F1 of tagging every token.
    """
    scores, truth = [], []
    for example, of_example in zip(examples, tagged, strict=True):
        spans = oracle_labels(example.source, example.target, labels.method, labels.min_run)
        is_text = [start < end for start, end in of_example.offsets]
        scores += [score for score, real in zip(of_example.scores, is_text, strict=True) if real]
        truth += [x for x, real in zip(token_labels(spans, of_example.offsets), is_text, strict=True) if real]
    scores, truth = torch.tensor(scores), torch.tensor(truth)
    predicted = scores > threshold
    hits, share = (predicted & truth).sum().item(), truth.float().mean().item()
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


def kind_of(tagger: str) -> str:
    """The name of a tagger's labels in a Setting."""
    return f"system:{tagger}"


def read_documents(
    tokenizer: PreTrainedTokenizerBase,
    max_source: int,
    examples: Iterable,
    labels: Labels,
    tagged: Mapping[str, tuple[float, Sequence[Tagged]]] = {},
    oracle: bool = True,
) -> tuple[list[Document], list[list[Span]], int]:
    """Documents as the summariser reads them, with masks by the reference and by taggers.

    Args:
        tokenizer, max_source: the summariser's.
        examples: with `source` and `target`.
        tagged: name of a tagger -> its decision boundary, and what `tag` returned.
        oracle: make the masks by the reference, too.
    Returns:
        the documents; the offsets of their tokens; how many had to be cut.
    """
    documents, offsets, cut = [], [], 0
    for i, example in enumerate(examples):
        text, keep = encode_document(tokenizer, example.source, max_source), {}
        if oracle:
            spans = oracle_labels(example.source, example.target, labels.method, labels.min_run)
            scores = [float(label) for label in token_labels(spans, text.offsets)]
            keep["oracle"] = kept(scores, 0.0, labels.min_keep, i)
        for name, (threshold, of_all) in tagged.items():
            scores = transfer_scores(*of_all[i], word_spans(example.source), text.offsets)
            keep[kind_of(name)] = kept(scores, threshold, labels.min_keep, i)
        documents.append(Document(text.ids, keep))
        offsets.append(text.offsets)
        cut += text.was_cut
    return documents, offsets, cut
