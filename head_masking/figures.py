"""The paper's figures, one function each: a PNG and, beside it, a CSV of the numbers that it shows.

python -m head_masking.evaluate runs/hm-base --sweep --focus --json metrics.json
python -m head_masking.figures metrics.json --out figures                                  # Figures 2, 3, 4, 10
python -m head_masking.figures metrics.json other.json --out figures                       # and 6, 7, 8

All numbers come from what head_masking.evaluate --json wrote. The first file stands where the paper has CNN/DailyMail
(Figures 2-5, 10), the second for XSum (6-8), the third for NYT (6, 7, 9).
"""

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from .focus import CATEGORIES

METRICS = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeLsum": "ROUGE-L"}
PLACES = ("CNN/DailyMail", "XSum", "NYT")  # which the files stand for, in this order


class Missing(Exception):
    """A figure cannot be drawn; the message says what it needs."""


class Material(NamedTuple):
    """What there is to draw from."""

    metrics: list[dict]  # what head_masking.evaluate --json wrote, a file each
    out: Path


def analyses(material: Material, key: str, flag: str, places: Sequence[int]) -> list[tuple[str, dict]]:
    """Names and analyses of the files at these places that have `key`; raises Missing if there is none."""
    files = [material.metrics[place] for place in places if place < len(material.metrics)]
    pairs = [pair for metrics in files for pair in metrics["analysis"].items()]
    found = [(f"{name} on {analysis['data']}", analysis) for name, analysis in pairs if key in analysis]
    if not found:
        wanted = "the first file" if 0 in places else f"a file in the place of {PLACES[places[0]]}"
        raise Missing(f"needs {wanted}, written by head_masking.evaluate {flag} --json")
    return found


def save(material: Material, name: str, figure: Figure, rows: Sequence[dict]) -> str:
    """Write NAME.png and NAME.csv; returns the path of the PNG."""
    material.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(material.out / f"{name}.png", dpi=150)
    with (material.out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return str(material.out / f"{name}.png")


def panels(title: str, rows: int, columns: int, width: float = 4.0) -> tuple[Figure, np.ndarray]:
    """A figure and its (rows, columns) axes."""
    figure = Figure((max(width * columns, 5), 0.6 + 3.0 * rows), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure, figure.subplots(rows, columns, squeeze=False)


def heat_map(axes: Axes, rows: Sequence[dict], column: str, title: str, diverging: bool = False) -> None:
    """One cell for each head (x) of each layer (y, the bottom layer at the bottom)."""
    grid = np.full((max(row["layer"] for row in rows), 1 + max(row["head"] for row in rows)), np.nan)
    for row in rows:
        grid[row["layer"] - 1, row["head"]] = row[column]
    largest = np.nanmax(np.abs(grid)) or 1.0
    look = {"cmap": "RdBu_r", "norm": TwoSlopeNorm(0, -largest, largest)} if diverging else {"cmap": "Blues", "vmin": 0}
    image = axes.imshow(grid, origin="lower", aspect="auto", **look)
    axes.figure.colorbar(image, ax=axes)
    axes.set_xticks(range(grid.shape[1]))
    axes.set_yticks(range(grid.shape[0]), range(1, grid.shape[0] + 1))
    axes.set(xlabel="head", ylabel="layer")
    axes.set_title(title, fontsize=9)


# Figures


def effects(material: Material, number: int, places: Sequence[int]) -> str:
    """Figures 2 and 6: content selection effect of each head at each layer, ROUGE-1 F1 r_ora - r_uni."""
    found = analyses(material, "effects", "--sweep", places)
    figure, grid = panels(f"Figure {number}: content selection effect, ROUGE-1 F1", len(found), 1, 6.4)
    rows = []
    for axes, (name, analysis) in zip(grid.flat, found, strict=True):
        heat_map(axes, analysis["effects"], "mean", f"{name}, {analysis['documents']} documents", diverging=True)
        rows += [{"system": name} | row for row in analysis["effects"]]
    return save(material, f"figure_{number}", figure, rows)


def figure_2(material: Material) -> str:
    """Figure 2: content selection effects on the first data."""
    return effects(material, 2, [0])


def figure_6(material: Material) -> str:
    """Figure 6: content selection effects on the other data."""
    return effects(material, 6, [1, 2])


def synergy(material: Material, number: int, places: Sequence[int]) -> str:
    """Figures 3 and 7: left, heads added one by one; right, all heads together against the sum of the parts."""
    found = analyses(material, "synergy", "--sweep", places)
    figure, grid = panels(f"Figure {number}: heads masked together", len(found), 2)
    rows = []
    for (left, right), (name, analysis) in zip(grid, found, strict=True):
        draw_steps(left, analysis["synergy"])
        draw_parts(right, analysis["parts"])
        left.set_title(name, fontsize=9)
        rows += [{"system": name, "side": "left"} | row for row in analysis["synergy"]]
        for row in analysis["parts"]:
            for side in ("together", "parts"):
                rows.append({"system": name, "side": f"right, {side}", "layer": row["layer"]} | row[side])
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return save(
        material, f"figure_{number}", figure, [{column: row.get(column, "") for column in columns} for row in rows]
    )


def draw_steps(axes: Axes, rows: Sequence[dict]) -> None:
    """A line per layer; dotted where the head added has no effect by itself."""
    for layer in sorted({row["layer"] for row in rows}):
        steps = [row for row in rows if row["layer"] == layer]
        [line] = axes.plot(steps[0]["count"], steps[0]["mean"], "o", markersize=3, label=f"layer {layer}")
        for before, after in zip(steps, steps[1:], strict=False):
            ends = [before["count"], after["count"]], [before["mean"], after["mean"]]
            style = "-" if after["added_effect"] > 0 else ":"
            axes.plot(*ends, style, marker="o", markersize=3, color=line.get_color())
    axes.set_xticks(range(1, 1 + max(row["count"] for row in rows)))
    axes.set(xlabel="heads masked, best first", ylabel="ROUGE-1 F1 improvement")
    axes.legend(fontsize=7, ncols=2)


def draw_parts(axes: Axes, rows: Sequence[dict]) -> None:
    """Two bars per layer with their 95 % intervals."""
    for shift, key, label in ((-0.2, "together", "all heads masked"), (0.2, "parts", "sum over heads")):
        means = np.array([row[key]["mean"] for row in rows])
        spread = [means - [row[key]["low"] for row in rows], [row[key]["high"] for row in rows] - means]
        axes.bar([row["layer"] + shift for row in rows], means, 0.4, yerr=np.maximum(spread, 0), label=label)
    axes.set_xticks([row["layer"] for row in rows])
    axes.set(xlabel="layer", ylabel="ROUGE-1 recall improvement")
    axes.legend(fontsize=7)


def figure_3(material: Material) -> str:
    """Figure 3: synergy on the first data."""
    return synergy(material, 3, [0])


def figure_7(material: Material) -> str:
    """Figure 7: synergy on the other data."""
    return synergy(material, 7, [1, 2])


def focus(material: Material, number: int, place: int, categories: Sequence[str]) -> str:
    """Figures 4, 8, 9 and 10: share of the attendees of each category, per head and layer."""
    found = analyses(material, "focus", "--focus", [place])
    known = [kind for kind in categories if all(kind in row for _, each in found for row in each["focus"])]
    figure, grid = panels(f"Figure {number}: attendees, % of generated words", len(found), len(known), 3.4)
    rows = []
    for line, (name, analysis) in zip(grid, found, strict=True):
        for axes, kind in zip(line, known, strict=True):
            heat_map(
                axes,
                analysis["focus"],
                kind,
                f"{kind.replace('non_copy', 'non-copy').replace('_', ' ').upper()}, {name}",
            )
        rows += [{"system": name} | row for row in analysis["focus"]]
    return save(material, f"figure_{number}", figure, rows)


def figure_4(material: Material) -> str:
    """Figure 4: COPY and NON-COPY SALIENT, COPY CONTENT and FIRST attendees on the first data."""
    return focus(material, 4, 0, ["copy_salient", "non_copy_salient", "copy_content", "first"])


def figure_8(material: Material) -> str:
    """Figure 8: all categories on the second data."""
    return focus(material, 8, 1, CATEGORIES)


def figure_9(material: Material) -> str:
    """Figure 9: all categories on the third data."""
    return focus(material, 9, 2, CATEGORIES)


def figure_10(material: Material) -> str:
    """Figure 10: NON-COPY CONTENT and LAST attendees on the first data."""
    return focus(material, 10, 0, ["non_copy_content", "last"])


def figure_5(material: Material) -> str:
    """Figure 5: ROUGE over the number of training examples, with and without masking by the tagger."""
    systems = [row for metrics in material.metrics for row in metrics["systems"].values()]
    systems = [row for row in systems if row["labels"] != "oracle" and row["trained_on"]]
    if len({row["trained_on"] for row in systems}) < 2:
        raise Missing("needs head_masking.evaluate --json on summarisers with different numbers of training examples")
    figure, grid = panels("Figure 5: different sizes of training data", 1, len(METRICS), 3.4)
    rows = []
    for axes, (metric, title) in zip(grid.flat, METRICS.items(), strict=True):
        for is_masked, label in ((False, "no masking"), (True, "attention head masking")):
            curve = [row for row in systems if (row["labels"] != "plain") == is_masked]
            curve.sort(key=lambda row: row["trained_on"])
            values = [row["scores"][metric] for row in curve]
            sizes = [row["trained_on"] for row in curve]
            axes.plot(sizes, [value["mean"] for value in values], "o-", label=label)
            axes.vlines(sizes, [v["low"] for v in values], [v["high"] for v in values], colors="gray", alpha=0.5)
            for size, value, row in zip(sizes, values, curve, strict=True):
                rows.append({"examples": size, "system": label, "heads": row["heads"], "metric": title} | value)
        axes.set(xscale="log", xlabel="training examples", ylabel=f"{title} F1, 95 % interval")
        axes.legend(fontsize=7)
    return save(material, "figure_5", figure, [{k: "" if v is None else v for k, v in row.items()} for row in rows])


FIGURES = (figure_2, figure_3, figure_4, figure_5, figure_6, figure_7, figure_8, figure_9, figure_10)


# Command line


def read_metrics(path: Path) -> dict:
    """What head_masking.evaluate --json wrote, to a file or as metrics.json; raises ValueError that names the file."""
    path = path / "metrics.json" if path.is_dir() else path
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        return {"systems": dict(metrics["systems"]), "analysis": dict(metrics["analysis"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not what head_masking.evaluate --json writes ({error!r})") from None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m head_masking.figures", description=__doc__.splitlines()[0])
    parser.add_argument(
        "metrics", nargs="+", type=Path, help="JSON files of head_masking.evaluate, or folders with a metrics.json"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder to write to")
    flags = parser.parse_args(arguments)
    try:
        material = Material([read_metrics(path) for path in flags.metrics], flags.out)
        for draw in FIGURES:
            try:
                print(f"{draw.__name__}: {draw(material)}", flush=True)
            except Missing as reason:
                print(f"{draw.__name__}: skipped, {reason}", flush=True)
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
