"""Bytes of memory that a training pair of 34 tokens takes: python -m encdec_sentence_sparse.experiments.memory"""

import random

from shared.timing import resident_bytes

from ..text import Batches, Item, Items

PAIRS, TOKENS = 500_000, 17  # of a source, and of a target


def main() -> None:
    before, items = resident_bytes(), Items()
    for _ in range(PAIRS):
        source, target = (random.choices(range(4, 8000), k=TOKENS) for _ in range(2))
        items.append(Item(source, [0] * TOKENS, was_cut=False, target=target))
    pairs = resident_bytes() - before
    epoch = iter(Batches([TOKENS] * PAIRS, 8, seed=0))
    next(epoch)  # has put all batches in order
    total = resident_bytes() - before
    print(f"{pairs / PAIRS:.0f} bytes a pair; {total / PAIRS:.0f} with the order of an epoch's batches")


if __name__ == "__main__":
    main()
