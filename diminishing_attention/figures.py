"""The paper's figures, one function each: a PNG and, beside it, a CSV of the numbers that it shows.

python -m diminishing_attention.evaluate runs/pg runs/pg-dim --json metrics.json
python -m diminishing_attention.figures metrics.json --out figures                        # Figures 1 to 3
python -m diminishing_attention.figures metrics.json --run runs/pg-dim --out figures      # and a map of one document

Figure 1 is a closed form; Figures 2 and 3 show what diminishing_attention.evaluate --json wrote.
"""

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .diminishing import Diminishing
from .measures import LENGTHS
from .search import beam_search
from .train import DECODING, load_run, load_task

NOVEL = (1, 2, 3, 4)  # n-grams of Figure 3
KINDS = {  # what Figure 1 compares
    "attention": Diminishing(),
    "DimAttn, log(x + 1)": Diminishing("dim", "log"),
    "DimAttn, sqrt(x + 1)": Diminishing("dim", "sqrt"),
    "DyDimAttn": Diminishing("dydim"),
}


class Missing(Exception):
    """A figure cannot be drawn; the message says what it needs."""


class Material(NamedTuple):
    """What there is to draw from."""

    metrics: dict  # what diminishing_attention.evaluate --json wrote; empty = none
    run: Path | None  # a run with a decoder, for the map
    document: int  # which test document the map shows
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


def panels(title: str, columns: int, width: float, height: float = 3.4) -> tuple[Figure, Sequence[Axes]]:
    """A figure with axes beside each other."""
    figure = Figure((width * columns, height), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def figure_1(material: Material) -> str:
    """Figure 1: one source token that gets the attention 0.6 at each of 8 steps; left the weights, right their sum."""
    attention = torch.full((8, 1), 0.6)  # (T, S)
    figure, (left, right) = panels(
        "Figure 1: diminishing attention on a token that is attended to at every step", 2, 4.2
    )
    rows = []
    for name, mechanism in KINDS.items():
        weights = mechanism.sequence(attention).flatten()  # (T,)
        sums = weights.cumsum(0)
        left.plot(range(1, 9), weights, "o-", markersize=3, label=name)
        right.plot(range(1, 9), sums, "o-", markersize=3)
        for step, (weight, total) in enumerate(zip(weights.tolist(), sums.tolist(), strict=True), 1):
            rows.append({"weights": name, "step": step, "weight": weight, "effective_coverage": total})
    left.set(xlabel="decoding step", ylabel="weight of the token", ylim=(0, 0.65))
    right.set(xlabel="decoding step", ylabel="effective coverage")
    left.legend(fontsize=7)
    return save(material, "figure_1", figure, rows)


def bars(material: Material, name: str, title: str, prefix: str, lengths: Sequence[int], label: str) -> str:
    """A bar per system and n, with its 95 % interval, and the reference."""
    if not material.metrics:
        raise Missing("needs a file of diminishing_attention.evaluate --json")
    systems = material.metrics["systems"] | {"reference": material.metrics["reference_row"]}
    figure, (axes,) = panels(title, 1, 6.4)
    width, rows = 0.8 / len(systems), []
    for number, (system, row) in enumerate(systems.items()):
        values = [row["scores"][f"{prefix}{n}"] for n in lengths]
        means = np.array([value["mean"] for value in values])
        ends = [interval(value) for value in values]
        spread = [means - [low for low, _ in ends], [high for _, high in ends] - means]
        places = np.array(lengths) + (number - (len(systems) - 1) / 2) * width
        axes.bar(places, means, width, yerr=np.maximum(spread, 0), error_kw={"linewidth": 0.8}, label=system)
        for n, mean, (low, high) in zip(lengths, means.tolist(), ends, strict=True):
            rows.append({"system": system, "n": n, "mean": mean, "low": low, "high": high})
    axes.set_xticks(list(lengths), [f"{n}-gram" for n in lengths])
    axes.set_ylabel(label)
    axes.legend(fontsize=7)
    return save(material, name, figure, rows)


def interval(value: dict) -> tuple[float, float]:
    """95 % interval over seeds where there are several, else over documents."""
    return (value["low"], value["high"]) if value["seed_low"] is None else (value["seed_low"], value["seed_high"])


def figure_2(material: Material) -> str:
    """Figure 2: duplicate n-grams of the summaries and of the references."""
    return bars(material, "figure_2", "Figure 2: repetition", "repetition", LENGTHS, "duplicate n-grams, %")


def figure_3(material: Material) -> str:
    """Figure 3: n-grams of the summaries, and of the references, that do not stand in the source."""
    return bars(material, "figure_3", "Figure 3: abstractiveness", "novel", NOVEL, "novel n-grams, %")


@torch.inference_mode()
def read_attention(folder: Path, document: int) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
    """Decode a test document, then read what each step attended to off the coverage that the decoder carries.

    Returns:
        outputs (T,) and source tokens (S,) as texts; softmax attention and the run's weights, (T, S), of BERTSum the
        mean of the heads of the last layer.
    Raises:
        Missing: the run has no decoder.
        ValueError: not a finished run, or no such document.
    """
    run = load_run(folder)
    if run.config.model == "bertsum-ext":
        raise Missing("needs --run RUN, of a model with a decoder")
    examples = load_task(run.config, "test")
    if not 0 <= document < len(examples):
        raise ValueError(f"there is no test document {document}; there are {len(examples)}, from 0")
    items = run.prepare(examples[document : document + 1])
    batch = run.collate(items)
    options = {name: getattr(run.config, name) for name in DECODING}
    [tokens] = beam_search(run.module, batch, never=run.never, **options).tokens
    if not tokens:
        raise Missing(f"needs a summary: the run writes nothing for document {document}")
    source, state = run.module.start(batch)
    attention, weights = [], []
    for token in [run.module.begin, *tokens[:-1]]:
        before = state.seen
        _, state = run.module.step(torch.tensor([token]), source, state)
        attention.append(state.seen.coverage - before.coverage)
        weights.append(run.config.mechanism().step(attention[-1], before)[0])
    length = len(items[0].source)
    grids = [torch.stack(rows)[:, 0, ..., :length] for rows in (attention, weights)]  # (T, S) or (T, H, S)
    grids = [grid.view(len(tokens), -1, length).mean(1) for grid in grids]
    return run.pieces(items[0], tokens), run.pieces(items[0], items[0].source), *(grid.numpy() for grid in grids)


def attention_map(material: Material) -> str:
    """Not in the paper: softmax attention and weights of a run over the words of one test document."""
    if material.run is None:
        raise Missing("needs --run RUN, of a model with a decoder")
    steps, words, attention, weights = read_attention(material.run, material.document)
    figure, grids = panels(f"{material.run.name}: document {material.document}", 2, 6.4, 1.2 + 0.12 * len(steps))
    for axes, grid, title in zip(grids, (attention, weights), ("softmax attention", "diminished weights"), strict=True):
        image = axes.imshow(grid, aspect="auto", cmap="Blues", vmin=0, vmax=1)
        axes.set_yticks(range(len(steps)), steps, fontsize=5)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("source token")
        axes.figure.colorbar(image, ax=axes)
    rows = []
    for t, step in enumerate(steps):
        for s, word in enumerate(words):
            values = {"attention": float(attention[t, s]), "weight": float(weights[t, s])}
            rows.append({"step": t, "output": step, "position": s, "source": word} | values)
    return save(material, "attention_map", figure, rows)


FIGURES = (figure_1, figure_2, figure_3, attention_map)


# Command line


def read_metrics(path: Path | None) -> dict:
    """What diminishing_attention.evaluate --json wrote; raises ValueError that names the file."""
    if path is None:
        return {}
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        return {"systems": dict(metrics["systems"]), "reference_row": dict(metrics["reference_row"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not what diminishing_attention.evaluate --json writes ({error!r})") from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw what there is material for; bad input ends the program with one line that says what is wrong."""
    parser = argparse.ArgumentParser("python -m diminishing_attention.figures", description=__doc__.splitlines()[0])
    parser.add_argument("metrics", nargs="?", type=Path, help="JSON file of diminishing_attention.evaluate")
    parser.add_argument("--run", type=Path, help="run folder whose attention on one test document is drawn")
    parser.add_argument("--document", type=int, default=0, help="which document, from 0")
    parser.add_argument("--out", required=True, type=Path, help="folder to write to")
    flags = parser.parse_args(arguments)
    try:
        material = Material(read_metrics(flags.metrics), flags.run, flags.document, flags.out)
        for draw in FIGURES:
            try:
                print(f"{draw.__name__}: {draw(material)}", flush=True)
            except Missing as reason:
                print(f"{draw.__name__}: skipped, {reason}", flush=True)
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
