"""Summarise plain text with a run or any BART, under a selection of sentences.

python -m encdec_sentence_sparse.predict runs/apx story.txt
python -m encdec_sentence_sparse.predict facebook/bart-large-cnn news.txt --mode mean_key --r 5 --min-length 0
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from tqdm import tqdm

try:
    from shared.data import Example, open_output, read_texts
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared.run import one_line_errors, read_flags
from shared.timing import find_device

from .config import Positive
from .decode import decode, settings
from .loading import Run, load_run_or_bart
from .selection import MODES, Selection
from .sentences import RULES


@dataclass
class Options:
    """The command line."""

    model: tyro.conf.Positional[str]  # Run folder, or a BART: its folder or its name on the hub.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # Text, a document a line, or .jsonl; none: standard input.
    out: Path | None = None  # File for a summary a line, or .jsonl with all that is known; none: standard output.
    overwrite: bool = False  # Replace that file.
    mode: Literal[("", *MODES)] = ""  # How sentences are chosen; default: approx, or mean_key without a learned map.
    r: Positive | None = None  # Sentences that each step attends to; default: the run's.
    sentences: Literal[RULES] = "given"  # How a BART's documents are split: given splits a line, by NLTK if it can.
    beam: Positive | None = None  # Beams; default: the model's own, as with the two that follow.
    min_length: int | None = None  # Least tokens of a summary; bart-large-cnn has 56, too many for a short text.
    max_length: Positive | None = None  # Most tokens of a summary.
    batch_size: Positive = 8  # Documents decoded at a time; outputs do not depend on it.
    device: str = "cpu"  # Torch device.


def predict(
    run: Run, examples: Sequence[Example], selection: Selection, batch_size: int = 8, **generation
) -> Iterator[dict]:
    """Summarise documents in their order: id, prediction, its number of sentences, and whether it was cut."""
    items = run.encode(examples)
    for start in tqdm(range(0, len(items), batch_size), disable=None, leave=False):
        batch = [items[i] for i in range(start, min(start + batch_size, len(items)))]
        [summaries] = decode(run, batch, [selection], batch_size, **generation)
        texts = dict(zip(summaries.documents, summaries.texts, strict=True))
        for i, item in enumerate(batch):
            row = {"id": examples[start + i].id, "prediction": texts[i]}
            yield row | {"sentences": item.sentence_ids[-1] + 1, "was_cut": item.was_cut}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run = load_run_or_bart(options.model, options.sentences)
    run.model.to(find_device(options.device))
    mode = options.mode or ("approx" if run.model.sentence_encoder else "mean_key")
    selection, generation = Selection(mode, options.r or run.config.r), settings(run, options)
    examples, cut, is_json = read_texts(options.files), 0, options.out and options.out.suffix == ".jsonl"
    with open_output(options.out, options.overwrite) as file:
        for row in predict(run, examples, selection, options.batch_size, **generation):
            print(json.dumps(row, ensure_ascii=False) if is_json else row["prediction"], file=file, flush=True)
            cut += row["was_cut"]
    if cut:
        print(f"{cut} documents were cut to the model's {run.config.max_source} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
