"""Extract summaries of texts or of a data set with a run; references: ends with a table of scores.

python -m discourse_tree_attention.predict runs/tree NEW.txt --tree NEW.dis  # one document
python -m discourse_tree_attention.predict runs/tree notes.txt --tree trees  # a document per line
python -m discourse_tree_attention.predict runs/tree --data toy --split test --out tree.jsonl

With --tree trees the tree of a document is trees/ID.dis; `experiments.parse` makes trees. A run at
sentence level may read none. Column `units`: % taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from shared.data import Example, in_sentences, read
from shared.rouge import Words
from shared.run import find_device, one_line_errors, read_flags
from shared.score import system_name, write_outputs

from .config import Positive
from .loading import Run, load_run, with_toy_trees
from .selection import join_units
from .text import check_words
from .trees import read_text

WINDOW = 512  # documents that are sorted by length, so that a batch has hardly any padding


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # Run folder.
    # Text, a document a line, or .jsonl; none: standard input.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    data: str = ""  # In place of files: anything that shared.data.load takes.
    # Split of the data (none: test); without --data, of the data that the run was trained on.
    split: str = ""
    limit: Positive | None = None  # First documents only.
    # Folder of ID.dis; or the .dis of the one FILE, which then is one document.
    tree: Path | None = None
    # .jsonl for all that is known of each document, else a line each; none: standard output.
    out: Path | None = None
    overwrite: bool = False  # Replace that file.
    system: str = ""  # Name in the table; none: the folder's, without its seed.
    batch_size: Positive = 32  # Documents scored at a time; outputs do not depend on it.
    device: str = "cpu"  # Device of torch.
    # Whose units: the model's, or Lead's or the oracle's (Table 2).
    take: Literal["model", "lead", "oracle"] = "model"
    units: int = 0  # EDUs or sentences of a summary; 0 = as the run was trained for.
    words: Words = "rouge-score"  # Of ROUGE: English, or those of any script.


def predict(
    run: Run, examples: Sequence[Example], take: str = "model", batch_size: int = 32
) -> Iterator[dict]:
    """Extract summaries, in the order of the examples.

    A row has id, prediction (sentences), [units taken, units], was_cut.

    `take` is as in `Options`; where the oracle takes no unit, Lead's stand. For errors see
    `text.units_of`.
    """
    if take == "oracle":
        check_words(examples)
    for start in range(0, len(examples), WINDOW):
        documents = run.encode(examples[start : start + WINDOW])
        scores = run.scores(documents, batch_size)
        for document, row in zip(documents, scores, strict=True):
            lead = list(range(min(run.config.count, len(document))))
            if take == "oracle" and not document.references:
                raise ValueError(
                    f"{document.id} has no reference, which the oracle needs: leave out --take"
                )
            oracle = np.flatnonzero(document.labels).tolist() or lead
            taken = {"model": run.extract(document, row), "lead": lead, "oracle": oracle}[take]
            yield {
                "id": document.id,
                "prediction": join_units(document.units, document.sentence, taken),
                "units": [len(taken), len(document)],
                "was_cut": document.was_cut,
            }


def with_trees(examples: Sequence[Example], path: Path) -> list[Example]:
    """The examples with the trees of a folder, ID.dis.

    Of a file, the tree of one document, all lines are that document.
    """
    if not path.is_dir():
        sentences = [sentence for line in in_sentences(examples) for sentence in line.document]
        if not sentences:
            raise ValueError(f"{path} is the tree of one document, and there is no text")
        return [replace(examples[0], id=path.stem, document=sentences, tree=read_text(path))]
    examples = list(examples)
    for place, example in enumerate(examples):
        file = path / f"{Path(example.id).name}.dis"
        if file.is_file():
            examples[place] = replace(example, tree=read_text(file))
    return examples


def answer(run: Run, options: Options) -> None:
    """What the command does with a run that has been loaded."""
    data = options.data or (run.config.data if options.split else "")
    examples = read(options.files, data, options.split or "test", options.limit)
    examples = with_toy_trees(examples, data)
    if options.tree:
        examples = with_trees(examples, options.tree)
    units_taken = options.units or run.config.units_taken
    run = run._replace(config=replace(run.config, units_taken=units_taken))
    run.model.to(find_device(options.device))  # the encoder follows: `Run.encode`
    documents = [example for example in examples if example.document]  # a blank line stays one
    system = system_name(options.run.name, run.config.seed)
    seed = run.config.seed
    if options.take != "model":  # Lead and the oracle are no model's
        system = options.take
        seed = 0
    # D22: with references a table, whose intervals and tests are shared.score's.
    write_outputs(
        predict(run, documents, options.take, options.batch_size),
        examples,
        system=options.system or system,
        seed=seed,
        out=options.out,
        overwrite=options.overwrite,
        words=options.words,
    )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    answer(load_run(options.run), options)


if __name__ == "__main__":
    main()
