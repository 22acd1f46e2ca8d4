"""The paper's figures, one function each: a PNG and, beside it, a CSV of the numbers that it shows.

python -m l0drop.figures runs/l0 --out figures                                                # Figures 2, 3, 7, 8
python -m l0drop.figures runs/l0-* --baseline runs/base --metrics metrics.json --out figures

Figures 4, 5 and 8 show every RUN, the lambda sweep; 2, 6 and 7 show the first. What they measure is in measures.py.
"""

import argparse
import csv
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shared.data import Example, load

from .evaluate import decode
from .gates import BETA, EPSILON, open_probability, stretched_density
from .measures import attention_maps, encode_all, mean_entropies, places_in_words, summed_attention
from .model import EOS
from .patterns import UNIT_TYPES
from .text import Item, encode_examples
from .train import Run, load_run

THRESHOLD = 0.6  # captions of Figures 1 and 7: the share of source words that receive less
EDGES = np.append(np.arange(51) / 10, np.inf)  # bins of Figures 1 and 7; the last is open
SHORT, WIDE = 20, 120  # source tokens: Figure 2 prefers a sentence of at most SHORT and draws the first WIDE


class Missing(Exception):
    """A figure cannot be drawn; the message says what it needs."""


class Material(NamedTuple):
    """What there is to draw from."""

    runs: dict[str, Run]  # L0Drop runs by folder name
    examples: list[Example]
    items: list[Item]  # the examples as tokens, the same for all runs
    out: Path
    baseline: tuple[str, Run] | None = None  # name and run
    sparse: tuple[str, Run] | None = None  # a run with --cross-attention entmax
    metrics: dict | None = None  # what l0drop.evaluate --json wrote


# Figures


def axes_pair(title: str, x: str, y: str, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of one or two panels above each other."""
    figure = Figure((6.4, 2.4 + 1.8 * rows), layout="constrained")
    panels = list(figure.subplots(rows, sharex=True, squeeze=False).flat)
    figure.suptitle(title, fontsize=11)
    panels[-1].set_xlabel(x)
    for panel in panels:
        panel.set_ylabel(y)
    return figure, panels


def save(material: Material, name: str, figure: Figure, rows: Sequence[dict]) -> str:
    """Write NAME.png and NAME.csv; returns the path of the PNG."""
    material.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(material.out / f"{name}.png", dpi=150)
    with (material.out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return str(material.out / f"{name}.png")


def attention_histogram(material: Material, number: int, name: str, run: Run) -> str:
    """Figures 1 and 7: distribution of the summed attention per source word."""
    outputs = decode(run, material.items, progress=True)
    is_pruned = [output.pruned[-1] for output in outputs]
    maps = attention_maps(run.model, material.items, [output.tokens for output in outputs])
    sums, on_pruned = summed_attention(maps, is_pruned)
    if not len(sums):
        raise Missing(f"needs a run that retains some source word; {name} prunes all")
    counts, mean, below = np.histogram(sums, EDGES)[0], float(sums.mean()), float((sums < THRESHOLD).mean())
    sparsity = 100 - 100 * len(sums) / sum(map(len, is_pruned))
    summary = {"mean": mean, f"share_below_{THRESHOLD}": below, "sparsity": sparsity, "attention_on_pruned": on_pruned}
    bins = zip(EDGES[:-1].tolist(), EDGES[1:].tolist(), counts.tolist(), strict=True)
    rows = [{"from": low, "to": high, "words": count} | summary for low, high, count in bins]

    word = "retained source word" if run.model.l0drop else "source word"
    title = f"Figure {number}: summed attention per {word}, {name} (sparsity {sparsity:.0f} %)"
    figure, [axes] = axes_pair(title, "attention summed over the target words", f"{word}s, %")
    axes.bar(EDGES[:-1], 100 * counts / len(sums), 0.1, align="edge", edgecolor="white", linewidth=0.5)
    axes.axvline(THRESHOLD, color="gray", linestyle=":", label=f"below {THRESHOLD}: {100 * below:.1f} %")
    axes.axvline(mean, color="tab:orange", label=f"mean: {mean:.2f}")
    shown = np.searchsorted(counts.cumsum(), 0.995 * len(sums)) + 1  # bins that hold nearly all words
    axes.set_xlim(0, max(1.0, shown / 10))
    axes.legend()
    return save(material, f"figure_{number}", figure, rows)


def figure_1(material: Material) -> str:
    """Figure 1: distribution of the summed attention per source word in the baseline."""
    if not material.baseline:
        raise Missing("needs --baseline RUN")
    return attention_histogram(material, 1, *material.baseline)


def figure_2(material: Material) -> str:
    """Figure 2: attention of one sentence's translation (y) to its source (x), pruned words in red and at 0."""
    first = next(iter(material.runs.items()))
    pruned, _ = encode_all(first[1].model, material.items)
    chosen = choose_sentence(pruned)
    item, is_pruned = material.items[chosen], pruned[chosen]
    panels, rows = [], []
    for kind, system in (("vanilla", material.baseline), ("sparse", material.sparse), ("L0Drop", first)):
        if system:
            name, run = system
            outputs = decode(run, [item])
            [weights] = attention_maps(run.model, [item], [outputs[0].tokens])
            if run.model.l0drop:
                weights = weights.masked_fill(torch.from_numpy(is_pruned), 0)  # the dummy has the rest of each row
            ids = item.source, [*outputs[0].tokens, EOS]
            source, target = ([run.tokenizer.id_to_token(token) for token in side] for side in ids)
            panels.append((f"{kind}: {name}", weights.numpy()[:, :WIDE], source[:WIDE], target))
            for (t, s), weight in np.ndenumerate(weights.numpy()):
                words = {"target_position": t, "target": target[t], "source_position": s, "source": source[s]}
                rows.append({"run": name} | words | {"pruned": int(is_pruned[s]), "weight": float(weight)})
    return save(material, "figure_2", draw_maps(panels, is_pruned[:WIDE]), rows)


def choose_sentence(pruned: Sequence[np.ndarray]) -> int:
    """Index of the first source of at most SHORT tokens that is pruned at all, else of the shortest source."""
    lengths = [len(closed) for closed in pruned]
    return next((i for i, n in enumerate(lengths) if n <= SHORT and pruned[i].any()), int(np.argmin(lengths)))


def draw_maps(panels: Sequence[tuple[str, np.ndarray, list[str], list[str]]], is_pruned: np.ndarray) -> Figure:
    """Panels of title, attention (T, S), source and target words: beside each other, or stacked if S is large."""
    width, height = 0.17 * len(is_pruned) + 1.5, 0.17 * max(len(target) for *_, target in panels) + 1.8
    shape = (len(panels), 1) if len(is_pruned) > 2 * SHORT else (1, len(panels))
    figure = Figure((max(width * shape[1], 5), height * shape[0]), layout="constrained")
    largest = max(weights.max() for _, weights, _, _ in panels)
    for axes, (title, weights, source, target) in zip(figure.subplots(*shape, squeeze=False).flat, panels, strict=True):
        axes.imshow(np.ma.masked_equal(weights, 0), cmap="Blues", vmin=0, vmax=largest)  # exact zeros stay white
        axes.set_xticks(range(len(source)), source, rotation=90, fontsize=7)
        axes.set_yticks(range(len(target)), target, fontsize=7)
        for label, red in zip(axes.get_xticklabels(), is_pruned, strict=True):
            label.set_color("red" if red else "black")
        axes.set_title(title, fontsize=9)
    figure.suptitle("Figure 2: attention of target (y) to source words (x); red: pruned by L0Drop", fontsize=9)
    return figure


def figure_3(material: Material, log_alpha: float = 0.0) -> str:
    """Figure 3: density of the gates for one log alpha; shows no run."""
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
    figure, [axes] = axes_pair(title, "gate", "density; of the points: probability")
    axes.plot(gate, binary, "--", color="tab:blue", label="BinaryConcrete, Eq. (6)")
    axes.plot(gate, stretched, color="tab:blue", label="stretched, Eq. (7)")
    axes.plot(gate[inside], stretched[inside], color="tab:orange", label="rectified, Eq. (8)")
    axes.plot(masses.keys(), masses.values(), "o", color="tab:orange", label="its mass at 0 and 1")
    axes.fill_between(gate, stretched, where=~inside, color="tab:blue", alpha=0.2)
    axes.set_ylim(0, 2)
    axes.legend()
    return save(material, "figure_3", figure, rows)


def sweep(material: Material) -> list[dict]:
    """lambda and metrics of the baseline (no lambda) and of every run, by rising sparsity (Figures 4 and 5)."""
    if material.metrics is None:
        raise Missing("needs --metrics FILE, which l0drop.evaluate --json writes")
    baseline = {material.baseline[0]: None} if material.baseline else {}
    weights = baseline | {name: run.config.l0_weight for name, run in material.runs.items()}
    systems = material.metrics["systems"]
    if absent := ", ".join(name for name in weights if name not in systems):
        raise ValueError(f"--metrics has no system {absent}, only {', '.join(systems)}: evaluate all runs together")
    rows = [{"run": name, "lambda": weight} | systems[name] for name, weight in weights.items()]
    return sorted(rows, key=lambda row: row["sparsity"])


def figure_4(material: Material) -> str:
    """Figure 4: quality, with its 95 % interval, against sparsity rate over the lambda sweep."""
    rows = [{k: row[k] for k in ("run", "lambda", "sparsity", "score", "low", "high")} for row in sweep(material)]
    quality = {"bleu": "BLEU", "rouge": "ROUGE-L"}[material.metrics["metric"]]
    title = "Figure 4: quality against sparsity"
    figure, [axes] = axes_pair(title, "sparsity rate, % of source words", f"{quality}, 95 % interval")
    axes.plot([row["sparsity"] for row in rows], [row["score"] for row in rows], "o-")
    for row in rows:
        axes.vlines(row["sparsity"], row["low"], row["high"], color="tab:blue", alpha=0.5)
        label = "baseline" if row["lambda"] is None else f"$\\lambda$ {row['lambda']:g}"
        axes.annotate(label, (row["sparsity"], row["score"]), (5, 5), textcoords="offset points", fontsize=8)
    axes.margins(x=0.1)
    return save(material, "figure_4", figure, rows)


def sparsity_curves(material: Material, name: str, title: str, key: str, order: Sequence[str], lacks: str) -> str:
    """Sparsity rate of each label of `key` in the metrics against the overall rate."""
    systems = sweep(material)
    if not all(key in row for row in systems):
        raise Missing(lacks)
    labels = [label for label in order if any(label in row[key] for row in systems)]
    shares = [{label: row[key].get(label) for label in labels} for row in systems]
    figure, [axes] = axes_pair(title, "sparsity rate, % of all source words", "sparsity rate within the group, %")
    overall = [row["sparsity"] for row in systems]
    for label, marker in zip(labels, "os^vDx", strict=False):
        axes.plot(overall, [np.nan if row[label] is None else row[label] for row in shares], f"{marker}-", label=label)
    axes.axline((0, 0), slope=1, color="gray", linestyle=":", label="all alike")
    axes.legend(fontsize=8)
    heads = ({k: row[k] for k in ("run", "lambda", "sparsity")} for row in systems)
    return save(material, name, figure, [head | row for head, row in zip(heads, shares, strict=True)])


def figure_5(material: Material) -> str:
    """Figure 5: sparsity rate of the six types of source words against the overall rate."""
    lacks = "needs --metrics of l0drop.evaluate --tagger FOLDER: the text has no part-of-speech tags"
    title = "Figure 5: sparsity by type of source word"
    return sparsity_curves(material, "figure_5", title, "sparsity_by_type", UNIT_TYPES, lacks)


def figure_5_kinds(material: Material) -> str:
    """Like Figure 5, by the kind of sentence that a source word stands in."""
    lacks = "needs --metrics on toy: other corpora do not say what could be left out"
    title, kinds = "As Figure 5: sparsity by kind of sentence", ("main", "repeat", "detail", "filler")
    return sparsity_curves(material, "figure_5_kinds", title, "sparsity_by_kind", kinds, lacks)


def figure_6(material: Material) -> str:
    """Figure 6: where in their words pruned characters stand; above their distribution, below the share pruned."""
    name, run = next(iter(material.runs.items()))
    if run.config.units != "char":
        raise Missing(f"needs a character-level run (train --units char); {name} has --units {run.config.units}")
    total, pruned = Counter(), Counter()
    for example, row in zip(material.examples, encode_all(run.model, material.items)[0], strict=True):
        encoding = run.tokenizer.encode(example.source)
        for place, is_pruned in zip(places_in_words(encoding.tokens, encoding.word_ids), row[:-1], strict=False):
            total[place] += 1
            pruned[place] += int(is_pruned)
    rows = [
        {"place": p, "characters": total[p], "pruned": pruned[p], "rate": pruned[p] / total[p]} for p in sorted(total)
    ]
    inside = [row for row in rows if row["place"][0].isdigit()]
    all_inside = sum(row["pruned"] for row in inside) or 1

    title = f"Figure 6: position of pruned characters in their words, {name}"
    figure, [above, below] = axes_pair(title, "position: 0 = first character, 1 = last", "of the pruned, %", rows=2)
    above.bar([row["place"] for row in inside], [100 * row["pruned"] / all_inside for row in inside])
    below.bar([row["place"] for row in rows], [100 * row["rate"] for row in rows], color="tab:orange")
    below.set_ylabel("pruned at this place, %")
    return save(material, "figure_6", figure, rows)


def figure_7(material: Material) -> str:
    """Figure 7: distribution of the summed attention per retained source word with L0Drop."""
    return attention_histogram(material, 7, *next(iter(material.runs.items())))


def figure_8(material: Material) -> str:
    """Figure 8: entropy of the last encoder layer's attention against sparsity, for retained and pruned words.

    The baseline's words are split by the gates of each run.
    """
    rows = []
    from_baseline = encode_all(material.baseline[1].model, material.items)[1] if material.baseline else None
    for name, run in material.runs.items():
        pruned, entropies = encode_all(run.model, material.items)
        row = {"run": name, "lambda": run.config.l0_weight, "sparsity": 100 * float(np.concatenate(pruned).mean())}
        row["retained"], row["pruned"] = mean_entropies(entropies, pruned)
        if from_baseline:
            row["baseline_retained"], row["baseline_pruned"] = mean_entropies(from_baseline, pruned)
        rows.append(row)
    rows.sort(key=lambda row: row["sparsity"])
    title = "Figure 8: entropy of the last encoder layer's attention"
    figure, panels = axes_pair(title, "sparsity rate, % of source words", "entropy, nats", rows=2)
    for axes, kind in zip(panels, ("retained", "pruned"), strict=True):
        axes.set_title(f"{kind} source words", fontsize=9)
        for label, column, style in (("L0Drop", kind, "o-"), ("baseline", f"baseline_{kind}", "s--")):
            if column in rows[0]:
                axes.plot([row["sparsity"] for row in rows], [row[column] for row in rows], style, label=label)
        axes.legend()
    return save(material, "figure_8", figure, rows)


FIGURES = (figure_1, figure_2, figure_3, figure_4, figure_5, figure_5_kinds, figure_6, figure_7, figure_8)


# Command line


def gather(flags: argparse.Namespace) -> Material:
    """Read everything that the flags name.

    Raises:
        ValueError: a run of the wrong sort or with other source tokens than the first; metrics that cannot be read.
    """
    runs = {path.name: load_run(path) for path in flags.runs}
    if len(runs) < len(flags.runs):
        raise ValueError("two runs have folders of the same name; rename one")
    extra = {kind: (path.name, load_run(path)) for kind in ("baseline", "sparse") if (path := getattr(flags, kind))}
    for name, run in runs.items():
        if not run.model.l0drop:
            raise ValueError(f"{name} has no L0Drop layer; runs without one are given as --baseline or --sparse")
    for kind, (name, run) in extra.items():
        if run.model.l0drop or run.config.pattern != "none":
            raise ValueError(f"--{kind} {name} prunes; give a run trained with --l0drop none --pattern none")
    first = next(iter(runs.values()))
    examples, items = load(flags.data or first.config.data, flags.split, flags.limit), None
    for name, run in [*runs.items(), *extra.values()]:
        run.model.to(flags.device)
        encoded = encode_examples(examples, run.tokenizer, run.config.max_source, run.config.max_target)
        items = items or encoded
        if [item.source for item in encoded] != [item.source for item in items]:
            raise ValueError(f"{name} cuts the source into other tokens than {flags.runs[0].name}: draw it by itself")
    return Material(runs, examples, items, flags.out, **extra, metrics=flags.metrics and read_metrics(flags.metrics))


def read_metrics(path: Path) -> dict:
    """What l0drop.evaluate --json wrote; raises ValueError that names the file."""
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        return {"metric": metrics["metric"], "systems": dict(metrics["systems"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not what l0drop.evaluate --json writes ({error!r})") from None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m l0drop.figures", description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="L0Drop runs; Figures 2, 6 and 7 show the first")
    parser.add_argument("--out", required=True, type=Path, help="folder to write to")
    parser.add_argument("--baseline", type=Path, help="run without L0Drop, for Figures 1, 2, 4, 5 and 8")
    parser.add_argument("--sparse", type=Path, help="run with --cross-attention entmax, for Figure 2")
    parser.add_argument("--metrics", type=Path, help="JSON of l0drop.evaluate on these runs, for Figures 4 and 5")
    parser.add_argument("--data", help="default: the first run's")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, help="first N examples only")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    flags = parser.parse_args(arguments)
    try:
        material = gather(flags)
        for draw in FIGURES:
            try:
                print(f"{draw.__name__}: {draw(material)}", flush=True)
            except Missing as reason:
                print(f"{draw.__name__}: skipped, {reason}", flush=True)
    except (ValueError, ImportError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
