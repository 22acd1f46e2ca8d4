"""The paper's figures from the CSVs of a folder: each CSV that is there becomes a PNG beside it.

python -m head_masking.experiments.figures head_masking/experiments/samsum

effects.csv: Figures 2 and 6. synergy.csv: Figures 3 and 7.
"""

import csv
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shared.run import one_line_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = list[dict]
PARTS = {"right, together": "together", "right, parts": "sum"}  # sides of synergy.csv that are bars
LAYERS = ("tab:orange", "tab:blue")  # the bottom one, the top one


def read_rows(path: Path) -> Rows:
    """Rows of a CSV, numbers as numbers; an empty cell is none."""
    with path.open(encoding="utf-8") as file:
        return [{k: number(v) for k, v in row.items() if v != ""} for row in csv.DictReader(file)]


def number(text: str) -> float | str:
    """A number if it is one."""
    return float(text) if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", text) else text


def by_system(rows: Rows) -> dict[str, Rows]:
    """The rows of each system."""
    return {name: [row for row in rows if row["system"] == name] for name in dict.fromkeys(r["system"] for r in rows)}


def panels(title: str, rows: int, columns: int, width: float, height: float) -> "tuple[Figure, np.ndarray]":
    """A figure and its (rows, columns) axes."""
    from matplotlib.figure import Figure

    figure = Figure((width * columns, 0.7 + height * rows), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure, figure.subplots(rows, columns, squeeze=False)


def heat_map(axes: "Axes", rows: Rows, column: str, limits: tuple[float, float], colours: str):
    """One cell for each head (x) of each layer (y, the bottom layer at the bottom); returns the image."""
    layers, heads = ({int(row[key]) for row in rows} for key in ("layer", "head"))
    grid = np.full((max(layers), 1 + max(heads)), np.nan)
    for row in rows:
        grid[int(row["layer"]) - 1, int(row["head"])] = row[column]
    axes.set_yticks(range(len(grid)), range(1, len(grid) + 1))
    axes.set(xlabel="head", ylabel="layer", xticks=range(grid.shape[1]))
    return axes.imshow(grid, origin="lower", aspect="auto", vmin=limits[0], vmax=limits[1], cmap=colours)


def effects(rows: Rows) -> "Figure":
    """Figures 2 and 6: ROUGE-1 F1 of oracle masks on each head, over uniform attention and over the plain model."""
    systems, titles = by_system(rows), {"over_uniform": "over uniform attention", "over_plain": "over no masks"}
    largest = max(abs(row[f"{column}_mean"]) for row in rows for column in titles)
    figure, grid = panels("Gain by oracle masks on one head (Figures 2 and 6)", len(systems), 2, 4, 2)
    for line, (name, own) in zip(grid, systems.items(), strict=True):
        for axes, (column, title) in zip(line, titles.items(), strict=True):
            image = heat_map(axes, own, f"{column}_mean", (-largest, largest), "RdBu_r")
            axes.set_title(f"{name.split(' (')[0]}, {title}", fontsize=10)
    figure.colorbar(image, ax=grid, label="ROUGE-1 F1 points")
    return figure


def synergy(rows: Rows) -> "Figure":
    """Figures 3 and 7: heads masked one by one, and all of a layer beside the sum of each alone."""
    systems = by_system([row for row in rows if "over_uniform_mean" in row])
    figure, grid = panels("Heads masked together (Figures 3 and 7)", len(systems), 2, 4, 2.6)
    for (left, right), (name, own) in zip(grid, systems.items(), strict=True):
        left.set_title(f"{name.split(' (')[0]}: heads added, best first", fontsize=10)
        right.set_title("all heads of a layer, and the sum of each alone", fontsize=10)
        draw_steps(left, [row for row in own if row["side"] == "left"])
        draw_parts(right, [row for row in own if row["side"] in PARTS])
    for column, unit in ((grid[:, 0], "F1"), (grid[:, 1], "recall")):
        low, high = (side([axes.get_ylim()[end] for axes in column]) for end, side in ((0, min), (1, max)))
        for axes in column:
            axes.set(ylim=(low, high), ylabel=f"ROUGE-1 {unit} points")
    return figure


def draw_steps(axes: "Axes", rows: Rows) -> None:
    """A line for the bottom and one for the top layer, named at its end."""
    layers = sorted({row["layer"] for row in rows})
    for layer, colour in zip((layers[0], layers[-1]), LAYERS, strict=True):
        steps = [row for row in rows if row["layer"] == layer]
        counts, means = [row["count"] for row in steps], [row["over_uniform_mean"] for row in steps]
        axes.plot(counts, means, "o-", color=colour)
        axes.annotate(f"layer {layer:.0f}", (counts[-1], means[-1]), (6, 0), textcoords="offset points", va="center")
    axes.axhline(0, color="gray", linewidth=0.5)
    axes.set(xlabel="heads masked", xticks=counts, xlim=(counts[0] - 0.2, counts[-1] + 0.9))


def draw_parts(axes: "Axes", rows: Rows) -> None:
    """Two bars for each layer with their 95 % intervals, named below."""
    ticks = {f"layer {row['layer']:.0f}\n{PARTS[row['side']]}": row for row in rows}
    mean, low, high = (np.array([row[f"over_uniform_{end}"] for row in rows]) for end in ("mean", "low", "high"))
    colours = [LAYERS[row["layer"] > rows[0]["layer"]] for row in rows]
    axes.bar(range(len(rows)), mean, 0.7, yerr=[mean - low, high - mean], color=colours, capsize=3)
    axes.set_xticks(range(len(rows)), [*ticks])


DRAWN = {"effects": effects, "synergy": synergy}


@one_line_errors
def main(arguments=None):
    [folder] = arguments or sys.argv[1:]
    for path in sorted(Path(folder).iterdir()):
        if path.suffix == ".csv" and path.stem in DRAWN:
            DRAWN[path.stem](read_rows(path)).savefig(path.with_suffix(".png"), dpi=120)
            print(path.with_suffix(".png"))


if __name__ == "__main__":
    main()
