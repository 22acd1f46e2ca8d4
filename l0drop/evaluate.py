"""Decode runs and score them: quality, and how much they prune (Tables 1 and 2, Figure 5).

python -m l0drop.evaluate runs/base-1 runs/l0-1 --stanza FOLDER --predictions out    # differences from the first run
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from annotated_types import Interval
from tqdm import tqdm

try:
    from shared.data import Example, load, open_output
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared import rouge
from shared.run import one_line_errors, read_flags
from shared.score import report, score, system_name
from shared.timing import find_device

from . import patterns
from .config import Positive
from .decode import Output, decode
from .loading import Run, load_run
from .text import source_types, tag_sources


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # Run folders; NAME-SEED is one seed of the system NAME.
    data: str = ""  # Anything that shared.data.load takes; empty: the first run's.
    split: str = "test"  # Split of the data.
    limit: Positive | None = None  # First examples only.
    metric: Literal["auto", "bleu", "rouge"] = "auto"  # auto: BLEU where source and target are one string each.
    csv: Path | None = None  # File for all numbers.
    predictions: Path | None = None  # Folder for the outputs, a .jsonl for each run.
    overwrite: bool = False  # Replace these files.
    stanza: str = ""  # Folder of Stanza models, to count sparsity by type on sources without tags (Figure 5).
    dense: bool = False  # Attend to all gated states instead of Algorithm 1's memory.
    batch_size: Positive = 32  # Sources per batch.
    beam: Positive | None = None  # Hypotheses of the search; default: the run's.
    length_penalty: Annotated[float, Interval(ge=0, le=10)] | None = None  # Of the search; default: the run's.
    device: str = "cpu"  # Device of torch.


def sparsity(output: Output, types: Sequence[str] | None) -> dict[str, list[int]]:
    """[pruned, encodings] of the last layer, EOS counted as an encoding (Section 6); of every layer; of every type.

    Args:
        types: of each source token one of `patterns.UNIT_TYPES` (Figure 5); EOS has none.
    """
    counts: dict = defaultdict(lambda: [0, 0])
    for n, layer in enumerate(output.pruned[:-1], start=1):
        counts[f"pruned_layer_{n}"] = [sum(layer), len(layer)]
    counts["pruned"] = [sum(output.pruned[-1]), len(output.pruned[-1])]
    for name in patterns.UNIT_TYPES if types else ():
        counts[f"pruned_{name}"] = [0, 0]
    for is_pruned, name in zip(output.pruned[-1][:-1], types or (), strict=False):
        counts[f"pruned_{name}"][0] += is_pruned
        counts[f"pruned_{name}"][1] += 1
    return dict(counts)


def evaluate(
    run: Run, examples: Sequence[Example], name: str = "run", stanza: str = "", tags: Sequence | None = None, **options
) -> Iterator[dict]:
    """Decode a run; yields a row for `shared.score` of each example, as they are done.

    Args:
        name: of the run, with its seed at the end.
        stanza: folder of Stanza models, for a run of the "pos" pattern; default: the run's.
        tags: what `text.tag_sources` gave, to count sparsity by type.
        options: of `decode`.
    """
    items = run.encode(examples, stanza)
    known = {"system": system_name(name, run.config.seed), "seed": run.config.seed}
    for i, output in tqdm(decode(run, items, **options), total=len(items), leave=False, disable=None):
        types = source_types(run.tokenizer, examples[i].source, tags[i])[0] if tags else None
        row = {"id": examples[i].id, "prediction": run.tokenizer.decode(output.tokens)}
        yield row | {"references": examples[i].references} | known | sparsity(output, types)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    runs = {path.name: load_run(path) for path in options.runs}
    if not runs or len(runs) < len(options.runs):
        raise ValueError("give at least one run folder, and none twice: their names must differ")
    examples = load(options.data or next(iter(runs.values())).config.data, options.split, options.limit)
    metric, rows = options.metric, []
    if metric == "auto":  # D16: BLEU is that of sacrebleu, on plain text
        metric = "bleu" if all(len(example.document + example.summary) == 2 for example in examples) else "rouge"
    if metric == "rouge":
        rouge.check_references(examples)
    is_tagged = options.stanza or all(example.pos for example in examples)
    more = {"stanza": options.stanza, "tags": tag_sources(examples, options.stanza) if is_tagged else None}
    more |= {"prune": not options.dense, "batch_size": options.batch_size}
    more |= {"beam": options.beam, "length_penalty": options.length_penalty}
    with ExitStack() as stack:
        csv = stack.enter_context(open_output(options.csv, options.overwrite)) if options.csv else None
        paths = [options.predictions / f"{name}.jsonl" for name in runs] if options.predictions else []
        files = [stack.enter_context(open_output(path, options.overwrite)) for path in paths]
        for number, (name, run) in enumerate(runs.items()):
            run.model.to(find_device(options.device))
            for row in evaluate(run, examples, name, **more):
                rows.append(row)
                if files:
                    print(json.dumps(row, ensure_ascii=False), file=files[number], flush=True)
        report(score(rows, metric), csv)


if __name__ == "__main__":
    main()
