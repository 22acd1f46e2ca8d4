"""A training epoch of runs over the documents that they were trained on, vectors in memory: CPU seconds side by side.

python -m discourse_tree_attention.experiments.epoch runs/gum_edu/dot-fold0-seed0 runs/gum_edu/c_tree-fold0-seed0
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import tyro

from shared.data import check_outputs, in_sentences, load, write_csv
from shared.rouge import table
from shared.timing import keep_memory, spread, time_rounds

from ..documents import Corpus, DocumentBatches, choose_documents, collate, make_documents, positive_weight, prepare
from ..evaluate import load_runs
from ..loading import Run
from ..model import extraction_loss
from ..run import Range, check_fields, one_line_errors, read_flags


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders of one corpus; ratios refer to the first
    repeats: Annotated[int, Range(3, 1000)] = 9  # timed rounds
    csv: Path | None = None


def epoch(run: Run, corpus: Corpus, weight: float) -> None:
    """Every training document once, with an update for each batch."""
    optimizer = torch.optim.Adam(run.model.train().parameters(), 1e-4)
    batches = DocumentBatches(corpus.documents, run.config.batch_size, 0)
    for indices in islice(batches, math.ceil(len(corpus.documents) / run.config.batch_size)):
        batch = collate(corpus, indices)
        loss = extraction_loss(run.model(batch.units, batch.keep, batch.matrix), batch.labels, batch.keep, weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.epoch", description=__doc__)
    check_fields(options)
    check_outputs(options.csv)
    keep_memory(), torch.set_num_threads(1)
    runs, sides = load_runs(options.runs), {}
    config = next(iter(runs.values())).config
    examples = in_sentences(example for name in config.splits("train") for example in load(config.data, name))
    documents = make_documents(examples, config)
    for name, run in runs.items():
        corpus = prepare(documents, run.config, run.encoder, run.config.cache)
        corpus = corpus.select(choose_documents(run.config, "train", len(documents)))
        sides[name] = partial(epoch, run, corpus, positive_weight(corpus.documents))
    seconds, rows = time_rounds(sides, options.repeats), []
    for name, own in seconds.items():
        corpus = sides[name].args[1]
        row = {"run": name, "documents": len(corpus.documents), "units": sum(len(d.units) for d in corpus.documents)}
        rows.append(row | {"seconds": spread(own), "first / this": spread(next(iter(seconds.values())) / own)})
    if options.csv:
        write_csv(options.csv, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
