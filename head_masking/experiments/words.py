"""The words that a tagger selects, as summaries: Section 5 gives their ROUGE-1.

python -m head_masking.experiments.words TAGGER DATA > words.jsonl                   test split; rows for shared.score
"""

import json
import sys

from shared.data import load
from shared.run import one_line_errors
from shared.score import system_name

from ..loading import load_run, name_of
from ..oracle import word_spans
from ..tagger import Tagged
from ..text import transfer_scores


def selected_words(source: str, tagged: Tagged) -> str:
    """The words that a tagger scores above its decision boundary, as a text."""
    spans = word_spans(source)
    scores = transfer_scores(tagged.scores, tagged.offsets, spans, spans)
    return " ".join(source[a:b] for (a, b), score in zip(spans, scores, strict=True) if score > tagged.threshold)


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    folder, data = arguments or sys.argv[1:]
    run, examples = load_run(folder), load(data, "test")
    known = {"seed": run.config.seed, "system": system_name(name_of(folder), run.config.seed)}
    for example, tagged in zip(examples, run.tag([example.source for example in examples]), strict=True):
        row = {"id": example.id, "prediction": selected_words(example.source, tagged), "was_cut": tagged.was_cut}
        print(json.dumps(row | {"references": example.references} | known), flush=True)


if __name__ == "__main__":
    main()
