"""The paper's figures and its claims beside ours: a PNG of each and, for Figure 1, a CSV of its numbers.

python -m shared.score pg.jsonl dim.jsonl --csv table.csv                                  # files of predict
python -m diminishing_attention.experiments.figures --out figures                          # Figure 1, a closed form
python -m diminishing_attention.experiments.figures table.csv --out figures --title SAMSum # and Figures 2 and 3
python -m diminishing_attention.experiments.figures --claims diminishing_attention/experiments --out figures
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from shared.data import open_output, write_csv
from shared.run import one_line_errors, read_flags

from ..diminishing import Diminishing, effective_coverage

MECHANISMS = {  # what Figure 1 compares
    "attention": Diminishing(),
    "DimAttn, log(x + 1)": Diminishing("dim", "log"),
    "DimAttn, sqrt(x + 1)": Diminishing("dim", "sqrt"),
    "DyDimAttn": Diminishing("dydim"),
}
FIGURES = {  # name: title, prefix of the measures, n, axis
    "figure_2": ("Figure 2: repetition (lower is better)", "repetition", (1, 2, 3, 4, 5), "duplicates, % of n-grams"),
    "figure_3": ("Figure 3: abstractiveness", "novel", (1, 2, 3, 4), "not in the source, % of n-grams"),
}
CLAIMS = {  # panel: system, minus, the paper's difference in ROUGE-1 (Table 4, and Table 1's baseline)
    "DimAttn minus the control": ("dim", "more", 2.6),
    "DimAttn minus coverage": ("dim", "cov", 0.2),
}
MEASURED = {  # what was decoded: its table
    "joined dialogues (one seed)": "samsum/samsum_joined_test.csv",
    "titles": "titles/scitldr_titles_test.csv",
    "single dialogues": "samsum/samsum_medium_test.csv",
    "single dialogues (one seed)": "samsum/samsum_medium_min_0_test.csv",
    "single dialogues, 24 tokens or more (one seed)": "samsum/samsum_medium_min_24_test.csv",
    "validation: joined dialogues (one seed)": "samsum/samsum_joined_min_0.csv",
    "validation: joined, 70 tokens or more (one seed)": "samsum/samsum_joined_min_70.csv",
    "validation: titles": "titles/scitldr_titles.csv",
    "validation: titles, 6 tokens or more": "titles/scitldr_titles_min_6.csv",
    "validation: titles, 9 tokens or more": "titles/scitldr_titles_min_9.csv",
    "validation: single dialogues": "samsum/samsum_medium.csv",
    "validation: single dialogues (one seed)": "samsum/samsum_medium_min_0.csv",
    "validation: single, 15 tokens or more (one seed)": "samsum/samsum_medium_min_15.csv",
    "validation: single, 24 tokens or more (one seed)": "samsum/samsum_medium_min_24.csv",
}
SYSTEMS = {  # a system's name in tables: in pictures, and its colour in all of them; others: their name, C0, ...
    "more": ("control", "C0"),
    "cov": ("coverage", "C4"),
    "dim": ("DimAttn", "C1"),
    "dim-plain": ("DimAttn, plain copying", "C5"),
    "dydim": ("DyDimAttn", "C3"),
    "reference": ("reference", "grey"),
}


@dataclass
class Options:
    """The command line."""

    out: Path  # Folder to write to.
    table: tyro.conf.Positional[Path | None] = None  # CSV of shared.score, for Figures 2 and 3.
    claims: Path | None = None  # Folder of titles/ and samsum/: their differences beside the paper's, alone.
    title: str = ""  # What the table was measured on, above its figures.
    overwrite: bool = False  # Replace the CSV of Figure 1; pictures are replaced.


def figure_1() -> list[dict]:
    """Numbers of Figure 1: one source token that gets the attention 0.6 at each of 8 steps."""
    attention, rows = torch.full((8, 1), 0.6), []  # (T, S)
    for name, mechanism in MECHANISMS.items():
        weights = mechanism.sequence(attention)
        sums = effective_coverage(attention, mechanism.f) if mechanism.kind == "dim" else weights.cumsum(0)  # Eq. (11)
        for step, (weight, total) in enumerate(zip(weights.tolist(), sums.tolist(), strict=True), 1):
            rows.append({"weights": name, "step": step, "weight": weight[0], "effective_coverage": total[0]})
    return rows


def draw_figure_1(rows: Sequence[dict], path: Path) -> None:
    """Left the weights, each with its name before the first step; right their sum, in the same colours."""
    from matplotlib.figure import Figure

    figure = Figure((9, 3.4), layout="constrained")
    figure.suptitle("Figure 1: attended to with 0.6 at every step, a token counts for less and less", fontsize=10)
    left, right = figure.subplots(1, 2)
    for name in MECHANISMS:
        own = [row for row in rows if row["weights"] == name]
        for axes, column in ((left, "weight"), (right, "effective_coverage")):
            axes.plot([row["step"] for row in own], [row[column] for row in own], "o-", markersize=3)
        left.text(0.7, own[0]["weight"], name, fontsize=8, ha="right", va="center")
    left.set(xlabel="decoding step", ylabel="weight of the token", xlim=(-2.8, 8.4), xticks=range(1, 9), ylim=(0, 0.65))
    right.set(xlabel="decoding step", ylabel="effective coverage (same colours)")
    figure.savefig(path, dpi=150)


def values(path: Path, prefix: str, lengths: Sequence[int]) -> dict[str, list[dict]]:
    """Of each system the rows of the table for n = 1, 2, ..., its values and intervals; not the differences."""
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if not row["minus"] and not row["system"].startswith("lead")]
    table: dict = {}
    for row in rows:
        table.setdefault(row["system"], {})[row["metric"]] = row
    return {name: [metrics[f"{prefix}{n}"] for n in lengths] for name, metrics in table.items()}


def draw_bars(table: Path, name: str, subtitle: str, path: Path) -> None:
    """Figure 2 or 3: a bar per system and n, with its 95 % interval over documents."""
    from matplotlib.figure import Figure

    title, prefix, lengths, axis = FIGURES[name]
    figure, systems = Figure((6.4, 3.4), layout="constrained"), values(table, prefix, lengths)
    axes, width = figure.subplots(), 0.8 / len(systems)
    for number, (system, rows) in enumerate(systems.items()):
        mean, low, high = ([float(row[key]) for row in rows] for key in ("value", "low", "high"))
        spread = [[m - a for m, a in zip(mean, low, strict=True)], [b - m for m, b in zip(mean, high, strict=True)]]
        places = [n + (number - (len(systems) - 1) / 2) * width for n in lengths]
        label, colour = SYSTEMS.get(system, (system, f"C{number % 10}"))
        axes.bar(places, mean, width, yerr=spread, error_kw={"linewidth": 0.8}, label=label, color=colour)
    axes.set_xticks(list(lengths), [f"{n}-gram" for n in lengths])
    axes.set(title=f"{title}\n{subtitle}".strip(), ylabel=axis)
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=150)


def draw_claims(folder: Path, path: Path) -> None:
    """A panel for each of CLAIMS: the paper's value as a line, ours as points with their 95 % intervals."""
    from matplotlib.figure import Figure

    figure = Figure((9, 0.35 * len(MEASURED) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(CLAIMS), sharey=True)
    for axes, (title, (system, minus, papers)) in zip(panels, CLAIMS.items(), strict=True):
        axes.axvline(0, color="grey", linewidth=0.8)
        axes.axvline(papers, color="C1", linestyle="--")
        axes.text(papers, -0.75, f"paper +{papers} ", color="C1", fontsize=8, ha="right")
        for place, table in enumerate(MEASURED.values()):
            with (folder / table).open(encoding="utf-8") as file:
                rows = {(row["system"], row["minus"], row["metric"]): row for row in csv.DictReader(file)}
            value, low, high = (float(rows[system, minus, "rouge1"][name]) for name in ("value", "low", "high"))
            bars = [[value - low], [high - value]]
            filled = "C0" if "_test" in table else "w"  # held-out test set, or validation split
            axes.errorbar(value, place, xerr=bars, fmt="o", capsize=3, color="C0", mfc=filled)
        axes.set(title=title, xlabel="difference in ROUGE-1", ylim=(len(MEASURED) - 0.5, -1.1))
    panels[0].set_yticks(range(len(MEASURED)), list(MEASURED))
    figure.suptitle("DimAttn gains where outputs are long, and stays below coverage (hollow: validation split)")
    figure.savefig(path, dpi=120)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.claims:
        draw_claims(options.claims, options.out / "claims.png")
        return
    if options.table:
        for name in FIGURES:
            draw_bars(options.table, name, options.title, options.out / f"{name}.png")
        return
    with open_output(options.out / "figure_1.csv", options.overwrite) as file:
        write_csv(file, figure_1())
    draw_figure_1(figure_1(), options.out / "figure_1.png")


if __name__ == "__main__":
    main()
