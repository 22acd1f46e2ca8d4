"""Three dialogues joined to one: sources and summaries nearer to the lengths of the paper's corpus.

python -m diminishing_attention.experiments.samsum.join < train.jsonl > joined.jsonl

Each follows the one before it in the file; a last group of fewer than three is left out.
"""

import sys

from shared.data import read_jsonl, write_jsonl
from shared.run import one_line_errors


def join(rows: list[dict], size: int = 3) -> list[dict]:
    """Every `size` rows as one: their turns, and the sentences of their summaries, in order."""
    joined = []
    for first in range(0, len(rows) - size + 1, size):
        group = rows[first : first + size]
        document = [turn for row in group for turn in row["document"]]
        summary = [sentence for row in group for sentence in row["summary"]]
        name = "+".join(str(row["id"]) for row in group)
        joined.append({"id": name, "document": document, "summary": summary})
    return joined


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    write_jsonl(sys.stdout, join(read_jsonl("-")))


if __name__ == "__main__":
    main()
