"""What masked heads may attend to: labels from the reference, or from a trained tagger (Sections 4.1 and 5)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from .masking import keep_at_least
from .model import Tagger, token_f1
from .oracle import Span, oracle_labels, token_labels, word_spans
from .sweep import Document
from .text import encode_document, transfer_scores


class Selector(NamedTuple):
    """A trained tagger."""

    name: str
    tagger: Tagger
    tokenizer: PreTrainedTokenizerBase  # of the tagger's encoder
    threshold: float  # in [0, 1)
    max_source: int  # tokens; what stands beyond them has score 0
    trained_on: int | None  # documents; None = not known


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
def tag(selector: Selector, examples: Sequence, batch_size: int = 16) -> list[Tagged]:
    """Scores of all documents, in batches of like length; `examples` have a `source`."""
    from tqdm import tqdm

    texts = [encode_document(selector.tokenizer, example.source, selector.max_source) for example in examples]
    by_length = sorted(range(len(texts)), key=lambda i: len(texts[i].ids))
    found: list[Tagged | None] = [None] * len(texts)
    device, pad = next(selector.tagger.parameters()).device, selector.tokenizer.pad_token_id
    for start in tqdm(range(0, len(texts), batch_size), f"tags of {selector.name}", unit="batch", leave=False):
        numbers = by_length[start : start + batch_size]
        lengths = torch.tensor([len(texts[i].ids) for i in numbers], device=device)
        keep = torch.arange(int(lengths.max()), device=device) < lengths.unsqueeze(-1)  # (B, S)
        ids = [texts[i].ids + [pad] * (keep.size(1) - len(texts[i].ids)) for i in numbers]
        scores = selector.tagger(torch.tensor(ids, device=device), keep).sigmoid().tolist()
        for i, row in zip(numbers, scores, strict=True):
            found[i] = Tagged(row[: len(texts[i].ids)], texts[i].offsets)
    return found


def tagging_quality(
    selector: Selector, examples: Sequence, tagged: Sequence[Tagged], labels: Labels
) -> dict[str, float]:
    """Token F1 in percent against the oracle labels, tokens without text left out; and that of tagging every token."""
    scores, truth = [], []
    for example, each in zip(examples, tagged, strict=True):
        spans = oracle_labels(example.source, example.target, labels.method, labels.min_run)
        is_text = [start < end for start, end in each.offsets]
        scores += [score for score, real in zip(each.scores, is_text, strict=True) if real]
        truth += [label for label, real in zip(token_labels(spans, each.offsets), is_text, strict=True) if real]
    scores, truth = torch.tensor(scores), torch.tensor(truth)
    share = truth.float().mean().item()
    return {
        "trained_on": selector.trained_on,
        "threshold": selector.threshold,
        "token_f1": 100 * token_f1(scores, truth, selector.threshold),
        "token_f1_of_all": 100 * 2 * share / (1 + share),
        "positive_share": 100 * share,
        "predicted_share": 100 * (scores > selector.threshold).float().mean().item(),
        "tokens": len(scores),
    }


def kept(scores: Sequence[float], threshold: float, min_keep: int, seed: int) -> list[bool]:
    """`keep_at_least` of one document; what it draws at random depends on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    return keep_at_least(torch.tensor([scores]), threshold, min_keep=min_keep, generator=generator)[0].tolist()


def kind_of(selector: Selector) -> str:
    """The name of a tagger's labels in a Setting."""
    return f"system:{selector.name}"


def read_documents(
    tokenizer: PreTrainedTokenizerBase,
    max_source: int,
    examples: Sequence,
    labels: Labels,
    tagged: Sequence[tuple[Selector, Sequence[Tagged]]] = (),
) -> tuple[list[Document], list[list[Span]], int]:
    """Documents as the summariser reads them, with oracle masks and those of the taggers.

    Args:
        tokenizer, max_source: the summariser's.
        examples: with `source` and `target`.
        tagged: what `tag` returned, with its tagger.
    Returns:
        the documents; the offsets of their tokens; how many had to be cut.
    """
    documents, offsets, cut = [], [], 0
    for i, example in enumerate(examples):
        text = encode_document(tokenizer, example.source, max_source)
        spans = oracle_labels(example.source, example.target, labels.method, labels.min_run)
        oracle = [float(label) for label in token_labels(spans, text.offsets)]
        keep = {"oracle": kept(oracle, 0.0, labels.min_keep, i)}
        for selector, of_all in tagged:
            words = word_spans(example.source)
            scores = transfer_scores(of_all[i].scores, of_all[i].offsets, words, text.offsets)
            keep[kind_of(selector)] = kept(scores, selector.threshold, labels.min_keep, i)
        documents.append(Document(text.ids, keep))
        offsets.append(text.offsets)
        cut += text.was_cut
    return documents, offsets, cut
