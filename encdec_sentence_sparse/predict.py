"""Summarise texts or a data set under a selection of sentences; references: ends with a table.

python -m encdec_sentence_sparse.predict runs/apx story.txt
python -m encdec_sentence_sparse.predict facebook/bart-large-cnn news.txt --r 5 --min-length 0
python -m encdec_sentence_sparse.predict runs/apx --data toy --split test --r 5 --out apx.jsonl
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from shared import pretrained
from shared.data import Example, read
from shared.rouge import Words
from shared.run import find_device, one_line_errors, read_flags
from shared.score import system_name, write_outputs

from .config import DECODING, Positive
from .loading import Run, load_run_or_bart
from .selection import FULL, MODES, PHI, Selection
from .text import Item

WINDOW = 128  # documents that are sorted by length, so that a batch has hardly any padding


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[str]  # Run folder, or a BART: its folder or its name on the hub.
    # Text, a document a line, or .jsonl; none: standard input.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    data: str = ""  # In place of files: anything that shared.data.load takes.
    # Split of the data (none: test); without --data, of the data that the run was trained on.
    split: str = ""
    limit: Positive | None = None  # First documents only.
    # .jsonl for all that is known of each document, else a line each; none: standard output.
    out: Path | None = None
    overwrite: bool = False  # Replace that file.
    system: str = ""  # Name in the table; none: RUN.MODE.rR, RUN without its seed.
    words: Words = "rouge-score"  # Of ROUGE: English, or unicode, those of any script.
    batch_size: Positive = 8  # Documents decoded at a time; outputs do not depend on it.
    device: str = "cpu"  # Device of torch.
    # How sentences are chosen; none: approx, or ideal without a learned map.
    mode: Literal[("", *MODES)] = ""
    r: Positive | None = None  # Sentences that each step attends to; none: the run's.
    phi: Literal[tuple(PHI)] = "elu"  # Kernel of mode model_free. Appendix D
    seed: int = 0  # Seed of mode random.
    # Generation settings: the model's own, or those of a corpus. A.3
    decoding: Literal[tuple(DECODING)] = "own"
    beam: Positive | None = None  # Beams; none: those of --decoding, as with the four that follow.
    length_penalty: Annotated[float, (-10, 10)] | None = None  # Exponent of the length penalty.
    # Least tokens of a summary; bart-large-cnn has 56, too many for a short text.
    min_length: int | None = None
    max_length: Positive | None = None  # Most tokens of a summary.
    # Length of token sequences that never come twice; 0 = any may.
    no_repeat_ngram_size: int | None = None

    def generation(self) -> dict:
        """Generation settings that take the place of the model's own; flags win over --decoding."""
        flags = {
            "num_beams": self.beam,
            "length_penalty": self.length_penalty,
            "min_length": self.min_length,
            "max_length": self.max_length,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
        }
        given = {name: value for name, value in flags.items() if value is not None}
        return DECODING[self.decoding] | given


@torch.inference_mode()
def decode(run: Run, items: Sequence[Item], selection: Selection = FULL) -> list[list[int]]:
    """The tokens of each document's best summary, from the decoder's start token on, padded."""
    return run.model.generate(**run.collate(items).source(), selection=selection).tolist()


def predict(
    run: Run, examples: Sequence[Example], selection: Selection = FULL, batch_size: int = 8
) -> Iterator[dict]:
    """Summarise documents in their order.

    Yields:
        id, prediction, was_cut, and sentences: how many the document has, `</s>` is one (D7).
    """
    for start in range(0, len(examples), WINDOW):
        window = examples[start : start + WINDOW]
        items = run.encode(window)
        order = sorted(range(len(items)), key=lambda place: len(items[place].ids))
        texts = {}
        for first in range(0, len(items), batch_size):
            places = order[first : first + batch_size]
            summaries = decode(run, [items[place] for place in places], selection)
            for place, tokens in zip(places, summaries, strict=True):
                text = run.tokenizer.decode(tokens, skip_special_tokens=True)
                texts[place] = " ".join(text.split())
        for place, (example, item) in enumerate(zip(window, items, strict=True)):
            yield {
                "id": example.id,
                "prediction": texts[place],
                "sentences": item.sentence_ids[-1] + 1,
                "was_cut": item.was_cut,
            }


def choose(run: Run, options: Options) -> Selection:
    """The selection that the command line asks for; without a learned map the ideal one, as said.

    r is the run's, if no flag gives another.
    """
    mode = options.mode or ("approx" if run.model.sentence_encoder else "ideal")
    if not options.mode and mode == "ideal":
        print(
            f"no map was trained for {options.run} (train --task kl does): its own attention "
            f"chooses the sentences, after reading all (--mode ideal)",
            file=sys.stderr,
        )
    return Selection(mode, options.r or run.config.r, options.phi, options.seed)


def name_system(run: Run, options: Options, selection: Selection) -> str:
    """RUN.MODE.rR, or RUN.full."""
    name = system_name(Path(options.run).resolve().name, run.config.seed)
    if selection.mode == "full":
        return f"{name}.full"
    mode = f"model_free-{selection.phi}" if selection.mode == "model_free" else selection.mode
    return f"{name}.{mode}.r{selection.r}"


def answer(options: Options, run: Run) -> None:
    """Do what the command line asks for, with a run."""
    run.model.to(find_device(options.device))
    pretrained.generation(run.model, run.config.max_target, **options.generation())
    data = options.data or (run.config.data if options.split else "")
    examples = read(options.files, data, options.split or "test", options.limit)
    selection = choose(run, options)
    documents = [example for example in examples if example.document]  # a blank line stays one
    # D20: ROUGE of rouge-score, R-L over sentences (the paper: pyrouge)
    write_outputs(
        predict(run, documents, selection, options.batch_size),
        examples,
        system=options.system or name_system(run, options, selection),
        seed=run.config.seed,
        out=options.out,
        overwrite=options.overwrite,
        words=options.words,
    )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    answer(options, load_run_or_bart(options.run))


if __name__ == "__main__":
    main()
