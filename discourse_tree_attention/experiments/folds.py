"""Cross-validation as data: a folder a fold, of the train and validation documents of a corpus with trees.

python -m discourse_tree_attention.experiments.folds DATA --out data/folds      # data/folds/0, ..., data/folds/4

Fold k is the test data of folder k, fold k + 1 its validation data, the others are for training.
"""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import tyro

from shared.data import in_sentences, write_jsonl

from ..loading import load


def parts(total: int, folds: int, fold: int) -> dict[str, list[int]]:
    """The places, of `total` documents, of each split of a fold; the same folds whatever is trained on them."""
    if not 3 <= folds <= total:
        raise ValueError(f"--folds {folds}: it must be from 3 to the {total} documents")
    order = np.random.default_rng(0).permutation(total).tolist()
    found = {"train": [], "validation": [], "test": []}
    names = {fold: "test", (fold + 1) % folds: "validation"}
    for place, document in enumerate(order):
        found[names.get(place % folds, "train")].append(document)
    return found


def main(data: tyro.conf.Positional[str], out: Path, folds: int = 5) -> None:
    """Write a corpus as folds, trees included; OUT must not exist."""
    examples = in_sentences(example for split in ("train", "validation") for example in load(data, split))
    rows = [{k: v for k, v in asdict(example).items() if v is not None} for example in examples]
    if len({row["id"] for row in rows}) < len(rows):
        raise ValueError("an id is in both train and validation; folds need unique ids")
    for fold in range(folds):
        (out / str(fold)).mkdir(parents=True)
        for split, places in parts(len(rows), folds, fold).items():
            with (out / str(fold) / f"{split}.jsonl").open("x", encoding="utf-8") as file:
                write_jsonl(file, [rows[place] for place in places])
    print(f"{out}: {folds} folds of {len(examples)} documents")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
