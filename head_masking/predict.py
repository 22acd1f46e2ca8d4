"""Summarise with the attention of some heads on what a tagger, a person or the reference holds to be salient.

python -m head_masking.predict facebook/bart-large-cnn notes.txt --keep-words storm "port of Norwick" --both

python -m head_masking.predict runs/hm --tagger runs/tagger --data toy --split test --out masked.jsonl

Where MODEL is a tagger's run, what is written are the words that it selects.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import tyro
from tqdm import tqdm

try:
    from shared.data import Example, read
except ModuleNotFoundError:
    where = "at the top of the import path (beside the outermost package)"
    sys.exit(f"error: the commands need the repository's folder `shared` {where}")
from shared import pretrained
from shared.run import find_device, one_line_errors, read_flags
from shared.score import system_name, write_outputs

from .config import Boundary, Positive
from .decoding import decode, encode
from .heads import find_heads, write_heads
from .labels import by_oracle, by_phrase, by_tagger, kept_text, selected_words, tagging_counts
from .loading import Run, Summarizer, load_model, load_run, name_of
from .masking import PAPER_DECODING, Heads
from .text import Document, encode_documents

WINDOW = 4  # batches whose documents are sorted by length, so that a batch has hardly any padding


@dataclass
class Options:
    """The command line."""

    model: tyro.conf.Positional[str]  # A BART, by its run, folder or name; or a tagger's run.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # Text, a document a line, or .jsonl; none: standard input.
    data: str = ""  # In place of files: anything that shared.data.load takes.
    split: str = "test"  # Split of the data.
    limit: Positive | None = None  # First documents only.
    out: Path | None = None  # .jsonl for all that is known of each document, else a line each; none: standard output.
    overwrite: bool = False  # Replace that file.
    system: str = ""  # Name in the table; none: the model's and what masks it, without their seeds.
    tagger: Path | None = None  # Masked heads see the words that this tagger's run selects.
    keep_words: tuple[str, ...] = ()  # Masked heads see these words and "phrases in quotes".
    oracle: bool = False  # Masked heads see what the reference takes (Section 4.1).
    heads: str = ""  # Heads to mask: 1:0-3,2:1,3 or "top" or data of Appendix B; none: see D14 in PAPER.md.
    threshold: Boundary | None = None  # Decision boundary; none: the tagger's own.
    min_run: Positive = 1  # Words of the shortest run that the oracle labels.
    both: bool = False  # Print the summary without masks, too, and what was kept.
    decoding: Literal["own", "cnn_dailymail", "nyt", "xsum"] = "own"  # The model's settings, or those of Appendix A.
    beam: Positive | None = None  # Beams; none: those of --decoding.
    max_length: Positive | None = None  # Tokens of a summary, at most; none: those of --decoding.
    no_repeat_ngram_size: int | None = None  # Length of token sequences that never come twice; none: of --decoding.
    batch_size: Positive = 32  # Documents decoded at a time; outputs do not depend on it.
    device: str = "cpu"  # Device of torch.

    def check(self) -> None:
        """ValueError for flags that do not go together."""
        if bool(self.tagger) + bool(self.keep_words) + self.oracle > 1:
            raise ValueError("--tagger, --keep-words and --oracle all say what to keep: give one of them")
        if self.heads and not (self.tagger or self.keep_words or self.oracle):
            raise ValueError("--heads masks nothing without --tagger, --keep-words or --oracle: say what to keep")

    def generation(self) -> dict[str, float]:
        """What is given of the settings of `generate`."""
        flags = dict(num_beams=self.beam, max_length=self.max_length, no_repeat_ngram_size=self.no_repeat_ngram_size)
        return PAPER_DECODING.get(self.decoding, {}) | {k: v for k, v in flags.items() if v is not None}


def read_documents(
    run: Summarizer, examples: Sequence, tagger: Run | None = None, words=(), oracle=False, min_run=1
) -> list[Document]:
    """Documents as a summarizer reads them, with what the tagger, the words or the oracle let masked heads see."""
    sources = [example.source for example in examples]
    documents = encode_documents(run.tokenizer, sources, run.max_source)
    pairs = list(zip(examples, documents, strict=True))
    if tagger:
        triples = zip(sources, tagger.tag(sources), documents, strict=True)
        return [d._replace(keep=by_tagger(s, t, d), was_cut=d.was_cut or t.was_cut) for s, t, d in triples]
    if oracle:
        return [d._replace(keep=by_oracle(e.source, e.target, d, min_run)) for e, d in pairs]
    return [d._replace(keep=by_words(e, words, d)) for e, d in pairs] if words else documents


def by_words(example: Example, words: Sequence[str], document: Document) -> list[bool]:
    """True at the tokens of these words; says which a document lacks, and keeps all of it where it has none."""
    found = {word: by_phrase(example.source, word, document) for word in words}
    if absent := [word for word in words if not any(found[word])]:
        nothing = "; nothing is masked in it" if len(absent) == len(words) else ""
        tqdm.write(f"{example.id} has no {', '.join(absent)} as far as the model reads{nothing}", file=sys.stderr)
        if nothing:
            return [True] * len(document.ids)
    return [any(labels) for labels in zip(*found.values(), strict=True)]


def predict(
    run: Summarizer, examples: Sequence, reading: Callable, heads: Heads | None = None, both=False, batch_size=32
) -> Iterator[dict]:
    """Summarise documents in their order: of each id, prediction, heads, kept (their text), was_cut; plain if `both`.

    Args:
        reading: examples -> documents, with what masked heads may see.
        heads: what is masked; None: nothing.
    """
    for start in range(0, len(examples), WINDOW * batch_size):
        window = examples[start : start + WINDOW * batch_size]
        documents, rows = reading(window), []
        for example, document in zip(window, documents, strict=True):
            row = {"id": example.id, "heads": write_heads(heads or {}), "was_cut": document.was_cut}
            rows.append(row | {"kept": " ".join(kept_text(example.source, document))})
        for encoded in encode(run.model, documents, batch_size):
            outputs = {"plain": decode(run.model, encoded)} if both else {}
            outputs["prediction"] = decode(run.model, encoded, documents, heads)
            for name, summaries in outputs.items():
                for i, tokens in zip(encoded.numbers, summaries, strict=True):
                    rows[i][name] = run.text(tokens)
        yield from rows


def select(run: Run, examples: Sequence[Example], batch_size: int = 32) -> Iterator[dict]:
    """The words that a tagger selects of each document and, where there are references, its counts (Section 5)."""
    for start in range(0, len(examples), WINDOW * batch_size):
        window = examples[start : start + WINDOW * batch_size]
        for example, tagged in zip(window, run.tag([e.source for e in window], batch_size), strict=True):
            row = {"id": example.id, "prediction": selected_words(example.source, tagged), "was_cut": tagged.was_cut}
            if example.references:
                row |= tagging_counts(tagged, example.source, example.target, run.config.min_run)
            yield row | {"threshold": tagged.threshold}


def outputs(
    run: Run | Summarizer, tagger: Run | None, examples: Sequence[Example], options: Options
) -> tuple[Iterator[dict], str]:
    """What the command line asks for: rows, and the name of their system."""
    name = system_name(name_of(options.model), run.seed)
    if isinstance(run, Run):
        return select(run, examples, options.batch_size), name
    pretrained.generation(run.model, run.max_target, **options.generation())
    selector = "+oracle" if options.oracle else "+words" if options.keep_words else ""
    if tagger:
        selector = "+" + system_name(name_of(options.tagger), tagger.seed)
    heads = find_heads(options.heads, run.model, run.data, by_tagger=bool(tagger)) if selector else None
    asked = dict(tagger=tagger, words=options.keep_words, oracle=options.oracle, min_run=options.min_run)
    rows = predict(run, examples, partial(read_documents, run, **asked), heads, options.both, options.batch_size)
    return rows, name + selector


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run, device = load_model(options.model), find_device(options.device)
    tagger = load_run(options.tagger) if options.tagger else None
    if isinstance(run, Run) and (tagger or options.keep_words or options.oracle or options.both):
        raise ValueError(f"{options.model} is a tagger's run, which selects words: give a summariser to mask")
    examples = read(options.files, options.data, options.split, options.limit)
    documents = [example for example in examples if example.document]  # a blank line in is a blank line out
    if options.oracle and (lacking := [document.id for document in documents if not document.references]):
        raise ValueError(f"--oracle reads references: {lacking[0]} has none")
    for each in filter(None, (run, tagger)):
        each.model.to(device)
        if isinstance(each, Run) and options.threshold is not None:
            each.model.threshold.fill_(options.threshold)
    rows, system = outputs(run, tagger, documents, options)
    line = "plain:  {plain}\nkept:   {kept}\nmasked: {prediction}".format_map if options.both else None
    # D15: where there are references, ROUGE by rouge-score.
    write_outputs(rows, examples, options.system or system, run.seed, options.out, options.overwrite, line)


if __name__ == "__main__":
    main()
