"""Extract summaries and score them; the paper's Tables 2 and 3; summaries of new text.

python -m discourse_tree_attention.evaluate runs/tree runs/dot             # some runs, with Lead and Oracle
python -m discourse_tree_attention.evaluate --tables runs/toy --repeat seed=3 -- [train flags]    # Tables 2 and 3
python -m discourse_tree_attention.evaluate runs/tree --text NEW.txt --tree NEW.dis            # new text
"""

import argparse
import csv
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from shared import rouge
from shared.data import Example, write_jsonl

from .documents import Corpus, Document, make_document
from .model import count_parameters
from .selection import join_units, lead
from .train import Run, TrainConfig, extract, load_corpus, load_run, parse, prepare, read_config, score_documents, train
from .trees import leaves, read_tree, write_dis

METRICS = {"Rouge-1": "rouge1", "Rouge-2": "rouge2", "Rouge-L": "rougeLsum"}  # the paper's L is over sentences
SYSTEMS = {  # the rows of Tables 2 and 3
    "Dot Product(8)": dict(attention="dot", heads=8),
    "Dot Product(1)": dict(attention="dot"),
    "Dense": dict(attention="dense"),
    "Learned Random": dict(attention="learned_random"),
    "Fixed Random": dict(attention="fixed_random"),
    "No attention": dict(attention="none"),
    "D-Tree": dict(attention="d_tree"),
    "C-Tree": dict(attention="c_tree"),
    "C-Tree w/Nuc": dict(attention="c_tree_nuclearity"),
}
CONTROLS = {f"{name}, shuffled": SYSTEMS[name] | dict(shuffle_trees=True) for name in ("D-Tree", "C-Tree w/Nuc")}
SIZES = {"default": {}, "balanced": dict(balanced=True)}  # Section 5.1
LEVELS = {"edu": "Table 2", "sentence": "Table 3"}
SIGNIFICANCE = 0.01  # Tables 2 and 3


@dataclass
class System:
    """One row of a table: what one or several runs of the same model did, per test document."""

    heads: int | None = None
    parameters: tuple[int, int] | None = None  # of the attention, of the model
    values: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    runs: list[dict[str, float]] = field(default_factory=list)  # mean ROUGE of each run
    predictions: dict[str, tuple] = field(default_factory=dict)  # id: summary and references; the last run's

    def add(self, summaries: dict[str, list[str]], examples: Sequence[Example]) -> None:
        """Score the summaries of one run; a document that several runs read gets the mean of its values."""
        chosen = [example for example in examples if example.id in summaries]
        scores = rouge.score([summaries[e.id] for e in chosen], [e.references for e in chosen])
        for metric in METRICS.values():
            for example, value in zip(chosen, scores[metric], strict=True):
                self.values[metric][example.id].append(float(value))
        self.runs.append({metric: float(scores[metric].mean()) for metric in METRICS.values()})
        self.predictions |= {e.id: (summaries[e.id], e.references[0]) for e in chosen}

    def means(self, metric: str) -> np.ndarray:
        """(documents,) mean over runs, ordered by document id."""
        return np.array([np.mean(values) for _, values in sorted(self.values[metric].items())])


def summarize(run: Run, corpus: Corpus) -> dict[str, list[str]]:
    """Summaries, by document id, each a list of sentences."""
    scores = score_documents(run.model, corpus)
    return {d.id: extract(d, s, run.config) for d, s in zip(corpus.documents, scores, strict=True)}


def baselines(documents: Sequence[Document], count: int) -> dict[str, dict[str, list[str]]]:
    """Summaries of Lead and of the oracle; where the oracle takes nothing, it is the lead."""
    summaries: dict[str, dict[str, list[str]]] = {f"Lead{count}": {}, "Oracle": {}}
    for document in documents:
        first = lead(document.required, count)
        best = np.flatnonzero(document.labels).tolist() or first
        for name, taken in zip(summaries, (first, best), strict=True):
            summaries[name][document.id] = join_units(document.units, document.sentence, taken)
    return summaries


def evaluate(
    runs: dict[str, Sequence[Path]], split: str = "test", data: str = "", cache: str = "", limit: int | None = None
) -> dict[str, System]:
    """Systems with their values, Lead and Oracle first.

    Args:
        runs: run folders of each system; several differ in seed, fold or training subset only.
        data: another data set than that of the runs.
        cache: folder of arrays; default: that in each run's folder.
        limit: first documents only.
    Raises:
        ValueError: unusable run or data; runs at both levels.
    """
    configs = {path: read_config(path) for paths in runs.values() for path in paths}
    if len({config.level for config in configs.values()}) > 1:
        raise ValueError("EDU and sentence summaries do not go into one table: give runs of one --level")
    systems: dict[str, System] = {}
    read: set[str] = set()
    rows: dict[str, System] = {name: System() for name in runs}
    for name, paths in runs.items():
        for path in paths:
            run = load_run(path)
            run.model.to("cuda" if torch.cuda.is_available() else "cpu")
            config = replace(run.config, data=data, folds=0, fold=0, subset=0) if data else run.config
            corpus, examples, cut = load_corpus(config, split, run.encoder, cache or path / "cache", False, limit)
            if cut:
                print(f"{path}: {cut} documents are longer than the model can read and were cut", file=sys.stderr)
            rows[name].heads, rows[name].parameters = config.heads, count_parameters(run.model)
            rows[name].add(summarize(run, corpus), examples)
            new = {document.id for document in corpus.documents} - read
            for baseline, summaries in baselines(corpus.documents, config.count).items() if new else ():
                systems.setdefault(baseline, System()).add({i: s for i, s in summaries.items() if i in new}, examples)
            read |= new
    return systems | rows


# The tables


def marks(systems: dict[str, System], metric: str) -> dict[str, str]:
    """The daggers of Tables 2 and 3.

    † = not significantly worse than the best single-head model, ‡ = than the 8-head model (paired bootstrap test,
    p < 0.01). The best single-head model itself bears none, nor does the 8-head model; a control is never the best.
    """
    models = {name: system for name, system in systems.items() if system.heads}
    single = [name for name, system in models.items() if system.heads == 1]
    found = dict.fromkeys(systems, "")
    if not set(single) - set(CONTROLS):
        return found
    best = max((name for name in single if name not in CONTROLS), key=lambda name: models[name].means(metric).mean())
    eight = next((name for name, system in models.items() if system.heads == 8), None)
    for mark, other, names in (("†", best, single), ("‡", eight, list(models))):
        for name in names:
            if other and name != other and not significantly_worse(models[name], models[other], metric):
                found[name] += mark
    return found


def significantly_worse(one: System, other: System, metric: str) -> bool:
    """Whether the difference is a loss and a paired bootstrap test finds p < 0.01."""
    a, b = one.means(metric), other.means(metric)
    if len(a) != len(b):
        raise ValueError(f"systems were tested on {len(a)} and {len(b)} documents; a paired test needs the same ones")
    return a.mean() < b.mean() and rouge.paired_test(a, b, "bootstrap") < SIGNIFICANCE


def number(parameters: int) -> str:
    """As the tables print it: 3.2M."""
    return f"{parameters / 1e6:.1f}M"


def rows(systems: dict[str, System]) -> list[dict]:
    """A table as dictionaries: system, per metric mean, interval, marks and spread over runs, heads, parameters."""
    daggers = {label: marks(systems, metric) for label, metric in METRICS.items()}
    table = []
    for name, system in systems.items():
        row: dict = {"system": name}
        for label, metric in METRICS.items():
            mean, low, high = rouge.bootstrap_interval(system.means(metric))
            spread = np.std([run[metric] for run in system.runs], ddof=1) if len(system.runs) > 1 else None
            row |= {label: mean, f"{label} low": low, f"{label} high": high, f"{label} marks": daggers[label][name]}
            row |= {f"{label} sd over runs": spread}
        attention, whole = system.parameters or (None, None)
        row |= {"heads": system.heads, "attention parameters": attention, "parameters": whole, "runs": len(system.runs)}
        table.append(row | {"documents": len(system.values["rouge1"])})
    return table


def print_table(title: str, table: Sequence[dict]) -> None:
    """Markdown table in the form of Tables 2 and 3, with 95 % intervals over documents."""
    print(f"\n{title}\n\n| Model | {' | '.join(METRICS)} | # Heads | # Params(attn) | # Params |\n" + "|---" * 7 + "|")
    for row in table:
        cells = [f"{row[m]:.2f}{row[f'{m} marks']} [{row[f'{m} low']:.2f}, {row[f'{m} high']:.2f}]" for m in METRICS]
        sizes = [number(row[key]) if row[key] else "-" for key in ("attention parameters", "parameters")]
        print(f"| {row['system']} | {' | '.join(cells)} | {row['heads'] or '-'} | {sizes[0]} | {sizes[1]} |")
    print(f"\n{rouge.signature(table[0]['documents'])}; runs of each model: {table[-1]['runs']}")


def write_csv(table: Sequence[dict], path: Path) -> None:
    """The table with every number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in table)


def train_tables(
    config: TrainConfig, out: Path, levels: Sequence[str], sizes: Sequence[str], systems: dict, repeat: str
) -> dict[tuple[str, str], dict[str, list[Path]]]:
    """Train every model of the tables that is not trained yet.

    Args:
        config: what all runs have in common.
        repeat: "seed=3", "fold=5" or "subset_seed=5": as many runs of each model, this field counting from 0.
    Returns:
        for each level and size the run folders of every system.
    """
    name, _, times = repeat.partition("=")
    if name not in ("seed", "fold", "subset_seed") or not times.isdigit() or int(times) < 1:
        raise ValueError(f"--repeat is {repeat!r}; write seed=3, fold=5 or subset_seed=5")
    if name == "subset_seed" and not config.subset:
        raise ValueError("--repeat subset_seed needs --subset N, or all runs are the same")
    if name == "fold" and int(times) != config.folds:
        raise ValueError(f"--repeat fold={times} needs --folds {times}, not {config.folds}")
    runs: dict[tuple[str, str], dict[str, list[Path]]] = {}
    for level in levels:
        for size in sizes:
            for system, values in systems.items():
                for k in range(int(times)):
                    slug = "".join(c if c.isalnum() else "-" for c in f"{level} {size} {system}".lower()).strip("-")
                    path = out / f"{slug}-{name}{k}"
                    runs.setdefault((level, size), {}).setdefault(system, []).append(path)
                    run_config = replace(config, level=level, **SIZES[size] | values | {name: k})
                    if not (path / "model.safetensors").exists():
                        print(path, file=sys.stderr)
                        train(run_config, path, out / "cache", resume=True)
                    elif read_config(path) != run_config:
                        raise ValueError(f"{path} was trained with other flags: give them again, or another folder")
    return runs


# New text


def summarize_text(run: Run, text: Path, tree: Path | None, cache: str) -> list[str]:
    """The summary of one new document.

    Args:
        text: a file with a sentence on each line.
        tree: its discourse tree as a parser wrote it (.dis, .rs3, .json); not needed at sentence level by an
            attention that reads no tree.
    """
    sentences = [" ".join(line.split()) for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not sentences:
        raise ValueError(f"{text} is empty; put one sentence on each line")
    root = read_tree(tree) if tree else None
    edus = [leaf.text for leaf in leaves(root)] if root else None
    if edus and None in edus:
        raise ValueError(f"{tree} has no text at its leaves, so that its EDUs are unknown: use .dis or .rs3")
    example = Example(text.stem, sentences, [], [[]], edus, write_dis(root) if root else None)
    document = make_document(example, run.config.level)
    corpus, _ = prepare([document], run.config, run.encoder, cache, progress=False)
    return summarize(run, corpus)[text.stem]


# Command line


def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluate; with --tables, what stands after -- are flags of training."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own, rest = arguments[:end], arguments[end + 1 :]
    module = "python -m discourse_tree_attention.evaluate"
    parser = argparse.ArgumentParser(module, description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("runs", nargs="*", type=Path, help="run folders, all of one level")
    parser.add_argument("--data", help="default: each run's own")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, help="first N documents only")
    parser.add_argument("--cache", default="", help="folder of unit vectors and matrices")
    parser.add_argument("--json", type=Path, help="write every number here")
    parser.add_argument("--csv", type=Path, help="write the table here; with --tables, a folder of them")
    parser.add_argument("--predictions", type=Path, help="write JSONL here, with several systems a folder of them")
    parser.add_argument("--tables", type=Path, help="train what is missing of Tables 2 and 3 in this folder")
    parser.add_argument("--levels", nargs="+", default=list(LEVELS), choices=list(LEVELS))
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS | CONTROLS), help="default: all of the tables")
    parser.add_argument("--controls", action="store_true", help="with --tables: shuffled trees too")
    parser.add_argument("--repeat", default="seed=1", help="with --tables: seed=3, fold=5 or subset_seed=5")
    parser.add_argument("--text", type=Path, help="summarise this file, a sentence on each line")
    parser.add_argument("--tree", type=Path, help="its discourse tree")
    flags = parser.parse_args(own)
    try:
        if rest and not flags.tables:
            raise ValueError("flags after -- are those of training, for --tables")
        if flags.text:
            if len(flags.runs) != 1:
                raise ValueError("--text needs one run folder")
            (path,) = flags.runs
            run = load_run(path)
            print("\n".join(summarize_text(run, flags.text, flags.tree, flags.cache or str(path / "cache"))))
            return
        tables = make_tables(flags, rest) if flags.tables else {"": run_table(flags)}
        report(tables, flags)
    except (ValueError, ImportError, OSError) as error:
        sys.exit(f"error: {error}")


def run_table(flags: argparse.Namespace) -> dict[str, System]:
    """The table of some runs, named by their folders."""
    if not flags.runs:
        raise ValueError("give run folders, or --tables FOLDER")
    names = [path.name for path in flags.runs]
    if len(set(names)) < len(names):
        raise ValueError("two runs have folders of the same name; rename one")
    runs = {name: [path] for name, path in zip(names, flags.runs, strict=True)}
    return evaluate(runs, flags.split, flags.data or "", flags.cache, flags.limit)


def make_tables(flags: argparse.Namespace, train_flags: Sequence[str]) -> dict[str, dict[str, System]]:
    """Tables 2 and 3, by name."""
    data = ["--data", flags.data] if flags.data else []
    config, *_ = parse(["--out", str(flags.tables), *data, *train_flags])
    systems = SYSTEMS | (CONTROLS if flags.controls else {})
    systems = {name: systems[name] for name in flags.systems or systems}
    runs = train_tables(config, flags.tables, flags.levels, flags.sizes, systems, flags.repeat)
    cache = str(flags.tables / "cache")
    return {
        f"{LEVELS[level]}_{size}": evaluate(paths, flags.split, cache=cache, limit=flags.limit)
        for (level, size), paths in runs.items()
    }


def report(tables: dict[str, dict[str, System]], flags: argparse.Namespace) -> None:
    """Print the tables and write the files that were asked for."""
    printed = {title: rows(systems) for title, systems in tables.items()}
    for title, table in printed.items():
        print_table(title.replace("_", ", ") or f"{flags.split} documents", table)
        if flags.csv:
            write_csv(table, flags.csv / f"{title.lower().replace(' ', '_')}.csv" if title else flags.csv)
    if flags.json:
        flags.json.write_text(json.dumps(printed if "" not in printed else printed[""], indent=1) + "\n")
    if flags.predictions:
        for title, systems in tables.items():
            for name, system in systems.items():
                path = flags.predictions / title / f"{name.replace('/', ' ')}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                pairs = sorted(system.predictions.items())
                write_jsonl(path, ({"id": i, "prediction": s, "reference": r} for i, (s, r) in pairs))


if __name__ == "__main__":
    main()
