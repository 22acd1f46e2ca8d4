"""Table 4: how long a corpus' documents and summaries are, whatever a model reads of them.

python -m encdec_sentence_sparse.experiments.lengths facebook/bart-large-cnn --data cnn_dailymail --sentences nltk
"""

from collections.abc import Sequence

import numpy as np
import tyro

from shared.data import Example, in_sentences, load
from shared.run import one_line_errors

from ..loading import Run, load_run_or_bart
from ..sentences import punkt_spans


def lengths(run: Run, examples: Sequence[Example]) -> dict[str, float]:
    """N tokens and N1 sentences of a document, M tokens of a summary, means over a corpus; and N/M.

    D28: tokens of the run's tokenizer without `<s>` and `</s>`; nothing is cut, and `</s>` is no sentence here.
    """
    if run.config.sentences == "nltk":
        sentences = [len(punkt_spans(example.source)) for example in examples]
    else:
        sentences = [len(example.document) for example in in_sentences(examples)]
    sources, targets = ([getattr(example, name) for example in examples] for name in ("source", "target"))
    options = dict(add_special_tokens=False, verbose=False)  # verbose: it warns of what a model cannot read
    n, m = (np.mean([len(ids) for ids in run.tokenizer(texts, **options)["input_ids"]]) for texts in (sources, targets))
    return {"N": float(n), "N1": float(np.mean(sentences)), "M": float(m), "N/M": float(n / m)}


def main(run: tyro.conf.Positional[str], data: str, split: str = "train", sentences: str = "given") -> None:
    """Print the row of a corpus; `sentences`, given or nltk, is for a BART: a run has its own rule."""
    row = lengths(load_run_or_bart(run, sentences), load(data, split))
    print(data, ", ".join(f"{name} {value:.1f}" for name, value in row.items()))


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
