"""The paper's figures, one function each, from metrics files.

python -m encdec_sentence_sparse.evaluate RUN [RUN...] --r 5 1 2 3 10 --map 0 --json metrics.json
python -m encdec_sentence_sparse.experiments.figures metrics.json --out figures

A metrics file per data set: the first stands where the paper has CNN/DailyMail (Figures 1, 4 and 5), the others for
XSum, Podcast and arXiv (6, 7, 8). Figure 3 is a drawing of the model and is not made.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import fill

import numpy as np
import tyro
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from ..run import one_line_errors

MOST_LINES = 6  # in one panel


@dataclass
class Options:
    """The command line."""

    metrics: tyro.conf.Positional[tuple[Path, ...]]  # what encdec_sentence_sparse.evaluate --json wrote, a file each
    out: Path  # folder to write to


class Missing(Exception):
    """A figure cannot be drawn; the message says what it needs."""


def panels(title: str, metrics: dict, columns: int, width: float = 4.5, height: float = 3.8, share: bool = True):
    """A figure that names its data and seeds, and its (columns,) axes side by side."""
    figure = Figure((max(width * columns, 5), height), layout="constrained")
    seeds = ", ".join(map(str, sorted({run["seed"] for run in metrics["runs"].values()})))
    data = f"{metrics['data']}, {metrics['split']}, {metrics['examples']} documents; seed of training: {seeds}"
    figure.suptitle(f"{title}\n{fill(data, int(14 * figure.get_figwidth()))}", fontsize=9)
    return figure, figure.subplots(1, columns, squeeze=False, sharey=share)[0]


def run_label(name: str, run: dict) -> str:
    """A run and what makes it different from others of its task."""
    details = {"sparse": f", gamma {run['gamma']:g}", "kl": f", {run['sentence_encoder']}"}
    details["integrated"] = f", {run['select']}, r {run['r_train']}"
    return name + details.get(run["task"], "")


def curves(metrics: dict) -> dict[tuple[str, str], list[dict]]:
    """The systems of a file as curves over r: (run, mode) -> rows by rising r."""
    lines: dict[tuple[str, str], list[dict]] = {}
    for row in sorted(metrics["systems"].values(), key=lambda row: row["r"]):
        if row["mode"] != "full":
            mode = f"{row['mode']} ({row['phi']})" if row["phi"] else row["mode"]
            lines.setdefault((row["run"], mode), []).append(row)
    return lines


def draw(axes, line: Sequence[dict], score: str, key: str, label: str) -> None:
    """A curve over r with its intervals."""
    means, low, high = (np.array([row[score][name] for row in line]) for name in (key, "low", "high"))
    places = [row["r"] for row in line]
    axes.errorbar(places, means, (means - low, high - means), fmt="o-", markersize=3, capsize=2, label=label)
    axes.xaxis.get_major_locator().set_params(integer=True)


def figure_1(files: Sequence[dict]) -> Figure:
    """Figure 1: sum of attention weights against the number of retained sentences, of base and sparse-tuned runs."""
    runs = {name: run for name, run in files[0]["runs"].items() if run["task"] in ("base", "sparse")}
    if not runs:
        raise Missing("needs a base or sparse-tuned run in the first file")
    figure, [axes] = panels("Figure 1: attention that the r most salient sentences hold", files[0], 1)
    for name, run in list(runs.items())[:MOST_LINES]:
        axes.plot(range(1, 1 + len(run["retained"])), run["retained"], "o-", markersize=3, label=run_label(name, run))
    axes.set(xlabel="r, retained sentences", ylabel="sum of attention weights\n(mean over layers and steps)")
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize=7)
    return figure


def figure_2(files: Sequence[dict]) -> Figure:
    """Figure 2: ROUGE-1 against r, full attention as a line across; panels per file: as trained, and tuned for it."""
    groups = []
    for metrics in files:
        for tasks in (("base", "kl"), ("sparse",), ("integrated",)):
            lines = [(key, line) for key, line in curves(metrics).items() if len(line) > 1]
            lines = [(key, line) for key, line in lines if metrics["runs"][key[0]]["task"] in tasks]
            groups += [(metrics, tasks, lines[i : i + MOST_LINES - 1]) for i in range(0, len(lines), MOST_LINES - 1)]
    if not groups:
        raise Missing("needs evaluate --r with several numbers --json")
    figure, places = panels("Figure 2: ROUGE-1 against r at inference", files[0], len(groups), 3.5, share=False)
    for axes, (metrics, tasks, lines) in zip(places, groups, strict=True):
        full = next(row for row in metrics["systems"].values() if row["mode"] == "full")["rouge1"]
        axes.axhline(full["mean"], color="black", linestyle=":", label="first run, full")
        axes.axhspan(full["low"], full["high"], color="black", alpha=0.08)
        for (run, mode), line in lines:
            draw(axes, line, "rouge1", "mean", f"{run_label(run, metrics['runs'][run])}: {mode}")
        axes.set(xlabel="r at inference", ylabel="ROUGE-1 F1, 95 % interval")
        axes.set_title(f"{metrics['data'].partition(':')[0]}: {', '.join(tasks)}", fontsize=9)
        axes.legend(fontsize=6)
    return figure


def figure_4(files: Sequence[dict]) -> Figure:
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
    for axes, (key, group) in zip(places, groups.items(), strict=True):
        for r_train, line in sorted(group.items())[:MOST_LINES]:
            draw(axes, line, "difference", "difference", f"r {r_train} in training")
        axes.set(xlabel="r at inference", ylabel="ROUGE-1 minus first run's full\nattention, 95 % interval")
        axes.set_title(f"integrated, {', '.join(key)}", fontsize=9)
        axes.legend(fontsize=7)
    return figure


def attention_maps(files: Sequence[dict], place: int = 0) -> Figure:
    """Figures 5-8, of files 1-4: attention over words (left) and over sentences (right) while a summary is written."""
    runs = files[place]["runs"] if place < len(files) else {}
    shown = next((run["map"] | {"run": name} for name, run in runs.items() if "map" in run), None)
    if shown is None:
        raise Missing(f"needs metrics file {place + 1}, written by evaluate --map N --json")
    title = f"Figure {5 + place}: {shown['run']}, full attention, mean over heads and layers"
    figure, (left, right) = panels(title, files[place], 2, 5, 5, share=False)
    scale = PowerNorm(0.5, 0, np.max(shown["exact"]))  # one for both
    for axes, kind, label in ((left, "word", "token of the source"), (right, "exact", "sentence of the source")):
        image = axes.imshow(shown[kind], aspect="auto", cmap="Blues", norm=scale, interpolation="nearest")
        axes.set(xlabel=label, ylabel="step")
    figure.colorbar(image, ax=(left, right), label="attention (root scale)")
    for start in np.flatnonzero(np.diff(shown["sentence_ids"])):
        left.axvline(start + 0.5, color="gray", linewidth=0.4)
    texts = [word.replace("Ġ", "") for word in shown["target"]]
    if len(texts) <= 60:
        left.set_yticks(range(len(texts)), texts, fontsize=5)
    return figure


FIGURES = {"figure_1": figure_1, "figure_2": figure_2, "figure_4": figure_4}
FIGURES |= {f"figure_{5 + place}": partial(attention_maps, place=place) for place in range(4)}


def read_metrics(path: Path) -> dict:
    """What evaluate --json wrote; raises ValueError that names the file."""
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        for row in metrics["systems"].values():
            _ = metrics["runs"][row["run"]], row["mode"], row["r"], row["phi"], row["difference"]
        _ = metrics["data"], metrics["split"], metrics["examples"]
        return metrics
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what {__package__}.evaluate --json writes ({error!r})") from None


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(Options, prog=f"python -m {__package__}.figures", description=__doc__, args=arguments)
    files = [read_metrics(path) for path in options.metrics]
    if not files:
        raise ValueError("give at least one metrics file")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, draw_figure in FIGURES.items():
        try:
            draw_figure(files).savefig(options.out / f"{name}.png", dpi=150)
            print(f"{name}: {options.out / name}.png", flush=True)
        except Missing as reason:
            print(f"{name}: skipped, {reason}", flush=True)


if __name__ == "__main__":
    main()
