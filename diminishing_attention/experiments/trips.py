"""The lesson's trips as files, for the README's demo.

python -m diminishing_attention.experiments.trips --out runs/trips
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.data import open_output, write_jsonl
from shared.run import one_line_errors, read_flags

from .. import one

SPLITS = {"train": 12_000, "validation": 200, "test": 300}


@dataclass
class Options:
    """The command line."""

    out: Path  # Folder for train.jsonl, validation.jsonl and test.jsonl.
    overwrite: bool = False  # Replace those files.


def sentences(words: Sequence[int]) -> list[str]:
    """The sentences of a text of `one.draw`."""
    text = " ".join(one.WORDS[word] for word in words if word > one.EOS)
    return re.findall(r"\w[^.]*\.", text)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    for split, count in SPLITS.items():
        sources, targets = one.draw(count, random.Random(split))
        rows = [
            {"document": sentences(source), "summary": sentences(target)}
            for source, target in zip(sources.tolist(), targets.tolist(), strict=True)
        ]
        with open_output(options.out / f"{split}.jsonl", options.overwrite) as file:
            write_jsonl(file, rows)
        print(f"{options.out}/{split}.jsonl: {count:,} texts")


if __name__ == "__main__":
    main()
