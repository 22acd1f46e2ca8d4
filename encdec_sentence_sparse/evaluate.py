"""Decode under every selection of sentences and score: the numbers of Tables 2 to 6 and of Figures 2 and 4.

python -m encdec_sentence_sparse.evaluate runs/base runs/kl runs/apx --csv m.csv            # Tables 3, 6
python -m encdec_sentence_sparse.evaluate runs/base runs/sparse-0.1 runs/sparse-1 --csv m.csv   # Tables 2, 5
python -m encdec_sentence_sparse.evaluate runs/base --modes ideal mean_key --r 5 1 2 10

All is compared with the first run under full attention: give the base model there. Without --modes each run is decoded
under those that the paper's tables have for its task. A system is called RUN.MODE.rR; runs whose names end with their
seed, as base-0 and base-1, are seeds of one.
"""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TextIO

import tyro
from annotated_types import Interval
from tqdm import tqdm

try:
    from shared import rouge
except ImportError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared.data import Example, load, open_output
from shared.run import one_line_errors, read_flags
from shared.score import report, score, system_name
from shared.timing import find_device

from .config import Positive
from .decode import DECODING, decode, settings
from .loading import Run, load_run_or_bart
from .selection import MODES, PHI, Selection
from .sentences import RULES

MODES_OF = {  # what a run of each task is decoded under beside full attention, as in the paper's tables
    "base": ("ideal", "random", "mean_key", "model_free"),
    "sparse": ("ideal", "random"),
    "kl": ("approx",),
    "integrated": ("approx",),
}


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[str, ...]]  # Run folders, or BARTs by folder or hub name; the base model first.
    data: str = ""  # What `shared.data.load` takes; default: the first run's data.
    split: str = "test"  # Split of the data.
    limit: Positive | None = None  # Documents, the first ones of the split. A.2: 2,000 in Figures 2 and 4
    predictions: Path | None = None  # Folder for the outputs, a RUN.jsonl for each run, which `shared.score` reads.
    csv: Path | None = None  # File for all scores, a row for each system and difference.
    overwrite: bool = False  # Replace the output files.
    minus: tuple[str, ...] = ()  # Systems that the others are compared with; default: the first run's full attention.
    modes: tuple[Literal[MODES], ...] = ()  # Ways to choose sentences; default: those of the paper, by each run's task.
    r: tuple[Positive, ...] = (5,)  # Sentences to attend to; a sparse-tuned run takes the first number alone.
    sentences: Literal[RULES] = "given"  # How a BART's documents are split; a run has its own rule.
    seed: int = 0  # Seed of the random choice.
    decoding: Literal[tuple(DECODING)] = "own"  # Generation settings: the model's own, or those of a corpus. A.3
    beam: Positive | None = None  # Beams; default: those of --decoding, as with the four that follow.
    length_penalty: Annotated[float, Interval(ge=-10, le=10)] | None = None  # Exponent of the length penalty.
    min_length: int | None = None  # Least tokens of a summary.
    max_length: Positive | None = None  # Most tokens of a summary.
    no_repeat_ngram_size: int | None = None  # Length of token sequences that never come twice; 0 = any may.
    batch_size: Positive = 32  # Documents decoded at a time.
    device: str = "cpu"  # Torch device.


def selections_of(run: Run, modes: Sequence[str] = (), r: Sequence[int] = (5,), seed: int = 0) -> dict[str, Selection]:
    """Under which selections a run is decoded, by MODE.rR, "full" first."""
    selections, task = {"full": Selection()}, run.config.task
    for mode in [mode for mode in modes or MODES_OF[task] if mode != "full"]:
        for number in r[:1] if task == "sparse" and not modes else r:
            for phi in PHI if mode == "model_free" and number == r[0] else ["elu"]:
                label = f"{mode}-{phi}" if mode == "model_free" else mode
                selections[f"{label}.r{number}"] = Selection(mode, number, phi, seed)
    return selections


def evaluate(
    run: Run,
    name: str,
    examples: Sequence[Example],
    selections: dict[str, Selection],
    batch_size: int = 32,
    file: TextIO | None = None,
    **generation,
) -> list[dict]:
    """Decode one run: a row for each document and selection, as `shared.score` reads them.

    The document's own measures are those of Table 4, N, N1 and M, and whether it was cut.

    Args:
        name: of the run's folder. file: gets the rows as JSON lines, as they come.
        generation: arguments of `generate`, in place of the model's own.
    """
    items, rows, names = run.encode(examples), [], list(selections)
    system = system_name(name, run.config.seed)
    summaries = decode(run, items, list(selections.values()), batch_size, **generation)
    with tqdm(total=len(items) * len(names), desc=name, disable=None, leave=False) as bar:
        for batch in summaries:
            for i, text in zip(batch.documents, batch.texts, strict=True):
                row = {"id": examples[i].id, "prediction": text, "references": examples[i].references}
                row |= {"system": f"{system}.{names[batch.selection]}", "seed": run.config.seed}
                row |= {"source_tokens": len(items[i].ids), "source_sentences": items[i].sentence_ids[-1] + 1}
                rows.append(row | {"target_tokens": len(items[i].target), "was_cut": int(items[i].was_cut)})
                if file:
                    print(json.dumps(rows[-1], ensure_ascii=False), file=file, flush=True)
            bar.update(len(batch.texts))
    return rows


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    names = [Path(run).resolve().name for run in options.runs]
    if not names or len({*names}) < len(names):
        raise ValueError("give run folders, or BARTs, of different names")
    runs = [load_run_or_bart(run, options.sentences) for run in options.runs]
    chosen = [selections_of(run, options.modes, options.r, options.seed) for run in runs]
    generation = [settings(run, options, options.decoding) for run in runs]
    if not (data := options.data or runs[0].config.data):
        raise ValueError(f"{options.runs[0]} is not a run that knows its data: give --data")
    examples, rows = load(data, options.split, options.limit), []
    rouge.check_references(examples)
    with ExitStack() as stack:
        folder, device = options.predictions, find_device(options.device)
        paths = [folder and folder / f"{name}.jsonl" for name in names]
        table = stack.enter_context(open_output(options.csv, options.overwrite))
        files = [path and stack.enter_context(open_output(path, options.overwrite)) for path in paths]
        for run, name, file, selections, search in zip(runs, names, files, chosen, generation, strict=True):
            run.model.to(device)
            rows += evaluate(run, name, examples, selections, options.batch_size, file, **search)
        # D20: ROUGE of rouge-score, R-L over sentences (the paper: pyrouge)
        report(score(rows, "rouge", options.minus), table if options.csv else None)


if __name__ == "__main__":
    main()
