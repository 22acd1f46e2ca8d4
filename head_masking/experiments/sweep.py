"""Which heads select content, and which to mask: Sections 4.1, 4.2 and 5, and the numbers behind Figures 2 to 10.

python -m head_masking.experiments.sweep runs/hm-base --tagger runs/hm-tagger --select --json heads.json
python -m head_masking.experiments.sweep runs/hm-base --effects --focus --json analysis.json        # of Figures 2 to 10

A `Sweep` keeps the scores of every setting in a file, line by line, and never decodes a setting twice, also when it was
killed and started again. `evaluate --heads heads.json` masks the heads that --select chose.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Literal
from zlib import crc32

import numpy as np
import tyro

from shared import rouge
from shared.data import Example, check_outputs, load, write_json

from ..config import Boundary
from ..decode import Setting, all_heads, checksum, collect, decode, encode, read_documents, tag, write_heads
from ..evaluate import METRICS, Scores, labels_of, load_runs, score
from ..labels import Labels
from ..loading import Run, is_run, name_of
from ..masking import PAPER_DECODING, Heads
from ..oracle import METHODS
from ..run import Positive, check_fields, one_line_errors, read_flags
from ..text import Document
from .focus import focus_rows

# The file of results


class Sweep:
    """Scores by setting, from a file if it holds them, else by decoding.

    Args:
        path: the file; lines that are cut off or of something else do not count, a file without any is refused.
        measure: setting -> scores; it decodes.
        depends: kind of setting -> a checksum of all that its results depend on.
        documents: of how many documents there are scores; 0 = not known.
    """

    def __init__(
        self, path: Path, measure: Callable[[Setting], Scores], depends: Mapping[str, int] = {}, documents: int = 0
    ):
        self.path, self.measure, self.depends, self.known = path, measure, depends, {}
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        if text and '"kind"' not in text:
            raise ValueError(f"{path} holds something else than a sweep: give another --sweep-file")
        for line in text.splitlines():
            with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                row = json.loads(line)
                scores = {metric: np.array(values, dtype=float) for metric, values in row["scores"].items()}
                is_whole = all(v.shape == (documents,) and np.isfinite(v).all() for v in scores.values())
                if not documents or (is_whole and scores.keys() == {*METRICS, "rouge1_recall"}):
                    self.known[row["kind"], row["heads"], row["depends"]] = scores
        if text and not text.endswith("\n"):  # a kill has cut its last line
            with path.open("a", encoding="utf-8") as file:
                file.write("\n")

    def run(self, settings: Iterable[Setting], title: str = "") -> list[Scores]:
        """Scores of the settings, in their order; what the file does not hold yet is decoded and written to it."""
        from tqdm import tqdm

        settings = list(settings)
        keys = {setting: (*setting, self.depends.get(setting.kind, 0)) for setting in settings}
        missing = [setting for setting, key in keys.items() if key not in self.known]
        for setting in tqdm(missing, title, unit="setting", disable=not missing):
            scores = self.known[keys[setting]] = self.measure(setting)
            row = dict(zip(("kind", "heads", "depends"), keys[setting], strict=True))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                print(json.dumps(row | {"scores": {m: values.tolist() for m, values in scores.items()}}), file=file)
        return [self.known[keys[setting]] for setting in settings]


def checksums(run: Run, examples: Sequence, documents: Sequence[Document], generation: dict) -> dict[str, int]:
    """Kind of setting -> a checksum of the weights, texts, references, masks and flags that its results depend on."""
    weights = sum(weight.detach().double().abs().sum().item() for weight in run.model.parameters())
    common = [weights, generation, run.model.generation_config.to_diff_dict(), [d.ids for d in documents]]
    common += [example.references for example in examples]
    masks = {kind: [document.keep[kind] for document in documents] for kind in documents[0].keep}
    kinds = {"plain": None, "uniform": None} | masks
    return {kind: crc32(json.dumps([common, keep], default=str).encode()) for kind, keep in kinds.items()}


# What the paper makes of it


def sample(examples: Sequence, count: int, seed: int = 0) -> list:
    """Section 4: `count` random examples, in their order; all if there are no more."""
    chosen = np.random.default_rng(seed).choice(len(examples), min(count, len(examples)), replace=False)
    return [examples[i] for i in sorted(chosen)]


Effects = Mapping[tuple[int, int], Scores]  # (layer, head) -> what `gains` has of this head alone


def gains(sweep: Sweep, sets_of_heads: Sequence[Heads], title: str = "") -> list[Scores]:
    """r_ora - r_uni for every set of heads and every document: oracle masks, uniform weights on the same heads.

    D10, the other reading of an improvement: "over_plain" in F1, "recall_over_plain", both over the model as it is.
    """
    texts = [write_heads(heads) for heads in sets_of_heads]
    plain, *scores = sweep.run(
        [Setting("plain"), *(Setting(kind, text) for text in texts for kind in ("oracle", "uniform"))], title
    )
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


def select_heads(
    sweep: Sweep, effects: Effects, labels: str = "system", group: int = 4
) -> tuple[str, dict[str, Scores]]:
    """Greedy head selection of Section 5: at every layer mask the 4, 8, 12, ... heads of the largest effect.

    D11: layer by layer, and without the model as it is among the candidates.

    Args:
        labels: kind of labels to mask by.
        group: how many heads are added at a time; 4 in the paper.
    Returns:
        the heads with the largest ROUGE-1 + ROUGE-2 F1, of equal sets the one tried first (bottom layer, fewest
        heads); and the scores of all that was tried.
    """
    candidates = []
    for layer, order in ranked(effects).items():
        counts = [*range(group, len(order), group), len(order)]
        candidates += [write_heads({layer: order[:count]}) for count in counts]
    scores = sweep.run([Setting(labels, text) for text in candidates], "choice of heads")
    tried = dict(zip(candidates, scores, strict=True))
    return max(tried, key=lambda text: tried[text]["rouge1"].mean() + tried[text]["rouge2"].mean()), tried


# The command


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[str, ...]]  # summarisers: runs, folders or names of transformers' models
    select: bool = False  # choose the heads greedily, with masks by the first tagger (Section 5)
    effects: bool = False  # effects of single heads and of heads together (Figures 2, 3, 6, 7)
    focus: bool = False  # what the heads attend to (Figures 4, 8-10); CONTENT needs data with a field `pos`
    tagger: tuple[Path, ...] = ()  # run of a tagger
    group: Positive = 4  # heads that --select adds at a time (Section 5: 4)
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "validation"  # of the data
    limit: Positive | None = None  # first N examples only
    documents: Positive = 1000  # random ones of these (Section 4: 1,000)
    sweep_file: Path | None = None  # results so far, to go on with; default: RUN/sweep.jsonl
    method: Literal[("as-trained", *METHODS)] = "as-trained"  # of oracle labels; default: the tagger's, or runs
    min_run: Positive | None = None  # words of a labelled run, at least; default: as the tagger's, or 1
    min_keep: int = 5  # tokens that a masked head sees, at least (released code: 5)
    threshold: Boundary | None = None  # decision boundary in [0, 1); default: the tagger's own
    decoding: Literal["own", "cnn_dailymail", "nyt", "xsum"] = "own"  # the model's own settings, or Appendix A's
    max_length: Positive | None = None  # tokens; default: that of --decoding
    no_repeat_ngram_size: int | None = None  # so many words never twice in this order; default: that of --decoding
    batch_size: Positive = 32  # documents per batch
    device: str = "cpu"  # or cuda, mps
    json: Path | None = None  # write every number here; figures.py and evaluate --heads read it

    def check(self) -> None:
        """ValueError for values out of range, and for flags that do not go together."""
        check_fields(self)
        if not self.runs or not (self.select or self.effects or self.focus):
            raise ValueError("give the run of a summariser, and --select, --effects or --focus")
        if self.select and not self.tagger:
            raise ValueError("--select searches heads by the labels of a tagger: give --tagger RUN")
        if len({*map(name_of, self.runs)}) < len(self.runs):
            raise ValueError("two runs have folders of the same name; rename one")
        if not self.data and not is_run(self.runs[0]):
            raise ValueError(f"{self.runs[0]} is not a run that knows its data: give --data")
        if (self.select or self.effects) and not self.sweep_file and (len(self.runs) != 1 or not is_run(self.runs[0])):
            raise ValueError("there is no one run to keep the sweep in: give one run, or --sweep-file FILE")

    def generation(self) -> dict[str, float]:
        """Arguments of `generate`: beam 1 (Appendix A: in all analysis experiments), for which no penalty counts."""
        own = {k: v for k, v in PAPER_DECODING.get(self.decoding, {}).items() if k != "length_penalty"}
        given = dict(max_length=self.max_length, no_repeat_ngram_size=self.no_repeat_ngram_size)
        return own | {k: v for k, v in given.items() if v is not None} | {"num_beams": 1}


def analyse(
    run: Run, examples: Sequence[Example], taggers: Mapping[str, Run], labels: Labels, options: Options
) -> dict:
    """All that the flags ask for; `options` has paths and flags alone."""
    generation = options.generation()
    first = dict(list(taggers.items())[:1]) if options.select else {}
    tagged = {name: tag(of_tagger, [example.source for example in examples]) for name, of_tagger in first.items()}
    documents = read_documents(run, examples, labels, tagged)
    analysis: dict = {"documents": len(examples), "split": options.split, "seed": run.config.seed}
    analysis["sources"] = [checksum(example.source) for example in examples]
    analysis["sources_cut"] = sum(document.was_cut for document in documents)
    if options.select or options.effects:
        encoded = cache(lambda: list(encode(run.model, documents, options.batch_size)))  # not made if all is known

        def measure(setting: Setting) -> Scores:
            decoded = decode(run, documents, {"": setting}, encoded(), **generation)
            return score(collect(decoded, [""], examples)[""], examples)

        path = options.sweep_file or Path(options.runs[0]) / "sweep.jsonl"
        sweep = Sweep(path, measure, checksums(run, examples, documents, generation), len(examples))
        effects = content_selection_effects(sweep, all_heads(run.model))
        analysis["effects"] = [
            {"layer": layer, "head": head, "rouge1_recall": gain["rouge1_recall"].mean()} | improvement(gain)
            for (layer, head), gain in effects.items()
        ]
        if options.effects:
            analysis["synergy"], analysis["parts"] = synergy_rows(sweep, effects)
        for tagger in first:
            best, tried = select_heads(sweep, effects, f"system:{tagger}", options.group)
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
    for (layer, heads), gain in synergy(sweep, effects).items():
        row = {"layer": layer, "count": len(heads), "added": heads[-1]}
        row |= {"added_effect": effects[layer, heads[-1]]["rouge1"].mean()}
        steps.append(row | improvement(gain))
        if len(heads) == sum(of_layer == layer for of_layer, _ in effects):
            parts = sum_of_parts(effects, layer)
            for over, metric in (("over_uniform", "rouge1_recall"), ("over_plain", "recall_over_plain")):
                row = {"layer": layer, "over": over, "together": rouge.interval(gain[metric])}
                row |= {"parts": rouge.interval(parts[metric]), "p": rouge.paired_test(gain[metric], parts[metric])}
                totals.append(row)
    return steps, totals


def report(name: str, analysis: dict) -> str:
    """What was found, in a few lines: the heads in the order of their effect, and those that were chosen."""
    lines = [f"{name}: {analysis['documents']} documents of {analysis['split']}, {analysis['sources_cut']} cut"]
    order = sorted(analysis.get("effects", ()), key=lambda row: -row["over_uniform"]["mean"])
    best = [f"{row['layer']}:{row['head']} {row['over_uniform']['mean']:+.1f}" for row in order[:8]]
    lines += [f"  ROUGE-1 of oracle masks over uniform attention, best heads: {', '.join(best)}"] if best else []
    if chosen := analysis.get("selection"):
        value = {row["heads"]: row["rouge1"] + row["rouge2"] for row in chosen["tried"]}
        worse = "; without masks it did better (D11)" if value[""] >= value[chosen["heads"]] else ""
        lines.append(f"  heads {chosen['heads']} chosen with {chosen['tagger']}{worse}")
    return "\n".join(lines)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.sweep", description=__doc__)
    options.check()
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    summarizers, taggers = load_runs(options)
    data = options.data or next(iter(summarizers.values())).config.data
    inputs = [data, *Path(data).glob("*.jsonl")]
    check_outputs(options.sweep_file, inputs=inputs)
    check_outputs(options.json, inputs=[*inputs, *options.runs, *options.tagger, options.sweep_file or ""])
    examples = sample(load(data, options.split, options.limit), options.documents)
    rouge.check_references(examples)
    labels, analyses = labels_of(options, taggers), {}
    for name, run in summarizers.items():
        analyses[name] = analyse(run, examples, taggers, labels, options) | {"data": data}
        print(report(name, analyses[name]), flush=True)
    if options.json:
        write_json(options.json, {"analysis": analyses, "systems": {}})


if __name__ == "__main__":
    main()
