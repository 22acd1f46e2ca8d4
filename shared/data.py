"""Data: one way in for all five packages, `load(name_or_path, split)`, which gives a list of `Example`.

`load` never truncates; only `in_sentences` splits a string into sentences.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import gzip
import hashlib
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, TextIO

from .example import LABELS, REFERENCES, Example, from_row

SPLITS = (("train",), ("validation", "valid", "val", "dev"), ("test",))  # names of one split, ours first
HUB = {  # name: (hub id, configuration, source field, target field), as published on huggingface.co
    "cnn_dailymail": ("abisee/cnn_dailymail", "3.0.0", "article", "highlights"),
    "xsum": ("EdinburghNLP/xsum", None, "document", "summary"),
    "samsum": ("knkarthick/samsum", None, "dialogue", "summary"),
    "arxiv": ("ccdv/arxiv-summarization", "document", "article", "abstract"),
    "wmt14-en-de": ("wmt/wmt14", "de-en", "en", "de"),
}


def load(name_or_path: str | os.PathLike, split: str = "train", limit: int | None = None) -> list[Example]:
    """Load one split of a data set.

    Args:
        name_or_path: `toy`, or with knobs `toy:signal=0.7,seed=3`; FILE.jsonl (the same data whatever the split) or a
            FOLDER of them; FOLDER:en-de, parallel text; `aclsum`; a name in HUB. README.md shows each kind. A name wins
            over a file or folder of that name (write `./toy` for a folder called toy).
        split: `train`, `validation` (or `valid`, `val`, `dev`), `test`, or the stem of a file in the folder; `test`
            is also the only file whose name begins with test.
        limit: read only so many examples, at least 1.
    Raises:
        ValueError: unknown name, split or knob; broken data (names file, line and field); hub data out of reach.
        ImportError: the package that reads this data set is absent; names the command that installs it.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    name = os.fspath(name_or_path)
    parallel = re.fullmatch(r"(.+):(\w+)-(\w+)", name)
    if name == "toy" or name.startswith("toy:"):
        rows = _toy(name[4:], _aliases(split)[0], limit)
    elif name == "aclsum":
        rows = _aclsum(split)
    elif name in HUB:
        rows = _hub(name, _aliases(split)[0])
    elif parallel and Path(parallel[1]).is_dir():
        rows = _parallel(Path(parallel[1]), parallel[2], parallel[3], split)
    elif name and Path(name).is_dir():  # Path("") is where we are
        files = {path.stem: path for path in Path(name).glob("*.jsonl")}
        if not files:
            hint = f"of parallel text say the languages: {name}:en-de"
            raise ValueError(f"{name} holds no JSON lines (train.jsonl, validation.jsonl, test.jsonl); {hint}")
        rows = _with_trees(_pick(split, files, name)[1])
    elif Path(name).is_file():
        rows = _with_trees(Path(name))
    else:
        raise ValueError(f"no file or folder {name!r}; known names are toy, aclsum, {', '.join(HUB)}")
    examples = [from_row(row, where) for where, row in islice(rows, limit)]
    if not examples:
        raise ValueError(f"{name}: split {split!r} is empty")
    seen = set()
    if twice := [example.id for example in examples if example.id in seen or seen.add(example.id)]:
        raise ValueError(f"{name}: field 'id' must be unique (predictions are matched by it), {twice[0]!r} is not")
    return examples


def read_texts(paths: Sequence[str | os.PathLike] = ()) -> list[Example]:
    """Documents for `predict`: one per line, or JSON lines with a source (FILE.jsonl). Their summary is "-".

    Without a field `id` they are called notes-1, notes-2 or, where no file is named, stdin-1.

    Args:
        paths: files; none or "-" is standard input, where a line that begins with {" is read as JSON.
    Raises:
        ValueError: broken data, with file, line and field. OSError: no such file.
    """
    texts = []
    for name in map(os.fspath, paths or ["-"]):
        rows = _with_trees(Path(name)) if name.endswith((".jsonl", ".jsonl.gz")) else _text_lines(name)
        for where, row in rows:
            texts.append(from_row({k: v for k, v in row.items() if k not in REFERENCES} | {"summary": "-"}, where))
    return texts


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
    """Sentences of a text as `sentence_splitter` finds them."""
    sentences, end = [], 0
    for sentence in sentence_splitter()[1](text) or [text]:
        start = text.index(sentence, end)
        if sentences and start == end:  # NLTK cuts "stop.(Next" too, but a word stays whole
            sentences[-1] += sentence
        else:
            sentences.append(sentence)
        end = start + len(sentence)
    return sentences


def in_sentences(examples: Iterable[Example]) -> list[Example]:
    """The examples with every document that came as one whole string split; one with labels per sentence stays."""
    return [
        e
        if len(e.document) > 1 or any(getattr(e, field) for field in LABELS)
        else dataclasses.replace(e, document=split_sentences(e.source))
        for e in examples
    ]


def fingerprint(examples: Iterable[Example]) -> str:
    """A hash of examples, by which a training that goes on knows its data again."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def open_output(path: Path | None, overwrite: bool = False) -> Iterator[TextIO]:
    """Yield a new text file, or standard output for None; ValueError if it exists.

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
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(column for row in flat for column in row))
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in flat)


def _flat(row: dict) -> dict:
    flat = {}
    for key, value in row.items():
        flat |= {f"{key}_{k}": v for k, v in _flat(value).items()} if isinstance(value, dict) else {key: value}
    return flat


def read_jsonl(path: str | os.PathLike) -> list[dict]:
    """Objects of a JSON lines file, blank lines skipped; ValueError that names file and line."""
    return [_object(line, where) for where, line in _lines(path)]


def _lines(path: str | os.PathLike, blank: bool = False) -> Iterator[tuple[str, str]]:
    """Lines of a UTF-8 file, plain or .gz, or of standard input ("-"); only a line feed ends one, not U+2028."""
    name = "standard input" if os.fspath(path) == "-" else os.fspath(path)
    try:
        with _open(os.fspath(path)) as file:
            yield from ((f"{name}:{n}", line) for n, line in enumerate(file, start=1) if blank or line.strip())
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: not UTF-8 ({error}); convert it, e.g. with iconv -t utf-8") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name}: not gzip or cut off ({error}); fetch the file again") from error


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
    row.setdefault("id", row.get("paper_id", f"{stem}-{where.rpartition(':')[2]}"))
    if not isinstance(row["id"], (str, int)):
        raise ValueError(f"{where}: field 'id' must be a string or a number, got {row['id']!r}")
    return row


def _with_trees(path: Path) -> Iterator[tuple[str, dict]]:
    """Objects of FILE.jsonl, each with an id and, where FILE/{id}.dis lies beside it, its tree (as GUM)."""
    for where, line in _lines(path):
        row = _with_id(_object(line, where), path.stem.removesuffix(".jsonl"), where)
        name = f"{row['id']}.dis"
        tree_file = path.with_suffix("") / name
        if "tree" not in row and Path(name).name == name and os.path.isfile(tree_file):  # not ../../x.dis
            where, row["tree"] = f"{where} with {tree_file}", "".join(text for _, text in _lines(tree_file, blank=True))
        yield where, row


def _text_lines(name: str) -> Iterator[tuple[str, dict]]:
    """A document on each line that is not blank; on standard input a line may be JSON."""
    for where, line in _lines(name):
        row = _object(line, where) if name == "-" and re.match(r'\s*{\s*"', line) else {"document": line}
        yield where, _with_id(row, "stdin" if name == "-" else Path(name).stem, where)


def _aliases(split: str) -> tuple[str, ...]:
    """The names of a split, ours first."""
    return next((names for names in SPLITS if split in names), (split,))


def _pick(split: str, available: dict[str, Any], where: str) -> tuple[str, Any]:
    """The one entry of `available` (stem: file or files) that is the split, as stem and file."""
    found = [split] if split in available else [name for name in _aliases(split) if name in available]
    if not found and split == "test":  # Multi30k: test_2016_flickr
        found = [name for name in available if name.startswith("test")]
    if len(found) != 1:
        problem = f"{len(found)} files that could be" if found else "no"
        has = ", ".join(sorted(available)) or "no split at all"
        raise ValueError(f"{where} has {problem} split {split!r}; it has {has}: ask for one of these")
    return found[0], available[found[0]]


def _parallel(folder: Path, source: str, target: str, split: str) -> Iterator[tuple[str, dict]]:
    """Pairs of lines of {split}.{source} and {split}.{target}, plain or .gz."""
    files = {path.name.removesuffix(".gz"): path for path in sorted(folder.iterdir(), reverse=True)}  # plain wins
    stems = [name.removesuffix(f".{source}") for name in files if name.endswith(f".{source}")]
    pairs = {s: (files[f"{s}.{source}"], files[f"{s}.{target}"]) for s in stems if f"{s}.{target}" in files}
    stem, (one, other) = _pick(split, pairs, f"{folder}:{source}-{target}")
    lines = zip_longest(_lines(one, blank=True), _lines(other, blank=True), fillvalue=("", ""))
    for (where, text), (there, translation) in lines:
        if not (text.strip() and translation.strip()):
            raise ValueError(
                f"{where or there}: an empty or missing line: line n of {one} must translate that of {other}"
            )
        yield where, _with_id({"document": text, "summary": translation}, stem, where)


def _toy(knobs: str, split: str, limit: int | None) -> Iterator[tuple[str, dict]]:
    """Stories of toy.py; `knobs` is name=value,name=value or empty. A limit spares the stories beyond it."""
    from . import toy

    known = {f.name: type(f.default) for f in dataclasses.fields(toy.ToyConfig)} | {"seed": int, "count": int}
    pairs = [knob.partition("=") for knob in knobs.split(",") if knob]
    try:
        values = {name: known[name](value) for name, _, value in pairs}
    except (KeyError, ValueError) as error:
        names = ", ".join(f"{name} ({kind.__name__})" for name, kind in known.items())
        raise ValueError(f"toy: bad knob ({error}); write toy:name=value,name=value; knobs: {names}") from error
    seed, count = values.pop("seed", 0), values.pop("count", toy.SPLITS.get(split, 0))
    for row in toy.generate(split, min(count, limit or count), toy.ToyConfig(**values), seed):
        yield row["id"], row


def _aclsum(split: str) -> Iterator[tuple[str, dict]]:
    """ACLSum (Takeshita et al. 2024): the summaries of three aspects as one, a sentence highlighted for any salient."""
    try:
        from aclsum import ACLSum
    except ImportError as error:
        raise ImportError("aclsum is a package: pip install aclsum") from error
    aspects = ("challenge", "approach", "outcome")
    for paper in ACLSum(_pick(split, dict.fromkeys(("train", "val", "test")), "aclsum")[0]):
        highlights = zip(*(paper.get_all_highlights(aspect) for aspect in aspects), strict=True)
        row = {"id": paper.id, "title": paper.title, "salient": [any(labels) for labels in highlights]}
        row |= {"document": paper.get_all_sentences(), "summary": [paper.summaries[aspect] for aspect in aspects]}
        yield f"aclsum:{paper.id}", row


def _hub(name: str, split: str) -> Iterator[tuple[str, dict]]:
    """A hub data set; line breaks separate its sentences. What is published without text is left out."""
    hub_id, config, source, target = HUB[name]
    try:
        import datasets

        rows = datasets.load_dataset(hub_id, config, split=split)
    except ImportError as error:
        raise ImportError(f"{name} is a hub data set: pip install datasets") from error
    except Exception as error:  # the hub, its client and the cache raise a dozen unrelated types
        command = f'HF_HUB_OFFLINE=0 python -c "import datasets; datasets.load_dataset({hub_id!r}, {config!r})"'
        raise ValueError(f"{name}: no {split!r} split here or in reach ({error}). To get it: {command}") from error
    for number, row in enumerate(rows):
        texts = (row.get("translation", row)[field] or "" for field in (source, target))  # samsum has a None
        document, summary = (text.splitlines() for text in texts)
        if any(map(str.strip, document)) and any(map(str.strip, summary)):
            yield f"{name}:{number}", {"id": f"{split}-{number}", "document": document, "summary": summary}
