"""The paper's figures from the CSVs of a folder: each CSV that is there becomes a PNG beside it.

python -m head_masking.experiments.figures head_masking/experiments/samsum

effects.csv: Figures 2 and 6. synergy.csv: Figures 3 and 7. sizes.csv: Figure 5. benchmark.csv:
what masks cost.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from shared.run import one_line_errors, read_flags

PARTS = {"right, together": "together", "right, parts": "sum"}  # sides of synergy.csv that are bars
COLOURS = ("tab:orange", "tab:blue")  # the bottom layer, the top one
OVER = {"over_uniform": "over uniform attention", "over_plain": "over no masks"}


def by_system(rows):
    """The rows of each system, by its name without what stands in brackets."""
    systems = {}
    for row in rows:
        systems.setdefault(row["system"].split(" (")[0], []).append(row)
    return systems


def numbers(rows, column):
    return np.array([float(row[column]) for row in rows])


def panels(title, rows, columns, height):
    """A figure and its (rows, columns) axes."""
    from matplotlib.figure import Figure

    figure = Figure((4 * columns, 0.7 + height * rows), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure, figure.subplots(rows, columns, squeeze=False)


def effects(rows):
    """Figures 2 and 6: ROUGE-1 F1 of oracle masks on each head (x) of each layer (y)."""
    rows = sorted(rows, key=lambda row: (int(row["layer"]), int(row["head"])))
    systems = by_system(rows)
    largest = max(np.abs(numbers(rows, f"{over}_mean")).max() for over in OVER)
    figure, grid = panels("Gain by oracle masks on one head (Figures 2 and 6)", len(systems), 2, 2)
    for line, (name, own) in zip(grid, systems.items(), strict=True):
        for axes, (over, title) in zip(line, OVER.items(), strict=True):
            layers = {row["layer"] for row in own}
            cells = numbers(own, f"{over}_mean").reshape(len(layers), -1)
            image = axes.imshow(
                cells, "RdBu_r", origin="lower", aspect="auto", vmin=-largest, vmax=largest
            )
            axes.set_yticks(range(len(cells)), range(1, len(cells) + 1))
            axes.set(title=f"{name}, {title}", xticks=range(cells.shape[1]))
            axes.set(xlabel="head", ylabel="layer")
    figure.colorbar(image, ax=grid, label="ROUGE-1 F1 points")
    return figure


def synergy(rows):
    """Figures 3 and 7, over uniform attention: heads one by one; all, and the sum of each alone."""
    systems = by_system([row for row in rows if row["over_uniform_mean"]])
    figure, grid = panels("Heads masked together (Figures 3 and 7)", len(systems), 2, 2.6)
    for (left, right), (name, own) in zip(grid, systems.items(), strict=True):
        layers = sorted({row["layer"] for row in own}, key=int)
        for layer, colour in zip((layers[0], layers[-1]), COLOURS, strict=True):
            steps = [row for row in own if row["side"] == "left" and row["layer"] == layer]
            counts, means = numbers(steps, "count"), numbers(steps, "over_uniform_mean")
            left.plot(counts, means, "o-", color=colour)
            beside = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
            left.annotate(f"layer {layer}", (counts[-1], means[-1]), **beside)
        left.set(title=f"{name}: heads added, best first", ylabel="ROUGE-1 F1")
        left.set(xlabel="heads masked", xticks=counts, xlim=(0.8, counts[-1] + 0.9))
        bars = [row for row in own if row["side"] in PARTS]
        bars.sort(key=lambda row: int(row["layer"]))
        mean, low, high = (numbers(bars, f"over_uniform_{end}") for end in ("mean", "low", "high"))
        colours = [COLOURS[0] if row["layer"] == layers[0] else COLOURS[1] for row in bars]
        places = range(len(bars))
        interval = [mean - low, high - mean]
        right.bar(places, mean, 0.7, yerr=interval, color=colours, capsize=3)
        right.set_xticks(places, [f"layer {row['layer']}\n{PARTS[row['side']]}" for row in bars])
        right.set(title="all heads, and the sum of each alone", ylabel="ROUGE-1 recall")
    return figure


def sizes(rows):
    """Figure 5: ROUGE-1 without and with masks by the number of documents; a point a seed."""
    figure, [[axes]] = panels("Masks and the number of documents (Figure 5)", 1, 1, 3)
    for name, end, colour in (("no masks", "", "tab:gray"), ("masked", r"\+tagger.*", "tab:blue")):
        points = {}  # documents -> values of the seeds
        for row in rows:
            found = re.fullmatch(rf"adapted-(\d+)[-\d]*{end}", row["system"])
            if found and row["metric"] == "rouge1" and not row["minus"]:
                points.setdefault(int(found[1]), []).extend(map(float, row["seeds"].split()))
        counts = sorted(points)
        means = [np.mean(points[count]) for count in counts]
        axes.semilogx(counts, means, color=colour, label=name)
        for count in counts:
            axes.plot([count] * len(points[count]), points[count], "o", color=colour, alpha=0.5)
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.set(xlabel="documents", ylabel="ROUGE-1 F1")
    axes.minorticks_off()
    axes.legend()
    return figure


SIDES = {
    "generate": "tab:gray",
    "masks on all layers": "tab:orange",
    "masks on the top layer": "tab:blue",
    "tagger": "tab:green",
}


def speed(rows):
    """What masks cost: seconds of a batch by the length of its documents, median and range."""
    figure, [[axes]] = panels("Masks cost next to nothing at any length", 1, 1, 3)
    for side, colour in SIDES.items():
        own = [row for row in rows if row["side"] == side]
        own.sort(key=lambda row: int(row["length"]))
        lengths = numbers(own, "length")
        median, low, high = (numbers(own, f"seconds_{end}") for end in ("median", "low", "high"))
        axes.errorbar(lengths, median, [median - low, high - median], color=colour, label=side)
    axes.set(xlabel="tokens of a document", ylabel="CPU seconds", ylim=(0, None))
    axes.legend(loc="upper left")
    return figure


DRAWN = {"effects.csv": effects, "synergy.csv": synergy, "sizes.csv": sizes, "benchmark.csv": speed}


@dataclass
class Options:
    """The command line."""

    folder: tyro.conf.Positional[Path]


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    for path in sorted(options.folder.iterdir()):
        if path.name in DRAWN:
            rows = [*csv.DictReader(path.open(encoding="utf-8"))]
            DRAWN[path.name](rows).savefig(path.with_suffix(".png"), dpi=120)
            print(path.with_suffix(".png"))


if __name__ == "__main__":
    main()
