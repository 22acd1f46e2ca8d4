"""Precision and recall behind ROUGE-1, in percent, and words: is a system worse, or does it write less?

python -m encdec_sentence_sparse.experiments.precision PREDICTIONS.jsonl ... > rows.jsonl
python -m shared.score rows.jsonl --metric none --minus kl.approx.r1 --csv precision.csv
"""

import sys

from rouge_score.rouge_scorer import RougeScorer

from shared.data import read_jsonl, write_jsonl


def measured(row: dict, scorer: RougeScorer) -> dict:
    """A line of `evaluate` with three measures more, of its best reference."""
    score = scorer.score_multi([" ".join(reference) for reference in row["references"]], row["prediction"])["rouge1"]
    words = len(row["prediction"].split())
    return row | {"precision": 100 * score.precision, "recall": 100 * score.recall, "words": words}


if __name__ == "__main__":
    scorer = RougeScorer(["rouge1"], use_stemmer=True)
    write_jsonl(sys.stdout, (measured(row, scorer) for path in sys.argv[1:] for row in read_jsonl(path)))
