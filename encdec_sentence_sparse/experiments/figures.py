"""The paper's figures.

python -m encdec_sentence_sparse.experiments.figures --out F --scores toy.csv --curves figure_1.csv

The scores are what `shared.score` wrote (Figures 2 and 4), the curves what experiments.measures
wrote (1); that draws a map like Figures 5 to 8, too. --speed takes what experiments.benchmark
wrote. Figure 3 is a drawing of the model and is not made.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tyro

from shared.run import one_line_errors

CHOICES = {  # Figure 2: RUN.MODE -> label, colour
    "base.ideal": ("ideal", "black"),
    "apx.approx": ("integrated (Int-Apx)", "tab:orange"),
    "kl.approx": ("learned (KL-only)", "tab:blue"),
    "base.mean_key": ("mean key", "tab:green"),
    "base.random": ("random", "tab:red"),
}
TRAINED = {  # Figure 4: RUN.MODE -> label, colour
    "apx-r2.approx": ("r 2 in training", "tab:red"),
    "apx.approx": ("r 5", "tab:orange"),
    "apx-r10.approx": ("r 10", "tab:green"),
    "control.approx": ("all (control)", "tab:blue"),
}


def read_csv(path: Path) -> list[dict]:
    """The rows of a CSV file."""
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def one_panel(title: str, xlabel: str, ylabel: str):
    """A figure with its title and its axes."""
    from matplotlib.figure import Figure

    figure = Figure((6.0, 4.2), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure, figure.add_subplot(xlabel=xlabel, ylabel=ylabel)


def over_r(scores: dict[str, np.ndarray], shown: dict, title: str, ylabel: str, minus: str = ""):
    """Curves over r of systems RUN.MODE.rR: means over seeds, bars from least to largest."""
    figure, axes = one_panel(title, "r: sentences that a step attends to", ylabel)
    places = sorted({int(name.rpartition(".r")[2]) for name in scores if ".r" in name})
    style = dict(fmt="o-", markersize=4, capsize=3)
    for system, (label, colour) in shown.items():
        if f"{system}.r{places[0]}" not in scores:  # not every corpus has all
            continue
        values = np.stack([scores[f"{system}.r{r}"] for r in places])  # (r, seeds)
        if minus:
            values = values - np.stack([scores[f"{minus}.r{r}"] for r in places])
        mean = values.mean(1)
        bars = mean - values.min(1), values.max(1) - mean
        axes.errorbar(places, mean, bars, color=colour, label=label, **style)
    if not minus:
        axes.axhline(scores["base.full"].mean(), color="gray", linestyle=":", label="all sentences")
    axes.set_xticks(places)
    figure.legend(loc="outside right")
    return figure


def figure_1(curves: list[dict]):
    """Figure 1: the share of attention that the r most salient sentences hold, run by run."""
    title = "Figure 1: attention is spread over sentences, until a loss makes it sparse"
    y = "share of the attention (mean over layers, steps)"
    figure, axes = one_panel(title, "r: the most salient sentences", y)
    for place, name in enumerate(dict.fromkeys(row["run"] for row in curves)):
        shares = [float(row["share"]) for row in curves if row["run"] == name]
        # The first one is broad: it hides none, and none hides it.
        style = {} if place else dict(color="black", linewidth=5, alpha=0.3)
        label = name.replace("gamma-", "gamma ") if place else "vanilla (gamma 0)"
        axes.plot(range(1, 1 + len(shares)), shares, label=label, **style)
    axes.set_ylim(0, 1.02)
    figure.legend(loc="outside right")
    return figure


def draw_map(attention: np.ndarray, written: list[str], sentence_ids: Sequence[int]):
    """Like Figures 5-8: attention over words (left) and sentences (right), step by step."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    words = [word.replace("Ġ", "") for word in written]
    figure = Figure((10, max(5, 0.16 * len(words))), layout="constrained")
    figure.suptitle("All sentences get some attention; those that hold the fact get most")
    starts = np.unique(sentence_ids, return_index=True)[1]
    maps = {"token": attention, "sentence": np.add.reduceat(attention, starts, 1)}
    panels = figure.subplots(1, 2)
    scale = PowerNorm(0.5, 0, maps["sentence"].max())  # one for both
    style = dict(aspect="auto", cmap="Blues", norm=scale, interpolation="nearest")
    for axes, (kind, weights) in zip(panels, maps.items(), strict=True):
        image = axes.imshow(weights, **style)
        axes.set(xlabel=f"{kind} of the source", ylabel="step")
        axes.set_yticks(range(len(words)), words)
    figure.colorbar(image, ax=panels, label="attention (root scale)")
    for start in starts[1:]:
        panels[0].axvline(start - 0.5, color="gray", linewidth=0.4)
    return figure


SIDES = {  # of experiments.benchmark: what a side ends with -> label, colour
    ", mean": ("learned map, mean pooling", "tab:green"),
    ", gru": ("learned map, GRU (the paper's)", "tab:blue"),
    "generate": ("generate of transformers", "tab:red"),
}


def growth(rows: list[dict]):
    """How many times as fast as our full attention each side is, end to end, over source tokens.

    Of each length the smallest r is drawn; bars are the intervals of the benchmark.
    """
    title = "Reading fewer sentences pays where documents and summaries are long"
    figure, axes = one_panel(title, "tokens of the document", "times as fast as full attention")
    lengths = sorted({int(row["length"]) for row in rows})
    for end, (label, colour) in SIDES.items():
        points = []
        for length in lengths:
            own = [row for row in rows if int(row["length"]) == length]
            sides = [row for row in own if row["side"].endswith(end)]
            first = min(sides, key=lambda row: int("0" + "".join(filter(str.isdigit, row["side"]))))
            points.append([float(first[f"x shared_{name}"]) for name in ("median", "low", "high")])
        median, low, high = np.array(points).T
        bars = median - low, high - median
        axes.errorbar(lengths, median, bars, fmt="o-", color=colour, capsize=3, label=label)
    axes.axhline(1.0, color="gray", linestyle=":", label="ours, full attention")
    axes.set_xticks(lengths)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def main(
    out: Path,
    scores: Path | None = None,
    curves: Path | None = None,
    speed: Path | None = None,
) -> None:
    """Draw what the files hold into the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    if speed:
        growth(read_csv(speed)).savefig(out / "growth.png", dpi=150)
    if curves:
        figure_1(read_csv(curves)).savefig(out / "figure_1.png", dpi=150)
    if scores:
        rouge = {}  # of each system a number per seed
        for row in read_csv(scores):
            if row["metric"] == "rouge1" and not row["minus"]:
                rouge[row["system"]] = np.array(row["seeds"].split(), dtype=float)
        title = "Figure 2: how many sentences are enough depends on which"
        over_r(rouge, CHOICES, title, "ROUGE-1").savefig(out / "figure_2.png", dpi=150)
        if "apx-r2.approx.r2" in rouge:  # runs with other r in training
            title = "Figure 4: at small r training with a small r helps most seeds"
            y = "ROUGE-1 minus r 5 in training"
            figure = over_r(rouge, TRAINED, title, y, minus="apx.approx")
            figure.savefig(out / "figure_4.png", dpi=150)


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
