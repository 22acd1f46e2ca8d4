"""Precision and recall behind ROUGE-1, in percent, and words: is a system worse, or does it write
less?

python -m encdec_sentence_sparse.experiments.precision PREDICTIONS.jsonl ... > rows.jsonl
python -m shared.score rows.jsonl --minus kl.approx.r1 --csv precision.csv
"""

import sys

import tyro

from shared.data import read_jsonl, write_jsonl
from shared.run import one_line_errors


def measured(row: dict) -> dict:
    """A line of `predict` with three measures more, against the reference of the highest
    ROUGE-1.
    """
    from rouge_score.rouge_scorer import RougeScorer

    references = [" ".join(reference) for reference in row["references"]]
    score = RougeScorer(["rouge1"], True).score_multi(references, row["prediction"])["rouge1"]
    own = {
        "precision": 100 * score.precision,
        "recall": 100 * score.recall,
        "words": len(row["prediction"].split()),
    }
    return row | own


def main(files: tuple[str, ...]) -> None:
    """PREDICTIONS.jsonl ...: print their lines, each with its measures."""
    write_jsonl(sys.stdout, (measured(row) for file in files for row in read_jsonl(file)))


if __name__ == "__main__":
    one_line_errors(
        lambda words: tyro.cli(main, args=words, config=[tyro.conf.PositionalRequiredArgs])
    )()
