"""What a training's documents take in memory: 500,000 made-up pairs of 34 tokens, as lists and as `text.Items`.

python -m head_masking.experiments.memory [--lists]
"""

import random
import resource
import sys

from ..text import Items

PAIRS, SOURCE, TARGET = 500_000, 26, 8


def kilobytes() -> int:
    """The most that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def fill(items, append) -> float:
    """Bytes a pair of all that is kept."""
    before, rng = kilobytes(), random.Random(0)
    for _ in range(PAIRS):
        append(items, [rng.randrange(300, 50_000) for _ in range(SOURCE)], [rng.randrange(300, 50_000)] * TARGET)
    return 1024 * (kilobytes() - before) / PAIRS


if __name__ == "__main__":
    flat = "--lists" not in sys.argv
    size = fill(Items(), Items.append) if flat else fill([], lambda items, *pair: items.append(pair))
    print(f"{'Items' if flat else 'lists'}: {size:.0f} bytes a pair of {SOURCE + TARGET} tokens")
