"""The data of bbc/run.sh: a short extractive task, near CNN/Daily Mail's, made of BBC's articles.

python -m head_masking.experiments.bbc.data BBC FOLDER SPLIT ...     BBC: a folder of JSON lines with the field salient

An article is cut after the last sentence that ends within its first 250 words. Its summary is its first three salient
sentences; articles with fewer are left out. The held-out test is written by a call of its own, after all choices.
"""

import sys
from pathlib import Path

from shared.data import load
from shared.run import one_line_errors

from ..samsum.data import write

WORDS, SENTENCES = 250, 3  # of an article, of a summary


def cut(document: list[str]) -> list[str]:
    """The sentences that end within the first WORDS words."""
    length, kept = 0, []
    for sentence in document:
        length += len(sentence.split())
        if length > WORDS:
            break
        kept.append(sentence)
    return kept


def short(examples: list) -> list[dict]:
    """Rows of the cut articles that have SENTENCES salient sentences or more; the first ones are the summary."""
    rows = []
    for example in examples:
        document = cut(example.document)
        places = [i for i in range(len(document)) if example.salient[i]][:SENTENCES]
        if len(places) == SENTENCES:
            salient = [i in places for i in range(len(document))]
            summary = [document[i] for i in places]
            rows.append({"id": example.id, "document": document, "summary": summary, "salient": salient})
    return rows


@one_line_errors
def main(arguments=None):
    source, folder, *splits = arguments or sys.argv[1:]
    write(Path(folder), **{split: short(load(source, split)) for split in splits})


if __name__ == "__main__":
    main()
