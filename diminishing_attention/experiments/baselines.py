"""Two systems without a model, measured like the others: the first sentences of each document, and its reference.

python -m diminishing_attention.experiments.baselines --data toy --split test --out runs/outputs     # two .jsonl files
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.data import Example, in_sentences, load
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


def outputs(examples: Sequence[Example], texts: Sequence[Sequence[str]], lead: int) -> Iterator[dict]:
    """The texts, a list of sentences each, as `predict` gives outputs."""
    for example, sentences in zip(examples, texts, strict=True):
        text = "\n".join(sentences)
        yield {"id": example.id, "prediction": text} | measure(text, example.document, lead)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    examples = in_sentences(load(options.data, options.split))
    name = f"lead-{options.lead}"
    systems = {name: [e.document[: options.lead] for e in examples], "reference": [e.summary for e in examples]}
    for system, texts in systems.items():
        rows = outputs(examples, texts, options.lead)
        write_outputs(rows, examples, system, out=options.out / f"{system}.jsonl", overwrite=options.overwrite)


if __name__ == "__main__":
    main()
