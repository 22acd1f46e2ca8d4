"""Figures 4 and 5 (a tree and its matrices), the claims beside ours, and the low-resource curves.

P=discourse_tree_attention/experiments
python -m discourse_tree_attention.experiments.figures figures $P/scitldr/*.csv $P/toy/low_resource_toy.csv
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tyro

from shared.data import split_sentences

from ..matrices import c_tree, c_tree_nuclearity, d_tree, dependency_parents, post_edit
from ..text import sentence_of_edus
from ..trees import Node, leaves, nodes, read_tree

WORKED_TREE = Path(__file__).parents[1] / "tests" / "storm.dis"
NUCLEUS, SATELLITE = ("N", "tab:blue", "-"), ("S", "tab:red", "--")
CURVES = {  # system: name and colour, the same in all pictures
    "none": ("no attention", "tab:grey"),
    "dot": ("dot product, 1 head", "tab:blue"),
    "c_tree_nuclearity": ("C-Tree w/Nuc", "tab:green"),
    "d_tree": ("D-Tree", "tab:orange"),
}
CLAIMS = (  # what, system, minus, end of the table's name, the paper's difference in ROUGE-1 (Tables 2 and 3)
    ("C-Tree w/Nuc minus one learned head, EDUs", "c_tree_nuclearity", "dot", "edu", -0.16),
    ("the same, sentences", "c_tree_nuclearity", "dot", "sentence", -0.07),
    ("balanced C-Tree minus eight heads, sentences", "c_tree", "dot-8-heads", "sentence_balanced", 0.23),
    ("C-Tree w/Nuc minus no attention, EDUs", "c_tree_nuclearity", "none", "edu", 0.87),
    ("D-Tree minus no attention, EDUs", "d_tree", "none", "edu", 0.54),
    ("D-Tree minus the unit before, EDUs", "d_tree", "previous", "edu", None),
)


def new_figure(**options):
    """A figure that no window shows."""
    from matplotlib.figure import Figure  # here, for --help answers without it

    return Figure(layout="constrained", **options)


def draw_constituency(axes, tree: Node) -> None:
    """The tree, nuclei by solid lines with N, satellites by dashed lines with S."""
    place: dict[int, tuple[float, float]] = {}
    for node in nodes(tree):  # children before parents: a parent stands above their middle
        points = [place[id(child)] for child in node.children]
        x, y = (np.mean([p[0] for p in points]), 1 + max(p[1] for p in points)) if points else (node.end, 0)
        place[id(node)] = x, y
        for child, (below, height) in zip(node.children, points, strict=True):
            name, colour, style = NUCLEUS if child.nucleus else SATELLITE
            axes.plot([x, below], [y, height], style, color=colour, linewidth=1)
            axes.text((x + below) / 2, (y + height) / 2, name, color=colour)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(yticks=[], xlabel="EDU", title="N: Nucleus, S: Satellite")


def draw_dependencies(axes, parents: np.ndarray, texts: Sequence[str]) -> None:
    """The EDUs one below the other, an arrow from each parent to its dependent; a root has none."""
    for unit, parent in enumerate(parents + 1, start=1):
        axes.text(0.1, unit, f"{unit}  {texts[unit - 1]}" + ("  (root)" if parent == unit else ""), va="center")
        if parent != unit:
            bend = f"arc3,rad={0.5 if unit > parent else -0.5}"
            axes.annotate("", (0, unit), (0, parent), arrowprops={"arrowstyle": "->", "connectionstyle": bend})
    axes.set(xlim=(-2, 6), ylim=(len(parents) + 0.5, 0.5), title="from the parent to what depends on it")
    axes.axis("off")


def draw_matrices(figure, places: Sequence, matrices: dict[str, np.ndarray]) -> None:
    """Attention of row EDU to column EDU, all on one colour scale."""
    largest = max(matrix.max() for matrix in matrices.values())
    for axes, (title, matrix) in zip(places, matrices.items(), strict=True):
        end = len(matrix) + 0.5
        image = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=largest, extent=(0.5, end, end, 0.5))
        axes.set(xlabel="EDU attended to", ylabel="EDU that attends", title=title)
        for (i, j), value in np.ndenumerate(matrix):
            colour = "white" if value > 0.6 * largest else "black"
            axes.text(j + 1, i + 1, f"{value:.2g}", ha="center", va="center", color=colour, fontsize=9)
    figure.colorbar(image, ax=list(places), label="attention", shrink=0.8)


def figure_4(tree: Node):
    """Figure 4: dependency tree, post-edited, and its attention matrix."""
    figure = new_figure(figsize=(10, 4))
    left, right = figure.subplots(1, 2)
    texts = [leaf.text for leaf in leaves(tree)]
    sentence = sentence_of_edus(texts, split_sentences(" ".join(texts)))
    draw_dependencies(left, post_edit(dependency_parents(tree), sentence), texts)
    draw_matrices(figure, [right], {"D-Tree": d_tree(tree, sentence)})
    figure.suptitle("Figure 4: each EDU attends to its parent")
    return figure


def figure_5(tree: Node):
    """Figure 5: constituency tree, and its matrices without and with nuclearity."""
    figure = new_figure(figsize=(12, 4))
    left, *places = figure.subplots(1, 3)
    draw_constituency(left, tree)
    draw_matrices(figure, places, {"C-Tree": c_tree(tree), "C-Tree w/Nuc": c_tree_nuclearity(tree)})
    figure.suptitle("Figure 5: EDUs attend to each other the more, the more constituents they share")
    return figure


def read_table(path: Path) -> dict[tuple[str, str], dict]:
    """Of each system, and of each with what it is compared with: its ROUGE-1 in a table of `shared.score`.

    The interval is over documents or, where a table was made without the summaries, over seeds.
    """
    found = {}
    for row in csv.DictReader(path.open(encoding="utf-8")):
        if row["metric"] == "rouge1":
            low, high = row["low"] or row["seeds_low"], row["high"] or row["seeds_high"]
            found[row["system"], row["minus"]] = {"value": float(row["value"]), "low": float(low), "high": float(high)}
    return found


def figure_claims(tables: dict[str, dict]):
    """The paper's differences (a diamond) beside ours in folds and on the held-out test, with their intervals."""
    figure = new_figure(figsize=(9, 0.6 * len(CLAIMS) + 1.2))
    axes = figure.subplots()
    for place, (_, system, minus, end, papers) in enumerate(CLAIMS):
        if papers is not None:
            axes.plot(papers, place - 0.2, "D", color="tab:red")
        for shift, suffixes, colour in ((0, [""], "black"), (0.2, ["_test", "_seeds_test"], "tab:blue")):
            rows = [tables.get(f"scitldr_{end}{suffix}", {}).get((system, minus)) for suffix in suffixes]
            for row in list(filter(None, rows))[-1:]:  # of two tables that with more seeds
                bars = [[row["value"] - row["low"]], [row["high"] - row["value"]]]
                axes.errorbar(row["value"], place + shift, xerr=bars, fmt="o", color=colour, capsize=3)
    axes.axvline(0, color="tab:grey", linewidth=1)
    axes.set(yticks=range(len(CLAIMS)), yticklabels=[claim for claim, *_ in CLAIMS], xlabel="difference in ROUGE-1")
    axes.invert_yaxis()
    figure.suptitle("red: the paper, CNN/DM; black: SciTLDR, five folds; blue: SciTLDR, held-out test")
    return figure


def figure_low_resource(table: dict[tuple[str, str], dict], name: str):
    """Section 5.2: ROUGE-1 by the number of training documents; a bar is the 95 % interval over documents."""
    figure = new_figure(figsize=(7, 4.5))
    axes, curves = figure.subplots(), {}
    for (system, minus), row in table.items():
        attention, _, size = system.rpartition("-n")
        if attention in CURVES and not minus:
            curves.setdefault(attention, []).append((int(size), row["value"], row["low"], row["high"]))
    for place, (attention, points) in enumerate(curves.items()):
        sizes, means, low, high = np.array(sorted(points)).T
        aside = sizes * 1.03 ** (place - (len(curves) - 1) / 2)  # or the bars would hide each other
        label, colour = CURVES[attention]
        axes.errorbar(aside, means, yerr=[means - low, high - means], capsize=3, color=colour, label=label)
    sizes = sorted({size for points in curves.values() for size, *_ in points})
    axes.set(xscale="log", xlabel="training documents", ylabel="ROUGE-1, 95 % interval over documents")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.set_xticks([], minor=True)
    figure.suptitle(f"ROUGE-1 by the number of training documents: {name.removeprefix('low_resource_')}")
    figure.legend(loc="outside right center", reverse=True, frameon=False)
    return figure


def main(out: tyro.conf.Positional[Path], tables: tyro.conf.Positional[tuple[Path, ...]] = ()) -> None:
    """Draw Figures 4 and 5, low-resource curves of tables of that name, and the claims of the others."""
    tree, read = read_tree(WORKED_TREE), {path.stem: read_table(path) for path in tables if "tree_" not in path.stem}
    figures = {"figure_4": figure_4(tree), "figure_5": figure_5(tree)}
    figures |= {name: figure_low_resource(read[name], name) for name in read if name.startswith("low_resource")}
    if any(name.startswith("scitldr") for name in read):
        figures["claims"] = figure_claims(read)
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(out / f"{name}.png", dpi=90)


if __name__ == "__main__":
    tyro.cli(main)
