"""Summarise with the attention of some heads on what a tagger, a person or the reference holds to
be salient.

python -m head_masking.predict facebook/bart-large-cnn notes.txt --keep-words storm "port of
    Norwick" --both

python -m head_masking.predict runs/hm --tagger runs/tagger --data toy --split test --out
    masked.jsonl
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch
import tyro
from torch import nn
from tqdm import tqdm

from shared import pretrained
from shared.data import Example
from shared.run import DecodingFlags, find_device, in_windows, one_line_errors, read_flags
from shared.score import system_name, write_outputs

from .config import Boundary, Positive
from .heads import find_heads, write_heads
from .labels import by_oracle, by_phrase, by_tagger, kept_text
from .loading import Run, Summarizer, load_model, load_run, name_of
from .masking import PAPER_DECODING, Heads, mask_heads
from .text import Document, encode_documents, length, pad, padded


@dataclass
class Options(DecodingFlags):
    """The command line."""

    run: tyro.conf.Positional[str]  # A BART, by its run, folder or name.
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
        if bool(self.tagger) + bool(self.keep_words) + self.oracle > 1:
            raise ValueError(
                "--tagger, --keep-words and --oracle all say what to keep: give one of them"
            )
        if self.heads and not (self.tagger or self.keep_words or self.oracle):
            raise ValueError(
                "--heads masks nothing without --tagger, --keep-words or --oracle: say what to keep"
            )

    def generation(self) -> dict[str, float]:
        """What is given of the settings of `generate`."""
        flags = dict(
            num_beams=self.beam,
            max_length=self.max_length,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
        )
        return PAPER_DECODING.get(self.decoding, {}) | {
            k: v for k, v in flags.items() if v is not None
        }


def read_documents(
    run: Summarizer,
    examples: Sequence,
    tagger: Run | None = None,
    words=(),
    oracle=False,
    min_run=1,
) -> list[Document]:
    """Documents as a summarizer reads them, with what the tagger, the words or the oracle let
    masked heads see.
    """
    sources = [example.source for example in examples]
    documents = encode_documents(run.tokenizer, sources, run.max_source)
    pairs = list(zip(examples, documents, strict=True))
    if tagger:
        triples = zip(sources, tagger.tag(sources), documents, strict=True)
        return [
            d._replace(keep=by_tagger(s, t, d), was_cut=d.was_cut or t.was_cut)
            for s, t, d in triples
        ]
    if oracle:
        return [d._replace(keep=by_oracle(e.source, e.target, d, min_run)) for e, d in pairs]
    return [d._replace(keep=by_words(e, words, d)) for e, d in pairs] if words else documents


def by_words(example: Example, words: Sequence[str], document: Document) -> list[bool]:
    """True at the tokens of these words; says which a document lacks, and keeps all of it where it
    has none.
    """
    found = {word: by_phrase(example.source, word, document) for word in words}
    if absent := [word for word in words if not any(found[word])]:
        nothing = "; nothing is masked in it" if len(absent) == len(words) else ""
        tqdm.write(
            f"{example.id} has no {', '.join(absent)} as far as the model reads{nothing}",
            file=sys.stderr,
        )
        if nothing:
            return [True] * len(document.ids)
    return [any(labels) for labels in zip(*found.values(), strict=True)]


@torch.inference_mode()
def decode(
    model: nn.Module, documents: Sequence[Document], heads: Heads | None = None
) -> list[list[int]]:
    """The token ids of each summary of a batch, from the decoder's start token on; padding is left
    out.

    `heads` see what the documents' `keep` says; without heads nothing is masked.
    """
    ids, real = padded(
        [document.ids for document in documents], model.config.pad_token_id, model.device
    )
    context = nullcontext()
    if heads is not None:
        context = mask_heads(model, heads, pad([document.keep for document in documents], False))
    with context:
        rows = model.generate(input_ids=ids, attention_mask=real.long()).tolist()
    for row in rows:
        while row[-1] == model.config.pad_token_id:
            row.pop()
    return rows


def predict(
    run: Summarizer,
    examples: Sequence,
    reading: Callable,
    heads: Heads | None = None,
    both=False,
    batch_size=32,
) -> Iterator[dict]:
    """Summarise documents in their order: of each id, prediction, heads, kept (their text),
    was_cut; plain if `both`.

    Args:
        reading: examples -> documents, with what masked heads may see.
        heads: what is masked; None: nothing.
    """

    def summarise(documents: Sequence[Document]) -> list[dict]:
        rows = [{"prediction": run.text(tokens)} for tokens in decode(run.model, documents, heads)]
        for row, tokens in zip(rows, decode(run.model, documents) if both else (), strict=both):
            row["plain"] = run.text(tokens)
        return rows

    decoded = in_windows(examples, reading, length, summarise, batch_size)
    for example, (document, summaries) in zip(examples, decoded, strict=True):
        row = {"id": example.id, "heads": write_heads(heads or {}), "was_cut": document.was_cut}
        yield row | {"kept": " ".join(kept_text(example.source, document))} | summaries


def masked(
    run: Summarizer, tagger: Run | None, examples: Sequence[Example], options: Options
) -> tuple[Iterator[dict], str]:
    """What the command line asks for: rows, and the name of their system."""
    pretrained.generation(run.model, run.max_target, **options.generation())
    selector = "+oracle" if options.oracle else "+words" if options.keep_words else ""
    if tagger:
        selector = "+" + system_name(name_of(options.tagger), tagger.config.seed)
    heads = (
        find_heads(options.heads, run.model, run.data, by_tagger=bool(tagger)) if selector else None
    )
    asked = dict(
        tagger=tagger, words=options.keep_words, oracle=options.oracle, min_run=options.min_run
    )
    rows = predict(
        run,
        examples,
        partial(read_documents, run, **asked),
        heads,
        options.both,
        options.batch_size,
    )
    return rows, system_name(name_of(options.run), run.seed) + selector


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run, device = load_model(options.run), find_device(options.device)
    run.model.to(device)
    tagger = load_run(options.tagger) if options.tagger else None
    if tagger:
        tagger.model.to(device)
        tagger.model.threshold.fill_(
            options.threshold if options.threshold is not None else tagger.model.threshold
        )
    examples = options.read(run.data)
    # a blank line in is a blank line out
    documents = [example for example in examples if example.document]
    if options.oracle and (
        lacking := [document.id for document in documents if not document.references]
    ):
        raise ValueError(f"--oracle reads references: {lacking[0]} has none")
    rows, system = masked(run, tagger, documents, options)
    line = (
        "plain:  {plain}\nkept:   {kept}\nmasked: {prediction}".format_map if options.both else None
    )
    # D15: where there are references, ROUGE by rouge-score.
    write_outputs(
        rows, examples, options.system or system, run.seed, options.out, options.overwrite, line
    )


if __name__ == "__main__":
    main()
