"""Figures 4 and 5 (trees and their matrices), and of metrics files ROUGE, of runs with --examples its curve.

python -m discourse_tree_attention.experiments.figures metrics.json --out figures  # a worked tree
python -m discourse_tree_attention.experiments.figures --tree FILE.dis --out figures  # another tree
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..evaluate import ROUGE
from ..formats import read_brackets, read_tree
from ..matrices import c_tree, c_tree_nuclearity, d_tree, heads
from ..run import one_line_errors
from ..trees import Node, nodes

LARGEST_WITH_NUMBERS = 8  # units of a matrix whose cells have their values written in
WORKED_TREE = '[[[1,1],"N"], [[2,2],"S"], [[1,2],"N"], [[3,3],"S"], [[1,3],"N"], [[4,4],"N"], [[5,5],"N"], [[4,5],"S"]]'


@dataclass
class Options:
    """The command line."""

    out: Path  # folder to write to
    metrics: tyro.conf.Positional[tuple[Path, ...]] = ()  # what evaluate --json wrote, a file per table
    tree: Path | None = None  # for Figures 4 and 5; default: a worked tree of five EDUs


def draw_constituency(axes: Axes, tree: Node) -> None:
    """The tree, nuclei by solid lines with N, satellites by dashed lines with S."""
    place: dict[int, tuple[float, float]] = {}
    for node in nodes(tree):  # children before parents: a parent stands above their middle
        points = [place[id(child)] for child in node.children]
        x, y = (np.mean([p[0] for p in points]), 1 + max(p[1] for p in points)) if points else (node.first, 0)
        place[id(node)] = x, y
        for child, (below, height) in zip(node.children, points, strict=True):
            axes.plot([x, below], [y, height], "k-" if child.nucleus else "k--", linewidth=1)
            name, colour = ("N", "tab:blue") if child.nucleus else ("S", "tab:red")
            axes.text((x + below) / 2, (y + height) / 2, name, color=colour)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(yticks=[], xlabel="EDU", title="constituency tree")


def draw_dependencies(axes: Axes, parents: np.ndarray) -> None:
    """An arrow from each head to its dependent; a root has one from above."""
    top = len(parents) / 2
    for unit, head in enumerate(parents + 1, start=1):
        bend = {"connectionstyle": f"arc3,rad={-0.5 if unit > head else 0.5}"} if head != unit else {}
        start = (head, 0) if head != unit else (unit, top)
        axes.annotate("", (unit, 0), start, arrowprops={"arrowstyle": "->"} | bend)
        axes.text(*start, "" if head != unit else "root", ha="center")
    axes.set(xlim=(0.5, len(parents) + 0.5), ylim=(-0.2, 1.2 * top), yticks=[], xlabel="EDU", title="dependency tree")


def draw_matrices(figure: Figure, places: Sequence[Axes], matrices: dict[str, np.ndarray]) -> None:
    """Attention of row EDU to column EDU, all on one colour scale."""
    largest = max(matrix.max() for matrix in matrices.values())
    for axes, (title, matrix) in zip(places, matrices.items(), strict=True):
        end = len(matrix) + 0.5
        image = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=largest, extent=(0.5, end, end, 0.5))
        axes.set(xlabel="EDU attended to", ylabel="EDU that attends", title=title)
        for (i, j), value in np.ndenumerate(matrix if len(matrix) <= LARGEST_WITH_NUMBERS else np.empty((0, 0))):
            colour = "white" if value > 0.6 * largest else "black"
            axes.text(j + 1, i + 1, f"{value:.2g}", ha="center", va="center", color=colour, fontsize=8)
    figure.colorbar(image, ax=list(places), label="attention", shrink=0.8)


def figure_4(tree: Node, name: str) -> Figure:
    """Figure 4: dependency tree and its attention matrix, before post-editing."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_dependencies(left, heads(tree))
    draw_matrices(figure, [right], {"D-Tree": d_tree(tree)})
    figure.suptitle(f"Figure 4: {name}", fontsize=10)
    return figure


def figure_5(tree: Node, name: str) -> Figure:
    """Figure 5: constituency tree, and its matrices without and with nuclearity."""
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    left, *places = figure.subplots(1, 3)
    draw_constituency(left, tree)
    draw_matrices(figure, places, {"C-Tree": c_tree(tree), "C-Tree w/Nuc": c_tree_nuclearity(tree)})
    figure.suptitle(f"Figure 5: {name}", fontsize=10)
    return figure


def figure_rouge(metrics: dict) -> Figure:
    """ROUGE of the systems of a metrics file with their 95 % intervals over documents."""
    systems = metrics["systems"]
    figure = Figure(figsize=(12, 1.5 + 0.3 * len(systems)), layout="constrained")
    for axes, (metric, label) in zip(figure.subplots(1, 3, sharey=True), ROUGE.items(), strict=True):
        rows = [[system[metric][key] for key in ("low", "mean", "high")] for system in systems.values()]
        low, mean, high = np.array(rows).T
        axes.errorbar(mean, list(systems), xerr=[mean - low, high - mean], fmt="k.", capsize=3)
        axes.set(xlabel=f"{label}, 95 % interval")
    figure.axes[0].invert_yaxis()
    seeds = " ".join(sorted({str(row["seed"]) for system in systems.values() for row in system["seeds"]}))
    note = f"{metrics['data']}, {metrics['split']}, {metrics['documents']} documents, {metrics['level']} level"
    figure.suptitle(f"{note}, seeds {seeds}", fontsize=10)
    return figure


def figure_low_resource(metrics: dict) -> Figure:
    """Section 5.2: ROUGE-1 by the number of training documents; a dot is a draw of them, a line the draws' mean."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    curves: dict[str, list[tuple[int, float]]] = {}
    for system in metrics["systems"].values():
        if system.get("examples"):
            draws = [(system["examples"], row["rouge1"]["mean"]) for row in system["seeds"]]
            curves[system["attention"]] = curves.get(system["attention"], []) + draws
    for attention, draws in curves.items():
        sizes, values = np.transpose(draws)
        (dots,) = axes.plot(sizes, values, ".")
        means = [values[sizes == size].mean() for size in np.unique(sizes)]
        axes.plot(np.unique(sizes), means, color=dots.get_color(), label=attention)
    axes.set(xscale="log", xlabel="training documents", ylabel="ROUGE-1", title=f"{metrics['data']}: low resource")
    axes.legend()
    return figure


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.figures", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    tree = read_tree(options.tree) if options.tree else read_brackets(WORKED_TREE)
    name = options.tree.name if options.tree else "a worked tree of five EDUs"
    figures = {"figure_4": figure_4(tree, name), "figure_5": figure_5(tree, name)}
    for path in options.metrics:
        try:
            metrics = json.loads(path.read_text(encoding="utf-8"))
            figures[f"rouge_{path.stem}"] = figure_rouge(metrics)
            if any(system.get("examples") for system in metrics["systems"].values()):
                figures[f"low_resource_{path.stem}"] = figure_low_resource(metrics)
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} is not what evaluate --json writes: {error!r}") from None
    from PIL import Image  # comes with matplotlib

    options.out.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        file = options.out / f"{name}.png"
        figure.savefig(file, dpi=90)
        Image.open(file).convert("RGB").quantize().save(file)  # 256 colours: a third of the bytes


if __name__ == "__main__":
    main()
