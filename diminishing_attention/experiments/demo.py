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

from ..loading import load_run
from ..predict import predict

HOMES = "rome oslo bern kyiv riga bonn graz pisa cork york lodz brno nice bari faro vigo turku ghent essen lyon".split()
GOALS = "lima cairo delhi tokyo quito accra dakar hanoi seoul osaka perth miami utah chad laos cuba peru mali fiji iran"
SPLITS = {"train": 12_000, "validation": 200, "test": 300}


@dataclass
class Options:
    """The command line."""

    control: tyro.conf.Positional[Path | None] = None  # The run without a mechanism.
    dim: tyro.conf.Positional[Path | None] = None  # The run with DimAttn.
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


def split_trips(text: str) -> list[str]:
    """The sentences of a text, without their stops."""
    return [" ".join(trip.split()) for trip in text.rstrip(" .").split(".")]


def show(control: Path, dim: Path) -> None:
    """Print a text on which the two runs differ, and how much each repeats; ValueError: no effect."""
    runs = [load_run(control), load_run(dim)]
    examples = load(runs[0].config.data, "test")
    rows = [list(predict(run, examples)) for run in runs]
    plain, repeated = (sum(row["repetition3"] for row in of_run) / len(of_run) for of_run in rows)
    told = [[split_trips(row["prediction"]) for row in of_run] for of_run in rows]
    wanted = [split_trips(example.target) for example in examples]
    right = [[i for i, trips in enumerate(wanted) if sorted(trips) == sorted(of_run[i])] for of_run in told]
    if not (repeated < 0.6 * plain and len(right[1]) > len(right[0])):
        raise ValueError("the effect does not show: train longer")
    i = min(right[1], key=lambda i: len(set(told[0][i])))
    print("Where they differ most: four trips, each from home to goal:", ", ".join(split_trips(examples[i].source)))
    print("The summary tells each there and back, in any order:", ", ".join(wanted[i]))
    for name, trips in (("without it", told[0][i]), ("with DimAttn", told[1][i])):
        print(f"  {name}: {', '.join(trips)} ({len(trips) - len(set(trips))} told twice)")
    counts = f"{len(right[1])} and {len(right[0])} of {len(examples)} told right"
    print(f"DimAttn: {repeated:.1f} % of the 3-grams repeated, without it {plain:.1f} %; {counts}")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    if options.write:
        for split in SPLITS:
            with open_output(options.write / f"{split}.jsonl", options.overwrite) as file:
                write_jsonl(file, draw(split))
        print(f"{options.write}: {', '.join(f'{count:,} {split}' for split, count in SPLITS.items())} texts")
    elif options.dim:
        show(options.control, options.dim)
    else:
        raise ValueError("give two runs, the control and the one with DimAttn; or --write FOLDER")


if __name__ == "__main__":
    main()
