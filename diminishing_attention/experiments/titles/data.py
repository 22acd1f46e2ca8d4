"""Abstracts with their titles as summaries.

python -m diminishing_attention.experiments.titles.data DATA SPLIT > FILE

DATA is anything that shared.data.load takes and that has titles: SciTLDR's folder.
"""

import sys

import tyro

from shared.data import in_sentences, load, write_jsonl
from shared.run import one_line_errors


def titled(data: str, split: str) -> list[dict]:
    """Rows of JSON lines; ValueError: a document without a title."""
    examples = in_sentences(load(data, split))
    if missing := [example.id for example in examples if not (example.title or "").strip()]:
        raise ValueError(f"{data}: {missing[0]!r} has no field 'title'")
    return [{"id": e.id, "document": e.document, "summary": [e.title]} for e in examples]


def main(data: str, split: str) -> None:
    """DATA SPLIT: print the rows of a split, its titles as summaries."""
    write_jsonl(sys.stdout, titled(data, split))


if __name__ == "__main__":
    one_line_errors(
        lambda words: tyro.cli(main, args=words, config=[tyro.conf.PositionalRequiredArgs])
    )()
