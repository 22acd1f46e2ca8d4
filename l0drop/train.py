"""Train a baseline, fine-tune it with L0Drop, or train with L0Drop from scratch.

python -m l0drop.train --out runs/mine --data FOLDER                                       # prunes
    47 %
python -m l0drop.train --out runs/base --l0drop none
python -m l0drop.train --out runs/l0 --init runs/base --l0drop output --l0-weight 0.3      # the
    paper's fine-tuning
"""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from tqdm import tqdm

from shared.run import (
    Batches,
    RunFolder,
    Setup,
    exchanged,
    one_line_errors,
    parse,
    says_it_reads,
    setup,
)

from .config import PRESETS, TrainConfig, held_open, l0_weight, learning_rate
from .gates import expected_gates
from .loading import Run, begin, load_run
from .model import Encoding, objective, translation_loss
from .sparsity import SparsityControl
from .text import Item


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same
    bits.

    ValueError: bad values or data, a folder that cannot be used, a loss that is not finite.
    """
    control = SparsityControl(config.target_sparsity, held_open(config))
    how = {
        "final": "model.safetensors",
        "checkpoints": config.average_last,
        "control": vars(control),
    }
    made = setup(config, Path(out), resume, begin, load_run, adam, lengths, **how)
    with made.folder as folder:
        update(made, control)
        averaged = save_average(folder, config)
    if made.accelerator.is_main_process:
        report(made.run, made.validation, folder, averaged)


def update(made: Setup, control: SparsityControl) -> None:
    """The updates that are still to do."""
    accelerator, run, model, optimizer, *_, folder = made
    config, done = run.config, folder.progress["step"]
    vars(control).update(folder.progress["control"])
    folder.progress["control"] = vars(control)
    batches = iter(accelerator.skip_first_batches(made.loader, done * config.accumulate))
    hidden = not accelerator.is_main_process or None  # None: where there is no terminal
    for step in (
        bar := tqdm(range(done, config.steps), initial=done, total=config.steps, disable=hidden)
    ):
        run.model.train()
        hold_open = step < control.open_until
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(run.first_step + step + 1, run.model.width, config)
        for _ in range(config.accumulate):
            batch = next(batches)
            with accelerator.accumulate(model):
                logits, encoding = model(batch.source, batch.target_input, hold_open)
                pruned = accelerator.reduce(sparsity(encoding), "mean").item()
                lambda_ = (
                    l0_weight(step, config)
                    if config.l0_weight or hold_open
                    else control.follow(pruned)
                )
                # Eq. (12), mean over the sentences of a micro-batch (D14).
                loss = objective(logits, batch.target, encoding, lambda_).mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        row = {"step": step + 1, "loss": loss.item(), "lambda": lambda_}
        if not math.isfinite(row["loss"]):
            raise ValueError(
                f"the loss is {row['loss']} at step {step + 1}; {folder.path} keeps its last "
                f"checkpoint"
            )
        bar.set_postfix(loss=f"{row['loss']:.3f}", pruned=f"{100 * pruned:.0f} %", refresh=False)
        if row["step"] % config.save_every == 0 or row["step"] == config.steps:
            row |= validate(run, made.validation, hold_open)
            control.correct(config.target_sparsity, row["sparsity"])
            folder.save_checkpoint(row)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """Appendix A: Adam, beta1 = 0.9, beta2 = 0.98; released code: eps 1e-8.

    The loop sets the rate.
    """
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-8)


def lengths(item: Item) -> tuple[int, int]:
    """What batches are sorted by: tokens of the target, which `batch_tokens` counts, then of the
    source.
    """
    return len(item.target), len(item.source)


def sparsity(encoding: Encoding) -> torch.Tensor:
    """Share of a batch's source encodings that the last layer would prune at test time; 0 of a
    baseline.
    """
    if not encoding.log_alpha:
        return torch.zeros((), device=encoding.keep.device)
    return (expected_gates(encoding.log_alpha[-1]) == 0)[encoding.keep].float().mean()


@torch.inference_mode()
def validate(run: Run, items: Sequence[Item], hold_open: bool = False) -> dict[str, float]:
    """Unsmoothed nats per token, mean over sentences, and share of encodings pruned, in eval mode
    (expected gates).
    """
    run.model.eval()
    losses, pruned, tokens = [], 0, 0
    for indices in Batches(
        [lengths(item) for item in items], 0, tokens=run.config.batch_tokens
    ).epoch(0):
        batch = run.collate([items[i] for i in indices])
        logits, encoding = run.model(batch.source, batch.target_input, hold_open)
        losses.append(translation_loss(logits, batch.target, smoothing=0.0))
        pruned += (encoding.gates[-1] == 0)[encoding.keep].sum().item() if encoding.gates else 0
        tokens += encoding.keep.sum().item()
    return {"validation_loss": torch.cat(losses).mean().item(), "sparsity": pruned / tokens}


def save_average(folder: RunFolder, config: TrainConfig) -> list[int]:
    """Write model.safetensors, the mean of the last checkpoints (D13); returns their steps."""
    paths = sorted((folder.path / "checkpoints").glob("[0-9]" * 8))[-config.average_last :]
    states = [load_file(path / "model.safetensors") for path in paths]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    folder.write("model.safetensors", lambda path: save_file(mean, path))
    return [int(path.name) for path in paths]


def report(
    run: Run,
    validation: list[Item],
    folder: RunFolder,
    averaged: list[int],
    command: str = f"{__package__}.predict",
) -> None:
    """Say what came out, whether the model reads its source, and by which `command` it decodes."""
    last = folder.progress["log"][-1]
    steps = f"{last['step']} steps (weights: mean of {', '.join(map(str, averaged))})"
    print(f"{folder.path}: {steps}, validation loss {last['validation_loss']:.3f} at the last step")
    if run.model.l0drop:
        print(f"{100 * last['sparsity']:.1f} % of the encodings are pruned")
        if last["sparsity"] in (0, 1):  # lambda closed every gate, or none
            constant = "leave --l0-weight out, so that lambda follows --target-sparsity"
            print(
                f"every gate is closed, or none: "
                f"{constant if run.config.l0_weight else 'train with more --steps'}"
            )
    swapped = exchanged(
        validation, lambda item: item.source, lambda item, other: other._replace(target=item.target)
    )
    if swapped and (
        verdict := says_it_reads(last["validation_loss"], validate(run, swapped)["validation_loss"])
    ):
        print(verdict)
    read = f"python -m {command} {folder.path}"
    print(f"next, on texts: {read} FILE.txt; with scores: {read} --split validation")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
