"""The README's demo: the lesson's round trips as files, and what DimAttn changes on them, in one line.

python -m diminishing_attention.experiments.demo --write runs/trips          # before the trainings
python -m diminishing_attention.experiments.demo runs/pg-more runs/pg-dim    # after them

A source names home and goal of four trips, "rome lima ."; its summary tells each trip there and back, "rome lima rome
.", in any order, so that only memory says what is left to tell.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro

from shared.data import load, write_jsonl

from ..evaluate import decode_all, evaluate, load_runs
from ..run import Positive, check_fields, one_line_errors, read_flags

HOMES = "rome oslo bern kyiv riga bonn graz pisa cork york lodz brno nice bari faro vigo turku ghent essen lyon".split()
GOALS = "lima cairo delhi tokyo quito accra dakar hanoi seoul osaka perth miami utah chad laos cuba peru mali fiji iran"
SPLITS = {"train": 12_000, "validation": 200, "test": 300}


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]] = ()  # the control, and the run with DimAttn
    write: Path | None = (
        None  # write train.jsonl, validation.jsonl and test.jsonl into this folder, and do nothing else
    )
    limit: Positive = 300  # test texts


def draw(split: str) -> Iterator[dict]:
    """The texts of a split, always the same ones."""
    rng = random.Random(split)
    for number in range(SPLITS[split]):
        trips = list(zip(rng.sample(HOMES, 4), rng.sample(GOALS.split(), 4), strict=True))
        document = [f"{home} {goal} ." for home, goal in trips]
        rng.shuffle(trips)
        summary = [f"{home} {goal} {home} ." for home, goal in trips]
        yield {"id": f"{split}-{number}", "document": document, "summary": summary}


def show(folders: tuple[Path, ...], limit: int) -> None:
    """Score the control and the run with DimAttn, and print a text that is told right; ValueError: no effect."""
    if len(folders) != 2:
        raise ValueError("give two runs, the control and the one with DimAttn; or --write FOLDER")
    runs = load_runs(folders, "cpu")
    run = runs[folders[1].name]
    examples = load(run.config.data, "test", limit)
    control, dim = (system["scores"] for system in evaluate(runs, examples)["systems"].values())
    texts = [output.text for output in decode_all(run, examples)]
    right = [i for i, e in enumerate(examples) if sorted(texts[i].split(" . ")) == sorted(e.target.split(" . "))]
    i = right[0] if right else 0
    print("source:    ", examples[i].source)
    print("prediction:", texts[i])
    print("reference: ", examples[i].target, "(any order is right)")
    (ours, theirs), rouge = ([s["repetition3"]["mean"] for s in (dim, control)], "rouge2")
    print(
        f"DimAttn: {ours:.1f} % of the 3-grams repeated, without it {theirs:.1f} %; "
        f"ROUGE-2 {dim[rouge]['mean']:.1f}, {control[rouge]['mean']:.1f}; {len(right)} of {len(examples)} told right"
    )
    if not (ours < 0.6 * theirs and dim[rouge]["mean"] > control[rouge]["mean"] and right):
        raise ValueError("the effect does not show: train longer")


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.demo", description=__doc__)
    check_fields(options)
    if options.write is None:
        return show(options.runs, options.limit)
    for path in (options.write / f"{split}.jsonl" for split in SPLITS):
        if path.exists() and json.dumps(next(draw(path.stem))) not in path.read_text(encoding="utf-8"):
            raise ValueError(f"{path} holds other texts than the demo's: choose another folder")
    options.write.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        write_jsonl(options.write / f"{split}.jsonl", draw(split))
    print(f"{options.write}: {', '.join(f'{count:,} {split}' for split, count in SPLITS.items())} texts")


if __name__ == "__main__":
    main()
