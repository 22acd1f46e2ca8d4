"""The paper's figures, one function each.

python -m encdec_sentence_sparse.experiments.figures toy_0.csv toy_1.csv toy_2.csv --out figures    # 2 and 4
python -m encdec_sentence_sparse.experiments.figures --attention samsum.json dialogsum.json --out figures    # 1, 5, 6

The CSVs are of evaluate, those of one corpus and one set of r, a file per seed: a point is the mean over the seeds. The
JSON files are of experiments.measures: the first stands where the paper has CNN/DailyMail (Figures 1 and 5), the others
for XSum, Podcast and arXiv (6, 7, 8). Figure 3 is a drawing of the model and is not made.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tyro

from ..run import one_line_errors, read_flags
from .tables import read_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES = {  # Figure 2: (task, mode, phi) -> label, colour, the same in all figures
    ("base", "ideal", None): ("ideal", "black"),
    ("kl", "approx", None): ("learned (KL-only)", "tab:blue"),
    ("base", "mean_key", None): ("mean key", "tab:green"),
    ("base", "model_free", "elu"): ("model-free", "tab:purple"),
    ("base", "random", None): ("random", "tab:red"),
}
RED_TO_BLUE = ["tab:red", "tab:orange", "tab:green", "tab:blue", "tab:purple"]


@dataclass
class Options:
    """The command line."""

    out: Path  # folder to write to
    csv: tyro.conf.Positional[tuple[Path, ...]] = ()  # what evaluate --csv wrote, a file per seed: Figures 2 and 4
    attention: tuple[Path, ...] = ()  # what experiments.measures wrote: Figures 1 and 5 to 8


class Missing(Exception):
    """A figure cannot be drawn; the message says what it needs."""


def one_panel(title: str, width: float = 6.0, height: float = 4.2):
    """A figure with its title and its axes."""
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure, figure.subplots()


def over_seeds(seeds: Sequence[list[dict]], score: str, **wanted) -> dict[int, list[float]]:
    """r -> the score of the rows that are as wanted, a number per seed, by rising r."""
    values: dict[int, list[float]] = {}
    for rows in seeds:
        for row in rows:
            if all(row[name] == value for name, value in wanted.items()):
                values.setdefault(row["r"], []).append(row[score]["mean"])
    return dict(sorted(values.items()))


def draw(axes, lines: dict[tuple[str, str], dict[int, list[float]]], ylabel: str) -> None:
    """Curves over r by (label, colour): means over seeds, bars from the lowest seed to the highest, labels at the end.

    Labels that would lie on each other are moved apart.
    """
    for (label, colour), line in lines.items():
        means = np.array([np.mean(values) for values in line.values()])
        low, high = (np.array([pick(values) for values in line.values()]) for pick in (min, max))
        bars = (means - low, high - means)
        axes.errorbar(list(line), means, bars, fmt="o-", color=colour, markersize=4, capsize=3, label=label)
    places = sorted({r for line in lines.values() for r in line})
    bottom, top = axes.get_ylim()
    height = bottom
    for (label, colour), line in sorted(lines.items(), key=lambda item: np.mean(item[1][max(item[1])])):
        height = max(height, np.mean(line[max(line)]))
        axes.text(places[-1] + 0.04 * (places[-1] - places[0]), height, label, color=colour, va="center")
        height += 0.05 * (top - bottom)
    axes.set(xlabel="r: sentences that a step attends to", ylabel=ylabel, xticks=places)
    axes.set_ylim(bottom, max(top, height))
    axes.set_xlim(places[0] - 0.5, places[-1] + 0.45 * (places[-1] - places[0]) + 0.5)


def figure_2(seeds: Sequence[list[dict]]) -> "Figure":
    """Figure 2: ROUGE-1 against r at inference, of the base model and the learned map; full attention across."""
    lines = {
        (label, colour): over_seeds(seeds, "rouge1", task=task, mode=mode, phi=phi, sentence_encoder=encoder)
        for (task, mode, phi), (label, colour) in CURVES.items()
        for encoder in (["gru"] if task == "kl" else [None])
    }
    lines = {key: line for key, line in lines.items() if len(line) > 1}
    if not lines:
        raise Missing("needs evaluate --r with several numbers --csv, of a base or a kl run")
    if not (across := over_seeds(seeds, "rouge1", task="base", mode="full")):
        raise Missing("needs the base run under full attention")
    figure, axes = one_panel("Figure 2: how many sentences are enough depends on which")
    full = np.mean(next(iter(across.values())))
    places = [pick(next(iter(lines.values()))) for pick in (min, max)]
    axes.plot(places, [full, full], color="gray", linestyle=":")
    axes.text(places[0], full, "all sentences", color="gray", va="bottom")
    draw(axes, lines, "ROUGE-1; bars: lowest and highest seed")
    return figure


def figure_4(seeds: Sequence[list[dict]]) -> "Figure":
    """Figure 4: ROUGE-1 against r at inference of runs with other r in training.

    Differences to the run with r 5 in training, as in the paper (without one: with the least r), seed by seed.
    """
    wanted = dict(task="integrated", mode="approx", select="approx", sentence_encoder="gru")
    integrated = [row for rows in seeds for row in rows if row["task"] == "integrated"]
    lines = {r: over_seeds(seeds, "rouge1", r_train=r, **wanted) for r in sorted({r["r_train"] for r in integrated})}
    lines = {r: line for r, line in lines.items() if len(line) > 1}
    if len(lines) < 2:
        raise Missing("needs integrated runs with different --r in training, each decoded with several --r")
    if len({len(values) for line in lines.values() for values in line.values()}) > 1:
        raise Missing("needs the same runs, decoded with the same --r, in every file")
    first, most = 5 if 5 in lines else min(lines), max(row["source_sentences"] for row in integrated)
    gaps = {}
    for (trained, line), colour in zip(lines.items(), RED_TO_BLUE, strict=False):
        label = f"r {trained} in training" if trained <= most else "all in training"
        pairs = {r: zip(line[r], lines[first][r], strict=True) for r in line if r in lines[first]}
        gaps[label, colour] = {r: [score - base for score, base in pair] for r, pair in pairs.items()}
    figure, axes = one_panel("Figure 4: r in training should be that of inference")
    draw(axes, gaps, f"ROUGE-1 minus r {first} in training;\nbars: lowest and highest seed")
    return figure


def figure_1(files: Sequence[dict]) -> "Figure":
    """Figure 1: sum of attention weights against the number of retained sentences, of base and sparse-tuned runs."""
    runs = [run for run in files[0]["runs"].values() if run["task"] in ("base", "sparse")]
    if not runs:
        raise Missing("needs a base or sparse-tuned run in the first file")
    figure, axes = one_panel("Figure 1: a few sentences hold most of the attention")
    for run, colour in zip(runs, ["black", *RED_TO_BLUE], strict=False):
        label = "base" if run["task"] == "base" else f"gamma {run['gamma']:g}"
        style = "--" if run["task"] == "base" else "-"  # gamma 0 may lie on the base
        places = range(1, 1 + len(run["retained"]))
        axes.plot(places, run["retained"], style, color=colour, label=label, marker="o", markersize=3)
    axes.set(xlabel="r: the most salient sentences", ylabel="share of the attention\n(mean over layers and steps)")
    axes.set_ylim(0, 1.02)
    axes.legend(loc="lower right")
    return figure


def attention_maps(files: Sequence[dict], place: int = 0) -> "Figure":
    """Figures 5-8, of files 1-4: attention over words (left) and over sentences (right) while a summary is written."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    runs = files[place]["runs"] if place < len(files) else {}
    shown = next((run["map"] for run in runs.values() if "map" in run), None)
    if shown is None:
        raise Missing(f"needs --attention with {place + 1} files")
    figure = Figure((10, 5), layout="constrained")
    figure.suptitle(f"Figure {5 + place}: which sentences each step reads ({files[place]['data'].partition(':')[0]})")
    left, right = figure.subplots(1, 2)
    scale = PowerNorm(0.5, 0, np.max(shown["exact"]))  # one for both
    texts = [word.replace("Ġ", "") for word in shown["target"]]
    for axes, kind, label in ((left, "word", "token of the source"), (right, "exact", "sentence of the source")):
        image = axes.imshow(shown[kind], aspect="auto", cmap="Blues", norm=scale, interpolation="nearest")
        axes.set(xlabel=label, ylabel="step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_yticks(range(len(texts)), texts, fontsize=7 if len(texts) <= 40 else 4)
    figure.colorbar(image, ax=(left, right), label="attention (root scale)")
    for start in np.flatnonzero(np.diff(shown["sentence_ids"])):
        left.axvline(start + 0.5, color="gray", linewidth=0.4)
    return figure


OF_CSVS = {"figure_2": figure_2, "figure_4": figure_4}
OF_ATTENTION = {"figure_1": figure_1}
OF_ATTENTION |= {f"figure_{5 + place}": partial(attention_maps, place=place) for place in range(4)}


def numbers(values: list, dimensions: int) -> np.ndarray:
    """The finite numbers of a list, or of lists of one length; ValueError for anything else."""
    array = np.array(values)
    if array.ndim != dimensions or array.dtype.kind not in "fi" or not array.size or not np.isfinite(array).all():
        raise ValueError(f"{str(values)[:40]} are not the numbers that belong there")
    return array


def read_attention(path: Path) -> dict:
    """What experiments.measures wrote; raises ValueError that names the file."""
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        for run in metrics["runs"].values():
            _ = numbers(run["retained"], 1), run["task"].partition, numbers(run["gamma"], 0)
            if "map" in run:
                words, exact = (numbers(run["map"][kind], 2) for kind in ("word", "exact"))
                ids, target = numbers(run["map"]["sentence_ids"], 1), run["map"]["target"]
                if not (len(words) == len(exact) == len(target) and words.shape[1] == len(ids)):
                    raise ValueError("its map is not of one document")
                _ = "".join(target)
        _ = metrics["data"].partition, metrics["split"], metrics["examples"]
        return metrics
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not what experiments.measures writes ({error!r})") from None


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.figures", description=__doc__)
    if not options.csv and not options.attention:
        raise ValueError("give CSVs of evaluate, or --attention with files of experiments.measures")
    jobs = [(OF_CSVS, [read_rows(path) for path in options.csv])] if options.csv else []
    jobs += [(OF_ATTENTION, [read_attention(path) for path in options.attention])] if options.attention else []
    options.out.mkdir(parents=True, exist_ok=True)
    for functions, files in jobs:
        for name, draw_figure in functions.items():
            try:
                draw_figure(files).savefig(options.out / f"{name}.png", dpi=150)
                print(f"{name}: {options.out / name}.png", flush=True)
            except Missing as reason:
                print(f"{name}: skipped, {reason}", flush=True)


if __name__ == "__main__":
    main()
