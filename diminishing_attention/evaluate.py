"""Decode and score: Tables 1 to 4, and the numbers behind Figures 2 and 3.

python -m diminishing_attention.evaluate runs/pg runs/pg-dim                                           # Tables 1 and 3
python -m diminishing_attention.evaluate runs/pg-0 runs/pg-1 runs/pg-2 runs/dim-0 runs/dim-1 runs/dim-2  # over seeds
python -m diminishing_attention.evaluate runs/pg runs/pg-dim --ablation --json metrics.json            # and Table 4
python -m diminishing_attention.evaluate runs/pg runs/pg-dim --bertscore FOLDER --moverscore FOLDER    # and Table 2

Runs whose configurations differ in nothing but the seed are one system: its numbers are means over the seeds.
"""

import argparse
import csv
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm
from transformers import logging

from shared import rouge
from shared.data import Example, write_jsonl

from . import measures
from .bertsum import BertSumExt
from .measures import split_sentences, split_words
from .search import beam_search
from .train import DECODING, BertSum, Pointing, load_run, load_task, read_config, write_json

ROUGE = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # papers' ROUGE-L is that over sentences
NOVEL = (1, 2, 3, 4)  # n-grams of Figure 3
# 97.5 % quantile of Student's t for 2, 3, ... values, that is for 1, 2, ... degrees of freedom.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)

Scores = dict[str, np.ndarray]  # metric: (n,) values of the documents


class System(NamedTuple):
    """The runs that differ in nothing but the seed."""

    name: str
    runs: list[Pointing | BertSum]
    folders: list[Path]


# Reading runs


def group(folders: Sequence[Path]) -> list[System]:
    """Finished runs as systems, in the order of the first run of each.

    Raises:
        ValueError: a folder that is no finished run, two equal runs, or names that cannot be told apart.
    """
    found: dict[str, list[Path]] = {}
    for folder in folders:
        found.setdefault(identity(folder), []).append(folder)
    systems = []
    for members in found.values():
        runs = [load_run(folder) for folder in members]
        if len({run.config.seed for run in runs}) < len(runs):
            names = ", ".join(map(str, members))
            raise ValueError(f"{names} have the same configuration and seed: give one of them")
        systems.append(System(common_name(members), runs, members))
    if len({system.name for system in systems}) < len(systems):
        raise ValueError(f"two systems are called {systems[0].name} or alike: rename their run folders")
    return systems


def identity(folder: Path) -> str:
    """What a run is, but for its seeds and the folder of the run it goes on from."""

    def without_seeds(saved: dict | None) -> dict | None:
        if saved is None:
            return None
        kept = {name: value for name, value in saved["train"].items() if name not in ("seed", "init")}
        return {"train": kept, "base": without_seeds(saved["base"])}

    return json.dumps(without_seeds(read_config(folder)), sort_keys=True)


def common_name(folders: Sequence[Path]) -> str:
    """The run folder's name; of several runs without the number at its end."""
    name = folders[0].name
    return name if len(folders) == 1 else re.sub(r"[-_.]?(seed)?\d+$", "", name) or name


# Decoding


def decode(
    run: Pointing | BertSum,
    examples: Sequence[Example],
    batch_size: int,
    device: str = "cpu",
    sentences: int = 3,
    **search,
) -> list[str]:
    """Summaries of all documents in their order, decoded in batches of similar length.

    Args:
        sentences: of an extractive summary.
        search: beam, length_penalty, trigram_blocking, min_length, max_length; the run's own values by default.
    """
    options = {name: getattr(run.config, name) for name in DECODING} | search
    items = run.prepare(examples)
    by_length = sorted(range(len(items)), key=lambda i: len(items[i].source))
    texts: list[str] = [""] * len(items)
    for start in tqdm(range(0, len(items), batch_size), unit="batch", leave=False):
        chosen = by_length[start : start + batch_size]
        batch = run.collate([items[i] for i in chosen], device)
        if isinstance(run.module, BertSumExt):
            found = extract(run.module, batch, [examples[i] for i in chosen], sentences, options["trigram_blocking"])
        else:
            # D10: a blocked trigram is of tokens, in BERTSum of word pieces.
            hypotheses = beam_search(run.module, batch, never=run.never, **options)
            found = run.decode([items[i] for i in chosen], hypotheses.tokens)
        for i, text in zip(chosen, found, strict=True):
            texts[i] = text
    return texts


@torch.inference_mode()
def extract(model: BertSumExt, batch, examples: Sequence[Example], count: int, trigram_blocking: bool) -> list[str]:
    """The `count` most probable sentences of each document in their order; with blocking, no trigram twice."""
    texts = []
    for row, keep, example in zip(model.probabilities(batch), batch.keep_sentences, examples, strict=True):
        document = split_sentences(example.document[0]) if len(example.document) == 1 else example.document
        taken, seen = [], set()
        for i in row[keep].argsort(descending=True, stable=True).tolist():
            trigrams = set(measures.ngrams(split_words(document[i]), 3))
            if len(taken) < count and not (trigram_blocking and trigrams & seen):
                taken.append(i)
                seen |= trigrams
        texts.append("\n".join(document[i] for i in sorted(taken)))
    return texts


# Scores


def score(
    texts: Sequence[str], examples: Sequence[Example], flags: argparse.Namespace, is_reference: bool = False
) -> Scores:
    """(n,) values of every text: ROUGE, repetition, novelty, overlap with the lead, length, and Table 2 if asked for.

    Args:
        is_reference: the texts are the references; their ROUGE would say nothing.
    """
    sentences = [split_sentences(text) for text in texts]
    words, sources = [split_words(text) for text in texts], [split_words(example.source) for example in examples]
    found: Scores = {}
    if not is_reference:
        values = rouge.score(sentences, [example.references for example in examples])
        found |= {metric: values[metric] for metric in ROUGE}
    found |= {f"repetition{n}": percent(measures.repetition_ratio(w, n) for w in words) for n in measures.LENGTHS}
    pairs = list(zip(words, sources, strict=True))
    found |= {f"novel{n}": percent(measures.novel_share(w, s, n) for w, s in pairs) for n in NOVEL}
    overlap = rouge.score(sentences, [measures.lead(example.document, flags.lead) for example in examples])
    found |= {f"lead_{metric}": overlap[metric] for metric in ROUGE}
    found["words"] = np.array([len(w) for w in words], dtype=float)
    if not is_reference:
        found |= model_scores(texts, [example.target for example in examples], flags)
    return found


def percent(values) -> np.ndarray:
    """Shares as an array of percentages."""
    return 100 * np.array(list(values), dtype=float)


def model_scores(texts: Sequence[str], references: Sequence[str], flags: argparse.Namespace) -> Scores:
    """Table 2: BERTScore and MoverScore, against the first reference."""
    found: Scores = {}
    if flags.bertscore:
        f1 = measures.bertscore(texts, references, flags.bertscore, flags.bertscore_layer, flags.device)
        found["bertscore"] = np.array(f1)
    if flags.moverscore:
        for n in (1, 2):
            found[f"moverscore{n}"] = np.array(
                measures.moverscore(texts, references, flags.moverscore, n, flags.device)
            )
    return found


def summarise(of_seeds: Sequence[np.ndarray], baseline: np.ndarray | None = None) -> dict:
    """Mean over seeds and documents, with intervals.

    Args:
        of_seeds: (n,) values of the documents for each seed.
        baseline: (n,) means over seeds of the first system.
    Returns:
        mean; low, high: 95 % bootstrap interval over documents of the means over seeds; seeds: mean of each seed;
        seed_low, seed_high: 95 % t interval over seeds (None for one seed); p of the paired randomisation test over
        documents against the baseline (None for the baseline itself).
    """
    pooled = np.mean(of_seeds, axis=0)
    mean, low, high = rouge.bootstrap_interval(pooled)
    means, half = [float(values.mean()) for values in of_seeds], None
    if 1 < len(means) <= len(STUDENT) + 1:
        half = STUDENT[len(means) - 2] * float(np.std(means, ddof=1)) / len(means) ** 0.5
    over_seeds = (
        {"seed_low": None, "seed_high": None} if half is None else {"seed_low": mean - half, "seed_high": mean + half}
    )
    p = None if baseline is None else rouge.paired_test(pooled, baseline)
    return {"mean": mean, "low": low, "high": high, "seeds": means} | over_seeds | {"p": p}


def summarise_all(of_seeds: Sequence[Scores], baseline: Mapping[str, np.ndarray] | None) -> dict[str, dict]:
    """`summarise` for every metric."""
    known = baseline or {}
    return {metric: summarise([scores[metric] for scores in of_seeds], known.get(metric)) for metric in of_seeds[0]}


def pool(of_seeds: Sequence[Scores]) -> Scores:
    """Means over seeds, (n,) for each metric."""
    return {metric: np.mean([scores[metric] for scores in of_seeds], axis=0) for metric in of_seeds[0]}


# The tables


def describe(system: System) -> dict:
    """What a system is; `parameters_listed` counts the embedding that encoder and decoder share twice, as Table 1."""
    config, module = system.runs[0].config, system.runs[0].module
    parameters = sum(parameter.numel() for parameter in module.parameters())
    shared = module.config.vocabulary * module.config.embedding if config.model == "pointer" else 0
    row = {"model": config.model, "diminishing": config.diminishing, "coverage": config.coverage}
    row |= {"parameters": parameters, "parameters_listed": parameters + shared}
    return row | {"runs": [str(folder) for folder in system.folders], "seeds": [run.config.seed for run in system.runs]}


def evaluate(
    systems: Sequence[System], examples: Sequence[Example], flags: argparse.Namespace
) -> tuple[dict, dict[str, list[str]]]:
    """Every number in one JSON object, and the predictions of every run."""
    metrics = {"data": flags.data, "split": flags.split, "examples": len(examples), "lead": flags.lead}
    metrics |= {"signature": rouge.signature(len(examples)), "decoding": flags.search, "systems": {}, "ablation": {}}
    leads = ["\n".join(measures.lead(example.document, flags.lead)) for example in examples]
    targets = ["\n".join(example.summary) for example in examples]
    metrics["lead_row"] = {"scores": summarise_all([score(leads, examples, flags)], None)}
    metrics["reference_row"] = {"scores": summarise_all([score(targets, examples, flags, is_reference=True)], None)}
    predictions, baseline = {}, None
    for system in systems:
        of_seeds = []
        for run, folder in zip(system.runs, system.folders, strict=True):
            run.module.to(flags.device)
            texts = decode(run, examples, flags.batch_size, flags.device, flags.sentences, **flags.search)
            predictions[folder.name] = texts
            of_seeds.append(score(texts, examples, flags))
        metrics["systems"][system.name] = describe(system) | {"scores": summarise_all(of_seeds, baseline)}
        if flags.ablation:
            metrics["ablation"][system.name] = ablate(system, examples, flags)
        baseline = pool(of_seeds) if baseline is None else baseline
    return metrics, predictions


def ablate(system: System, examples: Sequence[Example], flags: argparse.Namespace) -> dict[str, dict]:
    """Table 4: the mechanism only, with length normalisation, with trigram blocking as well; p is against the first."""
    # D17: "only" is the decoder of See et al., the baseline's, whatever the runs have: the mean log-probability.
    plain = {"length_penalty": 0.0, "average": True, "trigram_blocking": False}
    normed = plain | {"length_penalty": flags.ablation_penalty, "average": False}
    settings = {"only": plain, "+ length norm.": normed, "+ trigram blocking": normed | {"trigram_blocking": True}}
    rows, baseline = {}, None
    for name, setting in settings.items():
        of_seeds = []
        for run in system.runs:
            texts = decode(run, examples, flags.batch_size, flags.device, flags.sentences, **flags.search | setting)
            of_seeds.append(score(texts, examples, flags))
        rows[name] = setting | {"scores": summarise_all(of_seeds, baseline)}
        baseline = pool(of_seeds) if baseline is None else baseline
    return rows


# What is printed and written


def show(value: dict | None) -> str:
    """Mean with its 95 % interval: over seeds where there are several, else over documents."""
    if value is None:
        return "-"
    low, high = (value["low"], value["high"]) if value["seed_low"] is None else (value["seed_low"], value["seed_high"])
    return f"{value['mean']:.2f} [{low:.2f}, {high:.2f}]"


def table(
    title: str, rows: Mapping[str, Mapping[str, dict]], columns: Mapping[str, str], extra: Mapping | None = None
) -> str:
    """Markdown table: a row per system, a column per metric that any row has."""
    known = {metric: name for metric, name in columns.items() if any(metric in scores for scores in rows.values())}
    head = ["system", *known.values(), *(["parameters"] if extra else [])]
    lines = [title, f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, scores in rows.items():
        cells = [name, *(show(scores.get(metric)) for metric in known), *([extra.get(name, "-")] if extra else [])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tables(metrics: dict) -> str:
    """All tables as Markdown."""
    lead = f"lead-{metrics['lead']}"
    systems = {name: row["scores"] for name, row in metrics["systems"].items()}
    with_lead = {lead: metrics["lead_row"]["scores"]} | systems
    with_reference = {"reference": metrics["reference_row"]["scores"]} | systems
    counts = {name: f"{row['parameters']:,}" for name, row in metrics["systems"].items()}
    repetition = {f"repetition{n}": f"{n}-gram" for n in measures.LENGTHS}
    novelty = {f"novel{n}": f"{n}-gram" for n in NOVEL} | {"words": "words"}
    overlap = {f"lead_{metric}": name for metric, name in ROUGE.items()}
    model_based = {"bertscore": "BERTScore F1", "moverscore1": "MoverScore 1-gram", "moverscore2": "2-gram"}
    parts = [table("Table 1: ROUGE", with_lead, ROUGE, counts)]
    if any(metric in scores for scores in systems.values() for metric in model_based):
        parts.append(table("Table 2: model-based scores", with_lead, model_based))
    parts.append(table(f"Table 3: ROUGE against {lead}", with_reference, overlap))
    for name, rows in metrics["ablation"].items():
        rows = {f"{name} {setting}": row["scores"] for setting, row in rows.items()}
        parts.append(table("Table 4: ablation", rows, ROUGE | {"repetition3": "repeated 3-grams %", "words": "words"}))
    parts += filter(None, [differences(metrics)])
    parts.append(table("Figure 2: repeated n-grams, %", with_reference, repetition))
    parts.append(table("Figure 3: n-grams that are not in the source, %", with_reference, novelty))
    return "\n".join(parts)


def differences(metrics: dict) -> str:
    """What each system has more than the first one with the same seed; empty where seeds differ or there is one."""
    first, *others = metrics["systems"]
    systems, shown, rows = metrics["systems"], ROUGE | {"repetition3": "repeated 3-grams %"}, {}
    for name in others:
        if systems[name]["seeds"] == systems[first]["seeds"] and len(systems[first]["seeds"]) > 1:
            ours, theirs = (
                np.array([systems[one]["scores"][metric]["seeds"] for metric in shown]) for one in (name, first)
            )
            rows[name] = {metric: summarise(gain[:, None]) for metric, gain in zip(shown, ours - theirs, strict=True)}
    return table(f"Minus {first}, paired by seed", rows, shown) if rows else ""


def describe_intervals(metrics: dict) -> str:
    """What the brackets are, and what p refers to."""
    seeds = max((len(row["seeds"]) for row in metrics["systems"].values()), default=0)
    over = "over documents (bootstrap)"
    if seeds > 1:
        over = f"over seeds (Student's t) where a row has 2 to {len(STUDENT) + 1}, else {over}"
    text = f"[low, high]: 95 % interval {over}. {metrics['examples']} examples; {metrics['signature']}"
    first, *others = metrics["systems"]
    rows = [(name, metrics["systems"][name]["scores"]) for name in others]
    for name, scores in rows:
        values = ", ".join(f"{title} {scores[metric]['p']:.4f}" for metric, title in ROUGE.items())
        text += f"\np against {first}: {name} {values}"
    return text


def write_csv(metrics: dict, path: Path) -> None:
    """One row per system and metric."""
    named = {
        f"lead-{metrics['lead']}": metrics["lead_row"],
        "reference": metrics["reference_row"],
        **metrics["systems"],
    }
    for system, settings in metrics["ablation"].items():
        named |= {f"{system} {setting}": row for setting, row in settings.items()}
    columns = ["system", "seeds", "metric", "mean", "low", "high", "seed_low", "seed_high", "p"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        for name, row in named.items():
            for metric, values in row["scores"].items():
                shown = {key: f"{value:.4g}" for key, value in values.items() if isinstance(value, float)}
                writer.writerow({"system": name, "seeds": len(values["seeds"]), "metric": metric} | shown)


# Command line


def boolean(text: str) -> bool:
    """true or false, as train's flags have them."""
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r} is not true or false") from None


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The flags; raises ValueError for what does not go together."""
    parser = argparse.ArgumentParser("python -m diminishing_attention.evaluate", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("runs", nargs="+", type=Path, help="run folders; p refers to the first system")
    add("--data", help="default: the first run's")
    add("--split", default="test")
    add("--limit", type=int, help="first N examples only")
    add("--ablation", action="store_true", help="Table 4: decode each system three times more")
    add("--ablation-penalty", type=float, default=1.5, help="alpha of its length normalisation (Section 4.2: 1.5)")
    add("--bertscore", metavar="FOLDER", help="Table 2: encoder of transformers, for bert-score")
    add("--bertscore-layer", type=int, default=0, help="layer of it; 0 = the last (the paper: roberta-large, 17)")
    add("--moverscore", metavar="FOLDER", help="Table 2: encoder of transformers, for MoverScore")
    add("--lead", type=int, default=3, help="sentences of the lead baseline")
    add("--sentences", type=int, default=3, help="sentences of an extractive summary")
    add("--beam", type=int, help="default: the run's, as below")
    add("--length-penalty", type=float)
    add("--average", type=boolean, metavar="BOOL")
    add("--trigram-blocking", type=boolean, metavar="BOOL")
    add("--min-length", type=int)
    add("--max-length", type=int)
    add("--batch-size", type=int, default=16)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--json", type=Path, help="write every number here; diminishing_attention.figures reads it")
    add("--csv", type=Path, help="write the numbers of the tables here")
    add("--predictions", type=Path, help="write JSONL here; with several runs, a folder of them")
    flags = parser.parse_args(arguments)
    if flags.length_penalty and flags.average is None:  # one takes the place of the other
        flags.average = False
    flags.search = {name: getattr(flags, name) for name in DECODING if getattr(flags, name) is not None}
    if min(flags.lead, flags.sentences, flags.batch_size) < 1:
        raise ValueError("--lead, --sentences and --batch-size must be at least 1")
    if flags.device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("--device cuda, but torch finds no GPU here: leave the flag out")
    return flags


def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluate; bad input ends the program with one line that says what is wrong."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        flags = parse(arguments)
        systems = group(flags.runs)
        config = systems[0].runs[0].config
        flags.data = flags.data or config.data
        examples = load_task(config, flags.split, flags.limit, flags.data)
        metrics, predictions = evaluate(systems, examples, flags)
    except (ValueError, ImportError, OSError) as error:
        sys.exit(f"error: {error}")
    print(tables(metrics))
    print(describe_intervals(metrics))
    for path in filter(None, (flags.json, flags.csv)):
        path.parent.mkdir(parents=True, exist_ok=True)
    if flags.json:
        write_json(flags.json, metrics)
    if flags.csv:
        write_csv(metrics, flags.csv)
    for name, texts in predictions.items() if flags.predictions else ():
        path = flags.predictions if len(predictions) == 1 else flags.predictions / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = zip(examples, texts, strict=True)
        write_jsonl(path, ({"id": e.id, "prediction": text, "reference": e.target} for e, text in rows))


if __name__ == "__main__":
    main()
