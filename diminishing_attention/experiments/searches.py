"""Table 1's own comparison: DimAttn decodes by Section 4.2's search, the baselines by See et al.'s.

python -m diminishing_attention.experiments.searches --csv searches.csv

Reads the tables that lie beside this file: of each baseline a system's measure under one search
minus that of another under the other search; 95 % intervals over baselines by Student's t.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shared.data import open_output, write_csv
from shared.run import one_line_errors, read_flags

# Corpus: its tables by See et al.'s search ("plain") and by Section 4.2's ("search").
TABLES = {
    "single dialogues": {
        "plain": "samsum/samsum_medium_test.csv",
        "search": "samsum/samsum_medium_section_4_2_test.csv",
    },
    "titles": {
        "plain": "titles/scitldr_titles_test.csv",
        "search": "titles/scitldr_titles_section_4_2_test.csv",
    },
    "joined dialogues": {  # one table of both: its systems are called dim.plain, dim.search
        "plain": "samsum/samsum_joined_searches_test.csv",
        "search": "samsum/samsum_joined_searches_test.csv",
    },
}
# System by Section 4.2's search, system by See et al.'s.
DIFFERENCES = [
    ("dim", "more"),
    ("dim", "cov"),
    ("dydim", "more"),
    ("dydim", "cov"),
    ("more", "more"),
    ("more", "cov"),
]
METRICS = ["rouge1", "repetition2", "novel2"]  # Table 1, Figure 2, Figure 3


@dataclass
class Options:
    """The command line."""

    csv: Path | None = None  # File for the differences.
    overwrite: bool = False  # Replace that file.


def by_baseline(table: Path, search: str, metric: str = "rouge1") -> dict[str, np.ndarray]:
    """A measure of each system by that search, (baselines,): a value for each seed."""
    with table.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == metric]
    values = {}
    for row in rows:
        system, _, own_search = row["system"].partition(".")
        if not row["minus"] and row["seeds"] and own_search in ("", search):
            values[system] = np.array([float(value) for value in row["seeds"].split()])
    return values


def compare(corpus: str, folder: Path, metric: str = "rouge1") -> list[dict]:
    """A row for each of DIFFERENCES whose systems the tables have."""
    from scipy import stats

    tables = TABLES[corpus]
    plain = by_baseline(folder / tables["plain"], "plain", metric)
    searched = by_baseline(folder / tables["search"], "search", metric)
    rows = []
    for system, minus in DIFFERENCES:
        if system not in searched:
            continue
        values = searched[system] - plain[minus]
        row = {"corpus": corpus, "system": f"{system}, Section 4.2's search"}
        row |= {"minus": f"{minus}, plain search", "metric": metric, "value": values.mean()}
        count = len(values)
        if count > 1:
            error = values.std(ddof=1) / count**0.5
            half = stats.t.ppf(0.975, count - 1) * error
            row |= {"low": values.mean() - half, "high": values.mean() + half}
        rows.append(row | {"baselines": " ".join(f"{value:.2f}" for value in values)})
    return rows


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    rows = []
    for metric in METRICS:
        for corpus in TABLES:
            rows += compare(corpus, Path(__file__).parent, metric)
    with open_output(options.csv, options.overwrite) as file:
        write_csv(file, rows)


if __name__ == "__main__":
    main()
