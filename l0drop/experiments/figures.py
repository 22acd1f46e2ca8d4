"""The paper's figures, one function each: a PNG and, of what is measured here, a CSV of its numbers.

python -m l0drop.experiments.figures --claims l0drop/experiments --out l0drop/experiments    # ours beside the paper's
python -m l0drop.experiments.figures --scores 2016_1.csv 2016_2.csv --out figures                          # 4 and 5
python -m l0drop.experiments.figures --run runs/l0-0.6-2 runs/l0-0.8-2 --baseline runs/base-2 --out figures   # 1, 6-8
python -m l0drop.experiments.figures --out figures                              # 1, 6-8 again, from the folder's CSVs

Figures 4 and 5 show what `shared.score` wrote of a lambda sweep, a file a base; Figure 8 every --run; 6 and 7 the first
--run. What they measure is in measures.py. Files of these names in the folder are replaced.
"""

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shared.data import Example, load, write_csv
from shared.run import one_line_errors, read_flags

from ..config import Positive
from ..loading import Run, load_run
from ..model import EOS, PAD
from ..predict import decode
from ..text import Item
from .measures import attention_maps, encode_all, mean_entropies, places_in_words, summed_attention
from .rules import UNIT_TYPES

THRESHOLD = 0.6  # captions of Figures 1 and 7: the share of source words that receive less
EDGES = np.append(np.arange(51) / 10, np.inf)  # bins of Figures 1 and 7; the last is open
CLAIMS = (  # what, the paper's difference (Tables 1 and 2, Section 6), tables, system, minus, metric
    ("fine-tuned minus control, 4,000 updates", -0.53, "multi30k/time_2017.csv", "target-4000", "more-4000", "bleu"),
    ("the same, constant lambda, 500 updates", -0.53, "multi30k/time_2017.csv", "l0-0.575", "more-500", "bleu"),
    ("the same, more pruned", -0.53, "multi30k/2017_?.csv", "l0-0.8", "longer", "bleu"),
    ("from scratch minus control", -0.56, "multi30k/2017_?.csv", "scratch", "base-4500", "bleu"),
    ("characters minus control", -0.05, "multi30k/characters.csv", "char-0.1", "char-longer", "bleu"),
    ("summaries minus control", -0.37, "samsum/rules_test.csv", "l0", "longer", "rougeLsum"),
    ("the same, more pruned, weaker BARTs", -0.37, "samsum/test_?.csv", "l0-0.3", "longer", "rougeLsum"),
    ("POS rule minus L0Drop, 4,000 updates", 0.05, "multi30k/time_2017.csv", "pos-4000", "target-4000", "bleu"),
    ("the same, 500 updates", 0.05, "multi30k/2017_?.csv", "pos", "l0-0.8", "bleu"),
    ("POS rule minus L0Drop, summaries", -0.94, "samsum/rules_test.csv", "pos", "l0", "rougeLsum"),
    ("Freq rule minus L0Drop, summaries", -0.84, "samsum/rules_test.csv", "freq", "l0", "rougeLsum"),
    ("Group rule minus L0Drop, summaries", -5.82, "samsum/rules_test.csv", "group", "l0", "rougeLsum"),
    ("Inv Freq rule minus L0Drop, summaries", -8.62, "samsum/rules_test.csv", "inv_freq", "l0", "rougeLsum"),
)
TYPE_NAMES = {"BPEH": "first pieces", "BPEO": "later pieces"}


@dataclass
class Options:
    """The command line."""

    out: Path  # Folder to write to.
    scores: tuple[Path, ...] = ()  # CSVs of shared.score, a base each; differences are from the system without gates.
    claims: Path | None = None  # Folder whose multi30k/ and samsum/ hold tables of shared.score.
    run: tuple[Path, ...] = ()  # L0Drop runs.
    baseline: Path | None = None  # Run without gates, beside --run: Figure 1 and the dashed lines of Figure 8.
    split: str = "test"  # Split of the data of the first run.
    limit: Positive | None = None  # First examples only.


def new_figure(title: str, x: str, y: str, rows: int = 1):
    """A figure of one or two panels above each other."""
    from matplotlib.figure import Figure

    figure = Figure((6.4, 2.4 + 1.8 * rows), layout="constrained")
    figure.suptitle(title, fontsize=10)
    panels = list(figure.subplots(rows, sharex=True, squeeze=False).flat)
    for panel in panels:
        panel.set(ylabel=y)
    panels[-1].set(xlabel=x)
    return figure, panels


def save_figure(out: Path, name: str, figure) -> None:
    """Write NAME.png."""
    figure.savefig(out / f"{name}.png", dpi=150)
    print(out / f"{name}.png", flush=True)


def read_rows(path: Path) -> list[dict]:
    """The rows of a CSV, numbers as numbers."""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    text = ("run", "place")
    return [{name: value if name in text else float(value) for name, value in row.items()} for row in rows]


def summed_rows(name: str, run: Run, examples: Sequence[Example]) -> list[dict]:
    """Figures 1 and 7: distribution of the summed attention per source encoding, in the baseline and with L0Drop."""
    outputs = list(decode(run, examples))
    is_pruned = [output.pruned[-1] for output in outputs]
    texts = [[token for token in output.tokens if token not in (PAD, EOS)] for output in outputs]
    maps = attention_maps(run.model, [output.item for output in outputs], texts)
    sums, on_pruned = summed_attention(maps, is_pruned)
    counts, mean, below = np.histogram(sums, EDGES)[0], float(sums.mean()), float((sums < THRESHOLD).mean())
    sparsity = 100 - 100 * len(sums) / sum(map(len, is_pruned))
    summary = {"mean": mean, f"share_below_{THRESHOLD}": below, "sparsity": sparsity, "attention_on_pruned": on_pruned}
    bins = zip(EDGES[:-1].tolist(), EDGES[1:].tolist(), counts.tolist(), strict=True)
    return [{"run": name, "from": low, "to": high, "encodings": count} | summary for low, high, count in bins]


def figure_1_or_7(out: Path, name: str, rows: Sequence[dict]) -> None:
    """Figures 1 and 7, from `summed_rows`; both over the same range, that of the paper."""
    counts, mean = np.array([row["encodings"] for row in rows]), rows[0]["mean"]
    kept, below = ("source", "retained")[name == "figure_7"] + " encoding", 100 * rows[0][f"share_below_{THRESHOLD}"]
    title = f"Figure {name[-1]}: a {kept} receives {mean:.2f} in all, {below:.0f} % of them less than {THRESHOLD}"
    figure, [axes] = new_figure(title, "attention summed over the target tokens", f"{kept}s, %")
    axes.bar([row["from"] for row in rows], 100 * counts / counts.sum(), 0.1, align="edge", edgecolor="white")
    axes.axvline(mean, color="tab:orange")
    axes.annotate("mean", (mean, 0.95), (4, 0), ("data", "axes fraction"), "offset points", color="tab:orange")
    axes.axvline(THRESHOLD, color="gray", linestyle=":")
    axes.set_xlim(0, 3)
    save_figure(out, name, figure)


def read_scores(path: Path) -> list[dict]:
    """Systems of a CSV of `shared.score` by rising sparsity: {metric: value, "difference": (value, low, high)}.

    The difference is from the system that prunes nothing, in BLEU or ROUGE-L; of that system it is 0.
    """
    systems, differences = defaultdict(dict), {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not row["minus"]:
                systems[row["system"]][row["metric"]] = float(row["value"])
            elif row["metric"] in ("bleu", "rougeLsum"):
                values = tuple(float(row[name]) for name in ("value", "low", "high"))
                differences[row["system"], row["minus"]] = values
    control = next(name for name, system in systems.items() if not system["pruned"])
    shown = [name for name in systems if name == control or name.startswith("l0")]
    zero = (0.0, 0.0, 0.0)
    rows = [systems[name] | {"system": name, "difference": differences.get((name, control), zero)} for name in shown]
    return sorted(rows, key=lambda row: row["pruned"])


def figure_4(out: Path, bases: dict[str, list[dict]]) -> None:
    """Figure 4: difference in quality from the control, with its 95 % interval, against sparsity; a line a base."""
    quality = "BLEU" if "bleu" in next(iter(bases.values()))[0] else "ROUGE-L"
    ends = [rows[-1]["difference"][0] for rows in bases.values()]
    cost = f"{-max(ends):.1f} to {-min(ends):.1f} {quality}"
    title = f"Figure 4: the more is pruned, the more it costs: at the end {cost}"
    figure, [axes] = new_figure(title, "sparsity, % of source encodings", f"{quality} minus the control's")
    for number, (name, rows) in enumerate(bases.items()):
        x, y = [row["pruned"] for row in rows], np.array([row["difference"] for row in rows]).T
        axes.errorbar(x, y[0], [y[0] - y[1], y[2] - y[0]], marker="os^vD"[number % 5], capsize=2, elinewidth=0.7)
        axes.annotate(name, (x[-1], y[0][-1]), (6, 0), textcoords="offset points", va="center", fontsize=8)
        for row in rows[1:] if number == 0 else []:
            place = row["pruned"], row["difference"][2]
            name = row["system"].replace("l0-", "$\\lambda$ ")
            axes.annotate(name, place, (0, 3), textcoords="offset points", fontsize=8, ha="center")
    axes.axhline(0, color="gray", linestyle=":")
    axes.margins(x=0.12)
    save_figure(out, "figure_4", figure)


def figure_5(out: Path, name: str, rows: list[dict]) -> None:
    """Figure 5: sparsity of each type of source encoding against the overall one."""
    shares = {kind: [row.get(f"pruned_{kind}", np.nan) for row in rows] for kind in UNIT_TYPES}
    order = sorted(shares, key=lambda kind: shares[kind][-1])
    least, most = (TYPE_NAMES.get(kind, kind) for kind in (order[0], order[-1]))
    title = f"Figure 5: {most} most, {least} least ({name}, highest lambda)"
    within = "sparsity within the type, % (dotted: all alike)"
    figure, [axes] = new_figure(title, "sparsity, % of all source encodings", within)
    x, y = [row["pruned"] for row in rows], -10.0
    for kind in order:
        axes.plot(x, shares[kind], "o-")
        y = max(shares[kind][-1], y + 4.5)  # labels lie beside each other
        label = TYPE_NAMES.get(kind, kind)
        axes.annotate(label, (x[-1], y), (6, 0), textcoords="offset points", va="center", fontsize=8)
    axes.axline((0, 0), slope=1, color="gray", linestyle=":")
    axes.set_xlim(-2, x[-1] * 1.25)
    save_figure(out, "figure_5", figure)


def figure_claims(out: Path, folder: Path) -> None:
    """The paper's differences (diamonds) beside ours, a panel a metric: a point a baseline, with its interval."""
    from matplotlib.figure import Figure

    metrics = {"bleu": "difference in BLEU, translations", "rougeLsum": "difference in ROUGE-L, summaries"}
    claims = {metric: [claim for claim in CLAIMS if claim[-1] == metric] for metric in metrics}
    figure = Figure((8, 0.4 * len(CLAIMS) + 1.6), layout="constrained")
    panels = figure.subplots(2, 1, height_ratios=[len(rows) for rows in claims.values()])
    for axes, metric in zip(panels, metrics, strict=True):
        labels = [claim_row(axes, place, folder, claim) for place, claim in enumerate(claims[metric])]
        axes.axvline(0, color="gray", linestyle=":")
        axes.set(xlabel=metrics[metric])
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.set_ylim(len(labels) - 0.5, -0.6)
    title = "What pruning costs here (blue, a point a baseline) and in the paper (orange, mostly at 39 to 50 %)"
    figure.suptitle(title, fontsize=10)
    save_figure(out, "claims", figure)


def claim_row(axes, place: int, folder: Path, claim: tuple) -> str:
    """Draw one claim; its label says what it is and how much is pruned."""
    what, papers, tables, system, minus, metric = claim
    axes.plot(papers, place - 0.3, "D", color="tab:orange")
    shares = []
    for number, path in enumerate(sorted(folder.glob(tables))):
        with path.open(encoding="utf-8") as file:
            rows = {(row["system"], row["minus"], row["metric"]): row for row in csv.DictReader(file)}
        value, low, high = (float(rows[system, minus, metric][name]) for name in ("value", "low", "high"))
        bars = [[value - low], [high - value]]
        axes.errorbar(value, place + 0.15 * number - 0.1, xerr=bars, fmt="o", color="tab:blue", capsize=2)
        shares.append(round(float(rows[system, "", "pruned"]["value"])))
    return f"{what}\n{' to '.join(str(share) for share in sorted({min(shares), max(shares)}))} % pruned"


def place_rows(run: Run, examples: Sequence[Example]) -> list[dict]:
    """Figure 6: the share of characters that is pruned, by their place in their words."""
    closed = defaultdict(list)
    for example, is_pruned in zip(examples, encode_all(run.model, run.encode(examples))[0], strict=True):
        encoding = run.tokenizer.encode(example.source)
        places = places_in_words(encoding.tokens, encoding.word_ids)
        for place, value in zip(places, is_pruned[:-1], strict=False):  # what was cut has no gate
            closed[place].append(int(value))
    closed = dict(sorted(closed.items()))
    return [{"place": p, "characters": len(v), "pruned": sum(v), "rate": sum(v) / len(v)} for p, v in closed.items()]


def figure_6(out: Path, name: str, rows: Sequence[dict]) -> None:
    """Figure 6, from `place_rows`."""
    rates = {row["place"]: 100 * row["rate"] for row in rows}
    inside = [rate for place, rate in rates.items() if place[0].isdigit()]
    title = f"Figure 6: {inside[0]:.0f} % of first characters are pruned, {inside[-1]:.0f} % of last"
    figure, [axes] = new_figure(title, "place in the word: 0 = first character, 1 = last", "pruned, %")
    axes.bar(rates.keys(), rates.values())
    save_figure(out, name, figure)


def entropy_rows(runs: dict[str, Run], baseline: Run, items: Sequence[Item]) -> list[dict]:
    """Figure 8: entropy of the last encoder layer's attention; the baseline's is split by the gates of each run."""
    rows, from_baseline = [], encode_all(baseline.model, items)[1]
    for name, run in runs.items():
        pruned, entropies = encode_all(run.model, items)
        row = {"run": name, "lambda": run.config.l0_weight, "sparsity": 100 * float(np.concatenate(pruned).mean())}
        row["retained"], row["pruned"] = mean_entropies(entropies, pruned)
        row["baseline_retained"], row["baseline_pruned"] = mean_entropies(from_baseline, pruned)
        rows.append(row)
    return sorted(rows, key=lambda row: row["sparsity"])


def figure_8(out: Path, name: str, rows: Sequence[dict]) -> None:
    """Figure 8, from `entropy_rows`: a panel for retained encodings, one for pruned ones."""
    title = "Figure 8: how evenly the encoder attends from an encoding (dashed: in the baseline)"
    figure, panels = new_figure(title, "sparsity, % of source encodings", "entropy, nats", 2)
    x = [row["sparsity"] for row in rows]
    for axes, kind in zip(panels, ("retained", "pruned"), strict=True):
        axes.plot(x, [row[kind] for row in rows], "o-", color="tab:blue")
        axes.plot(x, [row[f"baseline_{kind}"] for row in rows], "o--", color="tab:blue", alpha=0.6)
        axes.set_title(kind, fontsize=9)
    save_figure(out, name, figure)


MEASURED = {"figure_1": figure_1_or_7, "figure_6": figure_6, "figure_7": figure_1_or_7, "figure_8": figure_8}


def measure(options: Options) -> None:
    """Write the CSVs of Figures 1, 6, 7 and 8."""
    if not options.baseline:
        raise ValueError("--run needs a run without gates beside it: add --baseline")
    runs, baseline = {path.name: load_run(path) for path in options.run}, load_run(options.baseline)
    name, run = next(iter(runs.items()))
    examples = load(run.config.data, options.split, options.limit)
    tables = {
        "figure_1": summed_rows(options.baseline.name, baseline, examples),
        "figure_7": summed_rows(name, run, examples),
        "figure_8": entropy_rows(runs, baseline, run.encode(examples)),
    }
    if run.config.units == "char":
        tables["figure_6"] = place_rows(run, examples)
    for figure, rows in tables.items():
        with (options.out / f"{figure}.csv").open("w", encoding="utf-8") as file:
            write_csv(file, rows)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.claims:
        figure_claims(options.out, options.claims)
    if options.scores:
        bases = {path.stem.replace("_", ", baseline "): read_scores(path) for path in options.scores}
        figure_4(options.out, bases)
        figure_5(options.out, *list(bases.items())[-1])
    if options.run:
        measure(options)
    for name, draw in MEASURED.items():
        if (path := options.out / f"{name}.csv").exists():
            draw(options.out, name, read_rows(path))


if __name__ == "__main__":
    main()
