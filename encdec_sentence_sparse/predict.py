"""Summarise plain text with a run or any BART, under a selection of sentences.

python -m encdec_sentence_sparse.predict runs/apx story.txt
python -m encdec_sentence_sparse.predict facebook/bart-large-cnn news.txt --mode mean_key --r 5 --min-length 0
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import tyro
from tqdm import tqdm

from shared.data import Example, check_outputs, in_sentences, read_texts
from shared.timing import find_device

from .decode import check_generation, decode, given_settings
from .loading import Run, load_run_or_bart
from .run import Positive, at_a_time, check_fields, one_line_errors, read_flags
from .selection import MODES, Selection
from .sentences import RULES


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    model: tyro.conf.Positional[str]  # run folder, or a BART: its folder or its name on the hub
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # text, a document per line, or .jsonl; none: standard input
    out: Path | None = None  # a line per document, or .jsonl with all that is known; none: standard output
    mode: Literal[("", *MODES)] = ""  # how sentences are chosen; default: approx, or mean_key without an approximator
    r: Positive | None = None  # sentences that each step attends to; default: the run's
    sentences: Literal[RULES] = "given"  # how a BART's documents are split: a line by NLTK where its data is there
    beam: Positive | None = None  # default: the model's own, as the two that follow
    min_length: int | None = None  # tokens; bart-large-cnn has 56, too many for a short text
    max_length: Positive | None = None  # tokens
    batch_size: Positive = 8  # documents decoded at a time (at a terminal 1); outputs do not depend on it
    device: str = "cpu"


def predict(
    run: Run, examples: Iterable[Example], selection: Selection, batch_size: int = 8, **generation
) -> Iterator[dict]:
    """Summarise documents in their order, as they come, with `generation` in place of the model's own settings.

    Yields:
        of each document id, prediction, its number of sentences, and was_cut.
    """
    examples = iter(examples)
    while batch := list(islice(examples, batch_size)):
        items = run.encode(in_sentences(batch) if run.config.sentences == "given" else batch)
        [summaries] = decode(run, items, [selection], batch_size, **generation)
        texts = dict(zip(summaries.documents, summaries.texts, strict=True))
        for i, (example, item) in enumerate(zip(batch, items, strict=True)):
            row = {"id": example.id, "prediction": texts[i]}
            yield row | {"sentences": item.sentence_ids[-1] + 1, "was_cut": item.was_cut}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.predict", description=__doc__)
    check_fields(options)
    check_outputs(options.out, inputs=[options.model, *(options.files or ["-"])])
    run = load_run_or_bart(options.model, options.sentences)
    run.model.to(find_device(options.device))
    mode = options.mode or ("approx" if run.model.sentence_encoder else "mean_key")
    selection = Selection(mode, run.config.r if options.r is None else options.r)
    generation = given_settings(options)
    check_generation(options.model, run, generation)
    examples, cut, is_json = read_texts(options.files), 0, options.out and options.out.suffix == ".jsonl"
    size = at_a_time(options.files, options.batch_size)
    with open(options.out, "w", encoding="utf-8") if options.out else nullcontext(sys.stdout) as file:
        rows = predict(run, examples, selection, size, **generation)
        for row in tqdm(rows, unit="document", disable=not options.out):
            print(json.dumps(row, ensure_ascii=False) if is_json else row["prediction"], file=file, flush=True)
            cut += row["was_cut"]
    if cut:
        print(f"{cut} documents were cut to the model's {run.config.max_source} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
