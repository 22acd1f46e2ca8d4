"""From documents to summaries: what train.py (in validation), evaluate.py and predict.py share."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from tqdm import tqdm

from .documents import Corpus, Document, collate, make_documents, prepare
from .model import Summarizer, extraction_loss
from .selection import join_units, select
from .units import UnitEncoder


def read_corpus(examples: Sequence, config, encoder: UnitEncoder, cache: str = "") -> Corpus:
    """Documents with oracles, unit vectors and, for tree attention, matrices; `config` is a `TrainConfig`."""
    documents = make_documents(tqdm(examples, desc="oracles", leave=False, disable=None), config)
    return prepare(documents, config, encoder, cache)


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


def extract_all(documents: Sequence[Document], scores: Sequence[np.ndarray], config) -> list[list[str]]:
    """The summaries of some documents."""
    return [extract(document, row, config) for document, row in zip(documents, scores, strict=True)]


def mean_loss(documents: Sequence[Document], scores: Sequence[np.ndarray], positive_weight: float) -> float:
    """The training loss a unit."""
    labels = torch.from_numpy(np.concatenate([document.labels for document in documents]))
    scores = torch.from_numpy(np.concatenate(scores))
    return extraction_loss(scores, labels, torch.ones_like(labels), positive_weight).item() / len(labels)


def same_positions(scores: Sequence[np.ndarray], count: int) -> tuple[list[int], float]:
    """The positions that are most often the `count` best, from 1, and the share of the longer documents where they are.

    A share near 1 tells of a model that does not read: it takes, say, the first three sentences of everything.
    """
    best = [tuple(sorted(np.argsort(-row)[:count] + 1)) for row in scores if len(row) > count]
    ((positions, times),) = Counter(best).most_common(1) or [((), 0)]
    return list(map(int, positions)), times / max(len(best), 1)
