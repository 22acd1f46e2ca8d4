"""Stories of four facts from the toy corpus, two of which belong into the summary: the corpus of the toy results.

python -m head_masking.experiments.toy.data runs/facts --signal 0 0.5 1

OUT/SIGNAL/ holds train.jsonl, validation.jsonl and test.jsonl. With signal 1 the verb of each sentence tells whether
its fact matters ("confirmed", "guessed"), with signal 0 nothing does: there one can learn to copy, not what to tell.
--verbatim repeats the facts word for word, which is easier to learn.
"""

import re
from dataclasses import replace
from pathlib import Path

import tyro

from shared.data import Example
from shared.run import one_line_errors
from shared.toy import CERTAIN, SPLITS, UNCERTAIN, ToyConfig, generate

from ..samsum.data import write

KNOBS = dict(names=10, min_sentences=8, max_sentences=8, min_facts=2, max_facts=2, other_facts=2, repetition=0)


def facts_of(story: Example, verbatim: bool) -> Example:
    """A toy story without its filling: the sentences that tell facts, and the summary."""
    told = [n for n, text in enumerate(story.document) if {*CERTAIN, *UNCERTAIN} & set(text.split())]
    summary = story.summary
    if verbatim:  # "officials confirmed that X on Monday ." -> "X ."
        facts = [story.document[n].split(" that ", 1)[1] for n in told if story.salient[n]]
        summary = [re.split(r" on | , because | \.$", fact)[0] + " ." for fact in facts]
    document, tags = ([part[n] for n in told] for part in (story.document, story.pos))
    return replace(story, document=document, pos=tags, references=[summary])


def main(out: tyro.conf.Positional[Path], signal: tuple[float, ...] = (0.0, 1.0), verbatim: bool = False) -> None:
    for share in signal:
        knobs = ToyConfig(signal=share, **KNOBS)
        told = {split: [facts_of(story, verbatim) for story in generate(split, config=knobs)] for split in SPLITS}
        write(out / f"{share:g}", **told)
        print(out / f"{share:g}")


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, description=__doc__, args=arguments))()
