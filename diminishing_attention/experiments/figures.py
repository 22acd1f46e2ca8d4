"""The paper's figures, one function each: a PNG and, beside it, a CSV of the numbers that it shows.

python -m diminishing_attention.evaluate runs/pg runs/pg-dim --json metrics.json
python -m diminishing_attention.experiments.figures metrics.json --out figures                     # Figures 1 to 3
python -m diminishing_attention.experiments.figures metrics.json --run runs/pg-dim --out figures   # and a map

Figure 1 is a closed form; Figures 2 and 3 show what diminishing_attention.evaluate --json wrote.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
import tyro

from shared.data import in_sentences, load, write_csv

from ..decode import DECODING, search_batch
from ..diminishing import Diminishing, effective_coverage
from ..loading import for_task, load_run
from ..run import check_fields, one_line_errors, read_flags

MECHANISMS = {  # what Figure 1 compares
    "attention": Diminishing(),
    "DimAttn, log(x + 1)": Diminishing("dim", "log"),
    "DimAttn, sqrt(x + 1)": Diminishing("dim", "sqrt"),
    "DyDimAttn": Diminishing("dydim"),
}
MOST = 6  # systems in one figure
# One colour for one system in all pictures, the lesson's included: plain ones in their order, then by mechanism.
PLAIN, COLOURS = ("C0", "C9", "C2", "C5", "C6"), {"dim": "C1", "dydim": "C3", "coverage": "C4", "reference": "grey"}
STEPS, WORDS = 15, 30  # of the map


@dataclass
class Options:
    """The command line."""

    out: Path  # folder to write to
    metrics: tyro.conf.Positional[Path | None] = None  # JSON file of evaluate.py, for Figures 2 and 3
    run: Path | None = None  # run folder whose attention on one test document is drawn
    document: int | None = None  # which test document, from 0; default: the shortest


def save_figure(out: Path, name: str, figure, rows: Sequence[dict]) -> str:
    """Write NAME.png and NAME.csv; returns the path of the PNG."""
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.png", dpi=150)
    write_csv(out / f"{name}.csv", rows)
    return str(out / f"{name}.png")


def panels(title: str, columns: int, width: float, height: float = 3.4) -> tuple:
    """A figure of matplotlib with axes beside each other."""
    from matplotlib.figure import Figure

    figure = Figure((width * columns, height), layout="constrained")
    figure.suptitle(title, fontsize=10)
    return figure, *figure.subplots(1, columns, squeeze=False)[0]


def figure_1(out: Path) -> str:
    """Figure 1: one source token that gets the attention 0.6 at each of 8 steps; left the weights, right their sum."""
    attention, rows = torch.full((8, 1), 0.6), []  # (T, S)
    title = "Figure 1: a token that receives the attention 0.6 at every step (closed form)"
    figure, left, right = panels(title, 2, 4.2)
    for name, mechanism in MECHANISMS.items():
        weights = mechanism.sequence(attention)
        sums = effective_coverage(attention, mechanism.f) if mechanism.kind == "dim" else weights.cumsum(0)  # Eq. (11)
        for axes, values in ((left, weights), (right, sums)):
            axes.plot(range(1, 9), values.flatten(), "o-", markersize=3, label=name)
        for step, (weight, total) in enumerate(zip(weights.tolist(), sums.tolist(), strict=True), 1):
            rows.append({"weights": name, "step": step, "weight": weight[0], "effective_coverage": total[0]})
    left.set(xlabel="decoding step", ylabel="weight of the token", ylim=(0, 0.65))
    right.set(xlabel="decoding step", ylabel="effective coverage")
    left.legend(fontsize=7)
    return save_figure(out, "figure_1", figure, rows)


FIGURES = {  # name: title, prefix of the metrics, n, axis
    "figure_2": ("Figure 2: repetition (lower is better)", "repetition", (1, 2, 3, 4, 5), "duplicates, % of n-grams"),
    "figure_3": ("Figure 3: abstractiveness", "novel", (1, 2, 3, 4), "not in the source, % of n-grams"),
}


def bars(metrics: dict, out: Path, name: str) -> str:
    """Figure 2 or 3: a bar per system and n, with its 95 % interval over documents, and the reference."""
    title, prefix, lengths, label = FIGURES[name]
    shown = dict(list(metrics["systems"].items())[: MOST - 1])
    systems = {n: row["scores"] for n, row in shown.items()} | {"reference": metrics["reference_row"]}
    seeds = {n: len(row["seeds"]) for n, row in shown.items()}
    labels = {n: f"{n} ({seeds[n]} seed{'s' * (seeds[n] > 1)})" if n in seeds else n for n in systems}
    corpus = f"{metrics['data']}, {metrics['split']}, {metrics['examples']} documents"
    figure, axes = panels(f"{title}\n{corpus}", 1, 6.4)
    width, rows, plain = 0.8 / len(systems), [], iter(PLAIN)
    kinds = {n: "coverage" if row["coverage"] else row["diminishing"] for n, row in shown.items()}
    for number, (system, scores) in enumerate(systems.items()):
        colour = COLOURS.get(kinds.get(system, "reference")) or next(plain)
        values = np.array([[scores[f"{prefix}{n}"][key] for key in ("mean", "low", "high")] for n in lengths])
        mean, low, high = values.T
        places = np.array(lengths) + (number - (len(systems) - 1) / 2) * width
        spread = np.maximum([mean - low, high - mean], 0)
        axes.bar(places, mean, width, yerr=spread, error_kw={"linewidth": 0.8}, label=labels[system], color=colour)
        rows += [{"system": system, "n": n, "mean": m, "low": a, "high": b}
                 for n, (m, a, b) in zip(lengths, values.tolist(), strict=True)]  # fmt: skip
    axes.set_xticks(list(lengths), [f"{n}-gram" for n in lengths])
    axes.set_ylabel(label)
    axes.legend(fontsize=7)
    return save_figure(out, name, figure, rows)


@torch.inference_mode()
def read_attention(folder: Path, document: int | None) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
    """Decode a test document, and read what each step of its summary attends to.

    Args:
        document: its number; None = the shortest.
    Returns:
        outputs (T,) and source tokens (S,) as texts; softmax attention and the run's weights, (T, S).
    Raises:
        ValueError: a run that is no pointer-generator, no such document, or an empty summary.
    """
    run = load_run(folder)
    if run.config.model != "pointer":
        raise ValueError(f"{folder} holds a {run.config.model}: take a run of the pointer-generator")
    examples = for_task(in_sentences(load(run.config.data, "test")), run.config.task)
    if document is None:
        document = min(range(len(examples)), key=lambda i: len(examples[i].source))
    if not 0 <= document < len(examples):
        raise ValueError(f"there is no test document {document}; there are {len(examples)}, from 0")
    [item] = run.encode(examples[document : document + 1])
    batch, options = run.text.collate([item]), {name: getattr(run.config, name) for name in DECODING}
    [tokens] = search_batch(run, batch, **options).tokens
    if not tokens:
        raise ValueError(f"{folder} writes nothing for document {document}: take another --document")
    steps = run.model.run(batch._replace(target_in=torch.tensor([[run.model.bos, *tokens[:-1]]])))
    outputs, words = (run.text.pieces(run.tokenizer, item, ids) for ids in (tokens, item.extended_source))
    return outputs, words, steps.attention[0].numpy(), steps.gain[0].numpy()


def attention_map(run: Path, document: int | None, out: Path) -> str:
    """Not in the paper: softmax attention and weights of a run, of the last STEPS words of one summary.

    Shown are the WORDS source words that these steps attend to most; the box is the one whose weight falls most. The
    CSV has all steps and words.
    """
    from matplotlib.patches import Rectangle

    steps, words, attention, weights = read_attention(run, document)
    last = slice(max(len(steps) - STEPS, 0), len(steps))
    columns = np.sort(np.argsort(-attention[last].sum(0), kind="stable")[:WORDS])
    shown = [grid[last][:, columns] for grid in (attention, weights)]
    title = f"{run.name}: a word that has been attended to weighs less (box: the largest fall)"
    figure, *grids = panels(title, 2, 4.5, 1.8 + 0.2 * len(shown[0]))
    t, s = np.unravel_index((shown[0] - shown[1]).argmax(), shown[0].shape)
    for axes, grid, name in zip(grids, shown, ("softmax attention", "weights that the run uses"), strict=True):
        image = axes.imshow(grid, aspect="auto", cmap="Blues", vmin=0, vmax=1)
        axes.set_yticks(range(len(grid)), steps[last], fontsize=8)
        axes.set_xticks(range(len(columns)), [words[i] for i in columns], fontsize=8, rotation=90)
        axes.set(xlabel="source word", ylabel="output word")
        axes.set_title(name, fontsize=9)
        axes.add_patch(Rectangle((s - 0.5, t - 0.5), 1, 1, fill=False, edgecolor="tab:red", linewidth=2))
    figure.colorbar(image, ax=grids)
    rows = [
        {"step": t, "output": steps[t], "position": s, "source": words[s], "attention": float(attention[t, s]),
         "weight": float(weights[t, s])} for t, s in np.ndindex(attention.shape)
    ]  # fmt: skip
    return save_figure(out, "attention_map", figure, rows)


def read_metrics(path: Path) -> dict:
    """What diminishing_attention.evaluate --json wrote; ValueError that names the file."""
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        keys = ("scores", "seeds", "coverage", "diminishing")
        systems = {name: {key: row[key] for key in keys} for name, row in metrics["systems"].items()}
        if not all(isinstance(row["seeds"], list) and isinstance(row["diminishing"], str) for row in systems.values()):
            raise ValueError("seeds are a list, diminishing is a text")
        of_all = [row["scores"] for row in systems.values()] + [metrics["reference_row"]]
        for scores, (_, prefix, lengths, _) in product(of_all, FIGURES.values()):
            values = [scores[f"{prefix}{n}"][key] for n in lengths for key in ("mean", "low", "high")]
            if not all(type(value) in (int, float) and math.isfinite(value) for value in values):
                raise ValueError(f"{prefix} has a value that is no finite number")
        return {name: metrics[name] for name in ("data", "split", "examples", "reference_row")} | {"systems": systems}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{path} is not what evaluate --json writes ({error!r})") from None


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.figures", description=__doc__)
    check_fields(options)
    metrics = read_metrics(options.metrics) if options.metrics else None
    print(figure_1(options.out))
    for name in FIGURES:
        print(bars(metrics, options.out, name) if metrics else f"{name}: skipped, needs a file of evaluate --json")
    drawn = options.run and attention_map(options.run, options.document, options.out)
    print(drawn or "attention_map: skipped, needs --run RUN")


if __name__ == "__main__":
    main()
