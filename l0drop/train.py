"""Train a baseline, fine-tune it with L0Drop, or train with L0Drop from scratch.

python -m l0drop.train --out runs/mine --data FOLDER                                       # prunes 47 %
python -m l0drop.train --out runs/base --l0drop none
python -m l0drop.train --out runs/l0 --init runs/base --l0drop output --l0-weight 0.3      # the paper's fine-tuning
"""

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader
from tqdm import tqdm

try:
    from shared.data import load
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

from .config import PRESETS, L0Weight, TrainConfig, learning_rate
from .gates import expected_gates
from .loading import Run, begin, load_run
from .model import Encoding, objective, translation_loss
from .text import Item, TokenBatches


def start(config: TrainConfig, out: Path, resume: bool, begin: Callable = begin, read: Callable = load_run) -> tuple:
    """Set up a training; ValueError for bad values or data, or a folder that cannot be used.

    `begin` makes a new run, `read` reads one; experiments/ have their own. Returns accelerator, run, its model as
    accelerate wraps it, optimizer, loader, validation items, and the run folder to lock.
    """
    from accelerate.utils import set_seed  # here, for --help answers without it

    check(config)
    begun, accelerator = check_folder(out, resume), new_accelerator(config)
    set_seed(config.seed)
    data = {split: load(config.data, split) for split in ("train", "validation")}
    run = read(out) if begun else begin(config, data["train"])
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout and gates
    items, validation = run.encode(data["train"]), run.encode(data["validation"])
    # The loader's own generator, or starting it would draw from the one that dropout and gates draw from.
    batches, generator = TokenBatches(items, config.batch_tokens, config.seed), torch.Generator()
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.collate, generator=generator)
    # Appendix A: Adam, beta1 = 0.9, beta2 = 0.98; released code: eps 1e-8.
    optimizer = torch.optim.Adam(run.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-8)
    model, optimizer, loader = accelerator.prepare(run.model, optimizer, loader)
    first = {"step": 0, "examples": len(items), "sources_cut": sum(item.was_cut for item in items)}
    state = {"keep": config.average_last, "l0_weight": dict(L0Weight.START)}
    folder = training(accelerator, out, config, run.write_files, begun, data, first, **state)
    return accelerator, run, model, optimizer, loader, validation, folder


def train(config: TrainConfig, out: str | Path, resume: bool = False, **hooks: Callable) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits; `hooks` are
    begin and read of `start`. ValueError: what `start` refuses; a loss that is not finite."""
    accelerator, run, model, optimizer, loader, validation, locked = start(config, Path(out), resume, **hooks)
    hidden = None if accelerator.is_main_process else True  # None: where there is no terminal
    with locked as folder, tqdm(total=config.steps, initial=folder.progress["step"], disable=hidden) as bar:
        done, weight = folder.progress["step"], L0Weight(config, folder.progress["l0_weight"])
        if done < config.steps:
            folder.reopen("model.safetensors")
        batches = iter(accelerator.skip_first_batches(loader, done * config.accumulate))
        for step in range(done, config.steps):
            run.model.train()
            run.model.held_open = weight.holds_open(step)  # D19, D20
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(run.first_step + step + 1, run.model.width, config)
            for _ in range(config.accumulate):
                batch = next(batches)
                with accelerator.accumulate(model):
                    logits, encoding = model(batch.source, batch.target_input, batch.rule_keep)
                    pruned = accelerator.reduce(sparsity(encoding), "mean").item()
                    l0_weight = weight.at(step, pruned)
                    # Eq. (12), mean over the sentences of a micro-batch (D14).
                    loss = objective(logits, batch.target, encoding, l0_weight).mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item(), "lambda": l0_weight}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", pruned=f"{100 * pruned:.0f} %", refresh=False)
            if row["step"] % config.save_every == 0 or row["step"] == config.steps:
                row |= validate(run, validation)
                weight.correct(row["sparsity"])
                warn(run, row)
                folder.save_checkpoint(row)
        averaged = save_average(folder, config)
    if accelerator.is_main_process:
        report(run, validation, folder, averaged)


def sparsity(encoding: Encoding) -> torch.Tensor:
    """Share of a batch's source encodings that the last layer would prune at test time; 0 of a baseline."""
    if not encoding.log_alpha:
        return torch.zeros((), device=encoding.keep.device)
    return (expected_gates(encoding.log_alpha[-1]) == 0)[encoding.keep].float().mean()


@torch.inference_mode()
def validate(run: Run, items: Sequence[Item]) -> dict[str, float]:
    """Unsmoothed nats per token, mean over sentences, and share of encodings pruned, in eval mode (expected gates)."""
    run.model.eval()
    losses, pruned, tokens = [], 0, 0
    for indices in TokenBatches(items, run.config.batch_tokens, seed=0).epoch(0):
        batch = run.collate([items[i] for i in indices])
        logits, encoding = run.model(batch.source, batch.target_input, batch.rule_keep)
        losses.append(translation_loss(logits, batch.target, smoothing=0.0))
        pruned += (encoding.gates[-1] == 0)[encoding.keep].sum().item() if encoding.gates else 0
        tokens += encoding.keep.sum().item()
    return {"validation_loss": torch.cat(losses).mean().item(), "sparsity": pruned / tokens}


def warn(run: Run, row: dict) -> None:
    """Say it where lambda closes every gate, or none."""
    if run.model.l0drop and not run.model.held_open and row["sparsity"] in (0, 1):
        constant = "leave --l0-weight out, so that lambda follows --target-sparsity"
        remedy = constant if run.config.l0_weight else "train with more --steps"
        is_closed = "closed" if row["sparsity"] else "open"
        tqdm.write(f"step {row['step']}: every gate is {is_closed}: if that stays so, {remedy}")


def save_average(folder: RunFolder, config: TrainConfig) -> list[int]:
    """Write model.safetensors, the mean of the last checkpoints (D13); returns their steps."""
    paths = sorted((folder.path / "checkpoints").glob("[0-9]" * 8))[-config.average_last :]
    states = [load_file(path / "model.safetensors") for path in paths]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    folder.write("model.safetensors", lambda path: save_file(mean, path))
    return [int(path.name) for path in paths]


def report(run: Run, validation: list[Item], folder: RunFolder, averaged: list[int]) -> None:
    """Say what came out, whether the model reads its source, and what to do next."""
    last = folder.progress["log"][-1]
    steps = f"{last['step']} steps (weights: mean of {', '.join(map(str, averaged))})"
    print(f"{folder.path}: {steps}, validation loss {last['validation_loss']:.3f} at the last step")
    if run.model.l0drop:
        print(f"{100 * last['sparsity']:.1f} % of the encodings are pruned")
    swapped = exchanged(validation, lambda item, other: other._replace(target=item.target))
    if swapped and (verdict := says_it_reads(last["validation_loss"], validate(run, swapped)["validation_loss"])):
        print(verdict)
    read = f"python -m {__package__}.{run.reader} {folder.path}"
    print(f"next, on texts: {read} FILE.txt; with scores: {read} --data {run.config.data} --split test")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
