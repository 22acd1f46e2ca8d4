"""Summarise plain text with a run.

echo "A storm hit Norwick. Nobody was hurt." | python -m diminishing_attention.predict runs/pg-dim
python -m diminishing_attention.predict runs/pg-dim notes.txt --out notes.jsonl
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
import tyro
from tqdm import tqdm

from shared.data import Example, check_outputs, in_sentences, read_texts
from shared.timing import find_device

from .bertsum import BertSumExt
from .measures import ngrams, split_words
from .run import one_line_errors
from .search import Hypotheses, beam_search
from .search_released import released_search
from .train import Run, load_run

DECODING = ("beam", "length_penalty", "average", "released", "trigram_blocking", "min_length", "max_length")


@dataclass(kw_only=True)
class Decoding:
    """Flags of decoding."""

    sentences: int = 3  # sentences of an extractive summary
    beam: int | None = None  # default: the run's, as below
    length_penalty: float | None = None  # takes the place of the average
    average: bool | None = None
    released: bool | None = None
    trigram_blocking: bool | None = None
    min_length: int | None = None
    max_length: int | None = None
    batch_size: int = 16  # documents decoded at a time; outputs do not depend on it
    device: str = "cpu"

    def search(self) -> dict:
        """Those of DECODING that were given."""
        given = {name: value for name in DECODING if (value := getattr(self, name)) is not None}
        return ({"average": False} if self.length_penalty else {}) | given


@dataclass(kw_only=True)
class Options(Decoding):
    """The command line."""

    run: tyro.conf.Positional[Path]  # run folder
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # text, a document per line, or .jsonl; none: standard input
    out: Path | None = None  # a line per document, or .jsonl with all that is known; none: standard output


def decode(run: Run, examples: Sequence[Example], batch_size=16, sentences=3, **search) -> Iterator[tuple[int, str]]:
    """Summaries, decoded in batches of similar length; yields (index, text) as they are done.

    Args:
        sentences: of an extractive summary.
        search: beam, length_penalty, ...: DECODING; the run's own values by default.
    """
    options = {name: getattr(run.config, name) for name in DECODING} | search
    items, device = run.encode(examples), next(run.model.parameters()).device
    by_length = sorted(range(len(items)), key=lambda i: len(items[i].source))
    for start in range(0, len(items), batch_size):
        indices = by_length[start : start + batch_size]
        batch = run.text.collate([items[i] for i in indices], device)
        if isinstance(run.model, BertSumExt):
            chosen = [examples[i] for i in indices]
            yield from zip(indices, extract(run.model, batch, chosen, sentences, options["trigram_blocking"]))  # noqa: B905
            continue
        for i, tokens in zip(indices, search_batch(run, batch, **options).tokens, strict=True):
            yield i, run.text.decode(run.tokenizer, items[i], tokens)


def search_batch(run: Run, batch: NamedTuple, released: bool, **options) -> Hypotheses:
    """Best outputs of a batch by the search of this repository, or of the code that the run's model comes from."""
    # D10: a blocked trigram is of tokens, in BERTSum of word pieces. D21: <unk> is never written.
    options["never"] = run.text.never(run.tokenizer)
    if released:
        return released_search(run.model, batch, presumm=run.config.model != "pointer", **options)
    return beam_search(run.model, batch, **options)


@torch.inference_mode()
def extract(model: BertSumExt, batch, examples: Sequence[Example], count: int, trigram_blocking: bool) -> list[str]:
    """The `count` most probable sentences of each document in their order; with blocking, no trigram twice."""
    texts = []
    for row, keep, example in zip(model.probabilities(batch), batch.keep_sentences, examples, strict=True):
        taken, seen = [], set()
        for i in row[keep].argsort(descending=True, stable=True).tolist():
            trigrams = set(ngrams(split_words(example.document[i]), 3))
            if len(taken) < count and not (trigram_blocking and trigrams & seen):
                taken.append(i)
                seen |= trigrams
        texts.append("\n".join(example.document[i] for i in sorted(taken)))
    return texts


def decode_all(run: Run, examples: Sequence[Example], path: Path | None = None, **options) -> list[str]:
    """`decode` in the examples' order; each prediction is written to `path` as it comes."""
    texts = [""] * len(examples)
    with open(path, "w", encoding="utf-8") if path else nullcontext() as file:
        for i, text in tqdm(decode(run, examples, **options), total=len(examples), leave=False):
            texts[i], row = text, {"id": examples[i].id, "prediction": text, "reference": examples[i].target}
            if file:
                print(json.dumps(row, ensure_ascii=False), file=file, flush=True)
    return texts


def predict(run: Run, examples: Iterable[Example], batch_size: int = 16, **options) -> Iterator[dict]:
    """Summarise documents in their order, as they come.

    Args:
        options: as in `decode`.
    Yields:
        of each document id, prediction (its sentences parted by line breaks where the model knows them), was_cut.
    """
    examples = iter(examples)
    while batch := in_sentences(islice(examples, batch_size)):
        texts = dict(decode(run, batch, batch_size, **options))
        for index, (example, item) in enumerate(zip(batch, run.encode(batch), strict=True)):
            yield {"id": example.id, "prediction": texts[index], "was_cut": item.was_cut}


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = tyro.cli(Options, prog=f"python -m {__package__}.predict", description=__doc__, args=arguments,
                       config=(tyro.conf.FlagCreatePairsOff,))  # fmt: skip
    if min(options.sentences, options.batch_size) < 1:
        raise ValueError("--sentences and --batch-size must be at least 1")
    run = load_run(options.run)
    run.model.to(find_device(options.device))
    check_outputs(options.out)
    cut = 0
    with open(options.out, "w", encoding="utf-8") if options.out else nullcontext(sys.stdout) as file:
        search = options.search() | {"sentences": options.sentences}
        rows = predict(run, read_texts(options.files), options.batch_size, **search)
        for row in tqdm(rows, unit="document", disable=not options.out):
            cut += row["was_cut"]
            is_json = options.out and options.out.suffix == ".jsonl"
            line = json.dumps(row, ensure_ascii=False) if is_json else row["prediction"].replace("\n", " ")
            print(line, file=file, flush=True)
    if cut:
        print(f"{cut} documents were cut to {run.config.max_source} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
