"""The data of samsum/run.sh and dialogsum/run.sh: FOLDER/sam, FOLDER/turns-data (and FOLDER/dialogues).

python -m head_masking.experiments.samsum.data FOLDER SAMSUM [DIALOGSUM]

Of SAMSum's 818 validation dialogues the last 418 validate, and choose heads; the first 400 are tested where its own
test split (sam-test) is kept for the headline. What teaches copying alone: a summary that is a random turn.
"""

import random
import sys
from pathlib import Path

from shared.data import load, write_jsonl
from shared.run import one_line_errors


def write(folder, **splits):
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            write_jsonl(file, rows)


def pairs(examples):
    return [{"id": e.id, "document": e.document, "references": e.references} for e in examples]


def turns(examples, times, rng):
    rows = []
    for e in examples:
        long = [turn for turn in e.document if len(turn.split()) > 2] or e.document
        rows += [{"id": f"{e.id}-{n}", "document": e.document, "summary": [rng.choice(long)]} for n in range(times)]
    return rows


@one_line_errors
def main(arguments=None):
    out, samsum, *more = arguments or sys.argv[1:]
    folder, rng = Path(out), random.Random(0)
    train, held, test = (load(samsum, split) for split in ("train", "validation", "test"))
    first = round(len(held) * 400 / 818)
    write(folder / "sam", train=pairs(train), validation=pairs(held[first:]), test=pairs(held[:first]))
    write(folder / "sam-test", test=pairs(test))
    write(folder / "turns-data", train=turns(train, 4, rng), validation=turns(held[first:], 1, rng))
    for dialogsum in more:  # a folder of JSON lines with 300 and 200 of DialogSum's dialogues
        train, test = load(dialogsum, "train"), load(dialogsum, "validation")
        first = round(len(train) * 240 / 300)
        write(folder / "dialogues", train=pairs(train[:first]), validation=pairs(train[first:]), test=pairs(test))


if __name__ == "__main__":
    main()
