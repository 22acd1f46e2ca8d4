"""The paper's figures, one function each: a PNG and, beside it, a CSV of the numbers that it shows.

python -m l0drop.experiments.figures metrics.json --out figures                                # Figures 3, 4, 5
python -m l0drop.experiments.figures metrics.json --out figures --run runs/l0 --baseline runs/base   # 1, 2, 6, 7, 8

Figures 4 and 5 show the metrics of a lambda sweep, Figure 8 every --run; 2, 6 and 7 show the first --run. What they
measure is in measures.py. Several metrics files are several seeds: Figure 4 has a line for each.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import tyro

from shared.data import Example, load, read_json, write_csv
from shared.timing import find_device

from ..decode import decode_all
from ..evaluate import load_runs
from ..gates import BETA, EPSILON, open_probability
from ..loading import Run
from ..model import EOS
from ..patterns import UNIT_TYPES
from ..run import Positive, check_fields, one_line_errors, read_flags
from ..text import Item
from .entmax import load_entmax
from .measures import attention_maps, encode_all, mean_entropies, places_in_words, stretched_density, summed_attention

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THRESHOLD = 0.6  # captions of Figures 1 and 7: the share of source words that receive less
EDGES = np.append(np.arange(51) / 10, np.inf)  # bins of Figures 1 and 7; the last is open
KINDS = ("main", "repeat", "detail", "filler", "speaker", "interjection", "punctuation", "function", "content", "other")
LONGEST = 24  # source tokens of the sentence that Figure 2 shows, at most, if there is such a sentence


@dataclass
class Options:
    """The command line."""

    metrics: tyro.conf.Positional[tuple[Path, ...]]  # what l0drop.evaluate --json wrote on a sweep, a file per seed
    out: Path  # folder to write to
    run: tuple[Path, ...] = ()  # L0Drop runs; Figures 2, 6 and 7 show the first, Figure 8 all
    baseline: Path | None = None  # a run without gates, for Figures 1, 2 and 8
    sparse: Path | None = None  # a run of experiments/entmax.py, for Figure 2
    data: str = ""  # default: the first run's
    split: str = "test"
    limit: Positive | None = None  # first N examples only
    device: str = "cpu"


def new_figure(title: str, x: str, y: str, rows: int = 1) -> "tuple[Figure, list[Axes]]":
    """A figure of one or two panels above each other."""
    from matplotlib.figure import Figure

    figure = Figure((6.4, 2.4 + 1.8 * rows), layout="constrained")
    figure.suptitle(title, fontsize=10)
    panels = list(figure.subplots(rows, sharex=True, squeeze=False).flat)
    for panel in panels:
        panel.set(ylabel=y)
    panels[-1].set(xlabel=x)
    return figure, panels


def save_figure(out: Path, name: str, figure: "Figure", rows: Sequence[dict]) -> None:
    """Write NAME.png and NAME.csv and say so."""
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.png", dpi=150)
    write_csv(out / f"{name}.csv", rows)
    print(out / f"{name}.png", flush=True)


def figure_1_or_7(out: Path, number: int, name: str, run: Run, items: Sequence[Item], note: str) -> None:
    """Figures 1 and 7: distribution of the summed attention per source encoding, in the baseline and with L0Drop."""
    outputs = decode_all(run, items)
    is_pruned = [output.pruned[-1] for output in outputs]
    maps = attention_maps(run.model, items, [output.tokens for output in outputs])
    sums, on_pruned = summed_attention(maps, is_pruned)
    if not len(sums):
        raise ValueError(f"{name} prunes every encoding: Figure {number} has nothing to show, give another --run")
    counts, mean, below = np.histogram(sums, EDGES)[0], float(sums.mean()), float((sums < THRESHOLD).mean())
    sparsity = 100 - 100 * len(sums) / sum(map(len, is_pruned))
    summary = {"mean": mean, f"share_below_{THRESHOLD}": below, "sparsity": sparsity, "attention_on_pruned": on_pruned}
    bins = zip(EDGES[:-1].tolist(), EDGES[1:].tolist(), counts.tolist(), strict=True)
    rows = [{"run": name, "from": low, "to": high, "encodings": count} | summary for low, high, count in bins]
    kept = "retained source encoding" if run.model.l0drop else "source encoding"
    title = f"Figure {number}: summed attention per {kept}, {sparsity:.0f} % pruned\n{name} on {note}"
    figure, [axes] = new_figure(title, "attention summed over the target tokens", f"{kept}s, %")
    axes.bar(EDGES[:-1], 100 * counts / len(sums), 0.1, align="edge", edgecolor="white", linewidth=0.5)
    axes.axvline(THRESHOLD, color="gray", linestyle=":", label=f"below {THRESHOLD}: {100 * below:.1f} %")
    axes.axvline(mean, color="tab:orange", label=f"mean: {mean:.2f}")
    axes.set_xlim(0, max(1.0, np.ceil(10 * np.quantile(sums, 0.995)) / 10))
    axes.legend()
    save_figure(out, f"figure_{number}", figure, rows)


def figure_2(out: Path, systems: dict[str, Run], items: Sequence[Item]) -> None:
    """Figure 2: attention of one sentence's output (y) to its source (x), pruned tokens in red and at 0.

    Args:
        systems: the L0Drop run last; its gates colour the tokens.
    """
    from matplotlib.figure import Figure

    *_, gated = systems.values()
    pruned, _ = encode_all(gated.model, items)
    chosen, maps, rows = choose_sentence(pruned), {}, []
    item, is_pruned = items[chosen], pruned[chosen]
    source = [gated.tokenizer.id_to_token(token) for token in item.source]
    for name, run in systems.items():
        [output] = decode_all(run, [item])
        [weights] = attention_maps(run.model, [item], [output.tokens])
        if run.model.l0drop:
            weights = weights.masked_fill(torch.from_numpy(is_pruned), 0)  # the dummy has the rest of each row
        target = [run.tokenizer.id_to_token(token) for token in [*output.tokens, EOS]]
        maps[name] = target, weights.numpy()
        for (t, s), weight in np.ndenumerate(weights.numpy()):
            place = {"target_position": t, "target": target[t], "source_position": s, "source": source[s]}
            rows.append({"run": name} | place | {"pruned": int(is_pruned[s]), "weight": float(weight)})
    shown, heights = min(len(source), 2 * LONGEST), [len(target) for target, _ in maps.values()]  # to be legible
    figure = Figure((0.2 * shown + 1.4, 0.2 * sum(heights) + 1.4 * len(maps)), layout="constrained")
    panels = figure.subplots(len(maps), squeeze=False, height_ratios=heights).flat
    largest = max(weights.max() for _, weights in maps.values())  # one scale for all panels
    for axes, (name, (target, weights)) in zip(panels, maps.items(), strict=True):
        axes.imshow(np.ma.masked_equal(weights[:, :shown], 0), cmap="Blues", vmin=0, vmax=largest)  # zeros stay white
        axes.set_xticks(range(shown), source[:shown], rotation=90, fontsize=7)
        axes.set_yticks(range(len(target)), target, fontsize=7)
        for label, red in zip(axes.get_xticklabels(), is_pruned, strict=False):
            label.set_color("red" if red else "black")
        axes.set_title(name, fontsize=9)
    figure.suptitle("Figure 2: attention of output (y)\nto source tokens (x); red: pruned", fontsize=9)
    save_figure(out, "figure_2", figure, rows)


def choose_sentence(pruned: Sequence[np.ndarray]) -> int:
    """Index of the first source of at most LONGEST tokens that is pruned in part, else of the shortest source."""
    fitting = [i for i, row in enumerate(pruned) if len(row) <= LONGEST and row.any() and not row.all()]
    return fitting[0] if fitting else int(np.argmin([len(row) for row in pruned]))


def figure_6(out: Path, name: str, run: Run, examples: Sequence[Example], items: Sequence[Item], note: str) -> None:
    """Figure 6: where in their words pruned characters stand; above their distribution, below the share pruned."""
    closed = defaultdict(list)
    for example, is_pruned in zip(examples, encode_all(run.model, items)[0], strict=True):
        encoding = run.tokenizer.encode(example.source)
        places = places_in_words(encoding.tokens, encoding.word_ids)
        for place, value in zip(places, is_pruned[:-1], strict=False):  # what was cut has no gate
            closed[place].append(int(value))
    closed = dict(sorted(closed.items()))
    rows = [{"place": p, "characters": len(v), "pruned": sum(v), "rate": sum(v) / len(v)} for p, v in closed.items()]
    inside = {place: sum(values) for place, values in closed.items() if place[0].isdigit()}
    title = f"Figure 6: position of pruned characters in their words\n{name} on {note}"
    figure, [above, below] = new_figure(title, "position: 0 = first character, 1 = last", "of the pruned, %", rows=2)
    above.bar(inside.keys(), [100 * pruned / max(1, sum(inside.values())) for pruned in inside.values()])
    below.bar(closed.keys(), [100 * row["rate"] for row in rows], color="tab:orange")
    below.set(ylabel="pruned at this place, %")
    save_figure(out, "figure_6", figure, rows)


def figure_8(out: Path, runs: dict[str, Run], baseline: Run | None, items: Sequence[Item], note: str) -> None:
    """Figure 8: entropy of the last encoder layer's attention; the baseline's is split by the gates of each run."""
    rows, from_baseline = [], encode_all(baseline.model, items)[1] if baseline else None
    for name, run in runs.items():
        pruned, entropies = encode_all(run.model, items)
        row = {"run": name, "lambda": run.config.l0_weight, "sparsity": 100 * float(np.concatenate(pruned).mean())}
        row["retained"], row["pruned"] = mean_entropies(entropies, pruned)
        if from_baseline:
            row["baseline_retained"], row["baseline_pruned"] = mean_entropies(from_baseline, pruned)
        rows.append(row)
    rows.sort(key=lambda row: row["sparsity"])
    title = f"Figure 8: entropy of the last encoder layer's attention\n{note}"
    figure, panels = new_figure(title, "sparsity, % of source encodings", "entropy, nats", rows=2)
    for axes, kind in zip(panels, ("retained", "pruned"), strict=True):
        axes.set_title(f"{kind} encodings", fontsize=9)
        for label, column, style in (("L0Drop", kind, "o-"), ("baseline", f"baseline_{kind}", "s--")):
            if column in rows[0]:
                axes.plot([row["sparsity"] for row in rows], [row[column] for row in rows], style, label=label)
        axes.legend()
    save_figure(out, "figure_8", figure, rows)


def figure_3(out: Path, log_alpha: float = 0.0) -> None:
    """Figure 3: density of the gates for one log alpha."""
    gate = torch.linspace(-EPSILON, 1 + EPSILON, 241)[1:-1]
    inside = (gate > 0) & (gate < 1)
    binary = stretched_density(gate, log_alpha, epsilon=0.0).where(inside, torch.nan)
    stretched = stretched_density(gate, log_alpha)
    # p(g = 0) as in Eq. (10); p(g = 1) is p(g = 0) at -log alpha, because logistic noise is symmetric.
    masses = {end: 1 - open_probability(torch.tensor(sign * log_alpha)).item() for end, sign in ((0, 1), (1, -1))}
    curves = zip(gate.tolist(), binary.tolist(), stretched.tolist(), strict=True)
    rows = [{"gate": g, "binary_concrete": b, "stretched": s, "point_mass": ""} for g, b, s in curves]
    rows += [{"gate": end, "point_mass": mass} for end, mass in masses.items()]
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


def read_metrics(path: Path) -> dict:
    """What l0drop.evaluate --json wrote, its systems as a list by rising sparsity; ValueError that names the file."""
    try:
        metrics = read_json(path)
        rows = [{"run": k, "quality": s[metrics["metric"]]} | s for k, s in metrics["systems"].items()]
        for row in rows:
            shares = [row.get(f"sparsity_by_{group}", {}).values() for group in ("type", "kind")]
            interval = (row["quality"][end] for end in ("mean", "low", "high"))
            weight = 0 if row["lambda"] is None else row["lambda"]
            for value in (row["seed"], weight, row["sparsity"], *interval, *shares[0], *shares[1]):
                if type(value) not in (int, float):
                    raise ValueError(f"{value!r} is no number")
        if not rows:
            raise ValueError("it has no systems")
        note = f"{metrics['data']} {metrics['split']}, {metrics['examples']} examples"
        return metrics | {"systems": sorted(rows, key=lambda row: row["sparsity"]), "note": note}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what l0drop.evaluate --json writes ({error!r})") from None


def figure_4(out: Path, files: Sequence[dict]) -> None:
    """Figure 4: quality, with its 95 % interval, against sparsity over the lambda sweep; a line per file (seed)."""
    quality, rows = {"bleu": "BLEU", "rougeLsum": "ROUGE-L"}[files[0]["metric"]], []
    title = f"Figure 4: quality against sparsity\n{files[0]['note']}"
    figure, [axes] = new_figure(title, "sparsity, % of source encodings", f"{quality}, 95 % interval")
    for metrics, marker in zip(files, "os^vDx", strict=False):
        x, y = [row["sparsity"] for row in metrics["systems"]], [row["quality"] for row in metrics["systems"]]
        spread = [[q["mean"] - q["low"] for q in y], [q["high"] - q["mean"] for q in y]]
        label = f"seed {metrics['systems'][0]['seed']}"
        axes.errorbar(x, [q["mean"] for q in y], spread, marker=marker, capsize=2, label=label)
        rows += [{k: r[k] for k in ("run", "seed", "lambda", "sparsity")} | r["quality"] for r in metrics["systems"]]
    for row in files[0]["systems"]:
        if row["sparsity"] > 1:  # those at 0 lie on each other
            text = row["run"] if row["lambda"] is None else f"$\\lambda$ {row['lambda']:g}"
            place = row["sparsity"], row["quality"]["high"]
            axes.annotate(text, place, (0, 4), textcoords="offset points", fontsize=8, ha="center")
    axes.legend()
    save_figure(out, "figure_4", figure, rows)


def figure_5(out: Path, name: str, metrics: dict, key: str, order: Sequence[str]) -> None:
    """Figure 5: sparsity of each type (or, on toy, kind of sentence) of source encoding against the overall one."""
    systems = [row for row in metrics["systems"] if key in row]
    if not systems:
        print(f"{name}: not drawn, {metrics['note']} has no labels for it (types: evaluate --stanza FOLDER)")
        return
    title = f"Figure 5: sparsity by {key.rpartition('_')[2]}\n{metrics['note']}, seed {systems[0]['seed']}"
    figure, [axes] = new_figure(title, "sparsity, % of all source encodings", "sparsity within the group, %")
    for label, marker in zip(order, "os^vDxP*<>", strict=False):
        if any(label in row[key] for row in systems):
            shares = [row[key].get(label, np.nan) for row in systems]
            axes.plot([row["sparsity"] for row in systems], shares, f"{marker}-", label=label)
    axes.axline((0, 0), slope=1, color="gray", linestyle=":", label="all alike")
    axes.legend(fontsize=8)
    rows = [{k: row[k] for k in ("run", "seed", "lambda", "sparsity")} | row[key] for row in systems]
    save_figure(out, name, figure, rows)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.figures", description=__doc__)
    check_fields(options)
    files = [read_metrics(path) for path in options.metrics]
    both = load_runs([*options.run, *filter(None, [options.baseline])], options.device)
    if options.sparse:
        both[options.sparse.name] = load_entmax(options.sparse)
        both[options.sparse.name].model.to(find_device(options.device))
    runs = {path.name: both[path.name] for path in options.run}
    others = {name: run for name, run in both.items() if name not in runs}
    for name, run in both.items():
        if run.config.model:
            raise ValueError(f"{name} is a pretrained model: the figures of runs show our own Transformers alone")
        if name in runs and not run.model.l0drop:
            raise ValueError(f"--run {name} has no L0Drop layer; give it as --baseline or --sparse")
        if name in others and (run.model.l0drop or run.config.pattern != "none"):
            raise ValueError(f"{name} prunes: --baseline and --sparse take runs trained with --l0drop none")
    figure_3(options.out)
    if files:
        figure_4(options.out, files)
        figure_5(options.out, "figure_5", files[0], "sparsity_by_type", UNIT_TYPES)
        figure_5(options.out, "figure_5_kinds", files[0], "sparsity_by_kind", KINDS)
    if not both:
        return
    config = next(iter(both.values())).config
    data = options.data or config.data
    examples = load(data, options.split, options.limit)
    note = f"{data} {options.split}, seed {config.seed}, {len(examples)} examples"
    items, *same = (run.encode(examples) for run in both.values())
    if any([one.source for one in items] != [other.source for other in again] for again in same):
        raise ValueError(f"{', '.join(both)} cut the source into different tokens: draw them one by one")
    baseline = others[options.baseline.name] if options.baseline else None
    if baseline:
        figure_1_or_7(options.out, 1, options.baseline.name, baseline, items, note)
    if runs:
        name, run = next(iter(runs.items()))
        figure_2(options.out, others | {name: run}, items)
        if run.config.units == "char":
            figure_6(options.out, name, run, examples, items, note)
        figure_1_or_7(options.out, 7, name, run, items, note)
        figure_8(options.out, runs, baseline, items, note)


if __name__ == "__main__":
    main()
