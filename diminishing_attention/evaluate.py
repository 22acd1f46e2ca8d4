"""Decode and score runs: Tables 1, 3 and 4, and the numbers behind Figures 2 and 3.

python -m diminishing_attention.evaluate runs/pg runs/pg-dim                                             # Tables 1, 3
python -m diminishing_attention.evaluate runs/pg-0 runs/pg-1 runs/pg-2 runs/dim-0 runs/dim-1 runs/dim-2  # over seeds
python -m diminishing_attention.evaluate runs/pg runs/pg-dim --ablation --json metrics.json              # and Table 4

Runs that differ in nothing but the seed are one system: a document's score is the mean over its seeds.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from tqdm import tqdm

from shared import rouge
from shared.data import Example, check_outputs, in_sentences, load, split_sentences, write_csv, write_json
from shared.timing import find_device

from .decode import DECODING, Decoding, Output, decode
from .loading import Run, for_task, load_run
from .run import Positive, check_fields, one_line_errors, read_flags
from .text import ngrams, split_words

ROUGE = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # papers' ROUGE-L is that over sentences
REPETITION = {f"repetition{n}": f"{n}-gram" for n in (1, 2, 3, 4, 5)}  # Figure 2
NOVELTY = {f"novel{n}": f"{n}-gram" for n in (1, 2, 3, 4)}  # Figure 3
OVERLAP = {f"lead_{metric}": name for metric, name in ROUGE.items()}
Scores = dict[str, np.ndarray]  # metric: (n,) values of the documents
Measure = Callable[[Sequence[str], Sequence[str]], Sequence[float]]  # texts and references -> values


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass(kw_only=True)
class Options(Decoding):
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders; differences and p refer to the first system
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "test"
    limit: Positive | None = None  # first N examples only
    json: Path | None = None  # write every number here; experiments/figures.py reads it
    csv: Path | None = None  # write a row per system and seed here
    predictions: Path | None = None  # folder for the outputs, a .jsonl per run
    ablation: bool = False  # Table 4: decode each system three times more
    lead: Positive = 3  # sentences of the lead baseline


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


def repetition_ratio(words: Sequence[str], n: int) -> float:
    """Duplicate n-grams / n-grams (Figure 2), 0-1. A text without n-grams repeats nothing: 0."""
    # D11: every occurrence after the first is a duplicate.
    grams = ngrams(words, n)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def novel_share(words: Sequence[str], source: Sequence[str], n: int) -> float:
    """Share of the n-grams, 0-1, that do not stand in the source (Figure 3, Section 4.4); without n-grams 0."""
    grams, known = ngrams(words, n), set(ngrams(source, n))
    return sum(gram not in known for gram in grams) / len(grams) if grams else 0.0


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
        scores[metric] = 100 * np.array([repetition_ratio(w, n) for w in words])
    for n, metric in enumerate(NOVELTY, 1):
        scores[metric] = 100 * np.array([novel_share(*pair, n) for pair in zip(words, sources, strict=True)])
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


def decode_all(run: Run, examples: Sequence[Example], path: Path | None = None, **options) -> list[Output]:
    """`decode` in the examples' order, with progress; each prediction is written to `path` as it comes."""
    outputs: list = [None] * len(examples)
    with open(path, "w", encoding="utf-8") if path else nullcontext() as file:
        for i, output in tqdm(decode(run, examples, **options), total=len(examples), leave=False):
            outputs[i] = output
            row = {"id": examples[i].id, "prediction": output.text, "reference": examples[i].target}
            if file:
                print(json.dumps(row, ensure_ascii=False), file=file, flush=True)
    return outputs


def evaluate(
    runs: dict[str, Run],
    examples: Sequence[Example],
    predictions: Path | None = None,
    ablation: bool = False,
    lead: int = 3,
    more: Mapping[str, Measure] | None = None,
    **options,
) -> dict:
    """Decode and score runs on the same examples; every number in one JSON object.

    Args:
        runs: by name; the differences of the other systems refer to the first one's system.
        predictions: folder for NAME.jsonl with the outputs of each run, written as they come.
        ablation: Table 4 too, see `ablate`.
        lead: sentences of the lead baseline.
        more: further measures by name, of texts and references (experiments/measures.py: Table 2).
        options: as in `decode`.
    """
    rouge.check_references(examples)
    references, more = [example.target for example in examples], more or {}

    def measure(texts: Sequence[str]) -> Scores:
        further = {name: np.array(function(texts, references)) for name, function in more.items()}
        return score(texts, examples, lead) | further

    search = {name: value for name, value in options.items() if name in DECODING}
    metrics = {"examples": len(examples), "lead": lead, "decoding": search, "signature": rouge.signature(len(examples))}
    leads, targets = ["\n".join(lead_of(e, lead)) for e in examples], ["\n".join(e.summary) for e in examples]
    metrics["lead_row"] = summarise([measure(leads)])
    metrics["reference_row"] = summarise([score(targets, examples, lead, is_reference=True)])
    metrics |= {"more": list(more), "systems": {}, "ablation": {}}
    first = None
    for system, members in group(runs).items():
        paths = {name: predictions / f"{name}.jsonl" if predictions else None for name in members}
        outputs = [decode_all(run, examples, paths[name], **options) for name, run in members.items()]
        of_seeds = [measure([output.text for output in seed]) for seed in outputs]
        row = describe(members) | {"sources_cut": sum(output.was_cut for output in outputs[0])}
        difference = summarise(of_seeds, first) if first else None
        metrics["systems"][system] = row | {"scores": summarise(of_seeds), "difference": difference}
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
        outputs = [decode_all(run, examples, **options | setting) for run in runs.values()]
        of_seeds = [score([output.text for output in seed], examples, lead) for seed in outputs]
        rows[name] = setting | {"scores": summarise(of_seeds)}
    return rows


def tables(metrics: dict) -> str:
    """All tables as Markdown."""
    lead, systems = f"lead-{metrics['lead']}", metrics["systems"]
    scores = {name: row["scores"] for name, row in systems.items()}
    with_lead, with_reference = {lead: metrics["lead_row"]} | scores, {"reference": metrics["reference_row"]} | scores
    more = ROUGE | {"repetition3": "repeated 3-grams %", "novel2": "novel 2-grams %"}
    model_based = {name: name for name in metrics["more"]}
    sizes = {name: row | {"parameters": f"{systems[name]['parameters']:,}"} for name, row in scores.items()}
    parts = [
        table("Table 1: ROUGE", {lead: metrics["lead_row"]} | sizes, ROUGE | {"parameters": "parameters"}),
        table("Table 2: model-based scores", with_lead, model_based),
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
        table(first, gains, more | model_based),
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


def load_runs(paths: Sequence[Path], device: str) -> dict[str, Run]:
    """Runs on a device, by the names of their folders; ValueError: none, or two of the same name."""
    if not paths or len({path.name for path in paths}) < len(paths):
        raise ValueError("give at least one run folder, and no two of the same name: rename one")
    runs = {path.name: load_run(path) for path in paths}
    for run in runs.values():
        run.model.to(find_device(device))
    group(runs)  # refuses what it cannot tell apart before hours of decoding
    return runs


def run_options(options: Options, more: Mapping[str, Measure] | None = None) -> None:
    """Do what the command line asks for; `more` as in `evaluate`."""
    check_fields(options)
    outputs = [options.predictions / f"{path.name}.jsonl" for path in options.runs] if options.predictions else []
    check_outputs(options.json, options.csv, *outputs, inputs=[options.data])
    given = {name: getattr(options, name) for name in ("predictions", "ablation", "lead", "sentences", "batch_size")}
    given |= options.search()
    runs = load_runs(options.runs, options.device)
    config = next(iter(runs.values())).config
    data = options.data or config.data
    examples = for_task(in_sentences(load(data, options.split, options.limit)), config.task)
    metrics = {"data": data, "split": options.split} | evaluate(runs, examples, more=more, **given)
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        write_csv(options.csv, csv_rows(metrics))
    print(tables(metrics))
    for name, system in metrics["systems"].items():
        if system["sources_cut"]:
            print(f"{name}: {system['sources_cut']} documents were cut to --max-source tokens", file=sys.stderr)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    run_options(read_flags(Options, arguments, prog=f"python -m {__package__}.evaluate", description=__doc__))


if __name__ == "__main__":
    main()
