"""Train a pointer-generator or BERTSum, then switch diminishing attention or coverage on.

python -m diminishing_attention.train --out runs/pg --preset repetition
python -m diminishing_attention.train --out runs/pg-more --init runs/pg --steps 150          # the control
python -m diminishing_attention.train --out runs/pg-dim --init runs/pg --steps 150 --diminishing dim
python -m diminishing_attention.train --out runs/bertsum --preset bertsum-abs
"""

import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors.torch import save_model
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm

try:
    from shared.data import Example, in_sentences, load
except ModuleNotFoundError:
    where = "at the top of the import path (beside the outermost package)"
    sys.exit(f"error: the commands need the repository's folder `shared` {where}")
from shared.run import (
    RunFolder,
    check,
    check_folder,
    exchanged,
    new_accelerator,
    one_line_errors,
    parse,
    says_it_reads,
    training,
)

from .config import PRESETS, TrainConfig, learning_rate
from .loading import Run, begin, load_run
from .text import Item, LengthBatches

if TYPE_CHECKING:
    from accelerate import Accelerator

VALIDATION = 200  # documents of the validation loss at most
CLIP = 2.0  # largest norm of the gradient of each part of a pointer-generator (See et al.); PreSumm clips nothing


class Setup(NamedTuple):
    """What the loop works with."""

    accelerator: "Accelerator"
    run: Run
    model: nn.Module  # the run's, as accelerate wraps it
    optimizer: torch.optim.Optimizer
    loader: DataLoader
    examples: list[Example]  # of validation
    validation: list[Item]  # the same ones, encoded
    folder: AbstractContextManager[RunFolder]  # locks the run folder, loads its last checkpoint


def start(config: TrainConfig, out: Path, resume: bool) -> Setup:
    """Set up all that `train` needs; ValueError for bad values or data, or a folder that cannot be used."""
    from accelerate.utils import set_seed  # here, for --help answers without it

    check(config)
    begun, accelerator = check_folder(out, resume), new_accelerator(config)
    splits = {"training": load(config.data, "train"), "validation": load(config.data, "validation", VALIDATION)}
    data = {name: in_sentences(examples) for name, examples in splits.items()}
    set_seed(config.seed)
    run = load_run(out) if begun else begin(config, data["training"])
    if config.beam > run.model.vocabulary:
        raise ValueError(f"--beam is {config.beam}: at most the vocabulary's {run.model.vocabulary} tokens")
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    items, validation = run.encode(data["training"]), run.encode(data["validation"])
    batches = LengthBatches(items, config.batch_size, config.batch_tokens, config.seed)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.text.collate, generator=torch.Generator())
    model, optimizer, loader = accelerator.prepare(run.model, make_optimizer(run.model, config), loader)
    first = {"step": 0, "examples": len(items), "sources_cut": sum(item.was_cut for item in items)}
    folder = training(accelerator, out, config, run.write_files, begun, data, first)
    return Setup(accelerator, run, model, optimizer, loader, data["validation"], validation, folder)


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    ValueError: what `start` refuses; a loss that is not finite, where the last checkpoint stays.
    """
    accelerator, run, model, optimizer, loader, examples, validation, locked = start(config, Path(out), resume)
    hidden = None if accelerator.is_main_process else True  # None: where there is no terminal
    with locked as folder, tqdm(total=config.steps, initial=folder.progress["step"], disable=hidden) as bar:
        if (done := folder.progress["step"]) < config.steps:
            folder.reopen("model.safetensors")
        batches = iter(accelerator.skip_first_batches(loader, done * config.accumulate))
        for step in range(done + 1, config.steps + 1):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(run.first_step + step, group["factor"], group["warmup"])  # D12
            model.train()
            for _ in range(config.accumulate):
                batch = next(batches)
                with accelerator.accumulate(model):
                    # Eq. (5) of each document; BERTSum: cross-entropy of each target token.
                    losses = model(batch)
                    accelerator.backward(losses.mean())  # D19: the mean over micro-batches of their means
                    if accelerator.sync_gradients and config.model == "pointer":
                        for part in run.model.parts():  # each by itself (released code)
                            nn.utils.clip_grad_norm_(part, CLIP)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step, "loss": losses.mean().item(), "lr": optimizer.param_groups[-1]["lr"]}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step}; {out} keeps its last checkpoint")
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if step % config.save_every == 0 or step == config.steps:
                row["validation_loss"] = validation_loss(run, validation)
                folder.save_checkpoint(row)
        # D26: the last weights; a tensor that the network uses twice is stored once.
        folder.write("model.safetensors", lambda path: save_model(run.model, path))
    if accelerator.is_main_process:
        report(run, examples, folder)


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adagrad, or Adam; a group of parameters for each learning rate."""
    encoder = {"factor": config.encoder_learning_rate, "warmup": config.encoder_warmup}  # Eq. (7)
    other = {"factor": config.learning_rate, "warmup": config.warmup}  # Eq. (8)
    groups = [{"params": list(model.parameters()), **other}]
    if config.model != "pointer":
        # D9: the two optimisers of Eq. (7)-(8) are two groups of one Adam, which updates each parameter by itself.
        groups = [{"params": part, **rate} for part, rate in zip(model.parts(), (encoder, other), strict=True)]
    if config.optimizer == "adagrad":  # D8: See et al.; the accumulator's start is theirs
        return torch.optim.Adagrad(groups, lr=0.0, initial_accumulator_value=0.1, eps=1e-10)
    eps = 1e-8 if config.model == "pointer" else 1e-9  # OpenNMT's, behind PreSumm
    return torch.optim.Adam(groups, lr=0.0, betas=(0.9, 0.999), eps=eps)


@torch.inference_mode()
def validation_loss(run: Run, items: Sequence[Item]) -> float:
    """Mean loss of all documents or target tokens, in eval mode and without label smoothing."""
    run.model.eval()
    by_length, size = sorted(items, key=lambda item: len(item.source)), run.config.batch_size
    batches = (run.collate(by_length[first : first + size]) for first in range(0, len(items), size))
    return torch.cat([run.model(batch) for batch in batches]).mean().item()


def report(run: Run, examples: Sequence[Example], folder: RunFolder) -> None:
    """Say what came out, whether the model reads its sources, and what to do next."""
    config, loss = run.config, folder.progress["log"][-1]["validation_loss"]
    print(f"{folder.path}: {sum(p.numel() for p in run.model.parameters()):,} parameters, validation loss {loss:.3f}")
    swapped = exchanged(
        examples,
        lambda example: example.source.split(),
        lambda example, other: replace(example, document=other.document),
    )
    if swapped and (verdict := says_it_reads(loss, validation_loss(run, run.encode(swapped)))):
        print(verdict)
    if not config.init and config.diminishing == "none" and not config.coverage:
        more = f"--init {folder.path} --steps {max(config.steps // 8, 1)}"
        print(f"no mechanism is on yet: python -m {__package__}.train --out {folder.path}-dim {more} --diminishing dim")
    print(f"next: python -m {__package__}.predict {folder.path} --data {config.data} --split validation")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
