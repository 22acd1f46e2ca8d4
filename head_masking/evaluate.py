"""Decode with masked heads and score: Tables 1 and 3, the choice of heads, and the numbers behind Figures 2 to 10.

python -m head_masking.evaluate runs/hm-base --tagger runs/hm-tagger --heads 1:0-3 --oracle                # Table 1
python -m head_masking.evaluate runs/hm-base --tagger runs/hm-tagger --select --sweep --focus --json m.json
python -m head_masking.evaluate runs/hm-base --data toy:domain=nature --tagger runs/t100 runs/t1000 --heads 1:0-3
python -m head_masking.evaluate runs/b500 runs/b4000 --tagger runs/t500 runs/t4000 --heads 1:0-3           # Figure 5
python -m head_masking.evaluate --tagger runs/hm-tagger --data aclsum                          # the tagger by itself
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal
from zlib import crc32

import numpy as np
import transformers
import tyro
from rouge_score.rouge_scorer import RougeScorer
from tqdm import tqdm

from shared import rouge
from shared.data import Example, check_outputs, load, split_sentences, write_csv, write_json
from shared.timing import find_device

from . import sweep as sweeps
from .focus import Reading, attention_focus, place_tags, stanza_tags
from .labels import Labels, Tagged, kind_of, read_documents, selected_words, tag, tagging_quality
from .masking import PAPER_DECODING
from .oracle import METHODS, Span
from .run import check_fields, one_line_errors
from .sweep import Document, Effects, Scores, Setting, Sweep, all_heads, encode, find_heads, write_heads
from .train import Run, is_run, load_run, load_summarizer

METRICS = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # papers' ROUGE-L is that over sentences
SIGNIFICANT, BETTER, WORSE = 0.005, "*", "!"  # caption of Table 1; the second mark is ours
DEFAULT_LABELS = Labels()


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[str, ...]] = ()  # summarisers: runs, folders or names of transformers' models
    tagger: tuple[Path, ...] = ()  # runs of taggers; with several summarisers, one for each
    heads: str = ""  # what to mask: 1:0-3,2:1,3, "top" (layer, all heads), or a data set of Appendix B, such as xsum
    select: bool = False  # choose the heads greedily on the analysis set with the first tagger (Section 5)
    group: int = 4  # heads that --select adds at a time (Section 5: 4)
    oracle: bool = False  # also mask by labels made from the reference
    sweep: bool = False  # effects of single heads and of heads together (Figures 2, 3, 6, 7)
    focus: bool = False  # what the heads attend to (Figures 4, 8-10)
    stanza: Path | None = None  # folder of Stanza models, for --focus on text without tags
    analysis: int = 1000  # random examples for the above four (Section 4: 1,000)
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
    length_penalty: float | None = None  # default: that of --decoding
    min_length: int | None = None  # tokens; default: that of --decoding
    max_length: int | None = None  # tokens; default: that of --decoding
    batch_size: int = 32  # documents per batch
    device: str = "cpu"
    json: Path | None = None  # write every number here; figures.py reads it
    csv: Path | None = None  # write a row per system and tagger here
    predictions: Path | None = None  # folder for the summaries, a .jsonl per system

    def check(self) -> None:
        """ValueError for flags that do not go together."""
        for kind, names in (("runs", self.runs), ("taggers", self.tagger)):
            if len({Path(name).name for name in names}) < len(names):
                raise ValueError(f"two {kind} have folders of the same name; rename one")
        if not self.runs and not self.tagger:
            raise ValueError("give the run of a summariser, or --tagger RUN")
        if len(self.runs) > 1 and len(self.tagger) not in (0, len(self.runs)):
            raise ValueError(f"{len(self.runs)} summarisers and {len(self.tagger)} taggers: give one tagger for each")
        if self.select and self.heads:
            raise ValueError("--heads says what to mask and --select searches it: give one of the two")
        if self.select and not self.tagger:
            raise ValueError("--select masks by the labels of a tagger: give --tagger RUN")
        if self.runs and (self.tagger or self.oracle) and not (self.heads or self.select):
            raise ValueError("which heads are to be masked? give --heads LAYER:HEADS, e.g. 1:0-3, or --select")
        if not self.data and not is_run([*self.runs, *self.tagger][0]):
            raise ValueError(f"{self.runs[0]} is not a run of {__package__}.train that knows its data: give --data")
        if (self.sweep or self.select) and not self.sweep_file and (len(self.runs) != 1 or not is_run(self.runs[0])):
            raise ValueError("there is no one run to keep the sweep in: give one run, or --sweep-file FILE")
        least = dict.fromkeys(("limit", "analysis", "group", "min_run", "beam", "max_length", "batch_size"), 1)
        check_fields(self, least | {"length_penalty": -100}, {"threshold": 0.999})

    def generation(self) -> dict[str, float]:
        """Arguments of `generate`."""
        given = {"num_beams": self.beam, "length_penalty": self.length_penalty}
        given |= {"min_length": self.min_length, "max_length": self.max_length}
        return PAPER_DECODING.get(self.decoding, {}) | {k: v for k, v in given.items() if v is not None}


# Scores


def references_of(examples: Sequence[Example]) -> list[list[list[str]]]:
    """The references in sentences, for ROUGE-Lsum; one that came as a single string is split."""
    return [[split_sentences(text[0]) if len(text) == 1 else text for text in e.references] for e in examples]


def score(texts: Sequence[str], examples: Sequence[Example]) -> Scores:
    """(n,) percentages of every text: F1 of METRICS, "rouge1_recall", and "salient_recall" where the truth is known."""
    values = rouge.score([split_sentences(text) for text in texts], references_of(examples))
    scorer = RougeScorer(["rouge1"], use_stemmer=True)
    scores = {metric: values[metric] for metric in METRICS}
    pairs = list(zip(texts, examples, strict=True))
    recalls = [scorer.score_multi([" ".join(r) for r in e.references], text)["rouge1"].recall for text, e in pairs]
    scores["rouge1_recall"] = 100 * np.array(recalls)
    if all(example.salient_tokens for example in examples):
        scores["salient_recall"] = np.array([salient_recall(text, example) for text, example in pairs])
    return scores


def salient_recall(text: str, example: Example) -> float:
    """Percentage of the salient source words, known from the corpus, that come out in the summary.

    Counted are the different ones that the reference has as they are; a reference has all of them.
    """
    marks = zip(example.document, example.salient_tokens, strict=True)
    salient = {word for sentence, row in marks for word, mark in zip(sentence.split(), row, strict=True) if mark}
    salient &= set(example.target.split())
    return 100 * len(salient & set(text.split())) / len(salient) if salient else 100.0


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
    labels: Labels = DEFAULT_LABELS,
    batch_size: int = 32,
    predictions: Path | None = None,
    **generation,
) -> dict:
    """Decode without masks, with oracle masks and with those of taggers, and score.

    Args:
        summarizers: of several, each has the tagger in its place.
        heads: name of a summariser -> the heads to mask, as `write_heads` writes them.
        oracle: mask by labels from the reference, too.
        predictions: folder for SYSTEM.jsonl, written as the summaries come.
        generation: arguments of `generate`; what is not given is the model's own.
    Returns:
        every number in one JSON object; differences are over the same summariser without masks.
    """
    rouge.check_references(examples)
    tagged = {name: tag_all(run, examples) for name, run in taggers.items()}
    metrics = {"examples": len(examples), "generation": generation, "labels": labels._asdict(), "systems": {}}
    metrics |= {"signature": rouge.signature(len(examples)), "sources_cut": {}, "taggers": {}}
    for name, (threshold, of_all) in tagged.items():
        words = [selected_words(e.source, t, threshold) for e, t in zip(examples, of_all, strict=True)]
        metrics["taggers"][name] = tagging_quality(of_all, threshold, examples, labels)
        metrics["taggers"][name]["rouge1"] = rouge.interval(rouge.score(words, references_of(examples))["rouge1"])
        metrics["taggers"][name] |= {"trained_on": taggers[name].trained_on, "seed": taggers[name].config.seed}
    for number, (name, run) in enumerate(summarizers.items()):
        used = taggers_of(number, len(summarizers), tagged)
        documents, _, cut = read_documents(run.tokenizer, run.config.max_source, examples, labels, used, oracle)
        settings = settings_of(name, used, heads.get(name, ""), oracle)
        texts = decode_all(run, documents, settings, examples, batch_size, predictions, **generation)
        metrics["sources_cut"][name], baseline = cut, None
        for system, setting in settings.items():
            scores = score(texts[system], examples)
            row = {"summarizer": name, "seed": run.config.seed, "trained_on": run.trained_on}
            row |= {"labels": setting.kind, "heads": setting.heads}
            metrics["systems"][system] = row | compare(scores, baseline)
            baseline = scores if baseline is None else baseline
    return metrics


def taggers_of(number: int, summarizers: int, taggers: Mapping) -> Mapping:
    """The taggers of a summariser: all of them, or of several summarisers the one in its place."""
    return dict(list(taggers.items())[number : number + 1]) if summarizers > 1 else taggers


def tag_all(run: Run, examples: Sequence[Example]) -> tuple[float, list[Tagged]]:
    """A tagger's decision boundary, and what it says of each document."""
    threshold = round(run.model.threshold.item(), 4)
    return threshold, tag(run.model, run.tokenizer, run.config.max_source, [example.source for example in examples])


def settings_of(name: str, taggers: Sequence[str], heads: str, oracle: bool) -> dict[str, Setting]:
    """The rows of Table 1 (and 3): baseline, oracle masking if asked for, masking by each tagger."""
    settings = {name: Setting("plain")}
    if oracle:
        settings[f"{name}+oracle"] = Setting("oracle", heads)
    return settings | {f"{name}+{tagger}": Setting(kind_of(tagger), heads) for tagger in taggers}


def decode_all(
    run: Run,
    documents: Sequence[Document],
    settings: Mapping[str, Setting],
    examples: Sequence[Example],
    batch_size: int = 32,
    predictions: Path | None = None,
    **generation,
) -> dict[str, list[str]]:
    """A summary per document and setting; each batch is encoded once, and forgotten after its last setting."""
    texts = {system: [""] * len(documents) for system in settings}
    with ExitStack() as stack:
        files = {s: stack.enter_context(open(predictions / f"{s}.jsonl", "w", encoding="utf-8")) for s in settings
                 if predictions}  # fmt: skip
        total = -(-len(documents) // batch_size)
        for batch in tqdm(encode(run.model, documents, batch_size), "decoding", total, unit="batch", leave=False):
            for system, setting in settings.items():
                rows = sweeps.decode(run.model, documents, batch, setting, **generation)
                for i, text in zip(batch.numbers, read_summaries(run, rows), strict=True):
                    texts[system][i] = text
                    if files:
                        row = {"id": examples[i].id, "prediction": text, "reference": examples[i].target}
                        print(json.dumps(row, ensure_ascii=False), file=files[system], flush=True)
    return texts


def read_summaries(run: Run, summaries: Sequence[Sequence[int]]) -> list[str]:
    """Token ids -> texts."""
    return [" ".join(text.split()) for text in run.tokenizer.batch_decode(summaries, skip_special_tokens=True)]


# The analysis set: Figures 2-4, 6-10 and the choice of heads


def analyse(run: Run, examples: Sequence[Example], taggers: Mapping[str, Run], options: Options) -> dict:
    """All that the flags ask for on the analysis set; `options` has paths and flags alone."""
    generation = {key: value for key, value in options.generation().items() if key != "length_penalty"}
    generation["num_beams"] = 1  # Appendix A: in all analysis experiments
    first = dict(list(taggers.items())[:1]) if options.select else {}
    tagged = {tagger: tag_all(tagger_run, examples) for tagger, tagger_run in first.items()}
    labels = find_labels(options, taggers)
    documents, offsets, _ = read_documents(run.tokenizer, run.config.max_source, examples, labels, tagged)
    analysis: dict = {"documents": len(examples), "split": options.analysis_split, "seed": run.config.seed}
    if options.select or options.sweep:
        path = options.sweep_file or Path(options.runs[0]) / "sweep.jsonl"
        sweep = make_sweep(run, examples, documents, options.batch_size, path, **generation)
        effects = sweeps.content_selection_effects(sweep, all_heads(run.model))
        analysis["effects"] = effect_rows(sweep, effects)
        if options.sweep:
            analysis["synergy"], analysis["parts"] = synergy_rows(sweep, effects)
        for tagger in first:
            best, tried = sweeps.select_heads(sweep, effects, kind_of(tagger), options.group)
            tried = {"": sweep.run([Setting("plain")])[0]} | tried  # "": the model as it is
            means = [{"heads": t} | {m: float(scores[m].mean()) for m in METRICS} for t, scores in tried.items()]
            analysis["selection"] = {"heads": best, "tagger": tagger, "tried": means}
    if options.focus:
        tags = find_tags(examples, options.stanza)
        analysis["focus"] = focus_rows(run, examples, documents, offsets, tags, options.batch_size, **generation)
    return analysis


def make_sweep(
    run: Run, examples: Sequence[Example], documents: Sequence[Document], batch_size: int, path: Path, **generation
) -> Sweep:
    """The sweep of a model over the analysis set; its checksums tell apart whatever changes a result."""
    weights = sum(weight.detach().double().abs().sum().item() for weight in run.model.parameters())
    common = [weights, generation, run.model.generation_config.to_diff_dict(), [d.ids for d in documents]]
    common += [[example.references, example.salient_tokens] for example in examples]
    masks = {kind: [document.keep[kind] for document in documents] for kind in documents[0].keep}
    kinds = {"plain": None, "uniform": None} | masks
    depends = {kind: crc32(json.dumps([common, keep], default=str).encode()) for kind, keep in kinds.items()}

    @cache
    def encoded() -> list:  # not made where the file has all results
        return list(encode(run.model, documents, batch_size))

    def decode(setting: Setting) -> list[str]:
        texts = [""] * len(documents)
        for batch in encoded():
            rows = sweeps.decode(run.model, documents, batch, setting, **generation)
            for i, text in zip(batch.numbers, read_summaries(run, rows), strict=True):
                texts[i] = text
        return texts

    return Sweep(path, decode, lambda texts: score(texts, examples), depends)


def effect_rows(sweep: Sweep, effects: Effects) -> list[dict]:
    """Figures 2 and 6: r_ora - r_uni of every head in ROUGE-1 F1 and recall; "over_plain" as in `synergy_rows`."""
    [plain] = sweep.run([Setting("plain")])
    rows = []
    for (layer, head), gain in effects.items():
        [oracle] = sweep.run([Setting("oracle", write_heads({layer: [head]}))])
        row = {"layer": layer, "head": head} | rouge.interval(gain["rouge1"])
        row |= {"rouge1_recall": float(gain["rouge1_recall"].mean())}
        rows.append(row | {"over_plain": float((oracle["rouge1"] - plain["rouge1"]).mean())})
    return rows


def synergy_rows(sweep: Sweep, effects: Effects) -> tuple[list[dict], list[dict]]:
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
        left.append(row | rouge.interval(step.gain["rouge1"]) | {"over_plain": over_plain})
        if len(step.heads) == sum(layer == step.layer for layer, _ in effects):
            together, parts = step.gain["rouge1_recall"], sweeps.sum_of_parts(effects, step.layer)["rouge1_recall"]
            values = {"together": rouge.interval(together), "parts": rouge.interval(parts)}
            right.append({"layer": step.layer} | values | {"p": rouge.paired_test(together, parts)})
    return left, right


def focus_rows(
    run: Run,
    examples: Sequence[Example],
    documents: Sequence[Document],
    offsets: Sequence[Sequence[Span]],
    tags: Sequence | None,
    batch_size: int,
    **generation,
) -> list[dict]:
    """Figures 4, 8, 9 and 10: a row per head; without tags (None) there is no CONTENT category."""
    readings: list = [None] * len(documents)
    for batch in encode(run.model, documents, batch_size):
        summaries = sweeps.decode(run.model, documents, batch, Setting("plain"), **generation)
        for i, summary in zip(batch.numbers, summaries, strict=True):
            source, target = examples[i].source, examples[i].target
            readings[i] = Reading(source, documents[i].ids, offsets[i], summary, target, tags and tags[i])
    shares = attention_focus(run.model, run.tokenizer, readings)
    places = np.ndindex(next(iter(shares.values())).shape)
    return [
        {"layer": i + 1, "head": h} | {kind: float(share[i, h]) for kind, share in shares.items()} for i, h in places
    ]


def find_tags(examples: Sequence[Example], folder: Path | None) -> list[list[tuple[int, int, str]]] | None:
    """Parts of speech from the corpus, else from Stanza if its folder is given; None = unknown."""
    if all(example.pos for example in examples):
        return [place_tags(example.source, sum(example.pos, [])) for example in examples]
    return None if folder is None else stanza_tags([example.source for example in examples], str(folder))


def sample(examples: Sequence[Example], count: int, seed: int = 0) -> list[Example]:
    """Section 4: `count` random examples, in their order; all if there are no more."""
    if len(examples) <= count:
        return list(examples)
    chosen = np.random.default_rng(seed).choice(len(examples), count, replace=False)
    return [examples[i] for i in sorted(chosen)]


def refuse_overlap(chosen_on: Sequence[Example], tested_on: Sequence[Example]) -> None:
    """ValueError if heads would be chosen on documents that are then tested."""
    if same := {example.source for example in chosen_on} & {example.source for example in tested_on}:
        raise ValueError(
            f"--select would choose heads on {len(same)} documents that are then tested: give another "
            "--analysis-split or --split, or a folder with validation.jsonl and test.jsonl"
        )


# The command


def find_labels(options: Options, taggers: Mapping[str, Run]) -> Labels:
    """How labels are made: as the flags say, else as the first tagger learned them."""
    trained = next((run.config for run in taggers.values()), None)
    method = trained.oracle if trained else Labels().method
    method = method if options.method == "as-trained" else options.method
    return Labels(method, options.min_run or (trained.min_run if trained else 1), options.min_keep)


def tables(metrics: dict) -> str:
    """Table 1 (and 3) by comparison with the summariser without masks; then the taggers."""
    titles = METRICS | {"salient_recall": "salient recall"}
    rows = [
        {"system": name, "heads": row["heads"] or None}
        | {title: row[metric] for metric, title in titles.items() if metric in row}
        | {"R-1, difference": (row["difference"] or {}).get("rouge1"), f"p < {SIGNIFICANT}": row["marks"] or None}
        for name, row in metrics["systems"].items()
    ]
    columns = {"rouge1": "R-1 of its words", "token_f1": "token F1", "precision": "precision", "recall": "recall",
               "predicted_share": "% selected", "token_f1_of_all": "F1 of all", "threshold": "threshold"}  # fmt: skip
    taggers = [{"tagger": n} | {columns[k]: row[k] for k in columns} for n, row in metrics["taggers"].items()]
    chosen = [
        f"{name}: heads {found['selection']['heads']} chosen with {found['selection']['tagger']}"
        for name, found in metrics["analysis"].items()
        if "selection" in found
    ]
    cut = max(metrics["sources_cut"].values(), default=0)
    note = f"{BETTER} better, {WORSE} worse than without masks\n{metrics['examples']} examples, {cut} cut"
    return "\n\n".join([*(rouge.table(t) for t in (rows, taggers) if t), *chosen, f"{note}; {metrics['signature']}"])


def load_all(options: Options) -> tuple[dict[str, Run], dict[str, Run]]:
    """The summarisers and the taggers that the flags name, by name, on the device."""
    device, longest = find_device(options.device), options.generation().get("max_length", 0)
    summarizers = {Path(name).name: load_summarizer(name) for name in options.runs}
    taggers = {path.name: load_run(path, "tagger") for path in options.tagger}
    for run in summarizers.values():
        if longest > (positions := run.model.config.max_position_embeddings):
            raise ValueError(f"--max-length is {longest}, the model has {positions} positions: lower it")
    for run in (*summarizers.values(), *taggers.values()):
        run.model.to(device)
    for run in taggers.values() if options.threshold is not None else ():
        run.model.threshold.fill_(options.threshold)
    return summarizers, taggers


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.evaluate", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    options.check()
    summarizers, taggers = load_all(options)
    heads = {name: find_heads(options.heads, run.model) for name, run in summarizers.items() if options.heads}
    data = options.data or next(iter([*summarizers.values(), *taggers.values()])).config.data
    examples = load(data, options.split, options.limit)
    used = [taggers_of(number, len(summarizers), taggers) for number in range(len(summarizers))]
    systems = [s for name, t in zip(summarizers, used, strict=True) for s in settings_of(name, t, "", options.oracle)]
    outputs = [options.predictions / f"{system}.jsonl" for system in systems] if options.predictions else []
    check_outputs(options.json, options.csv, options.sweep_file, *outputs)
    rouge.check_references(examples)
    analysis = {}
    if options.select or options.sweep or options.focus:
        analysed = sample(load(data, options.analysis_split, options.limit), options.analysis)
        rouge.check_references(analysed)
        if options.select:
            refuse_overlap(analysed, examples)
        for (name, run), of_run in zip(summarizers.items(), used, strict=True):
            analysis[name] = analyse(run, analysed, of_run, options) | {"data": data}
            if options.select:
                heads[name] = analysis[name]["selection"]["heads"]
    labels = find_labels(options, taggers)
    metrics = evaluate(
        summarizers, examples, taggers, heads, options.oracle, labels, options.batch_size, options.predictions,
        **options.generation(),
    )  # fmt: skip
    metrics |= {"data": data, "split": options.split, "analysis": analysis}
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        rows = [{"system": name} | row for name, row in metrics["systems"].items()]
        write_csv(
            options.csv, rows + [{"system": n, "labels": "tagger"} | row for n, row in metrics["taggers"].items()]
        )
    print(tables(metrics))


if __name__ == "__main__":
    main()
