"""Extract summaries of plain text with a run, along a discourse tree.

python -m discourse_tree_attention.predict runs/tree NEW.txt --tree NEW.dis      # one document and its tree (.rs3 too)
python -m discourse_tree_attention.predict runs/tree notes.txt --out notes.jsonl # a document per line, parsed here

A run at sentence level may read no tree. Others take --tree, the field "tree" of JSON lines, or the parser of parse.py.
"""

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import tyro
from tqdm import tqdm

from shared.data import Example, check_outputs, in_sentences, read_texts, split_sentences
from shared.timing import find_device

from .documents import Document, extract, make_document, prepare, score_documents
from .formats import read_tree, spell
from .model import TREES
from .parse import discourse_parser
from .run import one_line_errors
from .train import Run, TrainConfig, load_run
from .trees import Node, leaves


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # run folder
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # text, a document per line, or .jsonl; none: standard input
    tree: Path | None = None  # .dis or .rs3 of the one FILE, a document; or brackets, and FILE has an EDU a line
    units: int = 0  # EDUs or sentences of a summary; 0 = as the run was trained for
    out: Path | None = None  # a line per document, or .jsonl with all that is known; none: standard output
    device: str = "cpu"


def predict(run: Run, examples: Iterable[Example], tree: Node | None = None, where: str = "") -> Iterator[dict]:
    """Extract summaries of documents in their order, as they come.

    Args:
        tree: of the one document, in any tokenisation; by default that of each example, or the parser's.
        where: file of the tree, for errors.
    Yields:
        of each document id, prediction (sentences as the text spells them), and was_cut.
    """
    with contextlib.ExitStack() as stack:
        parse = None
        for example in examples:
            parsed = tree
            if tree is None and example.tree is None and (run.config.level == "edu" or run.config.attention in TREES):
                parse = parse or stack.enter_context(discourse_parser())
                parsed = parse(example.source, example.id)
            document = new_document(example, run.config, parsed, where or example.id)
            corpus = prepare([document], run.config, run.encoder, cache="")
            (document,), (scores,) = corpus.documents, score_documents(run.model, corpus)
            prediction = extract(document, scores, run.config)
            yield {"id": document.id, "prediction": prediction, "was_cut": document.was_cut}


def new_document(example: Example, config: TrainConfig, tree: Node | None, where: str) -> Document:
    """A document in sentences, its EDUs spelled as its text; ValueError that names the file of another text's tree."""
    if tree is not None and leaves(tree)[0].text is not None:  # brackets have none: the lines are the EDUs
        tree = spell(tree, example.source, where)
        example = replace(example, edus=[leaf.text for leaf in leaves(tree)], tree=None)
    (example,) = in_sentences([example])
    return make_document(example, config, where, tree)


def read_examples(options: Options, tree: Node | None) -> Iterable[Example]:
    """The documents of the files; with a tree, all lines are one document, and its EDUs if the tree has no texts."""
    examples = read_texts(options.files)
    if tree is None:
        return examples
    lines = list(examples)
    if not lines:
        raise ValueError(f"{options.files[0] if options.files else 'standard input'} is empty")
    texts = [line.source for line in lines]
    if leaves(tree)[0].text is None:  # brackets
        return [replace(lines[0], document=split_sentences(" ".join(texts)), edus=texts)]
    return [replace(lines[0], document=[sentence for text in texts for sentence in split_sentences(text)])]


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.predict", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    if options.tree and len(options.files) > 1:
        raise ValueError("--tree is the tree of one document: give one FILE")
    if options.units < 0:
        raise ValueError(f"--units is {options.units}; it must be at least 1, or 0 for the run's own")
    tree = read_tree(options.tree) if options.tree else None
    run = load_run(options.run)
    run = run._replace(config=replace(run.config, units_taken=options.units or run.config.units_taken))
    device = find_device(options.device)
    run.model.to(device), run.encoder.to(device)
    examples = read_examples(options, tree)
    check_outputs(options.out)
    with open(options.out, "w", encoding="utf-8") if options.out else contextlib.nullcontext(sys.stdout) as file:
        rows = predict(run, examples, tree, str(options.tree or ""))
        for row in tqdm(rows, unit="document", disable=not options.out):
            is_json = options.out and options.out.suffix == ".jsonl"
            line = json.dumps(row, ensure_ascii=False) if is_json else " ".join(row["prediction"])
            print(line, file=file, flush=True)
            if row["was_cut"]:
                print(f"{row['id']} is longer than the model can read and was cut", file=sys.stderr)


if __name__ == "__main__":
    main()
