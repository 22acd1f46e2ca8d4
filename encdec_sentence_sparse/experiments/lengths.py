"""Table 4: how long a corpus' documents and summaries are, whatever a model reads of them.

python -m encdec_sentence_sparse.experiments.lengths facebook/bart-large-cnn --data cnn_dailymail
"""

from collections.abc import Sequence

import numpy as np
import tyro

from shared.data import Example, in_sentences, load
from shared.run import one_line_errors

from ..loading import Run, load_run_or_bart


def lengths(run: Run, examples: Sequence[Example]) -> dict[str, float]:
    """N tokens and N1 sentences of a document, M tokens of a summary, means over a corpus; and N/M.

    D28: tokens of the run's tokenizer without `<s>` and `</s>`; nothing is cut, and `</s>` is no sentence here.
    """
    options = dict(add_special_tokens=False, verbose=False)  # verbose: it warns of what a model cannot read
    sources, targets = ([getattr(example, name) for example in examples] for name in ("source", "target"))
    n, m = (np.mean([len(ids) for ids in run.tokenizer(texts, **options)["input_ids"]]) for texts in (sources, targets))
    sentences = np.mean([len(example.document) for example in in_sentences(examples)])
    return {"N": float(n), "N1": float(sentences), "M": float(m), "N/M": float(n / m)}


def main(run: tyro.conf.Positional[str], data: str, split: str = "train") -> None:
    """Print the row of a corpus."""
    row = lengths(load_run_or_bart(run), load(data, split))
    print(data, ", ".join(f"{name} {value:.1f}" for name, value in row.items()))


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
