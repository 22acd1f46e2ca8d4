"""Decode with masked heads and score: Tables 1 and 3, Figure 5, and the taggers by themselves.

python -m head_masking.evaluate runs/hm-base --tagger runs/hm-tagger --heads 1:0-3 --oracle                # Table 1
python -m head_masking.evaluate runs/hm-base --data toy:domain=nature --tagger runs/t100 runs/t1000 --heads heads.json
python -m head_masking.evaluate --tagger runs/hm-tagger --data aclsum                          # the tagger by itself
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from shared import rouge
from shared.data import Example, check_outputs, load, split_sentences, write_csv, write_json
from shared.timing import find_device

from .config import Boundary
from .decode import (
    checksum,
    collect,
    decode,
    default_heads,
    encode,
    find_heads,
    read_documents,
    read_selection,
    settings_of,
    tag,
)  # fmt: skip
from .labels import Labels, Tagged, selected_words, tagging_quality
from .loading import Run, is_run, load_run, load_summarizer, name_of
from .masking import PAPER_DECODING
from .oracle import METHODS
from .run import Positive, Range, check_fields, one_line_errors, read_flags

METRICS = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # papers' ROUGE-L is that over sentences
TAGGER = {"rouge1": "R-1 of its words", "token_f1": "token F1", "precision": "precision", "recall": "recall",
          "predicted_share": "% selected", "token_f1_of_all": "F1 of all", "threshold": "threshold"}  # fmt: skip
SIGNIFICANT, BETTER, WORSE = 0.005, "*", "!"  # caption of Table 1; the second mark is ours
Scores = dict[str, np.ndarray]  # metric -> (n,) a value per document, or a difference of two


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[str, ...]] = ()  # summarisers: runs, folders or names of transformers' models
    tagger: tuple[Path, ...] = ()  # runs of taggers; each masks each summariser
    # 1:0-3,2:1,3, "top" (layer, all heads), data of Appendix B, or FILE.json that experiments.sweep --select wrote;
    # default: the model's, or top (D14)
    heads: str = ""
    oracle: bool = False  # also mask by labels made from the reference
    flip: tuple[Annotated[float, Range(0.001, 0.999)], ...] = ()  # with --oracle: these shares of its words flipped
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "test"  # of the data
    limit: Positive | None = None  # first N examples only
    method: Literal[("as-trained", *METHODS)] = "as-trained"  # of oracle labels; default: the first tagger's, or runs
    min_run: Positive | None = None  # words of a labelled run, at least; default: as the first tagger's, or 1
    min_keep: int = 5  # tokens that a masked head sees, at least (released code: 5)
    threshold: Boundary | None = None  # decision boundary in [0, 1); default: each tagger's own
    decoding: Literal["own", "cnn_dailymail", "nyt", "xsum"] = "own"  # the model's own settings, or Appendix A's
    beam: Positive | None = None  # default: that of --decoding
    max_length: Positive | None = None  # tokens; default: that of --decoding
    no_repeat_ngram_size: int | None = None  # so many words never twice in this order; default: that of --decoding
    batch_size: Positive = 32  # documents per batch
    device: str = "cpu"  # or cuda, mps
    json: Path | None = None  # write every number here; experiments/figures.py reads it
    csv: Path | None = None  # write a row per system and tagger here
    predictions: Path | None = None  # folder for the summaries, a .jsonl per system

    def check(self) -> None:
        """ValueError for values out of range, and for flags that do not go together."""
        check_fields(self)
        if not self.runs and not self.tagger:
            raise ValueError("give the run of a summariser, or --tagger RUN")
        if any(len({*map(name_of, names)}) < len(names) for names in (self.runs, self.tagger)):
            raise ValueError("two runs have folders of the same name; rename one")
        if self.flip and not self.oracle:
            raise ValueError("--flip takes shares between 0 and 1, and --oracle beside it")
        if not self.data and not is_run(first := [*self.runs, *self.tagger][0]):
            raise ValueError(f"{first} is not a run of {__package__}.train that knows its data: give --data")

    def generation(self) -> dict[str, float]:
        """Arguments of `generate`."""
        given = dict(num_beams=self.beam, max_length=self.max_length, no_repeat_ngram_size=self.no_repeat_ngram_size)
        return PAPER_DECODING.get(self.decoding, {}) | {k: v for k, v in given.items() if v is not None}


def labels_of(options: Options, taggers: Mapping[str, Run]) -> Labels:
    """How labels are made: as the flags say, else as the first tagger learned them."""
    method, min_run = [*((run.config.oracle, run.config.min_run) for run in taggers.values()), ("runs", 1)][0]
    method = method if options.method == "as-trained" else options.method
    return Labels(method, options.min_run or min_run, options.min_keep, getattr(options, "flip", ()))


def load_runs(options: Options) -> tuple[dict[str, Run], dict[str, Run]]:
    """The summarisers and taggers that the flags name, by the names of their folders, on the device; or ValueError."""
    device, longest = find_device(options.device), options.generation().get("max_length", 0)
    summarizers = {name_of(name): load_summarizer(name) for name in options.runs}
    taggers = {name_of(path): load_run(path, "tagger") for path in options.tagger}
    for run in (*summarizers.values(), *taggers.values()):
        run.model.to(device)
    if places := [
        p
        for run in summarizers.values()
        if (p := getattr(run.model.config, "max_position_embeddings", longest)) < longest
    ]:
        raise ValueError(f"--max-length is {longest}, the model has {places[0]} positions: lower it")
    for run in taggers.values() if options.threshold is not None else ():
        run.model.threshold.fill_(options.threshold)
    return summarizers, taggers


def score(texts: Sequence[str], examples: Sequence[Example]) -> Scores:
    """(n,) percentages of every text: F1 of METRICS, and "rouge1_recall"; a reference of one string is split."""
    from rouge_score.rouge_scorer import RougeScorer

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
    """Decode without masks, with oracle masks and with those of taggers, and score: Tables 1 and 3, Figure 5.

    Args:
        heads: name of a summariser -> the heads to mask, as `write_heads` writes them.
        oracle: mask by labels from the reference, too.
        predictions: folder for SYSTEM.jsonl.
        generation: arguments of `generate`; what is not given is the model's own.
    Returns:
        every number in one JSON object; differences are over the same summariser without masks.
    """
    from tqdm import tqdm

    rouge.check_references(examples)
    labels = labels or Labels()
    tagged = {name: tag(run, [example.source for example in examples]) for name, run in taggers.items()}
    rows = {name: tagger_row(taggers[name], of_all, examples, labels) for name, of_all in tagged.items()}
    metrics = {"examples": len(examples), "generation": generation, "labels": labels._asdict(), "taggers": rows}
    cut = {name: sum(of_one.was_cut for of_one in of_all) for name, of_all in tagged.items()}
    metrics |= {"signature": rouge.signature(len(examples)), "sources_cut": cut, "systems": {}}
    for name, run in summarizers.items():
        documents = read_documents(run, examples, labels, tagged, oracle)
        cut[name] = sum(document.was_cut for document in documents)
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


def refuse_overlap(chosen_on: Collection[int], tested_on: Sequence[Example]) -> None:
    """ValueError if heads were chosen on documents, by `checksum`, that are then tested."""
    if same := set(chosen_on) & {checksum(example.source) for example in tested_on}:
        raise ValueError(f"the heads were chosen on {len(same)} documents that are then tested: give another --split")


def table(metrics: dict) -> str:
    """Table 1 (and 3) by comparison with the summariser without masks; then the taggers."""
    rows = []
    for name, row in metrics["systems"].items():
        scores = {title: row[metric] for metric, title in METRICS.items()}
        scores |= {"R-1, difference": row["difference"] and row["difference"]["rouge1"]}
        marks = {f"p < {SIGNIFICANT}": row["marks"] or None}
        rows.append({"system": name, "heads": row["heads"] or None} | scores | marks)
    taggers = [{"tagger": n} | {t: row[k] for k, t in TAGGER.items()} for n, row in metrics["taggers"].items()]
    note = f"{BETTER} better, {WORSE} worse than without masks\n{metrics['examples']} examples; {metrics['signature']}"
    return "\n\n".join([*(rouge.table(part) for part in (rows, taggers) if part), note])


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.evaluate", description=__doc__)
    options.check()
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    summarizers, taggers = load_runs(options)
    masked = summarizers if options.heads or options.tagger or options.oracle else {}
    heads, chosen_on = {}, set()
    for name, run in masked.items():
        is_file = options.heads.endswith(".json")
        text, sources = read_selection(options.heads, name) if is_file else (options.heads or default_heads(run), ())
        heads[name] = find_heads(text, run.model)
        chosen_on.update(sources)
    data = options.data or next(iter([*summarizers.values(), *taggers.values()])).config.data
    labels = labels_of(options, taggers)
    systems = [n for s in summarizers for n in settings_of(s, taggers, "", labels.oracles() if options.oracle else ())]
    outputs = [options.predictions / f"{system}.jsonl" for system in systems] if options.predictions else []
    inputs = [data, *Path(data).glob("*.jsonl"), options.heads, *options.runs, *options.tagger]
    check_outputs(options.json, options.csv, *outputs, inputs=inputs)
    examples = load(data, options.split, options.limit)
    refuse_overlap(chosen_on, examples)
    metrics = {"data": data, "split": options.split} | evaluate(
        summarizers, examples, taggers, heads, options.oracle, labels, options.batch_size, options.predictions,
        **options.generation(),
    )  # fmt: skip
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        rows = [{"system": name} | row for name, row in metrics["systems"].items()]
        rows += [{"system": name, "labels": "tagger"} | row for name, row in metrics["taggers"].items()]
        write_csv(options.csv, rows)
    print(table(metrics))
    for name, cut in metrics["sources_cut"].items():
        if cut:
            print(f"{cut} documents were cut to the --max-source of {name}", file=sys.stderr)


if __name__ == "__main__":
    main()
