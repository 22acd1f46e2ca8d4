"""Data: one way in for all five packages, `load(name_or_path, split)`, which gives a list of `Example`.

`load` never truncates. Of a text that comes as one string a line break ends a sentence, whichever way it comes; only
`in_sentences` splits its lines further. A list is what it is. All text is in Unicode's composed form, NFC.
"""

from __future__ import annotations

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
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, TextIO

import regex

ALIASES = dict.fromkeys(("valid", "val", "dev"), "validation")  # names of a split: ours
HUB = {  # name: (hub id, configuration, source field, target field), as published on huggingface.co
    "cnn_dailymail": ("abisee/cnn_dailymail", "3.0.0", "article", "highlights"),
    "xsum": ("EdinburghNLP/xsum", None, "document", "summary"),
    "samsum": ("knkarthick/samsum", None, "dialogue", "summary"),
    "arxiv": ("ccdv/arxiv-summarization", "document", "article", "abstract"),
    "wmt14-en-de": ("wmt/wmt14", "de-en", "en", "de"),
}
REFERENCES = ("references", "summary", "target")  # fields of a row, the first that is there counts
# Where a sentence ends in scripts whose own stops no splitter of English knows, after signs that close (UAX #29).
OWN_STOPS = regex.compile(r"""(?V1)[[\p{STerm}．༎།]--[.!?]]+[\p{Pe}\p{Pf}'"]*(?!\p{Sentence_Break=SContinue})\s*""")


@dataclasses.dataclass(frozen=True)
class Example:
    """A document with its summary, or a sentence with its translation: N sentences, whose words `str.split()` gives."""

    id: str  # unique in its split
    document: list[str]  # (N,) sentences, or one whole string where the data is not split into sentences
    summary: list[str]  # sentences of the first reference; empty where there is none
    references: list[list[str]]  # all references; the first is `summary`
    tree: str | None = None  # an RST tree over the document, as the text of a .dis file
    pos: list[list[str]] | None = None  # (N, words) Penn part-of-speech tags
    salient: list[bool] | None = None  # (N,) True = the summary takes this sentence
    title: str | None = None
    is_string: bool = False  # True = the document came as one string: its sentences are that string's lines

    @property
    def source(self) -> str:
        """The document as one string."""
        return " ".join(self.document)

    @property
    def target(self) -> str:
        """The first reference as one string."""
        return " ".join(self.summary)


# Ways in


def load(name_or_path: str | os.PathLike, split: str = "train", limit: int | None = None) -> list[Example]:
    """Load one split of a data set; README.md shows each kind.

    Args:
        name_or_path: a name wins over a file or folder of that name (write `./toy` for a folder called toy).
        split: `train`, `validation` (or `valid`, `val`, `dev`), `test`, or the stem of a file in the folder.
        limit: read only so many examples, at least 1.
    Raises:
        ValueError: unknown name, split or knob; broken data (names file, line and field); hub data out of reach.
        ImportError: the package that reads this data set is absent; names the command that installs it.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    name = os.fspath(name_or_path)
    folder, _, pair = name.rpartition(":")
    if name == "toy" or name.startswith("toy:"):
        return _toy(name[4:], ALIASES.get(split, split), limit)
    if name in HUB:
        rows = _hub(name, ALIASES.get(split, split))
    elif folder and "-" in pair and Path(folder).is_dir():
        rows = _parallel(Path(folder), pair, split)
    elif name and Path(name).is_dir():  # Path("") is where we are
        rows = _folder(name, split)
    elif Path(name).is_file():
        rows = _json_lines(Path(name))
    else:
        raise ValueError(f"no file or folder {name!r}; known names are toy, {', '.join(HUB)}")
    examples = {}
    for where, row in islice(rows, limit):
        add(examples, from_row(row, where), where)
    if not examples:
        raise ValueError(f"{name}: split {split!r} is empty")
    return list(examples.values())


def add(examples: dict[str, Example], example: Example, where: str) -> None:
    """Add an example under its id; ValueError if another one has it."""
    if example.id in examples:
        raise ValueError(f"{where}: field 'id' must be unique (predictions are matched by it), not {example.id!r}")
    examples[example.id] = example


def read(files: Sequence, data: str = "", split: str = "test", limit: int | None = None) -> list[Example]:
    """What `predict` reads: a split of a data set; or texts, one per line, or JSON lines with or without references.

    A blank line is an example whose document is []: a blank line in is a blank line out. Without a field `id` they are
    called notes-1, notes-2 or, where no file is named, stdin-1; of two files called notes with their folders.

    Args:
        files: none or "-" is standard input, where a line that begins with {" is read as JSON.
    Raises:
        ValueError: files and data; broken data, with file, line and field. OSError: no such file.
    """
    if files and data:
        raise ValueError("give files or --data, not both")
    if data:
        return load(data, split, limit)
    examples, names = {}, [os.fspath(file) for file in files or ["-"]]
    stems = [stem_of(name) for name in names]
    for name, stem in zip(names, stems, strict=True):
        stem = stem if stems.count(stem) == 1 else name
        is_json = name.endswith((".jsonl", ".jsonl.gz"))
        for where, row in _json_lines(Path(name), stem) if is_json else _text_lines(name, stem):
            row = {field: value for field, value in row.items() if value or field not in REFERENCES}
            is_blank = row.get("document", "-") == ""
            example = Example(row["id"], [], [], []) if is_blank else from_row(row, where, needs_reference=False)
            add(examples, example, where)
    if not any(example.document for example in examples.values()):
        print(f"no documents in {', '.join(names)}", file=sys.stderr)
    return list(examples.values())[:limit]


def stem_of(name: str) -> str:
    """What the documents of a file are called."""
    return "stdin" if name == "-" else Path(name.removesuffix(".gz")).stem


# Sentences


@functools.cache
def sentence_splitter() -> tuple[str, Callable[[str], list[str]]]:
    """Name and function: NLTK's where its punkt data is there, else a rule: cut after . ! or ? before a blank."""
    try:
        import nltk  # half a second, paid only by who splits

        nltk.sent_tokenize("")
        return "NLTK's punkt", nltk.sent_tokenize
    except (ImportError, LookupError):
        return "rule", lambda text: re.split(r"(?<=[.!?])\s+", text.strip())


def split_sentences(text: str) -> list[str]:
    """Sentences of a text as `sentence_splitter` finds them, cut after 。 and the other stops of OWN_STOPS, too."""
    sentences, end = [], 0
    for sentence in sentence_splitter()[1](text) or [text]:
        start = text.index(sentence, end)
        if sentences and start == end:  # NLTK cuts "stop.(Next" too, but a word stays whole
            sentences[-1] += sentence
        else:
            sentences.append(sentence)
        end = start + len(sentence)
    return [part for sentence in sentences for part in own_sentences(sentence)] or [text]


def own_sentences(text: str) -> list[str]:
    """The parts of a text that end with OWN_STOPS, which stay with them."""
    ends = [0, *(match.end() for match in OWN_STOPS.finditer(text)), len(text)]
    return [part for start, end in zip(ends[:-1], ends[1:], strict=True) if (part := text[start:end].strip())]


def in_sentences(examples: Iterable[Example]) -> list[Example]:
    """The examples with every document that came as one string split; one with labels per sentence stays."""

    def split(example: Example) -> Example:
        is_whole = example.is_string or len(example.document) == 1
        if not is_whole or example.pos or example.salient:
            return example
        sentences = [sentence for line in example.document for sentence in split_sentences(line)]
        return dataclasses.replace(example, document=sentences)

    return [split(example) for example in examples]


# Ways out


@contextlib.contextmanager
def open_output(path: Path | None, overwrite: bool = False) -> Iterator[TextIO]:
    """Yield a new text file, or standard output for None; ValueError if the file exists.

    To `overwrite`, a file beside it takes its name at the end. What fails leaves no empty file.
    """
    if path is None:
        yield sys.stdout
        return
    target = path.with_name(f"{path.name}.{os.getpid()}.unfinished") if overwrite else path
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = target.open("x", encoding="utf-8", newline="\n")
    except FileExistsError:
        raise ValueError(f"{path} exists: choose another name, or add --overwrite") from None
    try:
        with file:
            yield file
    except BaseException:
        if overwrite or not target.stat().st_size:
            target.unlink()
        raise
    os.replace(target, path)


def write_jsonl(file: TextIO, rows: Iterable[dict]) -> None:
    """Write JSON lines to an open file, each as it comes."""
    for row in rows:
        print(json.dumps(row, ensure_ascii=False, allow_nan=False), file=file, flush=True)


def write_csv(file: TextIO, rows: Iterable[dict]) -> None:
    """Write rows to an open file; {"rouge1": {"mean": 1, "low": 0}} becomes the columns rouge1_mean and rouge1_low."""
    table = []
    for row in rows:
        cells = {}
        for name, value in row.items():
            cells |= {f"{name}_{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
        table.append({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in cells.items()})
    writer = csv.DictWriter(file, list(dict.fromkeys(name for cells in table for name in cells)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)


# Files


def read_jsonl(path: str | os.PathLike) -> list[dict]:
    """Objects of a JSON lines file, blank lines skipped; ValueError that names file and line."""
    return [_object(line, where) for where, line in _lines(path)]


def _lines(path: str | os.PathLike, blank: bool = False) -> Iterator[tuple[str, str]]:
    """Lines of a UTF-8 file, plain or .gz, or of standard input ("-"); only a line feed ends one, not U+2028."""
    name = "standard input" if os.fspath(path) == "-" else os.fspath(path)
    try:
        with _open(os.fspath(path)) as file:
            yield from ((f"{name}:{n}", line) for n, line in enumerate(file, start=1) if blank or line.strip())
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name}: not UTF-8 (iconv makes it that), or no whole .gz: {error}") from None


def _open(name: str) -> contextlib.AbstractContextManager[TextIO]:
    if name != "-":
        return (gzip.open if name.endswith(".gz") else open)(name, "rt", encoding="utf-8-sig", newline="\n")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict", newline="\n")
    return contextlib.nullcontext(sys.stdin or ())


def _object(line: str, where: str) -> dict:
    """One line of JSON lines; where it came from (FILE:LINE) stands in the error, here as in what follows."""
    try:
        row = json.loads(line)
        json.dumps(row, ensure_ascii=False).encode()  # fails for half of a surrogate pair
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: malformed JSON ({error}); put one object on each line") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where}: a line must be one JSON object, got {type(row).__name__}")
    return row


def _with_id(row: dict, stem: str, where: str) -> dict:
    """The row with its id; without one it is called after its file and line."""
    name = row.setdefault("id", row.get("paper_id", f"{stem}-{where.rpartition(':')[2]}"))
    if not isinstance(name, (str, int)) or isinstance(name, bool) or name == "":
        raise ValueError(f"{where}: field 'id' must be a string or a number, got {name!r}")
    return row


def _json_lines(path: Path, name: str = "") -> Iterator[tuple[str, dict]]:
    """Objects of FILE.jsonl, each with an id and, where FILE/{id}.dis lies beside it, its tree (as GUM)."""
    stem = stem_of(path.name)
    for where, line in _lines(path):
        row = _with_id(_object(line, where), name or stem, where)
        tree_name = f"{row['id']}.dis"
        tree_file = path.with_name(stem) / tree_name
        if "tree" not in row and Path(tree_name).name == tree_name and os.path.isfile(tree_file):  # not ../../x.dis
            where, row["tree"] = f"{where} with {tree_file}", "".join(text for _, text in _lines(tree_file, blank=True))
        yield where, row


def _text_lines(name: str, stem: str) -> Iterator[tuple[str, dict]]:
    """A document on each line; on standard input a line may be JSON."""
    for where, line in _lines(name, blank=True):
        is_json = name == "-" and re.match(r'\s*{\s*"', line)
        row = _object(line, where) if is_json else {"document": line if line.strip() else ""}
        yield where, _with_id(row, stem, where)


def _folder(name: str, split: str) -> Iterator[tuple[str, dict]]:
    """A split of a folder of JSON lines; without validation data every twentieth line of `train` is taken for it."""
    files = {path.name.split(".jsonl")[0]: path for path in sorted(Path(name).glob("*.jsonl*"), reverse=True)}
    if not files:
        hint = f"of parallel text say the languages: {name}:en-de"
        raise ValueError(f"{name} holds no JSON lines (train.jsonl, validation.jsonl, test.jsonl); {hint}")
    ours, splits = ALIASES.get(split, split), {ALIASES.get(stem, stem) for stem in files}
    if ours not in ("train", "validation") or "train" not in splits or "validation" in splits:
        yield from _json_lines(_pick(split, files, name)[1])
        return
    if ours == "validation":
        print(f"{name} has no validation.jsonl: every twentieth line of train.jsonl takes its place", file=sys.stderr)
    for number, row in enumerate(_json_lines(files["train"])):
        if (number % 20 == 19) == (ours == "validation"):
            yield row


def _pick(split: str, available: dict[str, Any], where: str) -> tuple[str, Any]:
    """The one entry of `available` (stem: file or files) that is the split, as stem and file."""
    ours = ALIASES.get(split, split)
    found = [split] if split in available else [stem for stem in available if ALIASES.get(stem, stem) == ours]
    if not found and split == "test":  # Multi30k: test_2016_flickr
        found = [stem for stem in available if stem.startswith("test")]
    if len(found) != 1:
        problem = f"{len(found)} files that could be" if found else "no"
        has = ", ".join(sorted(available)) or "no split at all"
        raise ValueError(f"{where} has {problem} split {split!r}; it has {has}: name one of these files for it")
    return found[0], available[found[0]]


def _parallel(folder: Path, pair: str, split: str) -> Iterator[tuple[str, dict]]:
    """Pairs of lines of {split}.{source} and {split}.{target}, plain or .gz; `pair` is en-de, or en-pt-BR."""
    files = {path.name.removesuffix(".gz"): path for path in sorted(folder.iterdir(), reverse=True)}  # plain wins
    ends = sorted({name.partition(".")[2] for name in files})
    source, target = next(((a, b) for a in ends for b in ends if f"{a}-{b}" == pair), pair.split("-", 1))
    stems = [name.removesuffix(f".{source}") for name in files if name.endswith(f".{source}")]
    pairs = {s: (files[f"{s}.{source}"], files[f"{s}.{target}"]) for s in stems if f"{s}.{target}" in files}
    stem, (one, other) = _pick(split, pairs, f"{folder}:{pair}")
    lines = zip_longest(_lines(one, blank=True), _lines(other, blank=True), fillvalue=("", ""))
    for (where, text), (there, translation) in lines:
        if not (text.strip() and translation.strip()):
            lacks = f"an empty or missing line: line n of {one} must translate that of {other}"
            raise ValueError(f"{where or there}: {lacks}")
        one_line = (" ".join(side.split()) for side in (text, translation))  # U+2028 ends no sentence here
        yield where, _with_id(dict(zip(("document", "summary"), one_line, strict=True)), stem, where)


# Known data sets


def _toy(knobs: str, split: str, limit: int | None) -> list[Example]:
    """Stories of toy.py; `knobs` is name=value,name=value or empty. A limit spares the stories beyond it."""
    from . import run, toy

    if split not in toy.SPLITS:
        raise ValueError(f"toy split {split!r} does not exist; choose one of {', '.join(toy.SPLITS)}")
    known = {f.name: type(f.default) for f in dataclasses.fields(toy.ToyConfig)} | {"seed": int, "count": int}
    pairs = [knob.partition("=") for knob in knobs.split(",") if knob]
    try:
        values = {name: known[name](value) for name, _, value in pairs}
        seed, count = values.pop("seed", 0), values.pop("count", toy.SPLITS[split])
        run.check(config := toy.ToyConfig(**values))
        if seed < 0 or count < 1:
            raise ValueError(f"seed is {seed} and count is {count}; give 0 or more and 1 or more")
        return toy.generate(split, min(count, limit or count), config, seed)
    except (KeyError, ValueError) as error:
        names = ", ".join(f"{name} ({kind.__name__})" for name, kind in known.items())
        raise ValueError(f"toy: bad knob ({error}); write toy:name=value,name=value; knobs: {names}") from error


def _hub(name: str, split: str) -> Iterator[tuple[str, dict]]:
    """A hub data set. What is published without text is left out."""
    hub_id, config, source, target = HUB[name]
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f"{name} is a hub data set: pip install datasets") from error
    # XSum is a script, which `datasets` no longer runs; the hub also keeps it as files of another revision.
    options = {"revision": "refs/convert/parquet"} if name == "xsum" else {}
    try:
        rows = datasets.load_dataset(hub_id, config, split=split, **options)
    except Exception as error:  # the hub, its client and the cache raise a dozen unrelated types
        call = f"datasets.load_dataset({hub_id!r}, {config!r}, **{options})"
        command = f'HF_HUB_OFFLINE=0 python -c "import datasets; {call}"'
        raise ValueError(f"{name}: no {split!r} split here or in reach ({error}). To get it: {command}") from error
    for number, row in enumerate(rows):
        texts = row.get("translation", row)
        pair = {"document": texts[source] or "", "summary": texts[target] or ""}  # samsum has a None
        if all(map(str.strip, pair.values())):
            yield f"{name}:{number}", {"id": f"{split}-{number}"} | pair


# From a row of any format to an Example


def from_row(row: dict, where: str, needs_reference: bool = True) -> Example:
    """Check a row of any format and make it an Example; ValueError that begins with `where` it came from."""
    source = next((field for field in ("document", "source", "sentences") if field in row), None)
    if source is None or (needs_reference and row.keys().isdisjoint(REFERENCES)):
        raise ValueError(f"{where}: needs fields document and summary (or source and target), has {', '.join(row)}")
    for field in ("title", "tree"):
        if not isinstance(row.get(field), (str, type(None))):
            raise ValueError(f"{where}: field {field!r} must be a string, got {str(row[field])[:60]}")
    sentences = _sentences(row[source], f"{where}: field {source!r}")
    salient, pos = row.get("salient", row.get("source_labels")), row.get("pos")  # source_labels are SciTLDR's
    if salient is not None:
        salient = list(map(bool, _labels(salient, (bool, int), sentences, f"{where}: field 'salient'")))
    if pos is not None:
        pos = _tags(pos, sentences, f"{where}: field 'pos'")
    references = _references(row, where)
    tree = row.get("tree") and unicodedata.normalize("NFC", row["tree"])
    keep = [n for n, sentence in enumerate(sentences) if sentence]
    document, pos, salient = (part and [part[n] for n in keep] for part in (sentences, pos, salient))
    labels, is_string = (tree, pos, salient, row.get("title")), isinstance(row[source], str)
    return Example(str(row["id"]), document, (references or [[]])[0], references, *labels, is_string)


def _references(row: dict, where: str) -> list[list[str]]:
    """All references of a row, each a list of sentences."""
    field = next((field for field in REFERENCES if field in row), None)
    if field is None:
        return []
    # SciTLDR as published, known by two fields of its own: `target` lists references of one string each.
    scitldr = field == "target" and isinstance(row["target"], list) and ("source_labels" in row or "paper_id" in row)
    texts = row[field] if scitldr or field == "references" else [row[field]]
    if not isinstance(texts, list) or not texts:
        raise ValueError(f"{where}: field {field!r} must be a list of at least one reference")
    references = [list(filter(None, _sentences(text, f"{where}: field {field!r}"))) for text in texts]
    summary = row.get("summary", row.get("target"))
    if field == "references" and summary is not None and _sentences(summary, where) != references[0]:
        raise ValueError(f"{where}: the first of field 'references' must equal the summary")
    return references


def _sentences(value: Any, where: str) -> list[str]:
    """The lines of a string, or a list of strings, with single blanks; refused when there is no word in it."""
    texts = [line for line in value.splitlines() if line.strip()] or [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{where} must be a string or a list of strings, got {str(value)[:60]}")
    if not any(text.strip() for text in texts):
        raise ValueError(f"{where} is empty; give it text or remove the line")
    return [unicodedata.normalize("NFC", " ".join(text.split())) for text in texts]


def _tags(rows: Any, sentences: list[str], where: str) -> list[list[str]]:
    """A tag of each word of each sentence; GUM has those of a sentence as one string with blanks."""
    pairs = zip(_labels(rows, (str, list), sentences, where), sentences, strict=True)
    split = [(tags.split() if isinstance(tags, str) else tags, sentence.split()) for tags, sentence in pairs]
    return [_labels(tags, str, words, f"{where}, sentence {n},") for n, (tags, words) in enumerate(split, start=1)]


def _labels(values: Any, kind: type | tuple, texts: list[str], where: str) -> list:
    """The values, if they are a label of a kind for each text."""
    if not isinstance(values, list) or len(values) != len(texts):
        raise ValueError(f"{where} needs a list of {len(texts)} labels, got {str(values)[:60]}")
    if wrong := [value for value in values if not isinstance(value, kind)]:
        raise ValueError(f"{where} needs a label for each, got {wrong[0]!r}")
    return values
