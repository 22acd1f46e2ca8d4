"""Precision and recall behind ROUGE-1, in percent, and words: is a system worse, or does it write less?

python -m encdec_sentence_sparse.experiments.precision PREDICTIONS.jsonl ... > rows.jsonl
python -m shared.score rows.jsonl --metric none --minus kl.approx.r1 --csv precision.csv
"""

import sys
from collections.abc import Iterable, Iterator

from shared.data import read_jsonl, write_jsonl
from shared.run import one_line_errors


def measured(rows: Iterable[dict]) -> Iterator[dict]:
    """Lines of `predict` with three measures more, against the reference of the highest ROUGE-1."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rouge1"], use_stemmer=True)
    for row in rows:
        references = [" ".join(reference) for reference in row["references"]]
        score = scorer.score_multi(references, row["prediction"])["rouge1"]
        words = len(row["prediction"].split())
        yield row | {"precision": 100 * score.precision, "recall": 100 * score.recall, "words": words}


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    write_jsonl(sys.stdout, measured(row for path in arguments or sys.argv[1:] for row in read_jsonl(path)))


if __name__ == "__main__":
    main()
