"""Decode runs and measure their outputs: Tables 1, 3 and 4, and the numbers behind Figures 2 and 3.

python -m diminishing_attention.evaluate runs/pg-0 runs/pg-1 runs/dim-0 runs/dim-1 --predictions runs/outputs
python -m diminishing_attention.evaluate runs/pg runs/dim --ablation --csv table_4.csv

A run folder's name without its seed is its system: runs/pg-0 and runs/pg-1 are two seeds of "pg".
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import tyro
from tqdm import tqdm

try:
    from shared.data import Example, in_sentences, load, open_output
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared import rouge
from shared.run import one_line_errors, read_flags
from shared.score import in_lines, report, score, system_name
from shared.timing import find_device

from .config import Positive
from .decode import Decoding, decode
from .loading import Run, for_task, load_run
from .text import ngrams, split_words

# Table 4. D17: "only" is the decoder of See et al., the baseline's, whatever the runs have.
ONLY = dict(length_penalty=0.0, average=True, trigram_blocking=False)
NORM = ONLY | dict(length_penalty=1.5, average=False)  # Section 4.2
ABLATION = {"only": ONLY, "norm": NORM, "norm.blocking": NORM | dict(trigram_blocking=True)}


@dataclass(kw_only=True)
class Options(Decoding):
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # Run folders; differences are from the first one's system.
    data: str = ""  # Test data: anything that shared.data.load takes; default: the first run's.
    split: str = "test"  # Split of the data.
    limit: Positive | None = None  # First so many documents only.
    lead: Positive = 3  # Sentences of the lead baseline (Tables 1, 3).
    ablation: bool = False  # Decode each run in the three ways of Table 4 instead.
    predictions: Path | None = None  # Folder for the outputs, a .jsonl of each run and decoding.
    csv: Path | None = None  # File for the table, a row per system and measure.
    overwrite: bool = False  # Replace those files.


def repetition_ratio(words: Sequence[str], n: int) -> float:
    """Duplicate n-grams / n-grams (Figure 2), 0-1. A text without n-grams repeats nothing: 0."""
    # D11: every occurrence after the first is a duplicate.
    grams = ngrams(words, n)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def novel_share(words: Sequence[str], source: Sequence[str], n: int) -> float:
    """Share of the n-grams, 0-1, that do not stand in the source (Figure 3, Section 4.4); without n-grams 0."""
    grams, known = ngrams(words, n), set(ngrams(source, n))
    return sum(gram not in known for gram in grams) / len(grams) if grams else 0.0


def measure(text: str, example: Example, lead: int) -> dict[str, float]:
    """The paper's own numbers of one output: words, and in percent repetition, novelty and overlap with the lead."""
    words, source = split_words(text), split_words(example.source)
    row = {"words": len(words)}
    row |= {f"repetition{n}": 100 * repetition_ratio(words, n) for n in range(1, 6)}  # Figure 2
    row |= {f"novel{n}": 100 * novel_share(words, source, n) for n in range(1, 5)}  # Figure 3
    overlap = rouge.score([in_lines(text)], [example.document[:lead]])
    return row | {f"lead_{name}": float(overlap[name][0]) for name in ("rouge1", "rouge2", "rougeLsum")}  # Table 3


def evaluate(
    runs: dict[str, Run], examples: Sequence[Example], predictions: Path | None = None, lead: int = 3,
    ways: dict[str, dict] | None = None, overwrite: bool = False, **options,
) -> list[dict]:  # fmt: skip
    """A row for each document, run and decoding, as `shared.score` takes them; then of the lead and the reference.

    Args:
        runs: by the names of their folders.
        predictions: folder for the rows, NAME.jsonl of each run and decoding, as they come, and of the baselines.
        lead: sentences of the lead baseline.
        ways: decodings by name, such as ABLATION; default: that of each run.
        options: as in `decode`.
    """
    rouge.check_references(examples)
    outputs, rows = {}, []
    for (name, run), (way, setting) in product(runs.items(), (ways or {"": {}}).items()):
        name, system = (".".join(filter(None, [of, way])) for of in (name, system_name(name, run.config.seed)))
        outputs[name] = rows_of(run, examples, lead, system, **options | setting)
    outputs[f"lead-{lead}"] = (row_of(e, "\n".join(e.document[:lead]), lead, f"lead-{lead}", 0) for e in examples)
    outputs["reference"] = (row_of(e, "\n".join(e.summary), lead, "reference", 0) for e in examples)
    with ExitStack() as stack:
        paths = {name: predictions / f"{name}.jsonl" for name in outputs} if predictions else {}
        files = {name: stack.enter_context(open_output(path, overwrite)) for name, path in paths.items()}
        for name, of_system in outputs.items():
            for row in of_system:
                rows.append(row)
                if files:
                    print(json.dumps(row, ensure_ascii=False), file=files[name], flush=True)
    return rows


def row_of(example: Example, text: str, lead: int, system: str, seed: int) -> dict:
    """An output as `shared.score` takes it."""
    row = {"id": example.id, "prediction": text, "references": example.references, "system": system, "seed": seed}
    return row | measure(text, example, lead)


def rows_of(run: Run, examples: Sequence[Example], lead: int, system: str, **options) -> Iterator[dict]:
    """A row for each document as it is done; says on stderr how many were cut."""
    cut = 0
    for i, output in tqdm(decode(run, examples, **options), total=len(examples), leave=False, disable=None):
        cut += output.was_cut
        yield row_of(examples[i], output.text, lead, system, run.config.seed)
    if cut:
        print(f"{system}: {cut} documents were cut to {run.config.max_source} tokens", file=sys.stderr)


def load_runs(paths: Sequence[Path], device: str = "cpu") -> dict[str, Run]:
    """Runs on a device, by the names of their folders; ValueError: none, or two of the same name."""
    if not paths or len({path.name for path in paths}) < len(paths):
        raise ValueError("give at least one run folder, and no two of the same name: rename one")
    runs = {path.name: load_run(path) for path in paths}
    for run in runs.values():
        run.model.to(find_device(device))
    return runs


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    runs = load_runs(options.runs, options.device)
    config = next(iter(runs.values())).config
    data = options.data or config.data
    examples = for_task(in_sentences(load(data, options.split, options.limit)), config.task)
    given = dict(lead=options.lead, ways=ABLATION if options.ablation else None, overwrite=options.overwrite)
    given |= dict(batch_size=options.batch_size) | options.search()
    with open_output(options.csv, options.overwrite) as file:
        report(score(evaluate(runs, examples, options.predictions, **given)), file if options.csv else None)


if __name__ == "__main__":
    main()
