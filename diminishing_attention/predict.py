"""Summarise plain text with a run.

echo "A storm hit Norwick. Nobody was hurt." | python -m diminishing_attention.predict runs/pg-dim
python -m diminishing_attention.predict runs/pg-dim notes.txt --out notes.jsonl
"""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import tyro
from tqdm import tqdm

from shared.data import Example, check_outputs, in_sentences, read_texts
from shared.timing import find_device

from .decode import Decoding, decode
from .loading import Run, load_run
from .run import at_a_time, check_fields, one_line_errors, read_flags


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass(kw_only=True)
class Options(Decoding):
    """The command line."""

    run: tyro.conf.Positional[Path]  # run folder
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # text, a document per line, or .jsonl; none: standard input
    out: Path | None = None  # a line per document, or .jsonl with all that is known; none: standard output


def predict(run: Run, examples: Iterable[Example], batch_size: int = 16, **options) -> Iterator[dict]:
    """Summarise documents in their order, as they come.

    Args:
        options: as in `decode`.
    Yields:
        of each document id, prediction (its sentences parted by line breaks where the model knows them), was_cut.
    """
    examples = iter(examples)
    while batch := in_sentences(islice(examples, batch_size)):
        outputs = dict(decode(run, batch, batch_size, **options))
        for index, example in enumerate(batch):
            yield {"id": example.id, "prediction": outputs[index].text, "was_cut": outputs[index].was_cut}


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.predict", description=__doc__)
    check_fields(options)
    search = options.search() | {"sentences": options.sentences}
    check_outputs(options.out, inputs=options.files)
    run = load_run(options.run)
    run.model.to(find_device(options.device))
    examples, cut = read_texts(options.files), 0
    size = at_a_time(options.files, options.batch_size)
    rows = predict(run, examples, size, **search)
    rows = chain(list(islice(rows, 1)), rows)  # what the model cannot do is refused before an output is opened
    with open(options.out, "w", encoding="utf-8") if options.out else nullcontext(sys.stdout) as file:
        for row in tqdm(rows, unit="document", disable=not options.out):
            is_json = options.out and options.out.suffix == ".jsonl"
            line = json.dumps(row, ensure_ascii=False) if is_json else row["prediction"].replace("\n", " ")
            print(line, file=file, flush=True)
            cut += row["was_cut"]
    if cut:
        print(f"{cut} documents were cut to --max-source {run.config.max_source} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
