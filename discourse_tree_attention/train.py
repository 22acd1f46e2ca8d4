"""Train an extractive summariser with one of the paper's attention types on units with fixed vectors.

python -m discourse_tree_attention.train --out runs/tree --attention d_tree

python -m discourse_tree_attention.train --out runs/mine --preset small --data FOLDER --encoder FOLDER --attention dot
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
from shared.data import Example, in_sentences
from shared.run import RunFolder, exchanged, load_weights, one_line_errors, parse, says_it_reads, setup, write_weights

from .config import PRESETS, TrainConfig, learning_rate
from .loading import Run, begin, load, load_run
from .model import extraction_loss
from .predict import extract, score_documents, summary, units
from .text import Document, positive_weight


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    ValueError: bad values or data, a folder that cannot be used, a loss that is not finite.
    """
    # D29: documents of like length share a batch. With a summed loss a batch of long documents weighs more.
    how = dict(optimizer=partial(adam, config), length=units, load=partial(examples_of, config))
    made = setup(config, Path(out), resume, begin, load_run, **how)
    accelerator, run, model, optimizer = made[:4]
    weight = positive_weight(made.training)
    hidden = None if accelerator.is_main_process else True  # None: where there is no terminal
    with made.folder as folder, tqdm(total=config.steps, initial=folder.progress["step"], disable=hidden) as bar:
        done = folder.progress["step"]
        batches = iter(accelerator.skip_first_batches(made.loader, done))
        for step in range(done, config.steps):
            run.model.train()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            batch = next(batches)
            scores = model(batch.units, batch.keep, batch.matrix)
            # D21: of several processes the mean of their sums over units.
            loss = extraction_loss(scores, batch.labels, batch.keep, weight)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item() / batch.keep.sum().item()}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if row["step"] % config.save_every == 0 or row["step"] == config.steps:
                row |= validate(run, made.validation, weight)
                # Released code: of all validations the weights with the best ROUGE-2 stay, the first of equal ones.
                folder.keep_best(row, partial(write_weights, run.model), "rouge2", sign=1)
                folder.save_checkpoint(row)
        folder.take_best("model.safetensors")
    if accelerator.is_main_process:
        report(run, made.training, made.validation, weight, folder)


def adam(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """D26: Adam's second beta is the released code's, 0.999, unless a preset says 0.98; eps is 1e-9 in both."""
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, config.beta2), eps=1e-9)


def examples_of(config: TrainConfig, name: str, split: str) -> list[Example]:
    """The training examples that the config draws, or those of another split, by whose ROUGE-2 the weights are chosen.

    ValueError: a reference that ROUGE cannot read.
    """
    examples = in_sentences(load(name, split))
    if split == "train":
        return draw(examples, config)
    rouge.check_references(examples)
    return examples


def draw(examples: Sequence[Example], config: TrainConfig) -> list[Example]:
    """Section 5.2, low resource: --examples of the training documents, another draw for each --seed."""
    places = np.random.default_rng(config.seed).permutation(len(examples))[: config.examples or None]
    return [examples[place] for place in sorted(places.tolist())]


def validate(run: Run, documents: Sequence[Document], weight: float) -> dict:
    """Loss a unit, and mean ROUGE of the summaries."""
    scores = score_documents(run, documents)
    row = {"validation_loss": mean_loss(documents, scores, weight)}
    pairs = zip(documents, scores, strict=True)
    texts = [summary(document, extract(document, own, run.config)) for document, own in pairs]
    values = rouge.score(texts, [document.references for document in documents])
    return row | {metric: float(values[metric].mean()) for metric in ("rouge1", "rouge2", "rougeLsum")}


def mean_loss(documents: Sequence[Document], scores: Sequence[np.ndarray], weight: float) -> float:
    """The training loss a unit, of the (N,) scores of some documents."""
    labels = torch.from_numpy(np.concatenate([document.labels for document in documents]))
    every, scores = torch.ones_like(labels), torch.from_numpy(np.concatenate(scores))
    return extraction_loss(scores, labels, every, weight).item() / len(labels)


def report(run: Run, training: Sequence[Document], validation: list[Document], weight: float, folder: RunFolder):
    """Say how the training went, whether the model reads its units and its trees, and what to do next."""
    log, (out, config) = folder.progress["log"][1:], (folder.path, run.config)
    best, oracle = max(log, key=lambda row: row["rouge2"]), np.mean([document.labels.sum() for document in training])
    load_weights(run.model, out)
    print(f"{out}: {log[-1]['step']} steps, best validation ROUGE-2 {best['rouge2']:.2f} at step {best['step']}")
    print(f"the oracle takes {oracle:.1f} units of a document, a summary {config.count} (--units-taken)")
    losses = {name: mean_loss(own, score_documents(run, own), weight) for name, own in others(validation).items()}
    said = "".join(f"; with {name} exchanged {loss:.3f}" for name, loss in losses.items())
    print(f"validation loss {best['validation_loss']:.3f}{said}")
    for name, loss in losses.items():
        if verdict := says_it_reads(best["validation_loss"], loss):
            print(verdict if name == "units" else "the model hardly uses its trees")
    read = f"python -m {__package__}.predict {out}"
    tree = " --tree FILE.dis" if config.level == "edu" or validation[0].matrix is not None else ""
    print(f"next, on a text: {read} FILE.txt{tree}; with scores: {read} --split validation")


def others(documents: Sequence[Document]) -> dict[str, list[Document]]:
    """The documents with another one's unit vectors; and, for tree attention, with their units mixed in the tree."""
    # As many vectors as units: the first ones, or all of them again and again.
    swapped = exchanged(
        documents,
        lambda document: " ".join(document.units).split(),
        lambda document, other: replace(document, vectors=np.resize(other.vectors, document.vectors.shape)),
    )
    corpora, rng = {"units": swapped} if swapped else {}, np.random.default_rng(0)
    if documents[0].matrix is not None:
        corpora["places in the tree"] = [replace(d, matrix=shuffle(d.matrix, rng)) for d in documents]
    return corpora


def shuffle(matrix: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows and columns of an (N, N) matrix in one random order: it says nothing about its units any more."""
    order = rng.permutation(len(matrix))
    return matrix[np.ix_(order, order)]


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
