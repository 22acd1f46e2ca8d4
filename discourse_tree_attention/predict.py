"""Extract summaries of plain text with a run, along discourse trees.

python -m discourse_tree_attention.predict runs/tree NEW.txt --tree NEW.dis         # one document and its tree
python -m discourse_tree_attention.predict runs/tree notes.txt --tree trees         # a document per line, trees/ID.dis

A run at sentence level may read no tree. For others `experiments.parse` makes trees, also of .rs3 files.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import tyro
from tqdm import tqdm

from shared.data import Example, check_outputs, in_sentences, read_texts, split_sentences
from shared.timing import find_device

from .decode import extract_all
from .documents import make_document, prepare
from .formats import read_tree
from .loading import Run, load_run
from .model import TREES
from .run import check_fields, one_line_errors, read_flags
from .trees import Node, leaves


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # run folder
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # text, a document per line, or .jsonl; none: standard input
    tree: Path | None = (
        None  # folder of ID.dis; or .dis of the one FILE, a document; or brackets: FILE has an EDU a line
    )
    units: int = 0  # EDUs or sentences of a summary; 0 = as the run was trained for
    out: Path | None = None  # a line per document, or .jsonl with all that is known; none: standard output
    device: str = "cpu"


def predict(run: Run, documents: Iterable[tuple[Example, Node | None, str]]) -> Iterator[dict]:
    """Extract summaries of documents in their order, as they come.

    Args:
        documents: of each its example, its tree (None: the example's own, or none), and the tree's file, for errors.
    Yields:
        of each id, prediction (sentences), and was_cut.
    Raises:
        ValueError: the run reads trees, and a document has none; a tree of another text.
    """
    for example, tree, where in documents:
        if tree is None and example.tree is None and (run.config.level == "edu" or run.config.attention in TREES):
            command = f"python -m {__package__}.experiments.parse FILE --out TREES"
            raise ValueError(f"{example.id} has no discourse tree: make it ({command}), then add --tree TREES")
        if tree is not None and leaves(tree)[0].text is not None:  # brackets have none: the lines are the EDUs
            example = replace(example, edus=[leaf.text for leaf in leaves(tree)], tree=None)
        (example,) = in_sentences([example])
        corpus = prepare([make_document(example, run.config, where, tree)], run.config, run.encoder, cache="")
        (prediction,) = extract_all(run.model, corpus, run.config)
        yield {"id": example.id, "prediction": prediction, "was_cut": corpus.documents[0].was_cut}


def with_trees(examples: Iterable[Example], path: Path | None) -> Iterator[tuple[Example, Node | None, str]]:
    """Each example with its tree; of a tree's file all lines are one document, its EDUs if the tree has no texts."""
    if path is None or path.is_dir():
        for example in examples:
            file = path and path / f"{Path(example.id).name}.dis"
            found = file is not None and file.is_file()
            yield example, read_tree(file) if found else None, str(file if found else example.id)
        return
    tree, lines = read_tree(path), list(examples)
    texts = [line.source for line in lines]
    if not texts:
        raise ValueError(f"there is no text for {path}: the input is empty")
    if leaves(tree)[0].text is None:  # brackets
        yield replace(lines[0], document=split_sentences(" ".join(texts)), edus=texts), tree, str(path)
    else:
        sentences = [sentence for text in texts for sentence in split_sentences(text)]
        yield replace(lines[0], document=sentences, tree=None), tree, str(path)


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.predict", description=__doc__)
    check_fields(options)
    one = options.tree is not None and not options.tree.is_dir()
    if one and len(options.files) > 1:
        raise ValueError(f"--tree {options.tree} is the tree of one document: give one FILE, or a folder of trees")
    trees = options.tree.glob("*.dis") if options.tree and not one else [options.tree or ""]
    check_outputs(options.out, inputs=[*options.files, *trees])
    run = load_run(options.run)
    run = run._replace(config=replace(run.config, units_taken=options.units or run.config.units_taken))
    device, cut = find_device(options.device), 0
    run.model.to(device), run.encoder.to(device)
    rows = predict(run, with_trees(read_texts(options.files), options.tree))
    rows = chain(list(islice(rows, 1)), rows)  # the first input is read before an output is opened
    with open(options.out, "w", encoding="utf-8") if options.out else nullcontext(sys.stdout) as file:
        for row in tqdm(rows, unit="document", disable=not options.out):
            is_json = options.out and options.out.suffix == ".jsonl"
            line = json.dumps(row, ensure_ascii=False) if is_json else " ".join(row["prediction"])
            print(line, file=file, flush=True)
            cut += row["was_cut"]
    if cut:
        print(f"{cut} documents are longer than the model can read and were cut", file=sys.stderr)


if __name__ == "__main__":
    main()
