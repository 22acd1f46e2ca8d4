"""Gains by how extractive the references are: a quarter of the documents each, from the least new 2-grams to the most.

python -m head_masking.experiments.novelty DATA SPLIT OUT.csv FILE.jsonl ...     files that predict --out wrote

A reference's novelty is the share of its 2-grams of words that its document has not.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shared.data import load, read_jsonl, write_csv
from shared.score import score


def bigrams(text: str) -> set[tuple[str, str]]:
    """Pairs of neighbouring words, in lower case, as ROUGE splits them."""
    words = re.findall("[a-z0-9]+", text.lower())
    return {*zip(words, words[1:], strict=False)}


def novelty(source: str, target: str) -> float:
    """Share of the target's 2-grams that the source has not; 0 where it has none."""
    pairs = bigrams(target)
    return len(pairs - bigrams(source)) / max(len(pairs), 1)


def quartiles(shares: dict[str, float]) -> list[tuple[str, set[str]]]:
    """Ids in four parts of like size, the least novel first; each with its range in percent."""
    order = sorted(shares, key=lambda name: (shares[name], name))
    parts = [part.tolist() for part in np.array_split(np.array(order, dtype=object), 4)]
    return [(f"{100 * shares[part[0]]:.0f}-{100 * shares[part[-1]]:.0f}", {*part}) for part in parts]


def table(rows: Sequence[dict], shares: dict[str, float]) -> list[dict]:
    """What `score` says of each quartile: the systems, and their difference from the summariser without masks."""
    scored, plain = [], next(row["system"] for row in rows if row.get("heads") == "")
    for span, ids in quartiles(shares):
        scores = score([row for row in rows if row["id"] in ids and "heads" in row], minus=[plain])
        scored += [{"new_2_grams": span} | row for row in scores]
    return scored


if __name__ == "__main__":
    data, split, out, *paths = sys.argv[1:]
    shares = {example.id: novelty(example.source, example.target) for example in load(data, split)}
    with Path(out).open("w", encoding="utf-8", newline="") as file:
        write_csv(file, table([row for path in paths for row in read_jsonl(path)], shares))
