"""The data of bbc/run.sh: a short extractive task, near CNN/Daily Mail's, made of BBC's articles.

python -m head_masking.experiments.bbc.data BBC FOLDER SPLIT ...     BBC: a folder of JSON lines with the field salient

An article is cut after the last sentence that ends within its first 250 words. Its summary is its first three salient
sentences; articles with fewer are left out. The held-out test is written by a call of its own, after all choices.
"""

import sys
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from shared.data import load
from shared.run import one_line_errors

from ..samsum.data import write

WORDS, SENTENCES = 250, 3  # of an article, of a summary


def short(examples):
    for example in examples:
        ends = accumulate(len(sentence.split()) for sentence in example.document)
        document = example.document[: sum(end <= WORDS for end in ends)]
        summary = [text for text, is_salient in zip(document, example.salient, strict=False) if is_salient][:SENTENCES]
        if len(summary) == SENTENCES:
            yield replace(example, document=document, references=[summary], pos=None)


@one_line_errors
def main(arguments=None):
    source, folder, *splits = arguments or sys.argv[1:]
    write(Path(folder), **{split: short(load(source, split)) for split in splits})


if __name__ == "__main__":
    main()
