"""Translate or summarise plain text with a run.

echo "Ein Mann schläft." | python -m l0drop.predict runs/l0 --show-pruned
python -m l0drop.predict runs/l0 notes.txt --out notes.jsonl
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import tyro
from tokenizers import Tokenizer
from tqdm import tqdm

try:
    from shared.data import Example, open_output, read_texts
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared.run import one_line_errors, read_flags
from shared.timing import find_device

from .config import Positive
from .decode import decode_all
from .loading import Run, load_run


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # Run folder.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # Text, a document a line, or .jsonl; none: standard input.
    out: Path | None = None  # File for a line of each document, or .jsonl for all that is known; none: standard output.
    overwrite: bool = False  # Replace that file.
    show_pruned: bool = False  # Print each source, its pruned words in [brackets], before its output.
    batch_size: Positive = 16  # Documents decoded at a time; outputs do not depend on it.
    device: str = "cpu"  # Device of torch.


def predict(run: Run, examples: Sequence[Example], batch_size: int = 16) -> Iterator[dict]:
    """Decode documents in their order.

    Yields:
        of each: id, prediction, source with its pruned words in brackets, [pruned, encodings], was_cut.
    """
    for start in range(0, len(examples), batch_size):
        batch = examples[start : start + batch_size]
        items = run.encode(batch)
        for example, item, output in zip(batch, items, decode_all(run, items, batch_size), strict=True):
            pruned = output.pruned[-1]
            yield {
                "id": example.id,
                "prediction": run.tokenizer.decode(output.tokens),
                "source": bracket_pruned(run.tokenizer, example.source, pruned[:-1]),
                "pruned": [sum(pruned), len(pruned)],
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
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run, examples, cut = load_run(options.run), list(read_texts(options.files)), 0
    run.model.to(find_device(options.device))
    with open_output(options.out, options.overwrite) as file:
        rows = predict(run, examples, options.batch_size)
        for row in tqdm(rows, total=len(examples), unit="document", disable=None if options.out else True):
            line = f"{row['source']}\n  {row['prediction']}" if options.show_pruned else row["prediction"]
            if options.out and options.out.suffix == ".jsonl":
                line = json.dumps(row, ensure_ascii=False)
            print(line, file=file, flush=True)
            cut += row["was_cut"]
    if cut:
        print(f"{cut} documents were cut to --max-source {run.config.max_source} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
