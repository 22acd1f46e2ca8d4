"""Extract and score: Tables 2 and 3, with Lead and Oracle.

python -m discourse_tree_attention.evaluate runs/tree runs/dot                 # some runs

python -m discourse_tree_attention.evaluate runs/gum/c_tree-fold*              # the folds of one model: one system

Runs whose folders differ only in numbers at the end (tree-seed0, tree-fold1-seed2, ...) are one system.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from annotated_types import Interval
from tqdm import tqdm

try:
    from shared.data import Example, in_sentences, load, open_output
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared import rouge
from shared.run import one_line_errors, read_flags
from shared.score import report, score
from shared.timing import find_device

from .config import TrainConfig
from .decode import extract_all, score_documents
from .documents import Document, choose_documents, make_documents, prepare
from .loading import Run, load_run
from .model import count_parameters
from .selection import join_units


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # Run folders, all of one level.
    data: str = ""  # Data to test on: anything that shared.data.load takes; empty = that of the runs.
    split: str = "test"  # Split to test on; of runs with folds the part of their own fold: test or validation.
    limit: Annotated[int, Interval(ge=1)] | None = None  # Read the first N documents only.
    minus: tuple[str, ...] = ()  # Systems that the others are compared with; empty = the first run's.
    predictions: Path | None = None  # Folder for a .jsonl of each run: the summary and the numbers of each document.
    csv: Path | None = None  # File for the table.
    overwrite: bool = False  # Replace files of these names.
    device: str = "cpu"  # Device of torch to compute on.


def evaluate(runs: dict[str, Run], examples: Sequence[Example], split: str = "test", cache="") -> Iterator[dict]:
    """Rows of `shared.score` for each document that a run extracts from, one run after the other; Lead's and Oracle's.

    Args:
        runs: by name. Of runs with folds each is tested on its own part of the documents.
        examples: the test data; for runs with folds all of train and validation.
        cache: folder of unit vectors; empty = they are not kept.
    Raises:
        ValueError: runs that cannot stand in one table; a reference that ROUGE cannot read.
    """
    check_runs(runs)
    rouge.check_references(examples)
    config = next(iter(runs.values())).config
    documents = make_documents(tqdm(examples, desc="oracles", leave=False, disable=None), config)
    tested: dict[str, Document] = {}
    for name, (own, model, encoder) in runs.items():
        corpus = prepare(documents, own, encoder, cache).select(choose_documents(own, split, len(documents)))
        tested |= {document.id: document for document in corpus.documents}
        scores = score_documents(model, corpus)
        # With folds, the draws of a small training set share out the documents: together they are one seed.
        seed = 0 if own.folds and own.examples else own.seed
        texts = extract_all(corpus.documents, scores, own)
        yield from rows_of(corpus.documents, texts, scores, run=name, system=system_of(name), seed=seed)
    documents = list(tested.values())
    lead = [list(range(min(config.count, len(document.units)))) for document in documents]
    best = [np.flatnonzero(d.labels).tolist() or first for d, first in zip(documents, lead, strict=True)]
    in_order = [-np.arange(len(document.units)) for document in documents]
    for name, picks, scores in (("Lead", lead, in_order), ("Oracle", best, [d.labels for d in documents])):
        texts = [join_units(d.units, d.sentence, taken) for d, taken in zip(documents, picks, strict=True)]
        yield from rows_of(documents, texts, scores, run=name, system=name, seed=0)


def rows_of(documents: Sequence, texts: Sequence, scores: Sequence[np.ndarray], **system) -> Iterator[dict]:
    """A row of each document: its summary, and how well the scores rank the oracle's units."""
    for document, text, own in zip(documents, texts, scores, strict=True):
        row = {"id": document.id, "prediction": text, "references": document.references} | system
        # Pairs: a part and a whole, which is 0 where the oracle takes all units or none, so that there is no ranking.
        ranks = ranking(own.astype(float), document.labels)
        yield row | {"auc": [ranks[0], 1], "ap": [ranks[1], 1]} if ranks else row | {"auc": [0, 0], "ap": [0, 0]}


def ranking(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float] | None:
    """AUC and average precision, 0 to 1, of a document's (N,) unit scores; None where the oracle takes all or none."""
    if labels.all() or not labels.any():
        return None
    above = np.sign(scores[labels][:, None] - scores[~labels])  # (taken, not taken): 1, 0 (a tie) or -1
    hits = labels[np.argsort(-scores, kind="stable")]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return (1 + float(above.mean())) / 2, float(precision[hits].mean())


def check_runs(runs: dict[str, Run]) -> None:
    """ValueError where runs cannot stand in one table, or one system has runs of different models."""
    if len({(c.level, c.right_nuclei, c.data, c.folds) for c, *_ in runs.values()}) > 1:
        raise ValueError("runs of one table need the same --level, --right-nuclei, --folds and data (or say --data)")
    first: dict[str, TrainConfig] = {}
    for name, (config, *_) in runs.items():
        same = replace(config, seed=0, fold=0, examples_seed=0, cache="")
        if first.setdefault(system_of(name), same) != same:
            raise ValueError(f"{name} is not the model of the others called {system_of(name)}: rename its folder")


def system_of(run_name: str) -> str:
    """The system that a run belongs to: its name without the numbers at the end."""
    return re.sub(r"([-_](seed|fold|draw)?\d+)+$", "", run_name)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    device, runs = find_device(options.device), {}
    for path in options.runs:
        config, model, encoder = load_run(path)
        config = replace(config, data=options.data, folds=0) if options.data else config
        runs[path.name] = Run(config, model.to(device), encoder.to(device))
    if not runs or len(runs) < len(options.runs):
        raise ValueError("give at least one run folder, and none twice: their names must differ")
    check_runs(runs)
    if config.folds and (options.limit or options.split not in ("validation", "test")):
        raise ValueError("runs with --folds are tested on their own fold: --split test or validation, no --limit")
    parts = (load(config.data, name, options.limit) for name in config.splits(options.split))
    examples, rows = in_sentences(example for part in parts for example in part), []
    cache = config.cache or options.runs[0].parent / "cache"
    with open_output(options.csv, options.overwrite) as table:
        for name, own in groupby(evaluate(runs, examples, options.split, cache), itemgetter("run")):
            path = options.predictions and options.predictions / f"{name}.jsonl"
            with open_output(path, options.overwrite) if path else nullcontext() as file:
                for row in own:
                    rows.append(row)
                    if file:
                        print(json.dumps(row, ensure_ascii=False), file=file)
        # D22: each difference with its interval, by approximate randomisation, for the ranking of units as for ROUGE.
        report(score(rows, "rouge", options.minus), table if options.csv else None)
    for name, run in runs.items():
        print("{}: {:,} parameters in the attention, {:,} in all".format(name, *count_parameters(run.model)))


if __name__ == "__main__":
    main()
