"""Summarise with the attention of some heads on what a tagger, a person or the reference holds to be salient.

python -m head_masking.predict facebook/bart-large-cnn notes.txt --keep-words storm "port of Norwick" --both

python -m head_masking.predict runs/hm --tagger runs/tagger --data toy --split test --out masked.jsonl

Where MODEL is a tagger's run, what is written are the words that it selects.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import tyro
from torch import Tensor
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
from .heads import find_heads, write_heads
from .labels import Tagged, by_oracle, by_phrase, by_tagger, kept_text, selected_words, tagging_counts
from .loading import Run, Summarizer, load_model, load_run, name_of
from .masking import PAPER_DECODING, Heads, mask_heads
from .text import Document, by_length, encode_documents, pad

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
    min_run: Positive | None = None  # Shortest run of words that the oracle labels; none: the tagger's, or 1.
    min_keep: int = 5  # Tokens that a masked head sees, at least (released code: 5).
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


# What masked heads may see


@torch.inference_mode()
def tag(run: Run, texts: Sequence[str], batch_size: int = 32) -> list[Tagged]:
    """What a tagger says of all texts; what stands beyond its `max_source` tokens has no score."""
    documents = encode_documents(run.tokenizer, texts, run.config.max_source)
    boundary = round(run.model.threshold.item(), 4)
    tagged: list = [None] * len(texts)
    rows, device = [document.ids for document in documents], run.model.threshold.device
    for numbers, ids, keep in by_length(rows, batch_size, run.tokenizer.pad_token_id, device):
        for i, scores in zip(numbers, run.model(ids, keep).sigmoid().tolist(), strict=True):
            tagged[i] = Tagged(scores[: len(rows[i])], documents[i].offsets, boundary, documents[i].was_cut)
    return tagged


def read_documents(
    run: Summarizer,
    examples: Sequence[Example],
    tagger: Run | None = None,
    words: Sequence[str] = (),
    oracle: bool = False,
    min_run: int = 1,
    min_keep: int = 5,
) -> list[Document]:
    """Documents as a summarizer reads them, with what masked heads may see of each.

    Args:
        tagger, words, oracle: who says it, one of them; none: nothing is masked.
        min_run: words of the shortest run that the oracle labels.
        min_keep: tokens that a masked head sees, at least.
    """
    sources = [example.source for example in examples]
    documents = encode_documents(run.tokenizer, sources, run.max_source)
    if tagger:
        tagged = tag(tagger, sources)
        keeps = map(partial(by_tagger, min_keep=min_keep), sources, tagged, documents)
        documents = [d._replace(was_cut=d.was_cut or t.was_cut) for d, t in zip(documents, tagged, strict=True)]
    elif oracle:
        keeps = (by_oracle(e.source, e.target, d, min_run, min_keep) for e, d in zip(examples, documents, strict=True))
    else:
        keeps = (by_words(e, words, d) if words else () for e, d in zip(examples, documents, strict=True))
    return [document._replace(keep=keep) for document, keep in zip(documents, keeps, strict=True)]


def by_words(example: Example, words: Sequence[str], document: Document) -> list[bool]:
    """True at the tokens of these words; says which a document lacks, and keeps all of it where it has none."""
    found = {word: by_phrase(example.source, word, document) for word in words}
    if absent := [word for word in words if not any(found[word])]:
        nothing = "; nothing is masked in it" if len(absent) == len(words) else ""
        tqdm.write(f"{example.id} has no {', '.join(absent)} as far as the model reads{nothing}", file=sys.stderr)
        if nothing:
            return [True] * len(document.ids)
    return [any(labels) for labels in zip(*found.values(), strict=True)]


# Decoding


class Encoded(NamedTuple):
    """A batch as the encoder has read it."""

    numbers: list[int]  # of its documents
    keep: Tensor  # (B, S) True at real tokens
    states: Tensor  # (B, S, D)


@torch.inference_mode()
def encode(run: Summarizer, documents: Sequence[Document], batch_size: int = 32) -> Iterator[Encoded]:
    """Encode documents, those of like length together."""
    rows, padding = [document.ids for document in documents], run.model.config.pad_token_id
    for numbers, ids, keep in by_length(rows, batch_size, padding, run.model.device):
        states = run.model.get_encoder()(input_ids=ids, attention_mask=keep.long()).last_hidden_state
        yield Encoded(numbers, keep, states)


def masked(
    run: Summarizer, encoded: Encoded, documents: Sequence[Document], heads: Heads
) -> AbstractContextManager[None]:
    """The context in which these heads see what the documents of a batch keep."""
    keep = pad([documents[i].keep for i in encoded.numbers], False)
    return mask_heads(run.model, heads, keep.to(run.model.device))


@torch.inference_mode()
def decode(run: Summarizer, encoded: Encoded, context: AbstractContextManager) -> list[list[int]]:
    """The token ids of each summary of a batch, from the decoder's start token on; padding is left out."""
    from transformers.modeling_outputs import BaseModelOutput

    memory = BaseModelOutput(last_hidden_state=encoded.states)  # a new one, for `generate` repeats it for the beams
    with context:
        rows = run.model.generate(encoder_outputs=memory, attention_mask=encoded.keep.long()).tolist()
    for row in rows:
        while row[-1] == run.model.config.pad_token_id:
            row.pop()
    return rows


def predict(
    run: Summarizer, examples: Sequence[Example], heads: Heads | None = None, both=False, batch_size=32, **keeping
) -> Iterator[dict]:
    """Summarise documents in their order, under the model's generation settings.

    Args:
        heads: what is masked; None: nothing.
        both: decode without masks, too.
        keeping: what masked heads may see, as in `read_documents`.
    Yields:
        of each document id, prediction, heads (masked), kept (the text that they see), was_cut; plain if `both`.
    """
    for start in range(0, len(examples), WINDOW * batch_size):
        window = examples[start : start + WINDOW * batch_size]
        documents = read_documents(run, window, **keeping)
        yield from summarise(run, window, documents, heads, both, batch_size)


def summarise(
    run: Summarizer, examples: Sequence, documents: Sequence[Document], heads: Heads | None, both=False, batch_size=32
) -> list[dict]:
    """Rows as `predict` yields them, of documents that are read."""
    rows = [
        {"id": e.id, "heads": write_heads(heads or {}), "kept": " ".join(kept_text(e.source, d)), "was_cut": d.was_cut}
        for e, d in zip(examples, documents, strict=True)
    ]
    for encoded in encode(run, documents, batch_size):
        plain = decode(run, encoded, nullcontext()) if both or not heads else []
        outputs = {"plain": plain} if both else {}
        outputs["prediction"] = decode(run, encoded, masked(run, encoded, documents, heads)) if heads else plain
        for name, summaries in outputs.items():
            for i, tokens in zip(encoded.numbers, summaries, strict=True):
                rows[i][name] = run.text(tokens)
    return rows


def select(run: Run, examples: Sequence[Example], min_run: int = 1, batch_size: int = 32) -> Iterator[dict]:
    """The words that a tagger selects of each document and, where there are references, its counts (Section 5)."""
    for start in range(0, len(examples), WINDOW * batch_size):
        window = examples[start : start + WINDOW * batch_size]
        for example, tagged in zip(window, tag(run, [e.source for e in window], batch_size), strict=True):
            row = {"id": example.id, "prediction": selected_words(example.source, tagged), "was_cut": tagged.was_cut}
            counts = tagging_counts(tagged, example.source, example.target, min_run) if example.references else {}
            yield row | counts | {"threshold": tagged.threshold}


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
    rows, system, seed = outputs(run, tagger, documents, options)
    both = "plain:  {plain}\nkept:   {kept}\nmasked: {prediction}"
    line = (lambda row: both.format_map(row)) if options.both else None
    # D15: where there are references, ROUGE by rouge-score.
    write_outputs(rows, examples, options.system or system, seed, options.out, options.overwrite, line)


def outputs(
    run: Run | Summarizer, tagger: Run | None, examples: Sequence[Example], options: Options
) -> tuple[Iterator[dict], str, int]:
    """What the command line asks for: rows, and the name and seed of their system."""
    for selector in (each for each in (run, tagger) if isinstance(each, Run) and options.threshold is not None):
        selector.model.threshold.fill_(options.threshold)
    seed = run.config.seed if isinstance(run, Run) else run.seed
    system = system_name(name_of(options.model), seed)
    if isinstance(run, Run):
        return select(run, examples, options.min_run or run.config.min_run, options.batch_size), system, seed
    pretrained.generation(run.model, run.max_target, **options.generation())
    keeping = dict(tagger=tagger, words=options.keep_words, oracle=options.oracle, min_keep=options.min_keep)
    keeping["min_run"] = options.min_run or (tagger.config.min_run if tagger else 1)
    heads = None
    if tagger or options.keep_words or options.oracle:
        heads = find_heads(options.heads, run.model, run.data, by_tagger=bool(tagger))
        selector = system_name(name_of(options.tagger), tagger.config.seed) if tagger else "oracle" * options.oracle
        system += f"+{selector or 'words'}"
    return predict(run, examples, heads, options.both, options.batch_size, **keeping), system, seed


if __name__ == "__main__":
    main()
