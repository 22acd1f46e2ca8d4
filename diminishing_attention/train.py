"""Train a pointer-generator or BERTSum, then switch diminishing attention or coverage on.

python -m diminishing_attention.train --out runs/pg --preset repetition
python -m diminishing_attention.train --out runs/pg-more --init runs/pg --steps 150          # the
    control
python -m diminishing_attention.train --out runs/pg-dim --init runs/pg --steps 150 --diminishing dim
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_model
from torch import nn
from tqdm import tqdm

from shared.data import Example, in_sentences, load
from shared.run import RunFolder, exchanged, one_line_errors, parse, says_it_reads, setup

from .config import PRESETS, TrainConfig, learning_rate
from .loading import Run, begin, load_run
from .text import Item, words

VALIDATION = 200  # documents of the validation loss at most
# largest norm of the gradient of each part of a pointer-generator (See et al.); PreSumm clips
# nothing
CLIP = 2.0


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same
    bits.

    ValueError: bad values or data, a folder that cannot be used, a loss that is not finite.
    """
    made = setup(
        config,
        Path(out),
        resume,
        begin,
        load_run,
        lambda model: make_optimizer(model, config),
        length_of(config),
        load_sentences,
        final="model.safetensors",
    )
    accelerator, run, model, optimizer = made[:4]
    with made.folder as folder:
        done = folder.progress["step"]
        batches = iter(accelerator.skip_first_batches(made.loader, done * config.accumulate))
        hidden = not accelerator.is_main_process or None  # None: where there is no terminal
        for step in (
            bar := tqdm(range(done, config.steps), initial=done, total=config.steps, disable=hidden)
        ):
            run.model.train()
            for group in optimizer.param_groups:  # D12: the rates go on in a second phase
                group["lr"] = learning_rate(
                    run.first_step + step + 1, group["factor"], group["warmup"]
                )
            for _ in range(config.accumulate):
                batch = next(batches)
                with accelerator.accumulate(model):
                    # Eq. (5) of each document; BERTSum: cross-entropy of each target token.
                    losses = model(batch)
                    # D19: the mean over micro-batches of their means
                    accelerator.backward(losses.mean())
                    if accelerator.sync_gradients and config.model == "pointer":
                        for part in run.model.parts():  # each by itself (released code)
                            nn.utils.clip_grad_norm_(part, CLIP)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {
                "step": step + 1,
                "loss": losses.mean().item(),
                "lr": optimizer.param_groups[-1]["lr"],
            }
            if not math.isfinite(row["loss"]):
                raise ValueError(
                    f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint"
                )
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if row["step"] % config.save_every == 0 or row["step"] == config.steps:
                row["validation_loss"] = validation_loss(run, made.validation)
                folder.save_checkpoint(row)
        # D26: the last weights; a tensor that the network uses twice is stored once.
        folder.write("model.safetensors", lambda path: save_model(run.model, path))
    if accelerator.is_main_process:
        report(run, folder)


def load_sentences(data: str, split: str) -> list[Example]:
    """Documents in sentences."""
    return in_sentences(load(data, split, VALIDATION if split == "validation" else None))


def length_of(config: TrainConfig) -> Callable[[Item], int | tuple[int, int]]:
    """By what batches are sorted: the source, or first the target where --batch-tokens counts its
    tokens.
    """
    if config.batch_tokens:
        return lambda item: (len(item.target), len(item.source))
    return lambda item: len(item.source)


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adagrad, or Adam; a group of parameters for each learning rate."""
    encoder = {"factor": config.encoder_learning_rate, "warmup": config.encoder_warmup}  # Eq. (7)
    other = {"factor": config.learning_rate, "warmup": config.warmup}  # Eq. (8)
    groups = [{"params": list(model.parameters()), **other}]
    if config.model != "pointer":
        # D9: the two optimisers of Eq. (7)-(8) are two groups of one Adam, which updates each
        # parameter by itself.
        groups = [
            {"params": part, **rate}
            for part, rate in zip(model.parts(), (encoder, other), strict=True)
        ]
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


def report(run: Run, folder: RunFolder) -> None:
    """Say what came out, whether the model reads its sources, and what to do next."""
    config, loss = run.config, folder.progress["log"][-1]["validation_loss"]
    print(
        f"{folder.path}: {sum(p.numel() for p in run.model.parameters()):,} parameters, validation "
        f"loss {loss:.3f}"
    )
    # as text: an unknown word's number is its document's own
    examples = load_sentences(config.data, "validation")
    swapped = exchanged(
        examples, lambda e: words(e.source), lambda e, other: replace(e, document=other.document)
    )
    if swapped and (verdict := says_it_reads(loss, validation_loss(run, run.encode(swapped)))):
        print(verdict)
    if not config.init and config.diminishing == "none" and not config.coverage:
        more = f"--init {folder.path} --steps {max(config.steps // 8, 1)}"
        print(
            f"no mechanism is on yet: python -m {__package__}.train --out {folder.path}-dim {more} "
            f"--diminishing dim"
        )
    read = f"python -m {__package__}.predict {folder.path}"
    print(f"next, on texts: {read} FILE.txt; with scores: {read} --split validation")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
