"""Extract and score: Tables 2 and 3, with Lead and Oracle.

python -m discourse_tree_attention.evaluate runs/tree runs/dot                 # some runs
python -m discourse_tree_attention.evaluate runs/gum/c_tree-fold*              # folds of one model: one system

Runs whose folders differ only in numbers at the end (tree-seed0, tree-fold1-seed2, ...) are one system: a document that
several of them read counts once, with the mean of its values.
"""

import re
import sys
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import tyro
from tqdm import tqdm

from shared import rouge
from shared.data import Example, check_outputs, in_sentences, load, write_csv, write_json, write_jsonl
from shared.timing import find_device

from .config import TrainConfig
from .decode import extract, score_documents
from .documents import Document, choose_documents, make_documents, prepare
from .loading import Run, load_run
from .model import count_parameters
from .run import Positive, check_fields, one_line_errors, read_flags
from .selection import join_units

ROUGE = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # the paper's L is over sentences
METRICS = ROUGE | {"auc": "AUC", "ap": "AP"}  # the last two: do the scores rank the oracle's units above the others?
ATTENTION_NAMES = {  # the rows of Tables 2 and 3
    "dot": "Dot Product", "dense": "Dense", "learned_random": "Learned Random", "fixed_random": "Fixed Random",
    "none": "No attention", "d_tree": "D-Tree", "c_tree": "C-Tree", "c_tree_nuclearity": "C-Tree w/Nuc",
    "previous": "Previous unit",  # D25
}  # fmt: skip
Values = dict[str, np.ndarray]  # document id -> (5,) METRICS x 100


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders, all of one level; differences refer to the first
    data: str = ""  # anything shared.data.load takes; default: that of the runs
    split: str = "test"
    limit: Positive | None = None  # first N documents only
    cache: str = ""  # folder of unit vectors; default: that of the first run
    json: Path | None = None  # write every number here
    csv: Path | None = None  # write a row per system and seed here
    predictions: Path | None = None  # folder for the summaries, a .jsonl per run
    device: str = "cpu"


def evaluate(
    runs: dict[str, Run],
    examples: Sequence[Example],
    split: str = "test",
    cache: str | Path = "",
    predictions: Path | None = None,
) -> dict:
    """Score runs and baselines on the same documents: every number in one JSON object.

    Args:
        runs: by name; see `system_of`. Of runs with folds each is tested on its own part of the documents.
        examples: the test data; for runs with folds all of train and validation.
        split: of runs with folds.
        cache: folder of unit vectors; empty = they are not kept.
        predictions: folder for NAME.jsonl with the summaries of each run, written before the next.
    Raises:
        ValueError: systems at both levels or on different documents; a reference that ROUGE cannot read.
    """
    check_runs(runs)
    rouge.check_references(examples)
    config = next(iter(runs.values())).config
    documents = make_documents(examples, config, partial(tqdm, desc="oracles", leave=False))
    references = {example.id: example.references for example in examples}
    values, cut = {}, {}
    systems: dict[str, dict] = {name: {"seeds": []} for name in map(system_of, runs)}
    parts: dict[tuple, list[str]] = {}  # of each system, seed and draw the runs, one a fold
    for name, run in runs.items():
        own = run.config
        corpus = prepare(documents, own, run.encoder, cache, partial(tqdm, desc="unit vectors", leave=False))
        corpus = corpus.select(choose_documents(own, split, len(documents)))
        scores = score_documents(run.model, corpus)
        texts = [extract(document, row, own) for document, row in zip(corpus.documents, scores, strict=True)]
        if predictions:
            pairs = zip(corpus.documents, texts, strict=True)
            write_jsonl(predictions / f"{name}.jsonl", ({"id": d.id, "prediction": text} for d, text in pairs))
        values[name] = score(corpus.documents, texts, scores, references)
        cut[name] = sum(document.was_cut for document in corpus.documents)
        settings = {"attention": attention_name(own), "heads": own.heads, "examples": own.examples}
        parameters = zip(("attention_parameters", "parameters"), count_parameters(run.model), strict=True)
        systems[system_of(name)] |= settings | dict(parameters)
        parts.setdefault((system_of(name), own.seed, own.examples_seed if own.examples else None), []).append(name)
    for (name, seed, draw), folds in parts.items():
        row = {"seed": seed, "draw": draw, "runs": len(folds), "documents_cut": sum(cut[run] for run in folds)}
        systems[name]["seeds"].append(row | intervals(mean_of_runs([values[run] for run in folds])))
    means = {name: mean_of_runs([values[run] for run in values if system_of(run) == name]) for name in systems}
    for name, differences in compare(means).items():
        systems[name] |= intervals(means[name]) | {"difference": differences}
    tested = next(iter(means.values()))
    return {
        "data": config.data, "split": split, "level": config.level, "signature": rouge.signature(len(tested)),
        "documents": len(tested), "systems": baselines(documents, config, references, tested) | systems,
    }  # fmt: skip


def check_runs(runs: dict[str, Run]) -> None:
    """ValueError where runs cannot stand in one table, or one system has runs of different models."""
    if not runs:
        raise ValueError("give at least one run folder")
    if len({(run.config.level, run.config.right_nuclei) for run in runs.values()}) > 1:
        raise ValueError("runs of one table need the same --level (EDUs or sentences) and --right-nuclei")
    first: dict[str, TrainConfig] = {}
    for name, run in runs.items():
        same = replace(run.config, seed=0, fold=0, examples_seed=0, cache="", init="")
        if first.setdefault(system_of(name), same) != same:
            raise ValueError(f"{name} is not the model of the others called {system_of(name)}: rename its folder")


def system_of(run_name: str) -> str:
    """The system that a run belongs to: its name without the numbers at the end."""
    return re.sub(r"([-_](seed|fold|draw)?\d+)+$", "", run_name)


def attention_name(config: TrainConfig) -> str:
    """As Tables 2 and 3 call it."""
    heads = f"({config.heads})" if config.attention == "dot" else ""
    return ATTENTION_NAMES[config.attention] + heads + (", shuffled" if config.shuffle_trees else "")


def score(documents: Sequence[Document], texts: list, scores: Sequence[np.ndarray], references: dict) -> Values:
    """METRICS of each document."""
    values = rouge.score(texts, [references[document.id] for document in documents])
    rows = zip(documents, scores, *(values[metric] for metric in ROUGE), strict=True)
    return {d.id: np.array([*of_rouge, *ranking(unit_scores, d.labels)]) for d, unit_scores, *of_rouge in rows}


def ranking(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """AUC and average precision of a document's (N,) unit scores; NaN where the oracle takes all units or none."""
    if labels.all() or not labels.any():
        return np.nan, np.nan
    above = np.sign(scores[labels][:, None] - scores[~labels])  # (taken, not taken): 1, 0 (a tie) or -1
    hits = labels[np.argsort(-scores, kind="stable")]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return 50 * (1 + above.mean()), 100 * precision[hits].mean()


def baselines(documents: Sequence[Document], config: TrainConfig, references: dict, tested: Container) -> dict:
    """Lead, and Oracle (Lead where it takes nothing), on the documents whose ids are in `tested`."""
    documents = [document for document in documents if document.id in tested]
    first = [-np.arange(len(document.units)) for document in documents]
    lead = [list(range(min(config.count, len(document.units)))) for document in documents]
    labels = [document.labels.astype(int) for document in documents]
    best = [np.flatnonzero(taken).tolist() or units for taken, units in zip(labels, lead, strict=True)]
    rows = {}
    for name, picks, scores in ((f"Lead{config.count}", lead, first), ("Oracle", best, labels)):
        texts = [join_units(d.units, d.sentence, taken) for d, taken in zip(documents, picks, strict=True)]
        rows[name] = {"seeds": []} | intervals(score(documents, texts, scores, references))
    return rows


def mean_of_runs(runs: Sequence[Values]) -> Values:
    """The mean of each document's values over the runs that read it, ordered by id."""
    ids = sorted({identity for values in runs for identity in values})
    return {identity: np.mean([values[identity] for values in runs if identity in values], axis=0) for identity in ids}


def intervals(values: Values) -> dict[str, dict | None]:
    """{"rouge1": {mean, low, high}, ...} over the documents that have a value."""
    columns = dict(zip(METRICS, np.array(list(values.values())).T, strict=True))
    known = {metric: column[np.isfinite(column)] for metric, column in columns.items()}
    return {metric: rouge.interval(column) if len(column) else None for metric, column in known.items()}


def compare(means: dict[str, Values]) -> dict[str, dict | None]:
    """Each system minus the first, by metric: {difference, low, high, p, p_holm}.

    D22: p is of the paper's test, a paired bootstrap; p_holm is corrected for the number of systems (Holm 1979).
    """
    (first, base), *others = means.items()
    rows: dict[str, dict | None] = {first: None} | {name: {} for name, _ in others}
    for column, metric in enumerate(METRICS):
        tests = []
        for name, values in others:
            if list(values) != list(base):
                raise ValueError(f"{name} was tested on other documents than {first}: give it its folds")
            one, other = (np.array(list(of.values()))[:, column] for of in (values, base))
            known = np.isfinite(one + other)
            if known.any():
                p = rouge.paired_test(one[known], other[known], "bootstrap")
                rows[name][metric] = rouge.difference(one[known], other[known]) | {"p": p}
                tests.append(rows[name][metric])
        least = 0.0
        for rank, test in enumerate(sorted(tests, key=lambda test: test["p"])):
            test["p_holm"] = least = max(least, min(1.0, (len(tests) - rank) * test["p"]))
    return rows


def table(metrics: dict) -> str:
    """Table 2 or 3."""
    rows = []
    for name, system in metrics["systems"].items():
        row = {"system": name, "attention": system.get("attention")}
        row |= {label: system[metric] for metric, label in METRICS.items()}
        difference = system.get("difference") or {}
        row |= {f"{METRICS[metric]} - first": difference.get(metric) for metric in ("rouge1", "auc")}
        for title, key in (("# Params(attn)", "attention_parameters"), ("# Params", "parameters")):
            row[title] = f"{system[key] / 1e6:.1f}M" if key in system else None
        rows.append(row)
    title = {"edu": "Table 2, EDU level", "sentence": "Table 3, sentence level"}[metrics["level"]]
    note = "p by a paired bootstrap test, for one comparison; corrected for all of a metric: p_holm in --json and --csv"
    return f"{title}: {metrics['data']}, {metrics['split']}\n\n{rouge.table(rows)}\n\n{note}\n{metrics['signature']}"


def csv_rows(metrics: dict) -> list[dict]:
    """A row per system, and per seed and draw where it has several."""
    rows = []
    for name, system in metrics["systems"].items():
        seeds = system["seeds"]
        total = {"seed": " ".join(str(row["seed"]) for row in seeds), "runs": sum(row["runs"] for row in seeds)}
        rows.append({"system": name} | total | {key: v for key, v in system.items() if v and key != "seeds"})
        rows += [{"system": name} | row for row in seeds if len(seeds) > 1]
    return rows


def load_runs(paths: Sequence[Path], device: str = "cpu", data: str = "") -> dict[str, Run]:
    """Runs by the names of their folders, on a device; runs of one encoder share it, or it would fill the memory.

    Args:
        data: what they are tested on, where it is not their own.
    Raises:
        ValueError: a name twice, or data that differ and none that is given.
    """
    runs, known, place = {}, {}, find_device(device)
    for path in paths:
        run = load_run(path)
        run.model.to(place)
        key = run.config.encoder or path, run.config.max_tokens, run.config.pooling
        config = replace(run.config, data=data, folds=0) if data else run.config
        runs[path.name] = run._replace(config=config, encoder=known.setdefault(key, run.encoder.to(place)))
    if len(runs) < len(paths):
        raise ValueError("two runs have folders of the same name; rename one")
    if len({(run.config.data, run.config.folds) for run in runs.values()}) > 1:
        raise ValueError("the runs were trained on different data: say with --data which to test on")
    return runs


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.evaluate", description=__doc__)
    check_fields(options)
    runs = load_runs(options.runs, options.device, options.data)
    check_runs(runs)
    config = next(iter(runs.values())).config
    if config.folds and (options.limit or options.split not in ("validation", "test")):
        raise ValueError("runs with --folds are tested on their own fold: --split test or validation, no --limit")
    outputs = [options.predictions / f"{name}.jsonl" for name in runs] if options.predictions else []
    check_outputs(options.json, options.csv, *outputs, inputs=[config.data, *Path(config.data).glob("*.jsonl")])
    read = (load(config.data, name, options.limit) for name in config.splits(options.split))
    examples = in_sentences(example for part in read for example in part)
    cache = options.cache or config.cache or options.runs[0].parent / "cache"
    metrics = evaluate(runs, examples, options.split, cache, options.predictions)
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        write_csv(options.csv, csv_rows(metrics))
    print(table(metrics))
    if cut := sum(row["documents_cut"] for system in metrics["systems"].values() for row in system["seeds"]):
        print(f"{cut} documents, counted once a run, were cut to what the model can read", file=sys.stderr)


if __name__ == "__main__":
    main()
