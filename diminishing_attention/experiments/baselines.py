"""Two systems without a model: the first sentences of each document, and its reference.

python -m diminishing_attention.experiments.baselines --data toy --split test --out runs/outputs
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.data import in_sentences, load
from shared.run import one_line_errors, read_flags
from shared.score import write_outputs

from ..config import Positive
from ..predict import measure


@dataclass
class Options:
    """The command line."""

    data: str  # Anything that shared.data.load takes.
    out: Path  # Folder for lead-3.jsonl and reference.jsonl.
    split: str = "test"  # Split of the data.
    lead: Positive = 3  # Sentences of the lead (Tables 1, 3).
    overwrite: bool = False  # Replace those files.


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    examples = in_sentences(load(options.data, options.split))
    leads = [example.document[: options.lead] for example in examples]
    references = [example.summary for example in examples]
    for system, texts in {f"lead-{options.lead}": leads, "reference": references}.items():
        rows = []
        for example, sentences in zip(examples, texts, strict=True):
            text = "\n".join(sentences)
            row = {"id": example.id, "prediction": text}
            rows.append(row | measure(text, example.document, options.lead))
        out = options.out / f"{system}.jsonl"
        write_outputs(rows, examples, system, out=out, overwrite=options.overwrite)


if __name__ == "__main__":
    main()
