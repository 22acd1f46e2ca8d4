"""Cross-entropy of the references under each choice of sentences: integrated training lowers it.

python -m encdec_sentence_sparse.experiments.cross_entropy 1 test 200 RUN ... > rows.jsonl
python -m shared.score rows.jsonl --metric none --minus kl.approx.r1 --csv cross_entropy.csv

The arguments are r, a split, the number of documents, and runs. Every token is predicted from the
reference's own beginning; a row is a document, its value the mean of its tokens.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import tyro

from shared.data import Example, load, write_jsonl
from shared.run import one_line_errors
from shared.score import system_name

from ..loading import Run, load_run
from ..selection import Selection
from .mean_key import use_mean_keys


@torch.inference_mode()
def cross_entropies(run: Run, examples: Sequence[Example], selection: Selection) -> Iterator[float]:
    """Of each document the mean over its target tokens."""
    for item in run.encode(examples):
        batch = run.collate([item])
        yield run.model(**batch.source(), labels=batch.labels, selection=selection).loss.item()


def systems(run: Run, r: int) -> Iterator[tuple[str, Selection]]:
    """The choices of sentences that a run is read under; mean keys are last: they change it."""
    yield "full", Selection()
    if run.model.sentence_encoder is None:
        yield from ((f"{mode}.r{r}", Selection(mode, r)) for mode in ("ideal", "random"))
        use_mean_keys(run.model)
        yield f"mean_key.r{r}", Selection("approx", r)
    else:
        yield f"approx.r{r}", Selection("approx", r)


def main(r: int, split: str, limit: int, runs: tuple[Path, ...]) -> None:
    """R SPLIT LIMIT RUN ...: print a row for each run, choice of R sentences and document."""
    for path in runs:
        run = load_run(path)
        seed = run.config.seed
        examples = load(run.config.data, split, limit)
        for system, selection in systems(run, r):
            name = f"{system_name(path.name, seed)}.{system}"
            values = cross_entropies(run, examples, selection)
            for example, value in zip(examples, values, strict=True):
                row = {"id": example.id, "references": example.references, "cross_entropy": value}
                write_jsonl(sys.stdout, [row | {"system": name, "seed": seed, "prediction": ""}])


if __name__ == "__main__":
    one_line_errors(
        lambda words: tyro.cli(main, args=words, config=[tyro.conf.PositionalRequiredArgs])
    )()
