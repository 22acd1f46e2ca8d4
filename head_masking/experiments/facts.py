"""Stories of four facts from the toy corpus, two of which belong into the summary: the corpus of the toy results.

python -m head_masking.experiments.facts runs/facts --signal 0 0.5 1

OUT/SIGNAL/ holds train.jsonl, validation.jsonl and test.jsonl. With signal 1 the verb of each sentence tells whether
its fact matters ("confirmed", "guessed"), with signal 0 nothing does: there one can learn to copy, not what to tell.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from shared.data import write_jsonl
from shared.toy import CERTAIN, SPLITS, UNCERTAIN, ToyConfig, generate

from ..run import Positive, Range, check_fields, one_line_errors, read_flags

KNOBS = dict(names=10, min_sentences=8, max_sentences=8, min_facts=2, max_facts=2, other_facts=2, repetition=0)
SHARE = Annotated[float, Range(0, 1)]


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    out: tyro.conf.Positional[Path]  # folder to write to
    signal: tuple[SHARE, ...] = (0.0, 1.0)  # share of the facts whose verb tells the truth; a folder for each
    verbatim: bool = False  # summaries repeat the facts word for word instead of rewording them: easier to learn
    count: Positive | None = None  # stories of each split; default: the toy corpus' own


def facts_of(story: dict, verbatim: bool = False) -> dict:
    """A toy story without its filling: the sentences that tell facts, and the summary."""
    told = [n for n, text in enumerate(story["document"]) if {*CERTAIN, *UNCERTAIN} & set(text.split())]
    summary = story["summary"]
    if verbatim:  # "officials confirmed that X on Monday ." -> "X ."
        facts = [story["document"][n].split(" that ", 1)[1] for n in told if story["salient"][n]]
        summary = [re.split(r" on | , because | \.$", fact)[0] + " ." for fact in facts]
    return {name: [story[name][n] for n in told] for name in ("document", "pos")} | {
        "id": story["id"],
        "summary": summary,
    }


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.facts", description=__doc__)
    check_fields(options)
    for signal in options.signal:
        folder = options.out / f"{signal:g}"
        folder.mkdir(parents=True, exist_ok=True)
        for split in SPLITS:
            stories = generate(split, options.count, ToyConfig(signal=signal, **KNOBS))
            write_jsonl(folder / f"{split}.jsonl", [facts_of(story, options.verbatim) for story in stories])
        print(folder)


if __name__ == "__main__":
    main()
