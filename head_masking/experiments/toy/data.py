"""Stories of four facts from the toy corpus, two of which belong into the summary: the corpus of the toy results.

python -m head_masking.experiments.toy.data runs/facts --signal 0 0.5 1

OUT/SIGNAL/ holds train.jsonl, validation.jsonl and test.jsonl. With signal 1 the verb of each sentence tells whether
its fact matters ("confirmed", "guessed"), with signal 0 nothing does: there one can learn to copy, not what to tell.
"""

import re
from argparse import ArgumentParser
from pathlib import Path

from shared.data import Example
from shared.run import one_line_errors
from shared.toy import CERTAIN, SPLITS, UNCERTAIN, ToyConfig, generate

from ..samsum.data import write

KNOBS = dict(names=10, min_sentences=8, max_sentences=8, min_facts=2, max_facts=2, other_facts=2, repetition=0)


def facts_of(story: Example, verbatim: bool = False) -> dict:
    """A toy story without its filling: the sentences that tell facts, and the summary."""
    told = [n for n, text in enumerate(story.document) if {*CERTAIN, *UNCERTAIN} & set(text.split())]
    summary = story.summary
    if verbatim:  # "officials confirmed that X on Monday ." -> "X ."
        facts = [story.document[n].split(" that ", 1)[1] for n in told if story.salient[n]]
        summary = [re.split(r" on | , because | \.$", fact)[0] + " ." for fact in facts]
    parts = {"document": [story.document[n] for n in told], "pos": [story.pos[n] for n in told]}
    return parts | {"id": story.id, "summary": summary}


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--signal", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--verbatim", action="store_true", help="repeat the facts word for word: easier to learn")
    parser.add_argument("--count", type=int)
    options = parser.parse_args(arguments)
    for signal in options.signal:
        knobs = ToyConfig(signal=signal, **KNOBS)
        splits = {split: generate(split, options.count, knobs) for split in SPLITS}
        rows = {split: [facts_of(story, options.verbatim) for story in stories] for split, stories in splits.items()}
        write(options.out / f"{signal:g}", **rows)
        print(options.out / f"{signal:g}")


if __name__ == "__main__":
    main()
