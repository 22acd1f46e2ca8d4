"""Trainings of controls, which the paper has not: another matrix in the tree's place.

C=discourse_tree_attention.experiments.controls
python -m $C train --control shuffled --attention d_tree --out runs/shuffled
python -m $C predict RUN --data toy --out rows.jsonl

Flags are those of `train` and `predict`.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader

from shared.run import (
    Batches,
    check,
    check_out,
    checkpoints,
    fingerprint,
    load_weights,
    one_line_errors,
    parse,
    read_config,
    read_flags,
    read_progress,
    save_checkpoint,
)

from .. import loading
from ..config import PRESETS, TrainConfig, learning_rate
from ..loading import Run, restore
from ..model import TREES, extraction_loss
from ..predict import Options, answer
from ..text import Document, check_words, positive_weight
from ..train import report, sample, validate


@dataclass(frozen=True)
class ControlConfig(TrainConfig):
    """A `TrainConfig` and what takes the place of the tree's matrix."""

    control: Literal["none", "shuffled", "previous"] = "none"  # none: the tree's own matrix.
    # Folder that keeps unit vectors for other runs, 3 kB a unit; empty = they are computed anew.
    vectors: str = ""

    def check(self) -> None:
        super().check()
        if self.control != "none" and self.attention not in TREES:
            trees = " or ".join(TREES)
            raise ValueError(
                f"a control takes the place of a tree's matrix: give --attention {trees}"
            )


def shuffled(document: Document, config: TrainConfig) -> np.ndarray:
    """The document's matrix with its units in random order: a tree that says nothing about them."""
    rng = np.random.default_rng((config.seed, *document.id.encode()))
    order = rng.permutation(len(document.matrix))
    return document.matrix[np.ix_(order, order)]


def previous(document: Document, config: TrainConfig) -> np.ndarray:
    """Each unit attends to the one before it, the first to itself; no tree is needed."""
    # D25: what of a tree's gain is the neighbour's? A unit itself gets no weight, but the first.
    matrix = np.eye(len(document.units), k=-1, dtype=np.float32)
    matrix[0, 0] = 1
    return matrix


class ControlRun(Run):
    """A run whose documents have the matrices of its config's control."""

    def encode(self, examples: Sequence) -> list[Document]:
        if self.config.control == "none":
            return super().encode(examples)
        make = {"shuffled": shuffled, "previous": previous}[self.config.control]
        config = self.config
        if make is previous:
            config = replace(config, attention="none")  # it reads no tree
        documents = Run(config, self.model, self.encoder).encode(examples)
        return [replace(document, matrix=make(document, config)) for document in documents]


def kept(encode: Callable, folder: str, texts: Sequence[str]) -> np.ndarray:
    """Vectors of all units of a corpus, (n, D), by an encoder's `encode`; kept in a folder's file.

    The file is called after the texts and, for the encoder, the vectors that it gives the first of
    them.
    """
    known = repr(texts).encode("utf-8", "surrogatepass") + encode(texts[:64]).tobytes()
    path = Path(folder, f"{hashlib.sha256(known).hexdigest()[:32]}.npy")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path.with_suffix(".unfinished.npy"), encode(texts))
        path.with_suffix(".unfinished.npy").replace(path)
    return np.load(path, mmap_mode="r")


def with_control(run: Run) -> ControlRun:
    """The same run, with its control's matrices; of --vectors with vectors that are kept."""
    if run.config.vectors:
        run.encoder.encode = partial(kept, run.encoder.encode, run.config.vectors)
    return ControlRun(*run)


def load_run(folder: str | Path) -> ControlRun:
    """A run with a control, or one of the package itself."""
    return with_control(restore(read_config(folder, ControlConfig), Path(folder)))


def train(config: ControlConfig, out: Path, resume: bool = False) -> None:
    """As `train.train`, step by step, on the control's matrices; one process."""
    from accelerate import Accelerator, DataLoaderConfiguration
    from accelerate.utils import GradientAccumulationPlugin, set_seed

    check(config)
    check_out(out, resume)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )
    set_seed(config.seed)
    examples = sample(config, loading.load(config.data, "train"))
    validation_examples = loading.load(config.data, "validation")
    check_words([*examples, *validation_examples])
    run = with_control(loading.begin(config, examples))
    set_seed(config.seed, device_specific=True)
    optimizer = torch.optim.Adam(
        run.model.parameters(), lr=0.0, betas=(0.9, config.beta2), eps=1e-9
    )
    model, optimizer = accelerator.prepare(run.model, optimizer)
    items = run.encode(examples)
    validation = run.encode(validation_examples)
    weight = positive_weight(items)
    batches = Batches([len(item) for item in items], config.seed, size=config.batch_size)
    generator = torch.Generator()
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.collate, generator=generator)
    loader = accelerator.prepare(loader)

    progress = {"data": fingerprint(examples), "log": []}
    done = 0
    if checkpoints(out):
        last = checkpoints(out)[-1]
        progress = read_progress(last, accelerator.num_processes, progress["data"])
        accelerator.load_state(str(last))
        done = progress["log"][-1]["step"]
    out.mkdir(parents=True, exist_ok=True)
    run.write_files(out)
    if done < config.steps and (out / "model.safetensors").exists():
        os.replace(out / "model.safetensors", out / "best.safetensors")
    endless = iter(accelerator.skip_first_batches(loader, done))
    for step in range(done, config.steps):
        run.model.train()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        batch = next(endless)
        scores = model(batch.units, batch.keep, batch.matrix)
        loss = extraction_loss(scores, batch.labels, batch.keep, weight)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % config.save_every == 0 or step + 1 == config.steps:
            row = {"step": step + 1, "loss": loss.item() / batch.keep.sum().item()}
            row |= validate(run, validation, weight)
            if all(row["rouge2"] > old["rouge2"] for old in progress["log"]):
                save_file(run.model.state_dict(), out / "unfinished.safetensors")
                os.replace(out / "unfinished.safetensors", out / "best.safetensors")
            progress["log"].append(row)
            save_checkpoint(accelerator, out, progress)
    if (out / "best.safetensors").exists():
        os.replace(out / "best.safetensors", out / "model.safetensors")
    load_weights(run.model, out / "model.safetensors")
    report(run, validation, weight, progress["log"], out)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    match list(sys.argv[1:] if arguments is None else arguments):
        case ["train", *flags]:
            train(*parse(flags, ControlConfig, PRESETS, __doc__))
        case ["predict", *flags]:
            options = read_flags(Options, flags, __doc__)
            answer(load_run(options.run), options)
        case _:
            raise ValueError("say train or predict, then the flags of that command")


if __name__ == "__main__":
    main()
