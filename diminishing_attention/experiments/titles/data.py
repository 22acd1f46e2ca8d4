"""Abstracts with their titles as summaries.

python -m diminishing_attention.experiments.titles.data DATA SPLIT > FILE

DATA is anything that shared.data.load takes and that has titles: SciTLDR's folder.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from shared.data import in_sentences, load, write_jsonl
from shared.run import one_line_errors, read_flags


def titled(data: str, split: str) -> list[dict]:
    """Rows of JSON lines; ValueError: a document without a title."""
    examples = in_sentences(load(data, split))
    for example in examples:
        if not (example.title or "").strip():
            raise ValueError(f"{data}: {example.id!r} has no field 'title'")
    return [{"id": e.id, "document": e.document, "summary": [e.title]} for e in examples]


@dataclass
class Options:
    """The command line."""

    data: tyro.conf.Positional[str]
    split: tyro.conf.Positional[str]


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    write_jsonl(sys.stdout, titled(options.data, options.split))


if __name__ == "__main__":
    main()
