"""From predictions to tables: scores, intervals and differences of systems, each with its seeds.

python -m shared.score runs/base-1.jsonl runs/base-2.jsonl runs/l0-1.jsonl runs/l0-2.jsonl --csv
    table.csv

`predict` of a package writes a line for each document, by `write_outputs`:

    {"id": "7", "prediction": "...", "references": [["..."]], "system": "l0", "seed": 1, "pruned":
    [12, 25]}

Further numbers are the document's own measures: a number counts as it is, a pair [part, whole] as a
share in percent of all documents together; true and false, texts and lists of texts are none. A
value is the mean over the seeds of a system. Its interval of 95 % is over documents, by the
percentile bootstrap; a second one is over seeds, by Student's t. p is two-sided, by approximate
randomisation: the share of random swaps of two systems' outputs, document by document, that give a
difference at least as large.
"""

import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Literal

import numpy as np
import tyro
from tqdm import tqdm

from . import rouge
from .data import open_output, read_jsonl, split_sentences, write_csv, write_jsonl
from .run import one_line_errors, read_flags

# by counts a document: resamples of an interval, random swaps of a test
SAMPLES = {1: 10_000, 2: 10_000, 10: 1000}
TEXT = ("id", "prediction", "references", "system", "seed")  # what is no measure of a document


def of_seeds(counts: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """(seeds, ...) values of (..., n) documents, by their places.

    Args:
        counts: (seeds, all documents, k). Their sum over documents is a number (k = 1), of which
            the value is the mean; a part and its whole (k = 2), of which it is the share; or the
            counts of BLEU (k = 10).
    """
    sums = counts[:, documents].sum(-2)  # (seeds, ..., k)
    match counts.shape[-1]:
        case 1:
            return sums[..., 0] / documents.shape[-1]
        case 2:
            return 100 * sums[..., 0] / np.where(sums[..., 1] == 0, np.nan, sums[..., 1])
    return np.apply_along_axis(rouge.bleu_of_sums, -1, sums)


def in_lines(text: str | Sequence[str]) -> list[str]:
    """Sentences of a prediction or a reference, both split alike: its lines, split further."""
    parts = [text] if isinstance(text, str) else text
    return [sentence for part in parts for sentence in split_sentences(part)]


def is_measure(value: object) -> bool:
    """Whether a field of a document's row is to be averaged: a number, or a pair of numbers."""
    numbers = value if isinstance(value, list) and len(value) == 2 else [value]
    return all(isinstance(number, Real) and not isinstance(number, bool) for number in numbers)


def is_text(value: object) -> bool:
    """Whether it is a string, or a list of strings."""
    return (
        isinstance(value, str)
        or isinstance(value, list)
        and all(isinstance(part, str) for part in value)
    )


def measure(rows: Sequence[dict], metric: str, tokenize: str) -> dict[str, np.ndarray]:
    """Counts (1, documents, k) of one run by measure; ValueError: a row lacks one."""
    columns = {}
    references = [[in_lines(reference) for reference in row["references"]] for row in rows]
    if metric == "rouge":
        columns = rouge.score([in_lines(row["prediction"]) for row in rows], references, tokenize)
    elif metric == "bleu":
        texts = [" ".join(in_lines(row["prediction"])) for row in rows]
        joined = [[" ".join(lines) for lines in own] for own in references]
        columns = {"bleu": rouge.bleu_counts(texts, joined, tokenize)}
    numbers = [
        {name: value for name, value in row.items() if name not in TEXT and is_measure(value)}
        for row in rows
    ]
    for name in dict.fromkeys(name for own in numbers for name in own):
        first = next(place for place, own in enumerate(numbers) if name in own)
        size = np.size(numbers[first][name])  # of a number 1, of a pair 2
        if lacking := [
            row["id"]
            for row, own in zip(rows, numbers, strict=True)
            if np.size(own.get(name, [])) != size
        ]:
            like = f"no {name!r} like that of {rows[first]['id']}"
            raise ValueError(f"{rows[0]['system']}: document {lacking[0]} has {like}")
        if name in columns:
            raise ValueError(
                f"{rows[0]['system']}: a field is called {name!r}, like a score: give it another "
                f"name"
            )
        columns[name] = [own[name] for own in numbers]
    return {
        name: np.asarray(column, dtype=float).reshape(1, len(rows), -1)
        for name, column in columns.items()
    }


def describe(counts: np.ndarray, minus: np.ndarray | None = None, paired: bool = True) -> dict:
    """Value with its intervals, or the difference of two systems with its p-value too; `paired`:
    seed by seed.

    Both systems are counts as `of_seeds` has them.
    """
    from scipy.stats import bootstrap, permutation_test, t

    n = counts.shape[1]
    every, settings = np.arange(n), {"vectorized": True, "batch": 100, "rng": 0}
    settings["n_resamples"] = SAMPLES[counts.shape[-1]]

    def statistic(documents: np.ndarray, axis: int = -1) -> np.ndarray:
        other = 0 if minus is None else of_seeds(minus, documents).mean(0)
        return of_seeds(counts, documents).mean(0) - other

    row = {"value": float(statistic(every))} | dict.fromkeys(
        ("low", "high", "p", "seeds_low", "seeds_high", "seeds")
    )
    # one document has none, nor has the share of nothing
    has_interval = n > 1 and np.isfinite(row["value"])
    if has_interval:
        # of resamples of a rare share without a whole, left out below
        with warnings.catch_warnings(action="ignore"):
            values = bootstrap(
                (every,), statistic, method="percentile", **settings
            ).bootstrap_distribution
        row["low"], row["high"] = map(float, np.nanpercentile(values, [2.5, 97.5]))
    if minus is not None and has_interval and len(counts) == len(minus):
        both = np.concatenate([counts, minus], axis=1)  # documents 0 to n-1, and n to 2n-1

        def difference(one: np.ndarray, other: np.ndarray, axis: int = -1) -> np.ndarray:
            return of_seeds(both, one).mean(0) - of_seeds(both, other).mean(0)

        settings["permutation_type"] = "samples"
        row["p"] = float(permutation_test((every, every + n), difference, **settings).pvalue)
    if paired:
        seeds = of_seeds(counts, every) - (0 if minus is None else of_seeds(minus, every))
        row["seeds"] = " ".join(f"{value:.6g}" for value in seeds)
        if len(seeds) > 1:
            half = t.ppf(0.975, len(seeds) - 1) * seeds.std(ddof=1) / len(seeds) ** 0.5
            row |= {
                "seeds_low": float(seeds.mean() - half),
                "seeds_high": float(seeds.mean() + half),
            }
    return row


def score(
    rows: Sequence[dict], metric: str = "rouge", minus: Sequence[str] = (), tokenize: str = ""
) -> list[dict]:
    """Values of every system, then differences of each from those of `minus`, or from the first.

    Args:
        rows: lines as above, of all systems and seeds, on the same documents.
        metric, tokenize: "rouge", "bleu" or "none"; for its words see `tokenizer_of`, which is
            asked where it is "".
    Returns:
        per system and measure, and per difference: system, minus, metric, what `describe` gives,
            documents.
    Raises:
        ValueError: other documents or other references, a measure that a document lacks, an unknown
            system.
    """
    runs, tokenize = {}, tokenize or tokenizer_of(rows, metric)
    for row in rows:
        runs.setdefault(row["system"], {}).setdefault(row["seed"], []).append(row)
    systems, documents = {}, None
    for system, seeds in runs.items():
        runs_of = []
        for seed, outputs in seeds.items():
            outputs.sort(key=lambda row: str(row["id"]))
            keys = [(row["id"], row["references"]) for row in outputs]
            documents = documents or keys
            if keys != documents or len({row["id"] for row in outputs}) < len(outputs):
                why = (
                    "its documents are not those of the first system, each once; predict "
                    "--system names runs apart"
                )
                raise ValueError(f"{system}, seed {seed}: {why}")
            runs_of.append(measure(outputs, metric, tokenize))
        systems[system] = {
            name: np.concatenate([own[name] for own in runs_of]) for name in runs_of[0]
        }
    if unknown := set(minus) - set(systems):
        raise ValueError(f"no system {unknown.pop()!r} to subtract; there are {', '.join(systems)}")
    pairs = [(system, None) for system in systems]
    pairs += [
        (system, base)
        for base in minus or list(systems)[:1]
        for system in systems
        if system != base
    ]
    table = []
    for system, base in pairs:
        paired = base is None or list(runs[system]) == list(runs[base])
        for name, values in systems[system].items():
            if base is None or name in systems[base]:
                row = describe(values, systems[base][name] if base else None, paired)
                table.append(
                    {"system": system, "minus": base, "metric": name}
                    | row
                    | {"documents": len(documents)}
                )
    if not table:
        raise ValueError("no document has a number to average")
    return table


def tokenizer_of(rows: Sequence[dict], metric: str) -> str:
    """What the words of the references are: for "rouge" see `rouge.words_of`, for "bleu"
    sacrebleu's tokenizer.
    """
    # each once
    texts = {" ".join(in_lines(reference)) for row in rows for reference in row["references"]}
    return rouge.words_of(texts) if metric == "rouge" else rouge.bleu_tokenizer(texts)


def system_name(run: str, seed: int) -> str:
    """Name of a run's folder without its seed: base-1 and base-2 are the system base."""
    return re.sub(rf"[-_](seed)?{seed}$", "", run)


def report(rows: Sequence[dict], tokenize: str) -> None:
    """Print what `score` returned: the values, the differences, the metric's signature."""
    names = list(dict.fromkeys(row["metric"] for row in rows))
    for base in dict.fromkeys(row["minus"] for row in rows):
        for start in range(0, len(names), 6):  # a table as wide as a screen
            lines: dict = {}
            for row in rows:
                if row["minus"] == base and row["metric"] in names[start : start + 6]:
                    line = lines.setdefault(
                        row["system"], {f"minus {base}" if base else "system": row["system"]}
                    )
                    line[row["metric"]] = cell(row)
            if lines:
                print_columns(list(lines.values()))
    if any(
        row["p"] is not None and (row["p"] < 0.05) == (row["low"] <= 0 <= row["high"])
        for row in rows
    ):
        print(
            "interval and p are of two methods (bootstrap, randomisation): where they disagree, "
            "take it as not shown"
        )
    metric = next((name for name in ("rouge1", "bleu") if name in names), "")
    settings = rouge.signature(metric, tokenize) if metric else "no metric"
    print(f"means over seeds, 95 % intervals over documents; {settings} | n {rows[0]['documents']}")


def print_columns(lines: Sequence[dict]) -> None:
    """Print a table of Markdown, a line per row, a column per key of any row; `-` is what a row
    lacks.
    """
    columns = list(dict.fromkeys(name for line in lines for name in line))
    cells = [columns, *([line.get(name, "-") for name in columns] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    print(
        *("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells),
        sep="\n",
        end="\n\n",
    )


def cell(row: dict) -> str:
    """`41.20 [40.10, 42.30]`, of a difference `+1.20 [0.40, 2.00] p 0.004`; of the share of nothing
    `-`.
    """
    if not np.isfinite(row["value"]):
        return "-"
    value = f"{row['value']:+.2f}" if row["minus"] else f"{row['value']:.2f}"
    interval = "" if row["low"] is None else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return value + interval + ("" if row["p"] is None else f" p {row['p']:.3f}")


def write_outputs(
    rows, examples, system="", seed=0, out=None, overwrite=False, line=None, metric="rouge"
) -> None:
    """Write what `predict` yields, as it comes; where the examples have references, end with the
    table of scores.

    Args:
        rows: a dict of each `Example` that is not blank, in their order: id, prediction, the
            document's own numbers.
        out: path; FILE.jsonl gets the rows, another file a line of each: line(row), or its
            prediction. None: standard output.
    """
    rows, written, known = iter(rows), [], {"system": system, "seed": seed, "metric": metric}
    with open_output(out, overwrite) as file:
        for example in tqdm(examples, unit="document", disable=None if out else True):
            row = next(rows) if example.document else {"id": example.id, "prediction": ""}
            written.append(row | {"references": example.references} | known)
            if out and out.suffix.lower() == ".jsonl":
                write_jsonl(file, written[-1:])
            else:
                text = (
                    row["prediction"]
                    if isinstance(row["prediction"], str)
                    else " ".join(row["prediction"])
                )
                text = " ".join(text.split())  # one document, one line
                print(
                    line(row | {"prediction": text}) if line and example.document else text,
                    file=file,
                    flush=True,
                )
    if cut := sum(row.get("was_cut", False) for row in written):
        print(
            f"{cut} of {len(written)} documents are longer than the model reads: they were cut",
            file=sys.stderr,
        )
    if any(example.references for example in examples):
        print_table(written, metric)


def print_table(
    rows: Sequence[dict], metric: str, minus=(), csv: Path | None = None, overwrite=False
) -> None:
    """Score and report the rows that have references, the CSV first: a `head` behind the command
    ends it.
    """
    scored = [
        row for row in rows if any(rouge.unicode_words(str(text)) for text in row["references"])
    ]
    if not scored:
        raise ValueError("no document has a reference: there is nothing to compare with")
    if lacking := len(rows) - len(scored):
        print(
            f"{lacking} of {len(rows)} documents have no reference: they are not in the table",
            file=sys.stderr,
        )
    tokenize = tokenizer_of(scored, metric)
    with open_output(csv, overwrite) as file:
        table = score(scored, metric, minus, tokenize)
        if csv:
            write_csv(file, table)
    report(table, tokenize)


@dataclass
class Options:
    """The command line."""

    files: tyro.conf.Positional[tuple[Path, ...]]  # JSON lines of predict, a file a run.
    metric: Literal["auto", "rouge", "bleu", "none"] = "auto"  # auto: the files' own, or rouge.
    minus: tuple[str, ...] = ()  # Systems that the others are compared with; none: the first one.
    csv: Path | None = None  # File for all rows, with the intervals over seeds.
    overwrite: bool = False  # Replace that file.


def rows_of(file: Path) -> list[dict]:
    """The rows of a file of outputs; ValueError: one without id or prediction."""
    own = {"system": file.stem, "seed": 0}
    rows = [
        row | {name: row.get(name) or value for name, value in own.items()}
        for row in read_jsonl(file)
    ]
    for row in rows:
        texts = row.get("references") or []
        texts = [texts] if isinstance(texts, str) else texts
        if (
            "id" not in row
            or not isinstance(texts, list)
            or not all(map(is_text, [row.get("prediction"), *texts]))
        ):
            raise ValueError(
                f"{file}: document {row.get('id')} lacks an id or a prediction, or a reference is "
                f"no text"
            )
        row |= {"id": str(row["id"]), "references": texts}
    return rows


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    rows = [row for file in options.files for row in rows_of(file)]
    if not rows:
        raise ValueError(
            f"no outputs in {' '.join(map(str, options.files))}: give files that predict wrote "
            f"with --out"
        )
    own = rows[0].get("metric") if rows[0].get("metric") in ("bleu", "none") else "rouge"
    metric = own if options.metric == "auto" else options.metric
    print_table(rows, metric, options.minus, options.csv, options.overwrite)


if __name__ == "__main__":
    main()
