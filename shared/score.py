"""From predictions to tables: scores, intervals and differences of systems, each with its seeds.

python -m shared.score runs/base-1.jsonl runs/base-2.jsonl runs/l0-1.jsonl runs/l0-2.jsonl --csv table.csv

`evaluate` and `predict` of a package write a line for each document:

    {"id": "7", "prediction": "...", "references": [["..."]], "system": "l0", "seed": 1, "pruned": [12, 25]}

Further numbers are the document's own measures: a number counts as it is, a pair [part, whole] as a share in percent
of all documents together. A value is the mean over the seeds of a system. Its interval is over documents, by the
percentile bootstrap; a second one is over seeds, by Student's t. p is that of approximate randomisation.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

import numpy as np
import tyro

from . import bleu, rouge
from .data import open_output, read_jsonl, sentence_splitter, split_sentences, write_csv
from .run import one_line_errors, read_flags

SAMPLES = {"mean": 10_000, "share": 10_000, "bleu": 1000}  # resamples of an interval, random swaps of a test
TEXT = ("id", "prediction", "references", "system", "seed")  # what is no measure of a document


class Measure(NamedTuple):
    """What the documents of a system add up to: (seeds, n, k) counts, and what the sum of each of the k is for."""

    kind: Literal["mean", "share", "bleu"]
    counts: np.ndarray

    def of_seeds(self, documents: np.ndarray) -> np.ndarray:
        """(seeds, ...) values of (..., n) documents, by their places."""
        sums = self.counts[:, documents].sum(-2)  # (seeds, ..., k)
        if self.kind == "mean":
            return sums[..., 0] / documents.shape[-1]
        if self.kind == "share":
            return 100 * sums[..., 0] / np.where(sums[..., 1] == 0, np.nan, sums[..., 1])
        return np.apply_along_axis(bleu.of_sums, -1, sums)

    def value(self, documents: np.ndarray) -> np.ndarray:
        """(...,) means over seeds of `of_seeds`."""
        return self.of_seeds(documents).mean(0)


def join(measures: Sequence[Measure], axis: int = 0) -> Measure:
    """Several seeds of a system as one measure; with axis 1, the documents of several systems."""
    return Measure(measures[0].kind, np.concatenate([one.counts for one in measures], axis))


def in_lines(text: str | Sequence[str]) -> list[str]:
    """Sentences of a prediction or a reference, both split alike: its lines, split further."""
    parts = text.split("\n") if isinstance(text, str) else text
    return [sentence for part in parts for sentence in split_sentences(part)]


def measure(rows: Sequence[dict], metric: str) -> dict[str, Measure]:
    """The measures of one run, by name; ValueError: a row lacks one."""
    columns = {}
    if metric == "rouge":
        references = [[in_lines(reference) for reference in row["references"]] for row in rows]
        values = rouge.score([in_lines(row["prediction"]) for row in rows], references)
        columns = {name: values[name] for name in ("rouge1", "rouge2", "rougeLsum")}
    elif metric == "bleu":
        references = [[" ".join(in_lines(reference)) for reference in row["references"]] for row in rows]
        texts = [row["prediction"] for row in rows]
        columns = {"bleu": bleu.counts(texts, references), "bleu_lc": bleu.counts(texts, references, lowercase=True)}
    for name, value in rows[0].items():
        if name not in TEXT and not isinstance(value, str):
            if lacking := [row["id"] for row in rows if name not in row]:
                raise ValueError(f"{rows[0]['system']}: document {lacking[0]} has no {name!r}")
            columns[name] = [row[name] for row in rows]
    counts = {name: np.asarray(column, dtype=float).reshape(1, len(rows), -1) for name, column in columns.items()}
    kinds = {1: "mean", 2: "share", 10: "bleu"}  # by k
    return {name: Measure(kinds[array.shape[-1]], array) for name, array in counts.items()}


def describe(of: Measure, minus: Measure | None = None, paired: bool = True) -> dict:
    """Value with its intervals, or the difference of two systems with its p-value too; `paired`: seed by seed."""
    from scipy.stats import bootstrap, permutation_test, t

    n = of.counts.shape[1]
    every, settings = np.arange(n), {"n_resamples": SAMPLES[of.kind], "vectorized": True, "batch": 100, "rng": 0}

    def statistic(documents: np.ndarray, axis: int = -1) -> np.ndarray:
        return of.value(documents) - (minus.value(documents) if minus else 0)

    row = dict.fromkeys(("value", "low", "high"), float(statistic(every)))
    row |= dict.fromkeys(("p", "seeds_low", "seeds_high", "seeds"))
    is_number = n > 1 and np.isfinite(row["value"])  # the share of nothing is none
    if is_number:
        row["low"], row["high"] = bootstrap((every,), statistic, method="percentile", **settings).confidence_interval
    if minus and is_number and len(of.counts) == len(minus.counts):
        both = join([of, minus], axis=1)  # documents 0 to n-1, and n to 2n-1
        settings |= {"permutation_type": "samples"}
        swaps = permutation_test((every, every + n), lambda a, b, axis: both.value(a) - both.value(b), **settings)
        row["p"] = float(swaps.pvalue)
    if paired:
        seeds = of.of_seeds(every) - (minus.of_seeds(every) if minus else 0)
        row["seeds"] = " ".join(f"{value:.6g}" for value in seeds)
        if len(seeds) > 1:
            half = t.ppf(0.975, len(seeds) - 1) * seeds.std(ddof=1) / len(seeds) ** 0.5
            row |= {"seeds_low": float(seeds.mean() - half), "seeds_high": float(seeds.mean() + half)}
    return row


def score(rows: Sequence[dict], metric: str = "rouge", minus: Sequence[str] = ()) -> list[dict]:
    """Values of every system, then differences of each from those of `minus`, or from the first.

    Args:
        rows: lines as above, of all systems and seeds, on the same documents.
        metric: "rouge", "bleu" (bleu_lc: in lower case), or "none".
    Returns:
        per system and measure, and per difference: system, minus, metric, what `describe` gives, documents.
    Raises:
        ValueError: other documents or other references, a measure that a document lacks, an unknown system.
    """
    runs: dict = {}
    for row in rows:
        runs.setdefault(row["system"], {}).setdefault(row["seed"], []).append(row)
    systems, documents = {}, None
    for system, seeds in runs.items():
        of_seeds = []
        for seed, outputs in seeds.items():
            outputs.sort(key=lambda row: str(row["id"]))
            keys = [(row["id"], row["references"]) for row in outputs]
            documents = documents or keys
            if keys != documents or len({row["id"] for row in outputs}) < len(outputs):
                raise ValueError(f"{system}, seed {seed}: its documents are not those of the first system, each once")
            of_seeds.append(measure(outputs, metric))
        systems[system] = {name: join([of[name] for of in of_seeds]) for name in of_seeds[0]}
    if unknown := set(minus) - set(systems):
        raise ValueError(f"no system {unknown.pop()!r} to subtract; there are {', '.join(systems)}")
    pairs = [(system, None) for system in systems]
    pairs += [(system, base) for base in minus or list(systems)[:1] for system in systems if system != base]
    table = []
    for system, base in pairs:
        paired = base is None or list(runs[system]) == list(runs[base])
        for name, values in systems[system].items():
            if base is None or name in systems[base]:
                row = describe(values, systems[base][name] if base else None, paired)
                table.append({"system": system, "minus": base, "metric": name} | row | {"documents": len(documents)})
    return table


def system_name(run: str, seed: int) -> str:
    """Name of a run's folder without its seed: base-1 and base-2 are the system base."""
    return re.sub(rf"[-_](seed)?{seed}$", "", run)


def report(rows: Sequence[dict], csv_file: TextIO | None = None) -> None:
    """Print what `score` returned: the values, the differences, the metric's signature; write all of it as CSV."""
    names = list(dict.fromkeys(row["metric"] for row in rows))
    for base in dict.fromkeys(row["minus"] for row in rows):
        for shown in (names[start : start + 6] for start in range(0, len(names), 6)):  # a table as wide as a screen
            lines: dict = {}
            for row in rows:
                if row["minus"] == base and row["metric"] in shown:
                    cell = {"difference" if base else "mean": row["value"], "low": row["low"], "high": row["high"]}
                    line = lines.setdefault(row["system"], {f"minus {base}" if base else "system": row["system"]})
                    cell |= {} if row["p"] is None else {"p": row["p"]}
                    line[row["metric"]] = cell if np.isfinite(row["value"]) else None
            if lines:
                print(rouge.table(list(lines.values())), end="\n\n")
    print(f"means over seeds, 95 % intervals over documents; {signature(rows)}")
    if csv_file:
        write_csv(csv_file, rows)


def signature(rows: Sequence[dict]) -> str:
    """The metric's own settings and version."""
    n, metrics = rows[0]["documents"], {row["metric"] for row in rows}
    if "bleu" in metrics:
        return f"{bleu.signature()} | n {n}"
    return f"{rouge.signature(n)} | sentences by {sentence_splitter()[0]}" if "rouge1" in metrics else f"n {n}"


@dataclass
class Options:
    """The command line."""

    files: tyro.conf.Positional[tuple[Path, ...]]  # JSON lines of evaluate or predict, a file a run.
    metric: Literal["rouge", "bleu", "none"] = "rouge"  # How predictions are compared with references.
    minus: tuple[str, ...] = ()  # Systems that the others are compared with; none: the first one.
    csv: Path | None = None  # File for all rows, with the intervals over seeds.
    overwrite: bool = False  # Replace that file.


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    rows = [{"system": file.stem, "seed": 0} | row for file in options.files for row in read_jsonl(file)]
    with open_output(options.csv, options.overwrite) as file:
        report(score(rows, options.metric, options.minus), file if options.csv else None)


if __name__ == "__main__":
    main()
