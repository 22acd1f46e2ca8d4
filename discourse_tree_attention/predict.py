"""Extract summaries of texts or of a data set with a run; with references it ends with a table of scores.

python -m discourse_tree_attention.predict runs/tree NEW.txt --tree NEW.dis    # one document and its tree

python -m discourse_tree_attention.predict runs/tree notes.txt --tree trees    # a document per line, trees/ID.dis

python -m discourse_tree_attention.predict runs/tree --data toy --split test --out tree.jsonl    # Tables 2 and 3

A run at sentence level may read no tree. For others `experiments.parse` makes trees. Column `units`: % taken.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from shared.data import Example, in_sentences
from shared.run import DecodingFlags, find_device, in_windows, one_line_errors, read_flags
from shared.score import system_name, write_outputs

from .loading import Run, load_run, with_toy_trees
from .selection import join_units, select
from .text import Document
from .trees import read_text


@dataclass
class Options(DecodingFlags):
    """The command line."""

    tree: Path | None = None  # Folder of ID.dis; or the .dis of the one FILE, which then is one document.
    take: Literal["model", "lead", "oracle"] = "model"  # Whose units: the model's, or Lead's or the oracle's (Table 2).
    units: int = 0  # EDUs or sentences of a summary; 0 = as the run was trained for.

    def examples(self, run: Run) -> list[Example]:
        """The documents with their trees."""
        own = self.data or (run.config.data if self.split else "")
        examples = with_toy_trees(self.read(run.config.data), own)
        return with_trees(examples, self.tree) if self.tree else examples


@torch.inference_mode()
def score_batch(run: Run, documents: Sequence[Document]) -> list[np.ndarray]:
    """Score of every unit of each document of a batch; the model is put into eval mode."""
    run.model.eval()
    batch = run.collate(documents)
    rows = run.model(batch.units, batch.keep, batch.matrix).float().cpu().numpy()
    return [row[: len(document.units)] for row, document in zip(rows, documents, strict=True)]


def units(document: Document) -> int:
    """What batches are sorted by."""
    return len(document.units)


def score_all(run: Run, examples: Sequence[Example], batch_size: int = 32) -> Iterator[tuple]:
    """Each document with the (N,) scores of its units, in their order, as the work goes."""
    return in_windows(examples, run.encode, units, partial(score_batch, run), batch_size)


def score_documents(run: Run, documents: Sequence[Document]) -> list[np.ndarray]:
    """The (N,) scores of each of some documents that are encoded already."""
    return [scores for _, scores in in_windows(documents, list, units, partial(score_batch, run), 32)]


def extract(document: Document, scores: np.ndarray, config) -> list[int]:
    """The units that the summary takes by their (N,) scores, in order; `config` is a `TrainConfig`."""
    lengths = [len(unit.split()) for unit in document.units]
    return select(scores, document.required, config.count, lengths, config.max_words)


def summary(document: Document, taken: Sequence[int]) -> list[str]:
    """The sentences of an extract."""
    return join_units(document.units, document.sentence, taken)


def take_units(document: Document, scores: np.ndarray, config, take: str = "model") -> list[int]:
    """The model's units; or, of Tables 2 and 3, Lead's, the first ones, or the oracle's (Lead's, where it has none)."""
    lead = list(range(min(config.count, len(document.units))))
    if take == "model":
        return extract(document, scores, config)
    return lead if take == "lead" else np.flatnonzero(document.labels).tolist() or lead


def row(run: Run, document: Document, scores: np.ndarray, take: str = "model") -> dict:
    """A line of output: id, prediction (sentences), [units taken, units], and was_cut."""
    taken = take_units(document, scores, run.config, take)
    line = {"id": document.id, "prediction": summary(document, taken), "units": [len(taken), len(document.units)]}
    return line | {"was_cut": document.was_cut}


def predict(run: Run, examples: Sequence[Example], take: str = "model", batch_size: int = 32) -> Iterator[dict]:
    """Extract summaries, and yield a `row` of each example in their order; for errors see `text.make_document`."""
    for document, scores in score_all(run, examples, batch_size):
        yield row(run, document, scores, take)


def with_trees(examples: Sequence[Example], path: Path) -> list[Example]:
    """The examples with the trees of a folder, ID.dis; or, of the .dis of one document, all lines as that document."""
    if not path.is_dir():
        if not examples:
            raise ValueError(f"{path} is the tree of one document, and there is no text")
        sentences = [sentence for line in in_sentences(examples) for sentence in line.document]
        return [replace(examples[0], id=path.stem, document=sentences, tree=read_text(path))]
    files = [path / f"{Path(example.id).name}.dis" for example in examples]
    pairs = zip(examples, files, strict=True)
    return [replace(one, tree=read_text(file)) if file.is_file() else one for one, file in pairs]


def set_up(run: Run, options: Options) -> Run:
    """The run on its device, with the summary's length that the command line asks for."""
    run.model.to(find_device(options.device))
    return run._replace(config=replace(run.config, units_taken=options.units or run.config.units_taken))


def write(rows: Iterable[dict], examples: Sequence[Example], run: Run, options: Options) -> None:
    """Write the rows of the examples that are no blank line."""
    is_model = options.take == "model"
    system = options.system or (system_name(options.run.name, run.config.seed) if is_model else options.take)
    # D22: with references a table, whose intervals and tests are shared.score's.
    write_outputs(rows, examples, system, run.config.seed if is_model else 0, options.out, options.overwrite)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run = set_up(load_run(options.run), options)
    examples = options.examples(run)
    documents = [example for example in examples if example.document]  # a blank line in is a blank line out
    write(predict(run, documents, options.take, options.batch_size), examples, run, options)


if __name__ == "__main__":
    main()
