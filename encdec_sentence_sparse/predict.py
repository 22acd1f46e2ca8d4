"""Summarise plain text with a run or any BART, under a selection of sentences.

python -m encdec_sentence_sparse.predict runs/sparse-apx story.txt
python -m encdec_sentence_sparse.predict facebook/bart-large-cnn news.txt --mode mean_key --r 5 --min-length 0
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
import tyro
from tqdm import tqdm

from shared.data import Example, check_outputs, read_texts
from shared.timing import find_device

from .evaluate import check_generation, load_run_or_bart
from .run import one_line_errors
from .selection import MODES, Selection
from .sentences import RULES
from .text import collate
from .train import Run, encode_examples, quiet


@dataclass
class Options:
    """The command line."""

    model: tyro.conf.Positional[str]  # run folder, or a BART: its folder or its name on the hub
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # text, a document per line, or .jsonl; none: standard input
    out: Path | None = None  # a line per document, or .jsonl with all that is known; none: standard output
    mode: Literal[("", *MODES)] = ""  # how sentences are chosen; default: approx, or mean_key without an approximator
    r: int | None = None  # sentences that each step attends to; default: the run's
    sentences: Literal[RULES] = "given"  # how a BART's documents are split: a line by NLTK where its data is there
    beam: int | None = None  # default: the model's own, as the two that follow
    min_length: int | None = None  # tokens; bart-large-cnn has 56, too many for a short text
    max_length: int | None = None  # tokens
    batch_size: int = 8  # documents decoded at a time; outputs do not depend on it
    device: str = "cpu"


@torch.inference_mode()
def predict(
    run: Run, examples: Iterable[Example], selection: Selection, batch_size: int = 8, **generation
) -> Iterator[dict]:
    """Summarise documents in their order, as they come, with `generation` in place of the model's own settings.

    Yields:
        of each document id, prediction, its number of sentences, and was_cut.
    """
    run.model.selection = selection
    examples = iter(examples)
    while batch := list(islice(examples, batch_size)):
        items = list(encode_examples(batch, run))
        source = collate(items, run.model.config.pad_token_id).to(run.model.device).source()
        rows = run.model.generate(**source, do_sample=False, **generation)
        texts = run.tokenizer.batch_decode(rows, skip_special_tokens=True)
        for example, item, text in zip(batch, items, texts, strict=True):
            row = {"id": example.id, "prediction": " ".join(text.split())}
            yield row | {"sentences": item.sentence_ids[-1] + 1, "was_cut": item.was_cut}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.predict", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    quiet()
    if options.batch_size < 1:
        raise ValueError("--batch-size must be at least 1")
    run = load_run_or_bart(options.model, options.sentences)
    run.model.to(find_device(options.device))
    mode = options.mode or ("approx" if run.model.sentence_encoder else "mean_key")
    selection = Selection(mode, run.config.r if options.r is None else options.r)
    flags = {"num_beams": options.beam, "min_length": options.min_length, "max_length": options.max_length}
    generation = {name: value for name, value in flags.items() if value is not None}
    check_generation(options.model, run, generation)
    check_outputs(options.out)
    cut, is_json = 0, options.out and options.out.suffix == ".jsonl"
    with open(options.out, "w", encoding="utf-8") if options.out else nullcontext(sys.stdout) as file:
        rows = predict(run, read_texts(options.files), selection, options.batch_size, **generation)
        for row in tqdm(rows, unit="document", disable=not options.out):
            print(json.dumps(row, ensure_ascii=False) if is_json else row["prediction"], file=file, flush=True)
            cut += row["was_cut"]
    if cut:
        print(f"{cut} documents were cut to the model's {run.config.max_source} tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
