"""The paper's figures, one function each: a PNG and, beside it, a CSV of the numbers that it shows.

python -m encdec_sentence_sparse.evaluate RUN [RUN...] --r 5 1 2 3 10 --map 0 --json metrics.json
python -m encdec_sentence_sparse.figures metrics.json --out figures

All numbers come from what encdec_sentence_sparse.evaluate --json wrote, a file per data set. The first file stands
where the paper has CNN/DailyMail (Figures 1, 4 and 5), the others for XSum, Podcast and arXiv (6, 7, 8). Figure 3 is a
drawing of the model and is not made.
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
from matplotlib.figure import Figure

PLACES = ("CNN/DailyMail", "XSum", "Podcast", "arXiv")  # which the files stand for, in this order
REFERENCE_R = 5  # Figure 4: the run that the others are compared with


class Missing(Exception):
    """A figure cannot be drawn; the message says what it needs."""


class Material(NamedTuple):
    """What there is to draw from."""

    metrics: list[dict]  # what encdec_sentence_sparse.evaluate --json wrote, a file each
    out: Path


def save(material: Material, name: str, figure: Figure, rows: Sequence[dict]) -> str:
    """Write NAME.png and NAME.csv; returns the path of the PNG."""
    material.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(material.out / f"{name}.png", dpi=150)
    with (material.out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return str(material.out / f"{name}.png")


def panels(title: str, columns: int, width: float = 4.5, height: float = 3.5) -> tuple[Figure, np.ndarray]:
    """A figure and its (columns,) axes side by side."""
    figure = Figure((max(width * columns, 5), height), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def run_label(name: str, run: dict) -> str:
    """A run and what makes it different from others of its task."""
    details = {
        "sparse": f", gamma {run['gamma']:g}",
        "kl": f", {run['sentence_encoder']}",
        "integrated": f", {run['select']}, r {run['r_train']}",
    }
    return name + details.get(run["task"], "")


def curves(metrics: dict) -> dict[tuple[str, str], list[dict]]:
    """The systems of a file as curves over r: (run, mode) -> rows by rising r, of those that beams do not share."""
    found: dict[tuple[str, str], list[dict]] = {}
    for row in sorted(metrics["systems"].values(), key=lambda row: row["r"]):
        if row["mode"] != "full" and not row["share_beams"]:
            mode = f"{row['mode']} ({row['phi']})" if row["phi"] else row["mode"]
            found.setdefault((row["run"], mode), []).append(row)
    return found


# Figures


def figure_1(material: Material) -> str:
    """Figure 1: sum of attention weights against the number of retained sentences, of base and sparse-tuned runs."""
    metrics, rows = material.metrics[0], []
    runs = {name: run for name, run in metrics["runs"].items() if run["task"] in ("base", "sparse")}
    if not runs:
        raise Missing("needs a base or sparse-tuned run in the first file")
    figure, [axes] = panels("Figure 1: attention that r sentences retain", 1)
    for name, run in runs.items():
        label = run_label(name, run)
        numbers = range(1, 1 + len(run["retained"]))
        axes.plot(numbers, run["retained"], "o-", markersize=3, label=label)
        rows += [{"run": label, "r": r, "retained": value} for r, value in zip(numbers, run["retained"], strict=True)]
    axes.set(xlabel="r, retained sentences", ylabel="sum of attention weights", ylim=(0, 1.02))
    axes.legend(fontsize=7)
    return save(material, "figure_1", figure, rows)


def figure_2(material: Material) -> str:
    """Figure 2: ROUGE-1 against r, all systems; a panel per file; full attention as a line across."""
    shown = [{key: rows for key, rows in curves(metrics).items() if len(rows) > 1} for metrics in material.metrics]
    if not any(shown):
        raise Missing("needs encdec_sentence_sparse.evaluate --r with several numbers --json")
    figure, places = panels("Figure 2: ROUGE-1 against r", len(shown), width=7.5, height=4.5)
    rows = []
    for axes, metrics, found in zip(places, material.metrics, shown, strict=True):
        full = next(row for row in metrics["systems"].values() if row["mode"] == "full")["scores"]["rouge1"]
        axes.axhline(full["mean"], color="black", linestyle=":", label="full")
        axes.axhspan(full["low"], full["high"], color="black", alpha=0.08)
        rows.append({"data": metrics["data"], "system": "full", "r": ""} | full)
        for number, ((run, mode), systems) in enumerate(found.items()):
            style = ("o-", "s--", "^:")[number // 10 % 3]  # colours repeat after ten lines
            label = f"{run_label(run, metrics['runs'][run])}: {mode}"
            values = [system["scores"]["rouge1"] for system in systems]
            lengths = [system["r"] for system in systems]
            [line] = axes.plot(lengths, [value["mean"] for value in values], style, markersize=3, label=label)
            axes.vlines(lengths, [v["low"] for v in values], [v["high"] for v in values], line.get_color(), alpha=0.4)
            for r, value in zip(lengths, values, strict=True):
                rows.append({"data": metrics["data"], "system": label, "r": r} | value)
        axes.set(xlabel="r at inference", ylabel="ROUGE-1 F1, 95 % interval")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_title(metrics["data"], fontsize=9)
        axes.legend(fontsize=6, loc="lower left", bbox_to_anchor=(1, 0))
    return save(material, "figure_2", figure, rows)


def figure_4(material: Material) -> str:
    """Figure 4: ROUGE-1 against r at inference, as the difference to the run with r = 5 in training."""
    groups: dict[tuple, dict[int, list[dict]]] = {}
    for metrics in material.metrics[:1]:
        for (name, mode), systems in curves(metrics).items():
            run = metrics["runs"][name]
            if run["task"] == "integrated" and mode == "approx":
                groups.setdefault((run["select"], run["sentence_encoder"]), {})[run["r_train"]] = systems
    groups = {key: group for key, group in groups.items() if len(group) > 1}
    if not groups:
        raise Missing("needs integrated runs with different --r in training, and the same --select, in the first file")
    figure, places = panels("Figure 4: r in training and at inference", len(groups))
    rows = []
    for axes, ((select, encoder), group) in zip(places, groups.items(), strict=True):
        reference = REFERENCE_R if REFERENCE_R in group else sorted(group)[len(group) // 2]
        base = {system["r"]: system["scores"]["rouge1"]["mean"] for system in group[reference]}
        for r_train, systems in sorted(group.items()):
            points = [(s["r"], s["scores"]["rouge1"]["mean"] - base[s["r"]]) for s in systems if s["r"] in base]
            axes.plot(*zip(*points, strict=True), "o-", markersize=3, label=f"r {r_train} in training")
            for r, value in points:
                rows.append({"select": select, "encoder": encoder, "r_train": r_train, "r": r, "difference": value})
        axes.set(xlabel="r at inference", ylabel=f"ROUGE-1 minus that of r {reference}")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_title(f"integrated, {select}, {encoder}", fontsize=9)
        axes.legend(fontsize=7)
    return save(material, "figure_4", figure, rows)


def attention_maps(material: Material, number: int, place: int) -> str:
    """Figures 5-8: attention over words (left) and over sentences (right) while a summary is written."""
    runs = material.metrics[place]["runs"] if place < len(material.metrics) else {}
    name, run = next(((name, run) for name, run in runs.items() if "map" in run), (None, None))
    if run is None:
        where = "the first file" if place == 0 else f"a file in the place of {PLACES[place]}"
        raise Missing(f"needs {where}, written by encdec_sentence_sparse.evaluate --map N --json")
    found = run["map"]
    figure, (left, right) = panels(f"Figure {number}: {name}, full attention, mean over heads and layers", 2, 5, 5)
    draw_map(left, np.array(found["word"]), "word of the source")
    draw_map(right, np.array(found["exact"]), "sentence of the source")
    starts = [
        i for i, (a, b) in enumerate(zip(found["sentence_ids"], found["sentence_ids"][1:], strict=False)) if a < b
    ]
    for start in starts:
        left.axvline(start + 0.5, color="gray", linewidth=0.4)
    texts = [word.replace("Ġ", "") for word in found["target"]]
    if len(texts) <= 60:
        left.set_yticks(range(len(texts)), texts, fontsize=5)
    rows = [
        {"step": step, "word": texts[step], "sentence": sentence, "attention": value}
        for step, weights in enumerate(found["exact"])
        for sentence, value in enumerate(weights)
    ]
    return save(material, f"figure_{number}", figure, rows)


def draw_map(axes: Axes, weights: np.ndarray, name: str) -> None:
    """One cell for each step (y, the first on top) and place (x)."""
    image = axes.imshow(weights, aspect="auto", cmap="Blues", vmin=0, interpolation="nearest")
    axes.figure.colorbar(image, ax=axes)
    axes.set(xlabel=name, ylabel="step")


def figure_5(material: Material) -> str:
    """Figure 5: attention maps on the first data."""
    return attention_maps(material, 5, 0)


def figure_6(material: Material) -> str:
    """Figure 6: attention maps on the second data."""
    return attention_maps(material, 6, 1)


def figure_7(material: Material) -> str:
    """Figure 7: attention maps on the third data."""
    return attention_maps(material, 7, 2)


def figure_8(material: Material) -> str:
    """Figure 8: attention maps on the fourth data."""
    return attention_maps(material, 8, 3)


FIGURES = (figure_1, figure_2, figure_4, figure_5, figure_6, figure_7, figure_8)


# Command line


def read_metrics(path: Path) -> dict:
    """What evaluate --json wrote, to a file or as metrics.json of a folder; raises ValueError that names the file."""
    path = path / "metrics.json" if path.is_dir() else path
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        for row in metrics["systems"].values():
            if row["run"] not in metrics["runs"] or not {"mode", "r", "phi", "share_beams", "scores"} <= set(row):
                raise KeyError(row["run"])
        return {"data": metrics["data"], "runs": dict(metrics["runs"]), "systems": dict(metrics["systems"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what encdec_sentence_sparse.evaluate --json writes ({error!r})") from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw what can be drawn, and say why the rest cannot."""
    parser = argparse.ArgumentParser("python -m encdec_sentence_sparse.figures", description=__doc__.splitlines()[0])
    parser.add_argument(
        "metrics",
        nargs="+",
        type=Path,
        help="JSON files of encdec_sentence_sparse.evaluate, or folders of metrics.json",
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
