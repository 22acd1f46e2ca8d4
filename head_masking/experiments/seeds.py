"""One table of several runs, in which each seed and each set of masked heads stands by itself; means over the seeds.

python -m head_masking.experiments.seeds OUT.csv FILE.jsonl ...        the files that predict --out wrote

Runs of one name and several seeds are one system for `shared.score`. Here they are NAME-SEED, with the heads behind.
OUT_means.csv has the gains' means over three seeds or more, with the interval of Student's t over the seeds.
"""

import re
import sys
from pathlib import Path

import numpy as np

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
    return [row for plain, group in groups.items() for row in score(list(group.values()), minus=[plain])]


def means(table: list[dict]) -> list[dict]:
    """Over seeds: of a system under the heads chosen for it, which stand first, and under the same heads for all."""
    groups: dict = {}
    for row in table:
        if row["minus"]:
            name, _, heads = row["system"].partition(" ")
            system = "+".join(p if p.startswith("oracle") else re.sub(r"-\d+$", "", p) for p in name.split("+"))
            seed = row["minus"].rpartition("-")[2]
            for key in (system, f"{system} {heads}"):
                groups.setdefault((key, row["metric"]), {}).setdefault(seed, float(row["value"]))
    return [{"system": s, "metric": m} | over_seeds(v) for (s, m), v in groups.items() if len(v) > 2]


def over_seeds(values: dict[str, float]) -> dict:
    """Mean and 95 % interval of Student's t."""
    from scipy.stats import t

    own = np.array([*values.values()])
    half = t.ppf(0.975, len(own) - 1) * own.std(ddof=1) / len(own) ** 0.5
    return {"value": own.mean(), "low": own.mean() - half, "high": own.mean() + half, "seeds": " ".join(values)}


if __name__ == "__main__":
    out = Path(sys.argv[1])
    scored = table([row for path in sys.argv[2:] for row in read_jsonl(path)])
    with out.open("w", encoding="utf-8", newline="") as file:
        write_csv(file, scored)
    if rows := means(scored):
        with out.with_stem(f"{out.stem}_means").open("w", encoding="utf-8", newline="") as file:
            write_csv(file, rows)
