"""From documents to summaries: what evaluate.py and predict.py share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch

from .bertsum.bertsum import BertSumExt
from .loading import Run
from .run import Positive, Range
from .search import Hypotheses, beam_search
from .search_released import released_search
from .text import ngrams, split_words

DECODING = ("beam", "length_penalty", "average", "released", "trigram_blocking", "min_length", "max_length")


@dataclass(kw_only=True)
class Decoding:
    """Flags of decoding."""

    sentences: Positive = 3  # sentences of an extractive summary
    beam: Positive | None = None  # default: the run's, as below
    length_penalty: Annotated[float, Range(0, 10)] | None = None  # takes the place of the average
    average: bool | None = None  # takes the place of the length penalty
    released: bool | None = None
    trigram_blocking: bool | None = None
    min_length: int | None = None
    max_length: Positive | None = None
    batch_size: Positive = 16  # documents decoded at a time; outputs do not depend on it
    device: str = "cpu"

    def search(self) -> dict:
        """Those of DECODING that were given; ValueError: two that exclude each other."""
        if self.average and self.length_penalty:
            raise ValueError("--average True and --length-penalty exclude each other: leave one of them out")
        given = {name: value for name in DECODING if (value := getattr(self, name)) is not None}
        other = {"average": False} if self.length_penalty else {"length_penalty": 0.0} if self.average else {}
        return other | given


class Output(NamedTuple):
    """What decoding one document gave."""

    text: str
    was_cut: bool  # the document, to the run's max_source


def decode(
    run: Run, examples: Sequence, batch_size: int = 16, sentences: int = 3, **search
) -> Iterator[tuple[int, Output]]:
    """Summaries, decoded in batches of similar length; yields (index, output) as they are done.

    Args:
        examples: documents in sentences.
        sentences: of an extractive summary.
        search: beam, length_penalty, ...: DECODING; the run's own values by default.
    """
    options = {name: getattr(run.config, name) for name in DECODING} | search
    items, device = run.encode(examples), next(run.model.parameters()).device
    by_length = sorted(range(len(items)), key=lambda i: len(items[i].source))
    for start in range(0, len(items), batch_size):
        indices = by_length[start : start + batch_size]
        batch = run.text.collate([items[i] for i in indices], device)
        if isinstance(run.model, BertSumExt):
            chosen = [examples[i] for i in indices]
            texts = extract(run.model, batch, chosen, sentences, options["trigram_blocking"])
        else:
            outputs = search_batch(run, batch, **options).tokens
            pairs = zip(indices, outputs, strict=True)
            texts = [run.text.decode(run.tokenizer, items[i], tokens) for i, tokens in pairs]
        for i, text in zip(indices, texts, strict=True):
            yield i, Output(text, items[i].was_cut)


def search_batch(run: Run, batch: NamedTuple, released: bool, **options) -> Hypotheses:
    """Best outputs of a batch by the search of this repository, or of the code that the run's model comes from."""
    # D10: a blocked trigram is of tokens, in BERTSum of word pieces. D21: <unk> is never written.
    options["never"] = run.text.never(run.tokenizer)
    if released:
        return released_search(run.model, batch, presumm=run.config.model != "pointer", **options)
    return beam_search(run.model, batch, **options)


@torch.inference_mode()
def extract(model: BertSumExt, batch, examples: Sequence, count: int, trigram_blocking: bool) -> list[str]:
    """The `count` most probable sentences of each document in their order; with blocking, no trigram twice."""
    texts = []
    for row, keep, example in zip(model.probabilities(batch), batch.keep_sentences, examples, strict=True):
        taken, seen = [], set()
        for i in row[keep].argsort(descending=True, stable=True).tolist():
            trigrams = set(ngrams(split_words(example.document[i]), 3))
            if len(taken) < count and not (trigram_blocking and trigrams & seen):
                taken.append(i)
                seen |= trigrams
        texts.append("\n".join(example.document[i] for i in sorted(taken)))
    return texts
