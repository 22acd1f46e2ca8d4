"""Translate or summarise texts or a data set with a run; with references it ends with a table of scores.

echo "Ein Mann schläft." | python -m l0drop.predict runs/l0 --show-pruned
python -m l0drop.predict runs/l0 notes.txt --out notes.jsonl
python -m l0drop.predict runs/l0 --data toy --split test --out l0.jsonl
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro

try:
    from shared.data import Example, read
except ModuleNotFoundError:
    where = "at the top of the import path (beside the outermost package)"
    sys.exit(f"error: the commands need the repository's folder `shared` {where}")
from shared.run import find_device, one_line_errors, read_flags
from shared.score import system_name, write_outputs

from .config import Length, Positive
from .loading import Run, load_run
from .text import Item

WINDOW = 16  # batches whose documents are sorted by length, so that a batch has hardly any padding


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # Run folder.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # Text, a document a line, or .jsonl; none: standard input.
    data: str = ""  # In place of files: anything that shared.data.load takes.
    split: str = "test"  # Split of the data.
    limit: Positive | None = None  # First examples only.
    out: Path | None = None  # .jsonl for all that is known of each document, else a line each; none: standard output.
    overwrite: bool = False  # Replace that file.
    system: str = ""  # Name in the table; none: the folder's, without its seed.
    metric: Literal["auto", "bleu", "rouge"] = "auto"  # auto: BLEU where source and target are one string each (D16).
    show_pruned: bool = False  # Print each source, its pruned words in [brackets], before its output.
    beam: Positive | None = None  # Hypotheses of the search; none: 4 (Appendix A).
    length_penalty: Annotated[float, (0, 10)] | None = None  # Of the search; none: 0.6, for characters 1.0.
    max_length: Length | None = None  # Longest output in tokens; none: its source and 50 (D7), or a BART's own.
    batch_size: Positive = 32  # Documents decoded at a time; outputs do not depend on it.
    device: str = "cpu"  # Device of torch.


class Output(NamedTuple):
    """What decoding one document gave."""

    item: Item
    tokens: list[int]  # EOS and PAD included
    pruned: list[list[bool]]  # (L0Drop layers, S): which source encodings were dropped; without gates, by the rule


def decode(run: Run, examples: Sequence[Example], batch_size: int = 32, **search) -> Iterator[Output]:
    """Decode documents in their order, in batches of similar length; `search` as in `search.generate`."""
    for start in range(0, len(examples), WINDOW * batch_size):
        items = run.encode(examples[start : start + WINDOW * batch_size])
        by_length, outputs = sorted(range(len(items)), key=lambda i: len(items[i].source)), {}
        for first in range(0, len(items), batch_size):
            indices = by_length[first : first + batch_size]
            batch = run.collate([items[i] for i in indices])
            hypotheses, encoding, _ = run.generate(batch, **search)
            dropped = encoding.keep & False if batch.rule_keep is None else ~batch.rule_keep
            closed = [gates == 0 for gates in encoding.gates] or [dropped]
            for place, i in enumerate(indices):
                pruned = [layer[place, : len(items[i].source)].tolist() for layer in closed]
                outputs[i] = Output(items[i], hypotheses.tokens[place].tolist(), pruned)
        yield from (outputs[i] for i in range(len(items)))


def predict(run: Run, examples: Sequence[Example], **options) -> Iterator[dict]:
    """Decode documents in their order and yield what `row` says of each; `options` are those of `decode`."""
    for example, output in zip(examples, decode(run, examples, **options), strict=True):
        yield row(run, example, output)


def row(run: Run, example: Example, output: Output) -> dict:
    """What is said of a document: its prediction, its source with the pruned words in brackets, and
    [pruned, encodings] of the output ("pruned") and of the layers before it; </s> counts as an encoding (D9)."""
    names = [*(f"pruned_layer_{n}" for n in range(1, len(output.pruned))), "pruned"]
    return {
        "id": example.id,
        "prediction": run.text(output.tokens),
        "source": bracket_pruned(run, example.source, output.pruned[-1][:-1]),
        **{name: [sum(layer), len(layer)] for name, layer in zip(names, output.pruned, strict=True)},
        "was_cut": output.item.was_cut,
    }


def bracket_pruned(run: Run, source: str, pruned: Sequence[bool]) -> str:
    """The source, as it was written, in brackets the words of which every token is pruned; what was cut is left out."""
    encoding = run.tokenizer.encode(source)
    tokens = zip(encoding.word_ids, encoding.offsets, pruned, strict=False)
    words = [list(word) for _, word in groupby(tokens, key=lambda token: token[0])]
    ends = [(all(token[2] for token in word), word[-1][1][1]) for word in words]
    text, end = "", 0
    for is_pruned, group in groupby(ends, key=lambda word: word[0]):
        start, end = end, list(group)[-1][1]
        part = source[start:end].lstrip(" ")
        text += f"{' ' * (end - start - len(part))}[{part}]" if is_pruned and part else source[start:end]
    return text


def metric_of(examples: Sequence[Example]) -> str:
    """BLEU where source and target are one string each, as in translation; else ROUGE (D16)."""
    return "bleu" if all(len(example.document + example.summary) == 2 for example in examples) else "rouge"


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run, examples = load_run(options.run), read(options.files, options.data, options.split, options.limit)
    write(run, examples, options)


def write(run: Run, examples: Sequence[Example], options: Options, predict=predict) -> None:
    """Decode and write what the command line asks for."""
    run.model.to(find_device(options.device))
    search = {name: getattr(options, name) for name in ("beam", "length_penalty", "max_length")}
    search = {name: value for name, value in search.items() if value is not None}
    documents = [example for example in examples if example.document]  # a blank line in is a blank line out
    rows = predict(run, documents, batch_size=options.batch_size, **search)
    settings = {"system": options.system or system_name(options.run.name, run.config.seed), "seed": run.config.seed}
    settings |= {"metric": metric_of(examples) if options.metric == "auto" else options.metric}
    line = (lambda row: f"source: {row['source']}\noutput: {row['prediction']}") if options.show_pruned else None
    write_outputs(rows, examples, out=options.out, overwrite=options.overwrite, line=line, **settings)


if __name__ == "__main__":
    main()
