"""The data of samsum/run.sh and dialogsum/run.sh: FOLDER/sam, FOLDER/turns-data (and FOLDER/dialogues).

python -m head_masking.experiments.samsum.data FOLDER SAMSUM [DIALOGSUM]

Of SAMSum's 818 validation dialogues the last 418 validate, and choose heads; the first 400 are tested where its own
test split (sam-test) is kept for the headline. What teaches copying alone: a summary that is a random turn.
"""

import random
import sys
from dataclasses import replace
from pathlib import Path

from shared.data import load, open_output, write_jsonl
from shared.run import one_line_errors


def write(folder, **splits):
    for split, examples in splits.items():
        rows = [{"id": e.id, "document": e.document, "references": e.references, "pos": e.pos} for e in examples]
        with open_output(folder / f"{split}.jsonl", overwrite=True) as file:
            write_jsonl(file, rows)


def turns(examples, times, rng):
    for example in examples:
        long = [turn for turn in example.document if len(turn.split()) > 2] or example.document
        for n in range(times):
            yield replace(example, id=f"{example.id}-{n}", references=[[rng.choice(long)]])


@one_line_errors
def main(arguments=None):
    out, samsum, *more = arguments or sys.argv[1:]
    folder, rng = Path(out), random.Random(0)
    train, held, test = (load(samsum, split) for split in ("train", "validation", "test"))
    first = round(len(held) * 400 / 818)
    write(folder / "sam", train=train, validation=held[first:], test=held[:first])
    write(folder / "sam-test", test=test)
    write(folder / "turns-data", train=turns(train, 4, rng), validation=turns(held[first:], 1, rng))
    for dialogsum in more:  # a folder of JSON lines with 300 and 200 of DialogSum's dialogues
        train, test = load(dialogsum, "train"), load(dialogsum, "validation")
        first = round(len(train) * 240 / 300)
        write(folder / "dialogues", train=train[:first], validation=train[first:], test=test)


if __name__ == "__main__":
    main()
