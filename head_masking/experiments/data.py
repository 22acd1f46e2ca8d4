"""The corpora of the scripts here: folders of train.jsonl, validation.jsonl and test.jsonl.

python -m head_masking.experiments.data samsum FOLDER SAMSUM     or toy, or bbc, as --help shows
"""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import tyro

from shared.data import Example, load, open_output, write_jsonl
from shared.run import one_line_errors
from shared.toy import CERTAIN, SPLITS, UNCERTAIN

KNOBS = (
    "names=10,min_sentences=8,max_sentences=8,min_facts=2,max_facts=2,other_facts=2,repetition=0"
)
WORDS, SENTENCES = 250, 3  # of an article of BBC, of its summary


def write(folder, **splits):
    for split, examples in splits.items():
        rows = [
            {"id": e.id, "document": e.document, "references": e.references, "pos": e.pos}
            for e in examples
        ]
        with open_output(folder / f"{split}.jsonl", overwrite=True) as file:
            write_jsonl(file, rows)


def samsum(folder: Path, source: str, dialogsum: str = "") -> None:
    """samsum FOLDER SAMSUM --dialogsum DIALOGSUM: FOLDER/sam, sam-test, turns-data, dialogues.

    Of SAMSum's 818 validation dialogues the last 418 validate, and choose heads; the first 400 are
    tested where its own test split (sam-test) is kept for the headline. What teaches copying alone:
    a summary that is a random turn.
    """
    rng = random.Random(0)
    train, held, test = (load(source, split) for split in SPLITS)
    first = round(len(held) * 400 / 818)
    write(folder / "sam", train=train, validation=held[first:], test=held[:first])
    write(folder / "sam-test", test=test)
    write(folder / "turns-data", train=turns(train, 4, rng), validation=turns(held[first:], 1, rng))
    if dialogsum:  # a folder of JSON lines with 300 and 200 of its dialogues
        train, test = load(dialogsum, "train"), load(dialogsum, "validation")
        first = round(len(train) * 240 / 300)
        write(folder / "dialogues", train=train[:first], validation=train[first:], test=test)


def turns(examples, times, rng):
    for example in examples:
        long = [turn for turn in example.document if len(turn.split()) > 2] or example.document
        for n in range(times):
            yield replace(example, id=f"{example.id}-{n}", references=[[rng.choice(long)]])


def toy(folder: Path, signal: tuple[float, ...] = (0.0, 1.0), verbatim: bool = False) -> None:
    """toy FOLDER --signal 0 0.5 1: FOLDER/SIGNAL, stories of four facts, of which two are wanted.

    With signal 1 a sentence's verb tells whether its fact matters ("confirmed", "guessed"), with
    signal 0 nothing does: there one can learn to copy, not what to tell. --verbatim repeats the
    facts word for word: easier to learn.
    """
    for share in signal:
        for split in SPLITS:
            stories = load(f"toy:signal={share:g},{KNOBS}", split)
            told = [facts_of(story, verbatim) for story in stories]
            write(folder / f"{share:g}", **{split: told})


def facts_of(story: Example, verbatim: bool) -> Example:
    """A toy story without its filling: the sentences that tell facts, and the summary."""
    verbs = {*CERTAIN, *UNCERTAIN}
    told = [n for n, text in enumerate(story.document) if verbs & set(text.split())]
    summary = story.summary
    if verbatim:  # "officials confirmed that X on Monday ." -> "X ."
        facts = [story.document[n].split(" that ", 1)[1] for n in told if story.salient[n]]
        summary = [re.split(r" on | , because | \.$", fact)[0] + " ." for fact in facts]
    document, tags = ([part[n] for n in told] for part in (story.document, story.pos))
    return replace(story, document=document, pos=tags, references=[summary])


def bbc(source: str, folder: Path, splits: tuple[str, ...]) -> None:
    """bbc BBC FOLDER SPLIT ...: a short extractive task, near CNN/Daily Mail's.

    BBC: JSON lines with `salient`. An article is cut after the last sentence that ends within its
    first 250 words. Its summary is its first three salient sentences; articles with fewer are left
    out. The test is written by a call of its own, after all choices.
    """
    write(folder, **{split: short(load(source, split)) for split in splits})


def short(examples):
    for example in examples:
        ends = accumulate(len(sentence.split()) for sentence in example.document)
        document = example.document[: sum(end <= WORDS for end in ends)]
        pairs = zip(document, example.salient, strict=False)
        salient = [sentence for sentence, is_salient in pairs if is_salient]
        if len(salient) >= SENTENCES:
            references = [salient[:SENTENCES]]
            yield replace(example, document=document, references=references, pos=None)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    commands = {"samsum": samsum, "toy": toy, "bbc": bbc}
    options = {"args": arguments, "config": [tyro.conf.PositionalRequiredArgs]}
    tyro.extras.subcommand_cli_from_dict(commands, description=__doc__, **options)


if __name__ == "__main__":
    main()
