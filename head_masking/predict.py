"""Summarise plain text, a document per line, with the attention of some heads on what a tagger holds to be salient.

python -m head_masking.predict runs/hm-base story.txt --tagger runs/hm-tagger --both
python -m head_masking.predict facebook/bart-large-cnn notes.txt --keep-words storm Norwick --out notes.jsonl
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import tyro

from shared.data import Example, check_outputs, read_texts
from shared.timing import find_device

from .config import Boundary
from .decode import Setting, decode, default_heads, encode, find_heads, read_documents, read_selection, tag
from .labels import Labels, Tagged
from .loading import Run, load_run, load_summarizer, name_of
from .oracle import overlaps, word_spans
from .run import Positive, at_a_time, check_fields, one_line_errors, read_flags
from .text import Document


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    model: tyro.conf.Positional[str]  # a run, or the folder or name of an encoder-decoder of transformers
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # text, a document per line, or .jsonl; none: standard input
    tagger: Path | None = None  # run of a tagger: masked heads see the words that it selects
    keep_words: tuple[str, ...] = ()  # or: masked heads see these words
    keep_spans: Path | None = None  # or: what this file says; a line per document, [[first character, end], ...]
    # 1:0-3,2:1,3, "top" (layer, all heads), data of Appendix B, or FILE.json that experiments.sweep --select wrote;
    # default: the model's, or top (D14)
    heads: str = ""
    threshold: Boundary | None = None  # decision boundary in [0, 1); default: the tagger's own
    min_keep: int = 5  # tokens that a masked head sees, at least (released code: 5)
    both: bool = False  # print the summary without masks, too, and what was kept
    out: Path | None = None  # a line per document, or .jsonl with all that is known; none: standard output
    batch_size: Positive = 8  # documents decoded at a time (at a terminal 1); outputs do not depend on it
    device: str = "cpu"  # or cuda, mps


Mark = Callable[[str], Tagged]  # a text -> what of it the masked heads may see


def predict(
    run: Run,
    examples: Iterable[Example],
    mark: Mark | None = None,
    heads: str = "",
    min_keep: int = 5,
    both: bool = False,
    batch_size: int = 8,
) -> Iterator[dict]:
    """Summarise documents in their order, as they come, under the model's own generation settings.

    Args:
        mark: called once for each document, in order; None = no head is masked.
        heads: as --heads; "" = `default_heads`.
    Yields:
        of each document id, prediction, heads (masked), kept (words they see), was_cut; plain if `both` are wanted.
    """
    examples, heads = iter(examples), find_heads(heads or default_heads(run), run.model)
    settings = {"masked": Setting("system:own", heads) if mark else Setting("plain")}
    settings |= {"plain": Setting("plain")} if both else {}
    while batch := list(islice(examples, batch_size)):
        marked = [mark(example.source) for example in batch] if mark else []
        documents = read_documents(run, batch, Labels(min_keep=min_keep), {"own": marked} if mark else {}, oracle=False)
        decoded = decode(run, documents, settings, encode(run.model, documents, batch_size))
        summaries = {(name, i): text for name, i, _, text in decoded}
        for i, (example, document) in enumerate(zip(batch, documents, strict=True)):
            keep = document.keep.get("system:own", [False] * len(document.ids))
            kept = words_at(example.source, document, keep)
            row = {"id": example.id, "prediction": summaries["masked", i], "heads": heads if mark else "", "kept": kept}
            row |= {"plain": summaries["plain", i]} if both else {}
            yield row | {"was_cut": document.was_cut or (bool(mark) and marked[i].was_cut)}


def mark_words(words: Iterable[str]) -> Mark:
    """Marks these words, in any case of letters."""
    wanted = {word.lower() for word in words}

    def mark(text: str) -> Tagged:
        spans = word_spans(text)
        return Tagged([float(text[start:end].lower() in wanted) for start, end in spans], spans, 0.5)

    return mark


def mark_spans(path: Path) -> Mark:
    """Marks the words that the next line of a file touches, [[first character, end], ...]; ValueError names a line."""
    try:
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error})") from None

    def mark(text: str) -> Tagged:
        number, line = next(lines, (0, ""))
        try:
            spans = sorted((int(start), int(end)) for start, end in json.loads(line))
            places = [0, *(place for span in spans for place in span), len(text)]
            if places != sorted(places):
                raise ValueError("outside the text, or overlapping")
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            where = f"{path}:{number}" if number else f"{path} has too few lines"
            raise ValueError(f"{where}: write [[first character, end], ...] for each document ({error})") from None
        return Tagged([1.0] * len(spans), spans, 0.5)

    return mark


def words_at(text: str, document: Document, keep: Sequence[bool]) -> list[str]:
    """The words of a text of which a kept token is a piece."""
    spans = word_spans(text)
    pairs = zip(overlaps(spans, document.offsets), keep, strict=True)
    return [text[slice(*spans[i])] for i in sorted({i for words, is_kept in pairs if is_kept for i in words})]


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.predict", description=__doc__)
    check_fields(options)
    if sum(map(bool, (options.tagger, options.keep_words, options.keep_spans))) > 1:
        raise ValueError("--tagger, --keep-words and --keep-spans all say what to keep: give one of them")
    read = [options.model, *(options.files or ["-"]), options.keep_spans or "", options.heads, options.tagger or ""]
    check_outputs(options.out, inputs=read)
    import transformers
    from tqdm import tqdm

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    device, run, mark, heads = find_device(options.device), load_summarizer(options.model), None, options.heads
    run.model.to(device)
    if heads.endswith(".json"):
        heads, _ = read_selection(heads, name_of(options.model))
    if options.tagger:
        tagger = load_run(options.tagger, "tagger")
        tagger.model.to(device)
        if options.threshold is not None:
            tagger.model.threshold.fill_(options.threshold)
        mark = lambda text: tag(tagger, [text])[0]  # noqa: E731
    elif options.keep_words:
        mark = mark_words(options.keep_words)
    elif options.keep_spans:
        mark = mark_spans(options.keep_spans)
    examples, cut = read_texts(options.files), 0
    size = at_a_time(options.files, options.batch_size)
    rows = predict(run, examples, mark, heads, options.min_keep, options.both, size)
    with open(options.out, "w", encoding="utf-8") if options.out else nullcontext(sys.stdout) as file:
        for row in tqdm(rows, unit="document", disable=not options.out):
            if options.out and options.out.suffix == ".jsonl":
                line = json.dumps(row, ensure_ascii=False)
            else:
                both = f"plain:  {row.get('plain')}\nkept:   {' '.join(row['kept'])}\nmasked: "
                line = (both if options.both else "") + row["prediction"]
            print(line, file=file, flush=True)
            cut += row["was_cut"]
    if cut:
        print(f"{cut} documents were cut to the --max-source of the model, or of the tagger", file=sys.stderr)


if __name__ == "__main__":
    main()
