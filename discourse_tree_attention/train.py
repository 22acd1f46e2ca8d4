"""Train an extractive summariser with one of the paper's attention types on units with fixed vectors.

python -m discourse_tree_attention.train --out runs/tree --attention d_tree

python -m discourse_tree_attention.train --out runs/mine --preset small --data FOLDER --encoder FOLDER --attention dot
"""

import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_model
from torch.utils.data import DataLoader
from tqdm import tqdm

try:
    from shared.data import Example, in_sentences
except ModuleNotFoundError:
    where = "at the top of the import path (beside the outermost package)"
    sys.exit(f"error: the commands need the repository's folder `shared` {where}")
from shared import rouge
from shared.run import (
    RunFolder,
    check,
    check_folder,
    load_weights,
    new_accelerator,
    one_line_errors,
    parse,
    says_it_reads,
    training,
)

from .config import PRESETS, TrainConfig, learning_rate
from .loading import Run, begin, load, load_run
from .model import TREES, extraction_loss
from .predict import extract, score_documents, summary
from .text import Document, DocumentBatches, collate, positive_weight, read_corpus


def start(config: TrainConfig, out: Path, resume: bool, matrix_of: Callable | None = None) -> tuple:
    """Set up a training; ValueError for bad values or data, or a folder that cannot be used.

    Returns:
        accelerator, run, its model as accelerate wraps it, optimizer, loader, weight of the units that a summary takes,
        validation documents, run folder to lock.
    """
    from accelerate.utils import set_seed  # here, for --help answers without it

    check(config)
    begun, accelerator = check_folder(out, resume), new_accelerator(config)
    control, mark = matrix_of.__name__ if matrix_of else "", out / "control"
    if control and config.attention not in TREES:
        raise ValueError(f"a control takes the place of a tree's matrix: give --attention {' or '.join(TREES)}")
    if begun and (mark.read_text() if mark.exists() else "") != control:
        raise ValueError(f"{out} is another control, or none: go on with the command that began it")
    set_seed(config.seed)
    data = {"training": draw(load(config.data, "train"), config), "validation": load(config.data, "validation")}
    data = {name: in_sentences(examples) for name, examples in data.items()}
    rouge.check_references(data["validation"])
    run = load_run(out) if begun else begin(config, data["training"])
    settings = config, run.encoder.to(accelerator.device), out.parent / ".vectors", matrix_of
    with accelerator.main_process_first():  # the others find its unit vectors
        documents, validation = (read_corpus(examples, *settings) for examples in data.values())
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    batches, generator = DocumentBatches(documents, config.batch_size, config.seed), torch.Generator()
    loader = DataLoader(documents, batch_sampler=batches, collate_fn=collate, generator=generator)
    # D26: Adam's second beta is the released code's, 0.999, unless a preset says 0.98; eps is 1e-9 in both.
    optimizer = torch.optim.Adam(run.model.parameters(), lr=0.0, betas=(0.9, config.beta2), eps=1e-9)
    model, optimizer, loader = accelerator.prepare(run.model, optimizer, loader)
    weight = positive_weight(documents)
    oracle = float(np.mean([document.labels.sum() for document in documents]))
    first = {"step": 0, "documents": len(documents), "documents_cut": sum(d.was_cut for d in documents)}
    first |= {"oracle_units": oracle, "positive_weight": weight}

    def write_files(folder: Path) -> None:
        run.write_files(folder)
        if control:
            mark.write_text(control)  # `predict` reads the true trees

    folder = training(accelerator, out, config, write_files, begun, data, first, best=-1.0)
    return accelerator, run, model, optimizer, loader, weight, validation, folder


def train(config: TrainConfig, out: str | Path, resume: bool = False, matrix_of: Callable | None = None) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    `matrix_of`: see `read_corpus`. ValueError: what `start` refuses; a loss that is not finite.
    """
    accelerator, run, model, optimizer, loader, weight, validation, locked = start(config, Path(out), resume, matrix_of)
    hidden = None if accelerator.is_main_process else True  # None: where there is no terminal
    with locked as folder, tqdm(total=config.steps, initial=folder.progress["step"], disable=hidden) as bar:
        done = folder.progress["step"]
        batches = iter(accelerator.skip_first_batches(loader, done))
        for step in range(done, config.steps):
            model.train()
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
                row |= validate(run, validation, weight)
                keep_best(folder, run, row)
                folder.save_checkpoint(row)
        finish(folder)
    if accelerator.is_main_process:
        report(run, validation, weight, folder)


def draw(examples: Sequence[Example], config: TrainConfig) -> list[Example]:
    """Section 5.2, low resource: --examples of the training documents, another draw for each --seed."""
    if not config.examples:
        return list(examples)
    places = np.random.default_rng(config.seed).permutation(len(examples))[: config.examples]
    return [examples[place] for place in sorted(places.tolist())]


def validate(run: Run, documents: Sequence[Document], weight: float) -> dict:
    """Loss a unit, and mean ROUGE of the summaries."""
    scores = score_documents(run.model, documents)
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


def keep_best(folder: RunFolder, run: Run, row: dict) -> None:
    """Of all validations the weights with the best ROUGE-2 stay, the first of equal ones (released code)."""
    if row["rouge2"] > folder.progress["best"]:
        folder.progress["best"] = row["rouge2"]
        folder.write("best.safetensors", partial(save_model, run.model))


def finish(folder: RunFolder) -> None:
    """Call the best weights model.safetensors."""
    if (best := folder.path / "best.safetensors").exists():
        folder.write("model.safetensors", partial(shutil.copyfile, best))
        if folder.accelerator.is_main_process:
            best.unlink()


def report(run: Run, validation: list[Document], weight: float, folder: RunFolder) -> None:
    """Say how the training went, whether the model reads its units and its trees, and what to do next."""
    first, *log = folder.progress["log"]
    best, (out, config) = max(log, key=lambda row: row["rouge2"]), (folder.path, run.config)
    load_weights(run.model, out)
    print(f"{out}: {log[-1]['step']} steps, best validation ROUGE-2 {best['rouge2']:.2f} at step {best['step']}")
    print(f"the oracle takes {first['oracle_units']:.1f} units of a document, a summary {config.count} (--units-taken)")
    losses = {name: mean_loss(own, score_documents(run.model, own), weight) for name, own in others(validation).items()}
    said = "".join(f"; with {name} exchanged {loss:.3f}" for name, loss in losses.items())
    print(f"validation loss {best['validation_loss']:.3f}{said}")
    for name, loss in losses.items():
        if verdict := says_it_reads(best["validation_loss"], loss):
            print(verdict if name == "units" else "the model hardly uses its trees")
    if first["documents_cut"]:
        print(f"{first['documents_cut']} of {first['documents']} training documents were cut to what it can read")
    command = "experiments.controls predict" if (out / "control").exists() else "predict"
    print(f"next: python -m {__package__}.{command} {out} --data {config.data} --split test")


def others(documents: Sequence[Document]) -> dict[str, list[Document]]:
    """The documents with the next one's unit vectors; and, for tree attention, with their units mixed in the tree."""
    corpora, rng = {}, np.random.default_rng(0)
    if len(documents) > 1:
        pairs = zip(documents, [*documents[1:], documents[0]], strict=True)
        # As many vectors as units: the first ones, or all of them again and again.
        corpora["units"] = [replace(d, vectors=np.resize(other.vectors, d.vectors.shape)) for d, other in pairs]
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
