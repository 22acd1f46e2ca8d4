"""Figures 4 and 5 (a tree and its matrices), and of what evaluate wrote the systems and the low-resource curves.

python -m discourse_tree_attention.experiments.figures --out figures                # Figures 4, 5: a worked tree
python -m discourse_tree_attention.experiments.figures metrics.json --out figures   # what evaluate --json, --csv wrote
"""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tyro

from shared.data import split_sentences

from ..documents import sentence_of_edus
from ..matrices import c_tree, c_tree_nuclearity, d_tree, heads, post_edit
from ..run import check_fields, one_line_errors, read_flags
from ..trees import Node, leaves, nodes
from .formats import read_tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST_WITH_NUMBERS = 8  # units of a matrix whose cells have their values written in
WORKED_TREE = Path(__file__).parents[1] / "tests" / "storm.dis"
NUCLEUS, SATELLITE = ("N", "tab:blue", "-"), ("S", "tab:red", "--")
COLOURS = {
    "No attention": "tab:grey",
    "Dot Product(1)": "tab:blue",
    "C-Tree w/Nuc": "tab:green",
    "D-Tree": "tab:orange",
}


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    out: Path  # folder to write to
    metrics: tyro.conf.Positional[tuple[Path, ...]] = ()  # what evaluate --json or --csv wrote, a file per table
    tree: Path = WORKED_TREE  # for Figures 4 and 5: .dis or .rs3


def new_figure(**options) -> "Figure":
    """A figure that no window shows."""
    from matplotlib.figure import Figure  # here, for --help answers without it

    return Figure(layout="constrained", **options)


def draw_constituency(axes: "Axes", tree: Node) -> None:
    """The tree, nuclei by solid lines with N, satellites by dashed lines with S."""
    place: dict[int, tuple[float, float]] = {}
    for node in nodes(tree):  # children before parents: a parent stands above their middle
        points = [place[id(child)] for child in node.children]
        x, y = (np.mean([p[0] for p in points]), 1 + max(p[1] for p in points)) if points else (node.first, 0)
        place[id(node)] = x, y
        for child, (below, height) in zip(node.children, points, strict=True):
            name, colour, style = NUCLEUS if child.nucleus else SATELLITE
            axes.plot([x, below], [y, height], style, color=colour, linewidth=1)
            axes.text((x + below) / 2, (y + height) / 2, name, color=colour)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(yticks=[], xlabel="EDU", title="N: Nucleus, S: Satellite")


def draw_dependencies(axes: "Axes", parents: np.ndarray, edited: np.ndarray, texts: Sequence[str]) -> None:
    """The EDUs one below the other, an arrow from each head to its dependent; a root has none.

    What post-editing changes is red: dashed as it was, solid as it is.
    """
    for unit, (before, after) in enumerate(zip(parents + 1, edited + 1, strict=True), start=1):
        axes.text(0.1, unit, f"{unit}  {texts[unit - 1]}" + ("  (root)" if after == unit else ""), va="center")
        arrows = [(after, "-", "black" if before == after else "tab:red")]
        arrows += [(before, "--", "tab:red")] if before != after else []
        for head, style, colour in arrows:
            if head != unit:
                bend = f"arc3,rad={0.5 if unit > head else -0.5}"
                arrow = {"arrowstyle": "->", "linestyle": style, "color": colour, "connectionstyle": bend}
                axes.annotate("", (0, unit), (0, head), arrowprops=arrow)
    axes.set(xlim=(-2, 6), ylim=(len(parents) + 0.5, 0.5), title="from the head to what depends on it")
    axes.axis("off")


def draw_matrices(figure: "Figure", places: Sequence["Axes"], matrices: dict[str, np.ndarray]) -> None:
    """Attention of row EDU to column EDU, all on one colour scale."""
    largest = max(matrix.max() for matrix in matrices.values())
    for axes, (title, matrix) in zip(places, matrices.items(), strict=True):
        end = len(matrix) + 0.5
        image = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=largest, extent=(0.5, end, end, 0.5))
        axes.set(xlabel="EDU attended to", ylabel="EDU that attends", title=title)
        for (i, j), value in np.ndenumerate(matrix if len(matrix) <= LARGEST_WITH_NUMBERS else np.empty((0, 0))):
            colour = "white" if value > 0.6 * largest else "black"
            axes.text(j + 1, i + 1, f"{value:.2g}", ha="center", va="center", color=colour, fontsize=9)
    figure.colorbar(image, ax=list(places), label="attention", shrink=0.8)


def figure_4(tree: Node) -> "Figure":
    """Figure 4: dependency tree, as it is post-edited, and its attention matrix."""
    figure = new_figure(figsize=(10, 4))
    left, right = figure.subplots(1, 2)
    texts = [leaf.text or "" for leaf in leaves(tree)]
    sentence = sentence_of_edus(texts, split_sentences(" ".join(texts))) if all(texts) else np.arange(len(texts))
    draw_dependencies(left, heads(tree), post_edit(heads(tree), sentence), texts)
    draw_matrices(figure, [right], {"D-Tree": d_tree(tree, sentence)})
    figure.suptitle("Figure 4: each EDU attends to its head; red: what one root a sentence changes")
    return figure


def figure_5(tree: Node) -> "Figure":
    """Figure 5: constituency tree, and its matrices without and with nuclearity."""
    figure = new_figure(figsize=(12, 4))
    left, *places = figure.subplots(1, 3)
    draw_constituency(left, tree)
    draw_matrices(figure, places, {"C-Tree": c_tree(tree), "C-Tree w/Nuc": c_tree_nuclearity(tree)})
    figure.suptitle("Figure 5: EDUs attend to each other the more, the more constituents they share")
    return figure


def figure_rouge(systems: dict, name: str) -> "Figure":
    """ROUGE-1 of the systems of a table, and what each has more than the first, with 95 % intervals over documents."""
    figure = new_figure(figsize=(9, 1.5 + 0.3 * len(systems)))
    left, right = figure.subplots(1, 2, sharey=True)
    own = {system: row["rouge1"] for system, row in systems.items()}
    differences = {system: (row.get("difference") or {}).get("rouge1") for system, row in systems.items()}
    for axes, key, values in ((left, "mean", own), (right, "difference", differences)):
        for place, value in enumerate(values.values()):
            if value:
                middle, low, high = value[key], value["low"], value["high"]
                axes.errorbar(middle, place, xerr=[[middle - low], [high - middle]], fmt="k.", capsize=3)
    left.set(yticks=range(len(own)), xlabel="ROUGE-1, 95 % interval", title=name)
    names = [row.get("attention") or system for system, row in systems.items()]
    left.set_yticklabels(names if len(set(names)) == len(names) else list(own))
    left.invert_yaxis()
    first = next((system for system, row in systems.items() if row.get("attention") and not row.get("difference")), "")
    right.axvline(0, color="tab:grey", linewidth=1)
    right.set(xlabel=f"ROUGE-1 minus {first}", title="right of the line: better")
    return figure


def figure_low_resource(systems: dict, name: str) -> "Figure":
    """Section 5.2: ROUGE-1 by the number of training documents; a bar is the 95 % interval of the draws' mean."""
    figure = new_figure(figsize=(7, 4.5))
    axes, curves, last = figure.subplots(), {}, {}
    for system in systems.values():
        if system.get("examples"):
            curves.setdefault(system["attention"], []).append((system["examples"], *system["rouge1"].values()))
    for place, (attention, points) in enumerate(curves.items()):
        sizes, means, low, high = np.array(sorted(points)).T
        aside = sizes * 1.03 ** (place - (len(curves) - 1) / 2)  # or the bars would hide each other
        bars = axes.errorbar(aside, means, yerr=[means - low, high - means], capsize=3, color=COLOURS.get(attention))
        last[attention] = means[-1], bars[0].get_color()
    bottom, top = axes.get_ylim()
    height = -np.inf
    for attention, (mean, colour) in sorted(last.items(), key=lambda item: item[1][0]):
        height = max(mean, height + 0.05 * (top - bottom))  # one label above the other
        axes.annotate(attention, (1.02, height), xycoords=("axes fraction", "data"), color=colour, va="center")
    sizes = sorted({size for points in curves.values() for size, *_ in points})
    axes.set(xscale="log", xlabel="training documents", ylabel="ROUGE-1, 95 % interval over documents", title=name)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.set_xticks([], minor=True)
    return figure


def read_systems(path: Path) -> dict[str, dict]:
    """The systems of a table, without their seeds; ValueError that names a file which evaluate did not write."""
    try:
        text, rows = path.read_text(encoding="utf-8"), {}
        if path.suffix == ".csv":
            for row in csv.DictReader(text.splitlines()):
                own = {"rouge1": {key: row[f"rouge1_{key}"] for key in ("mean", "low", "high")}}
                if row.get("difference_rouge1_low"):
                    keys = ("difference", "low", "high")
                    own["difference"] = {"rouge1": {key: row[f"difference_rouge1_{key}"] for key in keys}}
                rows.setdefault(row["system"], row | own)  # the rows below are its seeds
        else:
            rows = json.loads(text)["systems"]
        systems = {}
        for name, row in rows.items():
            own = {"attention": row.get("attention"), "examples": int(row.get("examples") or 0)}
            own["rouge1"] = {key: number(row["rouge1"][key]) for key in ("mean", "low", "high")}
            if row.get("difference"):
                of_first = row["difference"]["rouge1"]
                own["difference"] = {"rouge1": {key: number(of_first[key]) for key in ("difference", "low", "high")}}
            systems[name] = own
        return systems
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, csv.Error) as error:
        raise ValueError(f"{path} is not what evaluate --json or --csv writes: {error!r}") from None


def number(value: object) -> float:
    """A finite number; ValueError or what else `float` raises."""
    if not math.isfinite(value := float(value)):
        raise ValueError(f"{value} is not finite")
    return value


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.figures", description=__doc__)
    check_fields(options)
    tree = read_tree(options.tree)
    figures = {"figure_4": figure_4(tree), "figure_5": figure_5(tree)}
    for path in options.metrics:
        systems, name = read_systems(path), path.stem.replace("_", " ")
        figures[f"rouge_{path.stem}"] = figure_rouge(systems, name)
        if any(system.get("examples") for system in systems.values()):
            figures[f"low_resource_{path.stem.removeprefix('low_resource_')}"] = figure_low_resource(systems, name)
    from PIL import Image  # comes with matplotlib

    options.out.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        file = options.out / f"{name}.png"
        figure.savefig(file, dpi=90)
        Image.open(file).convert("RGB").quantize().save(file)  # 256 colours: a third of the bytes


if __name__ == "__main__":
    main()
