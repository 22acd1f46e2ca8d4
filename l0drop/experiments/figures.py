"""The paper's Figures 1 and 7, 4, 5, and what speed grows with, as PNGs.

python -m l0drop.experiments.figures --scores 2016_1.csv 2016_2.csv --out figures           # 4
python -m l0drop.experiments.figures --run runs/l0-0.6-2 runs/l0-0.8-2 --baseline runs/base-2 \\
    --out figures                                                                     # 1, 7, 5
python -m l0drop.experiments.figures --out figures             # again, from the folder's CSVs
python -m l0drop.experiments.figures --speed benchmark_100.csv benchmark_400.csv --out speed

What is measured goes into attention.csv and figure_5.csv. Figure 4 shows what `shared.score` wrote
of a lambda sweep, a file a baseline; 1 and 7 are of the baseline and the first --run; 5 of every
--run. Files of these names are replaced. Figures 2 and 3 are in the lesson.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import tyro

from shared.data import Example, load, open_output, write_csv
from shared.run import one_line_errors

from ..config import LENGTH_PENALTY
from ..loading import Run, load_run
from ..model import BOS, EOS
from ..search import generate
from .rules import UNIT_TYPES, source_types, tag_sources

EDGES = np.append(np.arange(51) / 10, np.inf)  # bins of Figures 1 and 7; the last is open


@torch.inference_mode()
def attention_map(run: Run, source: Sequence[int], output: Sequence[int]) -> np.ndarray:
    """Figure 1: cross-attention (T, S) to the source of an output, mean over heads and layers.

    A pruned word has its share of what Algorithm 1 gives to the dummy, so every row sums to 1.
    """
    model = run.model.eval()
    collected = []

    def record(attention, inputs):
        x, keys, _, bias = inputs
        queries = attention.split_heads(attention.query(x))
        collected.append(attention.weights(queries, keys, bias).mean(1))

    hooks = [layer.cross_attention.register_forward_pre_hook(record) for layer in model.decoder]
    model(torch.tensor([[*source]]), torch.tensor([[BOS, *output]]))
    for hook in hooks:
        hook.remove()
    return torch.stack(collected).mean(0)[0].numpy()


def summed_rows(name: str, run: Run, examples: Sequence[Example]) -> list[dict]:
    """Figures 1 and 7: how much attention a retained encoding receives in all; a row a bin."""
    items = run.encode(examples)
    penalty = LENGTH_PENALTY[run.config.units]
    sums = []
    pruned = []
    for first in range(0, len(items), 32):
        batch = items[first : first + 32]
        source = run.collate(batch).source
        hypotheses, encoding, _ = generate(run.model, source, length_penalty=penalty)
        gates = encoding.gates[-1] if encoding.gates else torch.ones(source.shape)
        for number, item in enumerate(batch):
            words = [token for token in hypotheses.tokens[number].tolist() if token > EOS]
            sums.append(attention_map(run, item.source, words).sum(0))
            pruned.append((gates[number, : len(item.source)] == 0).numpy())
    sums = np.concatenate(sums)
    pruned = np.concatenate(pruned)
    # D12: Figure 7's mean, 1.80, is nearly the baseline's 1.03 over the 53 % that are retained.
    kept = sums[~pruned]
    summary = {
        "mean": kept.mean(),  # as in the captions, like the next one
        "share_below_0.6": (kept < 0.6).mean(),
        "sparsity": 100 * pruned.mean(),
        "attention_on_pruned": sums[pruned].sum() / sums.sum(),
    }
    rows = []
    for low, high, count in zip(EDGES[:-1], EDGES[1:], np.histogram(kept, EDGES)[0], strict=True):
        rows.append({"run": name, "from": low, "to": high, "encodings": count} | summary)
    return rows


@torch.inference_mode()
def type_row(name: str, run: Run, examples: Sequence[Example], stanza: str = "") -> dict:
    """Figure 5: per cent of each type of source encoding that is pruned; </s> has no type (D9)."""
    run.model.eval()
    closed = {kind: [] for kind in ("pruned", *UNIT_TYPES)}
    tagged = zip(examples, run.encode(examples), tag_sources(examples, stanza), strict=True)
    for example, item, tags in tagged:
        gates = run.model.encode(torch.tensor([[*item.source]])).gates[-1][0]  # (S,)
        pruned = (gates == 0).tolist()
        types, _ = source_types(run.tokenizer.encode(example.source), *tags)
        closed["pruned"] += pruned
        for kind, is_pruned in zip(types, pruned[:-1], strict=False):  # what was cut has no gate
            closed[kind].append(is_pruned)
    row = {"run": name}
    for kind, values in closed.items():
        row[kind] = 100 * float(np.mean(values)) if values else 0.0
    return row


def measure(
    out: Path, run: Sequence[Path], baseline: Path, split: str, limit: int | None, stanza: str
) -> None:
    """Write attention.csv, of Figures 1 and 7, and figure_5.csv, where there are tags."""
    runs = {path.name: load_run(path) for path in run}
    name, first = next(iter(runs.items()))
    examples = load(first.config.data, split, limit)
    with open_output(out / "attention.csv", overwrite=True) as file:
        rows = summed_rows(baseline.name, load_run(baseline), examples)
        write_csv(file, rows + summed_rows(name, first, examples))
    if stanza or all(example.pos for example in examples):
        with open_output(out / "figure_5.csv", overwrite=True) as file:
            write_csv(file, [type_row(name, own, examples, stanza) for name, own in runs.items()])


def read_rows(path: Path) -> np.ndarray:
    """The rows of a CSV, whose columns have their names."""
    return np.atleast_1d(
        np.genfromtxt(path, dtype=None, delimiter=",", comments=None, names=True, encoding="utf-8")
    )


def draw(path: Path, title: str, x: str, y: str, lines: dict[str, Sequence[np.ndarray]]) -> None:
    """Lines through x and y, or x, y, low and high, each with its name at its end."""
    from matplotlib.figure import Figure

    figure = Figure((6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, points in lines.items():
        at, value, *interval = points
        bars = [value - interval[0], interval[1] - value] if interval else None
        axes.errorbar(at, value, bars, marker=".", capsize=2, elinewidth=0.7)
        axes.annotate(
            name, (at[-1], value[-1]), (6, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set(xlabel=x, ylabel=y, title=title)
    figure.savefig(path, dpi=150)


def sweep(rows: np.ndarray) -> np.ndarray:
    """Figure 4, from `shared.score`'s rows: sparsity; difference in BLEU or ROUGE-L; low; high.

    The difference is from the control, which comes first.
    """
    pruned = {}
    for row in rows:
        if row["metric"] == "pruned" and not row["minus"]:
            pruned[row["system"]] = row["value"]
    control = next(name for name, share in pruned.items() if not share)
    points = []
    for row in rows:
        is_gated = row["minus"] == control and "l0" in row["system"]
        if is_gated and row["metric"] in ("bleu", "rougeLsum"):
            points.append((pruned[row["system"]], row["value"], row["low"], row["high"]))
    return np.array([(0, 0, 0, 0), *sorted(points)]).T


ENDS = ("median", "low", "high")
# Sides of benchmark.py, and their names in the picture.
SIDES = {
    "expanded, pruned": "pruning",
    "shared": "sharing",
    "shared, pruned": "both",
    "shared, pruned, packed": "both, packed",
    "generate": "transformers",
}


def growth(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """Of each side: source tokens; how many times as fast as the ordinary decoder; low; high."""
    points = {name: [] for name in SIDES.values()}
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["side"] in SIDES:
                    numbers = [row["S"], *(row[f"x expanded_{end}"] for end in ENDS)]
                    points[SIDES[row["side"]]].append([float(number) for number in numbers])
    return {name: np.array(sorted(rows)).T for name, rows in points.items() if rows}


def main(
    out: Path,
    scores: tuple[Path, ...] = (),
    speed: tuple[Path, ...] = (),
    run: tuple[Path, ...] = (),
    baseline: Path = Path(),
    split: str = "test",
    limit: int | None = None,
    stanza: str = "",
) -> None:
    """Measure --run, beside --baseline, on a split of their data; draw into --out.

    `scores`: CSVs of shared.score, a base each. `speed`: CSVs of benchmark.py. `stanza`: folder of
    models, for sources without tags (Figure 5).
    """
    sparsity = "sparsity, % of all source encodings"
    out.mkdir(parents=True, exist_ok=True)
    if run:
        measure(out, run, baseline, split, limit, stanza)
    if scores:
        lines = {path.stem.replace("_", ", baseline "): sweep(read_rows(path)) for path in scores}
        title = "Figure 4: the more is pruned, the more it costs"
        draw(out / "figure_4.png", title, sparsity, "quality minus the control's", lines)
    if speed:
        title = "The longer the source, the more pruning saves"
        y = "times as fast as the ordinary decoder"
        draw(out / "speed.png", title, "source tokens", y, growth(speed))
    if (out / "attention.csv").exists():
        rows = read_rows(out / "attention.csv")
        baseline_and_gated = list(dict.fromkeys(rows["run"]))[:2]
        for number, name in zip("17", baseline_and_gated, strict=True):
            own = rows[rows["run"] == name][:30]  # up to 3, the paper's range
            title = f"Figure {number}: an encoding receives {own['mean'][0]:.2f} in all, on average"
            points = {"": (own["from"] + 0.05, own["encodings"])}
            x = "attention summed over the output"
            draw(out / f"figure_{number}.png", title, x, "encodings", points)
    if (out / "figure_5.csv").exists():
        rows = np.sort(read_rows(out / "figure_5.csv"), order="pruned")
        lines = {kind: (rows["pruned"], rows[kind]) for kind in UNIT_TYPES}
        title = "Figure 5: which types are pruned"
        draw(out / "figure_5.png", title, sparsity, "within the type, %", lines)


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
