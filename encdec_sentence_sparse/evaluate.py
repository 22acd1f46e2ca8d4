"""Decode under every selection of sentences and score: the numbers of Tables 2 to 6 and of Figures 2 and 4.

python -m encdec_sentence_sparse.evaluate runs/base runs/kl runs/apx --csv m.csv            # Tables 3, 6
python -m encdec_sentence_sparse.evaluate runs/base runs/sparse-0.1 runs/sparse-1 --csv m.csv   # Tables 2, 5
python -m encdec_sentence_sparse.evaluate runs/base --modes ideal mean_key --r 5 1 2 10

All is compared with the first run under full attention: give the base model there. Without --modes each run is decoded
under those that the paper's tables have for its task.
"""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from tqdm import tqdm

from shared import rouge
from shared.data import Example, check_outputs, in_sentences, load, split_sentences, write_csv, write_json
from shared.timing import find_device

from .decode import DECODING, check_generation, decode, given_settings
from .loading import Run, load_run_or_bart, name_of
from .run import Positive, Range, check_fields, one_line_errors, read_flags
from .selection import MODES, PHI, Selection
from .sentences import RULES
from .text import Item, tokenize

METRICS = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # D20: rouge-score (the paper: pyrouge)
MODES_OF = {  # what a run of each task is decoded under beside full attention, as in the paper's tables
    "base": ("ideal", "random", "mean_key", "model_free"),
    "sparse": ("ideal", "random"),
    "kl": ("approx",),
    "integrated": ("approx",),
}


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[str, ...]]  # run folders, or BARTs (folder or hub name); the base model first
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "test"
    limit: Positive | None = None  # first N examples only (A.2: 2,000 in Figures 2 and 4)
    json: Path | None = None  # write every number here
    csv: Path | None = None  # write a row per system here; experiments.figures reads it
    predictions: Path | None = None  # folder for the outputs, a .jsonl per system
    modes: tuple[Literal[MODES], ...] = ()  # for all runs; default: those of the paper's tables, by each run's task
    r: tuple[Positive, ...] = (5,)  # sentences to attend to; sparse-tuned runs and other phi have the first alone
    sentences: Literal[("", *RULES)] = ""  # how documents are split for a BART; default: as for the first run beside it
    seed: int = 0  # of the random selection
    decoding: Literal[tuple(DECODING)] = "own"  # "own": the model's generation settings; the others: A.3, per corpus
    beam: Positive | None = None  # default: that of --decoding, as the four that follow
    length_penalty: Annotated[float, Range(-10, 10)] | None = None
    min_length: int | None = None
    max_length: Positive | None = None
    no_repeat_ngram_size: int | None = None
    batch_size: Positive = 32  # documents decoded at a time
    device: str = "cpu"


def selections_of(name: str, run: Run, modes: Sequence[str], rs: Sequence[int], seed: int) -> dict[str, Selection]:
    """Under which selections a run is decoded, by the system's name (RUN.MODE.rR, also a file's), "full" first."""
    chosen = [mode for mode in modes or MODES_OF[run.config.task] if mode != "full"]
    if "approx" in chosen and run.model.sentence_encoder is None:
        raise ValueError(f"{name} has no approximator: leave mode 'approx' out, or give a run of --task kl")
    selections = {f"{name}.full": Selection("full", rs[0])}
    for mode in chosen:
        for r in rs[:1] if run.config.task == "sparse" and not modes else rs:
            for phi in PHI if mode == "model_free" and r == rs[0] else ["elu"]:
                label = f"{mode}-{phi}" if mode == "model_free" else mode
                selections[f"{name}.{label}.r{r}"] = Selection(mode, r, phi, seed)
    return selections


def decode_all(
    run: Run,
    items: Sequence[Item],
    selections: dict[str, Selection],
    examples: Sequence[Example],
    folder: Path | None = None,
    batch_size: int = 32,
    **generation,
) -> list[list[str]]:
    """The texts of each selection, in the items' order; each is in FOLDER/SYSTEM.jsonl as soon as it is there."""
    texts = [[""] * len(items) for _ in selections]
    with ExitStack() as stack:
        paths = [folder / f"{system}.jsonl" for system in selections] if folder else []
        files = [stack.enter_context(path.open("w", encoding="utf-8")) for path in paths]
        with tqdm(total=len(items) * len(selections), leave=False) as bar:
            for summaries in decode(run, items, list(selections.values()), batch_size, **generation):
                for i, text in zip(summaries.documents, summaries.texts, strict=True):
                    texts[summaries.selection][i] = text
                    if files:
                        row = {"id": examples[i].id, "prediction": text, "reference": examples[i].target}
                        print(json.dumps(row, ensure_ascii=False), file=files[summaries.selection], flush=True)
                bar.update(len(summaries.texts))
    return texts


def evaluate(
    runs: dict[str, Run],
    examples: Sequence[Example],
    modes: Sequence[str] = (),
    r: Sequence[int] = (5,),
    seed: int = 0,
    batch_size: int = 32,
    predictions: Path | None = None,
    **generation,
) -> dict:
    """Decode and score runs on the same examples; every number in one JSON object.

    Args:
        runs: the first is the one whose full attention all are compared with.
        predictions: folder for SYSTEM.jsonl with the outputs, written as they come.
        generation: arguments of `generate`, in place of each model's own.
    """
    rouge.check_references(examples)
    selections = {name: selections_of(name, run, modes, r, seed) for name, run in runs.items()}
    settings = [check_generation(name, run, generation) for name, run in runs.items()]
    metrics = {"examples": len(examples), "generation": settings[0], "seed": seed}
    metrics |= {"signature": rouge.signature(len(examples)), "runs": {}, "systems": {}}
    references, first = [example.references for example in examples], None
    for name, run in runs.items():
        documents = in_sentences(examples) if run.config.sentences == "given" else examples
        items, full = run.encode(documents), None
        texts = decode_all(run, items, selections[name], examples, predictions, batch_size, **generation)
        metrics["runs"][name] = describe(run, examples, items)
        for (system, selection), outputs in zip(selections[name].items(), texts, strict=True):
            scores = rouge.score([split_sentences(text) for text in outputs], references)
            first, full = (scores["rouge1"] if best is None else best for best in (first, full))
            row = {"run": name, "mode": selection.mode, "r": selection.r}
            row["phi"] = selection.phi if selection.mode == "model_free" else None
            row |= {metric: rouge.interval(scores[metric]) for metric in METRICS}
            row["difference"] = rouge.difference(scores["rouge1"], first)  # R-1, to the first run's full attention
            row["cost"] = rouge.difference(scores["rouge1"], full)  # R-1, to the own full attention
            metrics["systems"][system] = row
    return metrics


def describe(run: Run, examples: Sequence[Example], items: Sequence[Item]) -> dict:
    """How a run was trained and what it reads; Table 4: N, N1 and M."""
    config, is_integrated = run.config, run.config.task == "integrated"
    targets = [len(tokenize(run.tokenizer, example.target, 10**6)[0]["input_ids"]) for example in examples]
    return {
        "task": config.task,
        "seed": config.seed,
        "gamma": config.gamma if config.task == "sparse" else 0.0,
        "sentence_encoder": getattr(run.model.config, "sentence_encoder", None),
        "select": config.select if is_integrated else None,
        "r_train": config.r if is_integrated else None,
        "sources_cut": sum(item.was_cut for item in items),
        "source_tokens": float(np.mean([len(item.ids) for item in items])),
        "source_sentences": float(np.mean([item.sentence_ids[-1] + 1 for item in items])),
        "target_tokens": float(np.mean(targets)),
    }


def table(metrics: dict) -> str:
    """Quality of each system, and what the runs read (Table 4)."""
    systems, lengths = [], []
    for name, row in metrics["systems"].items():
        scores = {shown: row[metric] for metric, shown in METRICS.items()}
        systems.append({"system": name} | scores | {"R-1 minus first full": row["difference"], "own full": row["cost"]})
    for name, run in metrics["runs"].items():
        row = {"run": name, "N": run["source_tokens"], "N1": run["source_sentences"], "M": run["target_tokens"]}
        lengths.append(row | {"N/M": row["N"] / row["M"], "cut": run["sources_cut"]})
    tables = [rouge.table(systems), f"Table 4: tokens, sentences, tokens of the summary\n{rouge.table(lengths)}"]
    return "\n\n".join([*tables, f"{metrics['examples']} examples, 95 % intervals; {metrics['signature']}"])


def load_runs(options: Options) -> dict[str, Run]:
    """The runs by their folders' names; a BART reads what the first run beside it does, unless flags say otherwise."""
    if not options.runs:
        raise ValueError("give at least one run folder or BART")
    if len({*map(name_of, options.runs)}) < len(options.runs):
        raise ValueError("two runs have folders of the same name; rename one")
    runs = {name: load_run_or_bart(name, options.sentences or "given") for name in options.runs}
    trained = [run.config for name, run in runs.items() if run.config.model != name]
    taken = ("data",) if options.sentences else ("data", "sentences")
    for name, run in runs.items():
        if run.config.model == name and trained:
            config = replace(run.config, **{key: getattr(trained[0], key) for key in taken})
            runs[name] = run._replace(config=config)
        run.model.to(find_device(options.device))
    if not options.data and not trained:
        raise ValueError(f"{options.runs[0]} is not a run that knows its data: give --data")
    return {name_of(name): run for name, run in runs.items()}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.evaluate", description=__doc__)
    check_fields(options)
    runs = load_runs(options)
    chosen = dict(modes=options.modes, r=options.r, seed=options.seed)
    systems = [system for name, run in runs.items() for system in selections_of(name, run, *chosen.values())]
    outputs = [options.predictions / f"{system}.jsonl" for system in systems] if options.predictions else []
    data = options.data or next(iter(runs.values())).config.data
    check_outputs(options.json, options.csv, *outputs, inputs=[data, *options.runs])
    examples, generation = load(data, options.split, options.limit), given_settings(options, options.decoding)
    more = dict(batch_size=options.batch_size, predictions=options.predictions)
    metrics = {"data": data, "split": options.split} | evaluate(runs, examples, **chosen, **more, **generation)
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        rows = [{"system": s} | metrics["runs"][row["run"]] | row for s, row in metrics["systems"].items()]
        known = {"data": data, "split": options.split, "examples": len(examples)}
        write_csv(options.csv, [known | row for row in rows])
    print(table(metrics))
    if cut := max(run["sources_cut"] for run in metrics["runs"].values()):
        print(f"{cut} documents were cut to --max-source tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
