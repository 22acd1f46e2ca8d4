"""Extract summaries of texts or of a data set with a run; with references it ends with a table of scores.

python -m discourse_tree_attention.predict runs/tree NEW.txt --tree NEW.dis    # one document and its tree

python -m discourse_tree_attention.predict runs/tree notes.txt --tree trees    # a document per line, trees/ID.dis

python -m discourse_tree_attention.predict runs/tree --data toy --split test --out tree.jsonl    # Tables 2 and 3

A run at sentence level may read no tree. For others `experiments.parse` makes trees.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import tyro

try:
    from shared.data import Example, in_sentences, read
except ModuleNotFoundError:
    where = "at the top of the import path (beside the outermost package)"
    sys.exit(f"error: the commands need the repository's folder `shared` {where}")
from shared.run import find_device, one_line_errors, read_flags
from shared.score import system_name, write_outputs

from .config import Positive
from .loading import Run, load_run, with_toy_trees
from .model import Summarizer
from .selection import join_units, select
from .text import Document, collate, read_corpus
from .trees import read_text

BATCH = 32  # documents scored at a time
WINDOW = 512  # documents whose units are encoded at a time


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # Run folder.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # Text, a document per line, or .jsonl; none: standard input.
    tree: Path | None = None  # Folder of ID.dis; or the .dis of the one FILE, which then is one document.
    data: str = ""  # In place of files: anything that shared.data.load takes.
    split: str = "test"  # Split of the data.
    limit: Positive | None = None  # First documents only.
    take: Literal["model", "lead", "oracle"] = "model"  # Whose units: the model's, or Lead's or the oracle's (Table 2).
    units: int = 0  # EDUs or sentences of a summary; 0 = as the run was trained for.
    out: Path | None = None  # .jsonl for all that is known of each document, else a line each; none: standard output.
    overwrite: bool = False  # Replace that file.
    system: str = ""  # Name in the table; none: the folder's, without its seed.
    device: str = "cpu"  # Device of torch.


@torch.inference_mode()
def score_documents(model: Summarizer, documents: Sequence[Document]) -> list[np.ndarray]:
    """Score of every unit of every document; the model is put into eval mode."""
    model.eval()
    scores: list[np.ndarray] = []
    for start in range(0, len(documents), BATCH):
        some = documents[start : start + BATCH]
        batch = collate(some, next(model.parameters()).device)
        rows = model(batch.units, batch.keep, batch.matrix).float().cpu().numpy()
        scores += [row[: len(document.units)] for row, document in zip(rows, some, strict=True)]
    return scores


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


def score_all(run: Run, examples: Sequence[Example], **options) -> Iterator[tuple]:
    """Each document with the (N,) scores of its units, in their order, as the work goes; options: see `read_corpus`."""
    for start in range(0, len(examples), WINDOW):
        documents = read_corpus(in_sentences(examples[start : start + WINDOW]), run.config, run.encoder, **options)
        yield from zip(documents, score_documents(run.model, documents), strict=True)


def predict(
    run: Run, examples: Sequence[Example], take: str = "model", measure: Callable | None = None, **options
) -> Iterator[dict]:
    """Extract summaries, in the order of the examples.

    Args:
        measure: (document, scores) -> further numbers of a document; experiments/ have some.
        options: see `read_corpus`, whose errors it raises.
    Yields:
        for each: id, prediction (sentences), [units taken, units], and was_cut.
    """
    for document, scores in score_all(run, examples, **options):
        taken = take_units(document, scores, run.config, take)
        row = {"id": document.id, "prediction": summary(document, taken), "units": [len(taken), len(document.units)]}
        yield row | {"was_cut": document.was_cut} | (measure(document, scores) if measure else {})


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


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    write(*read_command(arguments, __doc__))


def read_command(arguments: Sequence[str] | None, description: str) -> tuple[Run, list[Example], Options]:
    """The run and the documents that a command line names."""
    options = read_flags(Options, arguments, description)
    if description is __doc__ and Path(options.run, "control").exists():
        raise ValueError(f"{options.run} is a control: read it by {__package__}.experiments.controls predict")
    config, model, encoder = load_run(options.run)
    device, config = find_device(options.device), replace(config, units_taken=options.units or config.units_taken)
    examples = with_toy_trees(read(options.files, options.data, options.split, options.limit), options.data)
    examples = with_trees(examples, options.tree) if options.tree else examples
    return Run(config, model.to(device), encoder.to(device)), examples, options


def write(run: Run, examples: Sequence[Example], options: Options, **more) -> None:
    """Extract and write what the command line asks for; `more` goes to `predict`."""
    documents = [example for example in examples if example.document]  # a blank line in is a blank line out
    cache = options.run.parent / ".vectors" if options.data else ""
    rows = predict(run, documents, options.take, cache=cache, **more)
    is_model = options.take == "model"
    system = options.system or (system_name(options.run.name, run.config.seed) if is_model else options.take)
    write_outputs(
        rows, examples, system, run.config.seed if is_model else 0, options.out, options.overwrite,
        line=lambda row: " ".join(row["prediction"]),
    )  # fmt: skip


if __name__ == "__main__":
    main()
