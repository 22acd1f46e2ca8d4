"""Train an extractive summariser with one of the paper's attention types on units with fixed
vectors.

python -m discourse_tree_attention.train --out runs/tree --attention d_tree

python -m discourse_tree_attention.train --out runs/mine --preset small --data FOLDER --encoder
    FOLDER --attention dot
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from shared import rouge
from shared.data import Example
from shared.run import (
    exchanged,
    in_windows,
    load_weights,
    one_line_errors,
    parse,
    says_it_reads,
    setup,
    write_weights,
)

from .config import PRESETS, TrainConfig, learning_rate
from .loading import Run, begin, load, load_run
from .model import extraction_loss
from .selection import join_units
from .text import Document, check_words, positive_weight


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same
    bits.

    ValueError: bad values or data, a folder that cannot be used, a loss that is not finite.
    """
    # D29: documents of like length share a batch. With a summed loss a batch of long documents
    # weighs more.
    made = setup(
        config,
        Path(out),
        resume,
        begin,
        load_run,
        partial(adam, config),
        len,
        partial(draw, config),
    )
    accelerator, run, model, optimizer = made[:4]
    weight = positive_weight(made.training)
    hidden = not accelerator.is_main_process or None  # None: where there is no terminal
    with made.folder as folder:
        done = folder.progress["step"]
        batches = iter(accelerator.skip_first_batches(made.loader, done))
        for step in (
            bar := tqdm(range(done, config.steps), initial=done, total=config.steps, disable=hidden)
        ):
            run.model.train()
            optimizer.param_groups[0]["lr"] = learning_rate(step, config)
            batch = next(batches)
            scores = model(batch.units, batch.keep, batch.matrix)
            # D21: of several processes the mean of their sums over units.
            loss = extraction_loss(scores, batch.labels, batch.keep, weight)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item() / batch.keep.sum().item()}
            if not math.isfinite(row["loss"]):
                raise ValueError(
                    f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint"
                )
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if row["step"] % config.save_every == 0 or row["step"] == config.steps:
                row |= validate(run, made.validation, weight)
                # Released code: of all validations the weights with the best ROUGE-2 stay, the
                # first of equal ones.
                folder.keep_best(row, partial(write_weights, run.model), "rouge2", sign=1)
                folder.save_checkpoint(row)
        folder.take_best("model.safetensors")
    if accelerator.is_main_process:
        report(made, weight, Path(out), folder.progress["log"][1:])


def adam(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """D26: Adam's second beta is the released code's, 0.999, unless a preset says 0.98; eps is 1e-9
    in both.
    """
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, config.beta2), eps=1e-9)


def draw(config: TrainConfig, name: str, split: str) -> list[Example]:
    """Section 5.2, low resource: --examples of the training documents, another draw for each
    --seed; of others all.
    """
    examples = load(name, split)
    check_words(examples)
    if split != "train":
        return examples
    places = np.random.default_rng(config.seed).permutation(len(examples))[
        : config.examples or None
    ]
    return [examples[place] for place in sorted(places.tolist())]


def validate(run: Run, documents: Sequence[Document], weight: float) -> dict[str, float]:
    """The training loss a unit, and mean ROUGE of the summaries."""
    pairs = list(in_windows(documents, list, len, run.scores, run.config.batch_size))
    scores = torch.from_numpy(np.concatenate([own for _, own in pairs]))
    labels = torch.from_numpy(np.concatenate([document.labels for document in documents]))
    loss = extraction_loss(scores, labels, torch.ones_like(labels), weight)
    texts = [join_units(one.units, one.sentence, run.extract(one, own)) for one, own in pairs]
    values = rouge.score(texts, [document.references for document in documents])
    means = {name: float(values[name].mean()) for name in ("rouge1", "rouge2", "rougeLsum")}
    return {"validation_loss": loss.item() / len(labels)} | means


def report(made, weight: float, out: Path, log: Sequence[dict]) -> None:
    """Say how the training went, whether the model reads its units and its trees, and what to do
    next.
    """
    run, best = made.run, max(log, key=lambda row: row["rouge2"])
    load_weights(run.model, out)
    taken = np.mean([document.labels.sum() for document in made.training])
    print(
        f"{out}: {log[-1]['step']} steps, best validation ROUGE-2 {best['rouge2']:.2f} at step "
        f"{best['step']}"
    )
    print(
        f"the oracle takes {taken:.1f} units of a document, a summary {run.config.count} "
        f"(--units-taken)"
    )
    print(f"validation loss {best['validation_loss']:.3f}")
    for name, documents in others(made.validation).items():
        loss = validate(run, documents, weight)["validation_loss"]
        print(f"with {name} exchanged {loss:.3f}")
        if verdict := says_it_reads(best["validation_loss"], loss):
            print(verdict if name == "units" else "the model hardly uses its trees")
    read = f"python -m {__package__}.predict {out}"
    tree = (
        " --tree FILE.dis"
        if run.config.level == "edu" or made.validation[0].matrix is not None
        else ""
    )
    print(f"next, on a text: {read} FILE.txt{tree}; with scores: {read} --split validation")


def others(documents: Sequence[Document]) -> dict[str, list[Document]]:
    """The documents with another one's unit vectors; and, for tree attention, with their units
    mixed in the tree.
    """

    # as many as it has units: the first ones, or all again and again
    def with_vectors(document, other):
        return replace(document, vectors=np.resize(other.vectors, document.vectors.shape))

    swapped = exchanged(documents, lambda document: " ".join(document.units).split(), with_vectors)
    corpora, rng = {"units": swapped} if swapped else {}, np.random.default_rng(0)
    if documents[0].matrix is not None:
        corpora["places in the tree"] = [
            replace(d, matrix=shuffle(d.matrix, rng)) for d in documents
        ]
    return corpora


def shuffle(matrix: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows and columns of an (N, N) matrix in one random order: it says nothing about its units any
    more.
    """
    order = rng.permutation(len(matrix))
    return matrix[np.ix_(order, order)]


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
