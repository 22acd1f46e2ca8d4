"""Translate or summarise texts or a data set with a run; references: ends with a table of scores.

echo "Ein Mann schläft." | python -m l0drop.predict runs/l0 --show-pruned
python -m l0drop.predict runs/l0 notes.txt --out notes.jsonl
python -m l0drop.predict runs/l0 --data toy --split test --out l0.jsonl
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from shared.data import Example, read
from shared.pack import pack
from shared.rouge import Tokenize, Words
from shared.run import find_device, one_line_errors, read_flags
from shared.score import system_name, write_outputs

from .config import Length, Positive
from .loading import Run, load_run

WINDOW = 512  # documents that are sorted by length, so that a batch has hardly any padding


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # Run folder.
    # Text, a document a line, or .jsonl; none: standard input.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    data: str = ""  # In place of files: anything that shared.data.load takes.
    # Split of the data (none: test); without --data, of the data that the run was trained on.
    split: str = ""
    limit: Positive | None = None  # First documents only.
    # .jsonl for all that is known of each document, else a line each; none: standard output.
    out: Path | None = None
    overwrite: bool = False  # Replace that file.
    system: str = ""  # Name in the table; none: the folder's, without its seed.
    batch_size: Positive = 32  # Documents decoded at a time; outputs do not depend on it.
    device: str = "cpu"  # Device of torch.
    # auto: BLEU where source and target are one string each (D16).
    metric: Literal["auto", "bleu", "rouge"] = "auto"
    words: Words = "rouge-score"  # Of ROUGE: English, or those of any script.
    tokenize: Tokenize = "13a"  # Of BLEU: sacrebleu's tokenizer.
    # Print each source, its pruned words in [brackets], before its output.
    show_pruned: bool = False
    beam: Positive = 4  # Hypotheses of the search (Appendix A).
    # Of the search; none: 0.6, for characters 1.0.
    length_penalty: Annotated[float, (0, 10)] | None = None
    max_length: Length | None = None  # Longest output in tokens; none: its source and 50 (D7).


def predict(
    run: Run, examples: Sequence[Example], batch_size: int = 32, **search
) -> Iterator[dict]:
    """Decode documents and yield a `row` of each, in order; `search`: see `Run.decode`."""
    for start in range(0, len(examples), WINDOW):
        window = examples[start : start + WINDOW]
        items = run.encode(window)
        order = sorted(range(len(items)), key=lambda place: len(items[place].source))
        rows = {}
        for first in range(0, len(items), batch_size):
            places = order[first : first + batch_size]
            texts, encoding = run.decode([items[place] for place in places], **search)
            layers = encoding.gates or [encoding.keep]  # a baseline prunes nothing
            for number, place in enumerate(places):
                length = len(items[place].source)
                closed = [gates[number, :length] == 0 for gates in layers]
                rows[place] = row(run, window[place], texts[number], closed, items[place].was_cut)
        for place in range(len(window)):
            yield rows[place]


def row(run: Run, example: Example, text: str, closed: list[torch.Tensor], was_cut: bool) -> dict:
    """What is known of a document.

    Args:
        closed: of each L0Drop layer (S,), True where an encoding is pruned.
    Returns:
        prediction; source with the pruned words in brackets; "pruned", of the encoder's output,
        and "pruned_layer_1" and so on, of the layers before it: [pruned, encodings] (D9).
    """
    values = {"id": example.id, "prediction": text, "was_cut": was_cut}
    values["source"] = bracket_pruned(run, example.source, closed[-1][:-1].tolist())
    for number, layer in enumerate(closed, 1):
        name = "pruned" if number == len(closed) else f"pruned_layer_{number}"
        values[name] = [int(layer.sum()), len(layer)]
    return values


def bracket_pruned(run: Run, source: str, pruned: Sequence[bool]) -> str:
    """The source as it was written, with [brackets] round words whose every token is pruned.

    What was cut is left out.
    """
    encoding = run.tokenizer.encode(source)
    kept = set()  # words with a token that is not pruned
    ends = {}  # of each word, the end of its last token
    for word, (_, stop), is_pruned in zip(
        encoding.word_ids, encoding.offsets, pruned, strict=False
    ):
        ends[word] = stop
        if not is_pruned:
            kept.add(word)
    text = ""
    end = 0
    is_open = False
    for word, stop in ends.items():
        part = source[end:stop]
        letters = part.lstrip(" ")
        if is_open and word in kept:
            text += "]"
            is_open = False
        text += part[: len(part) - len(letters)]  # blanks stay outside the bracket
        if letters and word not in kept and not is_open:
            text += "["
            is_open = True
        text += letters
        end = stop
    return text + "]" if is_open else text


def metric_of(examples: Sequence[Example]) -> str:
    """BLEU where source and target are one string each, as in translation; else ROUGE (D16)."""
    one_string_each = all(len(example.document + example.summary) == 2 for example in examples)
    return "bleu" if one_string_each else "rouge"


def answer(options: Options, run: Run) -> None:
    """Do what the command line asks for, with a run."""
    data = options.data or (run.config.data if options.split else "")
    examples = read(options.files, data, options.split or "test", options.limit)
    metric = metric_of(examples) if options.metric == "auto" else options.metric
    search = {"beam": options.beam}
    if options.length_penalty is not None:
        search["length_penalty"] = options.length_penalty
    if options.max_length is not None:
        search["max_length"] = options.max_length
    run.model.to(find_device(options.device))
    is_packed = pack(run.model)  # last: a packed model can only decode
    documents = [example for example in examples if example.document]  # a blank line stays one
    rows = predict(run, documents, options.batch_size, **search)
    write(options, run, rows, examples, metric)
    if is_packed:
        print("decoded with packed weights (shared/pack.py)", file=sys.stderr)


def write(
    options: Options, run: Run, rows: Iterator[dict], examples: list[Example], metric: str
) -> None:
    """Write the rows of all examples, and the table of scores if there are references."""
    if options.show_pruned:
        rows = (
            values | {"line": f"source: {values['source']}\noutput: {values['prediction']}"}
            for values in rows
        )
    write_outputs(
        rows,
        examples,
        system=options.system or system_name(options.run.name, run.config.seed),
        seed=run.config.seed,
        out=options.out,
        overwrite=options.overwrite,
        metric=metric,
        words=options.words,
        tokenize=options.tokenize,
    )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    answer(options, load_run(options.run))


if __name__ == "__main__":
    main()
