"""From documents to summaries: what train.py (in validation), evaluate.py and predict.py share."""

import numpy as np
import torch

from .documents import Corpus, Document, collate
from .model import Summarizer
from .selection import join_units, select


@torch.inference_mode()
def score_documents(model: Summarizer, corpus: Corpus, batch_size: int = 32) -> list[np.ndarray]:
    """Score of every unit of every document, in the order of the corpus; the model is put into eval mode."""
    model.eval()
    by_length = sorted(range(len(corpus.documents)), key=lambda i: len(corpus.documents[i].units))
    scores: list[np.ndarray] = [np.empty(0)] * len(by_length)
    for start in range(0, len(by_length), batch_size):
        indices = by_length[start : start + batch_size]
        batch = collate(corpus, indices, next(model.parameters()).device)
        for row, i in zip(model(batch.units, batch.keep, batch.matrix).float().cpu().numpy(), indices, strict=True):
            scores[i] = row[: len(corpus.documents[i].units)]
    return scores


def extract(document: Document, scores: np.ndarray, config) -> list[str]:
    """The summary that some scores give, as a list of sentences; `config` is a `TrainConfig`."""
    lengths = [len(unit.split()) for unit in document.units]
    taken = select(scores, document.required, config.count, lengths, config.max_words)
    return join_units(document.units, document.sentence, taken)


def extract_all(model: Summarizer, corpus: Corpus, config) -> list[list[str]]:
    """The summaries of a corpus."""
    pairs = zip(corpus.documents, score_documents(model, corpus), strict=True)
    return [extract(document, scores, config) for document, scores in pairs]
