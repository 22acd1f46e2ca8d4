"""Which heads select content, and which to mask: Sections 4.1, 4.2 and 5, and the numbers behind Figures 2 to 10.

python -m head_masking.experiments.sweep runs/hm --tagger runs/tagger --data toy --out runs/heads

python -m head_masking.experiments.sweep runs/hm --effects --focus --data toy --out runs/analysis

OUT holds NAME.heads, the heads that are best for the run under the tagger's masks; effects.csv, synergy.csv, focus.csv.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np
import tyro
from tqdm import tqdm

from shared import pretrained
from shared.data import load, open_output, write_csv
from shared.run import in_windows, one_line_errors, read_flags
from shared.score import describe

from ..config import Positive
from ..heads import all_heads, write_heads
from ..loading import Summarizer, load_model, load_run, name_of
from ..masking import PAPER_DECODING, Heads, uniform_heads
from ..predict import decode, read_documents
from ..text import Document, length
from .focus import attention_focus

SPLIT = "validation"  # heads are chosen on it
Scores = dict[str, np.ndarray]  # metric -> (n,) a value for each document, or a difference of two
Effects = Mapping[tuple[int, int], Scores]  # (layer, head) -> what `gain` has of this head alone
# kind and heads -> scores: "plain" changes nothing, "uniform" has uniform weights, else masks: "oracle", "system"
Measure = Callable[[str, Heads], Scores]


def measuring(run: Summarizer, examples: Sequence, kept: Mapping[str, Sequence[Document]]) -> Measure:
    """What decodes and scores, each kind and heads once; `kept`: the documents with what masked heads may see."""
    known: dict = {}

    def measure(kind: str, heads: Heads) -> Scores:
        key = kind, write_heads(heads)
        if key not in known:
            with uniform_heads(run.model, heads if kind == "uniform" else {}):
                masked = partial(decode, run.model, heads=heads if kind in kept else None)
                summaries = in_windows(kept.get(kind, kept["oracle"]), list, length, masked, 32)
                texts = [run.text(tokens) for _, tokens in tqdm(summaries, " ".join(key), leave=False, disable=None)]
            known[key] = score(texts, examples)
        return known[key]

    return measure


def score(texts: Sequence[str], examples: Sequence) -> Scores:
    """(n,) percentages of every text: F1 of ROUGE-1 and ROUGE-2, and recall of ROUGE-1."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer, references = RougeScorer(["rouge1", "rouge2"], True), [example.references for example in examples]
    found = [scorer.score_multi([" ".join(r) for r in own], text) for own, text in zip(references, texts, strict=True)]
    values = {metric: [each[metric].fmeasure for each in found] for metric in ("rouge1", "rouge2")}
    values["recall"] = [each["rouge1"].recall for each in found]
    return {metric: 100 * np.array(of_texts) for metric, of_texts in values.items()}


def sample(examples: Sequence, count: int) -> list:
    """Section 4: `count` random examples, in their order, always the same ones; all if there are no more."""
    chosen = np.random.default_rng(0).choice(len(examples), min(count, len(examples)), replace=False)
    return [examples[i] for i in sorted(chosen)]


def gain(measure: Measure, heads: Heads) -> Scores:
    """r_ora - r_uni of these heads, for every document: oracle masks, uniform weights on the same heads.

    D10, the other reading of an improvement: "rouge1_plain" and "recall_plain" are over the model as it is.
    """
    plain, oracle, uniform = (measure("plain", {}), measure("oracle", heads), measure("uniform", heads))
    over_plain = {f"{metric}_plain": oracle[metric] - plain[metric] for metric in ("rouge1", "recall")}
    return {metric: oracle[metric] - uniform[metric] for metric in oracle} | over_plain


def content_selection_effects(measure: Measure, heads: Heads) -> Effects:
    """The content selection effect of each head by itself (Section 4.1; Figures 2 and 6)."""
    return {(layer, head): gain(measure, {layer: [head]}) for layer, chosen in heads.items() for head in chosen}


def ranked(effects: Effects) -> dict[int, list[int]]:
    """The heads of each layer, that of the largest mean effect on ROUGE-1 first, of equal ones the lower."""
    order = sorted(effects, key=lambda place: (place[0], -effects[place]["rouge1"].mean(), place[1]))
    return {layer: [head for _, head in places] for layer, places in groupby(order, key=lambda place: place[0])}


def synergy(measure: Measure, effects: Effects) -> dict[tuple[int, tuple[int, ...]], Scores]:
    """(layer, heads in the order of their effects) -> their gain together; heads join one by one (Section 4.2)."""
    sets = [(layer, tuple(order[: n + 1])) for layer, order in ranked(effects).items() for n in range(len(order))]
    return {(layer, heads): gain(measure, {layer: heads}) for layer, heads in sets}


def sum_of_parts(effects: Effects, layer: int) -> Scores:
    """The sum of the individual effects of a layer's heads, for every document (Section 4.2; right of Figure 3)."""
    parts = [values for (of_layer, _), values in effects.items() if of_layer == layer]
    return {metric: sum(part[metric] for part in parts) for metric in parts[0]}


def select_heads(measure: Measure, effects: Effects, group: int = 4) -> tuple[Heads, Scores]:
    """Greedy head selection of Section 5: at every layer mask the 4, 8, 12, ... heads of the largest effect.

    D11: layer by layer, and without the model as it is among the candidates. Chosen are, with their scores, the heads
    with the largest ROUGE-1 + ROUGE-2 F1 under the tagger's masks; of equal sets the one tried first.
    """
    tried = []
    for layer, order in ranked(effects).items():
        for count in [*range(group, len(order), group), len(order)]:
            heads = {layer: order[:count]}
            tried.append((heads, measure("system", heads)))
    return max(tried, key=lambda each: quality(each[1]))


def quality(scores: Scores) -> float:
    """ROUGE-1 + ROUGE-2 F1, by which heads are chosen (Section 5)."""
    return scores["rouge1"].mean() + scores["rouge2"].mean()


def improvement(values: Scores, metric: str = "rouge1") -> dict:
    """D10: means over uniform weights on the same heads, and over the plain model; 95 % intervals over documents."""
    row = {}
    for name, differences in (("over_uniform", values[metric]), ("over_plain", values[f"{metric}_plain"])):
        found = describe(differences.reshape(1, -1, 1), paired=False)
        row[name] = {"mean": found["value"], "low": found["low"], "high": found["high"]}
    return row


def synergy_rows(measure: Measure, effects: Effects) -> list[dict]:
    """Figures 3 and 7: heads added one by one, in F1; all of a layer and the sum of the parts, in recall (D10)."""
    rows, together = [], synergy(measure, effects)
    for (layer, heads), values in together.items():
        rows.append({"side": "left", "layer": layer, "count": len(heads), "added": heads[-1]} | improvement(values))
    for layer, order in ranked(effects).items():
        sides = {"together": together[layer, tuple(order)], "parts": sum_of_parts(effects, layer)}
        sides["together minus parts"] = {m: sides["together"][m] - sides["parts"][m] for m in sides["parts"]}
        for side, values in sides.items():
            rows.append({"side": f"right, {side}", "layer": layer} | improvement(values, "recall"))
    return rows


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[str]  # A summariser: a run, a folder or name of a transformers' model.
    out: Path  # Folder for the results.
    tagger: Path | None = None  # Run of a tagger, whose masks choose heads greedily (Section 5).
    effects: bool = False  # Measure single heads, and heads together (Figures 2, 3, 6, 7).
    focus: bool = False  # Count what the heads attend to (Figures 4, 8-10); CONTENT needs data with a field `pos`.
    group: Positive = 4  # Heads that are added at a time (Section 5: 4).
    data: str = ""  # Anything that shared.data.load takes; none: what the run has learned from.
    documents: Positive = 1000  # Random documents of the validation split (Section 4: 1,000).
    decoding: Literal["own", "cnn_dailymail", "nyt", "xsum"] = "own"  # The model's settings, or those of Appendix A.
    no_repeat_ngram_size: int | None = None  # So many tokens never come twice in a row; none: those of --decoding.
    overwrite: bool = False  # Replace the results of --out if they exist.

    def generation(self) -> dict:
        """What is given of `generate`: beam 1 (Appendix A: in all analyses), for which no penalty counts."""
        own = {"no_repeat_ngram_size": self.no_repeat_ngram_size} if self.no_repeat_ngram_size is not None else {}
        return PAPER_DECODING.get(self.decoding, {}) | {"num_beams": 1, "length_penalty": None} | own

    def write(self, name: str, rows: list[dict] | str) -> None:
        """A file of the results."""
        self.out.mkdir(parents=True, exist_ok=True)
        with open_output(self.out / name, self.overwrite) as file:
            print(rows, file=file) if isinstance(rows, str) else write_csv(file, rows)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run, tagger = load_model(options.run), load_run(options.tagger) if options.tagger else None
    pretrained.generation(run.model, run.max_target, **options.generation())
    data, name = options.data or run.data, name_of(options.run)
    examples = sample(load(data, SPLIT), options.documents)
    kept = {"oracle": read_documents(run, examples, oracle=True, min_run=tagger.config.min_run if tagger else 1)}
    kept |= {"system": read_documents(run, examples, tagger)} if tagger else {}
    measure, tables = measuring(run, examples, kept), {}
    if options.focus:
        tables["focus"] = attention_focus(run, examples, kept["oracle"])
    effects = content_selection_effects(measure, all_heads(run.model)) if options.effects or tagger else {}
    if options.effects:
        tables["effects"] = [{"layer": i, "head": h} | improvement(values) for (i, h), values in effects.items()]
        tables["synergy"] = synergy_rows(measure, effects)
    system = {"system": f"{name} (seed {run.seed}) on {Path(data).name}, {len(examples)} {SPLIT} documents"}
    for table, rows in tables.items():
        options.write(f"{table}.csv", [system | row for row in rows])
    if tagger:
        heads, masked = select_heads(measure, effects, options.group)
        worse = "; without masks it did better (D11)" if quality(measure("plain", {})) >= quality(masked) else ""
        options.write(f"{name}.heads", write_heads(heads))
        print(f"{name}: heads {write_heads(heads)}{worse}, {len(examples)} documents of {SPLIT}", flush=True)


if __name__ == "__main__":
    main()
