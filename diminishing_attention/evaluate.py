"""Decode and score: Tables 1 to 4, and the numbers behind Figures 2 and 3.

python -m diminishing_attention.evaluate runs/pg runs/pg-dim                                             # Tables 1, 3
python -m diminishing_attention.evaluate runs/pg-0 runs/pg-1 runs/pg-2 runs/dim-0 runs/dim-1 runs/dim-2  # over seeds
python -m diminishing_attention.evaluate runs/pg runs/pg-dim --ablation --json metrics.json              # and Table 4
python -m diminishing_attention.evaluate runs/pg runs/pg-dim --bertscore FOLDER --moverscore FOLDER      # and Table 2

Runs that differ in nothing but the seed are one system: a document's score is the mean over its seeds.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from shared import rouge
from shared.data import Example, check_outputs, split_sentences, write_csv, write_json
from shared.timing import find_device

from . import measures
from .measures import split_words
from .predict import DECODING, Decoding, decode_all
from .run import one_line_errors
from .train import Run, load_run, load_task

ROUGE = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # papers' ROUGE-L is that over sentences
REPETITION = {f"repetition{n}": f"{n}-gram" for n in measures.LENGTHS}
NOVELTY = {f"novel{n}": f"{n}-gram" for n in measures.NOVEL}
OVERLAP = {f"lead_{metric}": name for metric, name in ROUGE.items()}
MODEL_BASED = {"bertscore": "BERTScore F1", "moverscore1": "MoverScore 1-gram", "moverscore2": "MoverScore 2-gram"}

PASSED = ("predictions", "ablation", "bertscore", "bertscore_layer", "moverscore", "lead", "sentences", "batch_size")

Scores = dict[str, np.ndarray]  # metric: (n,) values of the documents


@dataclass(kw_only=True)
class Options(Decoding):
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


def group(runs: dict[str, Run]) -> dict[str, dict[str, Run]]:
    """Systems: {name: {run folder's name: run}}, each of the runs that differ in nothing but the seed.

    So do those that they go on from. ValueError: two equal runs, or systems of one name.
    """
    members: dict[str, dict[str, Run]] = {}
    for name, run in runs.items():
        configs = [vars(run.config), *run.base]
        identity = [{k: v for k, v in config.items() if k not in ("seed", "init")} for config in configs]
        members.setdefault(json.dumps(identity), {})[name] = run
    for seeds in members.values():
        if len({run.config.seed for run in seeds.values()}) < len(seeds):
            raise ValueError(f"{', '.join(seeds)} have the same configuration and seed: give one of them")
    systems = {common_name(list(seeds)): seeds for seeds in members.values()}
    if len(systems) < len(members):
        raise ValueError(f"two of {', '.join(systems)} are called alike: rename their run folders")
    return systems


def common_name(names: Sequence[str]) -> str:
    """The run folder's name; of several runs without the number at its end."""
    return names[0] if len(names) == 1 else re.sub(r"[-_.]?(seed)?\d+$", "", names[0]) or names[0]


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
    for n, metric in enumerate(REPETITION, 1):
        scores[metric] = 100 * np.array([measures.repetition_ratio(w, n) for w in words])
    for n, metric in enumerate(NOVELTY, 1):
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


def summarise(of_seeds: Sequence[Scores], first: Sequence[Scores] | None = None) -> dict[str, dict]:
    """Every metric as {mean, low, high} or, with `first`, as {difference, low, high, p} from that system.

    Interval and p are over documents, of the means over seeds; "seeds" has the mean, or difference, of each seed.
    """
    result = {}
    for metric in of_seeds[0]:
        values = np.array([scores[metric] for scores in of_seeds])  # (seeds, n)
        if first is None:
            result[metric] = rouge.interval(values.mean(0)) | {"seeds": values.mean(1).tolist()}
        else:
            theirs = np.array([scores[metric] for scores in first])
            seeds = (values.mean(1) - theirs.mean(1)).tolist() if len(theirs) == len(values) else None
            result[metric] = rouge.difference(values.mean(0), theirs.mean(0)) | {"seeds": seeds}
    return result


def describe(runs: dict[str, Run]) -> dict:
    """What a system is; `parameters_listed` counts the shared embedding twice, as Table 1."""
    run = next(iter(runs.values()))
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    twice = run.model.encoder.embedding.weight.numel() if run.config.model == "pointer" else 0
    row = {name: getattr(run.config, name) for name in ("model", "diminishing", "coverage")}
    seeds = {"runs": list(runs), "seeds": [run.config.seed for run in runs.values()]}
    return row | {"parameters": parameters, "parameters_listed": parameters + twice} | seeds


def evaluate(
    runs: dict[str, Run], examples: Sequence[Example], predictions: Path | None = None, ablation: bool = False,
    bertscore: str = "", bertscore_layer: int = 0, moverscore: str = "", lead: int = 3, **options,
) -> dict:  # fmt: skip
    """Decode and score runs on the same examples.

    Args:
        runs: by name; the differences of the other systems refer to the first one's system.
        predictions: folder for NAME.jsonl with the outputs of each run, written as they come.
        ablation: Table 4 too, see `ablate`.
        bertscore, bertscore_layer, moverscore: encoders of transformers for Table 2.
        lead: sentences of the lead baseline.
        options: as in `decode`.
    Returns:
        every number in one JSON object.
    """
    rouge.check_references(examples)
    systems, device = group(runs), next(next(iter(runs.values())).model.parameters()).device

    def measure(texts: Sequence[str]) -> Scores:
        scores, references = score(texts, examples, lead), [example.target for example in examples]
        if bertscore:
            scores["bertscore"] = np.array(measures.bertscore(texts, references, bertscore, bertscore_layer, device))
        for n in (1, 2) if moverscore else ():
            scores[f"moverscore{n}"] = np.array(measures.moverscore(texts, references, moverscore, n, device))
        return scores

    search = {name: value for name, value in options.items() if name in DECODING}
    metrics = {"examples": len(examples), "lead": lead, "decoding": search, "signature": rouge.signature(len(examples))}
    leads, targets = ["\n".join(lead_of(e, lead)) for e in examples], ["\n".join(e.summary) for e in examples]
    metrics["lead_row"] = summarise([measure(leads)])
    metrics["reference_row"] = summarise([score(targets, examples, lead, is_reference=True)])
    metrics |= {"systems": {}, "ablation": {}}
    first = None
    for system, members in systems.items():
        paths = {name: predictions / f"{name}.jsonl" if predictions else None for name in members}
        of_seeds = [measure(decode_all(run, examples, paths[name], **options)) for name, run in members.items()]
        difference = summarise(of_seeds, first) if first else None
        metrics["systems"][system] = describe(members) | {"scores": summarise(of_seeds), "difference": difference}
        first = first or of_seeds
        if ablation:
            metrics["ablation"][system] = ablate(members, examples, lead, **options)
    return metrics


def ablate(runs: dict[str, Run], examples: Sequence[Example], lead: int, **options) -> dict[str, dict]:
    """Table 4: the mechanism only, with length normalisation, with trigram blocking as well."""
    # D17: "only" is the decoder of See et al., the baseline's, whatever the runs have: the mean log-probability.
    plain = {"length_penalty": 0.0, "average": True, "trigram_blocking": False}
    normed = plain | {"length_penalty": 1.5, "average": False}  # Section 4.2
    settings = {"only": plain, "+ length norm.": normed, "+ trigram blocking": normed | {"trigram_blocking": True}}
    rows = {}
    for name, setting in settings.items():
        of_seeds = [score(decode_all(run, examples, **options | setting), examples, lead) for run in runs.values()]
        rows[name] = setting | {"scores": summarise(of_seeds)}
    return rows


def tables(metrics: dict) -> str:
    """All tables as Markdown."""
    lead, systems = f"lead-{metrics['lead']}", metrics["systems"]
    scores = {name: row["scores"] for name, row in systems.items()}
    with_lead, with_reference = {lead: metrics["lead_row"]} | scores, {"reference": metrics["reference_row"]} | scores
    more = ROUGE | {"repetition3": "repeated 3-grams %", "novel2": "novel 2-grams %"}
    sizes = {name: row | {"parameters": f"{systems[name]['parameters']:,}"} for name, row in scores.items()}
    parts = [
        table("Table 1: ROUGE", {lead: metrics["lead_row"]} | sizes, ROUGE | {"parameters": "parameters"}),
        table("Table 2: model-based scores", with_lead, MODEL_BASED),
        table(f"Table 3: ROUGE against {lead}", with_reference, OVERLAP),
    ]
    for name, rows in metrics["ablation"].items():
        rows = {f"{name} {setting}": row["scores"] for setting, row in rows.items()}
        parts.append(table("Table 4: ablation", rows, more | {"words": "words"}))
    gains = {name: row["difference"] for name, row in systems.items() if row["difference"]}
    by_seed = {
        name: {metric: ", ".join(f"{value:+.2f}" for value in gain[metric]["seeds"]) for metric in more}
        for name, gain in gains.items() if len(gain["rouge1"]["seeds"] or []) > 1
    }  # fmt: skip
    first = f"Minus {next(iter(systems))}"
    intervals = "[low, high]: 95 % interval over documents (bootstrap), p: approximate randomisation"
    parts += [
        table(first, gains, more | MODEL_BASED),
        table(f"{first}, seed by seed", by_seed, more),
        table("Figure 2: repeated n-grams, %", with_reference, REPETITION),
        table("Figure 3: n-grams that are not in the source, %", with_reference, NOVELTY | {"words": "words"}),
        f"{intervals}. {metrics['examples']} examples; {metrics['signature']}",
    ]
    return "\n\n".join(filter(None, parts))


def table(title: str, rows: dict[str, dict], columns: dict[str, str]) -> str:
    """A titled Markdown table: a row per system, a column per metric that any row has; "" where there is none."""
    known = {metric: name for metric, name in columns.items() if any(metric in scores for scores in rows.values())}
    cells = ({"system": name} | {known[m]: scores.get(m) for m in known} for name, scores in rows.items())
    return f"{title}\n{rouge.table(list(cells))}" if known else ""


def csv_rows(metrics: dict) -> Iterator[dict]:
    """A row per system and seed: the mean of every metric."""
    for name in ("lead", "reference"):
        yield {"system": name, "seed": None} | {m: value["mean"] for m, value in metrics[f"{name}_row"].items()}
    for name, system in metrics["systems"].items():
        decodings = {f"{name} {setting}": row for setting, row in metrics["ablation"].get(name, {}).items()}
        for row_name, row in ({name: system} | decodings).items():
            for number, seed in enumerate(system["seeds"]):
                means = {metric: value["seeds"][number] for metric, value in row["scores"].items()}
                yield {"system": row_name, "seed": seed} | means


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(Options, prog=f"python -m {__package__}.evaluate", description=__doc__, args=arguments,
                       config=(tyro.conf.FlagCreatePairsOff,))  # fmt: skip
    if min(options.lead, options.sentences, options.batch_size) < 1:
        raise ValueError("--lead, --sentences and --batch-size must be at least 1")
    if not options.runs or len({path.name for path in options.runs}) < len(options.runs):
        raise ValueError("give at least one run folder, and no two of the same name: rename one")
    runs = {path.name: load_run(path) for path in options.runs}
    for run in runs.values():
        run.model.to(find_device(options.device))
    config = next(iter(runs.values())).config
    data = options.data or config.data
    examples = load_task(config, options.split, options.limit, data)
    outputs = [options.predictions / f"{name}.jsonl" for name in runs] if options.predictions else []
    check_outputs(options.json, options.csv, *outputs)
    given = {name: getattr(options, name) for name in PASSED} | options.search()
    metrics = {"data": data, "split": options.split} | evaluate(runs, examples, **given)
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        write_csv(options.csv, csv_rows(metrics))
    print(tables(metrics))


if __name__ == "__main__":
    main()
