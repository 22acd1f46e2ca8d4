"""Many trainings on one corpus, also of controls, which the paper has not: another matrix in the
tree's place.

python -m discourse_tree_attention.experiments.controls train --control shuffled --attention d_tree
    --out runs/shuffled

python -m discourse_tree_attention.experiments.controls predict RUN --data toy --out rows.jsonl

Flags are those of `train` and `predict`.
"""

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from shared.run import one_line_errors, parse, read_flags, setup, write_weights

from .. import loading
from ..config import PRESETS, TrainConfig, learning_rate
from ..loading import Run
from ..model import TREES, extraction_loss
from ..predict import Options, answer
from ..text import Document, positive_weight
from ..train import adam, draw, report, shuffle, validate


@dataclass(frozen=True)
class ControlConfig(TrainConfig):
    """A `TrainConfig` and what takes the place of the tree's matrix."""

    control: Literal["none", "shuffled", "previous"] = "none"  # none: the tree's own matrix.
    # Folder that keeps unit vectors for other runs, 3 kB a unit; empty = they are computed anew.
    vectors: str = ""

    def check(self) -> None:
        super().check()
        if self.control != "none" and self.attention not in TREES:
            raise ValueError(
                f"a control takes the place of a tree's matrix: give --attention "
                f"{' or '.join(TREES)}"
            )


def shuffled(document: Document, config: TrainConfig) -> np.ndarray:
    """The document's matrix with its units in random order: the shape of a tree that says nothing
    about them.
    """
    return shuffle(document.matrix, np.random.default_rng((config.seed, *document.id.encode())))


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
        # it reads no tree
        config = replace(self.config, attention="none") if make is previous else self.config
        return [
            replace(one, matrix=make(one, config))
            for one in Run(config, *self[1:]).encode(examples)
        ]


def kept(encode: Callable, folder: str, texts: Sequence[str]) -> np.ndarray:
    """Vectors of all units of a corpus, (n, D), by an encoder's `encode`; kept in a file of the
    folder.

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


def begin(config: ControlConfig, examples: Sequence) -> ControlRun:
    return with_control(loading.begin(config, examples))


def load_run(folder: str | Path) -> ControlRun:
    """A run with a control, or one of the package itself."""
    return with_control(loading.load_run(folder, ControlConfig))


def train(config: ControlConfig, out: str | Path, resume: bool = False) -> None:
    """As `train.train`, on the control's matrices."""
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
    with made.folder as folder:
        done = folder.progress["step"]
        batches = iter(accelerator.skip_first_batches(made.loader, done))
        for step in range(done, config.steps):
            run.model.train()
            optimizer.param_groups[0]["lr"] = learning_rate(step, config)
            batch = next(batches)
            loss = extraction_loss(
                model(batch.units, batch.keep, batch.matrix), batch.labels, batch.keep, weight
            )
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if (step + 1) % config.save_every == 0 or step + 1 == config.steps:
                now = {"step": step + 1, "loss": loss.item() / batch.keep.sum().item()}
                now |= validate(run, made.validation, weight)
                folder.keep_best(now, partial(write_weights, run.model), "rouge2", sign=1)
                folder.save_checkpoint(now)
        folder.take_best("model.safetensors")
    report(made, weight, Path(out), folder.progress["log"][1:])


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
