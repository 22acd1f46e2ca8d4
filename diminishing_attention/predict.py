"""Summarise plain text with a run.

echo "A storm hit Norwick. Nobody was hurt." | python -m diminishing_attention.predict runs/pg-dim
python -m diminishing_attention.predict runs/pg-dim notes.txt --out notes.jsonl
"""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import tyro
from tqdm import tqdm

from shared.data import Example, check_outputs, in_sentences, read_texts
from shared.timing import find_device

from .evaluate import decode
from .run import one_line_errors
from .train import DECODING, Run, load_run


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # run folder
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # text, a document per line, or .jsonl; none: standard input
    out: Path | None = None  # a line per document, or .jsonl with all that is known; none: standard output
    sentences: int = 3  # sentences of an extractive summary
    beam: int | None = None  # default: the run's, as below
    trigram_blocking: bool | None = None
    min_length: int | None = None
    max_length: int | None = None
    batch_size: int = 16  # documents decoded at a time; outputs do not depend on it
    device: str = "cpu"


def predict(run: Run, examples: Iterable[Example], batch_size: int = 16, **options) -> Iterator[dict]:
    """Summarise documents in their order, as they come.

    Args:
        options: as in `evaluate.decode`.
    Yields:
        of each document id, prediction (its sentences parted by line breaks where the model knows them), was_cut.
    """
    examples = iter(examples)
    while batch := in_sentences(islice(examples, batch_size)):
        texts = dict(decode(run, batch, batch_size, **options))
        for index, (example, item) in enumerate(zip(batch, run.encode(batch), strict=True)):
            yield {"id": example.id, "prediction": texts[index], "was_cut": item.was_cut}


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.predict", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    if min(options.sentences, options.batch_size) < 1:
        raise ValueError("--sentences and --batch-size must be at least 1")
    run = load_run(options.run)
    run.model.to(find_device(options.device))
    check_outputs(options.out)
    search = {name: value for name in DECODING if (value := getattr(options, name, None)) is not None}
    cut = 0
    with open(options.out, "w", encoding="utf-8") if options.out else nullcontext(sys.stdout) as file:
        rows = predict(run, read_texts(options.files), options.batch_size, sentences=options.sentences, **search)
        for row in tqdm(rows, unit="document", disable=not options.out):
            cut += row["was_cut"]
            is_json = options.out and options.out.suffix == ".jsonl"
            line = json.dumps(row, ensure_ascii=False) if is_json else row["prediction"].replace("\n", " ")
            print(line, file=file, flush=True)
    if cut:
        print(f"{cut} documents were cut to {run.config.max_source} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
