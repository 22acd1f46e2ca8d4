"""Which heads select content, and which to mask: Sections 4.1, 4.2 and 5, and the numbers behind Figures 2 to 10.

python -m head_masking.experiments.sweep runs/hm --tagger runs/tagger --select --data toy --out runs/heads

python -m head_masking.experiments.sweep runs/hm --effects --focus --data toy --out runs/analysis

OUT holds NAME.heads, the heads that --select chose for a run, and effects.csv, synergy.csv and focus.csv. The scores of
every setting are kept in OUT/NAME.jsonl, from which a sweep that was killed goes on: remove it when you train anew.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import tyro
from tqdm import tqdm

from shared import pretrained, rouge
from shared.data import load, open_output, write_csv
from shared.run import one_line_errors, read_flags
from shared.score import describe, in_lines

from ..config import Positive
from ..decoding import decode, encode
from ..heads import all_heads, write_heads
from ..loading import Run, Summarizer, load_model, load_run, name_of
from ..masking import PAPER_DECODING, Heads, uniform_heads
from ..predict import read_documents
from ..text import Document
from .focus import focus_rows

SPLIT = "validation"  # heads are chosen on it
Scores = dict[str, np.ndarray]  # metric -> (n,) a value for each document, or a difference of two
Kept = Mapping[str, Sequence[Document]]  # "oracle" or "system" -> the documents, with what masked heads may see


class Setting(NamedTuple):
    """What is done to the cross-attention."""

    kind: str = "plain"  # "plain": nothing; "uniform": uniform weights; else masks, by their name in `Kept`
    heads: Heads = {}


def measuring(run: Summarizer, examples: Sequence, kept: Kept) -> Callable[[Setting], Scores]:
    """The function setting -> scores; documents are encoded once, when it is first called."""
    batches = cache(lambda: list(encode(run.model, kept["oracle"])))

    def measure(setting: Setting) -> Scores:
        is_uniform = setting.kind == "uniform"
        masked = setting.heads if setting.kind in kept else None
        texts = [""] * len(examples)
        with uniform_heads(run.model, setting.heads) if is_uniform else nullcontext():
            for encoded in batches():
                summaries = decode(run.model, encoded, kept.get(setting.kind, ()), masked)
                for i, tokens in zip(encoded.numbers, summaries, strict=True):
                    texts[i] = run.text(tokens)
        return score(texts, examples)

    return measure


def score(texts: Sequence[str], examples: Sequence) -> Scores:
    """(n,) percentages of every text: F1 of ROUGE-1 and ROUGE-2, and recall of ROUGE-1."""
    from rouge_score.rouge_scorer import RougeScorer

    references = [[in_lines(reference) for reference in example.references] for example in examples]
    values, scorer = rouge.score([in_lines(text) for text in texts], references), RougeScorer(["rouge1"], True)
    pairs = zip(texts, references, strict=True)
    recalls = [scorer.score_multi([" ".join(r) for r in of_text], text)["rouge1"].recall for text, of_text in pairs]
    return {m: values[m] for m in ("rouge1", "rouge2")} | {"rouge1_recall": 100 * np.array(recalls)}


class Sweep:
    """Scores by setting, from a file if it holds them, else by decoding.

    Args:
        path: the file; lines that are cut off, or of another `about`, do not count.
        measure: setting -> scores; it decodes.
        about: what the scores depend on.
    """

    def __init__(self, path: Path, measure: Callable[[Setting], Scores], about: str = ""):
        self.path, self.measure, self.about, self.known = path, measure, about, {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            with suppress(ValueError):  # a kill has cut it
                row = json.loads(line)
                if row["about"] == about:
                    self.known[row["kind"], row["heads"]] = {m: np.array(v) for m, v in row["scores"].items()}

    def run(self, settings: Sequence[Setting], title: str = "") -> list[Scores]:
        """Scores of the settings, in their order; what the file does not hold yet is decoded and written to it."""
        keys = [(setting.kind, write_heads(setting.heads)) for setting in settings]
        missing = {key: setting for key, setting in zip(keys, settings, strict=True) if key not in self.known}
        for key, setting in tqdm(missing.items(), title, unit="setting", disable=None):
            self.known[key] = self.measure(setting)
            row = {"kind": key[0], "heads": key[1], "about": self.about}
            row["scores"] = {metric: values.tolist() for metric, values in self.known[key].items()}
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps(row))  # on a line of its own, also behind one that is cut
        return [self.known[key] for key in keys]


# What the paper makes of it


def sample(examples: Sequence, count: int) -> list:
    """Section 4: `count` random examples, in their order, always the same ones; all if there are no more."""
    chosen = np.random.default_rng(0).choice(len(examples), min(count, len(examples)), replace=False)
    return [examples[i] for i in sorted(chosen)]


Effects = Mapping[tuple[int, int], Scores]  # (layer, head) -> what `gains` has of this head alone


def gains(sweep: Sweep, sets_of_heads: Sequence[Heads], title: str = "") -> list[Scores]:
    """r_ora - r_uni for every set of heads and every document: oracle masks, uniform weights on the same heads.

    D10, the other reading of an improvement: "over_plain" in F1, "recall_over_plain", both over the model as it is.
    """
    pairs = [Setting(kind, heads) for heads in sets_of_heads for kind in ("oracle", "uniform")]
    plain, *scores = sweep.run([Setting(), *pairs], title)
    return [
        {metric: oracle[metric] - uniform[metric] for metric in oracle}
        | {"over_plain": oracle["rouge1"] - plain["rouge1"]}
        | {"recall_over_plain": oracle["rouge1_recall"] - plain["rouge1_recall"]}
        for oracle, uniform in zip(scores[::2], scores[1::2], strict=True)
    ]


def content_selection_effects(sweep: Sweep, heads: Heads) -> Effects:
    """The content selection effect of each head by itself (Section 4.1; Figures 2 and 6): the mean of r_ora - r_uni."""
    pairs = [(layer, head) for layer, chosen in heads.items() for head in chosen]
    of_heads = gains(sweep, [{layer: [head]} for layer, head in pairs], "effects of single heads")
    return dict(zip(pairs, of_heads, strict=True))


def ranked(effects: Effects) -> dict[int, list[int]]:
    """The heads of each layer, that of the largest mean effect on ROUGE-1 first, of equal ones the lower."""
    order = sorted(effects, key=lambda place: (place[0], -effects[place]["rouge1"].mean(), place[1]))
    return {layer: [head for _, head in places] for layer, places in groupby(order, key=lambda place: place[0])}


def synergy(sweep: Sweep, effects: Effects) -> dict[tuple[int, tuple[int, ...]], Scores]:
    """Heads added one by one in the order of their individual effect, layer by layer (Section 4.2; Figures 3, 7).

    Returns:
        (layer, heads in the order in which they were added) -> what `gains` has of them together.
    """
    sets = [(layer, tuple(order[: n + 1])) for layer, order in ranked(effects).items() for n in range(len(order))]
    return dict(zip(sets, gains(sweep, [{layer: heads} for layer, heads in sets], "heads together"), strict=True))


def sum_of_parts(effects: Effects, layer: int) -> Scores:
    """The sum of the individual effects of a layer's heads, for every document (Section 4.2; right of Figure 3)."""
    parts = [values for (of_layer, _), values in effects.items() if of_layer == layer]
    return {metric: sum(part[metric] for part in parts) for metric in parts[0]}


def select_heads(sweep: Sweep, effects: Effects, group: int = 4) -> tuple[str, Scores]:
    """Greedy head selection of Section 5: at every layer mask the 4, 8, 12, ... heads of the largest effect.

    D11: layer by layer, and without the model as it is among the candidates.

    Args:
        group: how many heads are added at a time; 4 in the paper.
    Returns:
        the heads with the largest ROUGE-1 + ROUGE-2 F1 under the tagger's masks, of equal sets the one tried first
        (bottom layer, fewest heads); and their scores.
    """
    candidates = []
    for layer, order in ranked(effects).items():
        counts = [*range(group, len(order), group), len(order)]
        candidates += [{layer: order[:count]} for count in counts]
    scores = sweep.run([Setting("system", heads) for heads in candidates], "choice of heads")
    tried = dict(zip(map(write_heads, candidates), scores, strict=True))
    best = max(tried, key=lambda text: quality(tried[text]))
    return best, tried[best]


def quality(scores: Scores) -> float:
    """ROUGE-1 + ROUGE-2 F1, by which heads are chosen (Section 5)."""
    return scores["rouge1"].mean() + scores["rouge2"].mean()


# The rows of the figures


def improvement(gain: Scores) -> dict:
    """D10: in ROUGE-1 F1 over uniform weights on the same heads, and over the plain model."""
    return {"over_uniform": interval(gain["rouge1"]), "over_plain": interval(gain["over_plain"])}


def interval(values: np.ndarray) -> dict:
    """Mean of one value a document, with its 95 % interval over documents."""
    row = describe(as_measure(values), paired=False)
    return {"mean": row["value"], "low": row["low"], "high": row["high"]}


def as_measure(values: np.ndarray) -> np.ndarray:
    """One value a document, as `shared.score` has it."""
    return values.reshape(1, -1, 1)


def synergy_rows(sweep: Sweep, effects: Effects) -> list[dict]:
    """Figures 3 and 7: heads added one by one, in F1; all of a layer and the sum of the parts, in recall (D10)."""
    steps, totals = [], []
    for (layer, heads), gain in synergy(sweep, effects).items():
        steps.append({"side": "left", "layer": layer, "count": len(heads), "added": heads[-1]} | improvement(gain))
        if len(heads) < sum(of_layer == layer for of_layer, _ in effects):
            continue
        parts = sum_of_parts(effects, layer)
        for over, metric in (("over_uniform", "rouge1_recall"), ("over_plain", "recall_over_plain")):
            p = describe(as_measure(gain[metric]), as_measure(parts[metric]), paired=False)["p"]
            for side, values in (("together", gain[metric]), ("parts", parts[metric])):
                totals.append({"side": f"right, {side}", "layer": layer, over: interval(values), "p": p})
    return steps + totals


# The command


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[str, ...]]  # Summarisers: runs, folders or names of transformers' models.
    out: Path  # Folder for the results.
    select: bool = False  # Choose the heads greedily, with masks by the tagger (Section 5).
    effects: bool = False  # Measure single heads, and heads together (Figures 2, 3, 6, 7).
    focus: bool = False  # Count what the heads attend to (Figures 4, 8-10); CONTENT needs data with a field `pos`.
    tagger: Path | None = None  # Run of a tagger.
    group: Positive = 4  # Heads that --select adds at a time (Section 5: 4).
    data: str = ""  # Anything that shared.data.load takes; none: what the run has learned from.
    documents: Positive = 1000  # Random documents of the validation split (Section 4: 1,000).
    decoding: Literal["own", "cnn_dailymail", "nyt", "xsum"] = "own"  # The model's settings, or those of Appendix A.
    no_repeat_ngram_size: int | None = None  # So many tokens never come twice in a row; none: those of --decoding.
    overwrite: bool = False  # Replace the results of --out if they exist.

    def check(self) -> None:
        """ValueError for flags that do not go together."""
        if not (self.select or self.effects or self.focus):
            raise ValueError("give --select, --effects or --focus")
        if len({name_of(run) for run in self.runs}) < len(self.runs):
            raise ValueError("two runs have one name: give each its own --out")
        if self.select and not self.tagger:
            raise ValueError("--select searches heads by the labels of a tagger: give --tagger RUN")

    def generation(self) -> dict[str, float]:
        """What is given of `generate`: beam 1 (Appendix A: in all analyses), for which no penalty counts."""
        own = {k: v for k, v in PAPER_DECODING.get(self.decoding, {}).items() if k != "length_penalty"}
        blocking = {"no_repeat_ngram_size": self.no_repeat_ngram_size} if self.no_repeat_ngram_size is not None else {}
        return own | blocking | {"num_beams": 1}


def analyse(name: str, run: Summarizer, examples: Sequence, tagger: Run | None, options: Options, path: Path) -> dict:
    """All that the flags ask of the run `name`: rows of the CSVs, "heads", and "said", a line about them."""
    generation, result = options.generation(), {}
    pretrained.generation(run.model, run.max_target, **generation)
    min_run = tagger.config.min_run if tagger else 1
    kept = {"oracle": read_documents(run, examples, oracle=True, min_run=min_run)}
    kept |= {"system": read_documents(run, examples, tagger)} if tagger else {}
    if options.focus:
        result["focus"] = focus_rows(run, examples, kept["oracle"])
    if not (options.select or options.effects):
        return result
    measured = os.path.abspath(name), len(examples), run[2:]
    about = repr((measured, tagger and tagger.config, options.data, SPLIT, generation))
    sweep = Sweep(path, measuring(run, examples, kept), about)
    effects = content_selection_effects(sweep, all_heads(run.model))
    if options.effects:
        result["effects"] = [{"layer": i, "head": h} | improvement(gain) for (i, h), gain in effects.items()]
        result["synergy"] = synergy_rows(sweep, effects)
    if options.select:
        result["heads"], masked = select_heads(sweep, effects, options.group)
        [plain] = sweep.run([Setting()])
        is_worse = quality(plain) >= quality(masked)
        result["said"] = f"heads {result['heads']}" + ("; without masks it did better (D11)" if is_worse else "")
    return result


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    tagger = load_run(options.tagger) if options.tagger else None
    names = ["effects", "synergy"] * options.effects + ["focus"] * options.focus
    tables: dict[str, list] = {name: [] for name in names}
    with ExitStack() as stack:
        paths = {name: options.out / f"{name}.csv" for name in names}
        files = {name: stack.enter_context(open_output(path, options.overwrite)) for name, path in paths.items()}
        for run_name in options.runs:
            run, name = load_model(run_name), name_of(run_name)
            data = options.data or run.data
            examples = sample(load(data, SPLIT), options.documents)
            options.out.mkdir(parents=True, exist_ok=True)
            result = analyse(run_name, run, examples, tagger, options, options.out / f"{name}.jsonl")
            system = f"{name} (seed {run.seed}) on {Path(data).name}, {len(examples)} {SPLIT} documents"
            for table in tables:
                tables[table] += [{"system": system} | row for row in result[table]]
            if options.select:
                with open_output(options.out / f"{name}.heads", options.overwrite) as file:
                    print(result["heads"], file=file)
                print(f"{name}: {result['said']}, {len(examples)} documents of {SPLIT}", flush=True)
        for name, file in files.items():
            write_csv(file, tables[name])


if __name__ == "__main__":
    main()
