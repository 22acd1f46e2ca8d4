"""What a document is in all five packages: `Example`, and how a row of JSON lines becomes one."""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any, get_args

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


def from_row(row: dict, where: str) -> Example:
    """Check a row of any format and make it an Example; ValueError that begins with `where` it came from."""
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
