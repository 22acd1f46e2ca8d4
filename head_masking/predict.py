"""Summarise plain text, a document per line, with the attention of some heads on what a tagger holds to be salient.

python -m head_masking.predict runs/hm-base story.txt --tagger runs/hm-tagger --both

python -m head_masking.predict facebook/bart-large-cnn notes.txt --keep-words storm "port of Norwick" --out notes.jsonl
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import tyro
from tqdm import tqdm

try:
    from shared.data import Example, open_output, read_texts
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared.run import one_line_errors, read_flags
from shared.timing import find_device

from .config import Boundary, Positive
from .decode import Setting, decode, encode, find_heads, read_documents, tag, write_heads
from .labels import Tagged
from .loading import Run, load_run, load_summarizer
from .oracle import Span, overlaps, word_spans
from .text import Document, encode_document


@dataclass
class Options:
    """The command line."""

    model: tyro.conf.Positional[str]  # A run, or the folder or name of an encoder-decoder of transformers.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # Text, a document per line, or .jsonl; none: standard input.
    tagger: Path | None = None  # Run of a tagger: masked heads see the words that it selects.
    keep_words: tuple[str, ...] = ()  # Masked heads see these words and "phrases in quotes" of each document.
    heads: str = ""  # Heads to mask: 1:0-3,2:1,3 or "top" or data of Appendix B; default: the model's own (D14).
    threshold: Boundary | None = None  # Decision boundary; default: the tagger's own.
    min_keep: int = 5  # Tokens that a masked head sees, at least (released code: 5).
    both: bool = False  # Print the summary without masks, too, and what was kept.
    out: Path | None = None  # File for a line per document, or .jsonl for all that is known; none: standard output.
    overwrite: bool = False  # Replace the file of --out if it exists.
    batch_size: Positive = 8  # Documents decoded at a time.
    device: str = "cpu"  # Device: cpu, cuda or mps.

    def check(self) -> None:
        """ValueError for flags that do not go together."""
        if self.tagger and self.keep_words:
            raise ValueError("--tagger and --keep-words both say what to keep: give one of them")
        if self.heads and not (self.tagger or self.keep_words):
            raise ValueError("--heads masks nothing without --tagger or --keep-words: say what to keep")


def predict(
    run: Run,
    examples: Sequence[Example],
    tagged: Sequence[Tagged] | None = None,
    heads: str = "",
    min_keep: int = 5,
    both: bool = False,
    batch_size: int = 8,
) -> Iterator[dict]:
    """Summarise documents in their order under the model's own generation settings.

    Args:
        tagged: what masked heads may see of each document; None = no head is masked.
        heads: as --heads.
    Yields:
        of each document id, prediction, heads (masked), kept (words they see), was_cut; plain if `both` are wanted.
    """
    chosen = find_heads(heads, run) if tagged else {}
    settings = {"prediction": Setting("own", chosen) if tagged else Setting()} | ({"plain": Setting()} if both else {})
    for start in range(0, len(examples), batch_size):
        batch = examples[start : start + batch_size]
        marks = tagged[start : start + batch_size] if tagged else []
        documents = read_documents(run, batch, {"own": marks} if tagged else {}, min_keep=min_keep)
        rows = [{"id": example.id, "heads": write_heads(chosen)} for example in batch]
        for name, i, _, text in decode(run, documents, settings, encode(run.model, documents, batch_size)):
            rows[i][name] = text
        for i, (row, example, document) in enumerate(zip(rows, batch, documents, strict=True)):
            was_cut = document.was_cut or (bool(tagged) and marks[i].was_cut)
            yield row | {"kept": kept_words(example.source, document), "was_cut": was_cut}


def kept_words(text: str, document: Document) -> list[str]:
    """The words of a text of which masked heads see a piece."""
    spans = word_spans(text)
    pairs = zip(overlaps(spans, document.offsets), document.masks.get("own", ()), strict=False)
    return [text[slice(*spans[i])] for i in sorted({i for words, is_kept in pairs if is_kept for i in words})]


def mark_words(run: Run, examples: Sequence[Example], wanted: Sequence[str]) -> list[Tagged]:
    """Mark these words and phrases, in any case of letters, in all documents, as far as the model reads them.

    ValueError: one of them stands in no document, or none of them in one: a mask for it would be of random words.
    """
    marked, present = [], set()
    for example in examples:
        end = max(end for _, end in encode_document(run.tokenizer, example.source, run.config.max_source).offsets)
        spans = word_spans(example.source[:end])
        places = {phrase: find_phrase(phrase, example.source, spans) for phrase in wanted}
        present |= {phrase for phrase in wanted if places[phrase]}
        marks = {place for of_phrase in places.values() for place in of_phrase}
        if not marks:
            words = {example.source[a:b].lower() for a, b in spans}
            near = [word for phrase in wanted for word in get_close_matches(phrase.lower(), words, 2)]
            hint = f" (perhaps {', '.join(near)})" if near else ""
            raise ValueError(f"document {example.id} has none of the words {', '.join(wanted)}{hint}: give its own")
        marked.append(Tagged([float(n in marks) for n in range(len(spans))], spans, 0.5))
    if absent := [phrase for phrase in wanted if phrase not in present]:
        raise ValueError(f"--keep-words: {absent[0]!r} stands in no document, or beyond what the model reads")
    return marked


def find_phrase(phrase: str, text: str, spans: Sequence[Span]) -> list[int]:
    """Numbers of the words of a text that are of this phrase, wherever it stands."""
    words = [text[start:end].lower() for start, end in spans]
    parts = [phrase[start:end].lower() for start, end in word_spans(phrase)]
    starts = [n for n in range(len(words)) if parts and words[n : n + len(parts)] == parts]
    return [n + k for n in starts for k in range(len(parts))]


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    device, run, tagged = find_device(options.device), load_summarizer(options.model), None
    run.model.to(device)
    tagger = load_run(options.tagger, "tagger") if options.tagger else None
    examples = read_texts(options.files)
    if tagger:
        tagger.model.to(device)
        if options.threshold is not None:
            tagger.model.threshold.fill_(options.threshold)
        tagged = tag(tagger, [example.source for example in examples], options.batch_size)
    elif options.keep_words:
        tagged = mark_words(run, examples, options.keep_words)
    cut, rows = 0, predict(run, examples, tagged, options.heads, options.min_keep, options.both, options.batch_size)
    with open_output(options.out, options.overwrite) as file:
        for row in tqdm(rows, total=len(examples), unit="document", disable=None if options.out else True):
            both = f"plain:  {row.get('plain')}\nkept:   {' '.join(row['kept'])}\nmasked: " if options.both else ""
            is_json = options.out and options.out.suffix == ".jsonl"
            line = json.dumps(row, ensure_ascii=False) if is_json else both + row["prediction"]
            print(line, file=file, flush=True)
            cut += row["was_cut"]
    if cut:
        print(f"{cut} documents were cut to the --max-source of the model, or of the tagger", file=sys.stderr)


if __name__ == "__main__":
    main()
