"""Summarise plain text with a run.

echo "A storm hit Norwick. Nobody was hurt." | python -m diminishing_attention.predict runs/pg-dim
python -m diminishing_attention.predict runs/pg-dim notes.txt --out notes.jsonl
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from tqdm import tqdm

try:
    from shared.data import in_sentences, open_output, read_texts
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared.run import one_line_errors, read_flags
from shared.timing import find_device

from .decode import Decoding, decode
from .loading import load_run


@dataclass(kw_only=True)
class Options(Decoding):
    """The command line."""

    run: tyro.conf.Positional[Path]  # Run folder.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # Text, a document per line, or .jsonl; none: standard input.
    out: Path | None = None  # File with a line per document, or .jsonl with all that is known; none: standard output.
    overwrite: bool = False  # Replace that file.


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run = load_run(options.run)
    run.model.to(find_device(options.device))
    examples = in_sentences(read_texts(options.files))
    is_json = options.out and options.out.suffix == ".jsonl"
    with open_output(options.out, options.overwrite) as file:
        outputs = decode(run, examples, options.batch_size, **options.search())
        done = dict(tqdm(outputs, total=len(examples), unit="document", disable=None))
        for i, example in enumerate(examples):
            row = {"id": example.id, "prediction": done[i].text, "was_cut": done[i].was_cut}
            line = json.dumps(row, ensure_ascii=False) if is_json else done[i].text.replace("\n", " ")
            print(line, file=file)
    if cut := sum(output.was_cut for output in done.values()):
        print(f"{cut} documents were cut to --max-source {run.config.max_source} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
