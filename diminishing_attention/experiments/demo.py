"""The README's demo: the lesson's round trips as files, and what DimAttn changes on them, in one line.

python -m diminishing_attention.experiments.demo --write runs/trips          # before the trainings
python -m diminishing_attention.experiments.demo runs/pg-more runs/pg-dim    # after them

A source names home and goal of four trips, "rome lima ."; its summary tells each trip there and back, "rome lima rome
.", in any order, so that only memory says what is left to tell.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from shared.data import load, open_output, write_jsonl
from shared.run import one_line_errors, read_flags
from shared.score import score

from ..evaluate import evaluate, load_runs

HOMES = "rome oslo bern kyiv riga bonn graz pisa cork york lodz brno nice bari faro vigo turku ghent essen lyon".split()
GOALS = "lima cairo delhi tokyo quito accra dakar hanoi seoul osaka perth miami utah chad laos cuba peru mali fiji iran"
SPLITS = {"train": 12_000, "validation": 200, "test": 300}


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]] = ()  # The control, and the run with DimAttn.
    write: Path | None = None  # Write train.jsonl, validation.jsonl and test.jsonl into this folder, nothing else.
    overwrite: bool = False  # Replace those files.


def draw(split: str) -> Iterator[dict]:
    """The texts of a split, always the same ones."""
    rng = random.Random(split)
    for number in range(SPLITS[split]):
        trips = list(zip(rng.sample(HOMES, 4), rng.sample(GOALS.split(), 4), strict=True))
        document = [f"{home} {goal} ." for home, goal in trips]
        rng.shuffle(trips)
        summary = [f"{home} {goal} {home} ." for home, goal in trips]
        yield {"id": f"{split}-{number}", "document": document, "summary": summary}


def show(folders: Sequence[Path]) -> None:
    """Score the control and the run with DimAttn, and print a text that is told right; ValueError: no effect."""
    if len(folders) != 2:
        raise ValueError("give two runs, the control and the one with DimAttn; or --write FOLDER")
    runs = load_runs(folders)
    examples = load(next(iter(runs.values())).config.data, "test")
    rows = evaluate(runs, examples)
    values = {(row["system"], row["metric"]): row["value"] for row in score(rows) if not row["minus"]}
    (repeated, rouge), (control, plain) = (
        [values[name, metric] for metric in ("repetition3", "rouge2")] for name in reversed(runs)
    )
    texts = {row["id"]: row["prediction"] for row in rows if row["system"] == folders[1].name}
    right = [e for e in examples if sorted(texts[e.id].split(" . ")) == sorted(e.target.split(" . "))]
    example = right[0] if right else examples[0]
    print("source:    ", example.source)
    print("prediction:", texts[example.id])
    print("reference: ", example.target, "(any order is right)")
    print(
        f"DimAttn: {repeated:.1f} % of the 3-grams repeated, without it {control:.1f} %; "
        f"ROUGE-2 {rouge:.1f}, {plain:.1f}; {len(right)} of {len(examples)} told right"
    )
    if not (repeated < 0.6 * control and rouge > plain and right):
        raise ValueError("the effect does not show: train longer")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    if options.write is None:
        return show(options.runs)
    for split in SPLITS:
        with open_output(options.write / f"{split}.jsonl", options.overwrite) as file:
            write_jsonl(file, draw(split))
    print(f"{options.write}: {', '.join(f'{count:,} {split}' for split, count in SPLITS.items())} texts")


if __name__ == "__main__":
    main()
