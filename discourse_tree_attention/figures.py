"""Figures 4 and 5 (trees and their matrices), and learned against tree attention, for one document.

python -m discourse_tree_attention.figures runs/tree runs/dot --out figures [--split test] [--document ID]
python -m discourse_tree_attention.figures --tree FILE.dis --out figures
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes

from .documents import Corpus, Document, collate
from .matrices import c_tree, c_tree_nuclearity, d_tree, heads, post_edit
from .train import Run, extract, load_corpus, load_run, score_documents
from .trees import Node, nodes, read_tree

SHORTEST = 6  # EDUs of the document that is drawn when none is named: the shortest with so many


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
        axes.text(*middle, "N" if nucleus else "S", color="tab:blue" if nucleus else "tab:red", fontsize=8)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(yticks=[], xlabel="EDU")


def draw_dependencies(axes: Axes, parents: np.ndarray) -> None:
    """An arc from each EDU to its head; a root gets a stroke upwards."""
    for unit, head in enumerate(parents, start=1):
        if head == unit - 1:
            axes.annotate("root", (unit, 0), (unit, len(parents) / 4), arrowprops={"arrowstyle": "->"}, ha="center")
            continue
        xs = np.linspace(unit, head + 1, 50)
        middle, radius = (unit + head + 1) / 2, abs(unit - head - 1) / 2
        axes.plot(xs, 0.6 * np.sqrt(np.maximum(radius**2 - (xs - middle) ** 2, 0)), "k-", linewidth=1)
        axes.plot(unit, 0, "k.")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(yticks=[], xlabel="EDU (arcs lead to its head; dots: dependents)")


def draw_matrix(axes: Axes, matrix: np.ndarray, title: str, unit: str = "EDU") -> None:
    """Attention of row unit to column unit."""
    count = len(matrix)
    axes.imshow(matrix, cmap="Blues", vmin=0, extent=(0.5, count + 0.5, count + 0.5, 0.5))
    axes.set(xlabel=f"{unit} attended to", ylabel=unit)
    axes.set_title(title, fontsize=9)


def figure_4(tree: Node, sentence: np.ndarray | None, out: Path) -> None:
    """Figure 4: dependency tree and its attention matrix."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    parents = heads(tree) if sentence is None else post_edit(heads(tree), sentence)
    draw_dependencies(left, parents)
    matrix = d_tree(tree, sentence)
    draw_matrix(right, matrix, "D-Tree")
    save(figure, {"d_tree": matrix}, out / "figure_4")


def figure_5(tree: Node, out: Path) -> None:
    """Figure 5: constituency tree, and its matrices without and with nuclearity."""
    figure, axes = plt.subplots(1, 3, figsize=(14, 4))
    draw_constituency(axes[0], tree)
    matrices = {"c_tree": c_tree(tree), "c_tree_nuclearity": c_tree_nuclearity(tree)}
    for place, title, matrix in zip(axes[1:], ("C-Tree", "C-Tree w/Nuc"), matrices.values(), strict=True):
        draw_matrix(place, matrix, title)
    save(figure, matrices, out / "figure_5")


@torch.inference_mode()
def attention_maps(run: Run, corpus: Corpus, index: int) -> dict[str, np.ndarray]:
    """(N, N) attention of every layer and head of a run on one document; a layer without attention is left out."""
    batch = collate(corpus, [index])
    maps: dict[str, np.ndarray] = {}
    handles = []
    for number, layer in enumerate(run.model.layers, start=1):

        def keep_weights(module, inputs, weights, number=number):
            for head, matrix in enumerate(weights[0] if weights is not None else (), start=1):
                maps[f"layer {number}" + (f", head {head}" if weights.size(1) > 1 else "")] = matrix.numpy()

        handles.append(layer.attention.weights.register_forward_hook(keep_weights))
    run.model(batch.units, batch.keep, batch.matrix)
    for handle in handles:
        handle.remove()
    return maps


def figure_attention(runs: dict[str, tuple[Run, Corpus, int]], out: Path) -> None:
    """Learned against tree attention on one document: all layers and heads of each run."""
    maps = {}
    for name, (run, corpus, index) in runs.items():
        own = attention_maps(run, corpus, index)
        same = len({matrix.tobytes() for matrix in own.values()}) == 1  # a tree's matrix is that of every layer
        maps |= {f"{name}, {'all layers' if same else part}": matrix for part, matrix in own.items()}
    if not maps:
        raise ValueError("none of the runs has attention to draw")
    columns = min(4, len(maps))
    lines = -(-len(maps) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4 * columns, 4 * lines), squeeze=False)
    for place in axes.flat:
        place.set_visible(False)
    for place, (name, matrix) in zip(axes.flat, maps.items(), strict=False):
        place.set_visible(True)
        draw_matrix(place, matrix, name, "unit")
    save(figure, maps, out / "attention")


def save(figure: plt.Figure, matrices: dict[str, np.ndarray], path: Path) -> None:
    """Write PATH.png, and the numbers as PATH.csv: one line per matrix entry that is not 0."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".png"), dpi=120, bbox_inches="tight")
    plt.close(figure)
    with path.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["matrix", "unit", "attended to", "weight"])
        for name, matrix in matrices.items():
            writer.writerows(
                [name, i + 1, j + 1, f"{matrix[i, j]:.5g}"] for i, j in zip(*np.nonzero(matrix), strict=True)
            )


def choose(documents: Sequence[Document], identity: str | None) -> Document:
    """The named document, or the shortest that is not too short."""
    if identity:
        found = [document for document in documents if document.id == identity]
        if not found:
            raise ValueError(
                f"there is no document {identity!r}; some that are: {', '.join(d.id for d in documents[:5])}"
            )
        return found[0]
    long_enough = [d for d in documents if len(d.units) >= SHORTEST] or list(documents)
    return min(long_enough, key=lambda document: len(document.units))


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw; bad input ends the program with one line that says what is wrong."""
    module = "python -m discourse_tree_attention.figures"
    parser = argparse.ArgumentParser(module, description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("runs", nargs="*", type=Path, help="run folders, of one level and on the same data")
    parser.add_argument("--tree", type=Path, help="draw this tree's Figures 4 and 5; no run needed")
    parser.add_argument("--out", type=Path, required=True, help="folder for PNG and CSV")
    parser.add_argument("--split", default="test")
    parser.add_argument("--document", help="id of the document (default: the shortest of 6 units or more)")
    parser.add_argument("--cache", default="", help="folder of unit vectors and matrices")
    flags = parser.parse_args(arguments)
    try:
        if bool(flags.tree) == bool(flags.runs):
            raise ValueError("give either run folders or --tree FILE")
        if flags.tree:
            tree = read_tree(flags.tree)
            figure_4(tree, None, flags.out)
            figure_5(tree, flags.out)
            return
        draw_runs(flags)
    except (ValueError, ImportError, OSError) as error:
        sys.exit(f"error: {error}")


def draw_runs(flags: argparse.Namespace) -> None:
    """All figures for one document of the first run's data."""
    chosen, runs = None, {}
    for path in flags.runs:
        run, cache = load_run(path), flags.cache or str(path / "cache")
        corpus, _, _ = load_corpus(run.config, flags.split, run.encoder, cache, progress=False)
        document = choose(corpus.documents, chosen or flags.document)
        chosen = document.id
        index = corpus.documents.index(document)
        runs[path.name] = (run, corpus, index)
        scores = score_documents(run.model, corpus)[index]
        print(f"{path.name} on {document.id}: {' '.join(extract(document, scores, run.config))}")
    _, corpus, index = next(iter(runs.values()))
    document = corpus.documents[index]
    if document.tree is not None:
        figure_4(document.tree, document.edu_sentence, flags.out)
        figure_5(document.tree, flags.out)
    figure_attention(runs, flags.out)


if __name__ == "__main__":
    main()
