"""Extract summaries of texts or of a data set with a run; with references it ends with a table of
scores.

python -m discourse_tree_attention.predict runs/tree NEW.txt --tree NEW.dis    # one document and
    its tree

python -m discourse_tree_attention.predict runs/tree notes.txt --tree trees    # a document per
    line, trees/ID.dis

python -m discourse_tree_attention.predict runs/tree --data toy --split test --out tree.jsonl    #
    Tables 2 and 3

A run at sentence level may read no tree. For others `experiments.parse` makes trees. Column
`units`: % taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from shared.data import Example, in_sentences
from shared.run import DecodingFlags, find_device, in_windows, one_line_errors, read_flags
from shared.score import system_name, write_outputs

from .loading import Run, load_run, with_toy_trees
from .selection import join_units
from .text import check_words
from .trees import read_text


@dataclass
class Options(DecodingFlags):
    """The command line."""

    # Folder of ID.dis; or the .dis of the one FILE, which then is one document.
    tree: Path | None = None
    # Whose units: the model's, or Lead's or the oracle's (Table 2).
    take: Literal["model", "lead", "oracle"] = "model"
    units: int = 0  # EDUs or sentences of a summary; 0 = as the run was trained for.


def predict(
    run: Run, examples: Sequence[Example], take: str = "model", batch_size: int = 32
) -> Iterator[dict]:
    """Extract summaries: of each example, in their order, id, prediction (sentences), [units taken,
    units], was_cut.

    `take` is as in `Options`; where the oracle takes no unit, Lead's stand. For errors see
    `text.units_of`.
    """
    if take == "oracle":
        check_words(examples)
    for document, scores in in_windows(examples, run.encode, len, run.scores, batch_size):
        lead = list(range(min(run.config.count, len(document))))
        oracle = np.flatnonzero(document.labels).tolist() or lead
        if take == "oracle" and not document.references:
            raise ValueError(
                f"{document.id} has no reference, which the oracle needs: leave out --take"
            )
        taken = {"model": run.extract(document, scores), "lead": lead, "oracle": oracle}[take]
        row = {
            "id": document.id,
            "prediction": join_units(document.units, document.sentence, taken),
        }
        yield row | {"units": [len(taken), len(document)], "was_cut": document.was_cut}


def with_trees(examples: Sequence[Example], path: Path) -> list[Example]:
    """The examples with the trees of a folder, ID.dis; or, of the .dis of one document, all lines
    as that document.
    """
    if not path.is_dir():
        sentences = [sentence for line in in_sentences(examples) for sentence in line.document]
        if not sentences:
            raise ValueError(f"{path} is the tree of one document, and there is no text")
        return [replace(examples[0], id=path.stem, document=sentences, tree=read_text(path))]
    files = [path / f"{Path(example.id).name}.dis" for example in examples]
    pairs = zip(examples, files, strict=True)
    return [replace(one, tree=read_text(file)) if file.is_file() else one for one, file in pairs]


def answer(run: Run, options: Options) -> None:
    """What the command does with a run that has been loaded."""
    run.model.to(find_device(options.device))
    name = options.data or (run.config.data if options.split else "")
    examples = with_toy_trees(options.read(run.config.data), name)
    if options.tree:
        examples = with_trees(examples, options.tree)
    # a blank line in is a blank line out
    documents = [example for example in examples if example.document]
    run = run._replace(
        config=replace(run.config, units_taken=options.units or run.config.units_taken)
    )
    rows, is_model = (
        predict(run, documents, options.take, options.batch_size),
        options.take == "model",
    )
    system = options.system or (
        system_name(options.run.name, run.config.seed) if is_model else options.take
    )
    # D22: with references a table, whose intervals and tests are shared.score's.
    write_outputs(
        rows, examples, system, run.config.seed if is_model else 0, options.out, options.overwrite
    )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    answer(load_run(options.run), options)


if __name__ == "__main__":
    main()
