"""Extract summaries of plain text with a run, along discourse trees.

python -m discourse_tree_attention.predict runs/tree NEW.txt --tree NEW.dis    # one document and its tree

python -m discourse_tree_attention.predict runs/tree notes.txt --tree trees    # a document per line, trees/ID.dis

A run at sentence level may read no tree. For others `experiments.parse` makes trees.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

try:
    from shared.data import Example, in_sentences, open_output, read_texts, split_sentences
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared.run import one_line_errors, read_flags
from shared.timing import find_device

from .decode import extract_all, score_documents
from .documents import make_document, prepare
from .formats import read_text
from .loading import Run, load_run
from .model import TREES


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # Run folder.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # Text, a document per line, or .jsonl; none: standard input.
    tree: Path | None = None  # Folder of ID.dis; or the .dis of the one FILE, which then is one document.
    units: int = 0  # EDUs or sentences of a summary; 0 = as the run was trained for.
    out: Path | None = None  # File for a line per document, or .jsonl with all that is known; none: standard output.
    overwrite: bool = False  # Replace that file.
    device: str = "cpu"  # Device of torch to compute on.


def predict(run: Run, examples: Sequence[Example], path: Path | None = None) -> Iterator[dict]:
    """Extract summaries: of each document its id, prediction (sentences), and was_cut.

    Args:
        path: a folder of ID.dis, or the tree of the one document that all examples are; None: their own trees.
    Raises:
        ValueError: the run reads trees, and a document has none; a tree of another text.
    """
    documents = []
    for example, where in with_trees(examples, path):
        if example.tree is None and (run.config.level == "edu" or run.config.attention in TREES):
            command = f"python -m {__package__}.experiments.parse FILE --out TREES"
            raise ValueError(f"{example.id} has no discourse tree: make it ({command}), then add --tree TREES")
        documents.append(make_document(*in_sentences([example]), run.config, where))
    corpus = prepare(documents, run.config, run.encoder)
    texts = extract_all(corpus.documents, score_documents(run.model, corpus), run.config)
    for document, text in zip(corpus.documents, texts, strict=True):
        yield {"id": document.id, "prediction": text, "was_cut": document.was_cut}


def with_trees(examples: Sequence[Example], path: Path | None) -> list[tuple[Example, str]]:
    """Each example with its tree, and where that is from; of a tree's own file all lines are one document."""
    if path is None:
        return [(example, example.id) for example in examples]
    files = [path / f"{Path(example.id).name}.dis" for example in examples]
    if not path.is_dir():
        sentences = [sentence for line in examples for sentence in split_sentences(line.source)]
        examples, files = [replace(example, document=sentences) for example in examples[:1]], [path]
    pairs = zip(examples, files, strict=True)
    return [(replace(one, tree=read_text(file)), str(file)) if file.is_file() else (one, one.id) for one, file in pairs]


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    if options.tree and not options.tree.is_dir() and len(options.files) > 1:
        raise ValueError(f"--tree {options.tree} is the tree of one document: give one FILE, or a folder of trees")
    run = load_run(options.run)
    run = run._replace(config=replace(run.config, units_taken=options.units or run.config.units_taken))
    device, cut = find_device(options.device), 0
    run.model.to(device), run.encoder.to(device)
    examples = read_texts(options.files)
    with open_output(options.out, options.overwrite) as file:
        for row in predict(run, examples, options.tree):
            is_json = options.out and options.out.suffix == ".jsonl"
            print(json.dumps(row, ensure_ascii=False) if is_json else " ".join(row["prediction"]), file=file)
            cut += row["was_cut"]
    if cut:
        print(f"{cut} documents are longer than the model can read and were cut", file=sys.stderr)


if __name__ == "__main__":
    main()
