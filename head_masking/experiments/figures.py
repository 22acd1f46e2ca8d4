"""The paper's figures, one function each: a PNG and, beside it, a CSV of the numbers that it shows.

python -m head_masking.experiments.sweep runs/hm-base --effects --focus --json one.json
python -m head_masking.experiments.figures one.json --out figures  # Figures 2, 3, 4, 10
python -m head_masking.experiments.figures one.json other.json --out figures  # and 6, 7, 8
python -m head_masking.experiments.figures 100.json 1000.json --out figures  # Figure 5, of evaluate --json

The first analysis stands where the paper has CNN/DailyMail (Figures 2-4, 10), the second for XSum (6-8), the third for
NYT (6, 7, 9). Figure 5 shows the systems of all files that evaluate wrote.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tyro

from shared.data import check_outputs, read_json, write_csv

from ..run import one_line_errors, read_flags
from .focus import CATEGORIES

if TYPE_CHECKING:  # half of the time of --help
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeLsum": "ROUGE-L"}
OVER = {"over_uniform": "over uniform attention", "over_plain": "over the plain model"}
LINES = 6  # of one panel, at most: of more layers the bottom one, the top one, and some between


class Missing(Exception):
    """A figure cannot be drawn; the message says what it needs."""


@dataclass
class Options:
    metrics: tyro.conf.Positional[tuple[Path, ...]]  # JSON files of sweep.py and evaluate.py
    out: Path  # folder to write to


def analyses(metrics: Sequence[dict], key: str, places: Sequence[int]) -> list[tuple[str, dict]]:
    """Titles and analyses of the files at these places that have `key`; raises Missing if there is none."""
    found, files = [], [file for file in metrics if file.get("analysis")]
    for file in (files[place] for place in places if place < len(files)):
        for name, analysis in file["analysis"].items():
            if key in analysis:
                corpus = f"{analysis['data']}, {analysis['documents']} {analysis['split']} documents"
                found.append((f"{name} (seed {analysis['seed']})\n{corpus}", analysis))
    if not found:
        flag = "--focus" if key == "focus" else "--effects"
        raise Missing(f"needs file {places[0] + 1}, written by {__package__}.sweep {flag} --json")
    return found


def tested(metrics: Sequence[dict]) -> list[dict]:
    """The files that evaluate wrote."""
    return [file for file in metrics if file.get("systems")]


def corpora(metrics: Sequence[dict]) -> str:
    """What the files were tested on."""
    names = {f"{file['data']} {file['split']}, {file['examples']} documents" for file in tested(metrics)}
    return ", ".join(sorted(names))


def save_figure(out: Path, number: int | str, figure: "Figure", rows: Sequence[dict]) -> Path:
    """Write figure_N.png and figure_N.csv; returns the path of the PNG."""
    path = out / f"figure_{number}.png"
    figure.savefig(path, dpi=150)
    write_csv(path.with_suffix(".csv"), [row | {"system": row["system"].replace("\n", " on ")} for row in rows])
    return path


def panels(title: str, rows: int, columns: int, width: float = 4.0) -> "tuple[Figure, np.ndarray]":
    """A figure and its (rows, columns) axes."""
    from matplotlib.figure import Figure

    figure = Figure((max(width * columns, 5), 0.8 + 3.0 * rows), layout="constrained")
    figure.suptitle(title, fontsize=10)
    return figure, figure.subplots(rows, columns, squeeze=False)


def heat_map(axes: "Axes", rows: Sequence[dict], column: str, title: str, low: float, high: float, colours: str):
    """One cell for each head (x) of each layer (y, the bottom layer at the bottom); returns the image."""
    grid = np.full((max(row["layer"] for row in rows), 1 + max(row["head"] for row in rows)), np.nan)
    for row in rows:
        grid[row["layer"] - 1, row["head"]] = row[column]
    axes.set_yticks(range(grid.shape[0]), range(1, grid.shape[0] + 1))
    axes.set(xlabel="head", ylabel="layer", xticks=range(grid.shape[1]))
    axes.set_title(title, fontsize=8)
    return axes.imshow(grid, origin="lower", aspect="auto", vmin=low, vmax=high, cmap=colours)


# Figures


def effects(metrics: Sequence[dict], out: Path, number: int, places: Sequence[int]) -> Path:
    """Figures 2 and 6: ROUGE-1 F1 of oracle masks on each head, over uniform attention and over the plain model."""
    found = analyses(metrics, "effects", places)
    rows = [{"system": name} | row for name, analysis in found for row in analysis["effects"]]
    largest = max(abs(row[column]["mean"]) for row in rows for column in OVER) or 1.0
    figure, grid = panels(f"Figure {number}: gain in ROUGE-1 F1 by oracle masks on one head", len(found), len(OVER))
    for line, (name, analysis) in zip(grid, found, strict=True):
        for axes, (column, over) in zip(line, OVER.items(), strict=True):
            means = [row | row[column] for row in analysis["effects"]]
            image = heat_map(axes, means, "mean", f"{over}\n{name}", -largest, largest, "RdBu_r")
    figure.colorbar(image, ax=grid, label="ROUGE-1 F1 points")
    return save_figure(out, number, figure, rows)


def synergy(metrics: Sequence[dict], out: Path, number: int, places: Sequence[int]) -> Path:
    """Figures 3 and 7: heads added one by one; all together beside the sum of the parts; both over both baselines."""
    found, rows = analyses(metrics, "synergy", places), []
    figure, grid = panels(f"Figure {number}: heads masked together, by oracle masks", len(found), 2 * len(OVER), 3.4)
    for line, (name, analysis) in zip(grid, found, strict=True):
        for left, right, column in zip(line[::2], line[1::2], OVER, strict=True):
            draw_steps(left, analysis["synergy"], column)
            draw_parts(right, [row for row in analysis["parts"] if row["over"] == column], column)
        line[0].set_title(name, fontsize=8)
        line[2].set_title("dotted: the head added has no effect alone", fontsize=8)
        rows += [{"system": name, "side": "left"} | row for row in analysis["synergy"]]
        for row in analysis["parts"]:
            about = {"system": name, "layer": row["layer"]}
            rows += [about | {"side": f"right, {side}", row["over"]: row[side]} for side in ("together", "parts")]
    return save_figure(out, number, figure, rows)


def draw_steps(axes: "Axes", rows: Sequence[dict], column: str) -> None:
    """A line per layer, at most LINES; dotted where the head added has no effect by itself."""
    layers = sorted({row["layer"] for row in rows})
    for layer in [layers[i] for i in sorted(set(np.linspace(0, len(layers) - 1, LINES).round().astype(int)))]:
        steps = [row for row in rows if row["layer"] == layer]
        [line] = axes.plot(steps[0]["count"], steps[0][column]["mean"], "o", markersize=3, label=f"layer {layer}")
        for before, after in zip(steps, steps[1:], strict=False):
            ends = [before["count"], after["count"]], [before[column]["mean"], after[column]["mean"]]
            style = "-" if after["added_effect"] > 0 else ":"
            axes.plot(*ends, style, marker="o", markersize=3, color=line.get_color())
    axes.axhline(0, color="gray", linewidth=0.5)
    axes.set(xlabel="heads masked, best first", ylabel=f"ROUGE-1 F1 {OVER[column]}")
    axes.legend(fontsize=7)


def draw_parts(axes: "Axes", rows: Sequence[dict], column: str) -> None:
    """Two bars per layer with their 95 % intervals; the legend stands above them."""
    layers = np.array([row["layer"] for row in rows])
    for shift, key, label in ((-0.2, "together", "all heads masked"), (0.2, "parts", "sum over heads")):
        mean, low, high = (np.array([row[key][end] for row in rows]) for end in ("mean", "low", "high"))
        axes.bar(layers + shift, mean, 0.4, yerr=np.maximum([mean - low, high - mean], 0), label=label)
    axes.set(xlabel="layer", ylabel=f"ROUGE-1 recall {OVER[column]}", xticks=layers)
    axes.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def focus(metrics: Sequence[dict], out: Path, number: int, place: int, categories: Sequence[str]) -> Path:
    """Figures 4, 8, 9 and 10: share of the attendees of each category, per head and layer, on one scale."""
    name, analysis = analyses(metrics, "focus", [place])[0]
    known = [kind for kind in categories if kind in analysis["focus"][0]]
    largest = max(row[kind] for row in analysis["focus"] for kind in known) or 1.0
    figure, grid = panels(f"Figure {number}: attendees, % of generated pieces\n{name}", 1, len(known), 3.0)
    for axes, kind in zip(grid.flat, known, strict=True):
        title = kind.replace("non_copy", "non-copy").replace("_", " ").upper()
        image = heat_map(axes, analysis["focus"], kind, title, 0, largest, "Blues")
    figure.colorbar(image, ax=grid, label="%")
    return save_figure(out, number, figure, [{"system": name} | row for row in analysis["focus"]])


def limited_data(metrics: Sequence[dict], out: Path) -> Path:
    """Figure 5: ROUGE over the number of training examples, with and without masking by the tagger; all seeds."""
    systems = [row for file in tested(metrics) for row in file["systems"].values()]
    systems = [row for row in systems if not row["labels"].startswith("oracle") and row["trained_on"]]
    if len({row["trained_on"] for row in systems}) < 2:
        raise Missing(f"needs {__package__}.evaluate --json on summarisers with different numbers of training examples")
    figure, grid = panels(f"Figure 5: different sizes of training data\n{corpora(metrics)}", 1, len(METRICS), 3.4)
    rows = []
    for axes, (metric, title) in zip(grid.flat, METRICS.items(), strict=True):
        for is_masked, label, colour in ((False, "no masking", "C0"), (True, "attention head masking", "C1")):
            points = [
                {"system": label, "examples": row["trained_on"], "seed": row["seed"], "heads": row["heads"]}
                | {"metric": title, **row[metric]}
                for row in sorted(systems, key=lambda row: row["trained_on"])
                if (row["labels"] != "plain") == is_masked
            ]
            sizes, mean, low, high = (np.array([p[k] for p in points]) for k in ("examples", "mean", "low", "high"))
            axes.errorbar(sizes, mean, [mean - low, high - mean], fmt="o", color=colour, markersize=3, alpha=0.5)
            of_size = {size: mean[sizes == size].mean() for size in sizes}  # over the seeds
            axes.plot([*of_size], [*of_size.values()], color=colour, label=label)
            rows += points
        axes.set(xscale="log", xlabel="training examples", ylabel=f"{title} F1, 95 % interval")
        axes.legend(fontsize=7)
    return save_figure(out, 5, figure, rows)


def flipped_labels(metrics: Sequence[dict], out: Path) -> Path:
    """Not in the paper: gain by oracle masks over the plain model, and the share of their labels that is flipped."""
    systems = [row for file in tested(metrics) for row in file["systems"].values()]
    systems = [row for row in systems if row.get("flipped") is not None]
    if not any(row["flipped"] for row in systems):
        raise Missing(f"needs {__package__}.evaluate --oracle --flip 0.1 0.3 --json")
    figure, [[axes]] = panels(f"Gain over the plain model by oracle masks with errors\n{corpora(metrics)}", 1, 1)
    rows = [{"system": row["summarizer"], "flipped": row["flipped"]} | row["difference"]["rouge1"] for row in systems]
    rows.sort(key=lambda row: row["flipped"])
    for name in dict.fromkeys(row["system"] for row in rows):
        points = [row for row in rows if row["system"] == name]
        share, gain, low, high = (np.array([p[k] for p in points]) for k in ("flipped", "difference", "low", "high"))
        axes.errorbar(share, gain, [gain - low, high - gain], marker="o", label=name)
    axes.axhline(0, color="gray", linewidth=0.5)
    axes.set(xlabel="share of flipped words", ylabel="ROUGE-1 F1 points, 95 % interval")
    axes.legend(fontsize=7)
    return save_figure(out, "flipped_labels", figure, rows)


FIGURES = {
    2: partial(effects, number=2, places=[0]),
    3: partial(synergy, number=3, places=[0]),
    4: partial(focus, number=4, place=0, categories=["copy_salient", "non_copy_salient", "copy_content", "first"]),
    5: limited_data,
    6: partial(effects, number=6, places=[1, 2]),
    7: partial(synergy, number=7, places=[1, 2]),
    8: partial(focus, number=8, place=1, categories=CATEGORIES),
    9: partial(focus, number=9, place=2, categories=CATEGORIES),
    10: partial(focus, number=10, place=0, categories=["non_copy_content", "last"]),
    "flipped_labels": flipped_labels,
}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.figures", description=__doc__)
    if not options.metrics:
        raise ValueError("give JSON files of sweep or evaluate")
    metrics = []
    for path in options.metrics:
        try:
            metrics.append(read_json(path))
            kinds = [metrics[-1][key] for key in ("systems", "analysis") if key in metrics[-1]]
            if not kinds or not all(isinstance(row, dict) for rows in kinds for row in rows.values()):
                raise ValueError("neither systems nor analyses")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            command = f"{__package__}.sweep --json or evaluate --json"
            raise ValueError(f"{path} is not what {command} writes ({error!r})") from None
    check_outputs(options.out / "figure_2.csv", inputs=options.metrics)
    for number, draw in FIGURES.items():
        try:
            print(f"figure {number}: {draw(metrics, options.out)}", flush=True)
        except Missing as reason:
            print(f"figure {number}: skipped, {reason}", flush=True)
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            names = ", ".join(map(str, options.metrics))
            raise ValueError(f"figure {number} cannot be drawn from {names}: {error!r}") from None


if __name__ == "__main__":
    main()
