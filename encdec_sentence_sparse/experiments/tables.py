"""The paper's tables from what evaluate --csv wrote: each system under the paper's name, and the tables that show it.

python -m encdec_sentence_sparse.experiments.tables encdec_sentence_sparse/experiments/toy/toy_0.csv
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from shared.rouge import table

from ..evaluate import METRICS
from ..run import one_line_errors, read_flags
from ..selection import MODES

TABLES = {  # the paper's tables that show a run of a task under a mode
    "base": {"full": "2, 3", "ideal": "2, 3", "random": "2, 3, 5", "model_free": "6"},
    "sparse": {"full": "2", "ideal": "2", "random": "2, 5"},
    "kl": {"approx": "3, 6"},
    "integrated": {"approx": "3, 6"},
}
VARIANTS = {"ideal": "Int-Idl", "approx": "Int-Apx", "mix": "Int-Mix"}


def finite(text: str) -> float:
    """A number; ValueError for NaN and infinity, too."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not finite")
    return number


NUMBERS = {"seed": int, "r": int, "r_train": int, "gamma": finite, "sources_cut": int, "examples": int}


@dataclass
class Options:
    """The command line."""

    csv: tyro.conf.Positional[tuple[Path, ...]]  # what encdec_sentence_sparse.evaluate --csv wrote


def read_rows(path: Path) -> list[dict]:
    """The rows of a CSV, numbers as such; rouge1_mean, rouge1_low, ... are row["rouge1"]["mean"], ...

    ValueError: not what evaluate writes; names the file.
    """
    rows = []
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for flat in csv.DictReader(file, strict=True):
                row = {name: NUMBERS.get(name, str)(value) if value else None for name, value in flat.items()}
                for name in [*METRICS, "difference", "cost"]:
                    parts = ("mean", "low", "high") if name in METRICS else ("difference", "low", "high", "p")
                    row[name] = {part: finite(row.pop(f"{name}_{part}")) for part in parts}
                row |= {name: finite(row[name]) for name in ("source_tokens", "source_sentences", "target_tokens")}
                known = row["task"] in TABLES and row["mode"] in MODES and row["target_tokens"] > 0
                known = known and {"phi", "sentence_encoder"} <= row.keys()
                needed = ["system", "run", "r", "seed", "gamma", "sources_cut"]
                if row["task"] == "integrated":
                    known, needed = known and row["select"] in VARIANTS, [*needed, "r_train"]
                if not known or None in map(row.__getitem__, needed):
                    raise ValueError(f"line {len(rows) + 2} is no system of its")
                rows.append(row)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise ValueError(f"{path} is not what evaluate --csv writes ({error!r})") from None
    if not rows:
        raise ValueError(f"{path} is not what evaluate --csv writes (it has no rows)")
    return rows


def title(row: dict) -> str:
    """A run as the paper calls it."""
    trained = {
        "base": "Vanilla",
        "sparse": f"L_A-tuned, gamma {row['gamma']:g}",
        "kl": "KL-only",
        "integrated": f"{VARIANTS.get(row['select'])}, r {row['r_train']}",
    }[row["task"]]
    return trained + (f", {row['sentence_encoder']}" if row["sentence_encoder"] else "")


def system_rows(rows: Sequence[dict]) -> list[dict]:
    """Tables 2, 3, 5 and 6: all systems, with the tables of the paper that have them."""
    shown = []
    for row in rows:
        known = {"system": row["system"], "the paper's": title(row), "table": TABLES[row["task"]].get(row["mode"], "")}
        scores = {name: row[metric] for metric, name in METRICS.items()}
        shown.append(known | scores | {"R-1 minus first full": row["difference"], "R-1 minus own full": row["cost"]})
    return shown


def length_rows(rows: Sequence[dict]) -> list[dict]:
    """Table 4: what the runs read."""
    shown = {}
    for row in rows:
        lengths = {"N": row["source_tokens"], "N1": row["source_sentences"], "M": row["target_tokens"]}
        shown[row["run"]] = {"run": row["run"]} | lengths | {"N/M": lengths["N"] / lengths["M"]}
        shown[row["run"]]["cut"] = row["sources_cut"]
    return list(shown.values())


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.tables", description=__doc__)
    if not options.csv:
        raise ValueError("give at least one CSV of evaluate")
    for path in options.csv:
        rows = read_rows(path)
        print(f"{path}: Tables 2, 3, 5, 6\n{table(system_rows(rows))}\n\nTable 4\n{table(length_rows(rows))}\n")


if __name__ == "__main__":
    main()
