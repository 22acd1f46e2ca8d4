"""Decode with masked heads and score: Tables 1 and 3, the choice of heads, and the numbers behind Figures 2 to 10.

python -m head_masking.evaluate runs/hm-base --tagger runs/hm-tagger --heads 1:0-3 --oracle                # Table 1
python -m head_masking.evaluate runs/hm-base --tagger runs/hm-tagger --select --sweep --focus --json m.json
python -m head_masking.evaluate runs/hm-base --data toy:domain=nature --tagger runs/t100 runs/t1000 --heads 1:0-3
python -m head_masking.evaluate runs/b500 runs/b4000 --tagger runs/t500 runs/t4000 --heads 1:0-3           # Figure 5
python -m head_masking.evaluate --tagger runs/hm-tagger --data aclsum                          # the tagger by itself
"""

import argparse
import csv
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rouge_score.rouge_scorer import RougeScorer
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase, logging

from shared import rouge
from shared.data import Example, load, write_jsonl

from . import sweep as sweeps
from .focus import Reading, attention_focus, place_tags, stanza_tags
from .labels import Labels, Selector, kind_of, read_documents, tag, tagging_quality
from .masking import PAPER_DECODING, PAPER_HEADS, cross_attentions
from .oracle import METHODS
from .sweep import Decoder, Document, Scores, Setting, Sweep, read_heads, write_heads
from .train import TrainConfig, is_run, load_summarizer, load_tagger, read_config, write_json

METRICS = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # papers' ROUGE-L is that over sentences
SIGNIFICANT, BETTER, WORSE = 0.005, "*", "!"  # caption of Table 1; the second mark is ours
DECODING = PAPER_DECODING | {
    "toy": dict(num_beams=5, length_penalty=1.0, min_length=0, max_length=128, no_repeat_ngram_size=0)
}
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Summarizer(NamedTuple):
    """A trained summariser."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    max_source: int  # tokens
    trained_on: int | None  # documents; None = not known


# Reading runs


def read_summarizer(name: str, device: str = "cpu", precision: str = "float32") -> Summarizer:
    """A run of --task summarizer, a folder of transformers, or a name."""
    model, tokenizer = load_summarizer(name)
    positions = model.config.max_position_embeddings
    max_source = min(read_config(name).max_source, positions) if is_run(name) else positions
    model = model.to(device, PRECISIONS[precision])
    return Summarizer(Path(name).name, model, tokenizer, max_source, training_size(name))


def read_selector(run: str, device: str = "cpu", threshold: float | None = None) -> Selector:
    """A run of --task tagger, with its decision boundary or another."""
    tagger, tokenizer, searched = load_tagger(run)
    threshold, max_source = searched if threshold is None else threshold, read_config(run).max_source
    return Selector(Path(run).name, tagger.to(device), tokenizer, threshold, max_source, training_size(run))


def training_size(run: str) -> int | None:
    """On how many documents a run was trained, as its log says."""
    log = Path(run) / "log.jsonl"
    row = json.loads(log.read_text(encoding="utf-8").splitlines()[0]) if log.exists() else {}
    return row.get("examples")


# Scores


def split_sentences(text: str) -> list[str]:
    """Sentences of an output, for ROUGE-Lsum: cut after . ! or ? and a blank."""
    return re.split(r"(?<=[.!?])\s+", text.strip())


def score(texts: Sequence[str], examples: Sequence[Example]) -> Scores:
    """(n,) percentages of every text: F1 of METRICS, "rouge1_recall", and "salient_recall" where the truth is known."""
    sentences = [split_sentences(text) for text in texts]
    values = rouge.score(sentences, [example.references for example in examples])
    scorer = RougeScorer(["rouge1"], use_stemmer=True)
    found = {metric: values[metric] for metric in METRICS}
    pairs = list(zip(texts, examples, strict=True))
    recalls = [scorer.score_multi([" ".join(r) for r in e.references], text)["rouge1"].recall for text, e in pairs]
    found["rouge1_recall"] = 100 * np.array(recalls)
    if all(example.salient_tokens for example in examples):
        found["salient_recall"] = np.array([salient_recall(text, example) for text, example in pairs])
    return found


def salient_recall(text: str, example: Example) -> float:
    """Percentage of the salient source words, known from the corpus, that come out in the summary.

    Counted are the different ones that the reference has as they are; a reference has all of them.
    """
    marks = zip(example.document, example.salient_tokens, strict=True)
    salient = {word for sentence, row in marks for word, mark in zip(sentence.split(), row, strict=True) if mark}
    salient &= set(example.target.split())
    return 100 * len(salient & set(text.split())) / len(salient) if salient else 100.0


def summarise(values: np.ndarray) -> dict[str, float]:
    """Mean and 95 % bootstrap interval."""
    return dict(zip(("mean", "low", "high"), rouge.bootstrap_interval(values), strict=True))


def compare(scores: Scores, baseline: Scores | None) -> dict[str, dict]:
    """For every metric mean, interval, p of the approximate randomisation test against the baseline, and its mark."""
    rows = {}
    for metric, values in scores.items():
        p, mark = None, ""
        if baseline is not None:
            p = rouge.paired_test(values, baseline[metric])
            mark = "" if p >= SIGNIFICANT else BETTER if values.mean() > baseline[metric].mean() else WORSE
        rows[metric] = summarise(values) | {"p": p, "mark": mark}
    return rows


# Tables 1 and 3, Figure 5


def read_summaries(summarizer: Summarizer, summaries: Sequence[Sequence[int]]) -> list[str]:
    """Token ids -> texts."""
    texts = summarizer.tokenizer.batch_decode(summaries, skip_special_tokens=True)
    return [" ".join(text.split()) for text in texts]


def settings_of(summarizer: Summarizer, selectors: Sequence[Selector], heads: str, oracle: bool) -> dict[str, Setting]:
    """The rows of Table 1 (and 3): baseline, oracle masking if asked for, masking by each tagger."""
    settings = {summarizer.name: Setting("plain")}
    if oracle:
        settings[f"{summarizer.name}+oracle"] = Setting("oracle", heads)
    return settings | {f"{summarizer.name}+{s.name}": Setting(kind_of(s), heads) for s in selectors}


def decode_and_score(
    decoder: Decoder, summarizer: Summarizer, settings: Mapping[str, Setting], examples: Sequence[Example]
) -> tuple[dict[str, dict], dict[str, list[str]]]:
    """A row per setting, and its texts; the first setting is the baseline that p refers to."""
    rows, predictions, baseline = {}, {}, None
    for name, setting in tqdm(settings.items(), f"decoding, {summarizer.name}", unit="system", leave=False):
        started = time.perf_counter()
        predictions[name] = read_summaries(summarizer, decoder.decode(setting))
        rows[name] = {"summarizer": summarizer.name, "trained_on": summarizer.trained_on}
        rows[name] |= {"labels": setting.kind, "heads": setting.heads, "seconds": time.perf_counter() - started}
        scores = score(predictions[name], examples)
        rows[name]["scores"] = compare(scores, baseline)
        baseline = scores if baseline is None else baseline
    return rows, predictions


# The analysis set: Figures 2-4, 6-10 and the choice of heads


def make_sweep(
    summarizer: Summarizer,
    examples: Sequence[Example],
    documents: Sequence[Document],
    selectors: Sequence[Selector],
    flags: argparse.Namespace,
    generation: Mapping,
    path: Path,
) -> Sweep:
    """The sweep of a model over the analysis set; its digests tell apart whatever changes a result."""
    texts = [[example.id, example.source, example.references, example.salient_tokens] for example in examples]
    config = summarizer.model.generation_config.to_diff_dict()
    what = {"model": summarizer.name, "data": flags.data, "split": flags.analysis_split, "documents": len(documents)}
    what |= {"weights": sweeps.digest(summarizer.model), "generation": {**generation, "config": sweeps.digest(config)}}
    what |= {"texts": sweeps.digest(texts, [document.ids for document in documents])}
    labels = {"oracle": {"method": flags.labels.method, "min_run": flags.labels.min_run}}
    labels |= {kind_of(selector): {"threshold": selector.threshold} for selector in selectors}
    for kind, made_by in labels.items():
        made_by["digest"] = sweeps.digest([document.keep[kind] for document in documents])

    @cache
    def decoder() -> Decoder:  # not made where the file has all results
        return Decoder(summarizer.model, documents, flags.batch_size, **generation)

    def decode(setting: Setting) -> list[str]:
        return read_summaries(summarizer, decoder().decode(setting))

    return Sweep(path, decode, lambda texts: score(texts, examples), what, labels, progress=True)


def effect_rows(effects: Mapping[tuple[int, int], Scores]) -> list[dict]:
    """Figures 2 and 6: r_ora - r_uni of every head in ROUGE-1 F1, with its interval, and in ROUGE-1 recall."""
    rows = []
    for (layer, head), gain in effects.items():
        recall = float(gain["rouge1_recall"].mean())
        rows.append({"layer": layer, "head": head} | summarise(gain["rouge1"]) | {"rouge1_recall": recall})
    return rows


def synergy_rows(sweep: Sweep, effects: Mapping[tuple[int, int], Scores]) -> tuple[list[dict], list[dict]]:
    """Figures 3 and 7. Left: a row per layer and number of heads. Right: a row per layer, in ROUGE-1 recall.

    D10: an improvement is over uniform weights on the same heads, the effect of Section 4.1; "over_plain" is the other
    reading of "ROUGE-1 F1 improvement", over the model as it is.
    """
    [plain] = sweep.run([Setting("plain")])
    left, right = [], []
    for step in sweeps.synergy(sweep, effects):
        [oracle] = sweep.run([Setting("oracle", write_heads({step.layer: step.heads}))])
        row = {"layer": step.layer, "count": len(step.heads), "added": step.heads[-1], "added_effect": step.last_gain}
        over_plain = float((oracle["rouge1"] - plain["rouge1"]).mean())
        left.append(row | summarise(step.gain["rouge1"]) | {"over_plain": over_plain})
        if len(step.heads) == sum(layer == step.layer for layer, _ in effects):
            together, parts = step.gain["rouge1_recall"], sweeps.sum_of_parts(effects, step.layer)["rouge1_recall"]
            values = {"together": summarise(together), "parts": summarise(parts)}
            right.append({"layer": step.layer} | values | {"p": rouge.paired_test(together, parts)})
    return left, right


def focus_rows(
    summarizer: Summarizer, examples: Sequence[Example], read: tuple, tags: Sequence | None, batch_size: int, generation
) -> list[dict]:
    """Figures 4, 8, 9 and 10: a row per head.

    Args:
        read: documents and offsets, of `read_documents`.
        tags: of every document's words; None = unknown, and no CONTENT category.
    """
    documents, offsets = read
    summaries = Decoder(summarizer.model, documents, batch_size, **generation).decode(Setting("plain"))
    rows = zip(examples, documents, offsets, summaries, tags or [None] * len(examples), strict=True)
    readings = [Reading(e.source, d.ids, o, summary, e.target, t) for e, d, o, summary, t in rows]
    shares = attention_focus(summarizer.model, summarizer.tokenizer, readings)
    places = np.ndindex(next(iter(shares.values())).shape)
    return [{"layer": i + 1, "head": h} | {kind: float(each[i, h]) for kind, each in shares.items()} for i, h in places]


def analyse(summarizer: Summarizer, selectors: Sequence[Selector], flags: argparse.Namespace) -> dict:
    """All that the flags ask for on the analysis set."""
    examples = sample(load(flags.data, flags.analysis_split, flags.limit), flags.analysis)
    generation = {name: value for name, value in flags.generation.items() if name != "length_penalty"}
    generation["num_beams"] = 1  # Appendix A: in all analysis experiments
    selectors = selectors[:1] if flags.select else []
    tagged = [(selector, tag(selector, examples)) for selector in selectors]
    documents, offsets, _ = read_documents(summarizer.tokenizer, summarizer.max_source, examples, flags.labels, tagged)
    found: dict = {"documents": len(examples), "data": flags.data, "split": flags.analysis_split}
    if flags.select or flags.sweep:
        path = flags.sweep_file or Path(flags.folders[summarizer.name]) / "sweep.jsonl"
        sweep = make_sweep(summarizer, examples, documents, selectors, flags, generation, path)
        effects = sweeps.content_selection_effects(sweep, sweeps.all_heads(summarizer.model))
        found["effects"] = effect_rows(effects)
        if flags.sweep:
            found["synergy"], found["parts"] = synergy_rows(sweep, effects)
        if flags.select:
            found["selection"] = selection(sweep, effects, selectors[0], flags.group)
    if flags.focus:
        tags = find_tags(examples, flags.stanza)
        found["focus"] = focus_rows(summarizer, examples, (documents, offsets), tags, flags.batch_size, generation)
    return found


def selection(sweep: Sweep, effects: Mapping[tuple[int, int], Scores], selector: Selector, group: int) -> dict:
    """The greedy choice of heads, and the means of all that was tried; heads "" is the model as it is."""
    best, tried = sweeps.select_heads(sweep, effects, kind_of(selector), group)
    tried = [("", *sweep.run([Setting("plain")])), *tried]
    means = [{"heads": text} | {metric: float(scores[metric].mean()) for metric in METRICS} for text, scores in tried]
    return {"heads": write_heads(best), "tagger": selector.name, "tried": means}


def find_tags(examples: Sequence[Example], folder: str | None) -> list[list[tuple[int, int, str]]] | None:
    """Parts of speech from the corpus, else from Stanza if its folder is given; None = unknown."""
    if all(example.pos for example in examples):
        return [place_tags(example.source, sum(example.pos, [])) for example in examples]
    return None if folder is None else stanza_tags([example.source for example in examples], folder)


def sample(examples: Sequence[Example], count: int, seed: int = 0) -> list[Example]:
    """Section 4: `count` random examples, in their order; all if there are no more."""
    if len(examples) <= count:
        return list(examples)
    chosen = np.random.default_rng(seed).choice(len(examples), count, replace=False)
    return [examples[i] for i in sorted(chosen)]


# What is printed and written


def print_table(metrics: dict) -> None:
    """Table 1 (and 3): ROUGE with 95 % intervals and marks, by comparison with the summariser without masks."""
    systems = metrics["systems"]
    width = max(map(len, systems), default=0)
    columns = METRICS | {"salient_recall": "salient recall"}
    shown = [metric for metric in columns if all(metric in row["scores"] for row in systems.values())]
    if systems:
        print(f"{'system':{width}}  " + "".join(f"{columns[metric]:25}" for metric in shown) + "heads")
    for name, row in systems.items():
        cells = []
        for metric in shown:
            value = row["scores"][metric]
            cells.append(f"{value['mean']:6.2f}{value['mark']:1} [{value['low']:.2f}, {value['high']:.2f}]")
        print(f"{name:{width}}  " + "".join(f"{cell:25}" for cell in cells) + (row["heads"] or "-"))
    for name, tagger in metrics["taggers"].items():
        print(
            f"tagger {name}: token F1 {tagger['token_f1']:.2f} at threshold {tagger['threshold']:.2f} "
            f"(all tokens: {tagger['token_f1_of_all']:.2f}; {tagger['positive_share']:.1f} % of tokens are salient)"
        )
    for name, found in metrics["analysis"].items():
        if "selection" in found:
            print(f"{name}: heads {found['selection']['heads']} chosen with {found['selection']['tagger']}")
    if systems:
        cut = max(metrics["sources_cut"].values())
        print(f"{BETTER} better, {WORSE} worse than without masks, p < {SIGNIFICANT}")
        print(f"{metrics['examples']} examples, {cut} cut; {metrics['signature']}")


def write_csv(metrics: dict, path: Path) -> None:
    """One row per system or tagger, one column per number."""
    rows = []
    for name, row in metrics["systems"].items():
        flat = {key: value for key, value in row.items() if key != "scores"}
        for metric, values in row["scores"].items():
            flat |= {metric if key == "mean" else f"{metric} {key}": value for key, value in values.items()}
        rows.append({"system": name} | flat)
    rows += [{"system": name, "labels": "tagger"} | row for name, row in metrics["taggers"].items()]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


# Command line


def find_heads(text: str) -> str:
    """--heads as a Setting has it: LAYER:HEADS, or the name of a data set in Appendix B."""
    return write_heads(PAPER_HEADS[text] if text in PAPER_HEADS else read_heads(text))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The flags; raises ValueError for what does not go together."""
    parser = argparse.ArgumentParser("python -m head_masking.evaluate", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("runs", nargs="*", help="summarisers: run folders, folders of transformers, or names; none = taggers only")
    add(
        "--tagger", nargs="+", default=[], metavar="RUN", help="runs of taggers; with several summarisers, one for each"
    )
    add("--heads", default="", help=f"what to mask, e.g. 1:0-3,2:1,3, or one of {', '.join(PAPER_HEADS)} (Appendix B)")
    add("--select", action="store_true", help="choose the heads greedily on the analysis set with the first tagger")
    add("--group", type=int, default=4, help="heads that --select adds at a time (Section 5: 4)")
    add("--oracle", action="store_true", help="also mask by labels made from the reference")
    add("--sweep", action="store_true", help="effects of single heads and of heads together (Figures 2, 3, 6, 7)")
    add("--focus", action="store_true", help="what the heads attend to (Figures 4, 8-10)")
    add("--stanza", metavar="FOLDER", help="Stanza models, for --focus on text without tags; '' = its default folder")
    add("--analysis", type=int, default=1000, help="random validation examples for the above (Section 4: 1,000)")
    add("--analysis-split", default="validation")
    add("--sweep-file", type=Path, help="results of the sweep, to go on with; default: RUN/sweep.jsonl")
    add("--data", help="default: the first run's")
    add("--split", default="test")
    add("--limit", type=int, help="first N examples only, also of the analysis set")
    add("--method", choices=list(METHODS), help="how oracle labels are made; default: as for the first tagger, or runs")
    add("--min-run", type=int, help="words of a labelled run, at least; default: as for the first tagger, or 1")
    add("--min-keep", type=int, default=5, help="tokens that a masked head sees, at least (released code: 5)")
    add("--threshold", type=float, help="default: each tagger's own")
    add("--decoding", default="toy", choices=list(DECODING), help="generation flags, of Appendix A or for toy")
    of_preset = "default: that of --decoding"
    add("--beam", dest="num_beams", type=int, help=of_preset)
    add("--length-penalty", type=float, help=of_preset)
    for name in ("min_length", "max_length", "no_repeat_ngram_size"):
        add("--" + name.replace("_", "-"), type=int, help=of_preset)
    add("--batch-size", type=int, default=32)
    add("--precision", default="float32", choices=list(PRECISIONS), help="of the summariser")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--json", type=Path, help="write every number here; head_masking.figures reads it")
    add("--csv", type=Path, help="write the table here")
    add("--predictions", type=Path, help="folder for a JSONL of each system")
    flags = parser.parse_args(arguments)
    given = {name: getattr(flags, name) for name in DECODING["toy"] if getattr(flags, name, None) is not None}
    flags.generation = DECODING[flags.decoding] | given
    flags.folders = {Path(run).name: run for run in flags.runs}
    flags.data = flags.data or default_data([*flags.runs, *flags.tagger])
    check(flags)
    trained = read_config(flags.tagger[0], "tagger") if flags.tagger else TrainConfig()
    min_run = trained.min_run if flags.min_run is None else flags.min_run
    flags.labels = Labels(flags.method or trained.oracle, min_run, flags.min_keep)
    return flags


def default_data(runs: Sequence[str]) -> str:
    """The data that the first run was trained on."""
    if not runs:
        raise ValueError("give the run of a summariser, or --tagger RUN")
    if not is_run(runs[0]):
        raise ValueError(f"{runs[0]} is not a run of head_masking.train that knows its data: give --data")
    return read_config(runs[0]).data


def check(flags: argparse.Namespace) -> None:
    """Raise ValueError for flags that do not go together."""
    for what, names in (("runs", flags.runs), ("taggers", flags.tagger)):
        if len({Path(name).name for name in names}) < len(names):
            raise ValueError(f"two {what} have folders of the same name; rename one")
    if len(flags.runs) > 1 and len(flags.tagger) not in (0, len(flags.runs)):
        raise ValueError(f"{len(flags.runs)} summarisers and {len(flags.tagger)} taggers: give one tagger for each")
    if flags.select and flags.heads:
        raise ValueError("--heads says what to mask and --select searches it: give one of the two")
    if flags.select and not flags.tagger:
        raise ValueError("--select masks by the labels of a tagger: give --tagger RUN")
    if flags.runs and (flags.tagger or flags.oracle) and not (flags.heads or flags.select):
        raise ValueError("which heads are to be masked? give --heads LAYER:HEADS, e.g. 1:0-3, or --select")
    for path in filter(None, (flags.json, flags.csv, flags.sweep_file)):
        if path.is_dir():
            raise ValueError(f"{path} is a folder; name a file")
    if flags.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda, but torch finds no GPU here: leave the flag out")
    if flags.generation["num_beams"] < 1:
        raise ValueError("--beam must be at least 1")
    unknown = [run for run in flags.runs if not Path(run).is_dir()]
    if (flags.sweep or flags.select) and unknown and not flags.sweep_file:
        raise ValueError(f"{unknown[0]} is no folder to keep the sweep in: give --sweep-file FILE")
    if min(flags.analysis, flags.group, flags.batch_size) < 1:
        raise ValueError("--analysis, --group and --batch-size must be at least 1")
    flags.heads = find_heads(flags.heads) if flags.heads else ""


def evaluate(flags: argparse.Namespace, examples: Sequence[Example]) -> tuple[dict, dict[str, list[str]]]:
    """Every number in one JSON object, and the predictions of every system."""
    selectors = [read_selector(run, flags.device, flags.threshold) for run in flags.tagger]
    tagged = [(selector, tag(selector, examples)) for selector in selectors]
    metrics = {"data": flags.data, "split": flags.split, "examples": len(examples), "generation": flags.generation}
    metrics |= {"labels": flags.labels._asdict(), "signature": rouge.signature(len(examples))}
    metrics |= {"systems": {}, "analysis": {}, "sources_cut": {}}
    metrics["taggers"] = {s.name: tagging_quality(s, examples, found, flags.labels) for s, found in tagged}
    predictions = {}
    for number, run in enumerate(flags.runs):
        summarizer = read_summarizer(run, flags.device, flags.precision)
        used = tagged[number : number + 1] if len(flags.runs) > 1 else tagged
        mine, heads = [selector for selector, _ in used], flags.heads
        cross_attentions(summarizer.model, read_heads(heads) if heads else {})  # refuses heads that it does not have
        if flags.select or flags.sweep or flags.focus:
            metrics["analysis"][summarizer.name] = found = analyse(summarizer, mine, flags)
            heads = found["selection"]["heads"] if flags.select else heads
        documents, _, metrics["sources_cut"][summarizer.name] = read_documents(
            summarizer.tokenizer, summarizer.max_source, examples, flags.labels, used
        )
        decoder = Decoder(summarizer.model, documents, flags.batch_size, **flags.generation)
        settings = settings_of(summarizer, mine, heads, flags.oracle)
        rows, texts = decode_and_score(decoder, summarizer, settings, examples)
        metrics["systems"] |= rows
        predictions |= texts
    return metrics, predictions


def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluate; bad input ends the program with one line that says what is wrong."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        flags = parse(arguments)
        examples = load(flags.data, flags.split, flags.limit)
        metrics, predictions = evaluate(flags, examples)
    except (ValueError, ImportError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command takes up a sweep where it was")
    print_table(metrics)
    for path in filter(None, (flags.json, flags.csv)):
        path.parent.mkdir(parents=True, exist_ok=True)
    if flags.json:
        write_json(flags.json, metrics)
    if flags.csv:
        write_csv(metrics, flags.csv)
    for name, texts in predictions.items() if flags.predictions else ():
        flags.predictions.mkdir(parents=True, exist_ok=True)
        rows = zip(examples, texts, strict=True)
        output = ({"id": e.id, "prediction": text, "reference": e.target} for e, text in rows)
        write_jsonl(flags.predictions / f"{name}.jsonl", output)


if __name__ == "__main__":
    main()
