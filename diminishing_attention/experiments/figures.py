"""The paper's figures, and its claims beside ours.

python -m diminishing_attention.experiments.figures --out figures                          # Figure
    1, and the claims
python -m shared.score pg.jsonl dim.jsonl --csv table.csv                                  # files
    of predict
python -m diminishing_attention.experiments.figures table.csv --out figures --title SAMSum # Figures
    2 and 3
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from torch import Tensor

from shared.run import one_line_errors, read_flags

from ..diminishing import Diminishing, effective_coverage

MECHANISMS = {  # what Figure 1 compares
    "attention": Diminishing(),
    "DimAttn, log(x + 1)": Diminishing("dim", "log"),
    "DimAttn, sqrt(x + 1)": Diminishing("dim", "sqrt"),
    "DyDimAttn": Diminishing("dydim"),
}
PANELS = {  # of Figures 2 and 3: title, and longest n-gram of the measures of this name
    "repetition": ("Figure 2: duplicates, % of n-grams (lower is better)", 5),
    "novel": ("Figure 3: not in the source, % of n-grams", 4),
}
# panel: system, minus, the paper's difference in ROUGE-1 (Table 4, and Table 1's baseline)
CLAIMS = {
    "DimAttn minus the control": ("dim", "more", 2.6),
    "DimAttn minus coverage": ("dim", "cov", 0.2),
}
MEASURED = {  # what was decoded: its table
    "joined dialogues (one seed)": "samsum/samsum_joined_test.csv",
    "joined dialogues, second baseline": "samsum/samsum_joined_second_test.csv",
    "titles": "titles/scitldr_titles_test.csv",
    "news": "bbc/test.csv",
    "single dialogues": "samsum/samsum_medium_test.csv",
    "single dialogues, 24 tokens or more (one seed)": "samsum/samsum_medium_min_24_test.csv",
    "joined dialogues, 70 tokens or more (one seed)": "samsum/samsum_joined_min_70.csv",
    "titles, 9 tokens or more": "titles/scitldr_titles_min_9.csv",
}
SYSTEMS = {  # a system's name in tables: in pictures, and its colour in all of them
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
    title: str = ""  # What the table was measured on.


def figure_1() -> dict[str, tuple[Tensor, Tensor]]:
    """Weights and their sums, (8,), of a source token that gets the attention 0.6 at each of 8
    steps.
    """
    attention, curves = torch.full((8, 1), 0.6), {}  # (T, S)
    for name, mechanism in MECHANISMS.items():
        weights = mechanism.sequence(attention)
        # Eq. (11)
        sums = (
            effective_coverage(attention, mechanism.f)
            if mechanism.kind == "dim"
            else weights.cumsum(0)
        )
        curves[name] = weights.flatten(), sums.flatten()
    return curves


def draw_figure_1(path: Path) -> None:
    """Left the weights, each with its name before the first step; right their sum, in the same
    colours.
    """
    from matplotlib.figure import Figure

    figure = Figure((9, 3.4), layout="constrained")
    figure.suptitle(
        "Figure 1: attended to with 0.6 at every step, a token counts for less and less",
        fontsize=10,
    )
    left, right = figure.subplots(1, 2)
    for name, (weights, sums) in figure_1().items():
        left.plot(range(1, 9), weights, "o-", markersize=3)
        right.plot(range(1, 9), sums, "o-", markersize=3)
        left.text(0.7, weights[0], name, fontsize=8, ha="right", va="center")
    left.set(
        xlabel="decoding step",
        ylabel="weight of the token",
        xlim=(-2.8, 8.4),
        xticks=range(1, 9),
        ylim=(0, 0.65),
    )
    right.set(xlabel="decoding step", ylabel="effective coverage (same colours)")
    figure.savefig(path, dpi=150)


def read_table(path: Path) -> dict[tuple[str, str, str], list[float]]:
    """Value, low and high of each system, minus and measure."""
    with path.open(encoding="utf-8") as file:
        return {
            (row["system"], row["minus"], row["metric"]): [
                float(row[name]) for name in ("value", "low", "high")
            ]
            for row in csv.DictReader(file)
        }


def draw_figures_2_and_3(table: Path, title: str, path: Path) -> None:
    """A bar per system and n, with its 95 % interval over documents."""
    from matplotlib.figure import Figure

    rows, figure = read_table(table), Figure((9, 3.4), layout="constrained")
    figure.suptitle(title, fontsize=10)
    systems = [name for name in SYSTEMS if (name, "", "repetition1") in rows]
    if not systems:
        raise ValueError(
            f"{table} has none of the systems {', '.join(SYSTEMS)}: name them with predict --system"
        )
    width = 0.8 / len(systems)
    for axes, (measure, (panel, longest)) in zip(
        figure.subplots(1, 2), PANELS.items(), strict=True
    ):
        for number, system in enumerate(systems):
            label, colour = SYSTEMS[system]
            value, low, high = np.array(
                [rows[system, "", f"{measure}{n + 1}"] for n in range(longest)]
            ).T
            places = np.arange(longest) + (number - (len(systems) - 1) / 2) * width
            interval = [value - low, high - value]
            axes.bar(
                places,
                value,
                width,
                yerr=interval,
                error_kw={"linewidth": 0.8},
                label=label,
                color=colour,
            )
        axes.set_xticks(range(longest), [f"{n + 1}-gram" for n in range(longest)])
        axes.set_title(panel, fontsize=9)
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=150)


def draw_claims(folder: Path, path: Path) -> None:
    """A panel for each of CLAIMS: the paper's value as a line, ours as points with their 95 %
    intervals.
    """
    from matplotlib.figure import Figure

    figure = Figure((9, 3.8), layout="constrained")
    panels = figure.subplots(1, len(CLAIMS), sharey=True)
    for axes, (title, (system, minus, papers)) in zip(panels, CLAIMS.items(), strict=True):
        axes.axvline(0, color="grey", linewidth=0.8)
        axes.axvline(papers, color="C1", linestyle="--")
        axes.text(papers, -0.6, f"paper +{papers} ", color="C1", fontsize=8, ha="right")
        for place, table in enumerate(MEASURED.values()):
            value, low, high = read_table(folder / table)[system, minus, "rouge1"]
            filled = "C0" if "test" in table else "w"  # held-out test set, or validation split
            bars = [[value - low], [high - value]]
            axes.errorbar(value, place, xerr=bars, fmt="o", capsize=3, color="C0", mfc=filled)
        axes.set(title=title, xlabel="difference in ROUGE-1", ylim=(len(MEASURED) - 0.5, -1))
    panels[0].set_yticks(range(len(MEASURED)), list(MEASURED))
    figure.suptitle(
        "DimAttn gains most where the control repeats itself; coverage is ahead (hollow: "
        "validation split)"
    )
    figure.savefig(path, dpi=120)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.table:
        draw_figures_2_and_3(options.table, options.title, options.out / "figures_2_3.png")
    else:
        draw_figure_1(options.out / "figure_1.png")
        draw_claims(Path(__file__).parent, options.out / "claims.png")


if __name__ == "__main__":
    main()
