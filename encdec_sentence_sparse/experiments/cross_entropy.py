"""Cross-entropy of the references under each choice of sentences, in nats a token: what integrated training lowers.

python -m encdec_sentence_sparse.experiments.cross_entropy r SPLIT LIMIT RUN ... > rows.jsonl
python -m shared.score rows.jsonl --metric none --minus kl.approx.r1 --csv cross_entropy.csv

Every token is predicted from the reference's own beginning; a row is a document, its value the mean of its tokens.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.nn import functional as F

from shared.data import Example, load
from shared.run import one_line_errors
from shared.score import system_name

from ..loading import Run, load_run
from ..selection import Selection
from .mean_key import use_mean_keys


@torch.inference_mode()
def cross_entropies(run: Run, examples: Sequence[Example], selection: Selection, batch_size: int = 32) -> list[float]:
    """Of each document the mean over its target tokens."""
    items, means = run.encode(examples), []
    for start in range(0, len(items), batch_size):
        batch = run.collate(items[start : start + batch_size])
        logits = run.model(**batch.source(), labels=batch.labels, selection=selection).logits
        losses = F.cross_entropy(logits.transpose(1, 2), batch.labels, reduction="none")  # 0 at padding
        means += (losses.sum(1) / (batch.labels != -100).sum(1)).tolist()
    return means


def systems(run: Run, r: int) -> Iterator[tuple[str, Selection]]:
    """The choices of sentences that a run is read under, by name; mean keys come last, for they change the run."""
    yield "full", Selection()
    if run.model.sentence_encoder:
        yield f"approx.r{r}", Selection("approx", r)
        return
    yield from ((f"{mode}.r{r}", Selection(mode, r)) for mode in ("ideal", "random"))
    use_mean_keys(run.model)
    yield f"mean_key.r{r}", Selection("approx", r)


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    r, split, limit, *paths = arguments or sys.argv[1:]
    for path in paths:
        run = load_run(path)
        name, examples = system_name(Path(path).name, run.config.seed), load(run.config.data, split, int(limit))
        for system, selection in systems(run, int(r)):
            more = {"system": f"{name}.{system}", "seed": run.config.seed, "prediction": ""}
            for example, value in zip(examples, cross_entropies(run, examples, selection), strict=True):
                row = {"id": example.id, "references": example.references, "cross_entropy": value}
                print(json.dumps(row | more))


if __name__ == "__main__":
    main()
