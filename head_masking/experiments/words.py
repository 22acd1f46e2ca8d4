"""The words that a tagger selects, as summaries, and how many of them the reference takes (Section 5).

python -m head_masking.experiments.words TAGGER DATA > words.jsonl                   test split; rows for shared.score
"""

import json
import sys

from shared.data import load
from shared.run import one_line_errors
from shared.score import system_name

from ..labels import Tagged
from ..loading import load_run, name_of
from ..oracle import oracle_labels, token_labels, word_spans
from ..text import transfer_scores


def selected_words(source: str, tagged: Tagged) -> str:
    """The words that a tagger selects, as a text: Section 5 gives its ROUGE-1."""
    spans = word_spans(source)
    scores = transfer_scores(tagged.scores, tagged.offsets, spans, spans)
    return " ".join(source[a:b] for (a, b), score in zip(spans, scores, strict=True) if score > tagged.threshold)


def tagging_counts(tagged: Tagged, source: str, target: str, min_run: int = 1) -> dict[str, list[int]]:
    """Pairs [part, whole] of one document against its oracle labels, in tokens that have text; a corpus sums them."""
    spans = oracle_labels(source, target, min_run)
    tokens = zip(tagged.scores, token_labels(spans, tagged.offsets), tagged.offsets, strict=True)
    pairs = [(score > tagged.threshold, label) for score, label, (start, end) in tokens if start < end]
    predicted, true = (sum(column) for column in zip(*pairs, strict=True))
    hits = sum(is_predicted and label for is_predicted, label in pairs)
    names = ("token_f1", "precision", "recall", "selected")
    counts = ([2 * hits, predicted + true], [hits, predicted], [hits, true], [predicted, len(pairs)])
    return dict(zip(names, counts, strict=True))


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    if len(given := sys.argv[1:] if arguments is None else arguments) != 2:
        raise ValueError("give a tagger's run and a data set")
    run, examples = load_run(given[0]), load(given[1], "test")
    known = {"seed": run.config.seed, "system": system_name(name_of(given[0]), run.config.seed)}
    for example, tagged in zip(examples, run.tag([example.source for example in examples]), strict=True):
        row = {"id": example.id, "prediction": selected_words(example.source, tagged), "was_cut": tagged.was_cut}
        row |= tagging_counts(tagged, example.source, example.target, run.config.min_run)
        print(json.dumps(row | {"references": example.references} | known), flush=True)


if __name__ == "__main__":
    main()
