"""Table 4: how long a corpus' documents and summaries are, whatever a model reads of them.

python -m encdec_sentence_sparse.experiments.lengths facebook/bart-large-cnn cnn_dailymail
"""

from statistics import mean

import tyro

from shared.data import Example, in_sentences, load
from shared.run import one_line_errors

from ..loading import Run, load_run_or_bart


def lengths(run: Run, examples: list[Example]) -> dict[str, float]:
    """N tokens and N1 sentences of a document, M tokens of a summary, and N/M.

    They are means over a training split. D28: tokens of the run's tokenizer without `<s>` and
    `</s>`; nothing is cut, and `</s>` is no sentence here.
    """

    def mean_length(texts: list[str]) -> float:
        return mean(len(ids) - 2 for ids in run.tokenizer(texts, verbose=False)["input_ids"])

    n = mean_length([example.source for example in examples])
    m = mean_length([example.target for example in examples])
    sentences = mean(len(example.document) for example in in_sentences(examples))
    return {"N": n, "N1": sentences, "M": m, "N/M": n / m}


def main(run: str, data: str) -> None:
    """RUN DATA: print a row of Table 4, a corpus in the tokens of a run or a BART."""
    row = lengths(load_run_or_bart(run), load(data))
    print(data, *(f"{name} {value:.1f}" for name, value in row.items()))


if __name__ == "__main__":
    one_line_errors(
        lambda words: tyro.cli(main, args=words, config=[tyro.conf.PositionalRequiredArgs])
    )()
