"""Data: one way in for all five packages, `load(name_or_path, split)`, which gives a list of `Example`.

`load` never truncates; only `in_sentences` splits a string into sentences.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import gzip
import io
import json
import math
import os
import re
import stat
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO, get_args

SPLITS = (("train",), ("validation", "valid", "val", "dev"), ("test",))  # names of one split, ours first
HUB = {  # name: (hub id, configuration, source field, target field), as published on huggingface.co
    "cnn_dailymail": ("abisee/cnn_dailymail", "3.0.0", "article", "highlights"),
    "xsum": ("EdinburghNLP/xsum", None, "document", "summary"),
    "samsum": ("knkarthick/samsum", None, "dialogue", "summary"),
    "arxiv": ("ccdv/arxiv-summarization", "document", "article", "abstract"),
    "wmt14-en-de": ("wmt/wmt14", "de-en", "en", "de"),
}
ELSEWHERE = {  # what presets of the papers name and only a folder of JSON lines can bring
    "wikisum": "the ranked WikiSum of Liu and Lapata 2019 (github.com/nlpyang/hiersumm)",
    "podcast": "the Spotify Podcast transcripts (TREC 2020, on request)",
}
REFERENCES = ("references", "summary", "target")  # fields of a row, the first that is there counts
LABELS = {"pos": list[str], "salient": bool, "salient_tokens": list[bool], "kinds": str}  # per sentence; list: per word


@dataclasses.dataclass(frozen=True)
class Example:
    """A document with its summary, or a sentence with its translation: N sentences, whose words `str.split()` gives."""

    id: str  # unique in its split
    document: list[str]  # (N,) sentences, or one whole string where the data is not split into sentences
    summary: list[str]  # sentences of the first reference
    references: list[list[str]]  # all references; the first is `summary`
    edus: list[str] | None = None  # clause units in order; joined by blanks they are the document joined by blanks
    tree: str | None = None  # the RST tree over `edus`, as the text of a .dis file
    pos: list[list[str]] | None = None  # (N, words) Penn part-of-speech tags
    salient: list[bool] | None = None  # (N,) True = the summary takes this sentence
    salient_tokens: list[list[bool]] | None = None  # (N, words) True = the summary takes this word
    kinds: list[str] | None = None  # (N,) main, repeat, detail or filler; toy only
    title: str | None = None

    @property
    def source(self) -> str:
        """The document as one string."""
        return " ".join(self.document)

    @property
    def target(self) -> str:
        """The first reference as one string."""
        return " ".join(self.summary)


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
        where = f"; it is not on the hub: give a folder made from {ELSEWHERE[name]}" if name in ELSEWHERE else ""
        raise ValueError(f"no file or folder {name!r}{where}; known names are toy, aclsum, {', '.join(HUB)}")
    examples = [_example(row, where) for where, row in islice(rows, limit)]
    if not examples:
        raise ValueError(f"{name}: split {split!r} is empty")
    identity, count = Counter(example.id for example in examples).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{name}: field 'id' must be unique (predictions are matched by it), {identity!r} is not")
    return examples


def read_texts(paths: Sequence[str | os.PathLike] = ()) -> Iterator[Example]:
    """Documents for `predict`, in order, as the input comes: one per line, or JSON lines with a source (FILE.jsonl).

    Their summary is "-", whatever the data says. Without a field `id` they are called notes-1, notes-2 or stdin-1.

    Args:
        paths: files; none or "-" is standard input, where a line that begins with {" is read as JSON.
    Raises:
        ValueError: at once, no such file or a broken first text; later, broken data, with file, line and field.
    """
    names = [os.fspath(path) for path in paths or ["-"]]
    for name in names:
        if name != "-" and (not os.path.exists(name) or os.path.isdir(name)):
            raise ValueError(f"no file {name!r} to read texts from")
    jsonl = (".jsonl", ".jsonl.gz")
    rows = chain.from_iterable(_with_trees(Path(n)) if n.endswith(jsonl) else _text_lines(n) for n in names)
    texts = (_example({k: v for k, v in row.items() if k not in REFERENCES} | {"summary": "-"}, at) for at, row in rows)
    return chain(list(islice(texts, 1)), texts)  # the first one is read before the caller opens an output


@functools.cache
def _sentence_splitter() -> Callable[[str], list[str]]:
    """NLTK's splitter where its punkt data is there, else a rule: cut after . ! or ? before a blank."""
    try:
        import nltk  # half a second, paid only by who splits

        nltk.sent_tokenize("")
        return nltk.sent_tokenize
    except (ImportError, LookupError):
        return lambda text: re.split(r"(?<=[.!?])\s+", text.strip())


def split_sentences(text: str) -> list[str]:
    """Sentences of a text: NLTK's where its punkt data is there, else cut after . ! or ? before a blank."""
    sentences, end = [], 0
    for sentence in _sentence_splitter()(text) or [text]:
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


def check_outputs(*paths: Path | None, inputs: Sequence[str | os.PathLike] = ()) -> None:
    """Make the folders of output files and try to write there: OSError before hours of work, not after them.

    Args:
        inputs: what the command reads: files, "-", run folders, data as `load` takes it.
    Raises:
        ValueError: an output, or the file that standard output goes to, is one of the inputs, or two outputs are one
            file; links and other spellings included.
    """
    taken, outputs = {_identity(file) for name in inputs for file in _files(os.fspath(name))}, [*filter(None, paths)]
    for path in ["standard output", *outputs]:
        is_file = path in outputs
        key = _identity(path if is_file else sys.stdout) or (os.path.realpath(path) if is_file else None)
        if key and key in taken:
            raise ValueError(f"{path} would be overwritten: it is an input or another output; choose another name")
        taken.add(key)
    for path in outputs:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if not path.is_file():  # /dev/null must not be replaced
                raise OSError(f"{path} is not a file")
            path.open("a").close()
        _write(f"{path}.test{os.getpid()}", "")
        os.remove(f"{path}.test{os.getpid()}")


def _files(name: str) -> Iterator[Any]:
    """The files behind an input: itself, those of a folder of data, all of a run's folder; standard input for "-"."""
    folder = Path(re.sub(r":\w+-\w+$", "", name))
    if name == "-":
        yield sys.stdin
    elif name and folder.is_dir():
        is_run, files = (folder / "config.json").exists(), [*folder.glob("*")]
        yield from (path for path in files if is_run or path.suffix not in (".json", ".csv"))  # not names of data
        yield from folder.glob("*/*") if is_run else ()
    elif name:
        yield name


def _identity(file: Any) -> tuple[int, int] | None:
    """What is the same for two names of a file on the disk, or for an open one; None for all else."""
    with contextlib.suppress(OSError, ValueError, TypeError):  # not there; of a test, or closed
        found = os.stat(file.fileno() if hasattr(file, "fileno") else os.path.realpath(file))
        if stat.S_ISREG(found.st_mode):
            return found.st_dev, found.st_ino
    return None


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write JSON under a temporary name, then rename; ValueError for NaN, which is not JSON."""
    _write(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: str | os.PathLike) -> Any:
    """What `write_json` wrote; ValueError for NaN, infinity and what is too large for a float."""
    return json.loads(Path(path).read_text(encoding="utf-8"), parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is no number of JSON's")
    return float(text)


def write_jsonl(path: str | os.PathLike, rows: Iterable[dict]) -> None:
    """Write JSON lines under a temporary name, then rename: `path` is never half-written."""
    _write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_csv(path: str | os.PathLike, rows: Iterable[dict]) -> None:
    """Write rows; {"rouge1": {"mean": 1, "low": 0}} becomes the columns rouge1_mean and rouge1_low."""
    flat = [_flat(row) for row in rows]
    text, columns = io.StringIO(), list(dict.fromkeys(column for row in flat for column in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in flat)
    _write(path, text.getvalue())


def _flat(row: dict) -> dict:
    flat = {}
    for key, value in row.items():
        flat |= {f"{key}_{k}": v for k, v in _flat(value).items()} if isinstance(value, dict) else {key: value}
    return flat


def _write(path: str | os.PathLike, text: str) -> None:
    temporary = Path(f"{os.fspath(path)}.tmp{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    except OSError as error:  # it names the temporary file
        raise type(error)(error.errno, error.strerror or str(error), os.fspath(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


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
    if sys.stdin is None:
        raise ValueError("standard input is closed: name a file")
    if isinstance(sys.stdin, io.TextIOWrapper) and sys.stdin.encoding != "utf-8-sig":
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict", newline="\n")
    return contextlib.nullcontext(sys.stdin)


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
    counts = [sum(1 for _ in _lines(path, blank=True)) for path in (one, other)]
    if counts[0] != counts[1]:
        raise ValueError(f"{one} has {counts[0]} lines, {other} has {counts[1]}: line n must translate line n")
    for (where, text), (there, translation) in zip(_lines(one, blank=True), _lines(other, blank=True), strict=True):
        if not (text.strip() and translation.strip()):
            place = there if text.strip() else where
            raise ValueError(f"{place}: empty line; remove this line from both languages")
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
    """A hub data set; line breaks separate its sentences. What is published without text is skipped and counted."""
    hub_id, config, source, target = HUB[name]
    try:
        import datasets

        rows = datasets.load_dataset(hub_id, config, split=split)
    except ImportError as error:
        raise ImportError(f"{name} is a hub data set: pip install datasets") from error
    except Exception as error:  # the hub, its client and the cache raise a dozen unrelated types
        command = f'HF_HUB_OFFLINE=0 python -c "import datasets; datasets.load_dataset({hub_id!r}, {config!r})"'
        raise ValueError(f"{name}: no {split!r} split here or in reach ({error}). To get it: {command}") from error
    skipped = 0
    try:
        for number, row in enumerate(rows):
            texts = (row.get("translation", row)[field] or "" for field in (source, target))  # samsum has a None
            document, summary = (text.splitlines() for text in texts)
            if any(map(str.strip, document)) and any(map(str.strip, summary)):
                yield f"{name}:{number}", {"id": f"{split}-{number}", "document": document, "summary": summary}
            else:
                skipped += 1
    finally:  # also when a limit ends the reading
        if skipped:
            warnings.warn(f"{name}: skipped {skipped} examples that are published without text", stacklevel=2)


def _example(row: dict, where: str) -> Example:
    """Check a row of any format and make it an Example."""
    source = next((field for field in ("document", "source", "sentences") if field in row), None)
    if source is None or not row.keys() & set(REFERENCES):
        raise ValueError(f"{where}: needs fields document and summary (or source and target), has {', '.join(row)}")
    sentences = _sentences(row[source], f"{where}: field {source!r}")
    keep, labels = [n for n, sentence in enumerate(sentences) if sentence], {}
    for field, kind in LABELS.items():
        name = "source_labels" if field == "salient" and field not in row else field
        values = _labels(row.get(name), kind, sentences, f"{where}: field {name!r}")
        labels[field] = values and [values[n] for n in keep]
    document, references, edus = [sentences[n] for n in keep], _references(row, where), _units(row, sentences, where)
    if not isinstance(title := row.get("title"), (str, type(None))):
        raise ValueError(f"{where}: field 'title' must be a string, got {str(title)[:60]}")
    return Example(str(row["id"]), document, references[0], references, edus, row.get("tree"), **labels, title=title)


def _references(row: dict, where: str) -> list[list[str]]:
    """All references of a row, each a list of sentences."""
    field = next(field for field in REFERENCES if field in row)
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
    """A string or a list of strings as a list of strings with single blanks; refused when there is no word in it."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{where} must be a string or a list of strings, got {str(value)[:60]}")
    if not any(text.strip() for text in texts):
        raise ValueError(f"{where} is empty; give it text or remove the line")
    return [" ".join(text.split()) for text in texts]


def _labels(values: Any, kind: type, texts: list[str], where: str) -> list | None:
    """None, or a label per text; for a kind like list[str] one per word, in a list or a string with blanks (GUM)."""
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != len(texts):
        got = len(values) if isinstance(values, list) else str(values)[:60]
        raise ValueError(f"{where} needs a list of {len(texts)} labels, got {got}")
    if per_word := get_args(kind):
        rows = [row.split() if isinstance(row, str) else row or [] for row in values]
        pairs = enumerate(zip(rows, texts, strict=True), start=1)
        return [_labels(row, *per_word, text.split(), f"{where}, sentence {n},") for n, (row, text) in pairs]
    if wrong := [value for value in values if not (isinstance(value, kind) or (kind is bool and value in (0, 1)))]:
        raise ValueError(f"{where} needs labels of type {kind.__name__}, got {wrong[0]!r}")
    return [kind(value) for value in values]


def _units(row: dict, sentences: list[str], where: str) -> list[str] | None:
    """The EDUs of a row, from field `edus` or the leaves of its tree, checked word by word against the sentences."""
    edus, tree = row.get("edus"), row.get("tree")
    if edus is None and tree is None:
        return None
    # The text of a leaf stands between _! and _!; RST-DT ends the last unit of a paragraph with <P>.
    leaves = [" ".join(text.split()) for text in re.findall(r"_!(.*?)(?:<P>)?_!", str(tree), re.DOTALL)]
    if tree is not None and not (isinstance(tree, str) and leaves):
        raise ValueError(f"{where}: field 'tree' must be the text of a .dis file, got no leaf in {str(tree)[:60]!r}")
    edus = _sentences(leaves if edus is None else edus, f"{where}: field 'edus'")
    if tree is not None and leaves != edus:
        raise ValueError(f"{where}: field 'edus' differs from the leaves of field 'tree'")
    found, words = " ".join(edus).split(), " ".join(sentences).split()
    if found != words:
        n = len(os.path.commonprefix([found, words]))
        differ = f"word {n + 1} on: {' '.join(found[n : n + 4])!r}, not {' '.join(words[n : n + 4])!r}"
        raise ValueError(f"{where}: the EDUs joined by blanks are not the sentences joined by blanks, from {differ}")
    return edus
