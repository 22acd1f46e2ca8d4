"""Decode and score: Tables 1 to 4, and the numbers behind Figures 2 and 3.

python -m diminishing_attention.evaluate runs/pg runs/pg-dim                                             # Tables 1, 3
python -m diminishing_attention.evaluate runs/pg-0 runs/pg-1 runs/pg-2 runs/dim-0 runs/dim-1 runs/dim-2  # over seeds
python -m diminishing_attention.evaluate runs/pg runs/pg-dim --ablation --json metrics.json              # and Table 4
python -m diminishing_attention.evaluate runs/pg runs/pg-dim --bertscore FOLDER --moverscore FOLDER      # and Table 2

Runs whose configurations differ in nothing but the seed are one system: a document's score is the mean over its seeds.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import tyro
from tqdm import tqdm

from shared import rouge
from shared.data import Example, check_outputs, split_sentences, write_csv, write_json
from shared.timing import find_device

from . import measures
from .bertsum import BertSumExt
from .measures import split_words
from .run import one_line_errors
from .search import beam_search
from .train import DECODING, Run, load_run, load_task

ROUGE = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # papers' ROUGE-L is that over sentences
REPETITION = {f"repetition{n}": f"{n}-gram" for n in measures.LENGTHS}
NOVELTY = {f"novel{n}": f"{n}-gram" for n in measures.NOVEL}
OVERLAP = {f"lead_{metric}": name for metric, name in ROUGE.items()}
MODEL_BASED = {"bertscore": "BERTScore F1", "moverscore1": "MoverScore 1-gram", "moverscore2": "MoverScore 2-gram"}

Scores = dict[str, np.ndarray]  # metric: (n,) values of the documents


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders; differences and p refer to the first system
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "test"
    limit: int | None = None  # first N examples only
    json: Path | None = None  # write every number here; figures.py reads it
    csv: Path | None = None  # write a row per system and seed here
    predictions: Path | None = None  # folder for the outputs, a .jsonl per run
    ablation: bool = False  # Table 4: decode each system three times more
    bertscore: str = ""  # Table 2: encoder of transformers, for bert-score
    bertscore_layer: int = 0  # layer of it; 0 = the last (the paper: roberta-large, 17)
    moverscore: str = ""  # Table 2: encoder of transformers, for MoverScore
    lead: int = 3  # sentences of the lead baseline
    sentences: int = 3  # sentences of an extractive summary
    beam: int | None = None  # default: the run's, as below
    length_penalty: float | None = None  # takes the place of the average
    average: bool | None = None
    trigram_blocking: bool | None = None
    min_length: int | None = None
    max_length: int | None = None
    batch_size: int = 16  # documents decoded at a time; outputs do not depend on it
    device: str = "cpu"


class System(NamedTuple):
    """The runs that differ in nothing but the seed."""

    name: str
    runs: dict[str, Run]  # by the names of their folders


def group(runs: dict[str, Run]) -> list[System]:
    """Runs as systems, in the order of the first run of each; ValueError for two equal runs or systems of one name."""
    members: dict[str, dict[str, Run]] = {}
    for name, run in runs.items():
        members.setdefault(identity(run), {})[name] = run
    systems = []
    for runs_of in members.values():
        if len({run.config.seed for run in runs_of.values()}) < len(runs_of):
            raise ValueError(f"{', '.join(runs_of)} have the same configuration and seed: give one of them")
        systems.append(System(common_name(list(runs_of)), runs_of))
    if len({system.name for system in systems}) < len(systems):
        raise ValueError(f"two systems are called {systems[0].name} or alike: rename their run folders")
    return systems


def identity(run: Run) -> str:
    """What a run and those it goes on from are, but for their seeds and folders."""
    configs = [vars(run.config), *run.base]
    return json.dumps([{k: v for k, v in config.items() if k not in ("seed", "init")} for config in configs])


def common_name(names: Sequence[str]) -> str:
    """The run folder's name; of several runs without the number at its end."""
    return names[0] if len(names) == 1 else re.sub(r"[-_.]?(seed)?\d+$", "", names[0]) or names[0]


# Decoding


def decode(
    run: Run, examples: Sequence[Example], batch_size: int = 16, sentences: int = 3, **search
) -> Iterator[tuple[int, str]]:
    """Summaries, decoded in batches of similar length; yields (index, text) as they are done.

    Args:
        sentences: of an extractive summary.
        search: beam, length_penalty, ...: DECODING; the run's own values by default.
    """
    options = {name: getattr(run.config, name) for name in DECODING} | search
    items, device = run.encode(examples), next(run.model.parameters()).device
    by_length = sorted(range(len(items)), key=lambda i: len(items[i].source))
    for start in range(0, len(items), batch_size):
        indices = by_length[start : start + batch_size]
        batch = run.text.collate([items[i] for i in indices], device)
        if isinstance(run.model, BertSumExt):
            chosen = [examples[i] for i in indices]
            yield from zip(indices, extract(run.model, batch, chosen, sentences, options["trigram_blocking"]))  # noqa: B905
            continue
        # D10: a blocked trigram is of tokens, in BERTSum of word pieces. D21: <unk> is never written.
        hypotheses = beam_search(run.model, batch, never=run.text.never(run.tokenizer), **options)
        for i, tokens in zip(indices, hypotheses.tokens, strict=True):
            yield i, run.text.decode(run.tokenizer, items[i], tokens)


@torch.inference_mode()
def extract(model: BertSumExt, batch, examples: Sequence[Example], count: int, trigram_blocking: bool) -> list[str]:
    """The `count` most probable sentences of each document in their order; with blocking, no trigram twice."""
    texts = []
    for row, keep, example in zip(model.probabilities(batch), batch.keep_sentences, examples, strict=True):
        taken, seen = [], set()
        for i in row[keep].argsort(descending=True, stable=True).tolist():
            trigrams = set(measures.ngrams(split_words(example.document[i]), 3))
            if len(taken) < count and not (trigram_blocking and trigrams & seen):
                taken.append(i)
                seen |= trigrams
        texts.append("\n".join(example.document[i] for i in sorted(taken)))
    return texts


def decode_all(run: Run, examples: Sequence[Example], path: Path | None = None, **options) -> list[str]:
    """`decode` in the examples' order; each prediction is written to `path` as it comes."""
    texts = [""] * len(examples)
    with open(path, "w", encoding="utf-8") if path else nullcontext() as file:
        for i, text in tqdm(decode(run, examples, **options), total=len(examples), leave=False):
            texts[i] = text
            if file:
                row = {"id": examples[i].id, "prediction": text, "reference": examples[i].target}
                print(json.dumps(row, ensure_ascii=False), file=file, flush=True)
    return texts


# Scores


def score(texts: Sequence[str], examples: Sequence[Example], lead: int = 3, is_reference: bool = False) -> Scores:
    """(n,) values of every text: ROUGE, repetition, novelty, overlap with the lead, length.

    Args:
        is_reference: the texts are the references; their ROUGE would say nothing.
    """
    sentences = [in_lines(text) for text in texts]
    words, sources = [split_words(text) for text in texts], [split_words(example.source) for example in examples]
    scores: Scores = {}
    if not is_reference:
        values = rouge.score(sentences, [example.references for example in examples])
        scores |= {metric: values[metric] for metric in ROUGE}
    for n, metric in zip(measures.LENGTHS, REPETITION, strict=True):
        scores[metric] = 100 * np.array([measures.repetition_ratio(w, n) for w in words])
    for n, metric in zip(measures.NOVEL, NOVELTY, strict=True):
        scores[metric] = 100 * np.array([measures.novel_share(*pair, n) for pair in zip(words, sources, strict=True)])
    overlap = rouge.score(sentences, [lead_of(example, lead) for example in examples])
    scores |= {f"lead_{metric}": overlap[metric] for metric in ROUGE}
    return scores | {"words": np.array([len(w) for w in words], dtype=float)}


def in_lines(text: str) -> list[str]:
    """Sentences of an output: its lines, split further."""
    return [sentence for line in text.split("\n") for sentence in split_sentences(line)]


def lead_of(example: Example, count: int, longest: int = 1000) -> list[str]:
    """The first sentences of a document, each up to `longest` words: ROUGE-L takes their square of time and memory."""
    return [" ".join(sentence.split()[:longest]) for sentence in example.document[:count]]


def model_scores(texts: Sequence[str], examples: Sequence[Example], bertscore, moverscore, layer, device) -> Scores:
    """Table 2: BERTScore and MoverScore by the encoders named, against the first reference."""
    references, scores = [example.target for example in examples], {}
    if bertscore:
        scores["bertscore"] = np.array(measures.bertscore(texts, references, bertscore, layer, device))
    for n in (1, 2) if moverscore else ():
        scores[f"moverscore{n}"] = np.array(measures.moverscore(texts, references, moverscore, n, device))
    return scores


def summarise(of_seeds: Sequence[Scores], first: Sequence[Scores] | None = None) -> dict[str, dict]:
    """Every metric as {mean, low, high} or, with `first`, as {difference, low, high, p} from that system.

    Interval and p are over documents, of the means over seeds; "seeds" has the mean, or difference, of each seed.
    """
    result = {}
    for metric in of_seeds[0]:
        values, pooled = [scores[metric].mean() for scores in of_seeds], mean_of(of_seeds, metric)
        if first is None:
            result[metric] = rouge.interval(pooled) | {"seeds": values}
        elif metric in first[0]:
            paired = zip(values, (scores[metric].mean() for scores in first), strict=False)
            seeds = [one - other for one, other in paired] if len(first) == len(values) else None
            result[metric] = rouge.difference(pooled, mean_of(first, metric)) | {"seeds": seeds}
    return result


def mean_of(of_seeds: Sequence[Scores], metric: str) -> np.ndarray:
    """(n,) means over seeds."""
    return np.mean([scores[metric] for scores in of_seeds], axis=0)


# The tables


def describe(system: System) -> dict:
    """What a system is; `parameters_listed` counts the embedding that encoder and decoder share twice, as Table 1."""
    run = next(iter(system.runs.values()))
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    shared = run.model.config.vocabulary * run.model.config.embedding if run.config.model == "pointer" else 0
    row = {name: getattr(run.config, name) for name in ("model", "diminishing", "coverage")}
    seeds = {"runs": list(system.runs), "seeds": [run.config.seed for run in system.runs.values()]}
    return row | {"parameters": parameters, "parameters_listed": parameters + shared} | seeds


def evaluate(
    runs: dict[str, Run],
    examples: Sequence[Example],
    predictions: Path | None = None,
    ablation: bool = False,
    bertscore: str = "",
    bertscore_layer: int = 0,
    moverscore: str = "",
    lead: int = 3,
    sentences: int = 3,
    batch_size: int = 16,
    **search,
) -> dict:
    """Decode and score runs on the same examples.

    Args:
        runs: by name; the differences of the other systems refer to the first one's system.
        predictions: folder for NAME.jsonl with the outputs of each run, written as they come.
        ablation: Table 4 too, see `ablate`.
        bertscore, bertscore_layer, moverscore: encoders of transformers for Table 2.
        lead, sentences: of the lead baseline, of an extractive summary.
        batch_size, search: as in `decode`.
    Returns:
        every number in one JSON object.
    """
    rouge.check_references(examples)
    systems = group(runs)
    device = next(next(iter(runs.values())).model.parameters()).device

    def table_2(texts: Sequence[str]) -> Scores:
        return model_scores(texts, examples, bertscore, moverscore, bertscore_layer, device)

    leads, targets = ["\n".join(lead_of(e, lead)) for e in examples], ["\n".join(e.summary) for e in examples]
    metrics = {"examples": len(examples), "lead": lead, "decoding": search, "signature": rouge.signature(len(examples))}
    metrics["lead_row"] = summarise([score(leads, examples, lead) | table_2(leads)])
    metrics["reference_row"] = summarise([score(targets, examples, lead, is_reference=True)])
    metrics |= {"systems": {}, "ablation": {}}
    options, first = {"batch_size": batch_size, "sentences": sentences}, None
    for system in systems:
        of_seeds = []
        for name, run in system.runs.items():
            path = predictions / f"{name}.jsonl" if predictions else None
            texts = decode_all(run, examples, path, **options, **search)
            of_seeds.append(score(texts, examples, lead) | table_2(texts))
        difference = None if first is None else summarise(of_seeds, first)
        metrics["systems"][system.name] = describe(system) | {"scores": summarise(of_seeds), "difference": difference}
        first = first or of_seeds
        if ablation:
            metrics["ablation"][system.name] = ablate(system, examples, lead, **options, **search)
    return metrics


def ablate(system: System, examples: Sequence[Example], lead: int, **options) -> dict[str, dict]:
    """Table 4: the mechanism only, with length normalisation, with trigram blocking as well; against the first."""
    # D17: "only" is the decoder of See et al., the baseline's, whatever the runs have: the mean log-probability.
    plain = {"length_penalty": 0.0, "average": True, "trigram_blocking": False}
    normed = plain | {"length_penalty": 1.5, "average": False}  # Section 4.2
    settings = {"only": plain, "+ length norm.": normed, "+ trigram blocking": normed | {"trigram_blocking": True}}
    rows, first = {}, None
    for name, setting in settings.items():
        texts = [decode_all(run, examples, **options | setting) for run in system.runs.values()]
        of_seeds = [score(of_seed, examples, lead) for of_seed in texts]
        difference = None if first is None else summarise(of_seeds, first)
        rows[name] = setting | {"scores": summarise(of_seeds), "difference": difference}
        first = first or of_seeds
    return rows


def tables(metrics: dict) -> str:
    """All tables as Markdown."""
    lead, systems = f"lead-{metrics['lead']}", metrics["systems"]
    scores = {name: row["scores"] for name, row in systems.items()}
    with_lead, with_reference = {lead: metrics["lead_row"]} | scores, {"reference": metrics["reference_row"]} | scores
    more = ROUGE | {"repetition3": "repeated 3-grams %", "novel2": "novel 2-grams %"}
    parts = [table("Table 1: ROUGE", with_lead, ROUGE, {n: f"{row['parameters']:,}" for n, row in systems.items()})]
    if any(metric in metrics["lead_row"] for metric in MODEL_BASED):
        parts.append(table("Table 2: model-based scores", with_lead, MODEL_BASED))
    parts.append(table(f"Table 3: ROUGE against {lead}", with_reference, OVERLAP))
    for name, rows in metrics["ablation"].items():
        rows = {f"{name} {setting}": row["scores"] for setting, row in rows.items()}
        parts.append(table("Table 4: ablation", rows, more | {"words": "words"}))
    first, *others = systems
    if others:
        gains = {name: systems[name]["difference"] for name in others}
        parts.append(table(f"Minus {first}", gains, more | MODEL_BASED))
        seeds = {name: gain for name, gain in gains.items() if len(gain["rouge1"]["seeds"] or []) > 1}
        if seeds:
            by_seed = {
                name: {metric: ", ".join(f"{v:+.2f}" for v in gain[metric]["seeds"]) for metric in more}
                for name, gain in seeds.items()
            }
            parts.append(table(f"Minus {first}, seed by seed", by_seed, more))
    parts.append(table("Figure 2: repeated n-grams, %", with_reference, REPETITION))
    parts.append(table("Figure 3: n-grams that are not in the source, %", with_reference, NOVELTY | {"words": "words"}))
    intervals = "[low, high]: 95 % interval over documents (bootstrap), p: approximate randomisation"
    return "\n\n".join([*parts, f"{intervals}. {metrics['examples']} examples; {metrics['signature']}"])


def table(title: str, rows: dict[str, dict], columns: dict[str, str], parameters: dict[str, str] | None = None) -> str:
    """A titled Markdown table: a row per system, a column per metric that any row has."""
    known = {metric: name for metric, name in columns.items() if any(metric in scores for scores in rows.values())}
    cells = [
        {"system": name} | {title: scores.get(metric) for metric, title in known.items()}
        | ({"parameters": parameters.get(name)} if parameters else {})
        for name, scores in rows.items()
    ]  # fmt: skip
    return f"{title}\n{rouge.table(cells)}"


def csv_rows(metrics: dict) -> Iterator[dict]:
    """A row per system and seed: the mean of every metric."""
    yield {"system": "lead", "seed": None} | {name: value["mean"] for name, value in metrics["lead_row"].items()}
    yield {"system": "reference"} | {name: value["mean"] for name, value in metrics["reference_row"].items()}
    for name, system in metrics["systems"].items():
        decodings = {f"{name} {setting}": row for setting, row in metrics["ablation"].get(name, {}).items()}
        for row_name, row in ({name: system} | decodings).items():
            for number, seed in enumerate(system["seeds"]):
                means = {metric: value["seeds"][number] for metric, value in row["scores"].items()}
                yield {"system": row_name, "seed": seed} | means


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.evaluate", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    if min(options.lead, options.sentences, options.batch_size) < 1:
        raise ValueError("--lead, --sentences and --batch-size must be at least 1")
    if not options.runs:
        raise ValueError("give at least one run folder")
    if len({path.name for path in options.runs}) < len(options.runs):
        raise ValueError("two runs have folders of the same name; rename one")
    runs = {path.name: load_run(path) for path in options.runs}
    for run in runs.values():
        run.model.to(find_device(options.device))
    config = next(iter(runs.values())).config
    data = options.data or config.data
    examples = load_task(config, options.split, options.limit, data)
    outputs = [options.predictions / f"{name}.jsonl" for name in runs] if options.predictions else []
    check_outputs(options.json, options.csv, *outputs)
    search = {name: value for name in DECODING if (value := getattr(options, name)) is not None}
    if search.get("length_penalty") and options.average is None:  # one takes the place of the other
        search["average"] = False
    metrics = {"data": data, "split": options.split} | evaluate(
        runs, examples, options.predictions, options.ablation, options.bertscore, options.bertscore_layer,
        options.moverscore, options.lead, options.sentences, options.batch_size, **search,
    )  # fmt: skip
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        write_csv(options.csv, csv_rows(metrics))
    print(tables(metrics))


if __name__ == "__main__":
    main()
