"""The paper's figures, one function each: a PNG and, beside it, a CSV of the numbers that it shows.

python -m encdec_sentence_sparse.evaluate RUN [RUN...] --r 5 1 2 3 10 --map 0 --json metrics.json
python -m encdec_sentence_sparse.figures metrics.json --out figures

A metrics file per data set: the first stands where the paper has CNN/DailyMail (Figures 1, 4 and 5), the others for
XSum, Podcast and arXiv (6, 7, 8). Figure 3 is a drawing of the model and is not made.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from shared.data import write_csv

from .run import one_line_errors

PLACES = ("CNN/DailyMail", "XSum", "Podcast", "arXiv")  # which the files stand for, in this order
MOST_LINES = 6  # in one panel


@dataclass
class Options:
    """The command line."""

    metrics: tyro.conf.Positional[tuple[Path, ...]]  # what encdec_sentence_sparse.evaluate --json wrote, a file each
    out: Path  # folder to write to


class Missing(Exception):
    """A figure cannot be drawn; the message says what it needs."""


def save_figure(out: Path, name: str, figure: Figure, rows: Sequence[dict]) -> str:
    """Write NAME.png and NAME.csv; returns the path of the PNG."""
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.png", dpi=150)
    write_csv(out / f"{name}.csv", rows)
    return str(out / f"{name}.png")


def panels(title: str, metrics: dict, columns: int, width: float = 4.5, height: float = 3.8, share: bool = True):
    """A figure that names its data and seeds, and its (columns,) axes side by side."""
    figure = Figure((max(width * columns, 5), height), layout="constrained")
    seeds = ", ".join(str(seed) for seed in sorted({run["seed"] for run in metrics["runs"].values()}))
    data = f"{metrics['data']}, {metrics['split']}, {metrics['examples']} documents; seed of training: {seeds}"
    figure.suptitle(f"{title}\n{data}", fontsize=9)
    return figure, figure.subplots(1, columns, squeeze=False, sharey=share)[0]


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
    lines: dict[tuple[str, str], list[dict]] = {}
    for row in sorted(metrics["systems"].values(), key=lambda row: row["r"]):
        if row["mode"] != "full" and not row["share_beams"]:
            mode = f"{row['mode']} ({row['phi']})" if row["phi"] else row["mode"]
            lines.setdefault((row["run"], mode), []).append(row)
    return lines


# Figures


def figure_1(files: Sequence[dict], out: Path) -> str:
    """Figure 1: sum of attention weights against the number of retained sentences, of base and sparse-tuned runs."""
    runs, rows = {n: run for n, run in files[0]["runs"].items() if run["task"] in ("base", "sparse")}, []
    if not runs:
        raise Missing("needs a base or sparse-tuned run in the first file")
    figure, [axes] = panels("Figure 1: attention that the r most salient sentences hold", files[0], 1)
    for name, run in list(runs.items())[:MOST_LINES]:
        label, numbers = run_label(name, run), range(1, 1 + len(run["retained"]))
        axes.plot(numbers, run["retained"], "o-", markersize=3, label=label)
        rows += [{"run": label, "r": r, "retained": value} for r, value in zip(numbers, run["retained"], strict=True)]
    axes.set(xlabel="r, retained sentences", ylabel="sum of attention weights\n(mean over layers and steps)")
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize=7)
    return save_figure(out, "figure_1", figure, rows)


def figure_2(files: Sequence[dict], out: Path) -> str:
    """Figure 2: ROUGE-1 against r, full attention as a line across; a panel per file and kind of training."""
    groups, rows = [], []
    for metrics in files:
        for task in ("base", "sparse", "kl", "integrated"):
            lines = [(key, line) for key, line in curves(metrics).items() if len(line) > 1]
            lines = [(key, line) for key, line in lines if metrics["runs"][key[0]]["task"] == task]
            groups += [(metrics, task, lines[i : i + MOST_LINES - 1]) for i in range(0, len(lines), MOST_LINES - 1)]
    if not groups:
        raise Missing("needs evaluate --r with several numbers --json")
    figure, places = panels("Figure 2: ROUGE-1 against r at inference", files[0], len(groups))
    for axes, (metrics, task, lines) in zip(places, groups, strict=True):
        full = next(row for row in metrics["systems"].values() if row["mode"] == "full")["rouge1"]
        axes.axhline(full["mean"], color="black", linestyle=":", label="first run, full")
        axes.axhspan(full["low"], full["high"], color="black", alpha=0.08)
        rows.append({"data": metrics["data"], "task": task, "system": "full", "r": ""} | full)
        for (run, mode), line in lines:
            label, values = f"{run_label(run, metrics['runs'][run])}: {mode}", [row["rouge1"] for row in line]
            draw(axes, [row["r"] for row in line], values, "mean", label)
            rows += [
                {"data": metrics["data"], "task": task, "system": label, "r": row["r"]} | row["rouge1"] for row in line
            ]
        axes.set(xlabel="r at inference", ylabel="ROUGE-1 F1, 95 % interval", title=f"{metrics['data']}, {task}")
        axes.legend(fontsize=6)
    return save_figure(out, "figure_2", figure, rows)


def draw(axes, lengths: Sequence[int], values: Sequence[dict], key: str, label: str) -> None:
    """A line with its intervals."""
    means = np.array([value[key] for value in values])
    bars = np.abs([[value["low"] for value in values], [value["high"] for value in values]] - means)
    axes.errorbar(lengths, means, bars, fmt="o-", markersize=3, capsize=2, linewidth=1, label=label)
    axes.xaxis.get_major_locator().set_params(integer=True)


def figure_4(files: Sequence[dict], out: Path) -> str:
    """Figure 4: ROUGE-1 against r at inference of runs with other r in training.

    The paper shows the difference to the run with r 5 in training; here it is that to the first run's full attention,
    whose paired intervals `evaluate` has. Where lines cross, and by how much, is the same.
    """
    metrics, groups = files[0], {}
    for (name, mode), line in curves(metrics).items():
        run = metrics["runs"][name]
        if run["task"] == "integrated" and mode == "approx":
            groups.setdefault((run["select"], run["sentence_encoder"]), {})[run["r_train"]] = line
    groups = {key: group for key, group in groups.items() if len(group) > 1}
    if not groups:
        raise Missing("needs integrated runs with different --r in training, and the same --select, in the first file")
    figure, places = panels("Figure 4: r in training and at inference", metrics, len(groups))
    rows = []
    for axes, ((select, encoder), group) in zip(places, groups.items(), strict=True):
        for r_train, line in sorted(group.items())[:MOST_LINES]:
            draw(
                axes, [s["r"] for s in line], [s["difference"] for s in line], "difference", f"r {r_train} in training"
            )
            known = {"select": select, "encoder": encoder, "r_train": r_train}
            rows += [known | {"r": row["r"]} | row["difference"] for row in line]
        axes.set(xlabel="r at inference", ylabel="ROUGE-1 minus first run's full\nattention, 95 % interval")
        axes.set_title(f"integrated, {select}, {encoder}", fontsize=9)
        axes.legend(fontsize=7)
    return save_figure(out, "figure_4", figure, rows)


def attention_maps(files: Sequence[dict], out: Path, place: int) -> str:
    """Figures 5-8: attention over words (left) and over sentences (right) while a summary is written."""
    runs = files[place]["runs"] if place < len(files) else {}
    name, run = next(((name, run) for name, run in runs.items() if "map" in run), (None, None))
    if run is None:
        where = "the first file" if place == 0 else f"a file in the place of {PLACES[place]}"
        raise Missing(f"needs {where}, written by evaluate --map N --json")
    shown, number = run["map"], 5 + place
    title = f"Figure {number}: {name}, full attention, mean over heads and layers"
    figure, (left, right) = panels(title, files[place], 2, 5, 5, share=False)
    scale = PowerNorm(0.5, 0, np.max(shown["exact"]))  # one for both
    for axes, kind, label in ((left, "word", "token of the source"), (right, "exact", "sentence of the source")):
        image = axes.imshow(shown[kind], aspect="auto", cmap="Blues", norm=scale, interpolation="nearest")
        axes.set(xlabel=label, ylabel="step")
    figure.colorbar(image, ax=(left, right), label="attention (root scale)")
    ids = shown["sentence_ids"]
    for start in (i for i in range(1, len(ids)) if ids[i - 1] < ids[i]):
        left.axvline(start - 0.5, color="gray", linewidth=0.4)
    texts = [word.replace("Ġ", "") for word in shown["target"]]
    if len(texts) <= 60:
        left.set_yticks(range(len(texts)), texts, fontsize=5)
    rows = [
        {"step": step, "word": texts[step], "sentence": sentence, "attention": value}
        for step, weights in enumerate(shown["exact"])
        for sentence, value in enumerate(weights)
    ]
    return save_figure(out, f"figure_{number}", figure, rows)


FIGURES = {"figure_1": figure_1, "figure_2": figure_2, "figure_4": figure_4} | {
    f"figure_{5 + place}": lambda files, out, place=place: attention_maps(files, out, place) for place in range(4)
}


def read_metrics(path: Path) -> dict:
    """What evaluate --json wrote; raises ValueError that names the file."""
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        for row in metrics["systems"].values():
            if row["run"] not in metrics["runs"] or not {"mode", "r", "phi", "share_beams", "difference"} <= set(row):
                raise KeyError(row["run"])
        if {"data", "split", "examples"} <= set(metrics):
            return metrics
        raise KeyError("data")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what {__package__}.evaluate --json writes ({error!r})") from None


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(Options, prog=f"python -m {__package__}.figures", description=__doc__, args=arguments)
    files = [read_metrics(path) for path in options.metrics]
    if not files:
        raise ValueError("give at least one metrics file")
    for name, draw_figure in FIGURES.items():
        try:
            print(f"{name}: {draw_figure(files, options.out)}", flush=True)
        except Missing as reason:
            print(f"{name}: skipped, {reason}", flush=True)


if __name__ == "__main__":
    main()
