"""Data: one way in for all five packages, `load(name_or_path, split)`, a list of `Example`.

`load` never truncates. All text has single blanks and Unicode's composed form, NFC. In a text given
as one string a line break ends a sentence; only `in_sentences` splits its lines further. A list
is a list of sentences.
"""

import contextlib
import csv
import dataclasses
import functools
import gzip
import json
import os
import sys
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, NoReturn, TextIO

from . import toy

VALIDATION = ("validation", "valid", "val", "dev")  # names of that split
HUB = {  # name: (hub id, configuration, source field, target field), as published on huggingface.co
    "cnn_dailymail": ("abisee/cnn_dailymail", "3.0.0", "article", "highlights"),
    "xsum": ("EdinburghNLP/xsum", None, "document", "summary"),
    "samsum": ("knkarthick/samsum", None, "dialogue", "summary"),
    "arxiv": ("ccdv/arxiv-summarization", "document", "article", "abstract"),
    "wmt14-en-de": ("wmt/wmt14", "de-en", "en", "de"),
}
# The names of a field in a row, those of SciTLDR and GUM among them; the first one there counts.
FIELDS = {
    "document": ("document", "source", "sentences"),
    "summary": ("summary", "target"),
    "salient": ("salient", "source_labels"),
}
# A string of more words in which no sentence ends, or with a longer word, is no sentence.
MOST_WORDS, MOST_LETTERS = 60, 200


@dataclasses.dataclass(frozen=True)
class Example:
    """A document with its summary, or a sentence with its translation.

    It has N sentences, whose words `str.split()` gives.
    """

    id: str  # unique in its split
    # (N,) sentences, or one whole string where the data is not split into sentences
    document: list[str]
    summary: list[str]  # sentences of the first reference; empty where there is none
    references: list[list[str]]  # all references; the first is `summary`
    tree: str | None = None  # an RST tree over the document, as the text of a .dis file
    pos: list[list[str]] | None = None  # (N, words) Penn part-of-speech tags
    salient: list[bool] | None = None  # (N,) True = the summary takes this sentence
    title: str | None = None
    # True = the document came as one string: its sentences are that string's lines
    is_string: bool = False

    @property
    def source(self) -> str:
        """The document as one string."""
        return " ".join(self.document)

    @property
    def target(self) -> str:
        """The first reference as one string."""
        return " ".join(self.summary)


def load(
    name_or_path: str | os.PathLike, split: str = "train", limit: int | None = None
) -> list[Example]:
    """Load one split of a data set; README.md shows each kind.

    Args:
        name_or_path: a name wins over a file or folder of that name (write `./toy` for a folder
            called toy).
        split: `train`, `validation` (or `valid`, `val`, `dev`), `test`, or the stem of a file in
            the folder.
        limit: read only so many examples.
    Raises:
        ValueError: unknown name, split or knob; broken data (names file, line and field); hub data
            out of reach.
    """
    name = os.fspath(name_or_path)
    known = "validation" if split in VALIDATION else split
    folder, _, pair = name.rpartition(":")
    if name.partition(":")[0] == "toy":
        rows = ((row["id"], row) for row in toy.generate(known, toy.read_knobs(name[4:])))
    elif name in HUB:
        rows = _hub(name, known)
    elif folder and "-" in pair and Path(folder).is_dir():
        rows = _folder(Path(folder), split, [f".{language}" for language in pair.split("-", 1)])
    elif Path(name).is_dir():
        rows = _folder(Path(name), split, [".jsonl"])
    elif Path(name).is_file():
        rows = _rows(Path(name))
    else:
        raise ValueError(f"no file or folder {name!r}; known names are toy, {', '.join(HUB)}")
    examples = _collect(rows, limit)
    if not examples:
        raise ValueError(f"{name}: split {split!r} is empty")
    return examples


def read(
    files: Sequence, data: str = "", split: str = "test", limit: int | None = None
) -> list[Example]:
    """What `predict` reads: a split of a data set; or files: JSON lines, or a text on each line.

    A blank line is an example whose document is []: a blank line in is a blank line out. Without a
    field `id` documents are called notes-1, notes-2, after their file. No file, or "-", is standard
    input, whose documents are texts, called stdin-1 and so on.

    Raises:
        ValueError: files and data; broken data, with file, line and field. OSError: no such file.
    """
    if files and data:
        raise ValueError("give files, or --data or --split, not both")
    if data:
        return load(data, split, limit)
    paths = [Path(file) for file in files or ["-"]]
    for path in paths:
        if path.is_dir():
            raise ValueError(f"{path} is a folder: give a file, or --data {path}")
    return _collect(chain.from_iterable(map(_rows, paths)), limit, needs_reference=False)


def _collect(
    rows: Iterable[tuple[str, dict]], limit: int | None, needs_reference: bool = True
) -> list[Example]:
    """The examples of (where it came from, row)."""
    examples: dict[str, Example] = {}
    for where, row in islice(rows, limit):
        example = _example(row, where, needs_reference)
        if example.id in examples:
            raise ValueError(
                f"{where}: the id {example.id!r} comes twice, and outputs are matched by it: give "
                f"another in the field 'id', or rename the file"
            )
        examples[example.id] = example
    return list(examples.values())


# Kinds of data: each gives the rows of a split, with where they came from.


def _hub(name: str, split: str) -> Iterator[tuple[str, dict]]:
    """A hub data set. What is published without text is left out."""
    hub_id, config, source, target = HUB[name]
    # XSum is a script, which `datasets` no longer runs; another revision holds it as files.
    options = {"revision": "refs/convert/parquet"} if name == "xsum" else {}
    try:
        import datasets

        rows = datasets.load_dataset(hub_id, config, split=split, **options)
    except Exception as error:  # the hub, its client and the cache raise a dozen unrelated types
        call = f"datasets.load_dataset({hub_id!r}, {config!r}, **{options})"
        command = f'pip install datasets; HF_HUB_OFFLINE=0 python -c "import datasets; {call}"'
        raise ValueError(
            f"{name}: no {split!r} split here or in reach ({error}). To get it: {command}"
        ) from error
    for number, row in enumerate(rows):
        texts = row.get("translation", row)
        # SAMSum has a None.
        pair = {"document": texts[source] or "", "summary": texts[target] or ""}
        if all(map(str.strip, pair.values())):
            yield f"{name}:{number}", {"id": f"{split}-{number}"} | pair


def _folder(folder: Path, split: str, ends: list[str]) -> Iterator[tuple[str, dict]]:
    """A split of a folder of JSON lines, or of parallel text: train.en and train.de.

    Without a validation file every twentieth line of `train` takes its place.
    """
    is_validation = split in VALIDATION
    shares_train = (is_validation or split == "train") and not _find(folder, "validation", ends[0])
    if shares_train and is_validation:
        print(
            f"{folder} has no validation{ends[0]}: every twentieth line of train takes its place",
            file=sys.stderr,
        )
    file_split = "train" if shares_train else split
    files = [_find(folder, file_split, end) for end in ends]
    if None in files:
        lacking = file_split + ends[files.index(None)]
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:9])
        raise ValueError(f"{folder} has no {lacking}; it has {there}: choose another --split")
    rows = _rows(*files) if len(files) == 1 else _parallel(*files)
    for number, row in enumerate(rows):
        if not shares_train or (number % 20 == 19) == is_validation:
            yield row


def _find(folder: Path, split: str, end: str) -> Path | None:
    """The file of a split, such as train.jsonl or dev.en.gz."""
    for name in (split, *VALIDATION) if split in VALIDATION else (split,):
        for packed in ("", ".gz"):
            path = folder / f"{name}{end}{packed}"
            if path.is_file():
                return path
    return None


def _parallel(one: Path, other: Path) -> Iterator[tuple[str, dict]]:
    """Pairs of the lines of two files."""
    lines = zip_longest(_lines(one), _lines(other), fillvalue="")
    for number, pair in enumerate(lines, start=1):
        where = f"{one}:{number}"
        source, target = (" ".join(text.split()) for text in pair)  # U+2028 ends no sentence here
        if not source or not target:
            raise ValueError(f"{where}: this line or that of {other} is empty or missing")
        yield where, {"id": f"{_stem(one)}-{number}", "document": source, "summary": target}


def _rows(path: Path) -> Iterator[tuple[str, dict]]:
    """Of JSON lines (FILE.jsonl, plain or .gz) each object, of another file each line as a text.

    FILE/ID.dis beside FILE.jsonl is a row's tree.
    """
    is_json = ".json" in path.name.lower()
    stem = "stdin" if path.name == "-" else _stem(path)
    trees = {file.stem: file for file in path.with_name(stem).glob("*.dis")}
    for number, line in enumerate(_lines(path), start=1):
        if is_json and not line.strip():
            continue
        where = f"{path}:{number}"
        row = _object(line, where) if is_json else {"document": line.strip()}
        row = {"id": row.get("paper_id", f"{stem}-{number}")} | row  # paper_id is SciTLDR's
        if file := trees.get(str(row["id"])):
            row = {"tree": "".join(_lines(file))} | row
        yield where, row


def _stem(path: Path) -> str:
    """A file's name without its ending: test of test.jsonl.gz."""
    return Path(path.name.removesuffix(".gz")).stem


def _lines(path: str | os.PathLike) -> Iterator[str]:
    """Lines of a UTF-8 file, plain or .gz, or of standard input ("-").

    Only a line feed ends a line, not U+2028.
    """
    name = os.fspath(path)
    settings = {"encoding": "utf-8-sig", "newline": "\n"}
    try:
        if name == "-":
            if sys.stdin is None:
                raise ValueError("there is no standard input: give files")
            file = contextlib.nullcontext(sys.stdin)
            if hasattr(sys.stdin, "reconfigure"):
                sys.stdin.reconfigure(**settings)
        else:
            file = (gzip.open if name.endswith(".gz") else open)(name, "rt", **settings)
        with file as lines:
            yield from lines
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{name}: not UTF-8 (iconv makes it that), or no whole .gz: {error}"
        ) from None


def _object(line: str, where: str) -> dict:
    """One line of JSON lines."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{where}: malformed JSON ({error}); put one object on each line"
        ) from None
    if not isinstance(row, dict):
        raise ValueError(f"{where}: a line must be one JSON object, got {type(row).__name__}")
    return row


# From a row to an example.


def _example(row: dict, where: str, needs_reference: bool) -> Example:
    """Check a row of any kind and make it an Example; ValueError that begins with `where`."""
    # The fields as this row calls them.
    document, summary, labels = (
        next((name for name in known if name in row), "") for known in FIELDS.values()
    )
    if row.get(document) == "" and not needs_reference:  # a blank line
        return Example(str(row["id"]), [], [], [])
    if not document or needs_reference and not (summary or row.get("references")):
        own = ", ".join(name for name in row if name not in ("id", "tree"))
        raise ValueError(
            f"{where}: needs fields document and summary (or source and target), has {own}"
        )
    sentences = _sentences(row[document], document, where)
    references = _references(row, summary, where, needs_reference)
    salient = _labels(row, labels, sentences, where)
    if salient and not set(map(type, salient)) <= {bool, int}:
        _refuse(where, labels, "true or false for each sentence", salient)
    tags = _labels(row, "pos", sentences, where)
    pos = tags and [one.split() if isinstance(one, str) else one for one in tags]
    for sentence, own in zip(sentences, pos or [], strict=False):
        if not isinstance(own, list) or len(own) != len(sentence.split()):
            _refuse(where, "pos", f"a tag for each word of {sentence!r}", own)
    for field in ("title", "tree"):
        if not isinstance(row.get(field), str | None):
            _refuse(where, field, "a string", row[field])
    # Sentences without a word go, with their labels.
    kept = [place for place, sentence in enumerate(sentences) if sentence]
    return Example(
        id=str(row["id"]),
        document=[sentences[place] for place in kept],
        summary=references[0] if references else [],
        references=references,
        tree=row.get("tree") and unicodedata.normalize("NFC", row["tree"]),
        pos=pos and [pos[place] for place in kept],
        salient=salient and [bool(salient[place]) for place in kept],
        title=row.get("title"),
        is_string=isinstance(row[document], str),
    )


def _references(row: dict, summary: str, where: str, needs_reference: bool) -> list[list[str]]:
    """The references of a row, each a list of sentences; the first one is the summary."""
    field = "references" if row.get("references") else summary
    texts = row.get(field)
    if not texts and not needs_reference:
        return []
    # SciTLDR's `target` lists references of one string each; a field of its own tells it.
    are_several = field == "references" or "source_labels" in row
    if not isinstance(texts, list) or not are_several:
        texts = [texts]
    return [list(filter(None, _sentences(text, field, where))) for text in texts]


def _sentences(value: Any, field: str, where: str) -> list[str]:
    """The lines of a string, or a list of strings; refused when there is no word in it."""
    texts = value.splitlines() if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        _refuse(where, field, "a string or a list of strings", value)
    texts = [unicodedata.normalize("NFC", " ".join(text.split())) for text in texts]
    if not any(texts):
        raise ValueError(f"{where}: field {field!r} is empty; give it text or remove the line")
    return list(filter(None, texts)) if isinstance(value, str) else texts


def _labels(row: dict, field: str, sentences: list[str], where: str) -> list | None:
    """The labels of a row, one for each sentence; None where it has none."""
    labels = row.get(field)
    if labels is not None and (not isinstance(labels, list) or len(labels) != len(sentences)):
        _refuse(where, field, f"a list of {len(sentences)} labels", labels)
    return labels


def _refuse(where: str, field: str, wanted: str, value: Any) -> NoReturn:
    raise ValueError(f"{where}: field {field!r} needs {wanted}, got {str(value)[:60]}")


# Sentences.


@functools.cache
def punkt(trained: bool):
    """NLTK's PunktSentenceTokenizer: with its English parameters where they are here and `trained`.

    Without them it has learned nothing: "Mr." ends a sentence.
    """
    from nltk.tokenize import punkt  # half a second, paid only by who splits

    if trained:
        with contextlib.suppress(LookupError):
            return punkt.PunktTokenizer("english")
    return punkt.PunktSentenceTokenizer()


def split_sentences(text: str, trained: bool = False) -> list[str]:
    """The sentences of a text: its lines, each split by NLTK's Punkt."""
    lines = [line.strip() for line in text.splitlines()]
    return [sentence for line in lines for sentence in punkt(trained).tokenize(line)]


def in_sentences(examples: Iterable[Example]) -> list[Example]:
    """The examples with every document that came as one string split.

    One with labels for each sentence stays. Punkt uses its English parameters where they are.

    Raises:
        ValueError: a document in which no sentence ends, or one in a script without blanks.
    """
    split = []
    for example in examples:
        document = example.document
        if example.is_string and not (example.pos or example.salient):
            document = split_sentences("\n".join(document), trained=True)
            words = example.source.split()
            is_one = len(document) == 1 and len(words) > MOST_WORDS
            if is_one or any(len(word) >= MOST_LETTERS for word in words):
                raise ValueError(
                    f"document {example.id}: no end of a sentence is found in "
                    f"{example.source[:40]!r}...: give a list of sentences"
                )
        split.append(dataclasses.replace(example, document=document))
    return split


# Outputs.


@contextlib.contextmanager
def open_output(path: Path | None, overwrite: bool = False) -> Iterator[TextIO]:
    """Yield a new text file, or standard output for None.

    Until the end it is called PATH.unfinished; what fails leaves that.

    Raises:
        ValueError: the file exists (unless to `overwrite`), or is called .gz.
    """
    if path is None:
        yield sys.stdout
        return
    if path.exists() and not (overwrite and path.is_file()):
        raise ValueError(f"{path} exists: choose another name, or --overwrite a file")
    if path.suffix == ".gz":
        raise ValueError(f"{path}: outputs are not packed: leave out .gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        yield file
    unfinished.replace(path)


def write_jsonl(file: TextIO, rows: Iterable[dict]) -> None:
    """Write JSON lines to an open file, each as it comes."""
    for row in rows:
        print(json.dumps(row, ensure_ascii=False, allow_nan=False), file=file, flush=True)


def read_jsonl(path: str | os.PathLike) -> list[dict]:
    """Objects of a JSON lines file, blank lines skipped; ValueError that names file and line."""
    numbered = enumerate(_lines(path), start=1)
    return [_object(line, f"{path}:{number}") for number, line in numbered if line.strip()]


def write_csv(file: TextIO, rows: Iterable[dict]) -> None:
    """Write rows to an open file; {"p": {"low": 0, "high": 1}} gives columns p_low and p_high."""
    table = []
    for row in rows:
        cells = {}
        for name, value in row.items():
            parts = value if isinstance(value, dict) else {"": value}
            for part, number in parts.items():
                cell = f"{number:.6g}" if isinstance(number, float) else number
                cells[f"{name}_{part}" if part else name] = cell
        table.append(cells)
    columns = list(dict.fromkeys(name for cells in table for name in cells))
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
