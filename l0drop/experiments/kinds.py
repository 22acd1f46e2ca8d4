"""What is pruned of each kind of sentence of the toy corpus: main facts, repeats, details, filler.

python -m l0drop.experiments.kinds runs/l0-toy/l0-0.8-0 --csv kinds.csv
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from shared.data import Example, load, open_output, write_csv
from shared.rouge import table
from shared.run import one_line_errors, read_flags

from ..loading import Run, load_run
from ..patterns import tags_of_units
from ..text import label_spans, unit_starts


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # Runs with gates, trained on toy.
    csv: Path | None = None  # File for all numbers.
    overwrite: bool = False  # Replace that file.


@torch.inference_mode()
def pruned_by_kind(run: Run, examples: Sequence[Example]) -> dict[str, list[int]]:
    """[pruned, encodings] of each kind of sentence; EOS and what was cut off have none."""
    counts, items = defaultdict(lambda: [0, 0]), run.encode(examples)
    for i, example in enumerate(examples):
        spans = label_spans(example.document, example.kinds)
        kinds = tags_of_units(unit_starts(run.tokenizer, example.source), spans)
        closed = run.model.encode(run.collate([items[i]]).source).gates[-1][0] == 0
        for kind, is_pruned in zip(kinds, closed[:-1].tolist(), strict=False):
            counts[kind][0] += is_pruned
            counts[kind][1] += 1
    return dict(counts)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options, rows = read_flags(Options, arguments, __doc__), []
    with open_output(options.csv, options.overwrite) as file:
        for path in options.runs:
            run = load_run(path)
            for kind, (pruned, encodings) in pruned_by_kind(run, load(run.config.data, "test")).items():
                rows.append(
                    {"run": path.name, "kind": kind, "encodings": encodings, "pruned": 100 * pruned / encodings}
                )
        print(table(rows))
        if options.csv:
            write_csv(file, rows)


if __name__ == "__main__":
    main()
