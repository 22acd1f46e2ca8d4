"""Figures 4 and 5 (trees and their matrices), and the ROUGE of metrics files.

python -m discourse_tree_attention.figures metrics.json --out figures        # and a worked tree of five EDUs
python -m discourse_tree_attention.figures --tree FILE.dis --out figures     # another tree

Beside each PNG stands a CSV of the numbers that it shows.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shared.data import write_csv

from .evaluate import ROUGE
from .formats import read_brackets, read_tree
from .matrices import c_tree, c_tree_nuclearity, d_tree, heads
from .run import one_line_errors
from .trees import Node, nodes

LARGEST_WITH_NUMBERS = 8  # units of a matrix whose cells have their values written in
WORKED_TREE = (
    """[[[1,1],"N"], [[2,2],"S"], [[1,2],"N"], [[3,3],"S"], [[1,3],"N"], [[4,4],"N"], [[5,5],"N"], [[4,5],"S"]]"""
)


@dataclass
class Options:
    """The command line."""

    out: Path  # folder to write to
    metrics: tyro.conf.Positional[tuple[Path, ...]] = ()  # what evaluate --json wrote, a file per table
    tree: Path | None = None  # for Figures 4 and 5; default: a worked tree of five EDUs


def constituency_lines(tree: Node) -> Iterator[tuple[tuple[float, float], tuple[float, float], bool]]:
    """Edges of the drawn tree: (x, y) of parent and child, and whether the child is the nucleus.

    A leaf stands at (its number, 0), a parent above the middle of its children, one higher than the higher of them.
    """
    place: dict[int, tuple[float, float]] = {}
    for node in nodes(tree):  # children before parents
        points = [place[id(child)] for child in node.children]
        here = (node.first, 0.0) if not points else (np.mean([x for x, _ in points]), 1 + max(y for _, y in points))
        place[id(node)] = (float(here[0]), float(here[1]))
        for child, point in zip(node.children, points, strict=True):
            yield place[id(node)], point, bool(child.nucleus)


def draw_constituency(axes: Axes, tree: Node) -> None:
    """The tree, nuclei by solid lines with N, satellites by dashed lines with S."""
    for parent, child, nucleus in constituency_lines(tree):
        axes.plot(*zip(parent, child, strict=True), "k-" if nucleus else "k--", linewidth=1)
        middle = np.mean([parent, child], axis=0)
        axes.text(*middle, "N" if nucleus else "S", color="tab:blue" if nucleus else "tab:red")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(yticks=[], xlabel="EDU", title="constituency tree")


def draw_dependencies(axes: Axes, parents: np.ndarray) -> None:
    """An arrow from each head to its dependent; a root has one from above."""
    top = len(parents) / 2
    for unit, head in enumerate(parents, start=1):
        if head == unit - 1:
            axes.annotate("", (unit, 0), (unit, top), arrowprops={"arrowstyle": "->"})
            axes.text(unit, top, "root", ha="center")
            continue
        bend = f"arc3,rad={-0.5 if unit > head + 1 else 0.5}"
        axes.annotate("", (unit, 0), (head + 1, 0), arrowprops={"arrowstyle": "->", "connectionstyle": bend})
    axes.set(xlim=(0.5, len(parents) + 0.5), ylim=(-0.2, 1.2 * top), yticks=[], xlabel="EDU", title="dependency tree")
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_matrices(figure: Figure, places: Sequence[Axes], matrices: dict[str, np.ndarray]) -> None:
    """Attention of row EDU to column EDU, all on one colour scale."""
    largest = max(matrix.max() for matrix in matrices.values())
    for axes, (title, matrix) in zip(places, matrices.items(), strict=True):
        size = len(matrix)
        image = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=largest, extent=(0.5, size + 0.5, size + 0.5, 0.5))
        axes.set(xlabel="EDU attended to", ylabel="EDU that attends", title=title)
        if size <= LARGEST_WITH_NUMBERS:
            for i, j in np.ndindex(size, size):
                colour = "white" if matrix[i, j] > 0.6 * largest else "black"
                axes.text(j + 1, i + 1, f"{matrix[i, j]:.2g}", ha="center", va="center", color=colour, fontsize=8)
    figure.colorbar(image, ax=list(places), label="attention", shrink=0.8)


def figure_4(tree: Node, out: Path, name: str) -> None:
    """Figure 4: dependency tree and its attention matrix, before post-editing."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_dependencies(left, heads(tree))
    matrices = {"D-Tree": d_tree(tree)}
    draw_matrices(figure, [right], matrices)
    save_figure(figure, f"Figure 4: {name}", entries(matrices), out / "figure_4")


def figure_5(tree: Node, out: Path, name: str) -> None:
    """Figure 5: constituency tree, and its matrices without and with nuclearity."""
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    left, *places = figure.subplots(1, 3)
    draw_constituency(left, tree)
    matrices = {"C-Tree": c_tree(tree), "C-Tree w/Nuc": c_tree_nuclearity(tree)}
    draw_matrices(figure, places, matrices)
    save_figure(figure, f"Figure 5: {name}", entries(matrices), out / "figure_5")


def figure_rouge(metrics: dict, out: Path, name: str) -> None:
    """ROUGE of the systems of a metrics file with their 95 % intervals over documents."""
    systems = metrics["systems"]
    figure = Figure(figsize=(12, 1.5 + 0.3 * len(systems)), layout="constrained")
    rows = []
    for place, (metric, label) in zip(figure.subplots(1, 3, sharey=True), ROUGE.items(), strict=True):
        for row, (system, numbers) in enumerate(systems.items()):
            low, mean, high = (numbers[metric][key] for key in ("low", "mean", "high"))
            place.errorbar(mean, row, xerr=[[mean - low], [high - mean]], fmt="k.", capsize=3)
            rows.append({"system": system, "metric": metric} | numbers[metric])
        place.set(xlabel=f"{label}, 95 % interval", yticks=range(len(systems)), yticklabels=list(systems))
    figure.axes[0].invert_yaxis()
    seeds = sorted({str(run["seed"]) for system in systems.values() for run in system["runs"]})
    note = f"{metrics['data']}, {metrics['split']}, {metrics['documents']} documents, {metrics['level']} level"
    save_figure(figure, f"{note}, seeds {' '.join(seeds)}", rows, out / f"rouge_{name}")


def entries(matrices: dict[str, np.ndarray]) -> list[dict]:
    """A row for every matrix entry that is not 0."""
    return [
        {"matrix": name, "EDU": i + 1, "attended to": j + 1, "weight": float(matrix[i, j])}
        for name, matrix in matrices.items()
        for i, j in zip(*(places.tolist() for places in np.nonzero(matrix)), strict=True)
    ]


def save_figure(figure: Figure, title: str, rows: list[dict], path: Path) -> None:
    """Write PATH.png, and the numbers that it shows as PATH.csv."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path.with_suffix(".png"), dpi=90)
    write_csv(path.with_suffix(".csv"), rows)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.figures", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    tree = read_tree(options.tree) if options.tree else read_brackets(WORKED_TREE)
    name = options.tree.name if options.tree else "a worked tree of five EDUs"
    figure_4(tree, options.out, name)
    figure_5(tree, options.out, name)
    for path in options.metrics:
        try:
            figure_rouge(json.loads(path.read_text(encoding="utf-8")), options.out, path.stem)
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} is not what evaluate --json writes: {error!r}") from None


if __name__ == "__main__":
    main()
