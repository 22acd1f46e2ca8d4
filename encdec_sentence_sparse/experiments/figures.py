"""The paper's figures, one function each.

python -m encdec_sentence_sparse.experiments.figures --out figures --scores toy.csv --curves figure_1.csv --map map.json

The scores are what `shared.score` wrote (Figure 2), curves and map what experiments.measures wrote (1, and like
5 to 8). Figure 3 is a drawing of the model and is not made.
"""

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tyro

from shared.run import one_line_errors

CURVES = {  # Figure 2: RUN.MODE -> label, colour, the same in all figures
    "base.ideal": ("ideal", "black"),
    "apx.approx": ("integrated (Int-Apx)", "tab:orange"),
    "kl.approx": ("learned (KL-only)", "tab:blue"),
    "base.mean_key": ("mean key", "tab:green"),
    "base.random": ("random", "tab:red"),
}
RED_TO_BLUE = ["tab:red", "tab:orange", "tab:green", "tab:blue", "tab:purple"]


def read_csv(path: Path) -> list[dict]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_scores(path: Path) -> dict[str, list[float]]:
    """ROUGE-1 of each system, a number per seed."""
    rows = [row for row in read_csv(path) if row["metric"] == "rouge1" and not row["minus"]]
    return {row["system"]: [float(value) for value in row["seeds"].split()] for row in rows}


def by_r(scores: dict[str, list[float]], system: str) -> dict[int, list[float]]:
    """r -> the scores of RUN.MODE.rR, by rising r."""
    found = {name: re.fullmatch(rf"{re.escape(system)}\.r(\d+)", name) for name in scores}
    return dict(sorted((int(match[1]), scores[name]) for name, match in found.items() if match))


def one_panel(title: str):
    """A figure with its title and its axes."""
    from matplotlib.figure import Figure

    figure = Figure((6.0, 4.2), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure, figure.subplots()


def draw(axes, lines: dict[tuple[str, str], dict[int, list[float]]], ylabel: str) -> None:
    """Curves over r by (label, colour): means over seeds, bars from the lowest seed to the highest, labels at the end.

    Labels that would lie on each other are moved apart.
    """
    for (label, colour), line in lines.items():
        means = np.array([np.mean(values) for values in line.values()])
        low, high = (np.array([pick(values) for values in line.values()]) for pick in (min, max))
        bars = (means - low, high - means)
        axes.errorbar(list(line), means, bars, fmt="o-", color=colour, markersize=4, capsize=3, label=label)
    places = sorted({r for line in lines.values() for r in line})
    bottom, top = axes.get_ylim()
    height = bottom
    for (label, colour), line in sorted(lines.items(), key=lambda item: np.mean(item[1][max(item[1])])):
        height = max(height, np.mean(line[max(line)]))
        axes.text(places[-1] + 0.04 * (places[-1] - places[0]), height, label, color=colour, va="center")
        height += 0.05 * (top - bottom)
    axes.set(xlabel="r: sentences that a step attends to", ylabel=ylabel, xticks=places)
    axes.set_ylim(bottom, max(top, height))
    axes.set_xlim(places[0] - 0.5, places[-1] + 0.45 * (places[-1] - places[0]) + 0.5)


def figure_2(scores: dict[str, list[float]]):
    """Figure 2: ROUGE-1 against r at inference, of base, learned map and integrated training; full attention across."""
    lines = {shown: by_r(scores, system) for system, shown in CURVES.items()}
    figure, axes = one_panel("Figure 2: how many sentences are enough depends on which")
    full, places = np.mean(scores["base.full"]), list(next(iter(lines.values())))
    axes.plot(places, [full] * len(places), color="gray", linestyle=":")
    axes.text(places[0], full, "all sentences", color="gray", va="bottom")
    draw(axes, lines, "ROUGE-1; bars: lowest and highest seed")
    return figure


def figure_1(curves: Sequence[dict]):
    """Figure 1: the share of attention that the r most salient sentences hold, of base and sparse-tuned runs."""
    figure, axes = one_panel("Figure 1: attention is spread over sentences, until a loss makes it sparse")
    names = list(dict.fromkeys(row["run"] for row in curves))
    for place, (name, colour) in enumerate(zip(names, ["black", *RED_TO_BLUE], strict=False)):
        shares = [float(row["share"]) for row in curves if row["run"] == name]
        style = dict(color=colour, linewidth=5 if place == 0 else 1.5, alpha=0.3 if place == 0 else 1)  # none is hidden
        axes.plot(range(1, 1 + len(shares)), shares, label=name, **style)
        label = name.replace("gamma-", "gamma ") if place else "vanilla (gamma 0)"
        at = (2, shares[min(1, len(shares) - 1)])
        axes.annotate(label, at, (6, -10), textcoords="offset points", color=colour, fontsize=8)
    axes.set(xlabel="r: the most salient sentences", ylabel="share of the attention\n(mean over layers and steps)")
    axes.set_ylim(0, 1.02)
    axes.xaxis.get_major_locator().set_params(integer=True)
    return figure


def attention_map(shown: dict):
    """Like Figures 5-8: attention over words (left) and over sentences (right) while a summary is written."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    texts = [word.replace("Ġ", "") for word in shown["target"]]
    figure = Figure((10, max(5, 0.16 * len(texts))), layout="constrained")
    figure.suptitle("All sentences get some attention; those that hold the fact get most")
    left, right = figure.subplots(1, 2)
    scale = PowerNorm(0.5, 0, np.max(shown["exact"]))  # one for both
    for axes, kind, label in ((left, "word", "token of the source"), (right, "exact", "sentence of the source")):
        image = axes.imshow(shown[kind], aspect="auto", cmap="Blues", norm=scale, interpolation="nearest")
        axes.set(xlabel=label, ylabel="step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_yticks(range(len(texts)), texts, fontsize=7)
    figure.colorbar(image, ax=(left, right), label="attention (root scale)")
    for start in np.flatnonzero(np.diff(shown["sentence_ids"])):
        left.axvline(start + 0.5, color="gray", linewidth=0.4)
    return figure


def main(out: Path, scores: Path | None = None, curves: Path | None = None, map: Path | None = None) -> None:
    """Draw what the files hold into the folder `out`."""
    figures = {}
    if scores:
        figures["figure_2"] = figure_2(read_scores(scores))
    if curves:
        figures["figure_1"] = figure_1(read_csv(curves))
    if map:
        figures["attention_map"] = attention_map(json.loads(map.read_text(encoding="utf-8")))
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(out / f"{name}.png", dpi=150)
        print(out / f"{name}.png")


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
