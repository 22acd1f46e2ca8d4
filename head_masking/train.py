"""Train the tagger that says what to mask (Section 5).

python -m head_masking.train --out runs/tagger                                                   # toy, a new encoder

python -m head_masking.train --out runs/tagger --data FOLDER --preset pretrained --encoder roberta-base

The run folder holds config.json, log.jsonl, checkpoints/, model/ (the encoder's configuration and the tokenizer) and
model.safetensors, the weights of encoder and perceptron.
"""

import math
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

try:
    from shared.data import load
except ModuleNotFoundError:
    where = "at the top of the import path (beside the outermost package)"
    sys.exit(f"error: the commands need the repository's folder `shared` {where}")
from shared.run import RunFolder, check, check_folder, new_accelerator, one_line_errors, parse, training

from .config import PRESETS, TrainConfig, learning_rate
from .loading import Run, begin, load_run
from .tagger import best_threshold, tagging_loss, token_f1
from .text import Batch, Item, LengthBatches

if TYPE_CHECKING:
    from accelerate import Accelerator

BEST = "best.safetensors"  # the weights that a run would end with if it ended now


class Setup(NamedTuple):
    """What the loop works with."""

    accelerator: "Accelerator"
    run: Run
    model: torch.nn.Module  # the run's, as accelerate wraps it
    optimizer: torch.optim.Optimizer
    loader: DataLoader
    validation: list[Item]
    save_every: int  # updates
    folder: AbstractContextManager[RunFolder]  # locks the run folder, loads its last checkpoint


def start(
    config: TrainConfig, out: Path, resume: bool, begin: Callable = begin, load_run: Callable = load_run
) -> Setup:
    """The `Setup` of a training; ValueError for bad values or data, or a folder that cannot be used."""
    from accelerate.utils import set_seed  # here, for --help answers without it

    check(config)
    begun, accelerator = check_folder(out, resume), new_accelerator(config)
    set_seed(config.seed)
    data = {"training": load(config.data, "train", config.examples or None)}
    data["validation"] = load(config.data, "validation")
    run = load_run(out)._replace(config=config) if begun else begin(config, data["training"])
    items, validation = run.encode(data["training"]), run.encode(data["validation"])
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    batches, generator = LengthBatches(items, config.batch_size, config.seed), torch.Generator()
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.collate, generator=generator)
    trained = [parameter for parameter in run.model.parameters() if parameter.requires_grad]
    # Released code: Adam with betas (0.9, 0.999), eps 1e-8.
    optimizer = torch.optim.AdamW(trained, lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=config.weight_decay)
    model, optimizer, loader = accelerator.prepare(run.model, optimizer, loader)
    epoch = -(-len(items) // (config.batch_size * config.accumulate * accelerator.num_processes))  # updates
    first = {"step": 0, "examples": len(items), "sources_cut": sum(item.was_cut for item in items)}
    folder = training(accelerator, out, config, run.write_files, begun, data, first)
    return Setup(accelerator, run, model, optimizer, loader, validation, config.save_every or epoch, folder)


def tagging_objective(model: torch.nn.Module, batch: Batch, config: TrainConfig) -> Tensor:
    """Appendix A: the cross-entropy of a batch's labels. D13: its mean, so an update's is a mean of means."""
    return tagging_loss(model(batch.ids, batch.keep).float(), batch.labels, batch.keep)


@torch.no_grad()
def validate(run: Run, items: Sequence[Item]) -> dict[str, float]:
    """Mean loss of all tokens in eval mode, and the best decision boundary, which the tagger keeps, with its F1."""
    run.model.eval()
    logits, labels = [], []
    for first in range(0, len(items), run.config.batch_size):
        batch = run.collate(items[first : first + run.config.batch_size])
        logits.append(run.model(batch.ids, batch.keep)[batch.keep].float())
        labels.append(batch.labels[batch.keep])
    logits, labels = torch.cat(logits).cpu(), torch.cat(labels).cpu()
    scores = logits.sigmoid()
    threshold, f1 = best_threshold(scores, labels)
    run.model.threshold.fill_(threshold)
    return {
        "validation_loss": tagging_loss(logits, labels, torch.ones_like(labels)).item(),
        "threshold": threshold,
        "token_f1": 100 * f1,
        "f1_of_all": 100 * token_f1(torch.ones_like(scores), labels, 0.0),  # a tagger that selects everything
    }


def kept_row(run: Run, folder: RunFolder) -> dict:
    """The row of the log whose weights the run keeps: the last or, with early stopping, the best."""
    rows = [row for row in folder.progress["log"] if "validation_loss" in row]
    return min(rows, key=lambda row: row["validation_loss"]) if run.config.patience else rows[-1]


def report(run: Run, validation: Sequence[Item], folder: RunFolder) -> None:
    """Say what came out, whether the tagger tells words apart, and what to do next."""
    last = kept_row(run, folder)
    f1, f1_of_all = last["token_f1"], last["f1_of_all"]
    print(f"{folder.path}: {last['step']} steps, validation loss {last['validation_loss']:.3f}")
    print(f"token F1 {f1:.1f} above {last['threshold']:.2f}; if all tokens were selected {f1_of_all:.1f}")
    if f1 < f1_of_all + 1:
        print("its masks are as good as none: train longer, on more data, or with --encoder roberta-base")
    print(f"next: python -m {__package__}.predict {folder.path} --data {run.config.data} --split test")


def train(
    config: TrainConfig,
    out: str | Path,
    resume: bool = False,
    objective: Callable = tagging_objective,
    validate: Callable = validate,
    report: Callable = report,
    **hooks: Callable,
) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    `objective`, `validate`, `report` and the hooks, `start`'s functions, are a tagger's; experiments/summarizer.py has
    its own. ValueError: see `start`; or a loss that is not finite, where the last checkpoint stays.
    """
    setup = start(config, Path(out), resume, **hooks)
    accelerator, run, model, optimizer, loader, validation, save_every, locked = setup
    hidden = None if accelerator.is_main_process else True  # None: where there is no terminal
    with locked as folder, tqdm(total=config.steps, initial=folder.progress["step"], disable=hidden) as bar:
        done, log = folder.progress["step"], lambda: folder.progress["log"]
        if done < config.steps and not config.patience:
            folder.reopen(run.weights)
        batches = iter(accelerator.skip_first_batches(loader, done * config.accumulate))
        for step in range(done, config.steps):
            if config.patience and without_gain(log()) >= config.patience:
                break
            model.train()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            for _ in range(config.accumulate):
                batch = next(batches)
                with accelerator.accumulate(model):
                    loss = objective(model, batch, config)
                    accelerator.backward(loss)
                    if config.clip and accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), config.clip)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item(), "lr": learning_rate(step, config)}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if row["step"] % save_every == 0 or row["step"] == config.steps:
                row |= validate(run, validation)
                if not config.patience or not without_gain([*log(), row]):
                    folder.write(BEST, run.write_weights)
                folder.save_checkpoint(row)
        finish(run, folder)
    if accelerator.is_main_process:
        report(run, validation, folder)


def without_gain(log: Sequence[dict]) -> int:
    """How many validations there were after the best one; Appendix A stops by it."""
    losses = [row["validation_loss"] for row in log if "validation_loss" in row]
    return len(losses) - 1 - losses.index(min(losses)) if losses else 0


def finish(run: Run, folder: RunFolder) -> None:
    """Put the weights where they belong: the last ones or, with early stopping, the best."""
    if (best := folder.path / BEST).exists():  # no more where the run was finished before
        folder.write(run.weights, lambda path: shutil.copyfile(best, path))
        if folder.accelerator.is_main_process:
            best.unlink()


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
