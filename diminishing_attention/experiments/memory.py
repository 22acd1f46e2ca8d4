"""Bytes of memory that a training pair of 34 tokens takes: python -m diminishing_attention.experiments.memory"""

import random

from shared.timing import resident_bytes

from ..text import Item, Items, LengthBatches

PAIRS, TOKENS = 500_000, 17  # of a source, and of a target


def make_item(number: int) -> Item:
    """Every second document has a word that the vocabulary lacks."""
    source, target = (random.choices(range(4, 8000), k=TOKENS) for _ in range(2))
    return Item(source, target, ["word"] * (number % 2), was_cut=False)


def main() -> None:
    before = resident_bytes()
    items = Items(map(make_item, range(PAIRS)))
    pairs = resident_bytes() - before
    epoch = iter(LengthBatches(items, 16, 0, seed=0))
    next(epoch)  # has put all batches in order
    total = resident_bytes() - before
    print(f"{pairs / PAIRS:.0f} bytes a pair; {total / PAIRS:.0f} with the order of an epoch's batches")


if __name__ == "__main__":
    main()
