"""Translate or summarise plain text with a run.

echo "Ein Mann schläft." | python -m l0drop.predict runs/l0 --show-pruned
python -m l0drop.predict runs/l0 notes.txt --out notes.jsonl
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import tyro
from tokenizers import Tokenizer
from tqdm import tqdm

from shared.data import Example, check_outputs, read_texts
from shared.timing import find_device

from .decode import decode_all
from .loading import Run, load_run
from .run import Positive, at_a_time, check_fields, one_line_errors, read_flags


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # run folder
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # text, a document per line, or .jsonl; none: standard input
    out: Path | None = None  # a line per document, or .jsonl with all that is known; none: standard output
    show_pruned: bool = False  # print each source, its pruned words in [brackets], before its output
    batch_size: Positive = 16  # documents decoded at a time (at a terminal 1); outputs do not depend on it
    device: str = "cpu"


def predict(run: Run, examples: Iterable[Example], batch_size: int = 16) -> Iterator[dict]:
    """Decode documents in their order, as they come.

    Yields:
        of each: id, prediction, source with its pruned words in brackets, sparsity in %, was_cut.
    """
    examples = iter(examples)
    while batch := list(islice(examples, batch_size)):
        items = run.encode(batch)
        for example, item, output in zip(batch, items, decode_all(run, items, batch_size), strict=True):
            pruned = output.pruned[-1]
            yield {
                "id": example.id,
                "prediction": run.tokenizer.decode(output.tokens),
                "source": bracket_pruned(run.tokenizer, example.source, pruned[:-1]),
                "sparsity": 100 * sum(pruned) / len(pruned),
                "was_cut": item.was_cut,
            }


def bracket_pruned(tokenizer: Tokenizer, source: str, pruned: Sequence[bool]) -> str:
    """The source, as it was written, with the pruned tokens in brackets; what was cut off is left out."""
    text, end = "", 0
    ends = [offset[1] for offset in tokenizer.encode(source).offsets]
    for is_pruned, group in groupby(zip(pruned, ends, strict=False), key=lambda pair: pair[0]):
        start, end = end, list(group)[-1][1]
        words = source[start:end].lstrip(" ")
        text += f"{' ' * (end - start - len(words))}[{words}]" if is_pruned and words else source[start:end]
    return text


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.predict", description=__doc__)
    check_fields(options)
    check_outputs(options.out, inputs=[options.run, *(options.files or ["-"])])
    run = load_run(options.run)
    run.model.to(find_device(options.device))
    examples, cut = read_texts(options.files), 0
    size = at_a_time(options.files, options.batch_size)
    with open(options.out, "w", encoding="utf-8") if options.out else nullcontext(sys.stdout) as file:
        for row in tqdm(predict(run, examples, size), unit="document", disable=not options.out):
            if options.out and options.out.suffix == ".jsonl":
                line = json.dumps(row, ensure_ascii=False)
            else:
                line = f"{row['source']}\n  {row['prediction']}" if options.show_pruned else row["prediction"]
            print(line, file=file, flush=True)
            cut += row["was_cut"]
    if cut:
        print(f"{cut} documents were cut to --max-source {run.config.max_source} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
