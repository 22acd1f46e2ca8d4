"""From predictions to tables: scores, intervals and differences of systems, each with its seeds.

python -m shared.score runs/base-1.jsonl runs/base-2.jsonl runs/l0-1.jsonl --csv table.csv

`predict` of a package writes a line for each document, by `write_outputs`:

    {"id": "7", "prediction": "...", "references": [["..."]], "system": "l0", "seed": 1,
     "pruned": [12, 25]}

Further numbers are the document's own measures. A number is averaged. A pair [part, whole] is
summed over documents and shown as a share in percent. True and false and texts are no measures.

A value is the mean over the seeds of a system. Its interval of 95 % is over documents, by the
percentile bootstrap; a second one is over seeds, by Student's t. p is two-sided, by approximate
randomisation: outputs of two systems are swapped at random, document by document; p is twice the
share of swaps that give a difference as high (or as low, if that share is smaller).
"""

import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import tyro
from tqdm import tqdm

from . import rouge
from .data import Example, open_output, read_jsonl, split_sentences, write_csv, write_jsonl
from .run import one_line_errors, read_flags

TEXT = ("id", "prediction", "references", "system", "seed")  # what is no measure of a document


# Measures: of each document some numbers, which add up, and a value that is made of the sums.


def mean(sums: np.ndarray, documents: int) -> np.ndarray:
    """(..., 1) sums of a number -> (...) means."""
    return sums[..., 0] / documents


def share(sums: np.ndarray, documents: int) -> np.ndarray:
    """(..., 2) sums of a part and its whole -> (...) percent; NaN where the whole is 0."""
    return 100 * sums[..., 0] / np.where(sums[..., 1] == 0, np.nan, sums[..., 1])


def bleu(sums: np.ndarray, documents: int) -> np.ndarray:
    """(..., 10) sums of `rouge.bleu_counts` -> (...) BLEU."""
    return np.apply_along_axis(rouge.bleu_of_sums, -1, sums)


class Measure(NamedTuple):
    """A measure of a system."""

    numbers: np.ndarray  # (seeds, documents, k)
    value: Callable = mean  # of their sums over documents: mean, share or bleu

    def of(self, documents: np.ndarray) -> np.ndarray:
        """(seeds, ...) values of (..., n) documents, by their places."""
        return self.value(self.numbers[:, documents].sum(-2), documents.shape[-1])

    def resampling(self) -> dict:
        """How scipy resamples the documents."""
        count = 1000 if self.value is bleu else 10_000
        return {"vectorized": True, "batch": 100, "rng": 0, "n_resamples": count}


def describe(own: Measure, minus: Measure | None = None, paired: bool = True) -> dict:
    """Value of a system with its intervals, or difference of two with its p, too.

    Args:
        paired: both have the same seeds, in the same order.
    """
    every = np.arange(own.numbers.shape[1])
    values = own.of(every)  # (seeds,)
    others = np.zeros(1) if minus is None else minus.of(every)
    row = {"value": float(values.mean() - others.mean()), "low": None, "high": None, "p": None}
    row |= {"seeds_low": None, "seeds_high": None, "seeds": None}
    # One document has no interval, nor has the share of nothing.
    if len(every) > 1 and np.isfinite(row["value"]):
        row["low"], row["high"] = interval(own, minus)
        if minus is not None and len(own.numbers) == len(minus.numbers):
            row["p"] = p_value(own, minus)
    if paired:
        seeds = values - others
        row["seeds"] = " ".join(f"{value:.6g}" for value in seeds)
        if len(seeds) > 1:
            row["seeds_low"], row["seeds_high"] = seeds_interval(seeds)
    return row


def interval(own: Measure, minus: Measure | None = None) -> tuple[float, float]:
    """95 % interval over documents, by the percentile bootstrap; documents are drawn for both."""
    from scipy.stats import bootstrap

    def statistic(documents: np.ndarray, axis: int = -1) -> np.ndarray:
        other = 0 if minus is None else minus.of(documents).mean(0)
        return own.of(documents).mean(0) - other

    every = np.arange(own.numbers.shape[1])
    # A resample of a rare share may have no whole: it is left out.
    with warnings.catch_warnings(action="ignore"):
        found = bootstrap((every,), statistic, method="percentile", **own.resampling())
    low, high = np.nanpercentile(found.bootstrap_distribution, [2.5, 97.5])
    return float(low), float(high)


def p_value(own: Measure, minus: Measure) -> float:
    """Two-sided p of a difference, by random swaps of the outputs of documents."""
    from scipy.stats import permutation_test

    both = own._replace(numbers=np.concatenate([own.numbers, minus.numbers], axis=1))

    def difference(one: np.ndarray, other: np.ndarray, axis: int = -1) -> np.ndarray:
        return both.of(one).mean(0) - both.of(other).mean(0)

    n = own.numbers.shape[1]
    places = np.arange(n), np.arange(n, 2 * n)  # in `both`
    settings = own.resampling() | {"permutation_type": "samples"}
    return float(permutation_test(places, difference, **settings).pvalue)


def seeds_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval over at least two seeds, by Student's t."""
    from scipy.stats import t

    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return float(values.mean() - half), float(values.mean() + half)


# Rows of documents.


def in_lines(text: str | Sequence[str]) -> list[str]:
    """Sentences of a prediction or a reference as they are scored, both split alike."""
    lines = [text] if isinstance(text, str) else text
    sentences = [sentence for line in lines for sentence in split_sentences(line)]
    return [unicodedata.normalize("NFC", " ".join(sentence.split())) for sentence in sentences]


def is_measure(value: object) -> bool:
    """Whether a field of a document's row is to be averaged: a number, or a pair of numbers."""
    numbers = value if isinstance(value, list) and len(value) == 2 else [value]
    return all(isinstance(number, Real) and not isinstance(number, bool) for number in numbers)


def is_text(value: object) -> bool:
    """Whether it is a string, or a list of strings."""
    lines = [value] if isinstance(value, str) else value
    return isinstance(lines, list) and all(isinstance(line, str) for line in lines)


def measures_of(
    rows: Sequence[dict], metric: str, words: rouge.Words, tokenize: rouge.Tokenize
) -> dict[str, Measure]:
    """The measures of one run, whose numbers are (1, documents, k); ValueError: a row lacks one."""
    system = rows[0]["system"]
    predictions = [in_lines(row["prediction"]) for row in rows]
    references = [[in_lines(text) for text in row["references"]] for row in rows]
    measures = {}
    if metric == "rouge":
        columns = rouge.score(predictions, references, words)
        measures = {name: Measure(values[None, :, None]) for name, values in columns.items()}
    elif metric == "bleu":
        texts = [" ".join(lines) for lines in predictions]
        joined = [[" ".join(lines) for lines in own] for own in references]
        measures = {"bleu": Measure(rouge.bleu_counts(texts, joined, tokenize)[None], bleu)}
    names = [name for row in rows for name, value in row.items() if is_measure(value)]
    for name in dict.fromkeys(names):
        if name in TEXT:
            continue
        if name in measures:
            raise ValueError(f"{system}: a field is called {name!r}, like a score: rename it")
        first = next(row for row in rows if is_measure(row.get(name)))
        for row in rows:
            value = row.get(name)
            if not is_measure(value) or np.size(value) != np.size(first[name]):
                raise ValueError(
                    f"{system}: document {row['id']} has no {name!r} like that of {first['id']}"
                )
        numbers = np.array([row[name] for row in rows], dtype=float).reshape(1, len(rows), -1)
        measures[name] = Measure(numbers, share if np.size(first[name]) == 2 else mean)
    return measures


def score(
    rows: Sequence[dict],
    metric: str = "rouge",
    minus: Sequence[str] = (),
    words: rouge.Words = "rouge-score",
    tokenize: rouge.Tokenize = "13a",
) -> list[dict]:
    """Values of every system, then differences of each from those of `minus`, or from the first.

    Args:
        rows: lines as above, of all systems and seeds, on the same documents.
        metric: "rouge", "bleu" or "none".
        words, tokenize: how ROUGE and BLEU read, see rouge.py.
    Returns:
        per system and measure, and per difference: system, minus, metric, what `describe` gives,
            documents.
    Raises:
        ValueError: other documents or other references, a measure that a document or a seed lacks,
            an unknown system.
    """
    runs = {}
    for row in rows:
        runs.setdefault(row["system"], {}).setdefault(row["seed"], []).append(row)
    systems, first = {}, None
    for system, seeds in runs.items():
        columns = []
        for seed, outputs in seeds.items():
            outputs = sorted(outputs, key=lambda row: str(row["id"]))
            first = first or outputs
            check_documents(f"{system}, seed {seed}", outputs, first)
            columns.append(measures_of(outputs, metric, words, tokenize))
            if other := columns[0].keys() ^ columns[-1].keys():
                raise ValueError(f"{system}: not all of its seeds have {', '.join(sorted(other))}")
        systems[system] = {
            name: one._replace(numbers=np.concatenate([own[name].numbers for own in columns]))
            for name, one in columns[0].items()
        }
    if unknown := set(minus) - set(systems):
        raise ValueError(f"no system {unknown.pop()!r} to subtract; there are {', '.join(systems)}")
    pairs = [(system, None) for system in systems]
    for base in minus or list(systems)[:1]:
        pairs += [(system, base) for system in systems if system != base]
    table = []
    for system, base in pairs:
        paired = base is None or list(runs[system]) == list(runs[base])
        for name, measure in systems[system].items():
            if base is None or name in systems[base]:
                numbers = describe(measure, systems[base][name] if base else None, paired)
                row = {"system": system, "minus": base, "metric": name} | numbers
                table.append(row | {"documents": len(first)})
    if not table:
        raise ValueError("no document has a number to average")
    return table


def check_documents(run: str, rows: Sequence[dict], first: Sequence[dict]) -> None:
    """ValueError: documents are not those of the first run, or references, as they are scored."""
    ids = [row["id"] for row in rows]
    if len(set(ids)) < len(ids):
        raise ValueError(f"{run}: documents come twice; is a file given twice?")
    if ids != [row["id"] for row in first]:
        raise ValueError(
            f"{run} has {len(ids)} documents, the first run {len(first)}, not all the same ones: "
            f"give outputs for the same documents"
        )
    for row, other in zip(rows, first, strict=True):
        if sorted(map(in_lines, row["references"])) != sorted(map(in_lines, other["references"])):
            raise ValueError(f"{run}: document {row['id']} has other references than the first run")


def system_name(run: str, seed: int) -> str:
    """Name of a run's folder without its seed: base-1 and base-2 are the system base."""
    return re.sub(rf"[-_](seed)?{seed}$", "", run)


# Tables.


def report(rows: Sequence[dict], signature: str) -> None:
    """Print what `score` returned: the values, the differences, the metric's signature."""
    names = list(dict.fromkeys(row["metric"] for row in rows))
    for base in dict.fromkeys(row["minus"] for row in rows):
        for start in range(0, len(names), 6):  # a table as wide as a screen
            lines: dict = {}
            for row in rows:
                if row["minus"] == base and row["metric"] in names[start : start + 6]:
                    title = f"minus {base}" if base else "system"
                    line = lines.setdefault(row["system"], {title: row["system"]})
                    line[row["metric"]] = cell(row)
            if lines:
                print_columns(list(lines.values()))
    tested = [row for row in rows if row["p"] is not None]
    if any((row["p"] < 0.05) == (row["low"] <= 0 <= row["high"]) for row in tested):
        print(
            "interval and p are of two methods (bootstrap, randomisation): where they disagree, "
            "take it as not shown"
        )
    print(
        f"means over seeds, 95 % intervals over documents; {signature} | n {rows[0]['documents']}"
    )


def print_columns(lines: Sequence[dict]) -> None:
    """Print rows as a Markdown table, a column per key of any row; where a row lacks it, `-`."""
    columns = list(dict.fromkeys(name for line in lines for name in line))
    cells = [columns, *([line.get(name, "-") for name in columns] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    for row in cells:
        print("| " + " | ".join(map(str.ljust, row, widths)) + " |")
    print()


def cell(row: dict) -> str:
    """`41.20 [40.10, 42.30]`; of a difference `+1.20 [0.40, 2.00] p 0.004`.

    The share of nothing is `-`.
    """
    if not np.isfinite(row["value"]):
        return "-"
    text = f"{row['value']:+.2f}" if row["minus"] else f"{row['value']:.2f}"
    if row["low"] is not None:
        text += f" [{row['low']:.2f}, {row['high']:.2f}]"
    if row["p"] is not None:
        text += f" p {row['p']:.3f}"
    return text


def print_table(
    rows: Sequence[dict],
    metric: str = "rouge",
    words: rouge.Words = "rouge-score",
    tokenize: rouge.Tokenize = "13a",
    minus: Sequence[str] = (),
    csv: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Score and report the rows that have references.

    The CSV comes first: a `head` behind the command ends it.
    """
    scored = []
    for row in rows:
        if any(rouge.unicode_words(str(text)) for text in row["references"]):
            scored.append(row)
    if not scored:
        raise ValueError("no document has a reference: there is nothing to compare with")
    if lacking := len(rows) - len(scored):
        print(
            f"{lacking} of {len(rows)} documents have no reference: they are not in the table",
            file=sys.stderr,
        )
    with open_output(csv, overwrite) as file:
        table = score(scored, metric, minus, words, tokenize)
        if csv:
            write_csv(file, table)
    signature = "no metric" if metric == "none" else rouge.signature(metric, words, tokenize)
    report(table, signature)


def write_outputs(
    rows: Iterable[dict],
    examples: Sequence[Example],
    system: str = "",
    seed: int = 0,
    out: Path | None = None,
    overwrite: bool = False,
    metric: str = "rouge",
    words: rouge.Words = "rouge-score",
    tokenize: rouge.Tokenize = "13a",
) -> None:
    """Write what `predict` yields, as it comes; where there are references, end with the table.

    References that the metric does not read are refused before the first row is asked for.

    Args:
        rows: a dict for each `Example` that is not blank, in their order: id, prediction, the
            document's own numbers. "line" is no field, but what is printed for the document in
            place of its prediction.
        out: FILE.jsonl gets the rows; another file, or standard output (None), a line of each.
    """
    references = {example.id: example.references for example in examples if example.references}
    rouge.check_references(references, metric, words, tokenize)
    is_json = out is not None and out.suffix.lower() == ".jsonl"
    rows, written = iter(rows), []
    with open_output(out, overwrite) as file:
        for example in tqdm(examples, unit="document", disable=None if out else True):
            row = dict(next(rows)) if example.document else {"id": example.id, "prediction": ""}
            text = row["prediction"]
            text = text if isinstance(text, str) else " ".join(text)
            line = row.pop("line", " ".join(text.split()))  # one document, one line
            row["references"] = example.references
            written.append(row | {"system": system, "seed": seed, "metric": metric})
            if is_json:
                write_jsonl(file, written[-1:])
            else:
                print(line, file=file, flush=True)
    if cut := sum(row.get("was_cut", False) for row in written):
        print(
            f"{cut} of {len(written)} documents are longer than the model reads: they were cut",
            file=sys.stderr,
        )
    if references:
        print_table(written, metric, words, tokenize)


def rows_of(file: Path) -> list[dict]:
    """The rows of a file of outputs; ValueError: one without id or prediction.

    `references` that are one string are one reference.
    """
    rows = []
    for row in read_jsonl(file):
        texts = row.get("references") or []
        texts = [texts] if isinstance(texts, str) else texts
        are_texts = isinstance(texts, list) and all(map(is_text, [row.get("prediction"), *texts]))
        if "id" not in row or not are_texts:
            raise ValueError(
                f"{file}: document {row.get('id')} lacks an id or a prediction, or a reference is "
                f"no text"
            )
        own = {"system": row.get("system") or file.stem, "seed": row.get("seed") or 0}
        rows.append(row | {"id": str(row["id"]), "references": texts} | own)
    return rows


@dataclass
class Options:
    """The command line."""

    files: tyro.conf.Positional[tuple[Path, ...]]  # JSON lines of predict, a file a run.
    metric: Literal["auto", "rouge", "bleu", "none"] = "auto"  # auto: the files' own, or rouge.
    words: rouge.Words = "rouge-score"  # Of ROUGE: English, or those of any script.
    tokenize: rouge.Tokenize = "13a"  # Of BLEU: sacrebleu's tokenizer.
    minus: tuple[str, ...] = ()  # Systems that the others are compared with; none: the first one.
    csv: Path | None = None  # File for all rows, with the intervals over seeds.
    overwrite: bool = False  # Replace that file.


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    rows = [row for file in options.files for row in rows_of(file)]
    if not rows:
        raise ValueError("no outputs to score: give files that predict wrote with --out FILE.jsonl")
    metric = options.metric
    if metric == "auto":
        metric = "bleu" if rows[0].get("metric") == "bleu" else "rouge"
    references = {row["id"]: row["references"] for row in rows if row["references"]}
    rouge.check_references(references, metric, options.words, options.tokenize)
    print_table(
        rows, metric, options.words, options.tokenize, options.minus, options.csv, options.overwrite
    )


if __name__ == "__main__":
    main()
