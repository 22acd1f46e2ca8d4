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

from shared.data import Example, load, open_output, write_jsonl
from shared.run import one_line_errors, read_flags
from shared.score import score

from ..loading import load_run
from ..predict import predict

HOMES = "rome oslo bern kyiv riga bonn graz pisa cork york lodz brno nice bari faro vigo turku ghent essen lyon".split()
GOALS = "lima cairo delhi tokyo quito accra dakar hanoi seoul osaka perth miami utah chad laos cuba peru mali fiji iran"
SPLITS = {"train": 12_000, "validation": 200, "test": 300}
SYSTEMS = ("without it", "with DimAttn")


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


def split_trips(text: str) -> list[str]:
    """The sentences of a text, without their stops."""
    return [" ".join(trip.split()) for trip in text.rstrip(" .").split(".")]


def show(folders: Sequence[Path]) -> None:
    """Score the control and the run with DimAttn, and print a text on which they differ; ValueError: no effect."""
    if len(folders) != len(SYSTEMS):
        raise ValueError("give two runs, the control and the one with DimAttn; or --write FOLDER")
    runs = dict(zip(SYSTEMS, map(load_run, folders), strict=True))
    examples = load(runs[SYSTEMS[0]].config.data, "test")
    rows = {name: list(predict(run, examples)) for name, run in runs.items()}
    known = [{"references": example.references} for example in examples]
    table = score(
        [row | more | {"system": name, "seed": 0} for name in rows for row, more in zip(rows[name], known, strict=True)]
    )
    values = {(row["system"], row["metric"]): row["value"] for row in table if not row["minus"]}
    (control, plain), (repeated, rouge) = ((values[name, "repetition3"], values[name, "rouge2"]) for name in SYSTEMS)
    texts = [[split_trips(row["prediction"]) for row in rows[name]] for name in SYSTEMS]
    wanted = [sorted(split_trips(example.target)) for example in examples]
    right = [i for i, told in enumerate(texts[1]) if sorted(told) == wanted[i]]
    if not (repeated < 0.6 * control and rouge > plain and right):
        raise ValueError("the effect does not show: train longer")
    explain(examples, texts, min(right, key=lambda i: (len(set(texts[0][i])), i)))
    print(
        f"DimAttn: {repeated:.1f} % of the 3-grams repeated, without it {control:.1f} %; "
        f"ROUGE-2 {rouge:.1f}, {plain:.1f}; {len(right)} of {len(examples)} told right"
    )


def explain(examples: Sequence[Example], texts: Sequence[Sequence[list[str]]], i: int) -> None:
    """One text in words: its trips, and what each system tells of them."""
    print("Where they differ most: four trips, each from home to goal:", ", ".join(split_trips(examples[i].source)))
    print("The summary tells each there and back, in any order:", ", ".join(split_trips(examples[i].target)))
    for name, told in zip(SYSTEMS, texts, strict=True):
        print(f"  {name}: {', '.join(told[i])} ({len(told[i]) - len(set(told[i]))} told twice)")


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
