"""Data: one way in for all five packages, `load(name_or_path, split)`, which gives a list of
`Example`.

`load` never truncates. Of a text that comes as one string a line break ends a sentence, whichever
way it comes; only `in_sentences` splits its lines further. A list is what it is. All text is in
Unicode's composed form, NFC.
"""

import contextlib
import csv
import dataclasses
import functools
import gzip
import json
import os
import re
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, TextIO

import regex

VALIDATION = ("validation", "valid", "val", "dev")  # names of that split
HUB = {  # name: (hub id, configuration, source field, target field), as published on huggingface.co
    "cnn_dailymail": ("abisee/cnn_dailymail", "3.0.0", "article", "highlights"),
    "xsum": ("EdinburghNLP/xsum", None, "document", "summary"),
    "samsum": ("knkarthick/samsum", None, "dialogue", "summary"),
    "arxiv": ("ccdv/arxiv-summarization", "document", "article", "abstract"),
    "wmt14-en-de": ("wmt/wmt14", "de-en", "en", "de"),
}
# Fields of a row under other names, those of SciTLDR and GUM among them; our own names win.
FIELDS = {
    "sentences": "document",
    "source": "document",
    "target": "summary",
    "source_labels": "salient",
}
# Where a sentence ends in scripts whose own stops no splitter of English knows, after signs that
# close (UAX #29).
OWN_STOPS = regex.compile(
    r"""(?V1)[[\p{STerm}．༎།]--[.!?]]+[\p{Pe}\p{Pf}'"]*(?!\p{Sentence_Break=SContinue})\s*"""
)


@dataclasses.dataclass(frozen=True)
class Example:
    """A document with its summary, or a sentence with its translation: N sentences, whose words
    `str.split()` gives.
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
        OSError: no file of that split.
    """
    name, known = os.fspath(name_or_path), "validation" if split in VALIDATION else split
    folder, _, pair = name.rpartition(":")
    if name == "toy" or name.startswith("toy:"):
        examples = _toy(name[4:], known, limit)
    elif name in HUB:
        examples = _collect(_hub(name, known), limit)
    elif folder and "-" in pair and Path(folder).is_dir():
        examples = _collect(_parallel(Path(folder), pair, split), limit)
    elif Path(name).is_dir():
        examples = _collect(_folder(Path(name), split), limit)
    elif Path(name).is_file():
        examples = _collect(_rows(Path(name)), limit)
    else:
        raise ValueError(f"no file or folder {name!r}; known names are toy, {', '.join(HUB)}")
    if not examples:
        raise ValueError(f"{name}: split {split!r} is empty")
    return examples


def read(
    files: Sequence, data: str = "", split: str = "test", limit: int | None = None
) -> list[Example]:
    """What `predict` reads: a split of a data set; or texts, one per line, or JSON lines with or
    without references.

    A blank line is an example whose document is []: a blank line in is a blank line out. Without a
    field `id` they are called notes-1, notes-2 or, where no file is named, stdin-1; of two files
    called notes with their folders. No file or "-" is standard input, where a line that begins with
    {" is read as JSON.

    Raises:
        ValueError: files and data; broken data, with file, line and field. OSError: no such file.
    """
    if files and data:
        raise ValueError("give files, or --data or --split, not both")
    if data:
        return load(data, split, limit)
    paths = [Path(file) for file in files or ["-"]]
    names = [path.name for path in paths]
    rows = chain.from_iterable(
        _rows(path, str(path) if names.count(path.name) > 1 else "") for path in paths
    )
    examples = _collect(rows, limit, needs_reference=False)
    if not any(example.document for example in examples):
        print(f"no documents in {', '.join(map(str, paths))}", file=sys.stderr)
    return examples


def _collect(
    rows: Iterable[tuple], limit: int | None, needs_reference: bool = True
) -> list[Example]:
    """The examples of (where it came from, row)."""
    examples: dict[str, Example] = {}
    for where, row in islice(rows, limit):
        example = _example(row, where, needs_reference)
        if example.id in examples:
            raise ValueError(
                f"{where}: field 'id' must be unique (predictions are matched by it), not "
                f"{example.id!r}"
            )
        examples[example.id] = example
    return list(examples.values())


@functools.cache
def sentence_splitter() -> tuple[str, Callable[[str], list[str]]]:
    """Name and function: NLTK's where its punkt data is there, else a rule: cut after . ! or ?
    before a blank.
    """
    try:
        import nltk  # half a second, paid only by who splits

        nltk.sent_tokenize("")
        return "NLTK's punkt", nltk.sent_tokenize
    except (ImportError, LookupError):
        return "rule", functools.partial(re.split, r"(?<=[.!?])\s+")


def split_sentences(text: str) -> list[str]:
    """Sentences of a text: its lines, as `sentence_splitter` splits them, cut after 。 and other
    OWN_STOPS, too.
    """
    sentences = [
        sentence for line in text.splitlines() for sentence in sentence_splitter()[1](line)
    ]
    parts = [
        part.strip()
        for sentence in sentences
        for part in OWN_STOPS.sub(r"\g<0>\n", sentence).splitlines()
    ]
    return list(filter(None, parts)) or [text]


def in_sentences(examples: Iterable[Example]) -> list[Example]:
    """The examples with every document that came as one string split; one with labels per sentence
    stays.
    """
    split = []
    for example in examples:
        document = example.document
        if example.is_string and not (example.pos or example.salient):
            document = [sentence for line in document for sentence in split_sentences(line)]
        split.append(dataclasses.replace(example, document=document))
    return split


@contextlib.contextmanager
def open_output(path: Path | None, overwrite: bool = False) -> Iterator[TextIO]:
    """Yield a new text file, or standard output for None; ValueError if the file exists, unless to
    `overwrite`.

    Until the end it is called PATH.unfinished; what fails leaves that.
    """
    if path is None:
        yield sys.stdout
        return
    if path.is_dir() or path.exists() and not overwrite:
        raise ValueError(
            f"{path} exists: choose another name{'' if path.is_dir() else ', or add --overwrite'}"
        )
    if path.suffix == ".gz":
        raise ValueError(f"{path}: outputs are not packed: leave out .gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = (
        path if path.exists() and not path.is_file() else path.with_name(f"{path.name}.unfinished")
    )
    # a device, such as /dev/null, is not replaced
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        yield file
    unfinished.replace(path)


def write_jsonl(file: TextIO, rows: Iterable[dict]) -> None:
    """Write JSON lines to an open file, each as it comes."""
    for row in rows:
        print(json.dumps(row, ensure_ascii=False, allow_nan=False), file=file, flush=True)


def write_csv(file: TextIO, rows: Iterable[dict]) -> None:
    """Write rows to an open file; {"rouge1": {"mean": 1, "low": 0}} becomes the columns rouge1_mean
    and rouge1_low.
    """
    table = []
    for row in rows:
        cells = {}
        for name, value in row.items():
            cells |= (
                {f"{name}_{k}": v for k, v in value.items()}
                if isinstance(value, dict)
                else {name: value}
            )
        table.append(
            {
                name: f"{value:.6g}" if isinstance(value, float) else value
                for name, value in cells.items()
            }
        )
    writer = csv.DictWriter(
        file, list(dict.fromkeys(name for cells in table for name in cells)), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(table)


def read_jsonl(path: str | os.PathLike) -> list[dict]:
    """Objects of a JSON lines file, blank lines skipped; ValueError that names file and line."""
    return [_object(line, where) for where, line in _lines(path) if line.strip()]


def _lines(path: str | os.PathLike) -> Iterator[tuple[str, str]]:
    """Lines of a UTF-8 file, plain or .gz, or of standard input ("-"); only a line feed ends one,
    not U+2028.
    """
    name, settings = os.fspath(path), {"encoding": "utf-8-sig", "newline": "\n"}
    try:
        if name == "-":
            name, file = "standard input", contextlib.nullcontext(sys.stdin)
            if hasattr(sys.stdin, "reconfigure"):
                sys.stdin.reconfigure(**settings)
        else:
            file = (gzip.open if name.endswith(".gz") else open)(name, "rt", **settings)
        with file as lines:
            yield from ((f"{name}:{n}", line) for n, line in enumerate(lines, start=1))
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{name}: not UTF-8 (iconv makes it that), or no whole .gz: {error}"
        ) from None


def _object(line: str, where: str) -> dict:
    """One line of JSON lines; where it came from (FILE:LINE) stands in the error, here as in what
    follows.
    """
    try:
        row = json.loads(line)
        json.dumps(row, ensure_ascii=False).encode()  # fails for half of a surrogate pair
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{where}: malformed JSON ({error}); put one object on each line"
        ) from error
    if not isinstance(row, dict):
        raise ValueError(f"{where}: a line must be one JSON object, got {type(row).__name__}")
    return row


def _rows(path: Path, name: str = "") -> Iterator[tuple[str, dict]]:
    """Where it stands, and the row, of each line: of JSON lines an object, else a text; standard
    input may have both.

    A row without an id is called after its file and line; FILE/ID.dis beside FILE.jsonl is its
    tree.
    """
    stem, is_json = Path(path.name.removesuffix(".gz")).stem, ".json" in path.name.lower()
    trees = {file.stem: file for file in path.with_name(stem).glob("*.dis")}
    name = name or ("stdin" if stem == "-" else stem)
    for where, line in _lines(path):
        if is_json and not line.strip():
            continue
        is_object = is_json or stem == "-" and re.match(r'\s*{\s*"', line)
        row = _object(line, where) if is_object else {"document": line if line.strip() else ""}
        # paper_id is SciTLDR's
        row.setdefault("id", row.get("paper_id", f"{name}-{where.rpartition(':')[2]}"))
        if file := trees.get(str(row["id"])):
            row.setdefault("tree", "".join(text for _, text in _lines(file)))
        yield where, row


def _folder(folder: Path, split: str) -> Iterator[tuple[str, dict]]:
    """A split of a folder of JSON lines; without validation data every twentieth line of `train` is
    taken for it.
    """
    is_validation = split in VALIDATION
    if not (is_validation or split == "train") or _file(folder, "validation", ".jsonl").is_file():
        yield from _rows(_file(folder, split, ".jsonl"))
        return
    if is_validation:
        print(
            f"{folder} has no validation.jsonl: every twentieth line of train.jsonl takes its "
            f"place",
            file=sys.stderr,
        )
    for number, row in enumerate(_rows(_file(folder, "train", ".jsonl"))):
        if (number % 20 == 19) == is_validation:
            yield row


def _file(folder: Path, split: str, end: str) -> Path:
    """The file of a split, such as train.jsonl or dev.en.gz; where there is none, the name that it
    should have.
    """
    names = (split, *VALIDATION) if split in VALIDATION else (split,)
    files = [folder / f"{name}{end}{packed}" for name in names for packed in ("", ".gz")]
    return next(filter(Path.is_file, files), files[0])


def _parallel(folder: Path, pair: str, split: str) -> Iterator[tuple[str, dict]]:
    """Pairs of lines of {split}.{source} and {split}.{target}, plain or .gz; `pair` is en-de."""
    one, other = (_file(folder, split, f".{language}") for language in pair.split("-", 1))
    for (where, text), (there, translation) in zip_longest(
        _lines(one), _lines(other), fillvalue=("", "")
    ):
        if not (text.strip() and translation.strip()):
            lacks = f"an empty or missing line: line n of {one} must translate that of {other}"
            raise ValueError(f"{where or there}: {lacks}")
        # U+2028 ends no sentence here
        source, target = (" ".join(side.split()) for side in (text, translation))
        number = where.rpartition(":")[2]
        yield (
            where,
            {"id": f"{one.name.partition('.')[0]}-{number}", "document": source, "summary": target},
        )


def _toy(knobs: str, split: str, limit: int | None) -> list[Example]:
    """Stories of toy.py; `knobs` is name=value,name=value or empty.

    A limit spares the stories beyond it.
    """
    from . import run, toy  # here, for both import this file

    known = {f.name: type(f.default) for f in dataclasses.fields(toy.ToyConfig)} | {
        "seed": int,
        "count": int,
    }
    pairs = [knob.partition("=") for knob in knobs.split(",") if knob]
    try:
        values = {name: known[name](value) for name, _, value in pairs}
        seed, count = values.pop("seed", 0), values.pop("count", toy.SPLITS[split])
        run.check(config := toy.ToyConfig(**values))
        return toy.generate(split, min(count, limit or count), config, seed)
    except (KeyError, ValueError) as error:
        splits, names = (
            ", ".join(toy.SPLITS),
            ", ".join(f"{name} ({kind.__name__})" for name, kind in known.items()),
        )
        raise ValueError(
            f"toy: {error}; splits: {splits}; knobs, as in toy:seed=1,count=9: {names}"
        ) from error


def _hub(name: str, split: str) -> Iterator[tuple[str, dict]]:
    """A hub data set. What is published without text is left out."""
    hub_id, config, source, target = HUB[name]
    # XSum is a script, which `datasets` no longer runs; the hub also keeps it as files of another
    # revision.
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
        # samsum has a None
        pair = {"document": texts[source] or "", "summary": texts[target] or ""}
        if all(map(str.strip, pair.values())):
            yield f"{name}:{number}", {"id": f"{split}-{number}"} | pair


def _example(row: dict, where: str, needs_reference: bool) -> Example:
    """Check a row of any format and make it an Example; ValueError that begins with `where` it came
    from.
    """
    row = {ours: row[theirs] for theirs, ours in FIELDS.items() if theirs in row} | row
    texts = row.get("references") or row.get("summary") or []
    # SciTLDR as published, known by a field of its own: `target` lists references of one string
    # each.
    are_several = isinstance(texts, list) and (row.get("references") or "source_labels" in row)
    texts = texts if are_several or not texts else [texts]
    if row.get("document") == "" and not needs_reference:  # a blank line
        return Example(str(row["id"]), [], [], [])
    if "document" not in row or (needs_reference and not texts):
        raise ValueError(
            f"{where}: needs fields document and summary (or source and target), has "
            f"{', '.join(row)}"
        )
    for field in ("title", "tree"):
        if not isinstance(row.get(field), (str, type(None))):
            raise ValueError(
                f"{where}: field {field!r} must be a string, got {str(row[field])[:60]}"
            )
    field = "references" if row.get("references") else "summary"
    references = [list(filter(None, _sentences(text, field, where))) for text in texts]
    sentences = _sentences(row["document"], "document", where)
    salient, pos = (_labels(row, field, sentences, where) for field in ("salient", "pos"))
    real = [n for n, sentence in enumerate(sentences) if sentence]
    return Example(
        str(row["id"]),
        [sentences[n] for n in real],
        (references or [[]])[0],
        references,
        row.get("tree") and unicodedata.normalize("NFC", row["tree"]),
        pos and [pos[n].split() if isinstance(pos[n], str) else pos[n] for n in real],
        salient and [bool(salient[n]) for n in real],
        row.get("title"),
        isinstance(row["document"], str),
    )


def _sentences(value: Any, field: str, where: str) -> list[str]:
    """The lines of a string, or a list of strings, with single blanks; refused when there is no
    word in it.
    """
    texts = (
        [line for line in value.splitlines() if line.strip()] if isinstance(value, str) else value
    )
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"{where}: field {field!r} must be a string or a list of strings, got {str(value)[:60]}"
        )
    if not any(text.strip() for text in texts):
        raise ValueError(f"{where}: field {field!r} is empty; give it text or remove the line")
    return [unicodedata.normalize("NFC", " ".join(text.split())) for text in texts]


def _labels(row: dict, field: str, sentences: list[str], where: str) -> list | None:
    """The labels of a row in a field, one for each sentence, of "pos" one for each word; None where
    it has none.
    """
    labels = row.get(field)
    if labels is not None and (not isinstance(labels, list) or len(labels) != len(sentences)):
        raise ValueError(
            f"{where}: field {field!r} needs a list of {len(sentences)} labels, got "
            f"{str(labels)[:60]}"
        )
    if field == "salient" and labels and not set(map(type, labels)) <= {bool, int}:
        raise ValueError(
            f"{where}: field 'salient' needs true or false for each sentence, got "
            f"{str(labels)[:60]}"
        )
    for tags, sentence in zip(labels if field == "pos" and labels else [], sentences, strict=False):
        tags = tags.split() if isinstance(tags, str) else tags
        if not isinstance(tags, list) or len(tags) != len(sentence.split()):
            raise ValueError(
                f"{where}: field 'pos' needs a tag for each word of {sentence!r}, got {tags}"
            )
    return labels
