"""Extract and score: Tables 2 and 3, with Lead and Oracle.

python -m discourse_tree_attention.evaluate runs/tree runs/dot                 # some runs
python -m discourse_tree_attention.evaluate runs/gum/c_tree-fold*              # folds of one model: one system

Runs whose folders differ only in a number at the end (tree-seed0, tree-seed1 or tree-fold0, ...) are one system: a
document that several of them read counts once, with the mean of its values.
"""

import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np
import tyro
from tqdm import tqdm

from shared import rouge
from shared.data import Example, check_outputs, write_csv, write_json
from shared.timing import find_device

from .documents import Corpus, Document, choose_documents, extract, make_document, prepare, score_documents
from .model import count_parameters
from .run import one_line_errors
from .selection import join_units, lead
from .train import Run, TrainConfig, load_run, read_documents

ROUGE = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # the paper's L is over sentences
ATTENTION_NAMES = {  # the rows of Tables 2 and 3
    "dot": "Dot Product", "dense": "Dense", "learned_random": "Learned Random", "fixed_random": "Fixed Random",
    "none": "No attention", "d_tree": "D-Tree", "c_tree": "C-Tree", "c_tree_nuclearity": "C-Tree w/Nuc",
}  # fmt: skip
SIGNIFICANCE = 0.01  # Tables 2 and 3


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders, all of one level; differences refer to the first
    data: str = ""  # anything shared.data.load takes; default: that of the runs
    split: str = "test"
    limit: int | None = None  # first N documents only
    cache: str = ""  # folder of unit vectors; default: that of the first run
    json: Path | None = None  # write every number here
    csv: Path | None = None  # write a row per system and seed here
    predictions: Path | None = None  # folder for the summaries, a .jsonl per run
    device: str = "cpu"


def system_of(run_name: str) -> str:
    """The system that a run belongs to: its name without a number at the end."""
    return re.sub(r"[-_](seed|fold|draw)?\d+$", "", run_name)


def evaluate(
    runs: dict[str, Run],
    examples: Sequence[Example],
    split: str = "test",
    cache: str | Path = "",
    predictions: Path | None = None,
    documents: Sequence[Document] | None = None,
) -> dict:
    """Score runs, Lead and Oracle on the same documents.

    Args:
        runs: by name; see `system_of`. Of runs with folds each is tested on its own part of the documents.
        examples: the test data; for runs with folds all of train and validation.
        split: of runs with folds.
        cache: folder of unit vectors; empty = they are not kept.
        predictions: folder for NAME.jsonl with the summaries of each run, written as they come.
        documents: those of the examples, where they are made already.
    Returns:
        every number in one JSON object.
    Raises:
        ValueError: systems at both levels or on different documents; a reference that ROUGE cannot read.
    """
    check_runs(runs)
    rouge.check_references(examples)
    config = next(iter(runs.values())).config
    documents = documents or [make_document(example, config.level) for example in examples]
    values: dict[str, dict[str, np.ndarray]] = {}  # of each run: id -> R-1, R-2, R-L
    systems = {name: {"runs": []} for name in map(system_of, runs)}
    for name, run in runs.items():
        chosen = choose_documents(run.config, split, len(documents))
        corpus = prepare(documents, run.config, run.encoder, cache, partial(tqdm, desc="unit vectors", leave=False))
        corpus = corpus.select(chosen)
        with open(predictions / f"{name}.jsonl", "w", encoding="utf-8") if predictions else nullcontext() as file:
            values[name] = score(summarize(run, corpus, file), examples)
        system = systems[system_of(name)]
        system |= {"attention": attention_name(run.config), "heads": run.config.heads}
        system |= dict(zip(("attention_parameters", "parameters"), count_parameters(run.model), strict=True))
        settings = {"run": name, "seed": run.config.seed, "fold": run.config.fold if run.config.folds else None}
        cut = sum(document.was_cut for document in corpus.documents)
        system["runs"].append(settings | {"documents_cut": cut} | intervals(values[name]))
    scores = {name: mean_of_runs([values[run] for run in values if system_of(run) == name]) for name in systems}
    first, base = next(iter(scores.items()))
    for name, of_system in scores.items():
        if list(of_system) != list(base):
            raise ValueError(f"{name} was tested on other documents than {first}: give it its folds")
        systems[name] |= intervals(of_system) | {"difference": None if name == first else difference(of_system, base)}
    mark(systems, scores)
    texts = baseline_texts(documents, set(base), config.count)
    baselines = {name: {"runs": []} | intervals(score(of, examples)) for name, of in texts.items()}
    return {
        "data": config.data, "split": split, "level": config.level, "documents": len(base),
        "signature": rouge.signature(len(base)), "systems": baselines | systems,
    }  # fmt: skip


def summarize(run: Run, corpus: Corpus, file: TextIO | None = None) -> dict[str, list[str]]:
    """Summaries by document id, each a list of sentences; with `file`, written there as they come."""
    texts = {}
    for document, scores in zip(corpus.documents, score_documents(run.model, corpus), strict=True):
        texts[document.id] = extract(document, scores, run.config)
        if file:
            row = {"id": document.id, "prediction": texts[document.id]}
            print(json.dumps(row, ensure_ascii=False), file=file, flush=True)
    return texts


def check_runs(runs: dict[str, Run]) -> None:
    """ValueError where runs cannot stand in one table, or one system has runs of different models."""
    if not runs:
        raise ValueError("give at least one run folder")
    first: dict[str, TrainConfig] = {}
    for name, run in runs.items():
        if run.config.level != next(iter(runs.values())).config.level:
            raise ValueError("EDU and sentence summaries do not go into one table: give runs of one --level")
        same = replace(run.config, seed=0, fold=0, examples_seed=0, cache="", init="")
        if first.setdefault(system_of(name), same) != same:
            raise ValueError(f"{name} is not the model of the others called {system_of(name)}: rename its folder")


def score(texts: dict[str, list[str]], examples: Sequence[Example]) -> dict[str, np.ndarray]:
    """(3,) ROUGE-1, 2 and L of each document's summary, by document id."""
    chosen = [example for example in examples if example.id in texts]
    scores = rouge.score([texts[e.id] for e in chosen], [e.references for e in chosen])
    numbers = np.stack([scores[metric] for metric in ROUGE], axis=1)  # (documents, 3)
    return dict(zip((e.id for e in chosen), numbers, strict=True))


def mean_of_runs(runs: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The mean of each document's values over the runs that read it, ordered by id."""
    ids = sorted({identity for scores in runs for identity in scores})
    return {identity: np.mean([scores[identity] for scores in runs if identity in scores], axis=0) for identity in ids}


def intervals(scores: dict[str, np.ndarray]) -> dict[str, dict]:
    """{"rouge1": {mean, low, high}, ...} over documents."""
    columns = np.array(list(scores.values())).T
    return {metric: rouge.interval(column) for metric, column in zip(ROUGE, columns, strict=True)}


def difference(scores: dict[str, np.ndarray], base: dict[str, np.ndarray]) -> dict[str, float]:
    """ROUGE-1 of a system minus that of another: {difference, low, high, p}; D22: the paper's bootstrap test."""
    one, other = (np.array(list(values.values()))[:, 0] for values in (scores, base))
    return rouge.difference(one, other) | {"p": rouge.paired_test(one, other, "bootstrap")}


def baseline_texts(documents: Sequence[Document], tested: set[str], count: int) -> dict[str, dict[str, list[str]]]:
    """Summaries of Lead and of the oracle; where the oracle takes nothing, it is the lead."""
    texts: dict[str, dict[str, list[str]]] = {"lead": {}, "oracle": {}}
    for document in documents:
        if document.id in tested:
            first = lead(document.required, count)
            best = np.flatnonzero(document.labels).tolist() or first
            for name, taken in zip(texts, (first, best), strict=True):
                texts[name][document.id] = join_units(document.units, document.sentence, taken)
    return {f"Lead{count}": texts["lead"], "Oracle": texts["oracle"]}


def attention_name(config: TrainConfig) -> str:
    """As Tables 2 and 3 call it."""
    heads = f"({config.heads})" if config.attention == "dot" else ""
    return ATTENTION_NAMES[config.attention] + heads + (", shuffled" if config.shuffle_trees else "")


def mark(systems: dict[str, dict], scores: dict[str, dict[str, np.ndarray]]) -> None:
    """Give systems the daggers of Tables 2 and 3, by metric: "R-1 †‡".

    † = not significantly worse than the best single-head model, ‡ = than the 8-head model (paired bootstrap test,
    p < 0.01). The best single-head model itself bears no †, the 8-head model neither; a control is never the best.
    """
    for column, label in enumerate(ROUGE.values()):
        values = {name: np.array(list(of.values()))[:, column] for name, of in scores.items()}
        single = [name for name in values if systems[name]["heads"] == 1]
        models = [name for name in single if "shuffled" not in systems[name]["attention"]]
        best = max(models, key=lambda name: values[name].mean(), default=None)
        eight = next((name for name in values if systems[name]["heads"] == 8), None)
        for dagger, other, names in (("†", best, single), ("‡", eight, values)):
            for name in names:
                if other and name != other and not significantly_worse(values[name], values[other]):
                    daggers = systems[name].setdefault("marks", {})
                    daggers[label] = daggers.get(label, "") + dagger


def significantly_worse(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the difference is a loss and a paired bootstrap test finds p < 0.01."""
    return one.mean() < other.mean() and rouge.paired_test(one, other, "bootstrap") < SIGNIFICANCE


def table(metrics: dict) -> str:
    """Table 2 or 3."""
    rows = []
    for name, system in metrics["systems"].items():
        row = {"system": name, "attention": system.get("attention")}
        row |= {label: system[metric] for metric, label in ROUGE.items()} | {"R-1 - first": system.get("difference")}
        row["† ‡"] = " ".join(label + daggers for label, daggers in system.get("marks", {}).items()) or None
        for title, key in (("# Params(attn)", "attention_parameters"), ("# Params", "parameters")):
            row[title] = f"{system[key] / 1e6:.1f}M" if key in system else None
        rows.append(row)
    notes = "†, ‡: not significantly worse than the best single-head, the 8-head model (paired bootstrap, p < 0.01)"
    title = {"edu": "Table 2, EDU level", "sentence": "Table 3, sentence level"}[metrics["level"]]
    return f"{title}: {metrics['data']}, {metrics['split']}\n\n{rouge.table(rows)}\n\n{notes}\n{metrics['signature']}"


def csv_rows(metrics: dict) -> list[dict]:
    """A row per system over all its runs, and per run where it has several."""
    rows = []
    for name, system in metrics["systems"].items():
        parts = system["runs"]
        seeds = " ".join(dict.fromkeys(str(part["seed"]) for part in parts))
        known = {key: value for key, value in system.items() if value and key not in ("runs", "marks")}
        marks = {f"marks {label}": daggers for label, daggers in system.get("marks", {}).items()}
        rows.append({"system": name, "seed": seeds, "fold": "all", "runs": len(parts)} | known | marks)
        rows += [{"system": name} | part for part in parts if len(parts) > 1]
    return rows


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.evaluate", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    runs = {path.name: load_run(path) for path in options.runs}
    if len(runs) < len(options.runs):
        raise ValueError("two runs have folders of the same name; rename one")
    check_runs(runs)
    if options.data:
        runs = {
            name: run._replace(config=replace(run.config, data=options.data, folds=0)) for name, run in runs.items()
        }
    configs = [run.config for run in runs.values()]
    if len({(config.data, config.folds) for config in configs}) > 1:
        raise ValueError("the runs were trained on different data: say with --data which to test on")
    if configs[0].folds and (options.limit or options.split not in ("validation", "test")):
        raise ValueError("runs with --folds are tested on their own fold: --split test or validation, no --limit")
    device = find_device(options.device)
    for run in runs.values():
        run.model.to(device), run.encoder.to(device)
    outputs = [options.predictions / f"{name}.jsonl" for name in runs] if options.predictions else []
    check_outputs(options.json, options.csv, *outputs)
    config = configs[0]
    examples, documents = read_documents(config.data, options.split, config.level, config.folds, options.limit)
    cache = options.cache or config.cache or options.runs[0].parent / "cache"
    metrics = evaluate(runs, examples, options.split, cache, options.predictions, documents)
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        write_csv(options.csv, csv_rows(metrics))
    print(table(metrics))


if __name__ == "__main__":
    main()
