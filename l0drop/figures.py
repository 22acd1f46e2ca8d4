"""The paper's figures, one function each: a PNG and, beside it, a CSV of the numbers that it shows.

python -m l0drop.figures metrics.json --out figures                                # Figures 3, 4, 5
python -m l0drop.figures metrics.json --out figures --run runs/l0 --baseline runs/base   # Figures 1, 2, 6, 7, 8 too

Figures 4 and 5 show the metrics of a lambda sweep, Figure 8 every --run; 2, 6 and 7 show the first --run. What they
measure is in measures.py. Several metrics files are several seeds: points are their means, bars their range.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shared.data import Example, load, write_csv
from shared.timing import find_device

from .evaluate import decode_all
from .gates import BETA, EPSILON, open_probability, stretched_density
from .measures import attention_maps, encode_all, mean_entropies, places_in_words, summed_attention
from .model import EOS
from .patterns import UNIT_TYPES
from .run import one_line_errors
from .text import Item, encode_examples
from .train import Run, load_run

THRESHOLD = 0.6  # captions of Figures 1 and 7: the share of source words that receive less
EDGES = np.append(np.arange(51) / 10, np.inf)  # bins of Figures 1 and 7; the last is open
LONGEST = 24  # source tokens of the sentence that Figure 2 shows, at most, if there is such a sentence


@dataclass
class Options:
    """The command line."""

    metrics: tyro.conf.Positional[tuple[Path, ...]]  # what l0drop.evaluate --json wrote on a sweep, a file per seed
    out: Path  # folder to write to
    run: tuple[Path, ...] = ()  # L0Drop runs; Figures 2, 6 and 7 show the first, Figure 8 all
    baseline: Path | None = None  # a run without gates, for Figures 1, 2 and 8
    sparse: Path | None = None  # a run with --cross-attention entmax, for Figure 2
    data: str = ""  # default: the first run's
    split: str = "test"
    limit: int | None = None  # first N examples only
    device: str = "cpu"


class Corpus:
    """Sentences, and runs that read them as the same tokens."""

    def __init__(self, examples: Sequence[Example], runs: dict[str, Run], note: str):
        self.examples, self.note, self.items = examples, f"{note}, {len(examples)} examples", None
        for name, run in runs.items():
            items = encode_examples(examples, run.tokenizer, run.config.max_source, run.config.max_target)
            if self.items and [item.source for item in items] != [item.source for item in self.items]:
                raise ValueError(f"{name} cuts the source into other tokens than {next(iter(runs))}: draw it by itself")
            self.items: list[Item] = items


def new_figure(title: str, x: str, y: str, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of one or two panels above each other."""
    figure = Figure((6.4, 2.4 + 1.8 * rows), layout="constrained")
    panels = list(figure.subplots(rows, sharex=True, squeeze=False).flat)
    figure.suptitle(title, fontsize=10)
    panels[-1].set_xlabel(x)
    for panel in panels:
        panel.set_ylabel(y)
    return figure, panels


def save_figure(out: Path, name: str, figure: Figure, rows: Sequence[dict]) -> None:
    """Write NAME.png and NAME.csv and say so."""
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.png", dpi=150)
    write_csv(out / f"{name}.csv", rows)
    print(out / f"{name}.png", flush=True)


# Figures that show runs


def figure_1_or_7(out: Path, number: int, name: str, run: Run, corpus: Corpus) -> None:
    """Figures 1 and 7: distribution of the summed attention per source encoding, in the baseline and with L0Drop."""
    outputs = decode_all(run, corpus.items, 32, True)
    is_pruned = [output.pruned[-1] for output in outputs]
    maps = attention_maps(run.model, corpus.items, [output.tokens for output in outputs])
    sums, on_pruned = summed_attention(maps, is_pruned)
    if not len(sums):
        raise ValueError(f"{name} prunes every encoding: Figure {number} has nothing to show, give another --run")
    counts, mean, below = np.histogram(sums, EDGES)[0], float(sums.mean()), float((sums < THRESHOLD).mean())
    sparsity = 100 - 100 * len(sums) / sum(map(len, is_pruned))
    summary = {"mean": mean, f"share_below_{THRESHOLD}": below, "sparsity": sparsity, "attention_on_pruned": on_pruned}
    bins = zip(EDGES[:-1].tolist(), EDGES[1:].tolist(), counts.tolist(), strict=True)
    rows = [{"run": name, "from": low, "to": high, "encodings": count} | summary for low, high, count in bins]

    kept = "retained source encoding" if run.model.l0drop else "source encoding"
    title = f"Figure {number}: summed attention per {kept}, {sparsity:.0f} % pruned\n{name} on {corpus.note}"
    figure, [axes] = new_figure(title, "attention summed over the target tokens", f"{kept}s, %")
    axes.bar(EDGES[:-1], 100 * counts / len(sums), 0.1, align="edge", edgecolor="white", linewidth=0.5)
    axes.axvline(THRESHOLD, color="gray", linestyle=":", label=f"below {THRESHOLD}: {100 * below:.1f} %")
    axes.axvline(mean, color="tab:orange", label=f"mean: {mean:.2f}")
    shown = np.searchsorted(counts.cumsum(), 0.995 * len(sums)) + 1  # bins that hold nearly all encodings
    axes.set_xlim(0, max(1.0, shown / 10))
    axes.legend()
    save_figure(out, f"figure_{number}", figure, rows)


def figure_2(out: Path, systems: dict[str, Run], corpus: Corpus) -> None:
    """Figure 2: attention of one sentence's output (y) to its source (x), pruned tokens in red and at 0.

    Args:
        systems: the L0Drop run last; its gates colour the tokens.
    """
    *_, gated = systems.values()
    pruned, _ = encode_all(gated.model, corpus.items)
    chosen = choose_sentence(pruned)
    item, is_pruned = corpus.items[chosen], pruned[chosen]
    panels, rows = [], []
    for name, run in systems.items():
        [output] = decode_all(run, [item], 1, True)
        [weights] = attention_maps(run.model, [item], [output.tokens])
        if run.model.l0drop:
            weights = weights.masked_fill(torch.from_numpy(is_pruned), 0)  # the dummy has the rest of each row
        source, target = ([run.tokenizer.id_to_token(t) for t in side] for side in (item.source, [*output.tokens, EOS]))
        panels.append((name, weights.numpy(), source, target))
        for (t, s), weight in np.ndenumerate(weights.numpy()):
            place = {"target_position": t, "target": target[t], "source_position": s, "source": source[s]}
            rows.append({"run": name} | place | {"pruned": int(is_pruned[s]), "weight": float(weight)})
    shown = min(len(is_pruned), 2 * LONGEST)  # more would not be legible
    rows_and_columns = (len(panels), 1) if shown > LONGEST else (1, len(panels))
    width, height = 0.2 * shown + 1.4, 0.2 * max(len(target) for *_, target in panels) + 1.6
    figure = Figure((width * rows_and_columns[1], height * rows_and_columns[0]), layout="constrained")
    largest = max(weights.max() for _, weights, _, _ in panels)  # one scale for all panels
    all_axes = figure.subplots(*rows_and_columns, squeeze=False).flat
    for axes, (name, weights, source, target) in zip(all_axes, panels, strict=True):
        axes.imshow(np.ma.masked_equal(weights[:, :shown], 0), cmap="Blues", vmin=0, vmax=largest)  # zeros stay white
        axes.set_xticks(range(shown), source[:shown], rotation=90, fontsize=7)
        axes.set_yticks(range(len(target)), target, fontsize=7)
        for label, red in zip(axes.get_xticklabels(), is_pruned[:shown], strict=True):
            label.set_color("red" if red else "black")
        axes.set_title(name, fontsize=9)
    figure.suptitle("Figure 2: attention of output (y) to source tokens (x); red: pruned by L0Drop", fontsize=9)
    save_figure(out, "figure_2", figure, rows)


def choose_sentence(pruned: Sequence[np.ndarray]) -> int:
    """Index of the first source of at most LONGEST tokens that is pruned in part, else of the shortest source."""
    lengths = [len(closed) for closed in pruned]
    return next(
        (i for i, n in enumerate(lengths) if n <= LONGEST and pruned[i].any() and not pruned[i].all()),
        int(np.argmin(lengths)),
    )


def figure_6(out: Path, name: str, run: Run, corpus: Corpus) -> None:
    """Figure 6: where in their words pruned characters stand; above their distribution, below the share pruned."""
    total, pruned = Counter(), Counter()
    for example, row in zip(corpus.examples, encode_all(run.model, corpus.items)[0], strict=True):
        encoding = run.tokenizer.encode(example.source)
        for place, is_pruned in zip(places_in_words(encoding.tokens, encoding.word_ids), row[:-1], strict=False):
            total[place] += 1
            pruned[place] += int(is_pruned)
    rows = [
        {"place": p, "characters": total[p], "pruned": pruned[p], "rate": pruned[p] / total[p]} for p in sorted(total)
    ]
    inside = [row for row in rows if row["place"][0].isdigit()]
    all_inside = sum(row["pruned"] for row in inside) or 1
    title = f"Figure 6: position of pruned characters in their words\n{name} on {corpus.note}"
    figure, [above, below] = new_figure(title, "position: 0 = first character, 1 = last", "of the pruned, %", rows=2)
    above.bar([row["place"] for row in inside], [100 * row["pruned"] / all_inside for row in inside])
    below.bar([row["place"] for row in rows], [100 * row["rate"] for row in rows], color="tab:orange")
    below.set_ylabel("pruned at this place, %")
    save_figure(out, "figure_6", figure, rows)


def figure_8(out: Path, runs: dict[str, Run], baseline: Run | None, corpus: Corpus) -> None:
    """Figure 8: entropy of the last encoder layer's attention against sparsity, of retained and pruned encodings.

    The baseline's encodings are split by the gates of each run.
    """
    rows = []
    from_baseline = encode_all(baseline.model, corpus.items)[1] if baseline else None
    for name, run in runs.items():
        pruned, entropies = encode_all(run.model, corpus.items)
        row = {"run": name, "lambda": run.config.l0_weight, "sparsity": 100 * float(np.concatenate(pruned).mean())}
        row["retained"], row["pruned"] = mean_entropies(entropies, pruned)
        if from_baseline:
            row["baseline_retained"], row["baseline_pruned"] = mean_entropies(from_baseline, pruned)
        rows.append(row)
    rows.sort(key=lambda row: row["sparsity"])
    title = f"Figure 8: entropy of the last encoder layer's attention\n{corpus.note}"
    figure, panels = new_figure(title, "sparsity, % of source encodings", "entropy, nats", rows=2)
    for axes, kind in zip(panels, ("retained", "pruned"), strict=True):
        axes.set_title(f"{kind} encodings", fontsize=9)
        for label, column, style in (("L0Drop", kind, "o-"), ("baseline", f"baseline_{kind}", "s--")):
            if column in rows[0]:
                axes.plot([row["sparsity"] for row in rows], [row[column] for row in rows], style, label=label)
        axes.legend()
    save_figure(out, "figure_8", figure, rows)


# A figure that shows the distribution alone


def figure_3(out: Path, log_alpha: float = 0.0) -> None:
    """Figure 3: density of the gates for one log alpha."""
    gate = torch.linspace(-EPSILON, 1 + EPSILON, 241)[1:-1]
    inside = (gate > 0) & (gate < 1)
    binary = stretched_density(gate, log_alpha, epsilon=0.0).where(inside, torch.nan)
    stretched = stretched_density(gate, log_alpha)
    # p(g = 0) as in Eq. (10); p(g = 1) is p(g = 0) at -log alpha, because logistic noise is symmetric.
    masses = {end: 1 - open_probability(torch.tensor(sign * log_alpha)).item() for end, sign in ((0, 1), (1, -1))}
    columns = ("gate", "binary_concrete", "stretched", "point_mass")
    curves = zip(gate.tolist(), binary.tolist(), stretched.tolist(), strict=True)
    rows = [dict(zip(columns, (*curve, ""), strict=True)) for curve in curves]
    rows += [dict(zip(columns, (end, "", "", mass), strict=True)) for end, mass in masses.items()]

    title = f"Figure 3: HardConcrete gate, log alpha {log_alpha:g}, beta {BETA:.2f}, epsilon {EPSILON:g}"
    figure, [axes] = new_figure(title, "gate", "density; of the points: probability")
    axes.plot(gate, binary, "--", color="tab:blue", label="BinaryConcrete, Eq. (6)")
    axes.plot(gate, stretched, color="tab:blue", label="stretched, Eq. (7)")
    axes.plot(gate[inside], stretched[inside], color="tab:orange", label="rectified, Eq. (8)")
    axes.plot(masses.keys(), masses.values(), "o", color="tab:orange", label="its mass at 0 and 1")
    axes.fill_between(gate, stretched, where=~inside, color="tab:blue", alpha=0.2)
    axes.set_ylim(0, 2)
    axes.legend()
    save_figure(out, "figure_3", figure, rows)


# Figures that show metrics


def read_metrics(path: Path) -> dict:
    """What l0drop.evaluate --json wrote; ValueError that names the file."""
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        for system in metrics["systems"].values():
            system["sparsity"], system["lambda"], system[metrics["metric"]]["mean"]
        return metrics
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not what l0drop.evaluate --json writes ({error!r})") from None


def sweep(metrics: dict) -> list[dict]:
    """The systems of a metrics file by rising sparsity, each with its name and quality."""
    rows = [{"run": name, "quality": s[metrics["metric"]]} | s for name, s in metrics["systems"].items()]
    return sorted(rows, key=lambda row: row["sparsity"])


def caption(metrics: dict) -> str:
    return f"{metrics['data']} {metrics['split']}, {metrics['examples']} examples"


def figure_4(out: Path, files: Sequence[dict]) -> None:
    """Figure 4: quality, with its 95 % interval, against sparsity over the lambda sweep; a line per file (seed)."""
    quality, rows = {"bleu": "BLEU", "rougeLsum": "ROUGE-L"}[files[0]["metric"]], []
    title = f"Figure 4: quality against sparsity\n{caption(files[0])}"
    figure, [axes] = new_figure(title, "sparsity, % of source encodings", f"{quality}, 95 % interval")
    for metrics, marker in zip(files, "os^vDx", strict=False):
        systems = sweep(metrics)
        seed = systems[0]["seed"]
        x, y = [row["sparsity"] for row in systems], [row["quality"] for row in systems]
        spread = [[q["mean"] - q["low"] for q in y], [q["high"] - q["mean"] for q in y]]
        axes.errorbar(x, [q["mean"] for q in y], spread, marker=marker, capsize=2, label=f"seed {seed}")
        rows += [{k: row[k] for k in ("run", "seed", "lambda", "sparsity")} | row["quality"] for row in systems]
    pruning = (row for row in sweep(files[0]) if row["sparsity"] > 1)  # those at 0 lie on each other
    for row in pruning:
        place = (row["sparsity"], row["quality"]["high"])
        axes.annotate(
            f"$\\lambda$ {row['lambda']:g}", place, (0, 4), textcoords="offset points", fontsize=8, ha="center"
        )
    axes.legend()
    save_figure(out, "figure_4", figure, rows)


def figure_5(out: Path, name: str, metrics: dict, key: str, order: Sequence[str]) -> None:
    """Figure 5: sparsity of each type (or, on toy, kind of sentence) of source encoding against the overall one."""
    systems = [row for row in sweep(metrics) if key in row]
    labels = [label for label in order if any(label in row[key] for row in systems)]
    if not labels:
        print(f"{name}: not drawn, {caption(metrics)} has no labels for it: evaluate with --stanza FOLDER")
        return
    title = f"Figure 5: sparsity by {key.rpartition('_')[2]}\n{caption(metrics)}, seed {systems[0]['seed']}"
    figure, [axes] = new_figure(title, "sparsity, % of all source encodings", "sparsity within the group, %")
    for label, marker in zip(labels, "os^vDx", strict=False):
        shares = [row[key].get(label, np.nan) for row in systems]
        axes.plot([row["sparsity"] for row in systems], shares, f"{marker}-", label=label)
    axes.axline((0, 0), slope=1, color="gray", linestyle=":", label="all alike")
    axes.legend(fontsize=8)
    rows = [{k: row[k] for k in ("run", "seed", "lambda", "sparsity")} | row[key] for row in systems]
    save_figure(out, name, figure, rows)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(Options, prog=f"python -m {__package__}.figures", description=__doc__, args=arguments)
    files = [read_metrics(path) for path in options.metrics]
    runs = {path.name: load_run(path) for path in options.run}
    others = {path.name: load_run(path) for path in (options.baseline, options.sparse) if path}
    if len({**runs, **others}) < len(options.run) + len(others):
        raise ValueError("two runs have folders of the same name; rename one")
    for name, run in runs.items():
        if not run.model.l0drop:
            raise ValueError(f"--run {name} has no L0Drop layer; give it as --baseline or --sparse")
    for name, run in others.items():
        if run.model.l0drop or run.config.pattern != "none":
            raise ValueError(f"{name} prunes: --baseline and --sparse take runs trained with --l0drop none")
    figure_3(options.out)
    if files:
        figure_4(options.out, files)
        figure_5(options.out, "figure_5", files[0], "sparsity_by_type", UNIT_TYPES)
        figure_5(options.out, "figure_5_kinds", files[0], "sparsity_by_kind", ("main", "repeat", "detail", "filler"))
    if not runs and not others:
        return
    for run in [*runs.values(), *others.values()]:
        run.model.to(find_device(options.device))
    first = next(iter([*runs.values(), *others.values()]))
    data = options.data or first.config.data
    examples = load(data, options.split, options.limit)
    corpus = Corpus(examples, runs | others, f"{data} {options.split}, seed {first.config.seed}")
    if options.baseline:
        figure_1_or_7(options.out, 1, options.baseline.name, others[options.baseline.name], corpus)
    if runs:
        name, run = next(iter(runs.items()))
        figure_2(options.out, others | {name: run}, corpus)
        if run.config.units == "char":
            figure_6(options.out, name, run, corpus)
        figure_1_or_7(options.out, 7, name, run, corpus)
        figure_8(options.out, runs, others.get(options.baseline.name) if options.baseline else None, corpus)


if __name__ == "__main__":
    main()
