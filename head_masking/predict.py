"""Summarise with the attention of some heads on what a tagger, a person or the reference selects.

python -m head_masking.predict facebook/bart-large-cnn notes.txt --keep-words storm Norwick --both
python -m head_masking.predict runs/hm --tagger runs/tagger --data toy --out runs/masked.jsonl
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro
from torch import nn
from tqdm import tqdm

from shared import pretrained
from shared.data import Example, read
from shared.rouge import Words
from shared.run import find_device, one_line_errors, read_flags
from shared.score import system_name, write_outputs

from .config import Boundary, Positive
from .heads import find_heads, write_heads
from .labels import by_oracle, by_phrase, by_tagger, kept_text
from .loading import Run, Summarizer, load_model, load_run, name_of
from .masking import PAPER_DECODING, Heads, mask_heads
from .text import Document, encode_documents, pad, padded

WINDOW = 512  # documents that are sorted by length, so that a batch has hardly any padding


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[str]  # A BART, by its run, folder or name.
    # Text, a document a line, or .jsonl; none: standard input.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    data: str = ""  # In place of files: anything that shared.data.load takes.
    # Split of the data (none: test); without --data, of the data that the run was trained on.
    split: str = ""
    limit: Positive | None = None  # First documents only.
    # .jsonl for all that is known of each document, else a line each; none: standard output.
    out: Path | None = None
    overwrite: bool = False  # Replace that file.
    system: str = ""  # Name in the table; none: the model's and what selects, without its seed.
    words: Words = "rouge-score"  # Of ROUGE: English, or those of any script.
    batch_size: Positive = 32  # Documents decoded at a time; outputs do not depend on it.
    device: str = "cpu"  # Device of torch.
    tagger: Path | None = None  # Masked heads see the words that this tagger's run selects.
    keep_words: tuple[str, ...] = ()  # Masked heads see these words and "phrases in quotes".
    oracle: bool = False  # Masked heads see what the reference takes (Section 4.1).
    # Heads to mask: 1:0-3,2:1,3 or "top" or data of Appendix B; none: see D14 in PAPER.md.
    heads: str = ""
    threshold: Boundary | None = None  # Decision boundary; none: the tagger's own.
    min_run: Positive = 1  # Words of the shortest run that the oracle labels.
    both: bool = False  # Print the summary without masks, too, and what was kept.
    # The model's settings, or those of Appendix A.
    decoding: Literal["own", "cnn_dailymail", "nyt", "xsum"] = "own"
    beam: Positive | None = None  # Beams; none: those of --decoding.
    max_length: Positive | None = None  # Tokens of a summary, at most; none: those of --decoding.
    # Length of token sequences that never come twice; none: of --decoding.
    no_repeat_ngram_size: int | None = None

    def check(self) -> None:
        """ValueError for flags that do not go together."""
        selectors = bool(self.tagger) + bool(self.keep_words) + self.oracle
        flags = "--tagger, --keep-words and --oracle"
        if selectors > 1:
            raise ValueError(f"{flags} all say what to keep: give one of them")
        if self.heads and not selectors:
            raise ValueError(f"--heads masks nothing without one of {flags}: say what to keep")
        if self.threshold is not None and not self.tagger:
            raise ValueError("--threshold is a tagger's decision boundary: give --tagger")

    def generation(self) -> dict[str, float]:
        """What is given of the settings of `generate`."""
        flags = {
            "num_beams": self.beam,
            "max_length": self.max_length,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
        }
        given = {name: value for name, value in flags.items() if value is not None}
        return PAPER_DECODING.get(self.decoding, {}) | given


def read_documents(
    run: Summarizer,
    examples: Sequence,
    tagger: Run | None = None,
    words: Sequence[str] = (),
    oracle: bool = False,
    min_run: int = 1,
) -> list[Document]:
    """Documents as a summarizer reads them, with what masked heads may see.

    That is what the tagger selects, the words, or what the oracle labels; else nothing is masked.
    """
    sources = [example.source for example in examples]
    documents = encode_documents(run.tokenizer, sources, run.max_source)
    tagged = tagger.tag(sources) if tagger else []
    for place, (example, document) in enumerate(zip(examples, documents, strict=True)):
        was_cut = document.was_cut
        keep = document.keep
        if tagger:
            was_cut = was_cut or tagged[place].was_cut
            keep = by_tagger(example.source, tagged[place], document)
        elif oracle:
            keep = by_oracle(example.source, example.target, document, min_run)
        elif words:
            keep = by_words(example, words, document)
        documents[place] = document._replace(keep=keep, was_cut=was_cut)
    return documents


def by_words(example: Example, words: Sequence[str], document: Document) -> list[bool]:
    """True at the tokens of these words; says which a document lacks.

    Where it has none of them, all of it is kept.
    """
    keep = [False] * len(document.ids)
    absent = []
    for word in words:
        places = by_phrase(example.source, word, document)
        if not any(places):
            absent.append(word)
        keep = [is_kept or is_there for is_kept, is_there in zip(keep, places, strict=True)]
    if absent:
        said = f"{example.id} has no {', '.join(absent)} as far as the model reads"
        if not any(keep):
            said += "; nothing is masked in it"
        tqdm.write(said, file=sys.stderr)
    return keep if any(keep) else [True] * len(document.ids)


@torch.inference_mode()
def decode(
    model: nn.Module, documents: Sequence[Document], heads: Heads | None = None
) -> list[list[int]]:
    """The token ids of each summary of a batch, start token included, padding left out.

    Args:
        heads: what is masked; they see what the documents' `keep` says. None: nothing.
    """
    rows = [document.ids for document in documents]
    pad_token = model.config.pad_token_id
    ids, real = padded(rows, pad_token, model.device)
    context = nullcontext()
    if heads is not None:
        context = mask_heads(model, heads, pad([document.keep for document in documents], False))
    with context:
        summaries = model.generate(input_ids=ids, attention_mask=real.long()).tolist()
    for row in summaries:
        while row[-1] == pad_token:
            row.pop()
    return summaries


def predict(
    run: Summarizer,
    examples: Sequence,
    heads: Heads | None = None,
    both: bool = False,
    batch_size: int = 32,
    **selector,
) -> Iterator[dict]:
    """Summarise documents and yield a row of each, in their order.

    Args:
        heads: what is masked; None: nothing.
        both: decode without masks, too.
        selector: tagger, words, oracle or min_run: see `read_documents`.
    Yields:
        id, prediction, heads, kept (their text), was_cut; plain if `both`.
    """
    for start in range(0, len(examples), WINDOW):
        window = examples[start : start + WINDOW]
        documents = read_documents(run, window, **selector)
        order = sorted(range(len(documents)), key=lambda place: len(documents[place].ids))
        rows = {}
        for first in range(0, len(order), batch_size):
            places = order[first : first + batch_size]
            batch = [documents[place] for place in places]
            masked = decode(run.model, batch, heads)
            plain = decode(run.model, batch) if both else []
            for number, place in enumerate(places):
                document = documents[place]
                rows[place] = {
                    "id": window[place].id,
                    "heads": write_heads(heads or {}),
                    "was_cut": document.was_cut,
                    "kept": " ".join(kept_text(window[place].source, document)),
                    "prediction": run.text(masked[number]),
                }
                if both:
                    rows[place]["plain"] = run.text(plain[number])
        for place in range(len(window)):
            yield rows[place]


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run = load_model(options.run)
    tagger = load_run(options.tagger) if options.tagger else None
    data = options.data or (run.data if options.split else "")
    examples = read(options.files, data, options.split or "test", options.limit)
    documents = [example for example in examples if example.document]  # a blank line stays one
    if options.oracle:
        for document in documents:
            if not document.references:
                raise ValueError(f"--oracle reads references: {document.id} has none")
    pretrained.generation(run.model, run.max_target, **options.generation())

    heads = None
    if tagger or options.oracle or options.keep_words:
        heads = find_heads(options.heads, run.model, run.data, by_tagger=bool(tagger))
    system = system_name(name_of(options.run), run.seed)
    if tagger:
        system += "+" + system_name(name_of(options.tagger), tagger.config.seed)
    elif options.oracle:
        system += "+oracle"
    elif options.keep_words:
        system += "+words"

    device = find_device(options.device)
    run.model.to(device)
    if tagger:
        tagger.model.to(device)
        if options.threshold is not None:
            tagger.model.threshold.fill_(options.threshold)
    rows = predict(
        run,
        documents,
        heads,
        options.both,
        options.batch_size,
        tagger=tagger,
        words=options.keep_words,
        oracle=options.oracle,
        min_run=options.min_run,
    )
    if options.both:
        line = "plain:  {plain}\nkept:   {kept}\nmasked: {prediction}"
        rows = (values | {"line": line.format_map(values)} for values in rows)
    # D15: where there are references, ROUGE by rouge-score.
    write_outputs(
        rows,
        examples,
        system=options.system or system,
        seed=run.seed,
        out=options.out,
        overwrite=options.overwrite,
        words=options.words,
    )


if __name__ == "__main__":
    main()
