"""Cross-validation as data: a folder a fold, of a corpus's train and validation documents.

python -m discourse_tree_attention.experiments.folds DATA --out data/folds

This makes data/folds/0 to data/folds/4. Fold k is the test data of folder k, fold k + 1 its
validation data, the others are for training.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tyro

from shared.data import in_sentences, open_output, write_jsonl
from shared.run import one_line_errors, read_flags

from ..loading import load


@dataclass
class Options:
    """The command line."""

    data: tyro.conf.Positional[str]  # A corpus with trees; anything that shared.data.load takes.
    out: Path  # Folder to make.
    folds: int = 5


def parts(total: int, folds: int, fold: int) -> dict[str, list[int]]:
    """The places, of `total` documents, of each split of a fold; the same for all trainings."""
    if not 3 <= folds <= total:
        raise ValueError(f"--folds {folds}: it must be from 3 to the {total} documents")
    order = np.random.default_rng(0).permutation(total).tolist()
    found = {"train": [], "validation": [], "test": []}
    split_of = {fold: "test", (fold + 1) % folds: "validation"}
    for place, document in enumerate(order):
        found[split_of.get(place % folds, "train")].append(document)
    return found


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    examples = in_sentences(load(options.data, "train") + load(options.data, "validation"))
    rows = []
    for example in examples:
        rows.append({k: v for k, v in asdict(example).items() if v is not None})
    for fold in range(options.folds):
        for split, places in parts(len(rows), options.folds, fold).items():
            with open_output(options.out / str(fold) / f"{split}.jsonl") as file:
                write_jsonl(file, [rows[place] for place in places])
    print(f"{options.out}: {options.folds} folds of {len(examples)} documents")


if __name__ == "__main__":
    main()
