"""The paper's differences beside ours, and how times grow with the units of a document.

P=discourse_tree_attention/experiments
python -m discourse_tree_attention.experiments.figures runs/figures $P/scitldr/scitldr_*.csv
python -m discourse_tree_attention.experiments.figures runs/figures --times $P/benchmark.csv
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from shared.run import one_line_errors, read_flags

# What, system, minus, end of the table's name, the paper's difference in ROUGE-1 (Tables 2 and 3).
CLAIMS = (
    ("C-Tree w/Nuc minus one learned head, EDUs", "c_tree_nuclearity", "dot", "edu", -0.16),
    ("the same, sentences", "c_tree_nuclearity", "dot", "sentence", -0.07),
    (
        "balanced C-Tree minus eight heads, sentences",
        "c_tree",
        "dot-8-heads",
        "sentence_balanced",
        0.23,
    ),
    ("C-Tree w/Nuc minus no attention, EDUs", "c_tree_nuclearity", "none", "edu", 0.87),
    ("D-Tree minus no attention, EDUs", "d_tree", "none", "edu", 0.54),
    ("D-Tree minus the unit before, EDUs", "d_tree", "previous", "edu", None),
)

# Sides of the benchmark, and where the label stands; the other sides lie on the lower two curves.
CURVES = {"dot product, 8 heads": "center", "dot product, 1 head": "bottom", "tree": "top"}


def read_table(path: Path) -> dict[tuple[str, str], dict]:
    """ROUGE-1 with its interval in a table of `shared.score`, by system and what is subtracted.

    Over documents where there is one, else over seeds.
    """
    found = {}
    for row in csv.DictReader(path.open(encoding="utf-8")):
        if row["metric"] == "rouge1":
            low, high = row["low"] or row["seeds_low"], row["high"] or row["seeds_high"]
            numbers = {"value": float(row["value"]), "low": float(low), "high": float(high)}
            found[row["system"], row["minus"]] = numbers
    return found


def figure_claims(tables: dict[str, dict]):
    """The paper's differences (diamonds) beside ours, in folds and on the held-out test."""
    from matplotlib.figure import Figure  # here, for --help answers without it

    figure = Figure(layout="constrained", figsize=(9, 0.6 * len(CLAIMS) + 1.2))
    axes = figure.subplots()
    for place, (_, system, minus, end, papers) in enumerate(CLAIMS):
        if papers is not None:
            axes.plot(papers, place - 0.2, "D", color="tab:red")
        folds = tables.get(f"scitldr_{end}", {}).get((system, minus))
        test = tables.get(f"scitldr_{end}_test", {}).get((system, minus))
        more_seeds = tables.get(f"scitldr_{end}_seeds_test", {}).get((system, minus))
        points = (folds, place, "black"), (more_seeds or test, place + 0.2, "tab:blue")
        for row, height, colour in points:
            if row:
                bars = [[row["value"] - row["low"]], [row["high"] - row["value"]]]
                axes.errorbar(row["value"], height, xerr=bars, fmt="o", color=colour, capsize=3)
    axes.axvline(0, color="tab:grey", linewidth=1)
    axes.set_yticks(range(len(CLAIMS)), [claim for claim, *_ in CLAIMS])
    axes.set_xlabel("difference in ROUGE-1")
    axes.invert_yaxis()
    figure.suptitle(
        "red: the paper, CNN/DM; black: SciTLDR, five folds; blue: SciTLDR, held-out test\n"
        "bars: 95 % intervals over texts, in the balanced row over models"
    )
    return figure


def figure_growth(rows: Sequence[dict]):
    """Seconds of an update and of scoring over the units of a document, of the benchmark's rows.

    Those in float32 alone.
    """
    from matplotlib.figure import Figure

    rows = [row for row in rows if row["precision"] == "float32"]
    figure = Figure(layout="constrained", figsize=(9, 3.2))
    panels = figure.subplots(1, 2)
    for axes, work in zip(panels, ("update", "scoring"), strict=True):
        for side, place in CURVES.items():
            own = [row for row in rows if (row["work"], row["side"]) == (work, side)]
            units = [int(row["units"]) for row in own]
            seconds = [float(row["seconds"]) for row in own]
            axes.plot(units, seconds, "o-")
            axes.annotate(f"  {side}", (units[-1], seconds[-1]), va=place)
        axes.set(title=work, xlabel="units of a document", ylabel="CPU seconds, 8 documents")
        axes.set_xlim(0, 1.8 * max(int(row["units"]) for row in rows))
        axes.set_ylim(0)
    figure.suptitle("Eight heads take more time with each clause; a tree saves hardly any over one")
    return figure


@dataclass
class Options:
    """The command line."""

    out: tyro.conf.Positional[Path]  # Folder of the picture.
    # CSVs of shared.score, scitldr_edu.csv and so on: claims.png.
    tables: tyro.conf.Positional[tuple[Path, ...]] = ()
    times: Path | None = None  # CSV of the benchmark: growth.png.


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    figures = {}
    if options.tables:
        figures["claims"] = figure_claims({path.stem: read_table(path) for path in options.tables})
    if options.times:
        with options.times.open(encoding="utf-8") as file:
            figures["growth"] = figure_growth(list(csv.DictReader(file)))
    options.out.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(options.out / f"{name}.png", dpi=90)


if __name__ == "__main__":
    main()
