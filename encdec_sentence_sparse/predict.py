"""Summarise texts or a data set under a selection of sentences; with references it ends with a table of scores.

python -m encdec_sentence_sparse.predict runs/apx story.txt
python -m encdec_sentence_sparse.predict facebook/bart-large-cnn news.txt --mode ideal --r 5 --min-length 0
python -m encdec_sentence_sparse.predict runs/apx --data toy --split test --r 5 --out apx.jsonl
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import torch
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

from .config import DECODING, Positive
from .selection import FULL, MODES, PHI, Selection

if TYPE_CHECKING:  # importing BART takes as long as torch: --help and a wrong flag answer without it
    from .loading import Run
    from .text import Item

WINDOW = 16  # batches whose documents are sorted by length, so that a batch has hardly any padding


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[str]  # Run folder, or a BART: its folder or its name on the hub.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # Text, a document a line, or .jsonl; none: standard input.
    data: str = ""  # In place of files: anything that shared.data.load takes.
    split: str = "test"  # Split of the data.
    limit: Positive | None = None  # First documents only. A.2: 2,000 in Figures 2 and 4
    out: Path | None = None  # FILE.jsonl gets all that is known of each document, others a line each; none: stdout.
    overwrite: bool = False  # Replace that file.
    system: str = ""  # Name in the table; none: RUN.MODE.rR, without the seed at the run's end.
    mode: Literal[("", *MODES)] = ""  # How sentences are chosen; none: approx, or ideal without a learned map.
    r: Positive | None = None  # Sentences that each step attends to; none: the run's.
    phi: Literal[tuple(PHI)] = "elu"  # Kernel of mode model_free. Appendix D
    seed: int = 0  # Seed of mode random.
    decoding: Literal[tuple(DECODING)] = "own"  # Generation settings: the model's own, or those of a corpus. A.3
    beam: Positive | None = None  # Beams; none: those of --decoding, as with the four that follow.
    length_penalty: Annotated[float, (-10, 10)] | None = None  # Exponent of the length penalty.
    min_length: int | None = None  # Least tokens of a summary; bart-large-cnn has 56, too many for a short text.
    max_length: Positive | None = None  # Most tokens of a summary.
    no_repeat_ngram_size: int | None = None  # Length of token sequences that never come twice; 0 = any may.
    batch_size: Positive = 8  # Documents decoded at a time; outputs do not depend on it.
    device: str = "cpu"  # Device of torch.

    def generation(self) -> dict:
        """Generation settings that take the place of the model's own; flags win over --decoding."""
        flags = {"num_beams": self.beam, "length_penalty": self.length_penalty, "min_length": self.min_length}
        flags |= {"max_length": self.max_length, "no_repeat_ngram_size": self.no_repeat_ngram_size}
        return DECODING[self.decoding] | {name: value for name, value in flags.items() if value is not None}


class Output(NamedTuple):
    """What decoding one document gave."""

    item: "Item"
    tokens: list[int]  # of the best summary, from the decoder's start token on
    text: str


@torch.inference_mode()
def decode(
    run: "Run", examples: Sequence[Example], selection: Selection = FULL, batch_size: int = 8
) -> Iterator[Output]:
    """Decode documents in their order, in batches of similar length, by the model's `generation_config`."""
    for start in range(0, len(examples), WINDOW * batch_size):
        items = run.encode(examples[start : start + WINDOW * batch_size])
        by_length, outputs = sorted(range(len(items)), key=lambda i: len(items[i].ids)), {}
        for first in range(0, len(items), batch_size):
            indices = by_length[first : first + batch_size]
            rows = run.model.generate(**run.collate([items[i] for i in indices]).source(), selection=selection)
            texts = run.tokenizer.batch_decode(rows, skip_special_tokens=True)
            for i, row, text in zip(indices, rows.tolist(), texts, strict=True):
                outputs[i] = Output(items[i], row, " ".join(text.split()))
        yield from (outputs[i] for i in range(len(items)))


def predict(run: "Run", examples: Sequence[Example], **options) -> Iterator[dict]:
    """Summarise documents in their order; `options` are those of `decode`.

    Yields:
        for each: id, prediction, its number of sentences (`</s>` is one, D7), and whether it was cut.
    """
    outputs = decode(run, examples, **options)
    for example, output in zip(tqdm(examples, unit="document", disable=None), outputs, strict=True):
        row = {"id": example.id, "prediction": output.text}
        yield row | {"sentences": output.item.sentence_ids[-1] + 1, "was_cut": output.item.was_cut}


def choose(run: "Run", options: Options) -> Selection:
    """The selection that the command line asks for; without a learned map the ideal one, and says so."""
    mode = options.mode or ("approx" if run.model.sentence_encoder else "ideal")
    if not options.mode and mode == "ideal":
        reason = f"no map was trained for {options.run} (train --task kl does)"
        print(f"{reason}: its own attention chooses the sentences, after reading all (--mode ideal)", file=sys.stderr)
    return Selection(mode, options.r or run.config.r, options.phi, options.seed)


def name_system(run: "Run", options: Options, selection: Selection) -> str:
    """RUN.MODE.rR, or RUN.full."""
    name = system_name(Path(options.run).resolve().name, run.config.seed)
    mode = f"model_free-{selection.phi}" if selection.mode == "model_free" else selection.mode
    return f"{name}.full" if mode == "full" else f"{name}.{mode}.r{selection.r}"


def answer(options: Options, run: "Run") -> None:
    """Do what the command line asks for, with a run."""
    run.model.to(find_device(options.device))
    pretrained.generation(run.model, run.config.max_target, **options.generation())
    examples, selection = read(options.files, options.data, options.split, options.limit), choose(run, options)
    documents = [example for example in examples if example.document]  # a blank line in is a blank line out
    rows = predict(run, documents, selection=selection, batch_size=options.batch_size)
    system = options.system or name_system(run, options, selection)
    # D20: ROUGE of rouge-score, R-L over sentences (the paper: pyrouge)
    write_outputs(rows, examples, system=system, seed=run.config.seed, out=options.out, overwrite=options.overwrite)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    from .loading import load_run_or_bart

    answer(options, load_run_or_bart(options.run))


if __name__ == "__main__":
    main()
