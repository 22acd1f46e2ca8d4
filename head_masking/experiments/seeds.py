"""One table of several runs, in which each seed and each set of masked heads stands by itself.

python -m head_masking.experiments.seeds OUT.csv FILE.jsonl ...        the files that evaluate --predictions wrote

Runs of one name and several seeds are one system for `shared.score`. Here they are NAME-SEED, with the heads behind.
"""

import sys
from pathlib import Path

from shared.data import read_jsonl, write_csv
from shared.score import score


def by_seed(row: dict) -> dict:
    """The row with a name for its system that says the seed and the heads: base+tagger -> base-1+tagger-1 2:0-3."""
    parts = row["system"].split("+")
    name = "+".join(part if part.startswith("oracle") else f"{part}-{row['seed']}" for part in parts)
    return row | {"system": f"{name} {row.get('heads', '')}".strip(), "seed": 0}


def table(rows: list[dict]) -> list[dict]:
    """What `score` says of every system, and of its difference from the same summariser without masks."""
    groups: dict = {}
    for row in map(by_seed, rows):
        group = groups.setdefault(row["system"].split("+")[0], {})
        group[row["system"], row["id"]] = row  # of outputs that several files hold, one
    return [row for group in groups.values() for row in score(list(group.values()))]


if __name__ == "__main__":
    with Path(sys.argv[1]).open("x", encoding="utf-8", newline="") as file:
        write_csv(file, table([row for path in sys.argv[2:] for row in read_jsonl(path)]))
