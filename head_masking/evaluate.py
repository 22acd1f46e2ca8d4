"""Decode with masked heads and score: Tables 1 and 3, the choice of heads, and the numbers behind Figures 2 to 10.

python -m head_masking.evaluate runs/hm-base --tagger runs/hm-tagger --heads 1:0-3 --oracle                # Table 1
python -m head_masking.evaluate runs/hm-base --tagger runs/hm-tagger --select --sweep --focus --json m.json
python -m head_masking.evaluate runs/hm-base --data toy:domain=nature --tagger runs/t100 runs/t1000 --heads 1:0-3
python -m head_masking.evaluate runs/b500 --tagger runs/t500 --heads 1:0-3 --json 500.json           # of Figure 5
python -m head_masking.evaluate --tagger runs/hm-tagger --data aclsum                          # the tagger by itself
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import transformers
import tyro
from rouge_score.rouge_scorer import RougeScorer
from tqdm import tqdm

from shared import rouge
from shared.data import Example, check_outputs, load, split_sentences, write_csv, write_json
from shared.timing import find_device

from . import sweep as sweeps
from .focus import focus_rows
from .labels import Labels, Tagged, read_documents, selected_words, tag, tagging_quality
from .loading import Run, is_run
from .masking import PAPER_DECODING
from .oracle import METHODS
from .run import check_fields, one_line_errors
from .sweep import Effects, Scores, Setting, Sweep, all_heads, collect, decode, encode, find_heads, settings_of
from .train import load_run, load_summarizer

METRICS = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # papers' ROUGE-L is that over sentences
TAGGER = {"rouge1": "R-1 of its words", "token_f1": "token F1", "precision": "precision", "recall": "recall",
          "predicted_share": "% selected", "token_f1_of_all": "F1 of all", "threshold": "threshold"}  # fmt: skip
SIGNIFICANT, BETTER, WORSE = 0.005, "*", "!"  # caption of Table 1; the second mark is ours


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[str, ...]] = ()  # summarisers: runs, folders or names of transformers' models
    tagger: tuple[Path, ...] = ()  # runs of taggers; each masks each summariser
    heads: str = ""  # 1:0-3,2:1,3, "top" (layer, all heads) or data of Appendix B; default: the model's, or top (D14)
    select: bool = False  # choose the heads greedily on the analysis set with the first tagger (Section 5)
    group: int = 4  # heads that --select adds at a time (Section 5: 4)
    oracle: bool = False  # also mask by labels made from the reference
    flip: tuple[float, ...] = ()  # with --oracle: also by labels of which these shares of the words are flipped
    sweep: bool = False  # effects of single heads and of heads together (Figures 2, 3, 6, 7)
    focus: bool = False  # what the heads attend to (Figures 4, 8-10); CONTENT needs data with a field `pos`
    analysis: int = 1000  # random examples for --select, --sweep and --focus (Section 4: 1,000)
    analysis_split: str = "validation"  # where they come from
    sweep_file: Path | None = None  # results of the sweep, to go on with; default: RUN/sweep.jsonl
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "test"
    limit: int | None = None  # first N examples only, also of the analysis set
    method: Literal[("as-trained", *METHODS)] = "as-trained"  # of oracle labels; default: the first tagger's, or runs
    min_run: int | None = None  # words of a labelled run, at least; default: as the first tagger's, or 1
    min_keep: int = 5  # tokens that a masked head sees, at least (released code: 5)
    threshold: float | None = None  # decision boundary in [0, 1); default: each tagger's own
    decoding: Literal["own", "cnn_dailymail", "nyt", "xsum"] = "own"  # the model's own settings, or Appendix A's
    beam: int | None = None  # default: that of --decoding
    max_length: int | None = None  # tokens; default: that of --decoding
    no_repeat_ngram_size: int | None = None  # so many words never twice in this order; default: that of --decoding
    batch_size: int = 32  # documents per batch
    device: str = "cpu"
    json: Path | None = None  # write every number here; figures.py reads it
    csv: Path | None = None  # write a row per system and tagger here
    predictions: Path | None = None  # folder for the summaries, a .jsonl per system

    def check(self) -> None:
        """ValueError for flags that do not go together."""
        if not self.runs and not self.tagger:
            raise ValueError("give the run of a summariser, or --tagger RUN")
        if any(len({Path(name).name for name in names}) < len(names) for names in (self.runs, self.tagger)):
            raise ValueError("two runs have folders of the same name; rename one")
        if self.flip and not (self.oracle and all(0 < share < 1 for share in self.flip)):
            raise ValueError("--flip takes shares between 0 and 1, and --oracle beside it")
        if self.select and (self.heads or not self.tagger):
            raise ValueError("--select searches heads by the labels of a tagger: give --tagger RUN and no --heads")
        if not self.data and not is_run(first := [*self.runs, *self.tagger][0]):
            raise ValueError(f"{first} is not a run of {__package__}.train that knows its data: give --data")
        if (self.sweep or self.select) and not self.sweep_file and (len(self.runs) != 1 or not is_run(self.runs[0])):
            raise ValueError("there is no one run to keep the sweep in: give one run, or --sweep-file FILE")
        least = dict.fromkeys("limit analysis group min_run beam max_length batch_size".split(), 1)
        check_fields(self, least, {"threshold": 0.999})

    def generation(self) -> dict[str, float]:
        """Arguments of `generate`."""
        given = dict(num_beams=self.beam, max_length=self.max_length, no_repeat_ngram_size=self.no_repeat_ngram_size)
        return PAPER_DECODING.get(self.decoding, {}) | {k: v for k, v in given.items() if v is not None}

    def labels(self, taggers: Mapping[str, Run]) -> Labels:
        """How labels are made: as the flags say, else as the first tagger learned them."""
        method, min_run = [*((run.config.oracle, run.config.min_run) for run in taggers.values()), ("runs", 1)][0]
        method = method if self.method == "as-trained" else self.method
        return Labels(method, self.min_run or min_run, self.min_keep, self.flip)


def score(texts: Sequence[str], examples: Sequence[Example]) -> Scores:
    """(n,) percentages of every text: F1 of METRICS, and "rouge1_recall"; a reference of one string is split."""
    references = [[split_sentences(r[0]) if len(r) == 1 else r for r in e.references] for e in examples]
    values, scorer = rouge.score([split_sentences(text) for text in texts], references), RougeScorer(["rouge1"], True)
    pairs = zip(texts, references, strict=True)
    recalls = [scorer.score_multi([" ".join(r) for r in of_text], text)["rouge1"].recall for text, of_text in pairs]
    return {metric: values[metric] for metric in METRICS} | {"rouge1_recall": 100 * np.array(recalls)}


def compare(scores: Scores, baseline: Scores | None) -> dict:
    """Mean and interval of every metric; over the baseline the differences, and the marks of the significant ones."""
    row: dict = {metric: rouge.interval(values) for metric, values in scores.items()}
    if baseline is None:
        return row | {"difference": None, "marks": ""}
    row["difference"] = {metric: rouge.difference(values, baseline[metric]) for metric, values in scores.items()}
    significant = {metric: d["difference"] for metric, d in row["difference"].items() if d["p"] < SIGNIFICANT}
    marks = [METRICS[m] + (BETTER if d > 0 else WORSE) for m, d in significant.items() if m in METRICS]
    return row | {"marks": " ".join(marks)}


# Tables 1 and 3, Figure 5


def evaluate(
    summarizers: Mapping[str, Run],
    examples: Sequence[Example],
    taggers: Mapping[str, Run] = {},
    heads: Mapping[str, str] = {},
    oracle: bool = False,
    labels: Labels | None = None,
    batch_size: int = 32,
    predictions: Path | None = None,
    **generation,
) -> dict:
    """Decode without masks, with oracle masks and with those of taggers, and score.

    Args:
        heads: name of a summariser -> the heads to mask, as `write_heads` writes them.
        oracle: mask by labels from the reference, too.
        predictions: folder for SYSTEM.jsonl.
        generation: arguments of `generate`; what is not given is the model's own.
    Returns:
        every number in one JSON object; differences are over the same summariser without masks.
    """
    rouge.check_references(examples)
    labels = labels or Labels()
    tagged = {name: tag(run, [example.source for example in examples]) for name, run in taggers.items()}
    rows = {name: tagger_row(taggers[name], of_all, examples, labels) for name, of_all in tagged.items()}
    metrics = {"examples": len(examples), "generation": generation, "labels": labels._asdict(), "taggers": rows}
    metrics |= {"signature": rouge.signature(len(examples)), "sources_cut": {}, "systems": {}}
    for name, run in summarizers.items():
        documents = read_documents(run, examples, labels, tagged, oracle)
        metrics["sources_cut"][name] = sum(document.was_cut for document in documents)
        settings = settings_of(name, tagged, heads.get(name, ""), labels.oracles() if oracle else ())
        batches = tqdm(encode(run.model, documents, batch_size), "decoding", unit="batch", leave=False)
        texts = collect(decode(run, documents, settings, batches, **generation), settings, examples, predictions)
        scores = {system: score(texts[system], examples) for system in settings}
        for system, (kind, masked) in settings.items():
            row = {"summarizer": name, "seed": run.config.seed, "trained_on": run.trained_on, "labels": kind}
            row |= {"heads": masked, "flipped": labels.oracles().get(kind)}
            row |= compare(scores[system], None if system == name else scores[name])
            metrics["systems"][system] = row
    return metrics


def tagger_row(run: Run, tagged: Sequence[Tagged], examples: Sequence[Example], labels: Labels) -> dict:
    """The quality of a tagger, in tokens and, "rouge1", as a summary: the words that it selects (Section 5)."""
    words = [selected_words(example.source, of_one) for example, of_one in zip(examples, tagged, strict=True)]
    row = tagging_quality(tagged, examples, labels) | {"rouge1": rouge.interval(score(words, examples)["rouge1"])}
    return row | {"trained_on": run.trained_on, "seed": run.config.seed}


# The analysis set: Figures 2-4, 6-10 and the choice of heads


def analyse(run: Run, examples: Sequence[Example], taggers: Mapping[str, Run], options: Options) -> dict:
    """All that the flags ask for on the analysis set; `options` has paths and flags alone."""
    generation = {key: value for key, value in options.generation().items() if key != "length_penalty"}
    generation["num_beams"] = 1  # Appendix A: in all analysis experiments
    first = dict(list(taggers.items())[:1]) if options.select else {}
    tagged = {name: tag(of_tagger, [example.source for example in examples]) for name, of_tagger in first.items()}
    documents = read_documents(run, examples, options.labels(taggers), tagged)
    analysis: dict = {"documents": len(examples), "split": options.analysis_split, "seed": run.config.seed}
    if options.select or options.sweep:
        encoded = cache(lambda: list(encode(run.model, documents, options.batch_size)))  # not made if all is known

        def measure(setting: Setting) -> Scores:
            decoded = decode(run, documents, {"": setting}, encoded(), **generation)
            return score(collect(decoded, [""], examples)[""], examples)

        path = options.sweep_file or Path(options.runs[0]) / "sweep.jsonl"
        sweep = Sweep(path, measure, sweeps.checksums(run, examples, documents, generation))
        effects = sweeps.content_selection_effects(sweep, all_heads(run.model))
        analysis["effects"] = [
            {"layer": layer, "head": head, "rouge1_recall": gain["rouge1_recall"].mean()} | improvement(gain)
            for (layer, head), gain in effects.items()
        ]
        if options.sweep:
            analysis["synergy"], analysis["parts"] = synergy_rows(sweep, effects)
        for tagger in first:
            best, tried = sweeps.select_heads(sweep, effects, f"system:{tagger}", options.group)
            tried = {"": sweep.run([Setting("plain")])[0]} | tried  # "": the model as it is
            means = [{"heads": t} | {m: scores[m].mean() for m in METRICS} for t, scores in tried.items()]
            analysis["selection"] = {"heads": best, "tagger": tagger, "tried": means}
    if options.focus:
        analysis["focus"] = focus_rows(run, examples, documents, options.batch_size, **generation)
    return analysis


def improvement(gain: Scores) -> dict:
    """D10: in ROUGE-1 F1 over uniform weights on the same heads, and over the plain model."""
    return {"over_uniform": rouge.interval(gain["rouge1"]), "over_plain": rouge.interval(gain["over_plain"])}


def synergy_rows(sweep: Sweep, effects: Effects) -> tuple[list[dict], list[dict]]:
    """Figures 3 and 7: a row per layer and number of heads; a row per layer and baseline (D10), in ROUGE-1 recall."""
    steps, totals = [], []
    for (layer, heads), gain in sweeps.synergy(sweep, effects).items():
        row = {"layer": layer, "count": len(heads), "added": heads[-1]}
        row |= {"added_effect": effects[layer, heads[-1]]["rouge1"].mean()}
        steps.append(row | improvement(gain))
        if len(heads) == sum(of_layer == layer for of_layer, _ in effects):
            parts = sweeps.sum_of_parts(effects, layer)
            for over, metric in (("over_uniform", "rouge1_recall"), ("over_plain", "recall_over_plain")):
                row = {"layer": layer, "over": over, "together": rouge.interval(gain[metric])}
                row |= {"parts": rouge.interval(parts[metric]), "p": rouge.paired_test(gain[metric], parts[metric])}
                totals.append(row)
    return steps, totals


def tables(metrics: dict) -> str:
    """Table 1 (and 3) by comparison with the summariser without masks; then the taggers."""
    rows = []
    for name, row in metrics["systems"].items():
        scores = {title: row[metric] for metric, title in METRICS.items()}
        scores |= {"R-1, difference": row["difference"] and row["difference"]["rouge1"]}
        marks = {f"p < {SIGNIFICANT}": row["marks"] or None}
        rows.append({"system": name, "heads": row["heads"] or None} | scores | marks)
    taggers = [{"tagger": n} | {t: row[k] for k, t in TAGGER.items()} for n, row in metrics["taggers"].items()]
    notes = []
    for name, chosen in ((n, a["selection"]) for n, a in metrics["analysis"].items() if "selection" in a):
        value = {row["heads"]: row["rouge1"] + row["rouge2"] for row in chosen["tried"]}
        worse = "; without masks it did better (D11)" if value[""] >= value[chosen["heads"]] else ""
        notes.append(f"{name}: heads {chosen['heads']} chosen with {chosen['tagger']}{worse}")
    cut = f"{metrics['examples']} examples, {max(metrics['sources_cut'].values(), default=0)} cut"
    notes += [f"{BETTER} better, {WORSE} worse than without masks\n{cut}; {metrics['signature']}"]
    return "\n\n".join([*(rouge.table(table) for table in (rows, taggers) if table), *notes])


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.evaluate", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    options.check()
    device, longest = find_device(options.device), options.generation().get("max_length", 0)
    summarizers = {Path(name).name: load_summarizer(name) for name in options.runs}
    taggers = {path.name: load_run(path, "tagger") for path in options.tagger}
    for run in (*summarizers.values(), *taggers.values()):
        run.model.to(device)
    if places := [p for run in summarizers.values() if (p := run.model.config.max_position_embeddings) < longest]:
        raise ValueError(f"--max-length is {longest}, the model has {places[0]} positions: lower it")
    for run in taggers.values() if options.threshold is not None else ():
        run.model.threshold.fill_(options.threshold)
    masked = summarizers if options.heads or options.tagger or options.oracle else {}
    heads = {name: find_heads(options.heads or sweeps.default_heads(run), run.model) for name, run in masked.items()}
    data = options.data or next(iter([*summarizers.values(), *taggers.values()])).config.data
    examples = load(data, options.split, options.limit)
    kinds = options.labels(taggers).oracles() if options.oracle else ()
    systems = [system for name in summarizers for system in settings_of(name, taggers, "", kinds)]
    outputs = [options.predictions / f"{system}.jsonl" for system in systems] if options.predictions else []
    check_outputs(options.json, options.csv, options.sweep_file, *outputs)
    rouge.check_references(examples)
    analysis = {}
    if options.select or options.sweep or options.focus:
        analysed = sweeps.sample(load(data, options.analysis_split, options.limit), options.analysis)
        rouge.check_references(analysed)
        if options.select:
            sweeps.refuse_overlap(analysed, examples)
        for name, run in summarizers.items():
            analysis[name] = analyse(run, analysed, taggers, options) | {"data": data}
            if options.select:
                heads[name] = analysis[name]["selection"]["heads"]
    metrics = evaluate(
        summarizers, examples, taggers, heads, options.oracle, options.labels(taggers), options.batch_size,
        options.predictions, **options.generation(),
    )  # fmt: skip
    metrics |= {"data": data, "split": options.split, "analysis": analysis}
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        rows = [{"system": name} | row for name, row in metrics["systems"].items()]
        rows += [{"system": name, "labels": "tagger"} | row for name, row in metrics["taggers"].items()]
        write_csv(options.csv, rows)
    print(tables(metrics))


if __name__ == "__main__":
    main()
