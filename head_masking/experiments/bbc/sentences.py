"""Masks of whole sentences: the first three, and the three to which a tagger's words give the highest mean score.

python -m head_masking.experiments.bbc.sentences RUN TRAIN DATA SPLIT HEADS TAGGER > rows.jsonl     for shared.score

Systems: what masks by itself, words, best-3, lead-3 and linear-3, which linear.py learns from TRAIN; then RUN+best and
RUN+linear, masked by the tagger's best three sentences and by those of linear.py, with one beam. Where HEADS is "none"
nothing is decoded.
"""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from shared import pretrained
from shared.data import Example, load
from shared.run import one_line_errors
from shared.score import system_name

from ...heads import find_heads
from ...labels import Tagged, by_tagger
from ...loading import Summarizer, load_model, load_run, name_of
from ...oracle import Span, word_spans
from ...predict import predict, read_documents
from ...text import Document
from ..words import selected_words, tagging_counts
from .linear import fit

LENGTH = 160  # tokens of a summary, at most


def spans_of(sentences: list[str]) -> list[Span]:
    """Where the sentences stand in the document as one string."""
    ends = np.cumsum([len(sentence) + 1 for sentence in sentences])
    return [(int(end) - len(sentence) - 1, int(end) - 1) for sentence, end in zip(sentences, ends, strict=True)]


def best(tagged: Tagged, sentences: list[str], count: int = 3) -> list[int]:
    """The sentences whose tokens have the highest mean score, in their order."""
    means = []
    for start, end in spans_of(sentences):
        scores = [s for s, (a, b) in zip(tagged.scores, tagged.offsets, strict=True) if start <= a < b <= end]
        means.append(np.mean(scores) if scores else 0.0)
    return sorted(np.argsort(means, kind="stable")[::-1][:count].tolist())


def whole(sentences: list[str], chosen: list[int]) -> Tagged:
    """What a tagger would say that selects these sentences."""
    text, spans = " ".join(sentences), [spans_of(sentences)[i] for i in chosen]
    words = word_spans(text)
    return Tagged([float(any(a <= start < b for a, b in spans)) for start, _ in words], words, 0.5)


def selections(examples: Sequence[Example], pick: Callable, words: Sequence[Tagged]) -> dict[str, list[list[int]]]:
    """The sentences of each document that each selector takes; "best" needs what a tagger says of the words."""
    chosen = {"lead": [[0, 1, 2]] * len(examples), "linear": [pick(example.document) for example in examples]}
    if words:
        chosen["best"] = [best(one, example.document) for example, one in zip(examples, words, strict=True)]
    return chosen


def masked_by(run: Summarizer, tagged: Mapping[str, Tagged], examples: Sequence[Example]) -> list[Document]:
    """Documents of which masked heads may see what is said of each id."""
    pairs = zip(examples, read_documents(run, examples), strict=True)
    return [document._replace(keep=by_tagger(e.source, tagged[e.id], document)) for e, document in pairs]


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    """Print a row for each document and system."""
    parser = ArgumentParser(description=__doc__)
    for name in ("run", "train", "data", "split", "heads", "tagger"):
        parser.add_argument(name)
    parser.add_argument("--threshold", type=float, help="of the tagger's words; default: its own")
    options = parser.parse_args(arguments)
    run, tagger, examples = load_model(options.run), load_run(options.tagger), load(options.data, options.split)
    if options.threshold is not None:
        tagger.model.threshold.fill_(options.threshold)

    def show(example: Example, row: dict) -> None:
        print(json.dumps(row | {"references": example.references, "seed": tagger.config.seed}), flush=True)

    words = tagger.tag([example.source for example in examples])
    chosen = selections(examples, fit(load(options.train, "train")), words)
    tagged = {kind: [whole(e.document, own) for e, own in zip(examples, chosen[kind], strict=True)] for kind in chosen}
    for kind, marks in ({"words": words} | tagged).items():
        for i, (example, one) in enumerate(zip(examples, marks, strict=True)):
            text, system = selected_words(example.source, one), kind
            if kind in chosen:
                text, system = "\n".join(example.document[n] for n in chosen[kind][i]), f"{kind}-3"
            row = {"id": example.id, "prediction": text, "system": system}
            show(example, row | tagging_counts(one, example.source, example.target))
    if options.heads == "none":
        return
    pretrained.generation(run.model, run.max_target, num_beams=1, max_length=LENGTH, no_repeat_ngram_size=3)
    for kind in ("best", "linear"):
        marks = dict(zip([example.id for example in examples], tagged[kind], strict=True))
        rows = predict(run, examples, partial(masked_by, run, marks), find_heads(options.heads, run.model))
        for example, row in zip(examples, rows, strict=True):
            show(example, row | {"system": f"{system_name(name_of(options.run), run.seed)}+{kind}"})


if __name__ == "__main__":
    main()
